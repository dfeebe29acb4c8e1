"""Lemmas of Inductive Biases and Variable Creation in Self-Attention Mechanisms.

Each inequality is tested on random instances and on instances that come near to equality.
"""

import itertools
import math

import flax.linen as nn
import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sepfx.constructions import selection
from sepfx.errors import InvalidSetting
from sepfx.models import ClsAttention, InputMap
from sepfx.theory import generalisation_bound, linear_log_covering
from sepfx.theory.capacity import Term, split
from sepfx.theory.rademacher import empirical_rademacher, finite_class, linear_class

seeds = st.integers(0, 2**32 - 1)
many = hypothesis.settings(max_examples=60)


def assert_largest(left, right, at_least=0.0):
  """Asserts left <= right everywhere, and left >= at_least * right somewhere."""
  left, right = np.broadcast_arrays(left, right)
  assert np.all(left <= right * (1 + 1e-9) + 1e-13)
  assert np.max(left / np.maximum(right, 1e-300)) >= at_least


# Normalisations: Lemma A.6, Corollary A.7, Theorem 4.2 and Lemma B.7.


def softmax(scores):
  e = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
  return e / np.sum(e, axis=-1, keepdims=True)


def normalised(g):
  """theta -> g(theta_i) / sum_j g(theta_j)."""
  return lambda scores: g(scores) / np.sum(g(scores), axis=-1, keepdims=True)


# Smooth g > 0 with |(log g)'| <= 1 everywhere, and a theta where it is nearly 1.
NORMS = {
  "softmax": (softmax, 0.0),
  "sigmoid": (normalised(lambda a: 1 / (1 + np.exp(-a))), -12.0),
  "softplus": (normalised(lambda a: np.log1p(np.exp(a))), -12.0),
  "cauchy": (normalised(lambda a: 1 / (1 + a**2)), 1.0),
}


def jacobian_size(norm, theta):
  """||J||_{1,1}, the sum of the entries' absolute values, by central differences."""
  shifts = 1e-5 * np.eye(len(theta))
  return np.sum(np.abs(norm(theta + shifts) - norm(theta - shifts))) / 2e-5


def between(norm, theta, other):
  """The distances ||Norm(theta) - Norm(other)||_1 and ||theta - other||_inf."""
  distance = np.sum(np.abs(norm(theta) - norm(other)), axis=-1)
  return distance, np.max(np.abs(theta - other), axis=-1)


def sparsemax(scores):
  """The nearest point of the simplex to one vector of scores."""
  ordered = np.sort(scores)[::-1]
  thresholds = (np.cumsum(ordered) - 1) / np.arange(1, len(scores) + 1)
  return np.maximum(scores - thresholds[np.flatnonzero(ordered > thresholds)[-1]], 0)


@pytest.mark.parametrize("name", NORMS)
@many
@hypothesis.given(seed=seeds, length=st.integers(1, 12), scale=st.floats(0.01, 10))
def test_normalisations_satisfy_assumption_4_1(name, seed, length, scale):
  """Any g(theta_i) / sum_j g(theta_j) with |(log g)'| <= 1 has C_Norm = 2.

  Lemma A.6 then gives 2 for the distance. The constant 1 holds, too.
  """
  norm, _ = NORMS[name]
  rng = np.random.default_rng(seed)
  theta = scale * rng.normal(size=(20, length))
  for row in theta[:5]:
    assert jacobian_size(norm, row) <= 2 * (1 - 1 / length) + 1e-6
  distance, shift = between(norm, theta, theta + scale * rng.normal(size=theta.shape))
  assert_largest(distance, shift)
  if name == "softmax":  # the odds of a set of tokens change by e^(2 shift) at most
    assert_largest(distance, 2 * np.tanh(shift / 2))


@pytest.mark.parametrize("name", NORMS)
def test_how_tight_assumption_4_1_and_corollary_a7_are(name):
  norm, at = NORMS[name]
  length, shift = 100, 1e-3
  theta = np.full(length, at)
  # The Jacobian comes to 2, and yet no distance is above half of Corollary A.7's bound.
  assert 0.97 * 2 <= jacobian_size(norm, theta) <= 2
  signs = np.where(np.arange(length) % 2, 1.0, -1.0)
  assert_largest(*between(norm, theta, theta + shift * signs), at_least=0.99)


