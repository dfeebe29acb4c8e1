"""Derivatives of the flat construction in closed form, against automatic ones."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.fourier.flatness import construction as fourier
from experiments.fourier.flatness import flat_derivatives
from sepfx import InvalidSetting
from sepfx.tasks import FourierSparse
from sepfx.tasks.fourier import all_bits

NAMES = ("W_QK1", "W_V1", "F", "b", "G", "W_QK2", "W_V2")
# What the second attention leaves on rows without a set, times slopes and weights.
TINY = 1e-7


@pytest.fixture(autouse=True)
def _double_precision():
  with jax.enable_x64(True):
    yield


def built_for(length, degree, k, **settings):
  task = FourierSparse(length=length, degree=degree, num_components=k)
  sets, c = (np.asarray(a, float)[:k] for a in task.init(jax.random.key(0)))
  return fourier.flat_transformer(sets, c / np.linalg.norm(c), **settings)


def outputs_of(built, bits):
  """(parameters, token) -> f, parameters as arrays, and the tokens."""
  params = jax.tree.map(jnp.asarray, built.params)

  def output(own, token):
    return built.model.apply({"params": own}, token[None])[0]

  return output, params, built.tokens(bits)


@functools.cache
def dense_blocks(length, degree, k):
  """All second derivatives of f by automatic differentiation, on a few inputs."""
  built = built_for(length, degree, k)
  bits = np.asarray(all_bits(length))[:: 2**length // 8]
  output, params, tokens = outputs_of(built, bits)
  hessian = jax.jit(
    lambda own: jax.lax.map(lambda token: jax.hessian(output)(own, token), tokens)
  )
  return built, bits, jax.tree.map(np.asarray, hessian(params))


def largest(array):
  return float(np.max(np.abs(array)))


CASES = [
  (5, 3, 4, {}),
  pytest.param(4, 2, 3, {"convention": "indicators"}, marks=pytest.mark.slow),
]


@pytest.mark.slow
@pytest.mark.parametrize(("length", "degree", "k", "settings"), CASES)
def test_gradients_and_theorem_14(length, degree, k, settings):
  """Closed forms are exact, their bounds hold, and are not far off."""
  built = built_for(length, degree, k, **settings)
  bits = np.asarray(all_bits(length))
  output, params, tokens = outputs_of(built, bits)
  expected = jax.jit(lambda p: jax.lax.map(lambda t: jax.grad(output)(p, t), tokens))(
    params
  )
  found = flat_derivatives.gradients(built, bits)
  bounds = flat_derivatives.theorem_14(built)
  assert set(found) == set(NAMES[2:]) | {"w"}
  for name, own in found.items():
    np.testing.assert_allclose(own, expected[name], atol=1e-9)
    norm = float(np.max(np.linalg.norm(own.reshape(len(bits), -1), axis=1)))
    assert norm <= bounds[name] * (1 + 1e-9), name
    assert bounds[name] <= 60 * norm, name
  last = float(np.max(np.linalg.norm(found["G"][..., -1], axis=1)))
  assert last <= bounds["G_last"] <= 2 * last
  # Those of the first attention vanish.
  assert largest(expected["W_QK1"]) < TINY
  assert largest(expected["W_V1"]) < TINY
  # And what the paper leaves out of G's: more than what it has.
  others = np.max(np.linalg.norm(found["G"][..., :-1], axis=(1, 2)))
  assert others > last


@pytest.mark.parametrize(("length", "degree", "k", "settings"), CASES)
def test_theorem_11(length, degree, k, settings):
  built = built_for(length, degree, k, **settings)
  norms = flat_derivatives.theorem_11(built, np.asarray(all_bits(length)))
  for name, (value, bound) in norms.items():
    assert 0.9 * bound < value <= bound * (1 + 1e-9), name
  # The paper's bound of the last row of Y is about 1.
  assert norms["last_row"][0] > 1.2


def test_the_first_attention_has_the_norms_of_theorem_11():
  """A row of X W_QK1 is beta log T on the d positions of a set."""
  built = built_for(6, 2, 3)
  scores = built.positions @ built.params["W_QK1"][:-1]
  expected = np.sqrt(2) * built.beta * np.log(6)
  np.testing.assert_allclose(np.linalg.norm(scores, axis=1)[:3], expected)
  np.testing.assert_allclose(scores[3:], 0)


def test_lemma_15():
  """With 1 in place of 2; and there is a case where it is attained."""
  rng = np.random.default_rng(0)
  X, u = rng.normal(size=(300, 5, 3)), rng.normal(size=(300, 5))
  weights = jax.nn.softmax(3 * rng.normal(size=(300, 5)))
  moved = np.einsum("nsd,nsr,nr->nd", X, flat_derivatives.softmax_jacobian(weights), u)
  bound = np.linalg.norm(X, axis=2).max(axis=1) * np.abs(u).max(axis=1)
  assert 0.3 < np.max(np.linalg.norm(moved, axis=1) / bound) <= 1
  J = flat_derivatives.softmax_jacobian(jnp.array([0.5, 0.5]))
  assert float(np.array([1.0, -1.0]) @ J @ np.array([1.0, -1.0])) == pytest.approx(1)
  scores = rng.normal(size=5)
  np.testing.assert_allclose(
    flat_derivatives.softmax_jacobian(jax.nn.softmax(scores)),
    jax.jacobian(jax.nn.softmax)(scores), atol=1e-12,
  )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("length", "degree", "k"), [(4, 2, 2), (8, 2, 3)])
def test_the_six_blocks_of_appendix_j(length, degree, k):
  built, bits, hessian = dense_blocks(length, degree, k)
  found = flat_derivatives.surviving_blocks(built, bits)
  w = built.params["w"]
  assert len(found) == 6
  for (first, second), own in found.items():
    name = "W_V2" if second == "u" else second
    block = hessian[first][name]
    own = np.asarray(own)
    if first == "W_QK2":
      own = own[:, None]  # its heads
    if second == "u":
      # [... D] of u to [... heads D D] of W_V2.
      own = (own[..., None] * w)[..., None, :, :]
    else:
      block = block[..., -1]
    if first == "G":
      block = block[:, :, -1]
    assert largest(own) > 0.1
    np.testing.assert_allclose(block, own, atol=TINY * max(1, largest(own)))


@pytest.mark.slow
@pytest.mark.parametrize(("length", "degree", "k"), [(4, 2, 2), (8, 2, 3)])
def test_which_blocks_vanish(length, degree, k):
  """Eleven do. The paper counts 22, of which 11 do not.

  It takes a gradient that is 0 at the construction (in W_QK1 and W_V1) for one whose
  derivatives are 0. They are not: they have the slope of the MLP as a factor, which is
  0 as a sum over hidden units, each of whose terms depends on F and G. And it takes the
  second attention to depend on W_QK2 alone, while it reads positions and what G adds.
  """
  _, _, hessian = dense_blocks(length, degree, k)
  sizes = {
    (first, second): largest(hessian[first][second])
    for i, first in enumerate(NAMES)
    for second in NAMES[i:]
  }
  assert len(sizes) == 28
  vanishing = {pair for pair, size in sizes.items() if size < TINY}
  assert vanishing == {
    ("W_QK1", "W_QK1"), ("W_QK1", "W_V1"), ("W_V1", "W_V1"),
    ("W_QK1", "b"), ("W_V1", "b"), ("W_QK1", "W_V2"), ("W_V1", "W_V2"),
    ("F", "F"), ("F", "b"), ("b", "b"), ("W_V2", "W_V2"),
  }  # fmt: skip
  assert all(size > 1e-2 for pair, size in sizes.items() if pair not in vanishing)
  # In the coordinates that hold the construction's own weights it is so, too.
  D = hessian["F"]["F"].shape[1]
  slope = hessian["W_V1"]["F"][:, D - 1, D - 1, D - 1]
  assert largest(slope) > 0.1
  k_rows = hessian["W_QK2"]["W_QK2"][:, 0, D - 2, : D - 1, 0, D - 2, : D - 1]
  assert largest(k_rows) > 0.01


@pytest.mark.slow
def test_the_six_blocks_are_within_appendix_k():
  built = built_for(5, 3, 4)
  blocks = flat_derivatives.surviving_blocks(built, np.asarray(all_bits(5))[::3])
  bounds = flat_derivatives.appendix_k(built)
  assert bounds.keys() == blocks.keys()
  matrices = {
    pair: np.asarray(own).reshape(len(own), -1, own.shape[-1])
    for pair, own in blocks.items()
  }
  norms = {
    pair: np.linalg.norm(own, 2, axis=(1, 2)).max() for pair, own in matrices.items()
  }
  for pair, bound in bounds.items():
    assert 0.1 * bound < norms[pair] <= bound * (1 + 1e-9), pair
  # The matrix that they make up, of each input.
  sizes = {}
  for (first, second), own in matrices.items():
    sizes[first], sizes[second] = own.shape[1], own.shape[2]
  starts = dict(zip(sizes, np.cumsum([0, *sizes.values()]), strict=False))
  for k_input in range(0, len(matrices["b", "G"]), 5):
    whole = np.zeros((sum(sizes.values()),) * 2)
    for (first, second), own in matrices.items():
      at = slice(starts[first], starts[first] + sizes[first])
      to = slice(starts[second], starts[second] + sizes[second])
      whole[at, to] = own[k_input]
      whole[to, at] = own[k_input].T
    assert np.linalg.norm(whole, 2) <= sum(bounds.values())


def test_two_heads_are_refused():
  built = fourier.flat_transformer(np.eye(3)[:2], np.array([1.0, -1.0]))
  with pytest.raises(InvalidSetting, match="num_heads: got 2, takes 1"):
    flat_derivatives.gradients(built, np.zeros((1, 3), int))
