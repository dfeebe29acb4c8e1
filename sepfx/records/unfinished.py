"""Trials of a run that lasts, or was stopped: read from its directory, anybody's."""

from __future__ import annotations

import pathlib
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sepfx.ensembles.cells import cell_name
from sepfx.ensembles.results import TYPES, Columns, parse_row
from sepfx.errors import InvalidSetting
from sepfx.records import weights
from sepfx.records.agreement import contradiction_alone
from sepfx.records.reading import (
  read_csv,
  read_curve,
  read_curves,
  read_own_probes,
  read_probes,
  refused,
)
from sepfx.records.run_directory import CURVES, ENDED, PROBES, TRIALS
from sepfx.records.stored_trials import coordinates, csv_text

# Types of the columns of the first layout, which did not write them down.
_TEXT = ("task", "model", "outcome")
_NUMBERS = ("threshold", "accuracy", "risk")


class StoredTrial(NamedTuple):
  """What stands in a directory of a trial that has ended.

  Attributes:
    rows: one per threshold.
    curve: of the trial.
    probes: values by name; None if none were measured.
    weights: the directory in which they are; None if they were not kept.
    place: the directory that it stands in.
  """

  rows: list[tuple]
  curve: np.ndarray
  probes: Mapping[str, float] | None
  weights: pathlib.Path | None
  place: pathlib.Path

  @property
  def text(self) -> str:
    """Its rows as they stand in a file: what is not a number does not equal itself."""
    return csv_text(self.rows)


def so_far(path: pathlib.Path, config: Mapping[str, Any]) -> dict[str, StoredTrial]:
  """Reads the trials of a run that lasts, or was stopped, of which all is there.

  Args:
    path: of its directory, without its shares.
    config: the content of its config.json.

  Returns:
    Trials by name, in the order in which they ended.

  Raises:
    InvalidSetting: if a file is malformed, or a row contradicts its trial's curve.
    OSError: if a file cannot be read.
  """
  header, lines = lines_of(path, config)
  types = types_of(path / TRIALS, header, config)
  curves = read_curves(path / CURVES) if (path / CURVES).exists() else {}
  latest = {}
  for file in path.glob(f"{ENDED}/*.npy"):
    if (curve := read_curve(file)) is not None:
      latest[urllib.parse.unquote(file.stem)] = curve
  probes = read_probes(path / PROBES, types) if (path / PROBES).exists() else {}
  for file in path.glob(f"{ENDED}/*.json"):
    if (values := read_own_probes(file)) is not None:
      probes[urllib.parse.unquote(file.stem)] = values
  found = {}
  least = _thresholds(config.get("settings", {}))
  for name, (first, rows) in _grouped(path / TRIALS, lines, types, least).items():
    curve = latest.get(name, curves.get(name))
    if curve is None:
      continue
    progress = (curve.dtype.names or ("",))[0]
    if progress not in types:
      raise refused(path / TRIALS, f"rows with {name}'s {progress}", first)
    owns = [dict(zip(types, row, strict=True)) for row in rows]
    spent = [own[progress] for own in owns if own["outcome"] == "censored"]
    if name in latest and spent:
      # It may be of a run with a larger budget, stopped before its rows were there.
      curve = curve[curve[progress] <= min(spent)]
    for number, own in enumerate(owns, start=first):
      check_row(path / TRIALS, number, own, curve)
    kept = (path / weights.path_of(name)).exists()
    weighed = path if kept else None
    found[name] = StoredTrial(rows, curve, probes.get(name), weighed, path)
  return found


def rows_so_far(
  path: pathlib.Path, config: Mapping[str, Any]
) -> dict[str, list[dict[str, Any]]]:
  """Reads the rows of trials alone, values by column: not whether all else is there.

  Args:
    path: of the directory, without its shares.
    config: the content of its config.json.

  Raises:
    InvalidSetting: if the file is malformed.
    OSError: if it cannot be read.
  """
  header, lines = lines_of(path, config)
  types = types_of(path / TRIALS, header, config)
  found = _grouped(path / TRIALS, lines, types, _thresholds(config.get("settings", {})))
  return {
    name: [dict(zip(types, row, strict=True)) for row in rows]
    for name, (_, rows) in found.items()
  }


def has_rows(path: pathlib.Path) -> bool:
  """Whether a trial may be recorded in a directory: its table has more than a header.

  Args:
    path: of the directory.
  """
  file = path / TRIALS
  return file.exists() and file.read_bytes().count(b"\n") > 1


