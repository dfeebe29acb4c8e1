"""Every architecture against NumPy written from its equations."""

import functools
import math

import chex
import flax.linen as nn
import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sepfx import models
from sepfx.errors import InvalidSetting
from sepfx.models import (
  GRU,
  LSTM,
  RNN,
  FeedForward,
  OnBits,
  ResidualRNN,
  Transformer,
  transformer,
)
from sepfx.models.recurrent import (
  _scan_cells,
  gru_cell,
  lstm_cell,
  relu_cell,
  scan_cells,
)
from sepfx.models.residual_rnn import lipschitz_factor, project
from sepfx.models.transformer import Layer, _each, _joined, _Separate
from sepfx.tasks import QSTR, SparseBoolean

pytestmark = pytest.mark.usefixtures("exact")


def fitted(module, n, length, d_in, seed=0):
  """Inputs, outputs and parameters, none of which is zero."""
  # Drawn by NumPy: JAX's generator is most of what such a small program compiles.
  rng = np.random.default_rng(seed)
  x = rng.normal(size=(n, length, d_in)).astype(np.float32)
  shapes = jax.eval_shape(module.init, jax.random.key(0), x)["params"]
  params = jax.tree.map(
    lambda a: (0.4 * rng.normal(size=a.shape)).astype(a.dtype), shapes
  )
  y = jax.jit(module.apply)({"params": params}, x)
  return x, np.asarray(y), params


def noted(monkeypatch, module, *names):
  """A list of the names of those functions of a module that are called from now on."""
  called = []
  for name in names:
    plain = getattr(module, name)

    def call(*args, name=name, plain=plain):
      called.append(name)
      return plain(*args)

    monkeypatch.setattr(module, name, call)
  return called


def relu(a):
  return np.maximum(a, 0)


def sigmoid(a):
  return 1 / (1 + np.exp(-a))


def softmax(a):
  e = np.exp(a - a.max())
  return e / e.sum()


shapes = {
  "n": st.integers(1, 3),
  "length": st.integers(1, 6),
  "d_in": st.integers(1, 7),
}


@hypothesis.given(**shapes, heads=st.integers(1, 3), head_dim=st.sampled_from([None, 4]))
def test_separate_attention(n, length, d_in, heads, head_dim):
  module = Transformer(num_heads=heads, head_dim=head_dim, width=5)
  x, y, p = fitted(module, n, length, d_in)
  e = head_dim or d_in
  for b in range(n):
    for i in range(length):
      mixed = np.zeros(d_in)
      for h in range(heads):
        w = {name: p[name]["kernel"][:, h] for name in ("query", "key", "value")}
        bias = {name: p[name]["bias"][h] for name in w}
        q = x[b, i] @ w["query"] + bias["query"]
        keys = [x[b, j] @ w["key"] + bias["key"] for j in range(length)]
        values = [x[b, j] @ w["value"] + bias["value"] for j in range(length)]
        a = softmax(np.array([q @ k for k in keys]) / math.sqrt(e))
        head = sum(a[j] * values[j] for j in range(length))
        mixed = mixed + head @ p["out"]["kernel"][h]
      mixed = mixed + p["out"]["bias"]
      hidden = relu(mixed @ p["hidden"]["kernel"] + p["hidden"]["bias"])
      expected = hidden @ p["output"]["kernel"][:, 0] + p["output"]["bias"][0]
      np.testing.assert_allclose(y[b, i], expected, rtol=2e-4, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
  ("heads", "head_dim"), [pytest.param(1, None, marks=pytest.mark.slow), (3, 4)]
)
def test_weights_multiplied_first(heads, head_dim):
  """Outputs and gradients are those of one layer after the other."""
  module = Transformer(num_heads=heads, head_dim=head_dim, width=5)
  x, _, p = fitted(module, 3, 6, 7)

  def loss(form, p):
    names = ("query", "key", "value", "out", "hidden")
    layers = _Separate(*(Layer(p[own]["kernel"], p[own]["bias"]) for own in names))
    hidden = form(layers, x)
    return jnp.sum(jnp.sin(hidden)), hidden

  each, joined = (
    jax.value_and_grad(functools.partial(loss, form), has_aux=True)(p)
    for form in (_each, _joined)
  )
  chex.assert_trees_all_close(joined, each, rtol=1e-4, atol=1e-5)


