"""What a run left, for analysis in Python."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Sequence

import numpy as np

from sepfx.ensembles import weights
from sepfx.ensembles.agreement import contradiction_alone
from sepfx.ensembles.reading import read_csv, read_curves, refused
from sepfx.ensembles.records import TYPES, Columns, Records, parse_row, parse_value, table
from sepfx.ensembles.run_directory import CONFIG, read_config
from sepfx.ensembles.stored_trials import CURVES, PROBES, TRIALS, coordinates
from sepfx.errors import InvalidSetting

# Types of the columns of the first layout, which did not write them down.
_TEXT = ("task", "model", "outcome")
_NUMBERS = ("threshold", "accuracy", "risk")


def load(directory: str | os.PathLike) -> Records:
  """Reads the directory of a complete run.

  Args:
    directory: `--output_dir` of a study, or `directory` of a call of `sepfx.measure`.

  Returns:
    Its records. `load(...).table` is what pandas reads; `models` has, for runs with
    `--keep_weights`, each trial's module with its weights.

  Raises:
    InvalidSetting: if it is not the directory of a complete run, a file is damaged, or a
      row contradicts its trial's curve.
  """
  path = pathlib.Path(directory)
  if not (path / "summary.json").exists():  # is written last
    there = (path / CONFIG).exists()
    why = (
      "its run has not ended: give its command or call again"
      if there
      else "no run is there"
    )
    takes = f"the directory of a complete run ({why})"
    raise InvalidSetting("directory", str(directory), takes)
  try:
    config = read_config(path / CONFIG)
    names, *lines = read_csv(path / TRIALS) or [[]]
    stored = config.get("columns", {})
    types = {name: TYPES[stored[name]] if stored else _type(name) for name in names}
    rows = [_row(path / TRIALS, k, own, types) for k, own in enumerate(lines, start=2)]
    curves = read_curves(path / CURVES)
    probes = _read_probes(path / PROBES, types)
    records = Records(
      table(rows, types),
      coordinates(types),
      curves,
      probes,
      config["settings"],
      weights.Kept(path, list(curves)),
      config.get("notes", {}),
    )
    _check(records, path / TRIALS)
  except (OSError, ValueError, KeyError) as error:
    takes = f"the directory of a complete run ({error})"
    raise InvalidSetting("directory", str(directory), takes) from error
  return records


def _row(path: pathlib.Path, number: int, fields: Sequence[str], types: Columns) -> tuple:
  try:
    return parse_row(fields, types)
  except ValueError as error:
    raise refused(path, f"a row of a trial ({error})", number, fields) from error


def _check(records: Records, path: pathlib.Path) -> None:
  """Refuses rows that do not stand as a run writes them, or that a curve contradicts."""
  columns = records.table.dtype.names or ()
  seen: set[str] = set()
  before, last = "", 0.0
  for number, row in enumerate(records.table, start=2):
    name, own = records.name_of(row), dict(zip(columns, row.tolist(), strict=True))
    fields = [str(value) for value in own.values()]
    threshold = own.get("threshold", 0.0)
    if name in seen and not (name == before and threshold < last):
      takes = "each trial once, its rows one after another, by descending threshold"
      raise refused(path, takes, number, fields)
    if name not in records.all_curves:
      raise refused(path, "rows of trials that have a curve", number, fields)
    if says := contradiction_alone(records.all_curves[name], own):
      takes = f"what follows from the trial's curve, which says {says}"
      raise refused(path, takes, number, fields)
    seen.add(name)
    before, last = name, threshold


def _read_probes(path: pathlib.Path, types: Columns) -> np.ndarray | None:
  if not path.exists():
    return None
  names, *lines = read_csv(path) or [[]]
  own = {name: types.get(name, float) for name in names}
  rows = []
  for number, fields in enumerate(lines, start=2):
    try:
      pairs = zip(fields, own.values(), strict=True)
      rows.append(tuple(parse_value(field, kind) for field, kind in pairs))
    except ValueError as error:
      takes = f"a row of a trial's probes ({error})"
      raise refused(path, takes, number, fields) from error
  return table(rows, own)


def _type(column: str) -> type:
  return str if column in _TEXT else float if column in _NUMBERS else int