def test_softmax_at_any_distance():
  """2 tanh(shift / 2) is attained, by two tokens whose scores change places."""
  shift = np.geomspace(1e-3, 30, 50)
  theta = np.stack([shift, -shift], axis=1) / 2
  distance, found = between(softmax, theta, -theta)
  np.testing.assert_allclose(found, shift)
  np.testing.assert_allclose(distance, 2 * np.tanh(shift / 2))


def two_tokens(weights):
  """A Norm that puts 1/2 + tanh(weights.theta)/2 on one token and the rest on another.

  ||J||_{1,1} is at most the sum of |weights|, which it is at 0.
  """

  def norm(theta):
    first = (1 + np.tanh(theta @ weights)) / 2
    rest = np.zeros((*theta.shape[:-1], theta.shape[-1] - 2))
    return np.concatenate([np.stack([first, 1 - first], axis=-1), rest], axis=-1)

  return norm


@many
@hypothesis.given(seed=seeds, length=st.integers(2, 9), scale=st.floats(0.01, 10))
def test_lemma_a6_is_tight(seed, length, scale):
  rng = np.random.default_rng(seed)
  weights = rng.normal(size=length)
  norm, constant = two_tokens(weights), np.sum(np.abs(weights))
  theta = scale * rng.normal(size=(50, length))
  assert max(jacobian_size(norm, row) for row in theta[:5]) <= constant * (1 + 1e-6)
  distance, shift = between(norm, theta, theta + scale * rng.normal(size=theta.shape))
  assert_largest(distance, constant * shift)
  signs = 1e-3 * np.sign(weights) / constant
  distance, shift = between(norm, signs, -signs)
  assert_largest(distance, constant * shift, at_least=0.999)


def test_the_constant_of_sparsemax_grows_with_the_length():
  """Sparsemax is a normalisation for which Theorem 4.2 depends on T."""
  for length in (2, 10, 50):
    signs = np.where(np.arange(length) % 2, 1.0, -1.0)
    theta = signs / (2 * length)
    distance, shift = between(sparsemax, theta, -theta)
    assert distance / shift == pytest.approx(length)
    assert jacobian_size(
      lambda a: np.array([sparsemax(row) for row in a]), theta
    ) == pytest.approx(2 * (length - 1))


@many
@hypothesis.given(
  seed=seeds,
  kept=st.integers(1, 6),
  others=st.integers(0, 8),
  R=st.floats(-3, 12),
  scale=st.sampled_from([0.0, 0.1, 3.0]),
)
def test_softmax_truncation(seed, kept, others, R, scale):
  """Lemma B.7, which the instance with scores R and 0 comes near to."""
  rng = np.random.default_rng(seed)
  z = np.concatenate([R + scale * rng.random(kept), -scale * rng.random(others)])
  if scale:
    z[kept + 1 :: 3] = -np.inf  # which the lemma allows
  truncated = np.where(np.arange(kept + others) < kept, z, -np.inf)
  distance = np.sum(np.abs(softmax(truncated) - softmax(z)))
  odds = others / (kept * math.exp(R))
  equal = 1 - 1e-6 if others and not scale else 0.0
  assert_largest(distance, 2 * odds / (1 + odds), equal)
  assert_largest(distance, 2 * odds, equal / (1 + odds))
  assert 2 * odds < 2 * (kept + others) / math.exp(R)


# Attention heads: Lemma 4.3 and Theorem 4.2.


def longest(rows):
  """|| rows^T ||_{2, inf}, the largest 2-norm of a row, of each matrix."""
  return np.max(np.linalg.norm(rows, axis=-1), axis=-1)


def head(norm, scores, values, out=lambda a: a):
  """phi_out(phi_in(X)^T Norm(scores)), from scores [... T] and phi_in(X) [... T k]."""
  return out(np.einsum("...t,...tk->...k", norm(scores), values))


