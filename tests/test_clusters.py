"""Intervals from clusters of rows, and how often those of few clusters are right."""

import itertools

import numpy as np
import pytest
import scipy.stats

from benchmarks.clusters import Clustered
from experiments.fourier.fourier_generalisation.summary import (
  clustered,
  clustered_correlation,
)
from sepfx.statistics.intervals import student_interval

DEGREES, COMPONENTS = np.array(list(itertools.product([1, 2, 3], [2, 4, 8])), float).T


def mean(values):
  return {"mean": float(np.mean(values))}


def slope(x, y):
  return {"slope": float(np.polyfit(x, y, 1)[0])}


@pytest.mark.parametrize("clusters", [2, 3, 7])
def test_of_one_design_it_is_students_interval_of_the_clusters(clusters):
  rng = np.random.default_rng(0)
  x = np.log(DEGREES)
  y = rng.normal(size=(clusters, 1)) * x + rng.normal(size=(clusters, len(x)))
  of = np.repeat(np.arange(clusters), len(x))
  found = clustered(slope, of, np.tile(x, clusters), y.ravel())
  own = np.array([slope(x, each)["slope"] for each in y])
  expected = student_interval(own)
  got = [found[key] for key in ("slope", "slope_low", "slope_high")]
  np.testing.assert_allclose(got, expected, rtol=1e-9)


def test_it_is_the_jackknife_written_out():
  rng = np.random.default_rng(1)
  of = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2, 3])
  values = rng.normal(size=len(of))
  found = clustered(mean, of, values)
  left = np.array([values[of != name].mean() for name in range(4)])
  variance = 3 / 4 * np.sum((left - left.mean()) ** 2)
  half = scipy.stats.t.ppf(0.975, 3) * np.sqrt(variance)
  assert found["mean_high"] - found["mean"] == pytest.approx(half)
  assert found["mean"] - found["mean_low"] == pytest.approx(half)


def test_no_interval_where_there_is_nothing_to_tell():
  alone = clustered(mean, np.zeros(3), np.arange(3.0))
  assert alone == {"mean": 1.0, "mean_low": None, "mean_high": None}
  # Without the second cluster all scores are equal.
  found = clustered_correlation(
    np.array([0, 0, 1, 1]), np.array([1.0, 1.0, 2.0, 3.0]), np.arange(4.0)
  )
  assert found["rho"] > 0.9
  assert found["rho_low"] is found["rho_high"] is None
  assert clustered_correlation(np.arange(2), np.ones(2), np.ones(2)) == {}


def test_correlations_stay_correlations():
  rng = np.random.default_rng(2)
  of = np.repeat(np.arange(3), 9)
  score = np.tile(DEGREES * COMPONENTS, 3)
  found = clustered_correlation(of, score, score + rng.normal(size=27))
  assert found["rho"] < found["rho_high"] == 1


def test_three_functions_are_covered():
  own = Clustered(1.3, 0.5, 3, 100, np.random.default_rng(3))
  # Resampled functions covered 0.73 here. A share has a standard error of 0.022.
  assert min(own.coefficients, own.correlation, own.powers) > 0.88
  assert own.width < 2.5
