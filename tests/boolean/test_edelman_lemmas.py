"""Lemmas of Inductive Biases and Variable Creation in Self-Attention Mechanisms.

Each inequality is tested on random instances and on instances that come near to equality.
"""

import math

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from experiments.capacity import Term, split
from tests.inequalities import assert_largest, longest, many, project, seeds, softmax

# Normalisations: Lemma A.6, Corollary A.7, Theorem 4.2 and Lemma B.7.


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