@pytest.mark.parametrize("name", NORMS)
@many
@hypothesis.given(
  seed=seeds, length=st.integers(1, 8), scale=st.floats(0.1, 5), part=st.floats(0.01, 1)
)
def test_head_is_lipschitz(name, seed, length, scale, part):
  """Lemma 4.3, with phi_out = 0.7 tanh and phi_in of norm at most B_in."""
  norm, _ = NORMS[name]
  rng = np.random.default_rng(seed)
  X, z = rng.normal(size=(length, 4)), rng.normal(size=4)
  of_scores = scale * rng.normal(size=(2, 4, 4))
  of_values = scale * rng.normal(size=(2, 3, 4))
  of_scores[1] = of_scores[0] + part * (of_scores[1] - of_scores[0])
  of_values[1] = of_values[0] + part * (of_values[1] - of_values[0])
  scores = np.einsum("td,pde,e->pt", X, of_scores, z)
  values = np.einsum("pkd,td->ptk", of_values, X)
  B_in = np.max(np.linalg.norm(of_values, 2, axis=(1, 2)))
  y = head(norm, scores, values, lambda a: 0.7 * np.tanh(a))
  bound = 2 * 0.7 * B_in * longest(X) * np.max(np.abs(scores[0] - scores[1]))
  bound += 0.7 * longest(values[0] - values[1])
  assert_largest(np.linalg.norm(y[0] - y[1]), bound)


@pytest.mark.parametrize("name", NORMS)
def test_how_tight_the_lipschitz_constant_of_a_head_is(name):
  """Opposite tokens come to half of the first term of Lemma 4.3, or to all of it."""
  norm, at = NORMS[name]
  B_X, B_in, shift = 1.7, 0.4, 1e-3
  signs, out = np.array([1.0, -1.0]), lambda a: 0.7 * np.tanh(a)
  values = B_in * B_X * signs[:, None] * np.array([0.6, 0.8])
  for own, theta, constant, share in (
    (norm, np.full(2, at), 2.0, 0.5),
    (two_tokens(np.array([1.0, -1.0])), np.zeros(2), 2.0, 1.0),
  ):
    y = head(own, np.stack([theta, theta + shift * signs]), values, out)
    bound = constant * 0.7 * B_in * B_X * shift
    assert_largest(np.linalg.norm(y[0] - y[1]), bound, at_least=0.99 * share)
  # Equal changes of all values come to all of the second term.
  y = head(norm, np.full(2, at), np.stack([values, values + shift]), out)
  bound = 0.7 * longest(np.full((2, 2), shift))
  assert_largest(np.linalg.norm(y[0] - y[1]), bound, at_least=0.999)


def cover(values, radius):
  """A subset whose members are within a radius of each, and who stands for whom.

  Args:
    values: [n inputs k], of n functions; their distance is the largest over inputs.
    radius: epsilon.
  """
  distance = longest(values[:, None] - values[None])
  chosen, nearest = [], np.full(len(values), -1)
  for k in range(len(values)):
    if nearest[k] < 0:
      chosen.append(k)
      nearest[(distance[k] <= radius) & (nearest < 0)] = k
  return chosen, nearest


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("alpha", [0.0, 0.4, 1.0])
def test_covers_of_scores_and_values_make_a_cover_of_heads(name, alpha):
  """Theorem 4.2 on a finite class, for softmax and three other normalisations."""
  norm, _ = NORMS[name]
  rng = np.random.default_rng(0)
  m, length, count, eps, L_out = 4, 5, 40, 0.7, 0.7
  X, z = rng.normal(size=(m, length, 3)), rng.normal(size=(m, 3))
  of_scores = 0.4 * rng.normal(size=(count, 3, 3))
  of_values = 0.4 * rng.normal(size=(count, 2, 3))
  scores = np.einsum("mtd,pde,me->pmt", X, of_scores, z)
  values = np.einsum("pkd,mtd->pmtk", of_values, X)
  B_in = np.max(np.linalg.norm(of_values, 2, axis=(1, 2)))
  constant = 2 * L_out * B_in * np.max(longest(X))
  # Covers over all m T tokens at once.
  S, s = cover(scores.reshape(count, -1, 1), alpha * eps / constant)
  V, v = cover(values.reshape(count, m * length, 2), (1 - alpha) * eps / L_out)
  y = head(norm, scores[:, None], values[None], lambda a: L_out * np.tanh(a))
  errors = np.max(np.linalg.norm(y - y[s][:, v], axis=-1), axis=-1)
  assert len(np.unique(y[s][:, v].reshape(count**2, -1), axis=0)) == len(S) * len(V)
  assert_largest(errors, eps)
  if alpha == 0:
    assert len(S) == count > len(V)
    assert np.max(errors) >= 0.3 * eps


