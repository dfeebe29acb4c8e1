"""How many trials a run has, and whether its files speak of the same ones."""

from __future__ import annotations

import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from sepfx.ensembles.results import Records
from sepfx.records import weights
from sepfx.records.reading import refused
from sepfx.records.run_directory import PROBES, TRIALS


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
  if not known:
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
