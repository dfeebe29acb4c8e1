"""Lemmas B.2 to B.6 and B.8 on all inputs."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from experiments.boolean.construction import piecewise_constant, represent, selection
from sepfx.errors import InvalidSetting
from sepfx.models import ClsAttention, InputMap
from sepfx.models.layers.cls_attention import near_orthonormal

pytestmark = pytest.mark.usefixtures("exact")

CASES = [
  (kind, length, subset, vector)
  for kind in ("deterministic", "trainable", "bag")
  for length, subset in ((3, (1,)), (7, (0, 6)), (12, (2, 3, 9)), (12, (0, 1, 2)))
  for vector in (False, True)
]


def inputs(length):
  return np.array(list(itertools.product((0, 1), repeat=length)), np.int32)


def read(selected, bits):
  """What the heads read, in the coordinates of g."""
  y = jax.jit(
    lambda b: selected.model.apply({"params": selected.params}, b, method="heads")
  )
  return np.asarray(y(bits))[
    :, : selected.target(bits[:1, list(selected.subset)]).shape[1]
  ]


def norm(matrix):
  return np.linalg.norm(np.asarray(matrix, np.float64))


@pytest.mark.parametrize(("kind", "length", "subset", "vector"), CASES)
def test_attention_is_within_a_quarter_of_gamma(kind, length, subset, vector):
  selected = selection(kind, length, subset, vector=vector)
  bits = inputs(length)
  hidden = bits[:, list(subset)]
  g = selected.target(hidden)
  np.testing.assert_array_less(abs(read(selected, bits) - g), selected.gamma / 4)
  # g is what the lemma says: bounded, and gamma apart.
  assert np.max(np.abs(g)) <= selected.bound
  distinct = np.unique(np.c_[hidden, g], axis=0)[:, len(subset) :]
  if vector:
    for a, b in itertools.combinations(distinct, 2):
      assert np.max(np.abs(a - b)) >= selected.gamma - 1e-12
  else:
    by_count = [g[hidden.sum(1) == r] for r in range(len(subset) + 1)]
    assert all(np.ptp(own) == 0 for own in by_count)
    assert np.all(np.diff([own[0, 0] for own in by_count]) >= selected.gamma - 1e-12)


def test_positions_that_are_not_orthogonal():
  """The lemmas' guarantee is lost for one head, and kept by a head for each position."""
  bits = inputs(12)
  for kind, vector, kept in (
    ("deterministic", False, False),
    ("deterministic", True, True),
    ("bag", False, False),
    ("bag", True, False),
  ):
    worst = 0.0
    for subset in ((0, 1, 2), (2, 3, 9), (4, 8, 11), (1, 5, 7)):
      selected = selection(kind, 12, subset, vector=vector, coherence=0.05)
      errors = read(selected, bits) - selected.target(bits[:, list(subset)])
      worst = max(worst, np.max(np.abs(errors)))
    assert (worst <= selected.gamma / 4) == kept


@pytest.mark.parametrize(("kind", "length", "subset", "vector"), CASES)
def test_norms_are_within_the_lemmas(kind, length, subset, vector):
  selected = selection(kind, length, subset, vector=vector)
  s = len(subset)
  p = selected.params
  if kind == "bag":
    query = math.log(8 * length * s / selected.gamma)
    bounds = {"W_Q": query, "W_K": s + 1, "W_V": 2 * s, "W_C": s}
  else:
    key = 1 if kind == "trainable" or vector else s
    query = math.log(8 * length / selected.gamma)
    bounds = {"W_Q": query, "W_K": key, "W_V": 2, "W_C": 1}
  for name, bound in bounds.items():
    assert p[name].shape[0] == (s if vector and kind != "bag" else 1)  # heads
    for head in p[name]:
      assert norm(head) <= bound * (1 + 1e-6)
  if kind == "trainable":
    rows = np.linalg.norm(p["input_map"]["P"], axis=1)
    assert np.sum(rows) <= s


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("kind", "length", "subset", "vector"), CASES)
def test_a_network_on_top_is_exact(kind, length, subset, vector, dtype):
  rng = np.random.default_rng(length)
  s = len(subset)
  table = rng.normal(size=2**s if vector else s + 1)

  def function(hidden):
    return table[hidden @ 2 ** np.arange(s)] if vector else table[hidden.sum(axis=1)]

  with jax.enable_x64(dtype == np.float64):
    selected = selection(kind, length, subset, vector=vector)
    model, params = represent(selected, function)
    bits = inputs(length)
    params = jax.tree.map(lambda a: jnp.asarray(a, dtype), params)
    values = jax.jit(lambda b: model.apply({"params": params}, b))(bits)
    assert values.dtype == dtype
  tolerance = 1e-10 if dtype == np.float64 else 1e-4
  np.testing.assert_allclose(values, function(bits[:, list(subset)]), atol=tolerance)
  # Lemmas B.5 and B.6 through B.8, with delta = gamma / 4.
  n, d_f, delta = len(table), s if vector else 1, selected.gamma / 4
  assert params["W_1"].shape[1] == 4 * n * d_f
  assert params["W_2"].shape == (4 * n * d_f + 1, 2 * n)
  assert np.max(np.abs(params["W_1"])) <= (selected.bound / delta + 2) * (1 + 1e-6)
  assert np.max(np.abs(params["W_2"])) <= d_f
  assert np.max(np.abs(params["w"])) <= np.max(np.abs(table)) * (1 + 1e-6)


