"""The exponent c of n ~ x^c, other laws, and ratios of n, from first passages."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import scipy  # loads its parts where they are used
from jaxtyping import Bool, Int, Real

from sepfx.statistics.bounded import (
  CONFIDENCE,
  Bounds,
  Fit,
  coefficient_interval,
  contrasts,
  fit,
)
from sepfx.statistics.passages import padded, spreads_differ

# Growth factors that a logarithm is tried with at once, and how often around the best.
_FACTORS, _REFINEMENTS = 41, 5


class Exponent(NamedTuple):
  """c of n ~ x^c with its 95% interval; x is the length, say.

  Attributes:
    c: the likeliest.
    low, high: from the profile of the likelihood; NaN where too few trials reached to
      tell of a spread.
    over: the values of x that it was fitted over.
  """

  c: float
  low: float
  high: float
  over: tuple[float, ...]


def fit_exponent(
  x: Real[np.ndarray, " k"],
  bounds: Bounds,
  reached: Bool[np.ndarray, " k"],
  paired: Int[np.ndarray, " k"] | None = None,
) -> Exponent | None:
  """Fits log n = a + c log x + noise, normal and of one spread.

  Where the spread differs between values of x, and at each two trials reached, c is the
  slope through the means of log n at each, all of one weight, with an interval after
  Welch and Satterthwaite.

  Args:
    x: the length of each trial, or what else n is fitted against.
    bounds: of its log n (`sepfx.statistics.passages.bounds_of`).
    reached: whether it reached the threshold.
    paired: names trials that share their keys across values of x, such as their index.
      Then c is the mean of the slopes of those that are there at all x, and the interval
      that of their mean. None where all trials are independent.

  Returns:
    None if fewer than two values have a trial that reached, or some are not positive, or
    no paired trial is there at all x.
  """
  places = np.unique(x)
  if len(np.unique(x[reached])) < 2 or np.any(x <= 0):
    return None
  if paired is None:
    c, low, high = slope(places, padded(bounds, x))
  else:
    rows = {key: np.flatnonzero(paired == key) for key in np.unique(paired)}
    whole = [own[np.argsort(x[own])] for own in rows.values() if len(own) == len(places)]
    if not whole:
      return None
    log_x = np.log(places)
    centred = log_x - np.mean(log_x)
    table = Bounds(*(side[np.array(whole)] for side in bounds))
    c, low, high = paired_contrast(table, centred / np.sum(centred**2))
    if np.isnan(c):
      return None
  return Exponent(float(c), float(low), float(high), tuple(places.tolist()))


def local_exponents(
  x: Real[np.ndarray, " k"], bounds: Bounds, reached: Bool[np.ndarray, " k"]
) -> list[Exponent]:
  """c from each value of x to the next, as `fit_exponent` finds it from these alone."""
  found = []
  for pair in itertools.pairwise(np.unique(x).tolist()):
    at = np.isin(x, pair)
    own = fit_exponent(x[at], Bounds(*(side[at] for side in bounds)), reached[at])
    if own is not None:
      found.append(own)
  return found


def straightness(x: Real[np.ndarray, " k"], bounds: Bounds) -> float:
  """The p-value of log n = a + c log x against means of any values at each x.

  A small one says that c is no exponent of a power law. The ratio of the likelihoods
  given the bounds, of one spread, is held against the F distribution, as it would be for
  numbers that are known.

  Args:
    x: positive.
    bounds: of log n.

  Returns:
    NaN for fewer than three values of x, or too few trials to tell of a spread.
  """
  return _against_means(_power(x, bounds).value, x, bounds)


def _power(x: np.ndarray, bounds: Bounds) -> Fit:
  return fit(bounds, np.stack([np.ones(len(x)), np.log(x)], axis=-1))


def _against_means(value: float | np.ndarray, x: np.ndarray, bounds: Bounds) -> float:
  """The p-value of a law of two coefficients and this log-likelihood."""
  places, which = np.unique(x, return_inverse=True)
  N, K = int(np.sum(bounds.informative)), len(places)
  if K < 3 or N <= K:
    return float("nan")
  means = fit(bounds, np.eye(K)[which])
  ratio = np.maximum(2 * (means.value - value), 0.0)
  statistic = np.expm1(ratio / N) * (N - K) / (K - 2)
  return float(scipy.stats.f.sf(statistic, K - 2, N - K))


class Laws(NamedTuple):
  """n = a + b log x beside n = scale x^c, both of the geometric mean of n.

  Attributes:
    a, b: of the logarithm, the likeliest.
    scale, c: of the power, the likeliest.
    advantage: log-likelihood of the logarithm less that of the power. Both have as many
      coefficients.
    p_logarithm, p_power: p-values of either against means of any values at each x
      (`straightness`): where one is small, n does not follow that law.
  """

  a: float
  b: float
  scale: float
  c: float
  advantage: float
  p_logarithm: float
  p_power: float


def laws(x: Real[np.ndarray, " k"], bounds: Bounds) -> Laws | None:
  """Fits a logarithm and a power to log n, with normal noise of one spread.

  Args:
    x: positive.
    bounds: of log n.

  Returns:
    None where `straightness` says nothing.
  """
  power = _power(x, bounds)
  p_power = _against_means(power.value, x, bounds)
  if np.isnan(p_power):
    return None
  log_x = np.log(x)
  share = (log_x - log_x.min()) / (log_x.max() - log_x.min())
  ones = np.ones((len(x), 1))

  def fits(log_factor: np.ndarray) -> Fit:
    """By the log of n at the largest x over n at the smallest."""
    shape = np.log1p(np.expm1(log_factor)[:, None] * share)
    return fit(bounds.shifted(shape), ones)

  # The likelihood has one maximum, not far from where the power has it.
  centre, width = power.coefficients[1] * np.ptp(log_x), 3.0
  for _ in range(_REFINEMENTS):
    tried = centre + np.linspace(-width, width, _FACTORS)
    centre = tried[np.argmax(fits(tried).value)]
    width *= 4 / _FACTORS
  best = fits(np.array([centre]))
  first = float(np.exp(best.coefficients[0, 0]))
  b = first * float(np.expm1(centre)) / float(np.ptp(log_x))
  value = float(best.value[0])
  intercept, c = power.coefficients
  return Laws(
    a=first - b * float(log_x.min()),
    b=b,
    scale=float(np.exp(intercept)),
    c=float(c),
    advantage=value - float(power.value),
    p_logarithm=_against_means(value, x, bounds),
    p_power=p_power,
  )


class Growth(NamedTuple):
  """How many times as large n is at the largest x as at the smallest.

  Attributes:
    factor: of geometric means, from the trials at these two alone.
    low, high: its 95% interval; NaN where too few trials reached.
    over: the two values of x.
  """

  factor: float
  low: float
  high: float
  over: tuple[float, float]


def growth(
  x: Real[np.ndarray, " k"], bounds: Bounds, reached: Bool[np.ndarray, " k"]
) -> Growth | None:
  """Compares the ends, whatever law n follows between them.

  Args:
    x, bounds, reached: as `fit_exponent` takes them.

  Returns:
    None where there is no exponent between the two.
  """
  ends = float(np.min(x)), float(np.max(x))
  at = np.isin(x, ends)
  found = fit_exponent(x[at], Bounds(*(side[at] for side in bounds)), reached[at])
  if found is None:
    return None
  span = np.log(ends[1] / ends[0])
  factor, low, high = (float(np.exp(span * c)) for c in found[:3])
  return Growth(factor, low, high, ends)


def slope(
  x: Real[np.ndarray, " K"], table: Bounds
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """The slope of log n against log x with its interval: (c, low, high), [*batch] each.

  Args:
    x: of K cells.
    table: their log n, [*batch K m]; without any bound where a cell has fewer than m.
  """
  *batch, K, m = table.lower.shape
  flat = Bounds(*(side.reshape(*batch, K * m) for side in table))
  log_x = np.repeat(np.log(x), m)
  design = np.stack([np.ones(K * m), log_x], axis=-1)
  found = coefficient_interval(flat, design, 1)
  enough = np.all(np.sum(table.informative, axis=-1) > 1, axis=-1)
  apart = enough & spreads_differ(table)
  if np.any(apart):
    of_means = _of_means(x, table)
    c, low, high = (np.where(apart, of_means[k], found[k]) for k in range(3))
    return c, low, high
  return found


def _of_means(
  x: Real[np.ndarray, " K"], table: Bounds
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """The same through the means of cells with spreads of their own, all of one weight."""
  own = fit(table, np.ones((table.lower.shape[-1], 1)))
  freedom = np.maximum(np.sum(table.informative, axis=-1) - 1, 1)
  # The likeliest variance is f / (f + 1) of the unbiased one; and a mean is not known
  # better than two checks tell.
  variance = own.spread**2 / freedom + table.narrowest**2 / 12
  log_x = np.log(x) - np.mean(np.log(x))
  weights = log_x / np.sum(log_x**2)
  parts = weights**2 * variance
  together = np.sum(parts, axis=-1) ** 2 / np.sum(parts**2 / freedom, axis=-1)
  half = scipy.stats.t.ppf((1 + CONFIDENCE) / 2, together)
  half = half * np.sqrt(np.sum(parts, axis=-1))
  c = own.coefficients[..., 0] @ weights
  return c, c - half, c + half


def paired_contrast(
  bounds: Bounds, weights: Real[np.ndarray, " K"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """The mean over pairs of a weighted sum of log n, with its interval, [*batch] each.

  Args:
    bounds: of log n of trials that share their keys, [*batch pairs K].
    weights: of the K settings.

  Returns:
    The mean and the ends of its interval; NaN where no pair tells of it.
  """
  logs = contrasts(bounds, weights)
  pairs = logs.lower.shape[-1]
  known = np.any(logs.informative, axis=-1)
  found = coefficient_interval(logs, np.ones((pairs, 1)), 0)
  mean, low, high = (np.where(known, value, np.nan) for value in found)
  return mean, low, high


class Ratio(NamedTuple):
  """How many times as many samples one setting needs as another.

  Attributes:
    ratio: geometric mean over trials that share their keys.
    low, high: its 95% interval; NaN for fewer than two pairs.
    pairs: of which at least one trial reached.
  """

  ratio: float
  low: float
  high: float
  pairs: int


def paired_ratio(bounds: Bounds, others: Bounds) -> Ratio | None:
  """Compares first passages of trials that differ in a setting and share their keys.

  Args:
    bounds: of log n under the one setting, [k].
    others: under the other, of the same trials.

  Returns:
    None if there is no pair of which both reached.
  """
  both = Bounds(*(np.stack([a, b], axis=-1) for a, b in zip(bounds, others, strict=True)))
  weights = np.array([1.0, -1.0])
  found = paired_contrast(both, weights)
  if np.isnan(found[0]):
    return None
  logs = contrasts(both, weights)
  pairs = int(np.sum(np.isfinite(logs.lower) | np.isfinite(logs.upper)))
  ratio, low, high = (float(np.exp(value)) for value in found)
  return Ratio(ratio, low, high, pairs)
