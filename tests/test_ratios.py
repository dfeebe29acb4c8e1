"""Ratios of n between cells against their plain forms."""

import numpy as np
import pytest
import scipy.stats

from benchmarks import ratio_coverage
from sepfx.statistics.passages import Checks
from sepfx.statistics.ratios import Ratio, cells_of, comparisons, ratio_of

BUDGET = 100_000


def cells_with(*samples, every=10.0):
  """Cells of trials that reached at these samples; None for one that did not."""
  flat = [own for cell in samples for own in cell]
  reached = np.array([own is not None for own in flat])
  counts = np.array([BUDGET if own is None else own for own in flat], float)
  ones = np.ones(len(flat))
  which = np.repeat(np.arange(len(samples)), [len(cell) for cell in samples])
  return cells_of(counts, reached, Checks(ones, every * ones, BUDGET * ones), which)


def test_trials_that_are_independent_are_compared_as_welch_does():
  generator = np.random.default_rng(0)
  one = np.round(20_000 * np.exp(0.1 * generator.standard_normal(5)), -1)
  other = np.round(50_000 * np.exp(0.5 * generator.standard_normal(4)), -1)
  found = ratio_of(cells_with(one, other), 0, 1)
  welch = scipy.stats.ttest_ind(np.log(one - 5), np.log(other - 5), equal_var=False)
  ends = np.exp(welch.confidence_interval(0.95))
  np.testing.assert_allclose((found.low, found.high), ends, rtol=1e-2)
  middle = np.exp(np.mean(np.log(one)) - np.mean(np.log(other)))
  assert found.ratio == pytest.approx(middle, rel=1e-3)
  assert (found.bound, found.pairs) == ("", None)


def test_one_trial_has_a_ratio_and_no_interval():
  found = ratio_of(cells_with([1000], [2000, 2100]), 0, 1)
  assert found.ratio == pytest.approx(0.49, rel=0.02)
  assert np.isnan([found.low, found.high]).all()


REACHED, SPENT, FIRST = (2000, 2200, 2500), (2000, 2200, None), (10, 10, 10)


@pytest.mark.parametrize(
  ("one", "other", "bound"),
  [
    (REACHED, REACHED, ""),
    (SPENT, REACHED, "at least"),
    (REACHED, SPENT, "at most"),
    (FIRST, REACHED, "at most"),
    (REACHED, FIRST, "at least"),
    (SPENT, FIRST, "at least"),
    (FIRST, SPENT, "at most"),
    ((None,) * 3, REACHED, "at least"),
    (SPENT, SPENT, None),
    (FIRST, FIRST, None),
  ],
)
@pytest.mark.parametrize("paired", [False, True])
def test_trials_that_are_bounded_make_the_ratio_a_bound(one, other, bound, paired):
  cells = cells_with(one, other)
  trial = np.tile(np.arange(3), 2) if paired else None
  found = ratio_of(cells, 0, 1, trial)
  if bound is None:
    assert found is None
    return
  assert found.bound == bound
  assert np.isnan(found.low) == (bound == "at most")
  assert np.isnan(found.high) == (bound == "at least")
  # Each stands where it is bounded.
  stands = [
    np.mean(np.log([BUDGET if n is None else n for n in own])) for own in (one, other)
  ]
  assert np.log(found.ratio) == pytest.approx(stands[0] - stands[1], abs=0.02)


def test_no_common_trial_is_no_ratio():
  cells = cells_with([100, 110], [200, 220])
  assert ratio_of(cells, 0, 1, np.array([0, 1, 2, 3])) is None
  assert isinstance(ratio_of(cells, 0, 1, np.array([0, 1, 0, 1])), Ratio)


def test_what_is_compared_differs_in_one_thing():
  points = [
    {"task": "t", "model": m, "length": 4, "width": w, "max_samples": k}
    for k, (m, w) in enumerate((m, w) for m in "abc" for w in (1, 2, 3))
  ]
  found = comparisons(points, ("max_samples",))
  named = {
    (points[a]["model"], points[a]["width"], points[b]["model"], points[b]["width"], of)
    for a, b, of in found
  }
  assert len(named) == len(found) == 3 * 3 + 3 * 2
  assert ("c", 2, "b", 2, "model") in named
  assert ("c", 3, "c", 1, "width") in named
  assert ("c", 3, "c", 2, "width") not in named


@pytest.mark.parametrize("pair", [0, 2, 6])
def test_intervals_cover(pair):
  """0.95 of 300 is 285, with a standard deviation of 4."""
  generator = np.random.default_rng(1)
  share, _ = ratio_coverage.coverage(*ratio_coverage.PAIRS[pair], 5, 300, generator)
  assert share > 0.91