def test_network_is_constant_near_its_centres():
  rng = np.random.default_rng(0)
  grid = np.array(list(itertools.product((-1.0, 0.0, 1.0), repeat=2)))
  values = rng.normal(size=len(grid))
  delta = 0.25
  W_1, W_2, w = piecewise_constant(grid, values, delta)

  def apply(x):
    hidden = x
    for matrix in (W_1, W_2):
      hidden = np.maximum(np.c_[hidden, np.ones(len(hidden))] @ matrix, 0)
    return hidden @ w

  shifts = delta * rng.uniform(-1, 1, (50, 1, 2))
  shifts[:4, 0] = delta * np.array(list(itertools.product((-1, 1), repeat=2)))
  for shift in shifts:
    np.testing.assert_allclose(apply(grid + shift), values, atol=1e-12)
  # And zero where no centre is within 2 delta.
  np.testing.assert_allclose(apply(np.array([[5.0, 0.0], [0.0, -1.6]])), 0, atol=1e-12)


@pytest.mark.parametrize("kind", ["deterministic", "trainable", "bag"])
@pytest.mark.parametrize(
  ("activation", "project"), [("identity", True), ("relu", False), ("relu", True)]
)
def test_module_is_definition_3_2(kind, activation, project):
  length, dim, heads, k = 4, 8, 2, 3
  rng = np.random.default_rng(0)
  module = ClsAttention(
    InputMap(kind, dim), heads, k, activation, project, hidden_widths=(5, 6)
  )
  bits = inputs(length)
  shapes = jax.eval_shape(module.init, jax.random.key(0), bits)["params"]
  params = jax.tree.map(lambda a: rng.normal(size=a.shape).astype(np.float32), shapes)
  outputs = jax.jit(module.apply)({"params": params}, bits)
  e0, e1, cls = np.eye(dim)[-3:]
  p, lengths = params, []
  positions = p["input_map"]["P"] if kind == "trainable" else np.eye(dim)[:length]
  for row, output in zip(bits, outputs, strict=True):
    if kind == "bag":
      x = [b * v for b, v in zip(row, positions, strict=True)]
    else:
      x = [(e1 if b else e0) + v for b, v in zip(row, positions, strict=True)]
    x = np.array([*x, cls])
    y = np.zeros(dim)
    for h in range(heads):
      scores = cls @ p["W_Q"][h] @ p["W_K"][h].T @ x.T
      read = scipy.special.softmax(scores) @ x @ p["W_V"][h]
      y += (np.maximum(read, 0) if activation == "relu" else read) @ p["W_C"][h]
    lengths.append(np.linalg.norm(y))
    if project:
      y = y / max(1, np.linalg.norm(y))
    for name in ("W_1", "W_2"):
      y = np.maximum(np.append(y, 1) @ p[name], 0)
    np.testing.assert_allclose(output, y @ p["w"], rtol=2e-4, atol=2e-5)
  assert max(lengths) > 1  # so that there is something to project


def test_near_orthonormal_vectors():
  for coherence in (0.0, 0.05, 0.1):
    vectors = near_orthonormal(12, 15, coherence)
    products = vectors @ vectors.T
    np.testing.assert_allclose(np.diag(products), 1)
    others = np.abs(products[~np.eye(12, dtype=bool)])
    np.testing.assert_allclose(others, coherence, atol=1e-12)


def test_what_is_refused():
  for setting, arguments in (
    ("kind", ("learned", 4, (0, 1))),
    ("subset", ("bag", 4, (0, 4))),
    ("subset", ("bag", 4, (1, 1))),
    ("subset", ("bag", 4, ())),
  ):
    with pytest.raises(InvalidSetting, match=setting):
      selection(*arguments)
  for setting, module in (
    ("kind", ClsAttention(InputMap("learned", 8))),
    ("dim", ClsAttention(InputMap("bag", 6))),
    ("activation", ClsAttention(InputMap(), activation="gelu")),
  ):
    with pytest.raises(InvalidSetting, match=setting):
      module.init(jax.random.key(0), inputs(4))
  with pytest.raises(InvalidSetting, match="coherence"):
    selection("bag", 12, (0, 1, 2), coherence=1 / 6)
  with pytest.raises(InvalidSetting, match="coherence"):
    near_orthonormal(100, 100, 0.3)
  with pytest.raises(InvalidSetting, match="symmetric"):
    represent(selection("trainable", 4, (0, 1)), lambda hidden: hidden[:, 0])
  with pytest.raises(InvalidSetting, match="delta"):
    piecewise_constant(np.array([[0.0], [1.0]]), np.zeros(2), 0.26)
