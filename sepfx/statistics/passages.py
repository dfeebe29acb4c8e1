"""Means of first passages that are known between two checks, or beyond a budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy  # loads its parts where they are used
from jaxtyping import Bool, Real

from sepfx.statistics.bounded import (
  LEAST_SPREAD,
  Bounds,
  Fit,
  density_ratio,
  end_of,
  fit,
  log_probability,
  margin,
)
from sepfx.statistics.medians import median_of

# Values of the spread at which the likelihood is looked at.
_SPREADS = 61
_NEWTON_STEPS = 30
# Checks below which a mean is called coarse.
COARSE = 10
# Level of the test by which the spread is taken to be another one in each cell.
_LEVEL = 0.01


class Checks(NamedTuple):
  """How first passages were looked for, of each trial or record, [n] each, in samples.

  Attributes:
    step: samples of one step.
    every: between two checks.
    budget: after which a trial is censored.
  """

  step: np.ndarray
  every: np.ndarray
  budget: np.ndarray

  def at(self, chosen: np.ndarray) -> Checks:
    """Those of some of the trials alone."""
    return Checks(*(own[chosen] for own in self))


def bounds_of(
  samples: Real[np.ndarray, "*n"], reached: Bool[np.ndarray, "*n"], checks: Checks
) -> Bounds:
  """Bounds of log n from what is recorded.

  Args:
    samples: at the check at which the threshold was first met.
    reached: whether it was. A trial that diverged counts as one that spent the budget,
      wherever it broke.
    checks: at which checks it could have been.
  """
  # It takes a step at least: n is above half of one.
  before = np.maximum(samples - checks.every, checks.step / 2)
  lower = np.log(np.where(reached, before, checks.budget))
  return Bounds(lower, np.where(reached, np.log(np.maximum(samples, 1)), np.inf))


class Means(NamedTuple):
  """Restricted means E[min(n, budget)] of K cells, [*batch K] each.

  Attributes:
    mean: at the likeliest mean of log n and the spread below.
    low, high: the interval; NaN where fewer than two trials tell of a spread.
    log_spread: standard deviation of log n; NaN likewise.
  """

  mean: np.ndarray
  low: np.ndarray
  high: np.ndarray
  log_spread: np.ndarray


def restricted_means(
  bounds: Bounds, budget: np.ndarray | float, every: np.ndarray | float
) -> Means:
  """Means of cells whose log n are normal, with means of their own.

  Their spread is one, or another one in each cell where `spreads_differ`. Intervals are
  at least as wide as the time between two checks.

  Args:
    bounds: of log n, [*batch K m]; without any bound where a cell has fewer than m.
    budget: of each cell, [*batch K], or of all; infinite for none.
    every: samples between two checks, likewise.
  """
  shape = bounds.lower.shape[:-1]
  budget, every = np.broadcast_to(budget, shape), np.broadcast_to(every, shape)
  found: Means = _of_one_or_several_spreads(_with_one_spread, bounds, budget)
  low = np.maximum(np.minimum(found.low, found.mean - every / 2), 0.0)
  high = np.minimum(np.maximum(found.high, found.mean + every / 2), budget)
  return found._replace(low=low, high=high)


def _of_one_or_several_spreads(
  estimate: Callable[..., Any], bounds: Bounds, *budget: np.ndarray
) -> Any:
  """What `estimate` says of all cells together, or of each alone where spreads differ."""
  apart = spreads_differ(bounds)
  found = estimate(bounds, *budget)
  if np.any(apart):
    alone = Bounds(*(side[..., None, :] for side in bounds))
    own = estimate(alone, *(each[..., None] for each in budget))
    pairs = zip(own, found, strict=True)
    found = type(found)(*(np.where(apart[..., None], a[..., 0], b) for a, b in pairs))
  return found


def _with_one_spread(bounds: Bounds, budget: np.ndarray) -> Means:
  """The same where the spread is one."""
  *batch, K, m = bounds.lower.shape
  log_budget = np.log(budget)
  flat = Bounds(*(side.reshape(*batch, K * m) for side in bounds))
  best = fit(flat, np.repeat(np.eye(K), m, axis=0))
  count = np.sum(flat.informative, axis=-1)
  fall = margin(count, K)
  # The spreads to look at, [*batch S]: the likelihood falls like N log spread above the
  # likeliest one, and faster below.
  share = fall / np.maximum(count, 1)
  least = LEAST_SPREAD * flat.narrowest
  first = np.maximum(best.spread * np.exp(-share - 1.5), least)[..., None]
  last = (np.maximum(best.spread, flat.widest) * np.exp(share + 0.5))[..., None]
  spreads = first * (last / first) ** np.linspace(0, 1, _SPREADS)
  at = spreads[..., None]  # [*batch S 1], beside the cells

  def ends(mean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    low, high = (side[..., None, :, :] - mean[..., None] for side in bounds)
    return low / at[..., None], high / at[..., None]

  def value(mean: np.ndarray) -> np.ndarray:
    """Each cell's log-likelihood at these means, [*batch S K]."""
    return np.sum(log_probability(*ends(mean)), axis=-1)

  likeliest = np.repeat(best.coefficients[..., None, :], _SPREADS, axis=-2)
  for _ in range(_NEWTON_STEPS):
    low, high = ends(likeliest)
    log_p = log_probability(low, high)
    q_low, q_high = density_ratio(low, log_p), density_ratio(high, log_p)
    slope = np.sum(q_low - q_high, axis=-1)
    finite_low, finite_high = (np.where(np.isfinite(z), z, 0.0) for z in (low, high))
    curve = (q_high - q_low) ** 2 + finite_high * q_high - finite_low * q_low
    step = np.clip(slope / np.maximum(np.sum(curve, axis=-1), 1e-12), -3, 3)
    likeliest = likeliest + at * np.where(np.abs(slope) > 1e-9, step, 0.0)
    if np.all(np.abs(step * slope) < 1e-8):
      break
  top = value(likeliest)
  # How far each cell may fall at this spread, the others being at their likeliest.
  room = fall[..., None] - (best.value[..., None] - np.sum(top, axis=-1))
  possible = (room >= 0)[..., None] & np.ones_like(top, bool)
  allowed = top - np.maximum(room, 0.0)[..., None]
  found = []
  for sign, choose, nothing in ((-1.0, np.min, np.inf), (1.0, np.max, -np.inf)):
    start = sign * (at + flat.narrowest[..., None, None]) * np.ones_like(top)
    mean = end_of(lambda own: value(own) - allowed, likeliest, start)
    logs = log_restricted_mean(mean, at, log_budget[..., None, :])
    found.append(np.exp(choose(np.where(possible, logs, nothing), axis=-2)))
  own = _spread(best, count)
  mean = np.exp(log_restricted_mean(best.coefficients, own, log_budget))
  reached = np.any(np.isfinite(bounds.upper), axis=-1)
  mean = np.where(reached, mean, budget)  # which the likelihood but comes near
  low, high, own = (
    np.where((count > K)[..., None], values, np.nan) for values in (*found, own)
  )
  return Means(mean, low, high, own)


