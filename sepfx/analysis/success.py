"""How often trials succeed at a sample size, and from which size on they mostly do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
import scipy.special
import scipy.stats

from sepfx.analysis.statistics import CONFIDENCE

_RESAMPLES = 1000
# Steepness k of a success curve, per unit of log m: its lowest value, and the scale from
# which on it is a step between two neighbouring sample sizes.
_FLATTEST, _STEEPEST = 0.3, 60.0
# The scale of a curve's value in the middle of the sizes, in units of the logit.
_FARTHEST = 100.0
_NEWTON_STEPS = 60


class Fraction(NamedTuple):
  """A fraction of successes with its 95% Wilson interval.

  Attributes:
    fraction: of trials that succeeded.
    low, high: Wilson's score interval.
    error: standard error in the normal approximation, as published.
  """

  fraction: float
  low: float
  high: float
  error: float


def success_fraction(successes: int, trials: int) -> Fraction:
  """Returns the fraction with its interval; `trials` > 0."""
  p = successes / trials
  wilson = scipy.stats.binomtest(successes, trials).proportion_ci(CONFIDENCE, "wilson")
  return Fraction(p, wilson.low, wilson.high, float(np.sqrt(p * (1 - p) / trials)))


class Counts(NamedTuple):
  """Successes by sample size, the trials of one model and length.

  Attributes:
    sizes: m, ascending, [k].
    successes: of the trials there, [k].
    trials: [k].
  """

  sizes: np.ndarray
  successes: np.ndarray
  trials: np.ndarray


def count(sizes: np.ndarray, succeeded: np.ndarray) -> Counts:
  """Counts trials, given the sample size of each and whether it succeeded."""
  distinct, which = np.unique(sizes, return_inverse=True)
  successes = np.bincount(which, weights=succeeded).astype(int)
  return Counts(distinct, successes, np.bincount(which))


class Critical(NamedTuple):
  """A critical sample size: where half of the trials succeed.

  Attributes:
    size: where the fitted success curve is 1/2; NaN if no curve can be fitted, because
      all trials succeeded or none did.
    low, high: 95% interval, from trials drawn anew at every sample size.
    on_grid: the published definition, the smallest sample size at which more than half
      of the trials succeeded; NaN if there is none.
    grid_error: its standard error from 50 resamples of the trials, as published, over
      those resamples in which there is one.
  """

  size: float
  low: float
  high: float
  on_grid: float
  grid_error: float


def log_likelihood(
  log_critical: np.ndarray, steepness: float | np.ndarray, counts: Counts
) -> np.ndarray:
  """Log-likelihood of P(success | m) = 1 / (1 + e^(-k (log m - log m_crit))).

  Args:
    log_critical: log m_crit, a number or [k].
    steepness: k.
    counts: the trials.
  """
  x = steepness * (np.log(counts.sizes) - log_critical)
  failures = counts.trials - counts.successes
  each = counts.successes * np.logaddexp(0, -x) + failures * np.logaddexp(0, x)
  return -np.sum(each)


def fit_curves(counts: Counts, successes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Fits P(success | m) = 1 / (1 + (m_crit / m)^k) to several outcomes at once.

  Newton's method on the likelihood, with a prior on k of standard deviation
  `_STEEPEST`, at which a curve is a step between neighbouring sample sizes: where
  trials go from all failures to all successes at once, the likelihood alone has no
  maximum. m_crit is at most a factor of two outside the sizes tried.

  Args:
    counts: which sizes were tried, how often.
    successes: there, in each of r outcomes, [r k].

  Returns:
    m_crit and k, [r] each.
  """
  logs = np.log(counts.sizes)
  z = logs - np.mean(logs)
  share = np.sum(successes, axis=1) / np.sum(counts.trials)
  slope = np.full(len(successes), 5.0)
  offset = np.clip(scipy.special.logit(share), -3, 3)
  for _ in range(_NEWTON_STEPS):
    p = scipy.special.expit(slope[:, None] * z + offset[:, None])
    rest, weight = successes - counts.trials * p, counts.trials * p * (1 - p)
    g_slope = rest @ z - slope / _STEEPEST**2
    g_offset = np.sum(rest, axis=1) - offset / _FARTHEST**2
    h_slope = weight @ z**2 + 1 / _STEEPEST**2
    h_offset = np.sum(weight, axis=1) + 1 / _FARTHEST**2
    h_both = weight @ z
    scale = h_slope * h_offset - h_both**2
    step_slope = (h_offset * g_slope - h_both * g_offset) / scale
    step_offset = (h_slope * g_offset - h_both * g_slope) / scale
    # Short of where the quadratic is any guide.
    short = np.minimum(1, 3 / np.maximum(np.abs(step_slope), np.abs(step_offset)))
    slope = np.maximum(slope + short * step_slope, _FLATTEST)
    offset = offset + short * step_offset
  critical = np.mean(logs) - offset / slope
  bounds = (logs[0] - np.log(2), logs[-1] + np.log(2))
  return np.exp(np.clip(critical, *bounds)), slope


