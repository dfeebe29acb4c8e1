"""How often trials succeed at a sample size, and from which size on they mostly do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy  # loads its parts where they are used

from sepfx.statistics.intervals import CONFIDENCE

_RESAMPLES = 50  # as published
# The prior of a success curve: its steepness k log-uniform, from odds that grow like m to
# a step between neighbouring sample sizes; its critical size log-uniform, up to a factor
# of two outside the sizes tried.
_STEEPNESS = np.geomspace(1.0, 60.0, 40)
_OUTSIDE = np.log(2.0)
_LOG_STEP = 0.01
# Share of a success curve's height that a search spreads its trials over.
_SPREAD = 0.7
_INTERVAL = ((1 - CONFIDENCE) / 2, 0.5, (1 + CONFIDENCE) / 2)


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


def log_likelihood(log_critical: Any, steepness: Any, counts: Counts) -> np.ndarray:
  """Log-likelihood of P(success | m) = 1 / (1 + e^(-k (log m - log m_crit))).

  Args:
    log_critical: log m_crit, and
    steepness: k; numbers or arrays of a common shape.
    counts: the trials.
  """
  value = np.zeros(np.broadcast_shapes(np.shape(log_critical), np.shape(steepness)))
  for size, successes, trials in zip(*counts, strict=True):
    x = steepness * (np.log(size) - log_critical)
    value -= successes * np.logaddexp(0, -x) + (trials - successes) * np.logaddexp(0, x)
  return value


class Posterior(NamedTuple):
  """What trials say of the curve P(success | m) = 1 / (1 + (m_crit / m)^k).

  It depends on the trials' likelihood alone, not on why their sizes were chosen, so it
  serves a grid and a search alike.

  Attributes:
    log_critical: log m_crit, ascending, [a].
    weights: of each log m_crit and k, [a b]; their sum is 1.
  """

  log_critical: np.ndarray
  weights: np.ndarray

  def critical(self, levels: Any) -> np.ndarray:
    """Returns the quantiles of m_crit at these levels, an array of their shape."""
    marginal = np.sum(self.weights, axis=1)
    return np.exp(_quantiles(self.log_critical, marginal, levels))

  def chance(self, sizes: np.ndarray) -> np.ndarray:
    """Returns the mean of P(success | m) at each of these sizes, [k]."""
    offset = np.log(sizes)[:, None, None] - self.log_critical[:, None]
    return np.sum(self.weights * scipy.special.expit(_STEEPNESS * offset), axis=(1, 2))


def posterior(counts: Counts, sizes: np.ndarray) -> Posterior:
  """Returns the posterior of a model and length, given the trials there alone.

  Args:
    counts: its trials; may be empty.
    sizes: those that could be tried, ascending; the prior follows them.
  """
  log_critical, logs = _log_weights(counts, sizes)
  weights = np.exp(logs - np.max(logs))
  return Posterior(log_critical, weights / np.sum(weights))


class Steepness(NamedTuple):
  """The steepness k of a model's success curves, one at all lengths.

  Attributes:
    k: the median of its posterior.
    low, high: its 95% interval.
    support: log of the evidence for one steepness over the evidence for one of its own
      at each length.
  """

  k: float
  low: float
  high: float
  support: float


def success_curves(
  counts: Mapping[int, Counts],
) -> tuple[dict[int, Posterior], Steepness | None]:
  """Returns posteriors of a model at each length, under one steepness for all.

  Args:
    counts: its trials by length.

  Returns:
    Posteriors of those lengths where some trials succeeded and some did not; and the
    steepness, None if there are none. Its distribution is the same in all posteriors.
  """
  each = {
    length: _log_weights(own, own.sizes)
    for length, own in counts.items()
    if _has_both(own)
  }
  if not each:
    return {}, None
  # Log-evidence of each k. Given k, lengths have nothing to do with one another.
  of_k = {
    length: scipy.special.logsumexp(logs, axis=0) for length, (_, logs) in each.items()
  }
  together = sum(of_k.values())
  posteriors = {}
  for length, (log_critical, logs) in each.items():
    weights = np.exp(logs - of_k[length] + together - np.max(together))
    posteriors[length] = Posterior(log_critical, weights / np.sum(weights))

  def mean(logs):
    return float(scipy.special.logsumexp(logs) - np.log(len(logs)))

  weights = np.exp(together - scipy.special.logsumexp(together))
  low, k, high = np.exp(_quantiles(np.log(_STEEPNESS), weights, _INTERVAL)).tolist()
  support = mean(together) - sum(map(mean, of_k.values()))
  return posteriors, Steepness(k, low, high, support)


def _log_weights(counts: Counts, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Log m_crit that are possible, [a], and log-likelihoods of each with each k, [a b]."""
  start, stop = np.log(sizes[0]) - _OUTSIDE, np.log(sizes[-1]) + _OUTSIDE
  log_critical = np.arange(start, stop, _LOG_STEP)
  return log_critical, log_likelihood(log_critical[:, None], _STEEPNESS, counts)


def _quantiles(values: np.ndarray, weights: np.ndarray, levels: Any) -> np.ndarray:
  """Quantiles of ascending values [a] with weights [a], of the shape of `levels`."""
  return np.interp(levels, np.cumsum(weights) - weights / 2, values)


