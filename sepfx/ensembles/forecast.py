"""What trials will take, judged by those that have ended: steps, or seconds per step."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

# Either grows like a power of each of the cell's numbers. What is expected of the powers
# of others than the length before anything has ended, how far from it they may be, and
# how far one series may be from the others.
_OTHER_POWER = 0.3
_POWER_SPREAD = 0.5
_SERIES_SPREAD = 0.5
# Spread of the logs over the trials of one cell.
_TRIAL_SPREAD = 0.3
# Spread of a series' level: so large that it takes nothing from what is measured.
_LEVEL_SPREAD = 30.0
# Beyond so many trials in a lane the end of the schedule does not matter.
_TRIALS_IN_LANE = 50


class Forecast:
  """Predicts a positive quantity of trials from that of trials that have ended.

  Its log = a level of each series + powers times logs of numbers, by ridge regression:
  powers that all series share, and each one's own difference from them. Cells of one
  series differ in positive numbers alone: those of one model, say.
  """

  def __init__(self, cells: Mapping[str, Mapping[str, Any]], of_length: float = 1.0):
    """Has seen nothing.

    Args:
      cells: coordinates of each cell by its name.
      of_length: the power of the length that is expected.
    """
    every = [coordinates.items() for coordinates in cells.values()]
    numbers = {name for items in every for name, _ in items} - {
      name for items in every for name, value in items if not _is_positive(value)
    }
    self._names = sorted(numbers)
    self._series: dict[str, tuple] = {}
    self._features: dict[str, np.ndarray] = {}
    for cell, own in cells.items():
      rest = tuple((name, own[name]) for name in own if name not in numbers)
      self._series[cell] = rest
      self._features[cell] = np.log([own.get(name, 1) for name in self._names])
    self._places = {
      rest: k for k, rest in enumerate(dict.fromkeys(self._series.values()))
    }
    powers = [of_length if name == "length" else _OTHER_POWER for name in self._names]
    levels, number = len(self._places), len(powers)
    expected = np.concatenate([np.zeros(levels), powers, np.zeros(levels * number)])
    spreads = [_LEVEL_SPREAD] * levels + [_POWER_SPREAD] * number
    spreads += [_SERIES_SPREAD] * (levels * number)
    self._gram = np.diag(np.square(_TRIAL_SPREAD / np.array(spreads)))
    self._moments = self._gram @ expected
    self._own: dict[str, list[float]] = {}
    self._seen: set[tuple] = set()

  def ended(self, cell: str, value: float) -> None:
    """A trial of this cell has taken so much."""
    self._own.setdefault(cell, []).append(value)
    self._seen.add(self._series[cell])
    row = self._row(cell)
    self._gram += np.outer(row, row)
    self._moments += math.log(max(value, 1e-9)) * row

  def predictions(self, cells: Iterable[str]) -> dict[str, float | None]:
    """What a trial of each of these cells is to take; None for an unseen series."""
    coefficients = np.linalg.solve(self._gram, self._moments)
    found: dict[str, float | None] = {}
    for cell in cells:
      if cell in self._own:
        found[cell] = float(np.mean(self._own[cell]))
      elif self._series[cell] in self._seen:
        found[cell] = math.exp(min(float(self._row(cell) @ coefficients), 30.0))
      else:
        found[cell] = None
    return found

  def _row(self, cell: str) -> np.ndarray:
    levels = np.zeros(len(self._places))
    levels[self._places[self._series[cell]]] = 1.0
    features = self._features[cell]
    return np.concatenate([levels, features, np.outer(levels, features).ravel()])


def makespan(seconds: Sequence[float], lanes: float) -> float:
  """Seconds until the last of some trials ends: a lane that is free takes the next.

  Args:
    seconds: of each trial, in order.
    lanes: how many run at once.
  """
  if not seconds:
    return 0.0
  lanes = min(max(lanes, 1.0), len(seconds))
  if len(seconds) > _TRIALS_IN_LANE * lanes:
    return sum(seconds) / lanes
  ends = [0.0] * round(lanes)
  for own in seconds:
    heapq.heapreplace(ends, ends[0] + own)
  return max(ends) * round(lanes) / lanes


def _is_positive(value: Any) -> bool:
  return isinstance(value, int | float) and not isinstance(value, bool) and value > 0
