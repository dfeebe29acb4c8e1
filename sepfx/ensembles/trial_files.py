"""Trials on disk: trials.csv and curves.npz of a run directory.

While a run lasts, rows are appended to trials.csv and each ended trial's curve is a
file of its own under checkpoints/; when it completes, the rows are sorted and the
curves move into curves.npz.
"""

from __future__ import annotations

import csv
import io
import json
import os
import pathlib
import shutil
import urllib.parse
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from sepfx.ensembles.cells import Cell
from sepfx.ensembles.host_loop import Watcher
from sepfx.ensembles.records import (
  Result,
  columns,
  parse_row,
  table,
  trial_name,
)
from sepfx.ensembles.run_directory import RunDirectory
from sepfx.errors import InvalidSetting


class TrialFiles(Watcher):
  """The records of a run on disk."""

  def __init__(self, directory: RunDirectory, cells: Sequence[Cell], num_trials: int):
    """Reads what is there.

    Args:
      directory: where; open.
      cells: the grid.
      num_trials: trials a cell.

    Raises:
      InvalidSetting: if trials.csv is malformed or not this grid's.
    """
    self._directory = directory
    self._columns = columns(cells[0])
    self._names: dict[tuple[str, ...], str] = {}
    self._thresholds: dict[str, tuple[float, ...]] = {}
    for cell in cells:
      coordinates = tuple(map(str, cell.coordinates.values()))
      for k in range(num_trials):
        name = trial_name(cell, k)
        self._names[*coordinates, str(k)] = name
        self._thresholds[name] = cell.trial.protocol.thresholds
    self._rows = self._read_trials()

  @property
  def reached(self) -> dict[str, bool]:
    """Whether a trial reached all its thresholds, by name (`trial_name`), if recorded."""
    return {
      name: all(row[-1] == "reached" for row in rows) for name, rows in self._rows.items()
    }

  def ended(self, result: Result) -> None:
    """Records a trial: its curve first, so that a row promises a curve."""
    self._checkpoints.mkdir(exist_ok=True)
    buffer = io.BytesIO()
    np.save(buffer, result.curve)
    self._directory.write(self._curve_path(result.name), buffer.getvalue())
    text = _csv_text(result.rows)
    with open(self._trials, "a", newline="") as file:
      file.write(text)
      file.flush()
      os.fsync(file.fileno())
    self._rows[result.name] = result.rows

  # What a run does at its end.

  def complete(self) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Puts records in their final form and returns them.

    `trials.csv` is sorted by cell, trial and threshold, so that it does not depend on
    the order in which trials ended; curves move into `curves.npz`.

    Returns:
      The records (`sepfx.ensembles.table`) and the curves by trial name, structured
      arrays with fields samples, loss, exact.
    """
    names = [name for name in self._names.values() if name in self._rows]
    rows = [row for name in names for row in self._rows[name]]
    curves: dict[str, np.ndarray] = {}
    for name in names:
      curves[name] = self.curve(name)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **curves)  # type: ignore[arg-type]
    self._directory.write("curves.npz", buffer.getvalue())
    self._directory.write("trials.csv", _csv_text([self._columns, *rows]))
    shutil.rmtree(self._checkpoints, ignore_errors=True)
    return table(rows, self._columns), curves

  def curve(self, name: str) -> np.ndarray:
    """Returns a finished trial's curve: fields samples, loss, exact."""
    stored = self._stored_curve(name)
    assert stored is not None, name  # a row promises a curve
    return stored

  # Files.

  @property
  def _trials(self) -> pathlib.Path:
    return self._directory.path / "trials.csv"

  @property
  def _curves(self) -> pathlib.Path:
    return self._directory.path / "curves.npz"

  @property
  def _checkpoints(self) -> pathlib.Path:
    return self._directory.path / "checkpoints"

  def _curve_path(self, name: str) -> str:
    return f"checkpoints/{urllib.parse.quote(name, safe='=')}.npy"

  def _stored_curve(self, name: str) -> np.ndarray | None:
    path = self._directory.path / self._curve_path(name)
    if path.exists():
      return np.load(path)
    if self._curves.exists():
      with np.load(self._curves) as curves:
        if name in curves:
          return curves[name]
    return None

  def _read_trials(self) -> dict[str, list[tuple]]:
    """Reads the trials of whom all is there, and cuts the file back to them."""
    rows: dict[str, list[tuple]] = {}
    text = self._trials.read_text() if self._trials.exists() else ""
    complete, newline, cut = text.rpartition("\n")
    if cut:
      warnings.warn(
        f"{self._trials}: the last line was cut short, its trial runs again: {cut!r}",
        stacklevel=4,
      )
    lines = list(csv.reader(io.StringIO(complete + newline)))
    if lines and tuple(lines[0]) != self._columns:
      raise self._malformed(1, lines[0], f"the header {','.join(self._columns)}")
    for number, fields in enumerate(lines[1:], start=2):
      try:
        row = parse_row(fields, self._columns)
      except ValueError as error:
        raise self._malformed(number, fields, f"a row of a trial ({error})") from error
      own = dict(zip(self._columns, row, strict=True))
      name = self._names.get(tuple(fields[: self._columns.index("trial") + 1]))
      if name is None or own.get("threshold") not in (None, *self._thresholds[name]):
        raise self._malformed(number, fields, "a row of this run's grid")
      rows.setdefault(name, []).append(row)
    rows = {
      name: own
      for name, own in rows.items()
      if len(own) == len(self._thresholds[name]) and self._stored_curve(name) is not None
    }
    kept = [self._columns, *(row for trial in rows.values() for row in trial)]
    self._directory.write("trials.csv", _csv_text(kept))
    return rows

  def _malformed(self, number: int, fields: list[str], takes: str) -> InvalidSetting:
    where = f"{self._trials}, line {number}: {','.join(fields)}"
    return InvalidSetting("output_dir", where, takes)


class Finished(NamedTuple):
  """What a complete run left.

  Attributes:
    settings: of its config.json.
    records: `sepfx.ensembles.table` of its trials.
    curves: structured arrays of `sepfx.training.Trial.curve`, by trial name.
  """

  settings: dict[str, Any]
  records: np.ndarray
  curves: dict[str, np.ndarray]


def read_finished(path: str | os.PathLike) -> Finished:
  """Reads the directory of a complete run, whose summary.json is written last.

  Raises:
    OSError, ValueError, KeyError: if it is not one.
  """
  directory = pathlib.Path(path)
  (directory / "summary.json").stat()
  settings = json.loads((directory / "config.json").read_text())["settings"]
  with open(directory / "trials.csv", newline="") as file:
    names, *lines = csv.reader(file)
  records = table((parse_row(fields, names) for fields in lines), names)
  with np.load(directory / "curves.npz") as curves:
    return Finished(settings, records, dict(curves))


def _csv_text(rows: Sequence[Sequence[Any]]) -> str:
  buffer = io.StringIO()
  csv.writer(buffer, lineterminator="\n").writerows(rows)
  return buffer.getvalue()
