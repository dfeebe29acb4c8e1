"""Whether the files of a run agree.

Rows follow from the curve of their trial: both are written when it ends. So a row that
its curve contradicts was changed since. And all files speak of the trials that the run
has.
"""

from __future__ import annotations

import math
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from sepfx.ensembles.cells import Cell
from sepfx.ensembles.results import Records
from sepfx.records import weights
from sepfx.records.reading import refused
from sepfx.records.run_directory import PROBES, TRIALS
from sepfx.training import Trial


def contradiction(
  trial: Trial, curve: np.ndarray, outcomes: Sequence[tuple]
) -> tuple[int, str]:
  """Holds what rows say that a trial came to against its curve.

  Args:
    trial: what it was.
    curve: its own.
    outcomes: of each of its rows, `trial.columns`.

  Returns:
    Which row is contradicted and what the curve says; -1 and "" if none is.
  """
  progress, between = trial.progress
  names = curve.dtype.names or ()
  places = between * np.arange(1, len(curve) + 1)
  if (
    not len(curve)
    or not {progress, trial.watched} < set(names)
    or not np.array_equal(curve[progress], places)
  ):
    return 0, "nothing of this trial: it is of another form"
  every = trial.protocol.check_every
  diverged_at = 0
  for *_, count, outcome in outcomes:
    # A curve shows the check after it, and nothing more exact.
    if outcome == "diverged" and places[-1] - between < count <= places[-1]:
      diverged_at = count * every // between
  kinds = trial.columns.values()
  for k, (row, says) in enumerate(
    zip(outcomes, trial.outcomes(trial.report_of(curve, diverged_at)), strict=True)
  ):
    wanted = [kind(value) for kind, value in zip(kinds, says, strict=True)]
    if not all(map(_same, row, wanted)):
      return k, ",".join(map(str, wanted))
  return -1, ""


def check_rows(records: Records, cells: Sequence[Cell], directory: str) -> None:
  """Refuses a run a row of which its trial's curve contradicts.

  Args:
    records: of the run.
    cells: its grid.
    directory: where it is.

  Raises:
    InvalidSetting: it names the line.
  """
  trials = {cell.name: cell.trial for cell in cells}
  lines: dict[str, list[int]] = {}
  for line, row in enumerate(records.table):
    lines.setdefault(records.name_of(row), []).append(line)
  path = pathlib.Path(directory) / "trials.csv"
  for name, own in lines.items():
    trial = trials.get(records.cell_of(records.table[own[0]]))
    fields = [str(value) for value in records.table[own[0]].tolist()]
    if trial is None or len(own) != len(trial.protocol.thresholds):
      takes = "all rows of a trial of this run's grid, and no others"
      raise refused(path, takes, own[0] + 2, fields)
    outcomes = records.table[own][list(trial.columns)].tolist()
    wrong, says = contradiction(trial, records.all_curves[name], outcomes)
    if wrong >= 0:
      fields = [str(value) for value in records.table[own[wrong]].tolist()]
      takes = f"what follows from the trial's curve, which says {says}"
      raise refused(path, takes, own[wrong] + 2, fields)


def contradiction_alone(curve: np.ndarray, row: Mapping[str, Any]) -> str:
  """Says how a trial's curve contradicts a row, without the trial's settings.

  Args:
    curve: the trial's.
    row: by column.

  Returns:
    What the curve says; "" if it does not contradict the row.
  """
  names = curve.dtype.names or ("",)
  progress = names[0]
  if progress not in row or not len(curve):
    return "nothing of this trial: it is of another form"
  places, outcome = curve[progress].tolist(), row["outcome"]
  last, between = places[-1], places[0]
  errors = [curve[name] for name in ("loss", "test_error") if name in names]
  where: Sequence[int] = places
  if outcome == "censored":
    where = [last]
  elif outcome == "diverged":
    where = range(last - between + 1, last + 1)
  if errors and "threshold" in row:
    # At the check after a number that was not finite nothing is reached.
    losses = errors[0][:-1] if outcome == "diverged" else errors[0]
    below = losses < losses.dtype.type(row["threshold"])
    if below.any():
      first = places[int(below.argmax())]
      if outcome != "reached" or row[progress] != first:
        return f"{first},reached"
    elif outcome == "reached":
      return f"that it was not reached by {last}"
  if row[progress] not in where:
    return f"{where[0]}" if len(where) == 1 else f"from {where[0]} to {where[-1]}"
  if "threshold" not in row and errors and "accuracy" in row:
    best = 1 - float(np.min(errors[0], initial=np.inf, where=np.isfinite(errors[0])))
    if math.isfinite(best) and not _same(row["accuracy"], best):
      return f"accuracy {best}"
  return ""


def _same(one: Any, other: Any) -> bool:
  return bool(one == other or (one != one and other != other))


def wanted(config: Mapping[str, Any]) -> dict[str, int]:
  """How many trials each cell of a run is to have, by its name; empty if not known.

  Not known of a search, which chooses them as it goes, nor of a study's directories from
  before config.json said it.

  Args:
    config: the content of config.json.
  """
  if "trials" in config:
    return config["trials"]
  settings = config["settings"]
  every = settings.get("num_trials")
  if isinstance(settings.get("protocol"), Mapping) and isinstance(every, int):
    return dict.fromkeys(config.get("parameters", {}), every)  # of `sepfx.measure`
  return {}


