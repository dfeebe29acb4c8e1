"""What a run left, for analysis in Python."""

from __future__ import annotations

import os
import pathlib
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sepfx.ensembles.cells import cell_name
from sepfx.ensembles.results import (
  TYPES,
  Columns,
  Records,
  parse_row,
  parse_value,
  probe_table,
  table,
)
from sepfx.errors import InvalidSetting
from sepfx.records import digests, shares, weights
from sepfx.records.agreement import check_files, contradiction_alone, missing
from sepfx.records.config import CONFIG, read_config
from sepfx.records.reading import (
  read_csv,
  read_curve,
  read_curves,
  read_own_probes,
  read_probes,
  refused,
)
from sepfx.records.run_directory import CURVES, ENDED, PROBES, SUMMARY, TRIALS
from sepfx.records.stored_trials import coordinates, csv_text
from sepfx.records.trusted import known_classes

# Types of the columns of the first layout, which did not write them down.
_TEXT = ("task", "model", "outcome")
_NUMBERS = ("threshold", "accuracy", "risk")


def load(directory: str | os.PathLike, *, classes: Iterable[type] = ()) -> Records:
  """Reads the directory of a run.

  It may be anybody's. Nothing that it names is imported, and modules are made of this
  package's classes and those of the caller alone.

  Args:
    directory: `--output_dir` of a study, or `directory` of a call of `sepfx.measure`.
    classes: classes of one's own that modules may be made of, as in
      `sepfx.load("runs/mine", classes=[Mixer])`.

  Returns:
    Its records. `load(...).table` is what pandas reads; `models` has, for runs with
    `--keep_weights`, each trial's module with its weights. Of a run that has not ended
    they are of the trials that have, in its shares too: `complete` is False, and
    `missing` is the number of the others.

  Raises:
    InvalidSetting: if it is not the directory of a run, or a file of it is not as the run
      wrote it; for what is no class in `classes`, or two of one name.
  """
  known = known_classes(classes)
  path = pathlib.Path(directory)
  try:
    if not (path / CONFIG).exists():
      there = (path / TRIALS).exists()
      why = f"its {CONFIG} is gone: put a copy back" if there else "no run is there"
      raise ValueError(why)
    config = read_config(path / CONFIG)
    proven = digests.check(path, config)
    complete = proven or (path / SUMMARY).exists()
    found = _whole(path, config) if complete else _so_far(path, config)
    records = Records(
      table(found.rows, found.types),
      coordinates(found.types),
      found.curves,
      found.probes,
      config["settings"],
      weights.Kept(path, list(found.curves), known=known, places=found.weights),
      config.get("notes", {}),
      complete,
      0 if complete else missing(config, _ended(found, config)),
    )
    if complete:
      _check(records, path / TRIALS)
    if complete and not proven:
      check_files(records, path, config)
  except (OSError, ValueError, KeyError, TypeError) as error:
    takes = f"the directory of a run ({error})"
    raise InvalidSetting("directory", str(directory), takes) from error
  return records


class _Found(NamedTuple):
  """What was read.

  Attributes:
    types: of the columns.
    rows: in their order.
    curves: by the trial's name.
    probes: as a table.
    weights: the directory in which a trial's are, by its name; None for that of the run.
  """

  types: dict[str, type]
  rows: list[tuple]
  curves: dict[str, np.ndarray]
  probes: np.ndarray | None
  weights: dict[str, pathlib.Path] | None = None


def _whole(path: pathlib.Path, config: Mapping[str, Any]) -> _Found:
  """The files of a complete run."""
  header, *lines = read_csv(path / TRIALS) or [[]]
  stored = list(config.get("columns", {}))
  if stored and header != stored:
    raise refused(path / TRIALS, f"the header {','.join(stored)}", 1, header)
  types = _types(path / TRIALS, header, config)
  rows = [_row(path / TRIALS, k, own, types) for k, own in enumerate(lines, start=2)]
  probes = _read_probes(path / PROBES, types)
  return _Found(types, rows, read_curves(path / CURVES), probes)


class StoredTrial(NamedTuple):
  """What stands in a directory of a trial that has ended.

  Attributes:
    rows: one per threshold.
    curve: of the trial.
    probes: values by name; None if none were measured.
    weights: the directory in which they are; None if they were not kept.
  """

  rows: list[tuple]
  curve: np.ndarray
  probes: Mapping[str, float] | None
  weights: pathlib.Path | None

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
  header, lines = _lines(path, config)
  types = _types(path / TRIALS, header, config)
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
      _check_row(path / TRIALS, number, own, curve)
    kept = (path / weights.path_of(name)).exists()
    found[name] = StoredTrial(rows, curve, probes.get(name), path if kept else None)
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
  header, lines = _lines(path, config)
  types = _types(path / TRIALS, header, config)
  found = _grouped(path / TRIALS, lines, types, _thresholds(config.get("settings", {})))
  return {
    name: [dict(zip(types, row, strict=True)) for row in rows]
    for name, (_, rows) in found.items()
  }


