"""n over n of cells that differ in one thing: in the model, or in one setting.

The ratio is that of geometric means. Trials of two cells that share their keys are
compared trial by trial. All others are independent, and their log n have a spread of its
own in each cell.

A trial that did not reach the threshold stands at its budget, and a cell all of whose
trials reached it at their first check stands at that check. The ratio is then a bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy  # loads its parts where they are used
from jaxtyping import Bool, Real

from sepfx.statistics.bounded import CONFIDENCE, Bounds, coefficient_interval
from sepfx.statistics.passages import Checks, at_first_check, bounds_of, padded
from sepfx.statistics.scaling import paired_ratio

AT_LEAST, AT_MOST = "at least", "at most"
# Why there is no ratio of two cells.
BOTH_BOUNDED = "both are bounds from the same side, or no trials are paired"


class Ratio(NamedTuple):
  """How many times as many samples one cell needs as another.

  Attributes:
    ratio: of the geometric means of n.
    low, high: its 95% interval; NaN where it has no such end.
    bound: "at least" or "at most" where it is a bound, else "".
    pairs: of trials, where they share their keys; None where they do not.
  """

  ratio: float
  low: float
  high: float
  bound: str
  pairs: int | None


class Cells(NamedTuple):
  """Means of log n of K cells, [K] each; of the trials, [n] each.

  Attributes:
    log: the mean of log n.
    low, high: its 95% interval; NaN for a single trial.
    freedom: degrees of freedom of that interval.
    above: whether n is above what stands here: some trials did not reach the threshold.
    below: whether it is below: all of them reached it at their first check.
    bounds: of log n, of each trial as it stands here.
    cell: of each trial.
  """

  log: np.ndarray
  low: np.ndarray
  high: np.ndarray
  freedom: np.ndarray
  above: np.ndarray
  below: np.ndarray
  bounds: Bounds
  cell: np.ndarray


def cells_of(
  samples: Real[np.ndarray, " n"],
  reached: Bool[np.ndarray, " n"],
  checks: Checks,
  cell: np.ndarray,
) -> Cells:
  """Returns what the trials say of each cell.

  Args:
    samples, reached, checks: as `sepfx.statistics.passages.bounds_of` takes them.
    cell: of each trial, from 0 to K - 1.
  """
  first = at_first_check(samples, reached, checks, cell)
  stands = np.where(reached, samples, checks.budget)
  bounds = bounds_of(stands, np.ones_like(reached), checks)
  table, count = padded(bounds, cell), np.bincount(cell)
  log, low, high = coefficient_interval(table, np.ones((*table.lower.shape, 1)), 0)
  above, below = (np.bincount(cell, own) > 0 for own in (~reached, first))
  # No trial of such a cell tells how far below the check its n is.
  bounds = Bounds(np.where(first, bounds.upper, bounds.lower), bounds.upper)
  check = np.bincount(cell, bounds.upper) / count
  log, low, high = (np.where(below, check, own) for own in (log, low, high))
  freedom = np.maximum(count - 1, 1)
  return Cells(log, low, high, freedom, above, below, bounds, cell)


def ratio_of(
  cells: Cells, one: int, other: int, trial: np.ndarray | None = None
) -> Ratio | None:
  """Compares two cells: n of the one over n of the other.

  Args:
    cells: of all trials.
    one, other: which.
    trial: names trials that share their keys with one another, [n]; None where no trial
      of the one shares its keys with one of the other.

  Returns:
    None where the n of both are bounded from the same side, or no trials are paired.
  """
  higher = cells.above[one] or cells.below[other]
  lower = cells.below[one] or cells.above[other]
  if higher and lower:
    return None
  bound = AT_LEAST if higher else AT_MOST if lower else ""
  if trial is None:
    ratio, low, high = _unpaired(cells, one, other)
    pairs = None
  else:
    found = _paired(cells, one, other, trial)
    if found is None:
      return None
    ratio, low, high, pairs = found
  return Ratio(
    ratio,
    np.nan if bound == AT_MOST else low,
    np.nan if bound == AT_LEAST else high,
    bound,
    pairs,
  )


def _unpaired(cells: Cells, one: int, other: int) -> tuple[float, float, float]:
  """Welch's interval; each end from the ends of both cells' own that it depends on."""
  log = cells.log[one] - cells.log[other]
  freedom = cells.freedom[[one, other]]
  quantile = scipy.stats.t.ppf((1 + CONFIDENCE) / 2, freedom)
  below, above = cells.log - cells.low, cells.high - cells.log
  ends = []
  for sign, own in ((-1, (below[one], above[other])), (1, (above[one], below[other]))):
    error = np.array(own) / quantile
    variance = np.sum(error**2)
    together = variance**2 / max(np.sum(error**4 / freedom), 1e-300)
    together = max(together, float(np.min(freedom)))
    half = scipy.stats.t.ppf((1 + CONFIDENCE) / 2, together) * np.sqrt(variance)
    ends.append(np.exp(log + sign * half))
  low, high = ends
  return float(np.exp(log)), float(low), float(high)


def _paired(
  cells: Cells, one: int, other: int, trial: np.ndarray
) -> tuple[float, float, float, int] | None:
  """Of trials that share their keys, where both cells have them."""
  rows = [np.flatnonzero(cells.cell == own) for own in (one, other)]
  names = [trial[own] for own in rows]
  shared, *places = np.intersect1d(names[0], names[1], return_indices=True)
  if not len(shared):
    return None
  mine, theirs = (
    Bounds(*(side[own[place]] for side in cells.bounds))
    for own, place in zip(rows, places, strict=True)
  )
  found = paired_ratio(mine, theirs)
  return None if found is None else (found.ratio, found.low, found.high, found.pairs)


def comparisons(
  points: Sequence[dict[str, Any]], but: Sequence[str] = ()
) -> list[tuple[int, int, str]]:
  """Which cells are compared: those whose coordinates differ in one thing alone.

  Args:
    points: coordinates of each cell, by name: task, model, length and axes.
    but: axes that tell no cells apart here.

  Returns:
    Triples (one, other, name): each model over each before it, and each value of an axis
    over the first.
  """
  found = []
  names = [name for name in points[0] if name not in ("task", "length", *but)]
  for name in names:
    groups: dict[tuple, list[int]] = {}
    for k, point in enumerate(points):
      rest = tuple(v for n, v in point.items() if n != name and n not in but)
      groups.setdefault(rest, []).append(k)
    for first, *others in groups.values():
      for k, one in enumerate(others):
        before = [first, *others[:k]] if name == "model" else [first]
        found += [(one, other, name) for other in before]
  return found
