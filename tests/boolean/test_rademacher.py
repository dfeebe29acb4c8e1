"""Rademacher complexity: Definition A.1, Lemma A.2 and Corollary A.3.

Of *Inductive Biases and Variable Creation in Self-Attention Mechanisms*.
Each inequality is tested on random instances and on instances that come near to equality.
"""

import itertools
import math

import jax
import numpy as np
import pytest

from experiments.boolean.rademacher import (
  empirical_rademacher,
  finite_class,
  linear_class,
)
from experiments.capacity import generalisation_bound, linear_log_covering
from sepfx.errors import InvalidSetting
from tests.inequalities import assert_largest


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


@pytest.mark.usefixtures("unchecked_arrays")
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
