"""Layers: Lemmas A.13 to A.16.

Of *Inductive Biases and Variable Creation in Self-Attention Mechanisms*.
Each inequality is tested on random instances and on instances that come near to equality.
"""

import math

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from tests.inequalities import assert_largest, longest, many, project, seeds, softmax

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