def test_which_form_the_transformer_takes(monkeypatch):
  """The one with fewer multiplications: few prompts do not pay for joined weights."""
  taken = noted(monkeypatch, transformer, "_each", "_joined")
  for n, heads, head_dim in ((64, 1, None), (1, 1, None), (64, 4, 3), (64, 4, None)):
    shape = jax.ShapeDtypeStruct((n, 12, 34), jnp.float32)
    jax.eval_shape(Transformer(heads, head_dim=head_dim).init, jax.random.key(0), shape)
  assert taken == ["_joined", "_each", "_each", "_joined"]


@hypothesis.given(**shapes, heads=st.integers(1, 3))
def test_full_attention(n, length, d_in, heads):
  x, y, p = fitted(Transformer(heads, "full", width=5), n, length, d_in)
  for b in range(n):
    for i in range(length):
      averages = []
      for h in range(heads):
        scores = [x[b, i] @ p["W_QK"][h] @ x[b, j] for j in range(length)]
        a = softmax(np.array(scores))
        averages.append(sum(a[j] * x[b, j] for j in range(length)))
      hidden = np.concatenate(averages) @ p["hidden"]["kernel"] + p["hidden"]["bias"]
      expected = relu(hidden) @ p["output"]["kernel"][:, 0]
      np.testing.assert_allclose(y[b, i], expected, rtol=2e-4, atol=2e-5)


def test_query_key_products():
  module = Transformer(num_heads=2, head_dim=3)
  _, _, p = fitted(module, 1, 2, 5)
  products = models.query_key_products(p, 5)
  for h in range(2):
    w_q, w_k = p["query"]["kernel"][:, h].T, p["key"]["kernel"][:, h].T
    np.testing.assert_allclose(products[h], w_q.T @ w_k, rtol=1e-5)


@hypothesis.given(**shapes)
def test_feedforward(n, length, d_in):
  x, y, p = fitted(FeedForward((6, 4)), n, length, d_in)
  hidden = x.reshape(n, -1)
  for k in range(2):
    hidden = relu(hidden @ p[f"Dense_{k}"]["kernel"] + p[f"Dense_{k}"]["bias"])
  expected = hidden @ p["Dense_2"]["kernel"] + p["Dense_2"]["bias"]
  np.testing.assert_allclose(y, expected, rtol=2e-4, atol=2e-5)


def gru_step(p, x, h, c):
  w_i, w_h, b_i, b_h = (np.split(a, 3, axis=-1) for a in p)
  r = sigmoid(x @ w_i[0] + b_i[0] + h @ w_h[0] + b_h[0])
  z = sigmoid(x @ w_i[1] + b_i[1] + h @ w_h[1] + b_h[1])
  new = np.tanh(x @ w_i[2] + b_i[2] + r * (h @ w_h[2] + b_h[2]))
  return (1 - z) * new + z * h, c


def lstm_step(p, x, h, c):
  w_i, w_h, b_i, b_h = (np.split(a, 4, axis=-1) for a in p)
  gates = [x @ w_i[k] + b_i[k] + h @ w_h[k] + b_h[k] for k in range(4)]
  c = sigmoid(gates[1]) * c + sigmoid(gates[0]) * np.tanh(gates[2])
  return sigmoid(gates[3]) * np.tanh(c), c


def rnn_step(p, x, h, c):
  w_i, w_h, b_i, b_h = p
  return relu(x @ w_i + b_i + h @ w_h + b_h), c


@pytest.mark.parametrize(
  ("layer", "step"), [(GRU, gru_step), (LSTM, lstm_step), (RNN, rnn_step)]
)
@hypothesis.given(**shapes)
def test_recurrent_layers(layer, step, n, length, d_in):
  units = 3
  x, y, p = fitted(layer(units=units), n, length, d_in)
  names = ("input_kernel", "hidden_kernel", "input_bias", "hidden_bias")
  states = np.zeros((2, n, length, units))
  for k, direction in enumerate(("forward", "backward")):
    own = [p[f"{direction}_{name}"] for name in names]
    for b in range(n):
      h = c = np.zeros(units)
      for i in range(length) if k == 0 else reversed(range(length)):
        h, c = step(own, x[b, i], h, c)
        states[k, b, i] = h
  both = np.concatenate(list(states), axis=-1)
  expected = both @ p["output"]["kernel"][:, 0] + p["output"]["bias"][0]
  np.testing.assert_allclose(y, expected, rtol=2e-4, atol=2e-5)