def missing(
  config: Mapping[str, Any], recorded: Mapping[str, Collection[int]]
) -> int | None:
  """How many trials of a run have not ended; None if that is not known.

  Args:
    config: the content of config.json.
    recorded: indices of those that have, by the cell's name.
  """
  known = wanted(config)
  if not known or config.get("parameters", {}).keys() - known.keys():
    return None
  return sum(max(0, k - len(recorded.get(name, ()))) for name, k in known.items())


def check_files(records: Records, path: pathlib.Path, config: Mapping[str, Any]) -> None:
  """Holds rows, curves, probes, weights and settings of a complete run against another.

  What digests prove needs no such check.

  Args:
    records: what was read; each row follows from its trial's curve.
    path: the directory.
    config: the content of its config.json.

  Raises:
    InvalidSetting: it names the file.
    OSError: if weights cannot be read.
  """
  trials: dict[str, list[np.void]] = {}
  for row in records.table:
    trials.setdefault(records.name_of(row), []).append(row)
  if lost := sorted(set(records.all_curves) - set(trials)):
    takes = f"rows of all trials that have a curve: {_some(lost)} missing"
    raise refused(path / TRIALS, takes)
  _check_numbers(records, trials, path / TRIALS, config)
  _check_thresholds(records, trials, path / TRIALS, config["settings"])
  if records.probes is not None:
    probed = list(map(records.name_of, records.probes))
    if probed != list(trials):
      lost = sorted(set(trials) - set(probed))
      takes = f"one row for each trial of {TRIALS}, in the same order"
      raise refused(path / PROBES, takes + (f": {_some(lost)} missing" if lost else ""))
  _check_weights(records, trials, path, config)


def _check_numbers(
  records: Records,
  trials: Mapping[str, Sequence[np.void]],
  path: pathlib.Path,
  config: Mapping[str, Any],
) -> None:
  """Refuses cells that are none of the run's, and other trials than it asked for."""
  parameters, budgets = config.get("parameters", {}), config.get("budgets", {})
  most = config["settings"].get("num_trials")
  there: dict[str, set[int]] = {}
  for name, (row, *_) in trials.items():
    cell, index = records.cell_of(row), row["trial"].item()
    if parameters and cell not in parameters:
      raise refused(path, f"rows of the run's cells, not of {name}")
    if isinstance(most, int) and index >= most:
      raise refused(path, f"{most} trials of each cell, and not {name}")
    there.setdefault(cell, set()).add(index)
  for cell, number in wanted(config).items():
    found = len(there.get(cell, ()))
    if found != number:
      raise refused(path, f"{number} trials of {cell}: it has {found}")
  for row in records.table if budgets else ():
    spent, budget = row[-2].item(), budgets.get(records.cell_of(row))
    if row["outcome"] == "censored" and spent != budget:
      takes = f"trials that end within {budget}, not {records.name_of(row)} at {spent}"
      raise refused(path, takes)


def _check_thresholds(
  records: Records,
  trials: Mapping[str, Sequence[np.void]],
  path: pathlib.Path,
  settings: Mapping[str, Any],
) -> None:
  """Refuses trials of a cell with other thresholds, or without those of the settings."""
  if "threshold" not in (records.table.dtype.names or ()):
    return
  protocol = settings.get("protocol", settings)
  asked = protocol.get("thresholds", ()) if isinstance(protocol, Mapping) else ()
  of_cells: dict[str, list[float]] = {}
  for name, rows in trials.items():
    own = [row["threshold"].item() for row in rows]
    others = of_cells.setdefault(records.cell_of(rows[0]), own)
    lost = [value for value in asked if value not in own]
    if lost or own != others:
      takes = f"rows of {name} for the thresholds {lost or others}, too, not only {own}"
      raise refused(path, takes)


def _check_weights(
  records: Records,
  trials: Mapping[str, Sequence[np.void]],
  path: pathlib.Path,
  config: Mapping[str, Any],
) -> None:
  """Refuses files of weights that are damaged, or unlike those of their cell."""
  cells: dict[str, dict[str, list[pathlib.Path]]] = {}
  for name in records.models:
    content = weights.read(path, name)
    file, cell = path / weights.path_of(name), records.cell_of(trials[name][0])
    number = sum(array.size for array in content.arrays.values())
    known = config.get("parameters", {}).get(cell, number)
    if number != known:
      raise refused(file, f"weights of a model with {known} parameters, not {number}")
    cells.setdefault(cell, {}).setdefault(str(content.form), []).append(file)
  for forms in cells.values():
    usual, *others = sorted(forms.values(), key=len, reverse=True)
    if others:
      raise refused(others[0][0], f"arrays of the names and shapes that {usual[0]} has")


def _some(names: Sequence[str]) -> str:
  """The first of them, and how many more."""
  more = f" and {len(names) - 1} more are" if len(names) > 1 else " is"
  return f"{names[0]}{more}"
