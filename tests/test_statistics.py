"""Means of the recorded counts, against their textbook forms."""

import math

import numpy as np
import pytest
import scipy.stats

from sepfx.statistics.intervals import ratio, restricted_mean, student_interval

BUDGET = 1000


def test_restricted_mean_is_the_area_under_kaplan_meier():
  samples = np.array([100, 300, 300, 700, 1000, 1000])
  reached = np.array([True, True, True, True, False, False])
  mean = restricted_mean(samples, reached, BUDGET)
  data = scipy.stats.CensoredData.right_censored(samples, ~reached)
  survival = scipy.stats.ecdf(data).sf
  times = np.arange(BUDGET)
  np.testing.assert_allclose(mean.mean, survival.evaluate(times).sum(), rtol=1e-12)
  assert mean.restricted


def test_restricted_mean_without_censoring_is_student():
  samples = np.array([10.0, 20.0, 40.0, 50.0])
  mean = restricted_mean(samples, np.ones(4, bool), BUDGET)
  interval = scipy.stats.ttest_1samp(samples, 0).confidence_interval(0.95)
  np.testing.assert_allclose((mean.low, mean.high), interval)
  assert mean.mean == 30
  assert not mean.restricted
  assert math.isnan(restricted_mean(samples[:1], np.ones(1, bool), BUDGET).low)


def test_a_diverged_trial_never_reached():
  mean = restricted_mean(np.array([100, 7]), np.array([True, False]), BUDGET)
  assert mean.mean == (100 + BUDGET) / 2


def test_intervals_stay_in_range():
  mean = restricted_mean(np.array([10, 990]), np.ones(2, bool), BUDGET)
  assert (mean.low, mean.high) == (0, BUDGET)


def test_ratio_is_that_of_logarithms_and_its_interval_covers():
  """log n of either number is normal, with Student's interval."""
  rng = np.random.default_rng(0)
  covered = []
  for _ in range(1000):
    logs = rng.normal([[np.log(30.0)], [np.log(2.0)]], [[0.5], [0.2]], size=(2, 8))
    one, other = (tuple(np.exp(student_interval(own))) for own in logs)
    value, low, high = ratio(one, other)
    assert value == pytest.approx(one[0] / other[0])
    inverse = ratio(other, one)
    assert inverse == pytest.approx((1 / value, 1 / high, 1 / low))
    covered.append(low <= 15 <= high)
  assert 0.93 < np.mean(covered) < 0.98  # standard error 0.007
  exact = (2.0, 2.0, 2.0)
  assert ratio((10.0, 5.0, 30.0), exact) == pytest.approx((5.0, 2.5, 15.0))
  assert ratio((10.0, 0.0, 30.0), exact) == pytest.approx((5.0, 0.0, 15.0))