# Splits of the error and projections: Lemmas A.8 and A.9.


@many
@hypothesis.given(seed=seeds, n=st.integers(1, 6), C=st.floats(0.1, 10))
def test_split_of_the_error(seed, n, C):
  """Lemma A.8, for x > 0."""
  rng = np.random.default_rng(seed)
  alpha, beta = np.exp(rng.normal(size=(2, n)))
  gamma = np.sum((alpha * beta**2) ** (1 / 3))
  best = C * (alpha / beta) ** (1 / 3) / gamma
  assert beta @ best == pytest.approx(C)
  assert np.sum(alpha / best**2) == pytest.approx(gamma**3 / C**2)
  terms = [Term(*pair) for pair in zip(alpha, beta, strict=True)]
  assert split(terms) / C**2 == pytest.approx(gamma**3 / C**2)
  others = best * np.exp(rng.uniform(0.001, 2) * rng.normal(size=(100, n)))
  others *= C / (others @ beta)[:, None]
  assert_largest(gamma**3 / C**2, np.sum(alpha / others**2, axis=1))


def test_split_needs_positive_parts():
  """Lemma A.8 does not say x > 0: without it the infimum is 0, by parts below zero.

  A part that nothing costs (beta = 0) or that has nothing to cover (alpha = 0) is none.
  """
  parts = np.array([1e4 + 1, -1e4])
  assert parts.sum() == 1
  assert np.sum(1 / parts**2) < 1e-7 < split([Term(1, 1)] * 2) == pytest.approx(8)
  assert split([Term(2, 3), Term(0, 1), Term(1, 0)]) == pytest.approx(split([Term(2, 3)]))


def project(u):
  """Pi_norm, of each row."""
  return u / np.maximum(1.0, np.linalg.norm(u, axis=-1, keepdims=True))


@many
@hypothesis.given(seed=seeds, d=st.integers(1, 6), scale=st.floats(0.01, 10))
def test_projection_is_a_contraction(seed, d, scale):
  """Lemma A.9."""
  rng = np.random.default_rng(seed)
  u = scale * rng.normal(size=(100, d))
  v = rng.choice([0.01, 1.0]) * scale * rng.normal(size=(100, d))
  size, other = np.linalg.norm(u, axis=1), np.linalg.norm(v, axis=1)
  distance = np.linalg.norm(u - v, axis=1)
  projected = np.linalg.norm(project(u) - project(v), axis=1)
  assert_largest(projected, distance)
  # Outside of the ball it is an identity.
  both = (size >= 1) & (other >= 1)
  exact = (distance**2 - (size - other) ** 2)[both] / (size * other)[both]
  np.testing.assert_allclose(projected[both] ** 2, exact, atol=1e-9)


def test_projection_is_no_contraction_in_other_norms_or_onto_the_sphere():
  near, sphere = np.array([[1e-3, 0], [0, 1e-3]]), np.eye(2)
  # Inside of the ball, and on its surface, nothing contracts.
  for u, v in (near, sphere):
    left = np.linalg.norm(project(u) - project(v))
    assert_largest(left, np.linalg.norm(u - v), at_least=1 - 1e-9)
  # A layer norm that divides by the norm of whatever it is given expands.
  u, v = near / np.linalg.norm(near, axis=1, keepdims=True)
  assert np.linalg.norm(u - v) > 100 * np.linalg.norm(near[0] - near[1])
  # So does the radial projection onto the ball of the maximum norm, in that norm.
  u, v = np.array([1.0, 1.0]), np.array([1.1, 0.9])
  assert np.max(np.abs(u - v / np.max(np.abs(v)))) > 1.8 * np.max(np.abs(u - v))


