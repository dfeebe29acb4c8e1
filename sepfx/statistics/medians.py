"""The median of first passages, which a few slow trials do not move."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy  # loads its parts where they are used

from sepfx.statistics.bounded import CONFIDENCE, Bounds

# Times the distance between the quartiles: a trial that is further above the upper one
# than this is slow (Tukey's fence).
_FENCE = 1.5


class Median(NamedTuple):
  """The median n of one cell, in samples.

  Attributes:
    median: halfway between the bounds of the middle trial; NaN where half of the trials
      did not reach the threshold.
    low, high: its 95% interval, from the order of the trials alone; NaN where it has no
      end: for fewer than six trials, and above where too many did not reach.
    slow: how many trials are slow.
  """

  median: float
  low: float
  high: float
  slow: int


def median_of(bounds: Bounds) -> Median:
  """The median of the n of trials that are known between bounds.

  Its interval goes from one of the smallest n to the one as far from the largest, so that
  the median of the distribution, whichever it is, is outside with a chance of at most 5%.

  Args:
    bounds: of log n, [trials].
  """
  lower, upper = (np.sort(np.exp(side)) for side in bounds)
  trials = len(lower)
  middle = [(trials - 1) // 2, trials // 2]
  median = float(np.mean([lower[middle], upper[middle]]))
  # Fewer than k of the trials are below the median with a chance of at most 2.5%.
  tail = (1 - CONFIDENCE) / 2
  k = int(np.sum(scipy.stats.binom.cdf(np.arange(trials), trials, 0.5) <= tail))
  low, high = (lower[k - 1], upper[trials - k]) if k else (np.nan, np.nan)
  return Median(_finite(median), _finite(low), _finite(high), _slow(bounds))


def _slow(bounds: Bounds) -> int:
  """How many log n are above what the others have, by Tukey's rule."""
  recorded = np.where(np.isfinite(bounds.upper), bounds.upper, bounds.lower)
  first, third = np.quantile(recorded, [0.25, 0.75])
  # Of a trial it is the lower bound that counts: checks alone make none slow.
  return int(np.sum(bounds.lower > third + _FENCE * (third - first)))


def _finite(value: float) -> float:
  # Bounds are logarithms of whole and half samples.
  return round(float(value), 3) if np.isfinite(value) else np.nan
