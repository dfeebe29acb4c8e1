"""Trials of a sweep in two rounds: a few of each rate, then more where it is worth it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from experiments.running import Rows
from sepfx import specifications
from sepfx.ensembles import Cell, trial_name

# Trials of each rate in the first round.
PILOTS = 2
# A rate is given up if no pilot trial reached within so many times the least mean n.
FACTOR = 5.0
_RATE = "learning_rate"


class Pilots:
  """A `running.Search` over cells that differ in their learning rate alone.

  The first round has two trials of each. The second has the others of those rates of
  which a pilot trial reached some threshold within five times the least mean n of all
  rates there; a trial that did not reach counts with its budget in a mean. The choices
  follow from the rows alone: a run that was interrupted makes them again.
  """

  def __init__(self, cells: Sequence[Cell], num_trials: int):
    """Chooses nothing yet.

    Args:
      cells: on fresh samples.
      num_trials: of each cell that is not given up.
    """
    self._cells = cells
    self._each = num_trials
    self._rounds = iter((self._pilots, self._others))
    self.num_trials = num_trials * len(cells)

  def __call__(self, ended: Mapping[str, Rows]) -> list[str]:
    choose = next(self._rounds, None)
    return choose(ended) if choose else []

  def _pilots(self, ended: Mapping[str, Rows]) -> list[str]:
    number = min(PILOTS, self._each)
    return [trial_name(cell, k) for cell in self._cells for k in range(number)]

  def _others(self, ended: Mapping[str, Rows]) -> list[str]:
    if self._each <= PILOTS:
      return []
    groups: dict[tuple, list[Cell]] = {}
    for cell in self._cells:
      own = {k: v for k, v in cell.coordinates.items() if k != _RATE}
      key = tuple(map(specifications.canonical, own.values()))
      groups.setdefault(key, []).append(cell)
    chosen: set[str] = set()
    for cells in groups.values():
      pilots = [ended[trial_name(cell, k)] for cell in cells for k in range(PILOTS)]
      budget = cells[0].trial.protocol.budget
      n = np.array([[_n(row) for row in rows] for rows in pilots])
      n = n.reshape(len(cells), PILOTS, -1)  # [rate pilot threshold]
      means = np.mean(np.minimum(n, budget), axis=1)
      near = np.min(n, axis=1) <= FACTOR * np.min(means, axis=0)
      near &= np.isfinite(np.min(n, axis=1))
      chosen.update(
        cell.name for cell, kept in zip(cells, np.any(near, axis=1), strict=True) if kept
      )
    others = [
      trial_name(cell, k)
      for cell in self._cells
      if cell.name in chosen
      for k in range(PILOTS, self._each)
    ]
    self.num_trials = PILOTS * len(self._cells) + len(others)
    return others


def _n(row: Mapping) -> float:
  return row["samples"] if row["outcome"] == "reached" else np.inf
