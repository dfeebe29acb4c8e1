"""A logarithm beside a power, and how much n grows: from known answers."""

import numpy as np
import pytest

from sepfx.statistics import scaling
from sepfx.statistics.bounded import Bounds, fit

PLACES = np.array([4.0, 8, 16, 32, 64])


def drawn(n_of, trials=10, spread=0.1, gap=0.01, seed=0):
  """log n around n_of(x), known between bounds that are `gap` apart."""
  rng = np.random.default_rng(seed)
  x = np.repeat(PLACES, trials)
  log_n = np.log(n_of(x)) + spread * rng.normal(size=len(x))
  cells = np.floor(log_n / gap)
  return x, Bounds(gap * cells, gap * (cells + 1)), np.ones(len(x), bool)


def test_a_logarithm_is_found_and_told_from_a_power():
  x, bounds, _ = drawn(lambda x: 100 + 200 * np.log(x), spread=0.02)
  found = scaling.laws(x, bounds)
  assert found.a == pytest.approx(100, abs=20)
  assert found.b == pytest.approx(200, rel=0.05)
  assert found.advantage > 3
  assert found.p_power < 1e-3 < 0.01 < found.p_logarithm


def test_a_power_is_found_and_told_from_a_logarithm():
  x, bounds, _ = drawn(lambda x: 30 * x**0.8, spread=0.05)
  found = scaling.laws(x, bounds)
  assert (found.scale, found.c) == (
    pytest.approx(30, rel=0.1),
    pytest.approx(0.8, abs=0.03),
  )
  assert found.advantage < -3
  assert found.p_logarithm < 1e-3 < 0.01 < found.p_power
  assert found.p_power == scaling.straightness(x, bounds)


@pytest.mark.parametrize(
  "n_of", [lambda x: 900 - 150 * np.log(x), lambda x: 0 * x + 50.0]
)
def test_a_law_may_fall_or_be_constant(n_of):
  x, bounds, _ = drawn(n_of, spread=0.02)
  found = scaling.laws(x, bounds)
  fitted = found.a + found.b * np.log(PLACES)
  np.testing.assert_allclose(fitted, n_of(PLACES), rtol=0.05)


def test_the_logarithm_is_the_likeliest_of_many():
  """Against a plain grid of a and b."""
  x, bounds, _ = drawn(lambda x: 30 * x**0.8, spread=0.2, trials=4)
  found = scaling.laws(x, bounds)
  best = -np.inf
  for b in np.linspace(0.5 * found.b, 2 * found.b, 60):
    for ratio in np.linspace(-1.3, 3, 200):
      shape = ratio + np.log(x)
      if np.all(shape > 0):
        own = fit(bounds.shifted(np.log(b * shape)), np.ones((len(x), 1)))
        best = max(best, float(own.value))
  power = fit(bounds, np.stack([np.ones(len(x)), np.log(x)], axis=-1))
  assert found.advantage + float(power.value) >= best - 1e-3


def test_p_values_are_uniform_under_their_laws():
  """Below 0.1 in a tenth of data sets."""
  for n_of, name in (
    (lambda x: 100 + 200 * np.log(x), "p_logarithm"), (lambda x: 30 * x**0.8, "p_power")
  ):  # fmt: skip
    found = [
      getattr(scaling.laws(*drawn(n_of, trials=4, seed=seed)[:2]), name)
      for seed in range(100)
    ]
    assert 0.03 < np.mean(np.array(found) < 0.1) < 0.2


def test_two_lengths_tell_no_law_and_a_growth():
  x, bounds, reached = drawn(lambda x: 30 * x**0.8)
  ends = np.isin(x, [4, 64])
  two = Bounds(*(side[ends] for side in bounds))
  assert scaling.laws(x[ends], two) is None
  found = scaling.growth(x[ends], two, reached[ends])
  # What lies between has no say.
  assert scaling.growth(x, bounds, reached) == found
  assert found.low < 16**0.8 < found.high
  assert found.factor == pytest.approx(16**0.8, rel=0.2)
  assert found.over == (4, 64)
  assert (
    scaling.growth(x[x == 4], Bounds(*(s[x == 4] for s in bounds)), x[x == 4] > 0) is None
  )
