"""What stands in a run directory of its trials, read and checked when a run opens it."""

from __future__ import annotations

import csv
import io
import pathlib
import urllib.parse
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from sepfx import specifications
from sepfx.ensembles.cells import Cell, cell_name
from sepfx.ensembles.results import TYPES, Columns, columns, parse_row, trial_name
from sepfx.errors import InvalidSetting
from sepfx.records import digests, weights
from sepfx.records.agreement import contradiction, contradiction_alone
from sepfx.records.reading import (
  read_csv,
  read_curve,
  read_curves,
  read_own_probes,
  read_probes,
  refused,
)
from sepfx.records.run_directory import (
  CURVES,
  ENDED,
  PROBES,
  TRIALS,
  RunDirectory,
  free_name,
  remove,
  set_aside,
)

# A cell's name and a trial's index.
_Key = tuple[str, int]


class StoredTrials:
  """The trials of whom all is there.

  Attributes:
    types: of the columns of trials.csv.
    rows: of each trial, by its cell's name and its index.
    curves: by the trial's name.
    probes: values by the trial's name.
    weights: names of the trials whose weights are there.
  """

  def __init__(
    self,
    directory: RunDirectory,
    cells: Mapping[str, Cell],
    added: Mapping[str, Any],
    *,
    order: Sequence[str] = (),
    only_read: bool = False,
  ):
    """Reads them, and only then writes: names with the added axes, whole trials alone.

    Args:
      directory: where; open.
      cells: all that may run by their names, in the order of the records.
      order: names of all cells that may stand there, in that order; empty if they are
        `cells`. The others have one protocol with these.
      added: axes that what stands there does not have yet, with the value that all of
        it was run with.
      only_read: leave every file as it is, and say nothing of damaged ones.

    Raises:
      InvalidSetting: if a file is malformed, or not this grid's; or a row contradicts its
        trial's curve, or a file is not what the digests of a complete run say.
    """
    stored = directory.stored
    proven = stored is not None and digests.check(directory.path, stored, may_lack=True)
    self._directory, self._cells = directory, cells
    self._left_out = {name for name in order if name not in cells}
    self._protocol = next(iter(cells.values())).trial.protocol
    budgets = (stored or {}).get("budgets", {})
    self._budgets = {name: budgets.get(name, 0) for name in self._left_out}
    # As text: an axis of numbers and None is one of texts.
    self._added = {axis: specifications.canonical(own) for axis, own in added.items()}
    self._only_read = only_read
    self._new_names = self._names_with_axes()
    # Trials that ended since the run was last complete.
    self._latest: set[str] = set()
    self.types = columns(list(cells.values()))
    self.curves = self._read_curves()
    self.probes = self._read_probes()
    self.rows = self._read_rows()
    self.weights = {self._renamed(name) for name in self._read_weights(proven)}
    directory.rename_cells(self._new_names)
    if only_read:
      return
    if added:
      self._rename()
    if directory.stored is not None:  # else there is nothing, and no config.json yet
      kept = [row for rows in self.rows.values() for row in rows]
      text = csv_text([tuple(self.types), *kept])
      if text.encode() != self._content:
        directory.write(TRIALS, text)

  def _names_with_axes(self) -> dict[str, str]:
    """Names of cells without the added axes -> with them."""
    names = {}
    for cell in self._cells.values():
      own = cell.coordinates
      texts = {axis: specifications.canonical(own[axis]) for axis in self._added}
      if self._added and texts == self._added:
        old = {k: v for k, v in own.items() if k not in self._added}
        names[cell_name(old)] = cell.name
    return names

  def _renamed(self, name: str) -> str:
    cell, _, trial = name.rpartition("/")
    return f"{self._new_names[cell]}/{trial}" if cell in self._new_names else name

  def _rename(self) -> None:
    """Gives every file of a trial the name that it has with the added axes.

    Done again without harm if it was interrupted: config.json, which says what is added,
    is written after it.
    """
    path = self._directory.path
    self._directory.change(CURVES)
    if (path / CURVES).exists():
      curves = read_curves(path / CURVES)
      renamed = {self._renamed(name): curve for name, curve in curves.items()}
      self._directory.write(CURVES, archive(renamed))
    if (path / PROBES).exists():
      header, *lines = read_csv(path / PROBES)
      rows = [{**self._added, **dict(zip(header, own, strict=True))} for own in lines]
      heads = (*coordinates(self.types), "trial")
      order = [*heads, *(column for column in header if column not in heads)]
      text = csv_text([order, *([row[column] for column in order] for row in rows)])
      self._directory.write(PROBES, text)
    for each in [*path.glob(f"{ENDED}/*.npy"), *path.glob(f"{ENDED}/*.json")]:
      name = self._renamed(urllib.parse.unquote(each.stem))
      each.replace(path / of_ended(name, each.suffix[1:]))
    for name, each in self._weight_files().items():
      new = self._renamed(name)
      if new != name:
        self._directory.write(weights.path_of(new), weights.renamed(path, name, new))
        remove(each)

  def _weight_files(self) -> dict[str, pathlib.Path]:
    """Files of weights by the names that their trials had."""
    path = self._directory.path / weights.DIRECTORY
    files = list(path.glob("**/*.safetensors"))
    return {str(f.relative_to(path))[: -len(f.suffix)]: f for f in files}

  def _read_curves(self) -> dict[str, np.ndarray]:
    path = self._directory.path
    found = read_curves(path / CURVES) if (path / CURVES).exists() else {}
    for file in sorted(path.glob(f"{ENDED}/*.npy")):
      name, curve = urllib.parse.unquote(file.stem), read_curve(file)
      if curve is None:
        self._set_aside(file, "its trial runs again")
        found.pop(name, None)
      else:
        found[name] = curve
        self._latest.add(self._renamed(name))
    return {self._renamed(name): curve for name, curve in found.items()}

  def _read_probes(self) -> dict[str, dict[str, float]]:
    path = self._directory.path
    found: dict[str, dict[str, float]] = {}
    if (path / PROBES).exists():
      # Only names are made of these columns: as they were when the file was written.
      stored = (self._directory.stored or {}).get("columns", {})
      types = {**self.types, **{name: TYPES[kind] for name, kind in stored.items()}}
      types = {name: types[name] for name in self.types}
      found = read_probes(path / PROBES, types, optional=self._added)
    for file in sorted(path.glob(f"{ENDED}/*.json")):
      own = read_own_probes(file)
      if own is None:
        self._set_aside(file, "its trial runs again where probes are asked for")
      else:
        found[urllib.parse.unquote(file.stem)] = own
    return {self._renamed(name): own for name, own in found.items()}

  def _read_weights(self, proven: bool) -> Iterator[str]:
    """Names of the trials whose weights are there and can be read.

    Args:
      proven: whether digests say that all files are whole.
    """
    for name, file in self._weight_files().items():
      try:
        if not proven:
          weights.read(self._directory.path, name)
      except InvalidSetting:
        self._set_aside(file, "its trial runs again where weights are kept")
      else:
        yield name

  def _set_aside(self, file: pathlib.Path, then: str) -> None:
    if self._only_read:
      return
    target = set_aside(file)
    warnings.warn(f"{file} is damaged: set aside as {target.name}, {then}", stacklevel=6)

  def _read_rows(self) -> dict[_Key, list[tuple]]:
    path = self._directory.path / TRIALS
    self._content = content = path.read_bytes() if path.exists() else b""
    complete, newline, cut = content.rpartition(b"\n")
    if cut and not self._only_read:
      shown = cut.decode(errors="replace")
      warnings.warn(
        f"{path}: the last line was cut short, its trial runs again: {shown!r}",
        stacklevel=5,
      )
    header, *lines = read_csv(path, complete + newline) or [[*self.types]]
    missing = [name for name in self.types if name not in header]
    wanted = [name for name in self.types if name not in missing]
    if header != wanted or not set(missing) <= set(self._added):
      raise refused(path, f"the header {','.join(self.types)}", 1, header)
    whole, without_curve = {}, 0
    for key, (first, rows) in self._grouped(header, lines).items():
      if self._name(key) in self.curves:
        self._check(key, first, rows)
        whole[key] = rows
      else:
        without_curve += 1
    if without_curve and not self._only_read:
      copy = free_name(path)
      self._directory.write(copy.name, content)
      warnings.warn(
        f"{path} has trials without their curves, {without_curve} of them, which run "
        f"again: it is kept as {copy.name}",
        stacklevel=5,
      )
    return whole

  def _grouped(
    self, header: Sequence[str], lines: Sequence[Sequence[str]]
  ) -> dict[_Key, tuple[int, list[tuple]]]:
    """Returns each trial's rows and the number of the line that they begin at.

    They stand together, in the order of the thresholds. A trial that ran again, with a
    larger budget, has its latest rows last. The last trial may have been cut short.
    """
    path = self._directory.path / TRIALS
    found: dict[_Key, tuple[int, list[tuple]]] = {}
    rows: list[tuple] = []
    begun = None
    for number, fields in enumerate(lines, start=2):
      key, row = self._parsed(number, header, fields)
      thresholds = self._protocol_of(key[0]).thresholds
      own = dict(zip(self.types, row, strict=True)).get("threshold")
      if begun not in (None, key) or own not in (None, thresholds[len(rows)]):
        takes = "all rows of a trial, one after another, by descending threshold"
        raise refused(path, takes, number, fields)
      begun = key
      rows.append(row)
      if len(rows) < len(thresholds):
        continue
      first, before = found.get(key, (0, rows))
      if first and not any(r[-1] == "censored" and r[-2] < row[-2] for r in before):
        takes = f"each trial once; this one stands from line {first} on, too"
        raise refused(path, takes, number, fields)
      found[key] = number - len(rows) + 1, rows
      begun, rows = None, []
    return found

  def _parsed(
    self, number: int, header: Sequence[str], fields: Sequence[str]
  ) -> tuple[_Key, tuple]:
    """Returns whose a line is, and its row with the added axes."""
    path = self._directory.path / TRIALS
    try:
      own = dict(zip(header, fields, strict=True))
      own.update({k: text for k, text in self._added.items() if k not in own})
      own.update(retyped(own, self._directory.stored or {}, self.types))
      row = parse_row([own[name] for name in self.types], self.types)
    except ValueError as error:
      raise refused(path, f"a row of a trial ({error})", number, fields) from error
    values = dict(zip(self.types, row, strict=True))
    name = cell_name({c: values[c] for c in coordinates(self.types)})
    known = name in self._cells or name in self._left_out
    thresholds = self._protocol_of(name).thresholds
    if not known or values.get("threshold") not in (None, *thresholds):
      raise refused(path, "a row of this run's grid", number, fields)
    return (name, values["trial"]), row

  def _check(self, key: _Key, first: int, rows: Sequence[tuple]) -> None:
    """Refuses rows that the trial's curve contradicts."""
    curve = self.curves[self._name(key)]
    if key[0] in self._left_out:
      self._check_spent(key, rows)
      progress = (curve.dtype.names or ("",))[0]
      ends = [row[-2] for row in rows if row[-1] == "censored"]
      if self._name(key) in self._latest and ends and progress:
        curve = curve[curve[progress] <= min(ends)]
      for number, row in enumerate(rows, start=first):
        own = dict(zip(self.types, row, strict=True))
        if says := contradiction_alone(curve, own):
          takes = f"what follows from the trial's curve, which says {says}"
          path = self._directory.path / TRIALS
          raise refused(path, takes, number, [str(value) for value in row])
      return
    trial = self._cells[key[0]].trial
    if self._name(key) in self._latest and outgrown(self._cells[key[0]], rows):
      # The curve may be of a run with a larger budget, killed before its rows were there.
      spent = min(row[-2] for row in rows if row[-1] == "censored")
      curve = curve[: spent // trial.progress[1]]
    width = len(trial.columns)
    wrong, says = contradiction(trial, curve, [row[-width:] for row in rows])
    if wrong >= 0:
      takes = f"what follows from the trial's curve, which says {says}"
      path = self._directory.path / TRIALS
      raise refused(path, takes, first + wrong, [str(value) for value in rows[wrong]])

  def _check_spent(self, key: _Key, rows: Sequence[tuple]) -> None:
    """Refuses to leave out trials that a larger budget brings back."""
    if any(row[-1] == "censored" and row[-2] < self._budgets[key[0]] for row in rows):
      takes = "a call that asks for all that stands there: a larger budget brings back "
      takes += self._name(key)
      raise InvalidSetting("output_dir", str(self._directory.path), takes)

  def _protocol_of(self, cell: str) -> Any:
    return self._cells[cell].trial.protocol if cell in self._cells else self._protocol

  def _name(self, key: _Key) -> str:
    return trial_name(*key)


def outgrown(cell: Cell, rows: Sequence[tuple]) -> bool:
  """Whether today's budget is larger than the one that a trial was censored at."""
  return any(row[-1] == "censored" and row[-2] < budget_of(cell) for row in rows)


def budget_of(cell: Cell) -> int:
  """What a trial that is censored has spent, in what its curve is drawn against."""
  return cell.trial.progress[1] * cell.trial.protocol.num_checks


def of_ended(name: str, ending: str) -> str:
  """The file of a trial that has ended, while the run lasts."""
  return f"{ENDED}/{urllib.parse.quote(name, safe='=')}.{ending}"


def coordinates(types: Columns) -> tuple[str, ...]:
  """The columns before the trial's index."""
  names = list(types)
  return tuple(names[: names.index("trial")])


def retyped(
  own: Mapping[str, str], stored: Mapping[str, Any], types: Columns
) -> dict[str, str]:
  """Numbers of an axis that has other values too by now: text, as names have it.

  Args:
    own: a row's fields.
    stored: config.json, with the types that columns had.
    types: that they have now.
  """
  before = stored.get("columns", {})
  return {
    name: specifications.canonical(TYPES[before[name]](text))
    for name, text in own.items()
    if types.get(name) is str and before.get(name) in ("int", "float")
  }


def archive(curves: Mapping[str, np.ndarray]) -> bytes:
  """Curves in NumPy's archive."""
  buffer = io.BytesIO()
  np.savez_compressed(buffer, **curves)  # type: ignore[arg-type]
  return buffer.getvalue()


def csv_text(rows: Sequence[Sequence[Any]]) -> str:
  """Rows as text."""
  buffer = io.StringIO()
  csv.writer(buffer, lineterminator="\n").writerows(rows)
  return buffer.getvalue()
