"""Normal numbers of which only bounds are known: their likelihood and its profile.

A first passage is known between two checks, and from below alone where the budget was
spent. Everything here takes such bounds, on a scale on which the numbers are normal.

Intervals are the values that the profile of the log-likelihood does not leave by more
than N / 2 log(1 + t^2 / f), with t the quantile of Student's distribution of f degrees of
freedom. Of a normal line with nothing hidden that is Student's interval exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy  # loads its parts where they are used
from jaxtyping import Bool, Float

CONFIDENCE = 0.95

_ITERATIONS = 100
# The least spread that is told apart from none, in widths of the narrowest bounds.
LEAST_SPREAD = 0.01
_DOUBLINGS, _BISECTIONS = 40, 40


class Bounds(NamedTuple):
  """Numbers that lie above `lower` and at most at `upper`, [*batch n] each.

  Infinite where nothing bounds a number; a number without any bound tells nothing.
  """

  lower: np.ndarray
  upper: np.ndarray

  def shifted(self, by: np.ndarray) -> Bounds:
    """The bounds of the numbers less these."""
    return Bounds(self.lower - by, self.upper - by)

  @property
  def narrowest(self) -> Float[np.ndarray, " *batch"]:
    """Width of the narrowest bounds; 1 where all are open."""
    width = np.min(self.upper - self.lower, axis=-1)
    return np.where(np.isfinite(width), width, 1.0)

  @property
  def widest(self) -> Float[np.ndarray, " *batch"]:
    """Width of the widest bounds that are closed; 1 where all are open."""
    width = np.where(self.informative, self.upper - self.lower, 0.0)
    width = np.max(width, axis=-1)
    return np.where(width > 0, width, 1.0)

  @property
  def informative(self) -> Bool[np.ndarray, "*batch n"]:
    """Which numbers have two bounds, so that they tell of the spread."""
    return np.isfinite(self.lower) & np.isfinite(self.upper)


class Fit(NamedTuple):
  """The likeliest line.

  Attributes:
    coefficients: of the columns, [*batch p].
    spread: standard deviation around the line, of largest likelihood, [*batch].
    value: the log-likelihood there, [*batch].
  """

  coefficients: np.ndarray
  spread: np.ndarray
  value: np.ndarray


def log_probability(low: np.ndarray, high: np.ndarray) -> np.ndarray:
  """log(Phi(high) - Phi(low)), exact in both tails."""
  # Above 0 by symmetry, where differences of small numbers stay exact.
  flip = low > 0
  a, b = np.where(flip, -high, low), np.where(flip, -low, high)
  log_b = scipy.special.log_ndtr(b)
  with np.errstate(divide="ignore", invalid="ignore"):
    ratio = np.where(np.isneginf(a), -np.inf, scipy.special.log_ndtr(a) - log_b)
    return log_b + np.log(-np.expm1(np.minimum(ratio, -1e-300)))


def fit(bounds: Bounds, design: Float[np.ndarray, "*batch n p"]) -> Fit:
  """Fits numbers = design @ coefficients + normal noise, by Newton's method.

  In coefficients / spread and 1 / spread the log-likelihood is concave (Burridge, 1981).
  The spread has a least value far below the bounds' widths: what bounds allow to lie on
  the line exactly has no likeliest spread.
  """
  lower, upper = np.broadcast_arrays(*bounds)
  design = np.broadcast_to(design, (*lower.shape, design.shape[-1]))
  batch, p = lower.shape[:-1], design.shape[-1]
  closed_low, closed_high = np.isfinite(lower), np.isfinite(upper)
  # What stands in for each number at the start: 0 where nothing bounds it.
  low, high = np.where(closed_low, lower, upper), np.where(closed_high, upper, lower)
  used = closed_low | closed_high
  middle = (np.where(used, low, 0.0) + np.where(used, high, 0.0)) / 2
  weighted = design * used[..., None]
  normal = np.swapaxes(weighted, -1, -2) @ design + 1e-12 * np.eye(p)
  start = np.linalg.solve(normal, np.swapaxes(weighted, -1, -2) @ middle[..., None])
  line = (design @ start)[..., 0]
  y_low = np.where(closed_low, lower - line, 0.0)
  y_high = np.where(closed_high, upper - line, 0.0)
  residual = np.where(used, middle - line, 0.0)
  most = 1 / (LEAST_SPREAD * Bounds(lower, upper).narrowest)
  rms = np.sqrt(np.mean(residual**2, axis=-1))
  gamma = np.minimum(1 / np.maximum(rms, 20 / most), most)
  alpha = np.zeros((*batch, p))

  def ends(alpha: np.ndarray, gamma: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    at = (design @ alpha[..., None])[..., 0]
    a = np.where(closed_low, gamma[..., None] * y_low - at, -np.inf)
    b = np.where(closed_high, gamma[..., None] * y_high - at, np.inf)
    return a, b

  def total(alpha: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    return np.sum(log_probability(*ends(alpha, gamma)), axis=-1)

  value = total(alpha, gamma)
  damping = np.full(batch, 1e-3)
  columns_low = np.concatenate([-design, y_low[..., None]], axis=-1)
  columns_high = np.concatenate([-design, y_high[..., None]], axis=-1)
  for _ in range(_ITERATIONS):
    a, b = ends(alpha, gamma)
    log_p = log_probability(a, b)
    q_low, q_high = (density_ratio(z, log_p) for z in (a, b))
    a, b = np.where(closed_low, a, 0.0), np.where(closed_high, b, 0.0)
    slope = _weighted(columns_high, q_high) - _weighted(columns_low, q_low)
    curve = _outer(columns_high, columns_high, b * q_high + q_high**2)
    curve += _outer(columns_low, columns_low, q_low**2 - a * q_low)
    cross = _outer(columns_high, columns_low, q_high * q_low)
    curve -= cross + np.swapaxes(cross, -1, -2)
    # At the least spread the other coefficients alone move.
    held = (gamma >= most) & (slope[..., -1] > 0)
    slope[..., -1] = np.where(held, 0.0, slope[..., -1])
    free = np.concatenate([np.ones((*batch, p)), ~held[..., None]], axis=-1)
    curve = curve * free[..., :, None] * free[..., None, :]
    scale = np.einsum("...ii->...i", curve) + 1e-9
    damped = curve + np.eye(p + 1) * ((damping[..., None] * scale)[..., None, :] + 1e-12)
    damped += np.eye(p + 1) * (1 - free)[..., None, :]
    step = np.linalg.solve(damped, slope[..., None])[..., 0]
    gain = np.sum(step * slope, axis=-1)
    if np.all(gain < 1e-10):
      break
    tried = np.clip(gamma + step[..., -1], gamma / 4, np.minimum(4 * gamma, most))
    moved = alpha + step[..., :p]
    new = total(moved, tried)
    better = new >= value
    alpha = np.where(better[..., None], moved, alpha)
    gamma, value = np.where(better, tried, gamma), np.where(better, new, value)
    damping = np.where(better, damping / 10, damping * 10)
    if np.all(damping > 1e12):
      break
  return Fit(start[..., 0] + alpha / gamma[..., None], 1 / gamma, value)


def density_ratio(z: np.ndarray, log_p: np.ndarray) -> np.ndarray:
  """phi(z) / P, 0 where z is infinite."""
  finite = np.where(np.isfinite(z), z, 0.0)
  log_density = -(finite**2) / 2 - 0.5 * np.log(2 * np.pi)
  return np.where(np.isfinite(z), np.exp(np.minimum(log_density - log_p, 300.0)), 0.0)


def _weighted(columns: np.ndarray, weights: np.ndarray) -> np.ndarray:
  return np.einsum("...np,...n->...p", columns, weights)


def _outer(one: np.ndarray, other: np.ndarray, weights: np.ndarray) -> np.ndarray:
  return np.swapaxes(one * weights[..., None], -1, -2) @ other


def margin(observed: int | np.ndarray, coefficients: int) -> np.ndarray:
  """Returns how far the log-likelihood may fall within an interval.

  Args:
    observed: N, numbers with two bounds.
    coefficients: of the line.
  """
  count = np.maximum(observed, 1)
  freedom = np.maximum(count - coefficients, 1)
  t = scipy.stats.t.ppf((1 + CONFIDENCE) / 2, freedom)
  return count / 2 * np.log1p(t**2 / freedom)


def coefficient_interval(
  bounds: Bounds,
  design: Float[np.ndarray, "*batch n p"],
  column: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Returns a coefficient with its 95% interval: (estimate, low, high), [*batch] each.

  Args:
    bounds: of n numbers.
    design: p columns.
    column: which coefficient.

  Returns:
    The interval is NaN where at most p numbers have two bounds: they tell of no spread.
  """
  best = fit(bounds, design)
  x, others = design[..., column], np.delete(design, column, axis=-1)
  count = np.sum(bounds.informative, axis=-1)
  limit = best.value - margin(count, design.shape[-1])
  estimate = best.coefficients[..., column]

  def excess(values: np.ndarray) -> np.ndarray:
    own = fit(bounds.shifted(values[..., None] * x), others)
    return own.value - limit

  size = np.sqrt(np.sum((x - np.mean(x, axis=-1, keepdims=True)) ** 2, axis=-1))
  size = np.where(size > 0, size, np.sqrt(np.sum(x**2, axis=-1)))
  step = (best.spread + bounds.narrowest) / size
  known = count > design.shape[-1]
  low, high = (
    np.where(known, end_of(excess, estimate, sign * step), np.nan) for sign in (-1.0, 1.0)
  )
  return estimate, low, high