def test_read_out_at_the_last_states():
  n, length, units = 2, 4, 3
  x, y, p = fitted(GRU(units=units, num_outputs=2), n, length, 5)
  names = ("input_kernel", "hidden_kernel", "input_bias", "hidden_bias")
  last = []
  for direction, order in (("forward", range(length)), ("backward", range(length)[::-1])):
    h = np.zeros((n, units))
    for i in order:
      h, _ = gru_step([p[f"{direction}_{name}"] for name in names], x[:, i], h, None)
    last.append(h)
  expected = np.hstack(last) @ p["output"]["kernel"] + p["output"]["bias"]
  np.testing.assert_allclose(y, expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(
  ("cell", "gates", "num_carries"),
  [(gru_cell, 3, 1), (lstm_cell, 4, 2), (relu_cell, 1, 1)],
)
@pytest.mark.parametrize(  # fewer prompts than units, and as many
  "n", [2, pytest.param(3, marks=pytest.mark.slow)]
)
def test_scan_gradient_is_the_plain_one(cell, gates, num_carries, n):
  length, units = 5, 3
  keys = jax.random.split(jax.random.key(0), 4)
  width = gates * units
  shapes = ((length, n, width), (units, width), (width,))
  arguments = [
    [jnp.split(jax.random.normal(key, shape), gates, axis=-1)]
    for key, shape in zip(keys[:3], shapes, strict=True)
  ]
  weights = jax.random.normal(keys[3], (length, n, units))

  def fast(x_gates, kernels, biases):
    return jnp.sum(weights * scan_cells(cell, num_carries, x_gates, kernels, biases)[0])

  def plain(x_gates, kernels, biases):
    carry, total = (jnp.zeros((n, units)),) * num_carries, 0.0
    for i in range(length):
      h_gates = [carry[0] @ w + b for w, b in zip(kernels[0], biases[0], strict=True)]
      carry = cell([x[i] for x in x_gates[0]], h_gates, carry)
      total += jnp.sum(weights[i] * carry[0])
    return total

  np.testing.assert_allclose(fast(*arguments), plain(*arguments), rtol=1e-5)
  chex.assert_trees_all_close(
    jax.grad(fast, argnums=(0, 1, 2))(*arguments),
    jax.grad(plain, argnums=(0, 1, 2))(*arguments),
    rtol=1e-4,
    atol=1e-5,
  )


def test_scan_of_cells_has_the_plain_second_derivatives():
  """Forward over reverse and reverse over forward, with fewer prompts than units."""
  length, n, units = 3, 2, 3
  keys = jax.random.split(jax.random.key(0), 3)
  shapes = ((length, n, units), (units, units), (units,))
  point = [[[jax.random.normal(key, s)]] for key, s in zip(keys, shapes, strict=True)]
  along = jax.tree.map(jnp.cos, point)

  def second(scan):
    def loss(point):
      return jnp.sum(jnp.sin(scan(tanh_cell, 1, *point)[0]))

    def forward(point):
      return jax.jvp(loss, (point,), (along,))[1]

    def over_reverse(point):
      return jax.jvp(jax.grad(loss), (point,), (along,))[1]

    return over_reverse, jax.grad(forward)

  def tanh_cell(x_gates, h_gates, carry):
    return (jnp.tanh(x_gates[0] + h_gates[0]) + 0.1 * carry[0],)

  plain = jax.jit(second(_scan_cells)[0])(point)
  for form in second(scan_cells):
    chex.assert_trees_all_close(jax.jit(form)(point), plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
  "lipschitz", [0.3, *(pytest.param(own, marks=pytest.mark.slow) for own in (None, 0.0))]
)
@hypothesis.given(**shapes)
def test_residual_rnn(lipschitz, n, length, d_in):
  units, radius = 3, 0.5
  module = ResidualRNN(units, (4, 5), (6,), radius, lipschitz)
  x, y, p = fitted(module, n, length, d_in)
  states = np.zeros((2, n, length, units))
  for k, direction in enumerate(("forward", "backward")):
    own = p[direction]
    w = [own[f"W_{l}"].copy() for l in (1, 2, 3)]
    if lipschitz is not None:
      norm = np.prod([np.linalg.norm(a, 2) for a in (w[0][:units], w[1], w[2])])
      w[0][:units] *= min(1, lipschitz / norm)
    for b in range(n):
      order = list(range(length)) if k == 0 else list(reversed(range(length)))
      h = np.zeros(units)
      for i in order:
        states[k, b, i] = h
        hidden = relu(np.concatenate([h, x[b, i]]) @ w[0] + own["b_1"])
        h = h + relu(hidden @ w[1] + own["b_2"]) @ w[2]
        h = h * min(1, radius / np.linalg.norm(h))
  z = np.concatenate([states[0], states[1], x], axis=-1)
  hidden = relu(z @ p["hidden_1"]["kernel"] + p["hidden_1"]["bias"])
  expected = hidden @ p["output"]["kernel"][:, 0]
  np.testing.assert_allclose(y, expected, rtol=5e-4, atol=5e-5)


def test_projection_and_its_gradient():
  h = jnp.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
  np.testing.assert_allclose(project(h, 1.0), [[0.6, 0.8], [0.3, 0.4], [0, 0]], rtol=1e-6)
  gradient = jax.grad(lambda h: jnp.sum(project(h, 1.0) ** 2))(h)
  assert np.all(np.isfinite(gradient))


def test_a_negative_lipschitz_constant_is_refused():
  with pytest.raises(InvalidSetting, match="lipschitz: got -1, takes a number >= 0"):
    ResidualRNN(lipschitz=-1).init(jax.random.key(0), jnp.zeros((1, 2, 3)))


def test_rescaled_transition_is_lipschitz():
  alpha, d_h = 0.2, 4
  keys = jax.random.split(jax.random.key(0), 3)
  shapes = ((9, 7), (7, 6), (6, 4))
  kernels = [jax.random.normal(k, s) for k, s in zip(keys, shapes, strict=True)]
  scaled = kernels[0][:d_h] * lipschitz_factor(kernels, d_h, alpha)

  def transition(h):
    hidden = nn.relu(h @ scaled)
    return nn.relu(hidden @ kernels[1]) @ kernels[2]

  pairs = jax.random.normal(jax.random.key(1), (2, 500, d_h))
  moved = jnp.linalg.norm(transition(pairs[0]) - transition(pairs[1]), axis=1)
  assert np.all(moved <= alpha * jnp.linalg.norm(pairs[0] - pairs[1], axis=1) * 1.0001)
  # Never enlarged: a transition that is alpha-Lipschitz already is left alone.
  assert lipschitz_factor([1e-3 * k for k in kernels], d_h, alpha) == 1.0
  assert lipschitz_factor([0 * k for k in kernels], d_h, 0.0) == 1.0


@pytest.mark.slow
def test_torch_initialisers():
  d_in, heads, head_dim = 40, 2, 30
  x = jnp.zeros((1, 3, d_in))
  p = Transformer(heads, head_dim=head_dim).init(jax.random.key(0), x)["params"]

  def check(array, bound):
    assert 0.95 * bound < np.abs(array).max() <= bound
    np.testing.assert_allclose(np.std(array), bound / math.sqrt(3), rtol=0.1)

  # PyTorch: Xavier uniform of the stacked [3 H e, D] matrix.
  for name in ("query", "key", "value"):
    check(p[name]["kernel"], math.sqrt(6 / (d_in + 3 * heads * head_dim)))
    assert np.all(p[name]["bias"] == 0)
  check(p["out"]["kernel"], 1 / math.sqrt(heads * head_dim))
  assert np.all(p["out"]["bias"] == 0)
  check(p["hidden"]["kernel"], 1 / math.sqrt(d_in))
  check(p["hidden"]["bias"], 1 / math.sqrt(d_in))
  p = GRU(units=50).init(jax.random.key(0), x)["params"]
  for direction in ("forward", "backward"):
    for name in ("input_kernel", "hidden_kernel", "input_bias", "hidden_bias"):
      check(p[f"{direction}_{name}"], 1 / math.sqrt(50))
  check(p["output"]["kernel"], 1 / math.sqrt(100))


@pytest.mark.parametrize(
  "module",
  [
    Transformer(scheme="flax"),
    FeedForward((8,), "flax"),
    GRU(8, "flax"),
    ResidualRNN(scheme="flax"),
  ],
)
def test_flax_initialisers_have_zero_biases(module):
  p = module.init(jax.random.key(0), jnp.zeros((1, 3, 10)))["params"]
  for path, leaf in jax.tree_util.tree_leaves_with_path(p):
    is_bias = "bias" in str(path) or "b_" in str(path)
    assert bool(np.all(leaf == 0)) == is_bias


def test_published_widths():
  x = jnp.zeros((1, 12, 34))
  counts = {}
  for name in models.NAMES["regression"]:
    module = models.build(name, QSTR(length=12, token_dim=10))
    p = jax.eval_shape(module.init, jax.random.key(0), x)["params"]
    counts[name] = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(p))
  assert counts["transformer"] == 4 * 34 * 35 + 34 * 100 + 100 + 101
  assert counts["ffn"] == 408 * 120 + 120 + 120 * 1000 + 1000 + 1000 * 12 + 12
  assert counts["gru"] == 2 * 1500 * (34 + 500 + 2) + 1001
  assert counts["lstm"] == 2 * 2000 * (34 + 500 + 2) + 1001


