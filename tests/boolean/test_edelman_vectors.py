"""Appendix B.1: permutations, and sets of nearly orthonormal vectors.

Of *Inductive Biases and Variable Creation in Self-Attention Mechanisms*.
Each inequality is tested on random instances and on instances that come near to equality.
"""

import itertools
import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.boolean.construction import selection
from sepfx.models import ClsAttention, InputMap


class Permuted(nn.Module):
  """An input map whose tokens change places; [CLS] stays the last."""

  own: InputMap
  order: tuple[int, ...]

  @property
  def dim(self):
    return self.own.dim

  def __call__(self, bits):
    return self.own(bits)[:, jnp.array([*self.order, len(self.order)])]


@pytest.mark.parametrize("kind", ["deterministic", "bag"])
def test_order_of_tokens_does_not_matter(kind):
  """Tokens that have their vectors or positions are a set (appendices A.4 and B.1).

  The paper prints f(V diag(b)) = f(V Pi diag(b)), which pairs bits with other vectors and
  is false. The tokens b_t v_t, rows of diag(b) V, may change places: f(Pi diag(b) V).
  """
  length, order = 5, (3, 0, 4, 1, 2)
  rng = np.random.default_rng(0)
  bits = np.array(list(itertools.product((0, 1), repeat=length)), np.int32)
  with jax.enable_x64(True):
    module = ClsAttention(InputMap(kind, 9, 0.05), 2, 3, "relu", hidden_widths=(5, 6))
    permuted = module.clone(input_map=Permuted(module.input_map, order))
    shapes = jax.eval_shape(module.init, jax.random.key(0), bits)["params"]
    variables = {"params": jax.tree.map(lambda a: rng.normal(size=a.shape), shapes)}
    apply = jax.jit(module.apply)
    own = apply(variables, bits)
    found = jax.jit(permuted.apply)(variables, bits)
    np.testing.assert_allclose(found, own, rtol=1e-12, atol=1e-12)
    # Bits that change places among the vectors are another input.
    assert np.max(np.abs(apply(variables, bits[:, order]) - own)) > 0.1


def test_printed_permutation_of_the_bag_is_false():
  """Lemma B.4's transformer that reads bit 0 tells v_0 from any other vector."""
  selected = selection("bag", 5, (0,))
  apply = jax.jit(selected.model.apply)
  values = np.asarray(apply({"params": selected.params}, np.eye(5, dtype=np.int32)))
  assert np.min(values[0] - values[1:]) > selected.gamma / 2


def coherence(vectors):
  return np.max(np.abs(np.triu(vectors @ vectors.T, 1)))


def welch_size(d, delta):
  """The most unit vectors of coherence delta < 1/sqrt(d) in R^d (Welch 1974)."""
  return d * (1 - delta**2) / (1 - d * delta**2)


def hadamard(k):
  """Orthogonal signs, [2^k 2^k]."""
  matrix = np.ones((1, 1))
  for _ in range(k):
    matrix = np.block([[matrix, matrix], [matrix, -matrix]])
  return matrix


def lines(kind):
  """Sets of vectors at equal angles that are as large as can be."""
  if kind == "icosahedron":
    golden = (1 + math.sqrt(5)) / 2
    rows = [(0, 1, s * golden) for s in (1, -1)]
    vectors = np.array([np.roll(row, k) for row in rows for k in range(3)])
  else:  # 28 lines in the 7 dimensions orthogonal to (1, ..., 1)
    pairs = itertools.combinations(range(8), 2)
    vectors = np.array([[3.0 if i in p else -1.0 for i in range(8)] for p in pairs])
  return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_near_orthonormal_sets_are_not_too_large():
  # delta = 0: at most d.
  assert welch_size(7, 0.0) == 7
  for kind, d, size in (("icosahedron", 3, 6), ("28", 7, 28)):
    vectors = lines(kind)
    assert np.linalg.matrix_rank(vectors) == d
    assert len(vectors) == size == pytest.approx(welch_size(d, coherence(vectors)))
  # Any others that are found have fewer.
  rng = np.random.default_rng(0)
  for d in (2, 3, 5, 8):
    delta = 0.9 / math.sqrt(d)
    candidates = rng.normal(size=(5000, d))
    candidates /= np.linalg.norm(candidates, axis=1, keepdims=True)
    vectors = one_by_one(candidates, delta)
    assert d < len(vectors) <= welch_size(d, coherence(vectors)) * (1 + 1e-9)


def one_by_one(candidates, delta):
  """Those whose inner products with all that were taken before are within delta."""
  taken = candidates[:1]
  for candidate in candidates[1:]:
    if np.all(np.abs(taken @ candidate) <= delta):
      taken = np.vstack([taken, candidate])
  return taken


@pytest.mark.parametrize(("d", "delta"), [(64, 0.5), (100, 0.45), (256, 0.3)])
def test_near_orthonormal_sets_as_large_as_the_exponential(d, delta):
  """exp(d delta^2 / 4) random signs will do: all pairs are good with a positive chance.

  Taken one by one, where each is good beside those before, more are found.
  """
  rng = np.random.default_rng(0)
  size = math.floor(math.exp(d * delta**2 / 4))
  assert size > 50
  chance = size * (size - 1) / 2 * 2 * math.exp(-d * delta**2 / 2)
  assert chance < 1  # of a bad pair, by Hoeffding's inequality
  vectors = one_by_one(rng.choice([-1.0, 1.0], (5 * size, d)) / math.sqrt(d), delta)
  assert coherence(vectors) <= delta
  assert len(vectors) > 2 * size


def test_near_orthonormal_sets_larger_than_printed():
  """The paper's largest size exp(Theta(d delta^2)) is a lower bound alone.

  Two bases have 2d vectors of coherence 1/sqrt(d), for which d delta^2 = 1.
  """
  for k in (3, 4, 6, 8):
    d = 2**k
    vectors = np.vstack([np.eye(d), hadamard(k) / math.sqrt(d)])
    assert coherence(vectors) == pytest.approx(d**-0.5)
    assert len(vectors) == 2 * d