def fit_curve(counts: Counts) -> tuple[float, float]:
  """Returns (m_crit, k) of the trials themselves, see `fit_curves`."""
  critical, slope = fit_curves(counts, counts.successes[None])
  return float(critical[0]), float(slope[0])


def critical_size(counts: Counts) -> Critical:
  """Returns the critical sample size of a model and length."""
  first = _first_majority(counts, counts.successes)
  resampled = [_first_majority(counts, own) for own in _resamples(counts, 50)]
  known = [size for size in resampled if not np.isnan(size)]
  error = float(np.std(known)) if known else np.nan
  if np.sum(counts.successes) in (0, np.sum(counts.trials)):
    return Critical(np.nan, np.nan, np.nan, first, error)
  size, _ = fit_curve(counts)
  low, high = _interval(fit_curves(counts, _resamples(counts, _RESAMPLES))[0])
  return Critical(size, low, high, first, error)


def critical_ratio(larger: Counts, smaller: Counts) -> tuple[float, float, float]:
  """Ratio of two critical sizes with its 95% interval: (ratio, low, high)."""
  above, below = (
    fit_curves(counts, _resamples(counts, _RESAMPLES, seed))[0]
    for seed, counts in enumerate((larger, smaller))
  )
  low, high = _interval(above / below)
  return fit_curve(larger)[0] / fit_curve(smaller)[0], low, high


class Growth(NamedTuple):
  """How the critical size grows with the length, in two forms of three parameters.

  Attributes:
    log: (a, b, k) of m_crit = a + b log T.
    power: (A, c, k) of m_crit = A T^c.
    log_likelihood: of the trials under the first.
    power_likelihood: likewise, also a logarithm, under the second.
  """

  log: tuple[float, float, float]
  power: tuple[float, float, float]
  log_likelihood: float
  power_likelihood: float


def fit_growth(counts: Mapping[int, Counts]) -> Growth | None:
  """Fits both forms to all trials of a model at once, by their likelihood.

  Args:
    counts: by length T.

  Returns:
    None if the critical size is known at fewer than three lengths.
  """
  known = {
    length: own
    for length, own in counts.items()
    if 0 < np.sum(own.successes) < np.sum(own.trials)
  }
  if len(known) < 3:
    return None
  lengths = np.log(np.array(sorted(known), float))
  sizes = np.array([fit_curve(known[length])[0] for length in sorted(known)])

  def fit(critical, start):
    def loss(p):
      logs = critical(p, np.log(np.array(list(counts), float)))
      if not np.all(np.isfinite(logs)):
        return np.inf
      k = np.exp(np.clip(p[2], np.log(_FLATTEST), np.log(_STEEPEST)))
      each = zip(logs, counts.values(), strict=True)
      return -sum(log_likelihood(log, k, own) for log, own in each)

    options = {"maxiter": 4000, "xatol": 1e-6, "fatol": 1e-8}
    found = scipy.optimize.minimize(
      loss, (*start, np.log(5.0)), method="Nelder-Mead", options=options
    )
    return found.x, -float(found.fun)

  def logarithm(p, x):
    size = p[0] + p[1] * x
    return np.log(np.where(size > 0, size, np.nan))

  b, a = np.polyfit(lengths, sizes, 1)
  of_log, log_value = fit(logarithm, (a, b))
  c, log_a = np.polyfit(lengths, np.log(sizes), 1)
  of_power, power_value = fit(lambda p, x: p[0] + p[1] * x, (log_a, c))
  k_log, k_power = np.exp(of_log[2]), np.exp(of_power[2])
  return Growth(
    (float(of_log[0]), float(of_log[1]), float(k_log)),
    (float(np.exp(of_power[0])), float(of_power[1]), float(k_power)),
    log_value,
    power_value,
  )