def later(name: str, one: StoredTrial, other: StoredTrial) -> StoredTrial:
  """What counts of a trial that stands in two places: the same, or the larger budget's.

  Raises:
    InvalidSetting: if it came to something else.
  """
  probes = {**(one.probes or {}), **(other.probes or {})} or None
  if one.text == other.text:
    return one._replace(probes=probes, weights=one.weights or other.weights)
  for less, more in ((one, other), (other, one)):
    most = max(row[-2] for row in more.rows)
    grown = [row[-1] == "censored" and row[-2] < most for row in less.rows]
    both = zip(less.rows, more.rows, grown, strict=False)
    if any(grown) and all(old == new for old, new, is_grown in both if not is_grown):
      probes = {**(less.probes or {}), **(more.probes or {})} or None
      return more._replace(probes=probes)
  takes = f"{one.rows} of {name}, as {one.place.name} has it, not {other.rows}"
  raise InvalidSetting("output_dir", str(other.place), takes)


def lines_of(
  path: pathlib.Path, config: Mapping[str, Any]
) -> tuple[list[str], list[list[str]]]:
  """Returns the header of a run's rows, and whole lines as fields of text.

  Args:
    path: of its directory.
    config: the content of its config.json.

  Raises:
    InvalidSetting: if it is no text of such lines.
    OSError: if it cannot be read.
  """
  content = (path / TRIALS).read_bytes() if (path / TRIALS).exists() else b""
  content = content[: content.rfind(b"\n") + 1]  # the last line may be cut short
  header, *lines = read_csv(path / TRIALS, content) or [list(config.get("columns", {}))]
  return header, lines


def _thresholds(settings: Mapping[str, Any]) -> int:
  """How many thresholds settings have; 0 where they do not say."""
  protocol = settings.get("protocol", settings)
  own = protocol.get("thresholds") if isinstance(protocol, Mapping) else None
  return len({*own}) if isinstance(own, list) else 0


def _grouped(
  path: pathlib.Path, lines: Sequence[Sequence[str]], types: Columns, least: int
) -> dict[str, tuple[int, list[tuple]]]:
  """Rows of trials as they were appended, with the line that each trial's begin at.

  A trial that ran again has its latest rows last. The last trial may have been cut short.

  Args:
    path: of the file.
    lines: as fields of text.
    types: of the columns.
    least: rows that a whole trial has, or more.
  """
  groups: list[tuple[str, int, list[tuple]]] = []
  columns = list(types)
  level = columns.index("threshold") if "threshold" in columns else None
  for number, fields in enumerate(lines, start=2):
    row = row_of(path, number, fields, types)
    name = name_of_row(row, types)
    before = groups[-1][2] if groups and groups[-1][0] == name else None
    if before is not None and level is not None and row[level] < before[-1][level]:
      before.append(row)
    else:
      groups.append((name, number, [row]))
  most = max((len(rows) for _, _, rows in groups), default=0)
  if groups and len(groups[-1][2]) < max(most, least):
    groups.pop()
  found: dict[str, tuple[int, list[tuple]]] = {}
  for name, first, rows in groups:
    if name in found and all(row[-1] != "censored" for row in found[name][1]):
      line = [str(value) for value in rows[0]]
      raise refused(path, "each trial once", first, line)
    found[name] = first, rows
  return found


def name_of_row(row: Sequence[Any], types: Columns) -> str:
  """Returns the name of a row's trial.

  Args:
    row: its values.
    types: of the columns.
  """
  values = dict(zip(types, row, strict=True))
  return cell_name({name: values[name] for name in (*coordinates(types), "trial")})


def types_of(
  path: pathlib.Path, header: Sequence[str], config: Mapping[str, Any]
) -> dict[str, type]:
  """Returns the types of columns.

  Args:
    path: of the file, for messages.
    header: names of the columns.
    config: the content of the run's config.json; of the first layout it has no types.

  Raises:
    InvalidSetting: if these are no columns of a run.
  """
  stored = config.get("columns", {})
  known = all(name in stored for name in header) if stored else len(set(header)) > 4
  if not (known and "trial" in header and header[-1] == "outcome"):
    raise refused(path, f"the header {','.join(stored) or 'of a run'}", 1, header)
  return {name: TYPES[stored[name]] if stored else _type(name) for name in header}


def row_of(
  path: pathlib.Path, number: int, fields: Sequence[str], types: Columns
) -> tuple:
  """Returns the values of a line.

  Args:
    path: of the file, for messages.
    number: of the line.
    fields: as text.
    types: of the columns.

  Raises:
    InvalidSetting: if it is no row of a trial.
  """
  try:
    return parse_row(fields, types)
  except ValueError as error:
    raise refused(path, f"a row of a trial ({error})", number, fields) from error


def check_row(
  path: pathlib.Path, number: int, own: Mapping[str, Any], curve: np.ndarray
) -> None:
  """Refuses a row that its trial's curve contradicts.

  Args:
    path: of the file, for messages.
    number: of the line.
    own: the row's values by column.
    curve: of its trial.

  Raises:
    InvalidSetting: it says what the curve says.
  """
  if says := contradiction_alone(curve, own):
    takes = f"what follows from the trial's curve, which says {says}"
    raise refused(path, takes, number, [str(value) for value in own.values()])


def _type(column: str) -> type:
  return str if column in _TEXT else float if column in _NUMBERS else int