# Layers: Lemmas A.13 to A.16.

# The activations and their Lipschitz constants.
ACTIVATIONS = (
  (lambda a: a, 1.0),
  (lambda a: np.maximum(a, 0), 1.0),
  (lambda a: 2 * np.tanh(a), 2.0),
)


def spectral(matrix):
  return np.linalg.norm(matrix, 2)


def layer_weights(rng, d, k, scale):
  """W_Q, W_K, W_V [d k] and W_C [k d]."""
  shapes = ((d, k), (d, k), (d, k), (k, d))
  return [scale * rng.normal(size=shape) for shape in shapes]


def moved(rng, weights, part):
  """Weights a part of the way to others."""
  return [w + part * rng.normal(size=w.shape) for w in weights]


def tokens(rng, length, d):
  """Tokens of norm at most 1, some of norm 1."""
  return project(rng.choice([0.3, 1, 3]) * rng.normal(size=(length, d)))


def attend(Z, weights):
  """f(Z; {W_Q, W_K, W_V, .})."""
  query, key, value, _ = weights
  return softmax(Z @ query @ (Z @ key).T) @ Z @ value


def block(Z, weights, activation):
  """One layer: Pi(sigma(Pi(f(Z))) W_C)."""
  return project(activation(project(attend(Z, weights))) @ weights[3])


def of_weights(Z, weights, other, constant):
  """The bound of Lemma A.13; the lemma has the constant 2."""
  (query, key, value, _), (query_2, key_2, value_2, _) = weights, other
  scores = longest(Z @ (query @ key.T - query_2 @ key_2.T).T)
  return constant * spectral(value) * scores + longest(Z @ (value - value_2))


def of_tokens(weights, constant):
  """The factor of Lemma A.14; the lemma has the constant 4."""
  query, key, value, _ = weights
  return spectral(value) * (1 + constant * spectral(key @ query.T))


def of_block(Z, Z_2, weights, other, activation, L, constant):
  """The bound of Lemma A.15; the lemma has the constant 2."""
  C, C_2 = weights[3], other[3]
  inner = of_tokens(weights, 2 * constant) * longest(Z - Z_2)
  inner += of_weights(Z_2, weights, other, constant)
  last = activation(project(attend(Z_2, other))) @ (C - C_2)
  return longest(last) + L * spectral(C) * inner


instances = {
  "seed": seeds,
  "length": st.integers(1, 7),
  "d": st.integers(1, 5),
  "k": st.integers(1, 4),
  "scale": st.floats(0.05, 4),
  "part": st.floats(1e-3, 1),
}


@many
@hypothesis.given(**instances)
def test_attention_is_lipschitz_in_weights_and_tokens(seed, length, d, k, scale, part):
  """Lemmas A.13 and A.14, with half of their constants."""
  rng = np.random.default_rng(seed)
  for _ in range(10):
    weights = layer_weights(rng, d, k, scale)
    other = moved(rng, weights, part)
    Z = tokens(rng, length, d)
    left = longest(attend(Z, weights) - attend(Z, other))
    assert_largest(left, of_weights(Z, weights, other, 1.0))
    assert_largest(left, of_weights(Z, weights, other, 2.0))
    Z_2 = project(Z + part * rng.normal(size=Z.shape))
    left = longest(attend(Z, weights) - attend(Z_2, weights))
    assert_largest(left, of_tokens(weights, 2.0) * longest(Z - Z_2))
    assert_largest(left, of_tokens(weights, 4.0) * longest(Z - Z_2))


def numbers(*weights):
  """Weights of one coordinate."""
  return [np.array([[float(w)]]) for w in weights]