def summarise_success(records: np.ndarray, floor: Mapping[int, float]) -> dict[str, Any]:
  """Summarises the records of a run on fixed samples.

  Args:
    records: structured array with the columns of `trials.csv`.
    floor: critical size of the learner that tries all subsets, by length; may be
      empty.

  Returns:
    JSON values: `cells` (a fraction of successes a model, length and sample size),
    `critical` (a critical size a model and length), `growth` (by model), `floor`; and
    `ratios`, how much the critical size of a model grows from the smallest length to
    each other. All with 95% intervals.
  """
  cells, critical, ratios, growth = [], [], [], {}
  for model in dict.fromkeys(records["model"].tolist()):
    by_length: dict[int, Counts] = {}
    for length in sorted(set(records["length"][records["model"] == model].tolist())):
      own = records[(records["model"] == model) & (records["length"] == length)]
      counts = count(own["sample_size"], own["outcome"] == "reached")
      by_length[length] = counts
      for size, successes, trials in zip(*(a.tolist() for a in counts), strict=True):
        outcomes = own["outcome"][own["sample_size"] == size].tolist()
        cells.append(
          {
            "task": own["task"][0].item(),
            "model": model,
            "length": length,
            "sample_size": size,
            "trials": trials,
            **{o: outcomes.count(o) for o in ("reached", "censored", "diverged")},
            **success_fraction(successes, trials)._asdict(),
          }
        )
      found = critical_size(counts)
      steepness = None if np.isnan(found.size) else fit_curve(counts)[1]
      critical.append(
        {
          "model": model,
          "length": length,
          **{k: None if np.isnan(v) else v for k, v in found._asdict().items()},
          "steepness": steepness,
        }
      )
    known = [
      length
      for length, own in by_length.items()
      if 0 < np.sum(own.successes) < np.sum(own.trials)
    ]
    for length in known[1:]:
      ratio, low, high = critical_ratio(by_length[length], by_length[known[0]])
      ratios.append(
        {"model": model, "lengths": [known[0], length], "ratio": ratio, "low": low,
         "high": high}
      )  # fmt: skip
    fitted = fit_growth(by_length)
    growth[model] = fitted._asdict() if fitted else None
  return {
    "confidence": CONFIDENCE,
    "cells": cells,
    "critical": critical,
    "ratios": ratios,
    "growth": growth,
    "floor": [[length, size] for length, size in floor.items()],
  }


def _first_majority(counts: Counts, successes: np.ndarray) -> float:
  most = np.flatnonzero(2 * successes > counts.trials)
  return float(counts.sizes[most[0]]) if len(most) else np.nan


def _resamples(counts: Counts, number: int, seed: int = 0) -> np.ndarray:
  """Successes when each size's trials are drawn with replacement, [number k]."""
  share = counts.successes / counts.trials
  rng = np.random.default_rng(seed)
  return rng.binomial(counts.trials, share, (number, len(share)))


def _interval(values: Any) -> tuple[float, float]:
  low, high = np.quantile(values, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
  return float(low), float(high)
