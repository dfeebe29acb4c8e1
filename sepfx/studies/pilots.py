"""Trials of a sweep in two rounds: a few of each rate, then more where it is worth it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sepfx import specifications
from sepfx.ensembles import Cell, trial_name
from sepfx.statistics.best import PILOTS, worth_more_trials
from sepfx.studies.requests import Rows

_RATE = "learning_rate"


class Pilots:
  """A `requests.Search` over cells that differ in their learning rate alone.

  The first round has two trials of each. The second has the others of those rates that
  are `sepfx.statistics.best.worth_more_trials` at some threshold. The choices follow from
  the rows alone: a run that was interrupted makes them again.
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
      kept = np.any(worth_more_trials(n, budget), axis=1)
      chosen.update(cell.name for cell, own in zip(cells, kept, strict=True) if own)
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