def test_classifiers_of_bits():
  bits = jax.random.bernoulli(jax.random.key(0), 0.5, (3, 100)).astype(jnp.int32)
  counts = {}
  for name in models.NAMES["classification"]:
    module = models.build(name, SparseBoolean())
    variables = jax.eval_shape(module.init, jax.random.key(1), bits)
    assert jax.eval_shape(module.apply, variables, bits).shape == (3, 2)
    counts[name] = sum(leaf.size for leaf in jax.tree.leaves(variables))
  # Of similar size.
  assert max(counts.values()) < 1.2 * min(counts.values())
  inner = FeedForward((4,), num_outputs=2)
  variables = OnBits(inner).init(jax.random.key(2), bits)
  signs = np.where(np.asarray(bits) == 1, 1.0, -1.0)[..., None]
  np.testing.assert_allclose(
    OnBits(inner).apply(variables, bits),
    inner.apply({"params": variables["params"]["model"]}, signs),
    rtol=1e-6,
  )


class Knowing(nn.Module):
  """Knows another way to many outputs, here a visible one."""

  @nn.compact
  def __call__(self, inputs):
    dropped = nn.Dropout(0.5, deterministic=not self.has_rng("dropout"))(inputs)
    return nn.Dense(2)(dropped)

  def evaluate(self, inputs):
    return 3 * self(inputs)