def _spread(best: Fit, count: np.ndarray) -> np.ndarray:
  """The spread of log n, [*batch K], from so many numbers that tell of it."""
  freedom = np.maximum(count - best.coefficients.shape[-1], 1)
  spread = best.spread * np.sqrt(np.maximum(count, 1) / freedom)
  return np.broadcast_to(spread[..., None], best.coefficients.shape)


class Points(NamedTuple):
  """What `restricted_means` takes log n for, [*batch K] each.

  Attributes:
    log: its likeliest mean.
    spread: its standard deviation.
  """

  log: np.ndarray
  spread: np.ndarray


def points(bounds: Bounds) -> Points:
  """Estimates of cells whose log n are normal, of one spread or of one each.

  Args:
    bounds: of log n, [*batch K m], as `restricted_means` takes them.
  """
  found: Points = _of_one_or_several_spreads(_points_of_one_spread, bounds)
  return found


def _points_of_one_spread(bounds: Bounds) -> Points:
  *batch, K, m = bounds.lower.shape
  flat = Bounds(*(side.reshape(*batch, K * m) for side in bounds))
  best = fit(flat, np.repeat(np.eye(K), m, axis=0))
  return Points(best.coefficients, _spread(best, np.sum(flat.informative, axis=-1)))


class Mean(NamedTuple):
  """What the trials of one cell say of E[min(n, budget)].

  Attributes:
    mean: the estimate; a lower bound of E[n] where not every trial reached.
    low, high: its 95% interval, at least as wide as the time between two checks; NaN
      where too few trials tell of a spread.
    log_spread: standard deviation of log n.
    recorded: the mean of min(n, budget) as recorded, n being that of the check at which
      the threshold was first met: what published programs report.
    restricted: whether some trial did not reach the threshold.
    coarse: whether the recorded mean is less than ten checks.
    median, median_low, median_high, slow: what `sepfx.statistics.medians.Median` says.
    at_most: whether all trials reached it at their first check. Then n is at most that
      check, which stands as the mean, without an interval.
  """

  mean: float
  low: float
  high: float
  log_spread: float
  recorded: float
  restricted: bool
  coarse: bool
  median: float
  median_low: float
  median_high: float
  slow: int
  at_most: bool


def cell_means(
  samples: Real[np.ndarray, " n"],
  reached: Bool[np.ndarray, " n"],
  checks: Checks,
  cells: np.ndarray,
) -> dict[Any, Mean]:
  """Means of several cells, such as the lengths of one model.

  Their log n are normal with one spread, or with a spread of its own in each cell where
  Bartlett's test finds that they differ. Coarse cells share theirs with one another
  alone: of their spread the checks hide most.

  Args:
    samples, reached, checks: as `bounds_of` takes them.
    cells: of each trial.
  """
  recorded = np.where(reached, samples, checks.budget)
  places, which = np.unique(cells, return_inverse=True)
  own_means = np.bincount(which, recorded) / np.bincount(which)
  coarse = (own_means[which] < COARSE * checks.every).astype(bool)
  means: dict[Any, Mean] = {}
  for kind in np.unique(coarse):
    chosen = coarse == kind
    of_kind = samples[chosen], reached[chosen], checks.at(chosen), cells[chosen]
    means.update(_of_one_kind(*of_kind, coarse=bool(kind)))
  for place in np.unique(cells[at_first_check(samples, reached, checks, cells)]).tolist():
    own, nan = means[place], float("nan")
    means[place] = own._replace(
      mean=own.recorded, low=nan, high=nan, log_spread=nan, at_most=True
    )
  return {place: means[place] for place in places.tolist()}