def test_how_tight_lemma_a13_is():
  Z, shift = np.array([[1.0], [-1.0]]), 1e-3
  # Scores about 0 come to half of the first term.
  one, two = numbers(0, 1, 3, 1), numbers(shift, 1, 3, 1)
  left = longest(attend(Z, one) - attend(Z, two))
  assert_largest(left, of_weights(Z, one, two, 1.0), at_least=0.99)
  assert left == pytest.approx(0.5 * of_weights(Z, one, two, 2.0), rel=1e-3)
  # Tokens that are all the same come to all of the second.
  one, two = numbers(0, 1, 3, 1), numbers(0, 1, 2, 1)
  left = longest(attend(Z[:1], one) - attend(Z[:1], two))
  assert_largest(left, of_weights(Z[:1], one, two, 2.0), at_least=1 - 1e-9)


def test_how_tight_lemma_a14_is():
  # Without scores all tokens change alike: equality.
  weights, Z = numbers(0, 0, 3, 1), np.ones((4, 1))
  left = longest(attend(Z, weights) - attend(0.9 * Z, weights))
  assert_largest(left, of_tokens(weights, 4.0) * 0.1, at_least=1 - 1e-9)
  # The query token is at 1, with e^(2a) tokens at -1, of which it attends half. Where
  # all go inwards by shift it reads 2a shift less, out of 1 + 2a.
  a, shift = 3.0, 1e-6
  weights = numbers(a, 1, 3, 1)
  Z = np.array([[1.0]] + [[-1.0]] * round(math.exp(2 * a)))
  left = np.linalg.norm(attend(Z, weights)[0] - attend((1 - shift) * Z, weights)[0])
  assert_largest(left, of_tokens(weights, 2.0) * shift, at_least=0.85)
  assert left == pytest.approx(6 / 13 * of_tokens(weights, 4.0) * shift, rel=1e-2)


@many
@hypothesis.given(**instances, activation=st.sampled_from(ACTIVATIONS))
def test_block_is_lipschitz(seed, length, d, k, scale, part, activation):
  """Lemma A.15, with half of its constants of the scores."""
  rng = np.random.default_rng(seed)
  for _ in range(10):
    weights = layer_weights(rng, d, k, scale)
    other = moved(rng, weights, part)
    Z = tokens(rng, length, d)
    Z_2 = project(Z + part * rng.normal(size=Z.shape))
    left = longest(block(Z, weights, activation[0]) - block(Z_2, other, activation[0]))
    for constant in (1.0, 2.0):
      assert_largest(left, of_block(Z, Z_2, weights, other, *activation, constant))


def test_how_tight_lemma_a15_is():
  """One change at a time; each term is reached, the one of the scores by half."""
  Z, small = np.array([[1.0], [-1.0]]), 1e-3
  weights = numbers(0, 1, 0.9, 0.8)
  for activation, other, Z_1, Z_2, share in (
    (ACTIVATIONS[0], numbers(0, 1, 0.9, 0.7), Z[:1], Z[:1], 1),
    (ACTIVATIONS[0], numbers(0, 1, 0.8, 0.8), Z[:1], Z[:1], 1),
    (ACTIVATIONS[0], weights, Z[:1], 0.9 * Z[:1], 1),
    (ACTIVATIONS[1], weights, Z[:1], 0.9 * Z[:1], 1),
    (ACTIVATIONS[2], weights, small * Z[:1], 2 * small * Z[:1], 1),
    (ACTIVATIONS[0], numbers(small, 1, 0.9, 0.8), Z, Z, 0.5),
    (ACTIVATIONS[2], numbers(small, 1, 0.9, 0.8), Z, Z, 0.5),
  ):
    first, second = block(Z_1, weights, activation[0]), block(Z_2, other, activation[0])
    left = longest(first - second)
    right = of_block(Z_1, Z_2, weights, other, *activation, 2.0)
    assert_largest(left, right, at_least=0.999 * share)
    assert left <= 1.001 * share * right