def test_a_models_own_evaluation_is_taken():
  inputs = jax.random.normal(jax.random.key(0), (5, 4))
  params = Knowing().init(jax.random.key(1), inputs)["params"]
  plain = np.asarray(inputs @ params["Dense_0"]["kernel"])
  np.testing.assert_allclose(models.predict(Knowing(), params, inputs), plain, rtol=1e-5)
  evaluated = models.evaluate(Knowing(), params, inputs)
  np.testing.assert_allclose(evaluated, 3 * plain, rtol=1e-5)
  dropped = models.predict(Knowing(), params, inputs, dropout_key=jax.random.key(2))
  assert not np.allclose(dropped, plain)
  dense = nn.Dense(2)
  params = params["Dense_0"]
  np.testing.assert_allclose(models.evaluate(dense, params, inputs), plain, rtol=1e-5)


class Doubling(nn.Module):
  @nn.compact
  def __call__(self, inputs):
    return nn.Dense(1)(inputs)[..., 0]


def test_build_takes_a_factory():
  module = models.build("tests.test_models:Doubling", QSTR(length=4, token_dim=2))
  assert type(module).__name__ == "Doubling"


def test_build_takes_fields():
  task = QSTR(length=4, token_dim=2)
  assert models.build("transformer:num_heads=2:width=7", task) == models.Transformer(
    num_heads=2, width=7
  )
  built = models.build("ffn:hidden_widths=5x6", task, {"scheme": "flax"})
  assert built == FeedForward((5, 6), scheme="flax")
  inside = models.build("gru:units=3", SparseBoolean())
  assert inside == OnBits(models.GRU(units=3, num_outputs=2))
  for name, message in (
    ("transformer:heads=2", "takes the fields num_heads, .* of transformer"),
    ("transformer:num_heads=2.5", "takes an integer"),
    ("transformer:num_heads=2:num_heads=3", "takes NAME:FIELD=VALUE"),
    ("num_heads=2:transformer", "takes NAME:FIELD=VALUE"),
    ("transformer:head_dim=x", "takes an integer or none"),
  ):
    with pytest.raises(InvalidSetting, match=message):
      models.build(name, task)


def test_records_tell_modules_of_one_class_apart():
  assert models.record_name(models.GRU()) == "GRU"
  assert models.record_name(models.GRU(units=3)) == "GRU:units=3"
  assert models.record_name(FeedForward((5, 6))) == "FeedForward:hidden_widths=5x6"
  assert models.record_name(models.GRU(units=3, name="small")) == "small"


@pytest.mark.parametrize(
  "name",
  [
    "tranformer",
    "nowhere:factory",
    "tests.test_models:nothing",
    "tests.test_models:fitted_list",
  ],
)
def test_build_refuses(name):
  with pytest.raises(InvalidSetting, match=f"model: got '{name}', takes"):
    models.build(name, QSTR(length=4, token_dim=2))


def fitted_list():
  return []
