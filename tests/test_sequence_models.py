"""Sequence models beyond the published ones, against NumPy from their equations."""

import math

import chex
import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sepfx import models
from sepfx.errors import InvalidSetting
from sepfx.models import (
  LRU,
  Convolution,
  DeepTransformer,
  DenseFirst,
  LinearAttention,
  MinGRU,
  Transformer,
  linear_attention,
  linear_recurrences,
)
from sepfx.models.deep_transformer import positions
from sepfx.models.linear_attention import mixture
from sepfx.models.linear_recurrences import (
  _convolved,
  _Direction,
  _recurrent,
  _response,
  _to_be_transposed,
  by_recurrence,
  in_parallel,
  scan_linear,
)
from sepfx.tasks import QSTR, SparseBoolean
from tests.test_models import fitted, noted, relu, shapes, sigmoid, softmax

pytestmark = pytest.mark.usefixtures("exact")


def close(y, expected):
  """Equal to 1e-5 of the largest."""
  scale = max(np.abs(expected).max(), 1.0)
  np.testing.assert_allclose(y, expected, rtol=0, atol=1e-5 * scale)


def dense(p, x):
  return x @ np.asarray(p["kernel"], np.float64) + np.asarray(p["bias"], np.float64)


def feature(x):
  return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


@hypothesis.given(
  **shapes,
  heads=st.integers(1, 2),
  head_dim=st.sampled_from([None, 3]),
  form=st.sampled_from(["_each", "_joined"]),
)
def test_linear_attention_is_a_recurrence(n, length, d_in, heads, head_dim, form):
  """A state that all tokens are added to, one after the other, and then read."""
  module = LinearAttention(heads, head_dim, width=5)
  other = {"_each": "_joined", "_joined": "_each"}[form]
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(linear_attention, other, getattr(linear_attention, form))
    check_linear_attention(module, n, length, d_in, heads, head_dim)


def test_which_form_linear_attention_takes(monkeypatch):
  """The one with fewer multiplications: few prompts do not pay for joined weights."""
  taken = noted(monkeypatch, linear_attention, "_each", "_joined")
  for n, heads, head_dim in ((64, 1, None), (1, 1, None), (64, 4, 3), (64, 1, 3)):
    shape = jax.ShapeDtypeStruct((n, 12, 34), jnp.float32)
    module = LinearAttention(heads, head_dim=head_dim)
    jax.eval_shape(module.init, jax.random.key(0), shape)
  assert taken == ["_joined", "_each", "_each", "_each"]


def test_features_far_below_zero():
  x = np.array([-80.0, -20.0, -15.0, -1.0, 0.0, 2.0], np.float32)
  expected = feature(x.astype(np.float64))
  found = linear_attention.positive_feature(jnp.asarray(x))
  np.testing.assert_allclose(found, expected, rtol=2e-6)


def check_linear_attention(module, n, length, d_in, heads, head_dim):
  x, y, p = fitted(module, n, length, d_in)
  e = head_dim or d_in
  expected = np.zeros((n, length))
  for b in range(n):
    states = np.zeros((heads, e, e)), np.zeros((heads, e))
    for token in x[b].astype(np.float64):
      for h in range(heads):
        k, v = (
          token @ p[name]["kernel"][:, h] + p[name]["bias"][h]
          for name in ("key", "value")
        )
        states[0][h] += np.outer(feature(k), v)
        states[1][h] += feature(k)
    for i, token in enumerate(x[b].astype(np.float64)):
      mixed = np.array(p["out"]["bias"], np.float64)
      for h in range(heads):
        q = feature(token @ p["query"]["kernel"][:, h] + p["query"]["bias"][h])
        head = q @ states[0][h] / (q @ states[1][h])
        mixed = mixed + head @ p["out"]["kernel"][h]
      expected[b, i] = dense(p["output"], relu(dense(p["hidden"], mixed)))[0]
  close(y, expected)


def test_both_orders_of_linear_attention_agree():
  """Few tokens go by N x N weights, many by a state; one without weight is nothing."""
  rng = np.random.default_rng(0)
  query, key, value = rng.normal(size=(3, 2, 3, 1, 5)).astype(np.float32)
  few = mixture(query, key, value)
  # Keys of -30 have features of 1e-13.
  more = ((0, 0), (0, 4), (0, 0), (0, 0))
  padded = np.pad(key, more, constant_values=-30.0)
  many = mixture(np.pad(query, more), padded, np.pad(value, more))
  close(many[:, :3], few)