def contrasts(bounds: Bounds, weights: Float[np.ndarray, " n"]) -> Bounds:
  """Bounds of the weighted sums over the last axis, [*batch].

  Args:
    bounds: of n numbers, [*batch n].
    weights: of each; a number whose weight is 0 does not count.
  """
  used = np.abs(weights) > 1e-12 * np.max(np.abs(weights))
  w = weights[used]
  ends = np.stack([bounds.lower[..., used] * w, bounds.upper[..., used] * w])
  return Bounds(np.sum(ends.min(axis=0), axis=-1), np.sum(ends.max(axis=0), axis=-1))


def end_of(
  excess: Callable[[np.ndarray], np.ndarray], start: np.ndarray, step: np.ndarray
) -> np.ndarray:
  """Returns where a function that falls from `start` on passes 0.

  Args:
    excess: the function, at least 0 at `start`.
    start: from where.
    step: which way, and how far at first.

  Returns:
    Infinite where it does not pass 0.
  """
  inside, outside, tolerance = start, start + step, 1e-4 * np.abs(step)
  found = excess(outside) < 0
  for _ in range(_DOUBLINGS):
    if np.all(found):
      break
    inside = np.where(found, inside, outside)
    step = np.where(found, step, 2 * step)
    outside = np.where(found, outside, outside + step)
    found = found | (excess(outside) < 0)
  for _ in range(_BISECTIONS):
    middle = (inside + outside) / 2
    within = excess(middle) >= 0
    inside, outside = np.where(within, middle, inside), np.where(within, outside, middle)
    if np.all(np.abs(outside - inside) <= tolerance):
      break
  return np.where(found, (inside + outside) / 2, np.sign(step) * np.inf)
