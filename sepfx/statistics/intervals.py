"""Means of possibly censored first passages, with intervals."""

from __future__ import annotations

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
