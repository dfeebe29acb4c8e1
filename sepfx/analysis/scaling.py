"""The exponent c of n ~ N^c, from trials some of which may be censored."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.stats

from sepfx.analysis.statistics import CONFIDENCE

_RESAMPLES = 2000
_MAX_ITERATIONS = 500


class Exponent(NamedTuple):
  """c of n ~ N^c with a bootstrap interval over trials.

  Attributes:
    c: the estimate.
    low, high: 95% percentile interval.
    lengths: the lengths it was fitted over.
  """

  c: float
  low: float
  high: float
  lengths: tuple[int, ...]


def fit_line(x: np.ndarray, y: np.ndarray, observed: np.ndarray) -> np.ndarray:
  """Maximum-likelihood line y = a + c x + normal noise, y right-censored.

  Expectation maximisation: a censored y is replaced by its mean given that it
  exceeds what was seen. With nothing censored this is least squares.

  Args:
    x, y: [*batch k]; y of a censored observation is where it was censored.
    observed: False where censored, [*batch k].

  Returns:
    (a, c), [*batch 2].
  """
  x_mean = np.mean(x, axis=-1, keepdims=True)
  spread = np.sum((x - x_mean) ** 2, axis=-1)
  filled = y
  for _ in range(_MAX_ITERATIONS):
    c = np.sum((x - x_mean) * filled, axis=-1) / spread
    a = np.mean(filled, axis=-1) - c * x_mean[..., 0]
    if np.all(observed):
      break
    line = a[..., None] + c[..., None] * x
    if filled is y:
      variance = np.zeros_like(y)
    sigma = np.sqrt(np.mean((filled - line) ** 2 + variance, axis=-1, keepdims=True))
    sigma = np.maximum(sigma, 1e-6)
    z = (y - line) / sigma
    hazard = np.exp(scipy.stats.norm.logpdf(z) - scipy.stats.norm.logsf(z))
    variance = np.where(observed, 0.0, sigma**2 * (1 + z * hazard - hazard**2))
    before, filled = filled, np.where(observed, y, line + sigma * hazard)
    if np.max(np.abs(filled - before)) < 1e-6:
      break
  return np.stack([a, c], axis=-1)


def fit_exponent(
  lengths: np.ndarray, samples: np.ndarray, reached: np.ndarray, budget: int | np.ndarray
) -> Exponent | None:
  """Fits log n = a + c log N and resamples trials within each length.

  Args:
    lengths: N of each trial, [k].
    samples: prompts consumed, [k].
    reached: whether the threshold was, [k].
    budget: prompts after which a trial is censored, one number or [k]; a diverged
      trial counts as one.

  Returns:
    The exponent, or None if fewer than two lengths have a trial that reached.
  """
  if len(np.unique(lengths[reached])) < 2:
    return None
  x = np.log(lengths)
  y = np.log(np.where(reached, samples, budget))
  rng = np.random.default_rng(0)
  chosen = np.empty((_RESAMPLES, len(lengths)), int)
  for length in np.unique(lengths):
    own = np.flatnonzero(lengths == length)
    chosen[:, own] = rng.choice(own, (_RESAMPLES, len(own)))
  c = float(fit_line(x, y, reached)[1])
  resampled = fit_line(x[chosen], y[chosen], reached[chosen])[:, 1]
  low, high = np.quantile(resampled, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
  return Exponent(c, float(low), float(high), tuple(map(int, np.unique(lengths))))
