"""The exponent c of n ~ x^c, from trials some of which may be censored."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.stats

from sepfx.analysis.statistics import CONFIDENCE

_RESAMPLES = 2000
_MAX_ITERATIONS = 500


class Exponent(NamedTuple):
  """c of n ~ x^c with a bootstrap interval over trials; x is the length, say.

  Attributes:
    c: the estimate.
    low, high: 95% percentile interval.
    over: the values of x that it was fitted over.
  """

  c: float
  low: float
  high: float
  over: tuple[float, ...]


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
  x: np.ndarray, samples: np.ndarray, reached: np.ndarray, budget: int | np.ndarray
) -> Exponent | None:
  """Fits log n = a + c log x and resamples trials within each value of x.

  Args:
    x: the length of each trial, or what else n is fitted against, [k].
    samples: prompts consumed, [k].
    reached: whether the threshold was, [k].
    budget: prompts after which a trial is censored, one number or [k]; a diverged
      trial counts as one.

  Returns:
    The exponent, or None if fewer than two values have a trial that reached, or some are
    not positive.
  """
  if len(np.unique(x[reached])) < 2 or np.any(x <= 0):
    return None
  log_x = np.log(x)
  y = np.log(np.where(reached, samples, budget))
  rng = np.random.default_rng(0)
  chosen = np.empty((_RESAMPLES, len(x)), int)
  for value in np.unique(x):
    own = np.flatnonzero(x == value)
    chosen[:, own] = rng.choice(own, (_RESAMPLES, len(own)))
  c = float(fit_line(log_x, y, reached)[1])
  resampled = fit_line(log_x[chosen], y[chosen], reached[chosen])[:, 1]
  low, high = np.quantile(resampled, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
  return Exponent(c, float(low), float(high), tuple(np.unique(x).tolist()))
