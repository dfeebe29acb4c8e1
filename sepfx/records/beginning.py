"""A run begins in a directory, or is taken up there: what config.json says then."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax

from sepfx.ensembles.cells import Cell, numbers_of_parameters
from sepfx.ensembles.results import columns
from sepfx.errors import InvalidSetting, require
from sepfx.records import own_code
from sepfx.records.checkpoints import cells_in_progress
from sepfx.records.run_directory import SUMMARY, RunDirectory
from sepfx.records.stored_trials import budget_of
from sepfx.records.trial_files import TrialFiles
from sepfx.training import Probe


def begun(
  directory: RunDirectory,
  settings: Mapping[str, Any],
  cells: Sequence[Cell],
  *,
  added: Mapping[str, Any] | None = None,
  probed: Mapping[str, Collection[str]] | None = None,
  keep_weights: bool = False,
  probe: Probe | None = None,
  notes: Mapping[str, Mapping[str, Any]] | None = None,
  devices: Sequence[jax.Device] | None = None,
  asked: Mapping[str, int | None] | None = None,
  order: Sequence[str] = (),
  named: Mapping[str, Any] | None = None,
) -> TrialFiles:
  """The records in a directory, which then says which run it is of.

  Args:
    directory: where; open.
    settings: of all that will stand there, for config.json. It also says by what each
      model is told whether it learns ("modes"), where there is anything to say.
    cells: all that may run, in the order of the records.
    added, probed, keep_weights: as in `TrialFiles`.
    probe: what is measured of each trial when it has ended.
    notes: for `Records.notes`.
    devices: where trials run; None for all of the default platform.
    asked: how many trials of a cell there are to be, by the cell's name, None where a
      search chooses them; None if nothing is to be said of trials. What earlier calls
      asked of other cells stays where something of those is recorded or in progress.
    order: names of all cells that may stand there, as in `TrialFiles`. What is known of
      those that do not run stays.
    named: settings whose texts may name code that runs; None for `settings`.

  Raises:
    InvalidSetting: as `TrialFiles`; for cells whose names differ in case alone; if what
      stands there ran other code of a user's own; or if trials of a model stand there
      that was told in another way whether it learns.
  """
  code = own_code.checked(directory, named or settings, cells, probe)
  _check_case(directory, cells, order)
  types = {name: kind.__name__ for name, kind in columns(cells).items()}
  names = list(order or (cell.name for cell in cells))
  stored = directory.stored or {}
  left_out = [name for name in names if name not in {cell.name for cell in cells}]

  def with_left_out(entry: str, own: Mapping[str, Any]) -> dict[str, Any]:
    before = stored.get(entry, {})
    every = {**{name: before[name] for name in left_out if name in before}, **own}
    return {name: every[name] for name in names if name in every}

  parameters = numbers_of_parameters({cell.name: cell for cell in cells})
  own = {cell.coordinates["model"]: cell.trial.mode for cell in cells}
  told = {**(stored.get("modes", {}) if left_out else {}), **own}
  modes = {"modes": {model: mode for model, mode in told.items() if mode}}

  def begin(recorded: Mapping[str, set[int]]) -> None:
    trials = {}
    before = (directory.stored or {}).get("trials", {})
    waiting = cells_in_progress(directory.path)
    for name in names if asked is not None else ():
      own = recorded.get(name, set())
      is_there = bool(own) or name in waiting
      if name in (asked or {}):
        if (number := (asked or {})[name]) is not None:
          trials[name] = len(own | set(range(number)))
      elif name in before or not is_there:  # else a search chooses its trials
        trials[name] = max(len(own), before.get(name, 0) if is_there else 0)
    if any(count > len(recorded.get(name, ())) for name, count in trials.items()):
      directory.discard(SUMMARY)  # before config.json asks for what is not there
    of_cells = {
      "parameters": with_left_out("parameters", parameters),
      "notes": _with_notes(stored.get("notes", {}), notes or {}, left_out),
      "trials": trials,
      "budgets": with_left_out("budgets", {c.name: budget_of(c) for c in cells}),
      "code": code,
      **(modes if any(told.values()) else {}),
    }
    directory.begin(settings, types, of_cells, devices)

  is_new = directory.stored is None
  if directory.stored is not None:
    _check_modes(directory.stored, own)
  if is_new:  # first of all: a directory with records alone would be refused
    begin({})
  files = TrialFiles(
    directory,
    cells,
    order=order,
    added=added,
    probed=probed,
    keep_weights=keep_weights,
  )
  if not is_new:  # last: what is there has been given today's names by now
    begin(files.recorded)
  return files


def _with_notes(
  before: Mapping[str, Mapping[str, Any]],
  own: Mapping[str, Mapping[str, Any]],
  left_out: Sequence[str],
) -> dict[str, dict[str, Any]]:
  """Notes of cells, with what was noted of those that do not run."""
  return {
    name: {
      **{cell: value for cell, value in before.get(name, {}).items() if cell in left_out},
      **own.get(name, {}),
    }
    for name in (own if not left_out else {**before, **own})
  }


def _check_case(
  directory: RunDirectory, cells: Sequence[Cell], order: Sequence[str]
) -> None:
  """Refuses cells whose files would be one where letters' case does not count."""
  before = set((directory.stored or {}).get("parameters", ()))
  seen = {_plain(name): name for name in order if name in before}
  for cell in sorted(cells, key=lambda cell: cell.name not in before):
    other = seen.setdefault(_plain(cell.name), cell.name)
    takes = (
      f"names that differ in more than case from those of {other}: files are called "
    )
    takes += "after them, and some file systems take both for one"
    fits = other == cell.name or cell.name in before
    require(fits, "model", cell.name, takes)


def _plain(name: str) -> str:
  """A name as a file system may have it in which letters' case does not count."""
  return unicodedata.normalize("NFC", name.casefold())


def _check_modes(stored: Mapping[str, Any], own: Mapping[str, str]) -> None:
  """Refuses a model of a directory that is told in another way now whether it learns."""
  cells = stored.get("parameters", {})
  begun_there = {part for cell in cells for part in cell.split("/")}
  for model, mode in own.items():
    there = stored.get("modes", {}).get(model, "")
    if f"model={model}" in begun_there and there != mode:
      takes = f"another directory: there its calls were given {there or 'no flag'}, here "
      takes += f"{mode or 'no flag'} says whether it learns, so its trials are others"
      raise InvalidSetting("model", model, takes)