@many
@hypothesis.given(**instances, depth=st.integers(1, 3))
def test_scalar_outputs_of_deep_networks(seed, length, d, k, scale, part, depth):
  """Lemma A.16, and Lemma A.15 unrolled, as the proof of Theorem A.17 takes them."""
  rng = np.random.default_rng(seed)
  activation = ACTIVATIONS[seed % 3]
  Z = Z_2 = tokens(rng, length, d)
  error = 0.0
  for _ in range(depth):
    weights = layer_weights(rng, d, k, scale)
    other = moved(rng, weights, part)
    changed = of_block(Z_2, Z_2, weights, other, *activation, 2.0)
    grown = activation[1] * spectral(weights[3]) * of_tokens(weights, 4.0)
    error = grown * error + changed
    Z, Z_2 = block(Z, weights, activation[0]), block(Z_2, other, activation[0])
    assert_largest(longest(Z - Z_2), error)
  w, w_2 = rng.normal(size=(2, d))
  left = abs(w @ Z[-1] - w_2 @ Z_2[-1])
  right = np.linalg.norm(w) * np.linalg.norm(Z[-1] - Z_2[-1]) + abs((w - w_2) @ Z_2[-1])
  assert_largest(left, right)


def test_lemma_a16_needs_the_other_networks_output():
  """Equality for one coordinate; false with g of the weights whose w is bounded."""
  w, w_2, g, g_2 = 2.0, 1.0, 0.5, 0.25
  assert abs(w * g - w_2 * g_2) == abs(w) * abs(g - g_2) + abs((w - w_2) * g_2)
  w, w_2, g, g_2 = 0.0, 1.0, 0.0, 1.0
  assert abs(w * g - w_2 * g_2) > abs(w) * abs(g - g_2) + abs((w - w_2) * g)


# Appendix B.1: permutations, and sets of nearly orthonormal vectors.


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


# Rademacher complexity: Definition A.1, Lemma A.2 and Corollary A.3.


def exact_rademacher(supremum, num_samples):
  """The mean over all 2^m signs, and the standard deviation."""
  signs = np.array(list(itertools.product((-1.0, 1.0), repeat=num_samples)))
  values = supremum(signs)
  return np.mean(values), np.std(values)


def test_suprema_are_of_the_class():
  rng = np.random.default_rng(0)
  inputs, predictions = rng.normal(size=(6, 3)), rng.normal(size=(4, 6))
  signs = rng.choice([-1.0, 1.0], (20, 6))
  linear, finite = linear_class(inputs, 1.5)(signs), finite_class(predictions)(signs)
  for sigma, of_ball, of_set in zip(signs, linear, finite, strict=True):
    total = sum(s * x for s, x in zip(sigma, inputs, strict=True))
    v = 1.5 * total / np.linalg.norm(total)  # the best of the ball
    assert of_ball == pytest.approx(np.mean(sigma * (inputs @ v)))
    others = rng.normal(size=(100, 3))
    others *= 1.5 / np.linalg.norm(others, axis=1, keepdims=True)
    assert np.max((others @ inputs.T) @ sigma) / 6 <= of_ball
    assert of_set == pytest.approx(max(np.mean(sigma * row) for row in predictions))


@pytest.mark.parametrize("m", [1, 3, 10])
def test_simulation_is_definition_a1(m):
  rng = np.random.default_rng(m)
  classes = {
    "linear": linear_class(rng.normal(size=(m, 3)), 2.0),
    "few": finite_class(rng.normal(size=(5, m))),
    "one": finite_class(rng.normal(size=(1, m))),
  }
  for key, (name, supremum) in enumerate(classes.items()):
    exact, deviation = exact_rademacher(supremum, m)
    found = empirical_rademacher(jax.random.key(key), supremum, m, 20_000)
    assert found.mean == pytest.approx(exact, abs=4.5 * found.standard_error + 1e-12)
    error = deviation / math.sqrt(20_000)
    assert found.standard_error == pytest.approx(error, rel=0.05, abs=1e-12)
    if name == "one":  # a class of one function cannot follow signs
      assert exact == pytest.approx(0, abs=1e-12)


