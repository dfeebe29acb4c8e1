"""Searches: what chooses among the trials of a run round by round, by how others ended.

For critical sample sizes, and for the best of several learning rates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sepfx import specifications
from sepfx.ensembles import Cell, trial_name
from sepfx.statistics import success
from sepfx.statistics.best import PILOTS, worth_more_trials
from sepfx.studies.requests import Rows

# Rounds of an adaptive search.
_ROUNDS = 16
_SIZE = "sample_size"
_RATE = "learning_rate"


class Adaptive:
  """A `requests.Search`: trials by how earlier ones that differ in m alone ended.

  The choices follow from the outcomes alone: a run that was interrupted makes them again.
  """

  def __init__(self, cells: Sequence[Cell], num_trials: int):
    """Chooses nothing yet.

    Args:
      cells: on fixed samples.
      num_trials: of all cells together that differ in their sample size alone.
    """
    self._each = num_trials
    self._groups = _grouped(cells, but=_SIZE)
    self._chosen: list[list[tuple[int, str]]] = [[] for _ in self._groups]
    self.num_trials = num_trials * len(self._groups)

  @property
  def groups(self) -> list[list[Cell]]:
    """Cells that differ in their sample size alone."""
    return self._groups

  def __call__(self, ended: Mapping[str, Rows]) -> list[str]:
    names = []
    for group, before in zip(self._groups, self._chosen, strict=True):
      cells = {cell.coordinates[_SIZE]: cell for cell in group}
      counts = success.count(
        np.array([size for size, _ in before], int),
        np.array([_reached(ended[name]) for _, name in before], bool),
      )
      number = min(-(-self._each // _ROUNDS), self._each - len(before))
      for size in success.choose_sizes(counts, np.array(sorted(cells)), number).tolist():
        trial = sum(earlier == size for earlier, _ in before)
        before.append((size, trial_name(cells[size], trial)))
        names.append(before[-1][1])
    return names


def _reached(rows: Rows) -> bool:
  return all(row["outcome"] == "reached" for row in rows)


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
    self._groups = _grouped(cells, but=_RATE)
    self._rounds = iter((self._pilots, self._others))
    self.num_trials = num_trials * len(cells)

  @property
  def groups(self) -> list[list[Cell]]:
    """Cells that differ in their learning rate alone."""
    return self._groups

  def __call__(self, ended: Mapping[str, Rows]) -> list[str]:
    choose = next(self._rounds, None)
    return choose(ended) if choose else []

  def _pilots(self, ended: Mapping[str, Rows]) -> list[str]:
    number = min(PILOTS, self._each)
    return [trial_name(cell, k) for cell in self._cells for k in range(number)]

  def _others(self, ended: Mapping[str, Rows]) -> list[str]:
    if self._each <= PILOTS:
      return []
    chosen: set[str] = set()
    for cells in self._groups:
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


def _grouped(cells: Sequence[Cell], but: str) -> list[list[Cell]]:
  """Cells that differ in one coordinate alone.

  Args:
    cells: all.
    but: the name of the coordinate.
  """
  groups: dict[tuple, list[Cell]] = {}
  for cell in cells:
    own = {k: v for k, v in cell.coordinates.items() if k != but}
    key = tuple(map(specifications.canonical, own.values()))
    groups.setdefault(key, []).append(cell)
  return list(groups.values())