def at_first_check(
  samples: Real[np.ndarray, " n"],
  reached: Bool[np.ndarray, " n"],
  checks: Checks,
  cells: np.ndarray,
) -> Bool[np.ndarray, " n"]:
  """Whether all trials of a trial's cell reached the threshold at their first check.

  Nothing is known of such an n but that it is at most that check's.

  Args:
    samples, reached, checks, cells: as `cell_means` takes them.
  """
  first = reached & (samples <= checks.every)
  _, which = np.unique(cells, return_inverse=True)
  later = np.bincount(which, ~first) > 0
  return ~later[which]


def padded(bounds: Bounds, cells: np.ndarray) -> Bounds:
  """Lays numbers out by their cells, ascending: [K m], open where a cell has fewer."""
  rows = [np.flatnonzero(cells == place) for place in np.unique(cells)]
  shape = (len(rows), max(map(len, rows)))
  table = Bounds(np.full(shape, -np.inf), np.full(shape, np.inf))
  for side, own in zip(bounds, table, strict=True):
    for k, chosen in enumerate(rows):
      own[k, : len(chosen)] = side[chosen]
  return table


def _of_one_kind(
  samples: np.ndarray,
  reached: np.ndarray,
  checks: Checks,
  cells: np.ndarray,
  *,
  coarse: bool,
) -> dict[Any, Mean]:
  """Means of cells that may share a spread, by cell."""
  places = np.unique(cells)
  rows = [np.flatnonzero(cells == place) for place in places]
  first = [own[0] for own in rows]
  budget, every = checks.budget[first], checks.every[first]
  bounds = bounds_of(samples, reached, checks)
  table = padded(bounds, cells)
  found = restricted_means(table, budget, every)
  means = {}
  for k, (place, own) in enumerate(zip(places.tolist(), rows, strict=True)):
    recorded = np.where(reached[own], samples[own], budget[k])
    median = median_of(Bounds(*(side[own] for side in bounds)))
    means[place] = Mean(
      **{name: float(values[k]) for name, values in found._asdict().items()},
      recorded=float(np.mean(recorded)),
      restricted=not bool(np.all(reached[own])),
      coarse=coarse,
      median=median.median,
      median_low=median.low,
      median_high=median.high,
      slow=median.slow,
      at_most=False,
    )
  return means


def log_restricted_mean(
  mean: np.ndarray, spread: np.ndarray, log_budget: np.ndarray
) -> np.ndarray:
  """log E[min(n, budget)] where log n is normal; its mean may be infinite."""
  finite = np.where(np.isfinite(mean), mean, 0.0)
  z = (log_budget - finite) / spread
  below = finite + spread**2 / 2 + scipy.special.log_ndtr(z - spread)
  spent = np.where(np.isposinf(z), 0.0, log_budget) + scipy.special.log_ndtr(-z)
  found = np.logaddexp(below, spent)
  return np.where(np.isfinite(mean), found, np.where(mean > 0, log_budget, -np.inf))


def spreads_differ(bounds: Bounds) -> Bool[np.ndarray, " *batch"]:
  """Whether the spread of log n is another one in each cell, by Bartlett's test.

  The statistic is that of the likelihoods given the bounds, with Bartlett's correction
  for small numbers of trials.

  Args:
    bounds: as `restricted_means` takes them.
  """
  *batch, K, m = bounds.lower.shape
  # A cell of one number fits it exactly by itself, which says nothing of its spread.
  tells = np.sum(bounds.informative, axis=-1, keepdims=True) > 1
  lower, upper = bounds
  bounds = Bounds(np.where(tells, lower, -np.inf), np.where(tells, upper, np.inf))
  flat = Bounds(*(side.reshape(*batch, K * m) for side in bounds))
  together = fit(flat, np.repeat(np.eye(K), m, axis=0))
  apart = fit(bounds, np.ones((m, 1)))
  count = np.sum(bounds.informative, axis=-1)  # [*batch K]
  freedom = np.sum(np.maximum(count - 1, 0), axis=-1)
  each = np.where(count > 1, 1 / np.maximum(count - 1, 1), 0.0)
  cells = np.sum(count > 1, axis=-1)
  correction = np.sum(each, axis=-1) - 1 / np.maximum(freedom, 1)
  correction = 1 + correction / (3 * np.maximum(cells - 1, 1))
  ratio = 2 * (np.sum(apart.value, axis=-1) - together.value)
  scaled = ratio * freedom / np.maximum(np.sum(count, axis=-1), 1) / correction
  return (cells > 1) & (
    scaled > scipy.stats.chi2.ppf(1 - _LEVEL, np.maximum(cells - 1, 1))
  )