def choose_sizes(counts: Counts, sizes: np.ndarray, number: int) -> np.ndarray:
  """Chooses the sample sizes of the next trials in a search for the critical size.

  They are spread evenly over the heights of the mean success curve, less its ends:
  wide while little is known, and around the critical size, on both sides of it so that
  the steepness is learned too, when more is. Each model and length is searched by
  itself.

  Args:
    counts: trials so far; may be empty.
    sizes: those that can be tried, ascending.
    number: of trials.

  Returns:
    A size for each, [number].
  """
  heights = 0.5 + _SPREAD * ((np.arange(number) + 0.5) / number - 0.5)
  chance = posterior(counts, sizes).chance(sizes)
  return sizes[np.argmin(np.abs(chance - heights[:, None]), axis=1)]


# What bounds a critical size.
LESS, MORE = "less than", "more than"


class Critical(NamedTuple):
  """A critical sample size: where half of the trials succeed.

  Attributes:
    size: the median of the posterior of m_crit; NaN where there is a bound in its place.
    low, high: its 95% interval.
    bound: "less than" the smallest size tried, if all trials succeeded or the median lies
      there, "more than" the largest, if none did or the median lies there, or None. A
      median outside the sizes tried is the prior's more than the trials'.
    smallest, largest: of the sizes tried.
    on_grid: the published definition, the smallest sample size at which more than half
      of the trials succeeded; NaN if there is none.
    grid_error: its standard error from 50 resamples of the trials, as published, over
      those resamples in which there is one.
  """

  size: float
  low: float
  high: float
  bound: str | None
  smallest: int
  largest: int
  on_grid: float
  grid_error: float


def critical_size(counts: Counts, own: Posterior | None) -> Critical:
  """Returns the critical sample size of a model and length.

  Args:
    counts: the trials.
    own: their posterior; None if all succeeded or none did.
  """
  first = _first_majority(counts, counts.successes)
  share = counts.successes / counts.trials
  drawn = np.random.default_rng(0).binomial(
    counts.trials, share, (_RESAMPLES, len(share))
  )
  resampled = [_first_majority(counts, successes) for successes in drawn]
  known = [size for size in resampled if not np.isnan(size)]
  error = float(np.std(known)) if known else np.nan
  low, size, high = own.critical(_INTERVAL).tolist() if own else 3 * [np.nan]
  smallest, largest = int(counts.sizes[0]), int(counts.sizes[-1])
  bound = None
  if np.all(counts.successes == counts.trials) or size < smallest:
    bound = LESS
  elif not np.any(counts.successes) or size > largest:
    bound = MORE
  if bound:
    low, size, high = 3 * [np.nan]
  return Critical(size, low, high, bound, smallest, largest, first, error)


def critical_ratio(larger: Posterior, smaller: Posterior) -> tuple[float, float, float]:
  """Ratio of two critical sizes, its median and 95% interval: (ratio, low, high).

  Args:
    larger, smaller: of the same `success_curves`.
  """
  # Given k the two are independent, so the difference of their logarithms has the
  # correlation of their distributions.
  shares = zip(
    larger.weights.T, smaller.weights.T, np.sum(smaller.weights, axis=0), strict=True
  )
  weights = np.sum([np.convolve(a, b[::-1]) / p for a, b, p in shares if p > 0], axis=0)
  return _ratio(larger, smaller, weights)


def independent_ratio(one: Posterior, other: Posterior) -> tuple[float, float, float]:
  """The ratio of critical sizes of two models, each with a steepness of its own."""
  a, b = (np.sum(own.weights, axis=1) for own in (one, other))
  return _ratio(one, other, np.convolve(a, b[::-1]))


def _ratio(
  one: Posterior, other: Posterior, weights: np.ndarray
) -> tuple[float, float, float]:
  """From the weights of differences of log m_crit."""
  first = one.log_critical[0] - other.log_critical[-1]
  differences = first + _LOG_STEP * np.arange(len(weights))
  low, ratio, high = np.exp(_quantiles(differences, weights, _INTERVAL)).tolist()
  return ratio, low, high


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
    None if the critical size is known at fewer than three lengths. A length at which it
    is only bounded has its trials in the likelihood, too.
  """
  curves, _ = success_curves(counts)
  known = {
    length: own
    for length, own in curves.items()
    if critical_size(counts[length], own).bound is None
  }
  if len(known) < 3:
    return None
  lengths = np.log(np.array(sorted(known), float))
  sizes = np.array([known[length].critical(0.5) for length in sorted(known)])

  def fit(critical, start):
    def loss(p):
      logs = critical(p, np.log(np.array(list(counts), float)))
      if not np.all(np.isfinite(logs)):
        return np.inf
      k = np.clip(np.exp(p[2]), _STEEPNESS[0], _STEEPNESS[-1])
      each = zip(logs, counts.values(), strict=True)
      return -sum(float(log_likelihood(log, k, own)) for log, own in each)

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


def _first_majority(counts: Counts, successes: np.ndarray) -> float:
  most = np.flatnonzero(2 * successes > counts.trials)
  return float(counts.sizes[most[0]]) if len(most) else np.nan


def _has_both(counts: Counts) -> bool:
  """Whether some trials succeeded and some did not."""
  return bool(0 < np.sum(counts.successes) < np.sum(counts.trials))
