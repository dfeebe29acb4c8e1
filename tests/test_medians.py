"""Medians of first passages, and trials that are slow."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from benchmarks.coverage import Coverage, normal_residuals, slow_residuals
from sepfx.statistics.bounded import Bounds
from sepfx.statistics.medians import median_of
from sepfx.statistics.passages import Checks, bounds_of, cell_means
from sepfx.studies import tables

STEP, EVERY, BUDGET = 64, 640, 64_000


def of(checks, reached=None, budget=BUDGET):
  samples = EVERY * np.array(checks)
  reached = np.ones(len(samples), bool) if reached is None else np.array(reached)
  checks = Checks(*(np.full(len(samples), own) for own in (STEP, EVERY, budget)))
  return samples, reached, checks


def test_interval_is_the_narrowest_of_order_statistics_that_covers():
  for trials in range(1, 25):
    found = median_of(bounds_of(*of(np.arange(2, trials + 2))))
    # The chance that the median is between the k-th smallest and the k-th largest.
    inside = [
      1 - 2 * scipy.stats.binom.cdf(k - 1, trials, 0.5) for k in range(1, trials // 2 + 1)
    ]
    good = [k for k, chance in enumerate(inside, 1) if chance >= 0.95]
    if not good:
      assert trials < 6
      assert math.isnan(found.low)
      assert math.isnan(found.high)
      continue
    k = max(good)
    # The k-th smallest was first below its threshold after check k, by check k + 1.
    assert found.low == EVERY * k
    assert found.high == EVERY * (trials + 2 - k)


def test_median_lies_between_its_checks():
  assert median_of(bounds_of(*of([5, 9, 7]))).median == 6.5 * EVERY
  assert median_of(bounds_of(*of([5, 9, 7, 8]))).median == 7 * EVERY
  # At the first check n is above half a step.
  assert median_of(bounds_of(*of([1, 1, 1]))).median == (STEP / 2 + EVERY) / 2


def test_trials_that_spent_their_budget_are_above_it():
  eight = [4, 5, 6, 7, 8, 9, 10, 100]
  found = median_of(bounds_of(*of(eight, [True] * 7 + [False])))
  assert (found.median, found.low) == (7 * EVERY, 3 * EVERY)
  assert math.isnan(found.high)
  half = median_of(bounds_of(*of(eight, [True] * 4 + [False] * 4)))
  assert math.isnan(half.median)
  assert half.low == 3 * EVERY


def test_slow_trials_are_counted():
  steady = [50, 53, 48, 51, 49, 52, 50, 47, 54, 50]
  assert median_of(bounds_of(*of(steady))).slow == 0
  assert median_of(bounds_of(*of([*steady, 90]))).slow == 1
  assert median_of(bounds_of(*of([*steady, 100], [True] * 10 + [False]))).slow == 1
  # Neighbouring checks are no distance.
  assert median_of(bounds_of(*of([20] * 9 + [21]))).slow == 0


@pytest.mark.parametrize("trials", [6, 10])
def test_slow_trials_leave_the_medians_interval_right(trials):
  rng = np.random.default_rng(trials)
  n = 15_000 * np.exp(0.2 * rng.normal(size=(500, trials)))
  n = np.where(rng.random(n.shape) < 0.1, 2, 1) * n
  residuals = 15_000 * np.exp(0.2 * slow_residuals(0.2))
  truth, inside = np.median(residuals), []
  for own in n:
    found = median_of(bounds_of(*of(np.ceil(own / EVERY).astype(int), budget=np.inf)))
    inside.append(found.low <= truth <= found.high)
  assert np.mean(inside) > 0.95


def test_slow_residuals_are_normal_ones_and_a_tenth_of_twice_the_n():
  found = slow_residuals(0.5)
  quick = normal_residuals()
  assert len(found) == 10 * len(quick)
  assert np.mean(found > quick.max()) < 0.1
  mean = np.mean(np.exp(0.5 * found)) / np.mean(np.exp(0.5 * quick))
  assert mean == pytest.approx(1.1)


def test_coverage_counts_medians():
  generator = np.random.default_rng(0)
  own = Coverage(slow_residuals(0.2), 15_000, 0.2, 10, False, 20, generator)
  assert 0.8 < own.median <= 1
  assert 0 < own.median_width < 1
  few = Coverage(normal_residuals(), 15_000, 0.2, 5, False, 3, generator)
  assert math.isnan(few.median)


def test_tables_print_a_median_where_a_trial_is_slow():
  def cell(checks):
    samples, reached, own = of(checks)
    (mean,) = cell_means(samples, reached, own, np.full(len(samples), 8)).values()
    counts = {"reached": len(checks), "trials": len(checks)}
    values = {k: None if v != v else v for k, v in mean._asdict().items()}
    return values | counts | {"low": None}

  steady = [20, 21, 19, 20, 22, 18]
  assert "median" not in tables._mean(cell(steady))
  assert tables._mean(cell([*steady, 60])).endswith("; median 12,480 [10,880, 38,400]")
  # Five trials give no interval.
  assert tables._mean(cell([20, 21, 19, 20, 60])).endswith("; median 12,480")


def test_bounds_of_any_order_give_one_median():
  samples, reached, checks = of([3, 8, 5, 40, 9, 6])
  expected = median_of(bounds_of(samples, reached, checks))
  bounds = bounds_of(samples, reached, checks)
  for order in itertools.islice(itertools.permutations(range(6)), 0, 720, 97):
    assert median_of(Bounds(*(side[list(order)] for side in bounds))) == expected