def _lines(
  path: pathlib.Path, config: Mapping[str, Any]
) -> tuple[list[str], list[list[str]]]:
  """Header and whole lines of the rows of a run that lasts."""
  content = (path / TRIALS).read_bytes() if (path / TRIALS).exists() else b""
  content = content[: content.rfind(b"\n") + 1]  # the last line may be cut short
  header, *lines = read_csv(path / TRIALS, content) or [list(config.get("columns", {}))]
  return header, lines


def later(name: str, one: StoredTrial, other: StoredTrial) -> StoredTrial:
  """What counts of a trial that stands in two places: the same, or the larger budget's.

  Raises:
    InvalidSetting: if it came to something else.
  """
  if one.text == other.text:
    probes = {**(one.probes or {}), **(other.probes or {})} or None
    return one._replace(probes=probes, weights=one.weights or other.weights)
  for less, more in ((one, other), (other, one)):
    most = max(row[-2] for row in more.rows)
    if any(row[-1] == "censored" and row[-2] < most for row in less.rows):
      return more
  takes = f"one outcome of {name}: shares have {one.rows} and {other.rows}"
  raise InvalidSetting("output_dir", "", takes)


def _so_far(path: pathlib.Path, config: Mapping[str, Any]) -> _Found:
  """The trials that have ended, in a directory and its shares."""
  trials: dict[str, StoredTrial] = {}
  # Shares first: what a run takes up from them stands in both places for a moment.
  for place in (*shares.there(path).values(), path):
    if not (place / CONFIG).exists():  # it is just beginning
      continue
    own = config if place == path else read_config(place / CONFIG)
    for name, trial in so_far(place, own).items():
      trials[name] = later(name, trials[name], trial) if name in trials else trial
  header, _ = _lines(path, config)
  types = _types(path / TRIALS, header, config)
  width = len(coordinates(types)) + 1
  heads = [(trial.rows[0][:width], trial.probes) for trial in trials.values()]
  return _Found(
    types,
    [row for trial in trials.values() for row in trial.rows],
    {name: trial.curve for name, trial in trials.items()},
    probe_table(heads, types),
    {name: trial.weights for name, trial in trials.items() if trial.weights},
  )


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
    row = _row(path, number, fields, types)
    name = _name(row, types)
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


def _ended(found: _Found, config: Mapping[str, Any]) -> dict[str, set[int]]:
  """Indices of the trials that need not run again, by the cell's name."""
  budgets = config.get("budgets", {})
  ended: dict[str, set[int]] = {}
  outgrown: dict[str, set[int]] = {}
  for row in found.rows:
    cell, _, trial = _name(row, found.types).rpartition("/trial=")
    again = row[-1] == "censored" and row[-2] < budgets.get(cell, 0)
    (outgrown if again else ended).setdefault(cell, set()).add(int(trial))
  return {cell: own - outgrown.get(cell, set()) for cell, own in ended.items()}


def _name(row: Sequence[Any], types: Columns) -> str:
  values = dict(zip(types, row, strict=True))
  return cell_name({name: values[name] for name in (*coordinates(types), "trial")})


def _types(
  path: pathlib.Path, header: Sequence[str], config: Mapping[str, Any]
) -> dict[str, type]:
  """Types of these columns."""
  stored = config.get("columns", {})
  known = all(name in stored for name in header) if stored else len(set(header)) > 4
  if not (known and "trial" in header and header[-1] == "outcome"):
    raise refused(path, f"the header {','.join(stored) or 'of a run'}", 1, header)
  return {name: TYPES[stored[name]] if stored else _type(name) for name in header}


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
    _check_row(path, number, own, records.all_curves[name])
    seen.add(name)
    before, last = name, threshold


def _check_row(
  path: pathlib.Path, number: int, own: Mapping[str, Any], curve: np.ndarray
) -> None:
  """Refuses a row that its trial's curve contradicts."""
  if says := contradiction_alone(curve, own):
    takes = f"what follows from the trial's curve, which says {says}"
    raise refused(path, takes, number, [str(value) for value in own.values()])


def _read_probes(path: pathlib.Path, types: Columns) -> np.ndarray | None:
  """The table of a complete run, as it stands."""
  if not path.exists():
    return None
  names, *lines = read_csv(path) or [[]]
  heads = (*coordinates(types), "trial")
  if tuple(names[: len(heads)]) != heads or len(set(names)) < len(names):
    raise refused(path, f"a header that begins with {','.join(heads)}", 1, names)
  own = {name: types[name] if name in heads else float for name in names}
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