def test_linear_classes_are_between_khintchines_constants():
  for m, d in ((2, 1), (8, 3), (12, 40)):
    inputs = np.random.default_rng(m).normal(size=(m, d))
    exact, _ = exact_rademacher(linear_class(inputs), m)
    largest = np.linalg.norm(inputs) / m
    assert 1 / math.sqrt(2) <= exact / largest <= 1


def finite_capacity(values):
  """The least C with log N_inf(eps) <= C / eps^2 for all eps, by all proper covers."""
  distance = np.max(np.abs(values[:, None] - values[None]), axis=-1)
  subsets = np.array(list(itertools.product((False, True), repeat=len(values))))[1:]
  farthest = np.max(
    [np.min(np.where(s, distance, np.inf), axis=1) for s in subsets], axis=1
  )
  sizes, radii = np.sum(subsets, axis=1), np.unique(farthest)
  # From radii[i] on, and until radii[i + 1], so many are needed.
  needed = [np.min(sizes[farthest <= radius]) for radius in radii[:-1]]
  return max(
    (e**2 * math.log(n) for e, n in zip(radii[1:], needed, strict=True)), default=0.0
  )


def through_covering(capacity, m, A):
  """Corollary A.3 with a constant of 1, from the terms of Lemma 2.2."""
  return generalisation_bound(capacity, m, A=A, b=0.0) / 4


def test_finite_classes_are_below_corollary_a3():
  rng = np.random.default_rng(0)
  ratios = []
  for count, m in itertools.product((2, 4, 8), (4, 10)):
    for _ in range(5):
      values = rng.uniform(-1, 1, (count, m)) * rng.choice([0.1, 1.0], (count, 1))
      exact, _ = exact_rademacher(finite_class(values), m)
      bound = through_covering(finite_capacity(values), m, np.max(np.abs(values)))
      ratios.append(exact / bound)
  assert_largest(ratios, 1.0, at_least=0.2)
  # A class with all signs at m points: equality.
  values = 0.3 * np.array(list(itertools.product((-1, 1), repeat=3)))
  assert finite_capacity(values) == pytest.approx(0.6**2 * math.log(8))
  exact, _ = exact_rademacher(finite_class(values), 3)
  assert_largest(exact, through_covering(finite_capacity(values), 3, 0.3), 1 - 1e-9)


def test_linear_classes_are_below_corollary_a3():
  """Through Lemma A.10, whose factor 36 and logarithm leave a factor of about 50."""
  m, B_1 = 4096, 1.3
  rng = np.random.default_rng(0)
  inputs = rng.normal(size=(m, 20))
  inputs /= np.linalg.norm(inputs, axis=1, keepdims=True)
  lowest = B_1 / math.sqrt(m)  # Dudley's integral has no smaller eps
  capacity = lowest**2 * linear_log_covering(B_1, 1.0, lowest, m)
  bound = through_covering(capacity, m, B_1)
  assert math.sqrt(capacity / m) > lowest
  found = empirical_rademacher(jax.random.key(0), linear_class(inputs, B_1), m, 2000)
  assert found.mean == pytest.approx(B_1 / math.sqrt(m), rel=0.03)
  assert_largest(found.mean + 4.5 * found.standard_error, bound, at_least=0.01)


def test_what_is_refused():
  for setting, call in (
    ("predictions", lambda: finite_class(np.zeros(3))),
    ("predictions", lambda: finite_class(np.zeros((0, 3)))),
    ("inputs", lambda: linear_class(np.zeros((0, 3)))),
    ("bound", lambda: linear_class(np.zeros((2, 3)), -1.0)),
  ):
    with pytest.raises(InvalidSetting, match=setting):
      call()
  supremum, key = linear_class(np.ones((2, 3))), jax.random.key(0)
  with pytest.raises(InvalidSetting, match="num_samples"):
    empirical_rademacher(key, supremum, 0)
  with pytest.raises(InvalidSetting, match="num_draws"):
    empirical_rademacher(key, supremum, 2, 1)
