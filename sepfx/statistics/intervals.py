"""Means of possibly censored first passages, with intervals, and ratios of numbers."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy  # loads its parts where they are used

from sepfx.statistics.bounded import CONFIDENCE


class RestrictedMean(NamedTuple):
  """A restricted mean E[min(n, budget)] with its 95% interval.

  Attributes:
    mean: the estimate; a lower bound of E[n] where not every trial reached.
    low, high: Student-t interval, cut at 0 and the budget; NaN for a single trial.
    restricted: whether some trial did not reach the threshold.
  """

  mean: float
  low: float
  high: float
  restricted: bool


def restricted_mean(
  samples: np.ndarray, reached: np.ndarray, budget: int
) -> RestrictedMean:
  """Mean of min(n, budget) over trials.

  All trials share one budget, so this is the area under their Kaplan-Meier curve up
  to it. A trial that diverged would never have reached the threshold: it counts as
  one that spent the budget, not as one that stopped when it broke.

  Args:
    samples: prompts consumed, [trials].
    reached: whether the threshold was, [trials].
    budget: prompts after which a trial is censored.
  """
  values = np.where(reached, samples, budget).astype(float)
  restricted = not bool(np.all(reached))
  mean, low, high = student_interval(values)
  if np.isnan(low):
    return RestrictedMean(mean, np.nan, np.nan, restricted)
  return RestrictedMean(mean, max(low, 0.0), min(high, float(budget)), restricted)


def student_interval(values: np.ndarray) -> tuple[float, float, float]:
  """Mean and Student-t interval of independent values; NaN for that of a single one."""
  mean = float(np.mean(values))
  if len(values) < 2:
    return mean, np.nan, np.nan
  error = float(scipy.stats.sem(values))
  half = error * float(scipy.stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1))
  return mean, mean - half, mean + half


def ratio(
  one: tuple[float, float, float], other: tuple[float, float, float]
) -> tuple[float, float, float]:
  """The ratio of two positive numbers that are known with intervals.

  Its interval is made of theirs on the scale of logarithms: each end is as far from the
  ratio as the root of the sum of squares of the two ends that it depends on (Zou and
  Donner, 2008). It supposes that the two are independent, and is too wide where they
  grow together.

  Args:
    one: the number, its low and its high end.
    other: the same of what it is divided by.
  """
  value = one[0] / other[0]
  below = math.hypot(_apart(one[1], one[0]), _apart(other[0], other[2]))
  above = math.hypot(_apart(one[0], one[2]), _apart(other[1], other[0]))
  return value, value * math.exp(-below), value * math.exp(above)


def _apart(low: float, high: float) -> float:
  """How far on the scale of logarithms; 0 is infinitely far."""
  return math.log(high / low) if low else math.inf