@pytest.mark.parametrize("parts", [1, 2])
def test_parallel_form_is_the_recurrence(parts):
  rng = np.random.default_rng(1)
  factors = tuple(rng.uniform(-0.7, 0.7, (parts, 9, 4, 3)).astype(np.float32))
  terms = tuple(rng.normal(size=(parts, 9, 4, 3)).astype(np.float32))
  a, b = (
    own[0] + (1j * own[1].astype(np.float64) if parts == 2 else 0)
    for own in (factors, terms)
  )
  h, expected = np.zeros(b.shape[1:], b.dtype), np.zeros_like(b)
  for i in range(9):
    h = a[i] * h + b[i]
    expected[i] = h
  for form in (by_recurrence, in_parallel, _to_be_transposed, scan_linear):
    found = form(factors, terms)
    close(found[0], expected.real)
    if parts == 2:
      close(found[1], expected.imag)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("constant", [False, True])
def test_gradients_of_the_scan_are_autodiffs(parts, constant):
  rng = np.random.default_rng(2)
  shape = (6, 1, 3) if constant else (6, 4, 3)
  factors = tuple(rng.uniform(-0.7, 0.7, (parts, *shape)).astype(np.float32))
  terms = tuple(rng.normal(size=(parts, 6, 4, 3)).astype(np.float32))
  weights = rng.normal(size=(parts, 6, 4, 3)).astype(np.float32)

  def loss(form):
    def own(factors, terms):
      return sum(
        jnp.sum(w * h**2) for w, h in zip(weights, form(factors, terms), strict=True)
      )

    return jax.grad(own, argnums=(0, 1))(factors, terms)

  ours, plain = loss(scan_linear), loss(by_recurrence)
  chex.assert_trees_all_close(ours, plain, rtol=1e-4, atol=1e-5)
  chex.assert_trees_all_equal_shapes(ours, plain)


