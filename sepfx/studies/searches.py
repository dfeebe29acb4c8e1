"""Searches: what chooses among the trials of a run round by round, by how others ended.

For critical sample sizes, and for the best of several settings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from sepfx import specifications
from sepfx.ensembles import Cell, trial_name
from sepfx.errors import require
from sepfx.statistics import success
from sepfx.statistics.best import (
  FACTOR,
  NEAR,
  PILOTS,
  pilot_means,
  worth_more_trials,
)
from sepfx.studies.requests import Rows
from sepfx.studies.settings import Chosen

# Rounds of an adaptive search.
_ROUNDS = 16
_SIZE = "sample_size"
_RATE = "learning_rate"
_BATCH = "batch_size"
# Where batch sizes are chosen from: the one at which all rates are tried, which is the
# published one; pilot trials of a model at a length; and rates tried at another size.
START = 64
MOST_PILOTS = 30
_AROUND = 3


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
    self._groups = _grouped(cells, but=(_SIZE,))
    self._chosen: list[list[tuple[int, str]]] = [[] for _ in self._groups]
    self.num_trials, self.is_open = num_trials * len(self._groups), False

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


def adaptive(cells: Sequence[Cell], chosen: Chosen) -> Adaptive | None:
  """What a setting `search` asks for: `Adaptive`, or all trials.

  For studies with settings `search` and `num_trials`.
  """
  if chosen.one("search") == "grid":
    return None
  return Adaptive(cells, chosen.one("num_trials"))


def check_search(chosen: Chosen) -> None:
  """Raises `InvalidSetting` for a setting `search` that is none."""
  search, known = chosen.one("search"), ("grid", "adaptive")
  require(search in known, "search", search, " or ".join(known))


class Pilots:
  """A `requests.Search` over cells that differ in some axes alone.

  Pilot trials of settings of these axes come first, as `next_pilots` names them, round by
  round. Then come the others of those settings that are
  `sepfx.statistics.best.worth_more_trials` at some threshold. The choices follow from the
  rows alone: a run that was interrupted makes them again.
  """

  def __init__(
    self,
    cells: Sequence[Cell],
    num_trials: int,
    axes: Sequence[str],
    *,
    every_other: bool = False,
  ):
    """Chooses nothing yet.

    Args:
      cells: on fresh samples.
      num_trials: of each cell that is not given up.
      axes: of whose values the best are chosen.
      every_other: see `next_pilots`.
    """
    self.groups = _grouped(cells, but=axes)
    self._searches = [
      _Piloted(group, num_trials, axes, every_other) for group in self.groups
    ]

  @property
  def num_trials(self) -> int:
    """How many there will be at most, until some are given up."""
    return sum(search.num_trials for search in self._searches)

  @property
  def is_open(self) -> bool:
    """Whether some pilot trials are still to be chosen."""
    return any(search.is_open for search in self._searches)

  def __call__(self, ended: Mapping[str, Rows]) -> list[str]:
    return [name for search in self._searches for name in search(ended)]


class _Piloted:
  """The same of one group: cells that differ in the axes alone."""

  def __init__(
    self,
    cells: Sequence[Cell],
    num_trials: int,
    axes: Sequence[str],
    every_other: bool,
  ):
    self._cells, self._each = cells, num_trials
    self._every_other = every_other
    self._settings = [{name: cell.coordinates[name] for name in axes} for cell in cells]
    self._factor = FACTOR if len(axes) == 1 else NEAR
    self._chosen: list[tuple[int, int]] = []  # cell and index of each pilot trial
    self.is_open = True
    several = len({_size(setting) for setting in self._settings}) > 1
    # At most so many settings have a pilot trial, and each of these may have all trials.
    most = MOST_PILOTS if several else len(cells)
    self.num_trials = num_trials * min(most, len(cells))

  def __call__(self, ended: Mapping[str, Rows]) -> list[str]:
    if not self.is_open:
      return []
    own = {pilot: ended[self._name(*pilot)] for pilot in self._chosen}
    thresholds = len(next(iter(own.values()))) if own else 1
    n = np.full((len(self._cells), min(PILOTS, self._each), thresholds), np.nan)
    for (cell, k), rows in own.items():
      n[cell, k] = [_n(row) for row in rows]
    budget = np.array([c.trial.protocol.budget for c in self._cells])[:, None, None]
    pilots = next_pilots(self._settings, n, budget, every_other=self._every_other)
    if not pilots:
      self.is_open = False
      kept = np.any(worth_more_trials(n, budget, self._factor), axis=1)
      later = range(PILOTS, self._each)
      pilots = [(int(cell), k) for cell in np.flatnonzero(kept) for k in later]
      self.num_trials = len(self._chosen) + len(pilots)
    self._chosen += pilots
    return [self._name(*pilot) for pilot in pilots]

  def _name(self, cell: int, k: int) -> str:
    return trial_name(self._cells[cell], k)


def next_pilots(
  settings: Sequence[Mapping[str, Any]],
  n: Float[np.ndarray, "K pilots thresholds"],
  budget: Float[np.ndarray, "K 1 1"],
  *,
  every_other: bool = False,
) -> list[tuple[int, int]]:
  """Returns setting and index of the pilot trials to run next, none when enough were.

  Where all settings have one batch size, all of them at once. Where batch sizes are
  chosen from, first one of each setting at the size next to 64; then the second of those
  that came within `FACTOR` times the least; then one of each setting around the best
  (`_around`), and so on. When nothing is left around the best, what is around the next
  best follows, down to those that need `NEAR` times as much. Where none reached at any
  threshold, all settings of the next size follow. So it ends where the best is enclosed,
  or before there would be more than `MOST_PILOTS`.

  With `every_other` the second way is taken for one batch size, too, and it begins with
  every other learning rate, from the second least on. The others follow where none of
  these reached.

  Args:
    settings: a value of each axis that is chosen from, K of them.
    n: of one pilot trial or two; infinite where it did not reach, NaN where it was not
      run.
    budget: of each setting's trials.
    every_other: see above.
  """
  sizes = sorted({_size(setting) for setting in settings})
  pilots, run = n.shape[1], ~np.isnan(n[..., 0])
  at_once = len(sizes) == 1 and not every_other
  if not np.any(run):
    first = _of_next_size(settings, [])
    if every_other:
      rates = sorted({_rate(setting) for setting in settings})
      first = [k for k in first if _rate(settings[k]) in (rates[1::2] or rates)]
    return [(k, i) for k in first for i in range(pilots if at_once else 1)]
  if at_once:
    return []
  second = np.any(worth_more_trials(n, budget, FACTOR), axis=1) & ~run[:, -1]
  if np.any(second):
    return [(k, pilots - 1) for k in np.flatnonzero(second).tolist()]
  taken = np.flatnonzero(run[:, 0]).tolist()
  room = max(0, MOST_PILOTS - int(np.sum(run)))
  if not np.any(np.isfinite(n)):
    tried = {_size(settings[k]) for k in taken}
    left = [k for k, own in enumerate(settings) if _size(own) in tried and k not in taken]
    return [(k, 0) for k in (left or _of_next_size(settings, taken))[:room]]
  # On a logarithmic scale one slow trial hides a good setting less.
  typical = np.exp(pilot_means(np.log(n), np.log(budget)))
  chosen: list[int] = []
  for level in np.flatnonzero(np.any(np.isfinite(n), axis=(0, 1))):
    own = typical[:, level]
    good = np.argsort(own)[: int(np.sum(own <= NEAR * np.nanmin(own)))].tolist()
    sets = (_around(settings, k, [*taken, *chosen]) for k in good)
    chosen += next((around for around in sets if around), [])
  return [(k, 0) for k in chosen[: room // pilots]]


def _of_next_size(
  settings: Sequence[Mapping[str, Any]], taken: Sequence[int]
) -> list[int]:
  """All settings of the batch size next to 64 of which none is taken, smaller ones first.

  Small batches take more steps: what no trial reached at 64 may be reached there.
  """
  sizes = {_size(setting) for setting in settings} - {_size(settings[k]) for k in taken}
  if not sizes:
    return []

  def place(size: float) -> tuple:
    distance = abs(math.log(size / START))
    return (size > START, distance) if taken else (distance, size)

  first = min(sizes, key=place)
  return [k for k, setting in enumerate(settings) if _size(setting) == first]


def _around(
  settings: Sequence[Mapping[str, Any]], best: int, taken: Sequence[int]
) -> list[int]:
  """The settings around one, of which the first kind that has some that are not taken.

  They are the learning rates next to its own; at the next smaller batch size the three
  rates next to what it predicts there; the same at the next larger one.

  With Adam n x rate / batch is the same for all rates that are small enough, and the
  noise of a gradient allows a rate that grows like the square root of the batch size
  (Malladi et al., 2022): this is the rate predicted.
  """
  size, rate = _size(settings[best]), _rate(settings[best])
  others = _others(settings[best])
  by_size: dict[float, list[int]] = {}
  for k, setting in enumerate(settings):
    if _others(setting) == others:
      by_size.setdefault(_size(setting), []).append(k)
  here = sorted(by_size[size], key=lambda k: _rate(settings[k]))
  at = here.index(best)
  sets = [here[max(at - 1, 0) : at + 2]]
  smaller, larger = [s for s in by_size if s < size], [s for s in by_size if s > size]
  for other in (*sorted(smaller)[-1:], *sorted(larger)[:1]):
    predicted = math.log(rate * math.sqrt(other / size))
    near = sorted(
      by_size[other], key=lambda k: abs(math.log(_rate(settings[k])) - predicted)
    )
    sets.append(near[:_AROUND])
  left = ([k for k in own if k not in taken] for own in sets)
  return next((own for own in left if own), [])


def _size(setting: Mapping[str, Any]) -> float:
  return setting.get(_BATCH, START)


def _rate(setting: Mapping[str, Any]) -> float:
  return setting.get(_RATE, 1.0)


def _others(setting: Mapping[str, Any]) -> dict[str, Any]:
  return {name: v for name, v in setting.items() if name not in (_BATCH, _RATE)}


def _n(row: Mapping) -> float:
  return row["samples"] if row["outcome"] == "reached" else np.inf


def _grouped(cells: Sequence[Cell], but: Sequence[str]) -> list[list[Cell]]:
  """Cells that differ in some coordinates alone.

  Args:
    cells: all.
    but: the names of these coordinates.
  """
  groups: dict[tuple, list[Cell]] = {}
  for cell in cells:
    own = {k: v for k, v in cell.coordinates.items() if k not in but}
    key = tuple(map(specifications.canonical, own.values()))
    groups.setdefault(key, []).append(cell)
  return list(groups.values())
