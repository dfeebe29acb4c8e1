"""Trials on disk: trials.csv, curves.npz, probes.csv and weights of a run directory.

While a run lasts, rows are appended to trials.csv, and each ended trial's curve and
probes are files of their own under checkpoints/; when it completes, the rows are sorted
and the curves and probes move into curves.npz and probes.csv. A row promises that all
else of its trial is there.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import urllib.parse
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from sepfx.ensembles import weights
from sepfx.ensembles.cells import Cell, cell_name
from sepfx.ensembles.records import (
  Columns,
  Records,
  Result,
  columns,
  parse_row,
  parse_value,
  probe_table,
  table,
  trial_name,
)
from sepfx.ensembles.run_directory import RunDirectory
from sepfx.ensembles.watchers import Watcher
from sepfx.errors import InvalidSetting

_TRIALS, _CURVES, _PROBES = "trials.csv", "curves.npz", "probes.csv"


class Contradiction(Exception):
  """A trial that ran again came to something else than what stands in the records."""


class TrialFiles(Watcher):
  """The records of a run on disk."""

  def __init__(
    self,
    directory: RunDirectory,
    cells: Sequence[Cell],
    *,
    added: Mapping[str, Any] | None = None,
    probed: Mapping[str, Collection[str]] | None = None,
    keep_weights: bool = False,
  ):
    """Reads what is there.

    Args:
      directory: where; open.
      cells: all that may stand there, in the order of the records.
      added: axes that what stands there does not have yet, with the value that all of
        it was run with.
      probed: names of values that the trials of a cell shall have, by the cell's name.
      keep_weights: whether trials shall have their weights there.

    Raises:
      InvalidSetting: if trials.csv is malformed or not this grid's.
    """
    self._directory = directory
    self._cells = {cell.name: cell for cell in cells}
    self._types = columns(cells)
    self._probed, self._keep_weights = probed or {}, keep_weights
    if added:
      self._rename(added)
    self._added = dict(added or {})
    self._curves = self._read_curves()
    self._probes = self._read_probes()
    # By trial: the cell's name and the index.
    self._rows = self._read_trials()

  @property
  def types(self) -> dict[str, type]:
    """Of the columns of trials.csv."""
    return self._types

  @property
  def reached(self) -> dict[str, bool]:
    """Whether a trial reached all its thresholds, by name, if nothing of it is missing.

    Missing are also probes and weights that are asked for today, and what a larger
    budget may bring.
    """
    return {
      trial_name(self._cells[cell], k): all(row[-1] == "reached" for row in rows)
      for (cell, k), rows in self._rows.items()
      if not (self.outgrown(cell, rows) or self._lacks(cell, k))
    }

  @property
  def outgrown_trials(self) -> list[tuple[str, int]]:
    """Name and index of the trials that were censored before today's budget was spent."""
    return [
      (trial_name(self._cells[cell], k), k)
      for (cell, k), rows in self._rows.items()
      if self.outgrown(cell, rows)
    ]

  def outgrown(self, cell: str, rows: Sequence[tuple]) -> bool:
    """Whether today's budget is larger than the one that a trial was censored at."""
    trial = self._cells[cell].trial
    budget = trial.progress[1] * trial.protocol.num_checks
    return any(row[-1] == "censored" and row[-2] < budget for row in rows)

  def ended(self, result: Result) -> None:
    """Records a trial: its row last.

    Raises:
      Contradiction: if it has run before and came to something else.
    """
    key = (result.cell.name, result.trial)
    kinds = self._types.values()
    rows = [
      tuple(kind(value) for kind, value in zip(kinds, row, strict=True))
      for row in result.rows
    ]
    before = self._rows.get(key)
    recorded = before is not None and not self.outgrown(key[0], before)
    if recorded and before != rows:
      raise Contradiction(
        f"{result.name} ran again and came to {rows}, not to what "
        f"{self._directory.path / _TRIALS} says: {before}"
      )
    if result.params is not None:
      content = weights.serialised(result.name, result.cell.trial.model, result.params)
      self._directory.write(weights.path_of(result.name), content)
    buffer = io.BytesIO()
    np.save(buffer, result.curve)
    self._directory.write(self._beside(result.name, "npy"), buffer.getvalue())
    if result.probes is not None:
      own = {**self._probes.get(result.name, {}), **result.probes}
      self._directory.write(self._beside(result.name, "json"), json.dumps(own))
      self._probes[result.name] = own
    if before == rows:
      return
    with open(self._directory.path / _TRIALS, "a", newline="") as file:
      file.write(_csv_text(rows))
      file.flush()
      os.fsync(file.fileno())
    self._rows[key] = rows

  # What a run does at its end.

  def complete(self) -> Records:
    """Puts records in their final form and returns them.

    `trials.csv` is sorted by cell, trial and threshold, so that it does not depend on
    the order in which trials ended; curves move into `curves.npz`, probes into
    `probes.csv`.
    """
    place = {name: k for k, name in enumerate(self._cells)}
    order = sorted(self._rows, key=lambda key: (place[key[0]], key[1]))
    rows = [row for key in order for row in self._rows[key]]
    names = [trial_name(self._cells[cell], k) for cell, k in order]
    curves = {name: self.curve(name) for name in names}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **curves)  # type: ignore[arg-type]
    self._directory.write(_CURVES, buffer.getvalue())
    heads = [(*self._cells[cell].coordinates.values(), k) for cell, k in order]
    probes = probe_table(
      [(h, self._probes.get(n)) for h, n in zip(heads, names, strict=True)], self._types
    )
    if probes is not None:
      probe_rows = [probes.dtype.names, *probes.tolist()]
      self._directory.write(_PROBES, _csv_text(probe_rows))
    self._directory.write(_TRIALS, _csv_text([tuple(self._types), *rows]))
    shutil.rmtree(self._directory.path / "checkpoints", ignore_errors=True)
    stored = self._directory.stored or {}
    return Records(
      table(rows, self._types),
      _coordinates(self._types),
      curves,
      probes,
      stored.get("settings", {}),
      weights.Kept(self._directory.path, names),
    )

  def curve(self, name: str) -> np.ndarray:
    """Returns a finished trial's curve (`sepfx.training.Trial.curve`)."""
    path = self._directory.path / self._beside(name, "npy")
    return np.load(path) if path.exists() else self._curves[name]

  # Files.

  def _beside(self, name: str, ending: str) -> str:
    """The file of an ended trial while the run lasts."""
    return f"checkpoints/{urllib.parse.quote(name, safe='=')}.{ending}"

  def _lacks(self, cell: str, k: int) -> bool:
    name = trial_name(self._cells[cell], k)
    probed = set(self._probed.get(cell, ())) <= set(self._probes.get(name, ()))
    kept = (self._directory.path / weights.path_of(name)).exists()
    return not (probed and (kept or not self._keep_weights))

  def _rename(self, added: Mapping[str, Any]) -> None:
    """Gives every file of a trial the name that it has with the added axes.

    Done again without harm if it was interrupted: config.json, which says what is added,
    is written after it.
    """
    names = {}
    for cell in self._cells.values():
      coordinates = cell.coordinates
      if all(coordinates[axis] == value for axis, value in added.items()):
        old = {k: v for k, v in coordinates.items() if k not in added}
        names[cell_name(old)] = cell.name
    path = self._directory.path
    curves = self._read_curves()
    if curves:
      renamed = {_renamed(name, names): curve for name, curve in curves.items()}
      buffer = io.BytesIO()
      np.savez_compressed(buffer, **renamed)  # type: ignore[arg-type]
      self._directory.write(_CURVES, buffer.getvalue())
    if (path / _PROBES).exists():
      with open(path / _PROBES, newline="") as file:
        rows = [{**added, **row} for row in csv.DictReader(file)]
      heads = (*_coordinates(self._types), "trial")
      order = [*heads, *(column for column in rows[0] if column not in heads)]
      lines = [order, *([row[column] for column in order] for row in rows)]
      self._directory.write(_PROBES, _csv_text(lines))
    for each in [*path.glob("checkpoints/*.npy"), *path.glob("checkpoints/*.json")]:
      name = _renamed(urllib.parse.unquote(each.stem), names)
      each.replace(path / self._beside(name, each.suffix[1:]))
    for each in path.glob(f"{weights.DIRECTORY}/**/*.safetensors"):
      name = str(each.relative_to(path / weights.DIRECTORY))[: -len(each.suffix)]
      target = path / weights.path_of(_renamed(name, names))
      target.parent.mkdir(parents=True, exist_ok=True)
      each.replace(target)

  def _read_curves(self) -> dict[str, np.ndarray]:
    path = self._directory.path / _CURVES
    if not path.exists():
      return {}
    with np.load(path) as curves:
      return dict(curves)

  def _read_probes(self) -> dict[str, dict[str, float]]:
    path = self._directory.path
    found: dict[str, dict[str, float]] = {}
    if (path / _PROBES).exists():
      with open(path / _PROBES, newline="") as file:
        for row in csv.DictReader(file):
          own = dict(row)
          coordinates = {
            column: parse_value(own.pop(column), self._types[column])
            for column in (*_coordinates(self._types), "trial")
          }
          found[cell_name(coordinates)] = {k: float(v) for k, v in own.items()}
    for own_file in path.glob("checkpoints/*.json"):
      name = urllib.parse.unquote(own_file.stem)
      found[name] = json.loads(own_file.read_text())
    return found

  def _read_trials(self) -> dict[tuple[str, int], list[tuple]]:
    """Reads the trials of whom all is there, and cuts the file back to them."""
    path = self._directory.path / _TRIALS
    text = path.read_text() if path.exists() else ""
    complete, newline, cut = text.rpartition("\n")
    if cut:
      warnings.warn(
        f"{path}: the last line was cut short, its trial runs again: {cut!r}",
        stacklevel=4,
      )
    header, *lines = list(csv.reader(io.StringIO(complete + newline))) or [[*self._types]]
    missing = [name for name in self._types if name not in header]
    wanted = [name for name in self._types if name not in missing]
    if header != wanted or not set(missing) <= set(self._added):
      raise self._malformed(1, header, f"the header {','.join(self._types)}")
    found: dict[tuple[str, int], list[tuple]] = {}
    for number, fields in enumerate(lines, start=2):
      key, row = self._parsed(number, header, fields)
      found.setdefault(key, []).append(row)
    rows = {}
    for (name, k), all_rows in found.items():
      cell = self._cells[name]
      times, rest = divmod(len(all_rows), len(cell.trial.protocol.thresholds))
      # A trial that ran again, with a larger budget, has its latest rows last.
      whole = all_rows[: len(all_rows) - rest]
      if times and self._has_curve(trial_name(cell, k)):
        rows[name, k] = whole[len(whole) // times * (times - 1) :]
    kept = [tuple(self._types), *(row for trial in rows.values() for row in trial)]
    self._directory.write(_TRIALS, _csv_text(kept))
    return rows

  def _parsed(
    self, number: int, header: Sequence[str], fields: Sequence[str]
  ) -> tuple[tuple[str, int], tuple]:
    """Returns whose a line is, and its row with the added axes."""
    try:
      own = dict(zip(header, fields, strict=True))
      own.update({k: str(v) for k, v in self._added.items() if k not in own})
      row = parse_row([own[name] for name in self._types], self._types)
    except ValueError as error:
      raise self._malformed(number, fields, f"a row of a trial ({error})") from error
    values = dict(zip(self._types, row, strict=True))
    name = cell_name({c: values[c] for c in _coordinates(self._types)})
    cell = self._cells.get(name)
    thresholds = cell.trial.protocol.thresholds if cell else ()
    if cell is None or values.get("threshold") not in (None, *thresholds):
      raise self._malformed(number, fields, "a row of this run's grid")
    return (name, values["trial"]), row

  def _has_curve(self, name: str) -> bool:
    path = self._directory.path / self._beside(name, "npy")
    return path.exists() or name in self._curves

  def _malformed(self, number: int, fields: Sequence[str], takes: str) -> InvalidSetting:
    where = f"{self._directory.path / _TRIALS}, line {number}: {','.join(fields)}"
    return InvalidSetting("output_dir", where, takes)


def _coordinates(types: Columns) -> tuple[str, ...]:
  """The columns before the trial's index."""
  names = list(types)
  return tuple(names[: names.index("trial")])


def _renamed(name: str, names: Mapping[str, str]) -> str:
  cell, _, trial = name.rpartition("/")
  return f"{names[cell]}/{trial}" if cell in names else name


def _csv_text(rows: Sequence[Sequence[Any]]) -> str:
  buffer = io.StringIO()
  csv.writer(buffer, lineterminator="\n").writerows(rows)
  return buffer.getvalue()