def test_second_derivatives_of_the_scan_are_autodiffs():
  rng = np.random.default_rng(4)
  point = tuple(rng.uniform(-0.7, 0.7, (2, 4, 1, 2)).astype(np.float32))
  point = point, tuple(rng.normal(size=(2, 4, 3, 2)).astype(np.float32))
  along = jax.tree.map(jnp.cos, point)

  def second(form):
    def loss(point):
      return sum(jnp.sum(jnp.sin(h)) for h in form(*point))

    def forward(point):
      return jax.jvp(loss, (point,), (along,))[1]

    def over_reverse(point):
      return jax.jvp(jax.grad(loss), (point,), (along,))[1]

    return over_reverse, jax.grad(forward)

  plain = jax.jit(second(by_recurrence)[0])(point)
  for form in second(scan_linear):
    chex.assert_trees_all_close(jax.jit(form)(point), plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("constant", [pytest.param(False, marks=pytest.mark.slow), True])
def test_what_accelerators_run_is_what_cpus_run(monkeypatch, constant):
  """The parallel scan, and gradients through it."""
  rng = np.random.default_rng(3)
  shape = (6, 1, 3) if constant else (6, 4, 3)  # the LRU's factors, and minGRU's
  factors = tuple(rng.uniform(-0.7, 0.7, (2, *shape)).astype(np.float32))
  terms = tuple(rng.normal(size=(2, 6, 4, 3)).astype(np.float32))

  def found():
    h, back = jax.vjp(scan_linear, factors, terms)
    return h, back(jax.tree.map(jnp.sin, h))

  on_cpu = found()
  called = []

  def parallel(on_cpu, factors, terms):
    called.append(on_cpu)
    return in_parallel(factors, terms)

  monkeypatch.setattr(linear_recurrences, "_either", parallel)
  chex.assert_trees_all_close(found(), on_cpu, rtol=1e-4, atol=1e-5)
  assert called == [by_recurrence, _to_be_transposed]


@hypothesis.given(**shapes)
def test_lru(n, length, d_in):
  x, y, p = fitted(LRU(units=3, width=5), n, length, d_in)
  hidden = dense(p["D"], x.astype(np.float64))
  for name, order in (("forward", 1), ("backward", -1)):
    own = {k.removeprefix(f"{name}_"): np.asarray(v, np.float64) for k, v in p.items()
           if k.startswith(name)}  # fmt: skip
    B, C = (own[f"{m}_real"] + 1j * own[f"{m}_imaginary"] for m in "BC")
    factor = np.exp(-np.exp(own["nu"]) + 1j * np.exp(own["theta"]))
    h = np.zeros((n, 3), complex)
    for i in range(length)[::order]:
      h = factor * h + np.exp(own["gamma"]) * (x[:, i] @ B)
      hidden[:, i] += (h @ C).real
  close(y, dense(p["output"], relu(hidden))[..., 0])


@pytest.mark.slow
@pytest.mark.parametrize(
  "length", [7, *(pytest.param(own, marks=pytest.mark.slow) for own in (1, 2))]
)
def test_responses_convolved_are_the_recurrence(length):
  rng = np.random.default_rng(3)
  tokens = rng.normal(size=(4, length, 5)).astype(np.float32)
  parts = (2, 3), (2, 5, 3), (2, 3, 6)
  draw = (0.5 * rng.normal(size=(2, *own)).astype(np.float32) for own in parts)
  ways = [_Direction(*map(tuple, own)) for own in zip(*draw, strict=True)]
  weights = rng.normal(size=(length, 4, 6)).astype(np.float32)

  def convolved(ways):
    return _convolved(*(_response(own, length) for own in ways), tokens)

  def recurrent(ways):
    times_first = np.swapaxes(tokens, 0, 1)
    backward = _recurrent(ways[1], times_first[::-1])[::-1]
    return _recurrent(ways[0], times_first) + backward

  def loss(form):
    return jax.value_and_grad(lambda ways: jnp.sum(weights * form(ways)))(ways)

  close(convolved(ways), recurrent(ways))
  chex.assert_trees_all_close(loss(convolved), loss(recurrent), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
  ("n", "length", "form"), [(8, 2, "_convolved"), (2, 200, "_recurrent")]
)
def test_lru_of_either_form(n, length, form, monkeypatch):
  """Few tokens are convolved, many read one after the other."""
  taken = noted(monkeypatch, linear_recurrences, "_convolved", "_recurrent")
  test_lru.hypothesis.inner_test(n=n, length=length, d_in=3)
  assert set(taken) == {form}


def test_lru_starts_on_the_disc():
  p = LRU(units=4000).init(jax.random.key(0), jnp.zeros((1, 2, 3)))["params"]
  modulus = np.exp(-np.exp(p["forward_nu"]))
  # The area within r of a disc of radius 1 is r^2 of all; phases are uniform.
  np.testing.assert_allclose(np.mean(modulus**2), 0.5, atol=0.02)
  np.testing.assert_allclose(np.mean(modulus**4), 1 / 3, atol=0.02)
  phase = np.exp(p["forward_theta"])
  np.testing.assert_allclose(np.mean(phase), math.pi, atol=0.1)
  gamma = np.exp(p["forward_gamma"])
  np.testing.assert_allclose(gamma, np.sqrt(1 - modulus**2), rtol=1e-2, atol=1e-3)


@hypothesis.given(**shapes)
def test_min_gru(n, length, d_in):
  x, y, p = fitted(MinGRU(units=3, width=5), n, length, d_in)
  x = x.astype(np.float64)
  states = np.zeros((2, n, length, 3))
  for k, (name, order) in enumerate((("forward", 1), ("backward", -1))):
    h = np.zeros((n, 3))
    for i in range(length)[::order]:
      gate = sigmoid(dense(p[f"{name}_gate"], x[:, i]))
      h = (1 - gate) * h + gate * dense(p[f"{name}_candidate"], x[:, i])
      states[k, :, i] = h
  seen = np.concatenate([*states, x], axis=-1)
  close(y, dense(p["output"], relu(dense(p["hidden"], seen)))[..., 0])


@hypothesis.given(**shapes)
@pytest.mark.slow
def test_dense_first(n, length, d_in):
  x, y, p = fitted(DenseFirst(Transformer(width=5), width=4), n, length, d_in)
  tokens = dense(p["first"], x.reshape(n, -1)).reshape(n, length, 4)
  expected = Transformer(width=5).apply({"params": p["model"]}, tokens.astype(np.float32))
  close(y, np.asarray(expected))


def test_an_identity_first_is_the_model_itself():
  module = DenseFirst(Transformer(width=5))
  x, _, p = fitted(module, 2, 3, 4)
  p["first"] = {"kernel": np.eye(12, dtype=np.float32), "bias": np.zeros(12, np.float32)}
  close(
    np.asarray(module.apply({"params": p}, x)),
    np.asarray(module.model.apply({"params": p["model"]}, x)),
  )


@hypothesis.given(**shapes)
def test_convolution(n, length, d_in):
  module = Convolution(num_layers=2, features=4, kernel_size=3)
  x, y, p = fitted(module, n, length, d_in)
  hidden = x.astype(np.float64)
  for k in (1, 2):
    own = p[f"convolution_{k}"]
    padded = np.pad(hidden, ((0, 0), (1, 1), (0, 0)))
    kernel = np.asarray(own["kernel"], np.float64).reshape(3, hidden.shape[-1], 4)
    hidden = np.stack(
      [sum(padded[:, i + j] @ kernel[j] for j in range(3)) for i in range(length)],
      axis=1,
    )
    hidden = relu(hidden + own["bias"])
  close(y, dense(p["output"], hidden)[..., 0])


def layer_norm(p, rows):
  centred = rows - rows.mean(axis=-1, keepdims=True)
  scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)
  return scaled * np.asarray(p["scale"], np.float64) + np.asarray(p["bias"], np.float64)


@pytest.mark.slow
@pytest.mark.parametrize("heads", [1, 2])
@hypothesis.given(**shapes)
def test_deep_transformer(heads, n, length, d_in):
  module = DeepTransformer(2, heads, width=4, mlp_width=6)
  x, y, p = fitted(module, n, length, d_in)
  rows = dense(p["embedding"], x.astype(np.float64))
  for i in range(length):
    for j in range(4):
      angle = i / 10_000 ** (2 * (j // 2) / 4)
      rows[:, i, j] += math.cos(angle) if j % 2 else math.sin(angle)
  e = 4 // heads
  for k in range(2):
    own = p[f"block_{k}"]
    normed, read = layer_norm(own["attention_norm"], rows), np.zeros_like(rows)
    for h in range(heads):
      q, key, v = (normed @ own[f"{m}_kernel"][:, h] for m in ("query", "key", "value"))
      for b in range(n):
        for i in range(length):
          weights = softmax(key[b] @ q[b, i] / math.sqrt(e))
          read[b, i] += weights @ v[b] @ own["out_kernel"][h]
    rows = rows + read
    normed = layer_norm(own["mlp_norm"], rows)
    rows = rows + dense(own["mlp_out"], relu(dense(own["mlp_in"], normed)))
  close(y, dense(p["read_out"], layer_norm(p["last_norm"], rows))[..., 0])


def test_deep_transformer_has_no_parameter_that_depends_on_the_length():
  module = DeepTransformer(width=8)
  short, long = (
    jax.eval_shape(module.init, jax.random.key(0), jnp.zeros((1, N, 5))) for N in (3, 9)
  )
  chex.assert_trees_all_equal_shapes(short, long)
  assert positions(9, 7).shape == (9, 7)


def test_deep_transformer_refuses():
  for fields, message in (
    ({"num_layers": 0}, "num_layers: got 0"),
    ({"num_heads": 3, "width": 8}, "num_heads: got 3, takes a divisor of the width 8"),
  ):
    with pytest.raises(InvalidSetting, match=message):
      DeepTransformer(**fields).init(jax.random.key(0), jnp.zeros((1, 2, 3)))


def count(module, task):
  def params(key):
    planted = task.init(key)
    inputs = task.encode(planted, task.sample(key, planted, 1))
    return module.init(key, inputs)["params"]

  shapes = jax.eval_shape(params, jax.random.key(0))
  return sum(leaf.size for leaf in jax.tree.leaves(shapes))


@pytest.mark.parametrize(
  "name",
  [
    pytest.param(name, marks=() if name in ("ffn", "gru") else pytest.mark.slow)
    for name in models.NAMES["regression"]
  ],
)
def test_models_of_one_size(name):
  task = QSTR(length=8)
  fields = models.sized(name, task, 150_000)
  assert abs(count(models.build(name, task, fields), task) - 150_000) < 7_500


@pytest.mark.parametrize(
  ("name", "number", "message"),
  [
    ("transformer", 3_000, "got 3000, takes a number that a width reaches; the nearest"),
    ("transformer", 0, "got 0, takes a positive number"),
    ("gru:units=3", 9_000, "takes a model without units, which it sets"),
    ("tests.small:ffn", 9_000, "takes a model whose widths are known to scale"),
  ],
)
def test_sizes_that_cannot_be(name, number, message):
  with pytest.raises(InvalidSetting, match=message):
    models.sized(name, QSTR(length=8), number)


def test_sizes_of_a_task_of_bits():
  with pytest.raises(
    InvalidSetting, match="num_parameters: got 'gru', takes a model whose"
  ):
    models.sized("gru", SparseBoolean(), 9_000)
