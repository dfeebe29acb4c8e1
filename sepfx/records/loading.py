"""What a run left, for analysis in Python."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from sepfx.ensembles.results import (
  Columns,
  Records,
  parse_value,
  probe_table,
  table,
)
from sepfx.errors import InvalidSetting
from sepfx.records import digests, shares, weights
from sepfx.records.agreement import check_files, missing
from sepfx.records.config import CONFIG, read_config
from sepfx.records.reading import (
  read_csv,
  read_curves,
  refused,
)
from sepfx.records.run_directory import (
  CURVES,
  PROBES,
  SUMMARY,
  TRIALS,
  ReadDirectory,
)
from sepfx.records.stored_trials import coordinates
from sepfx.records.unfinished import (
  StoredTrial,
  check_row,
  has_rows,
  later,
  lines_of,
  name_of_row,
  row_of,
  so_far,
  types_of,
)
from sepfx.trusted import known_classes


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
  types = types_of(path / TRIALS, header, config)
  rows = [row_of(path / TRIALS, k, own, types) for k, own in enumerate(lines, start=2)]
  probes = _read_probes(path / PROBES, types)
  return _Found(types, rows, read_curves(path / CURVES), probes)


def _so_far(path: pathlib.Path, config: Mapping[str, Any]) -> _Found:
  """The trials that have ended, in a directory and its shares."""
  trials: dict[str, StoredTrial] = {}
  # Shares first: what a run takes up from them stands in both places for a moment.
  for place in (*shares.there(path).values(), path):
    if not ((place / CONFIG).exists() or has_rows(place)):  # it is just beginning
      continue
    own = config if place == path else ReadDirectory(place).stored or {}
    for name, trial in so_far(place, own).items():
      trials[name] = later(name, trials[name], trial) if name in trials else trial
  header, _ = lines_of(path, config)
  types = types_of(path / TRIALS, header, config)
  width = len(coordinates(types)) + 1
  heads = [(trial.rows[0][:width], trial.probes) for trial in trials.values()]
  return _Found(
    types,
    [row for trial in trials.values() for row in trial.rows],
    {name: trial.curve for name, trial in trials.items()},
    probe_table(heads, types),
    {name: trial.weights for name, trial in trials.items() if trial.weights},
  )


def _ended(found: _Found, config: Mapping[str, Any]) -> dict[str, set[int]]:
  """Indices of the trials that need not run again, by the cell's name."""
  budgets = config.get("budgets", {})
  ended: dict[str, set[int]] = {}
  outgrown: dict[str, set[int]] = {}
  for row in found.rows:
    cell, _, trial = name_of_row(row, found.types).rpartition("/trial=")
    again = row[-1] == "censored" and row[-2] < budgets.get(cell, 0)
    (outgrown if again else ended).setdefault(cell, set()).add(int(trial))
  return {cell: own - outgrown.get(cell, set()) for cell, own in ended.items()}


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
    check_row(path, number, own, records.all_curves[name])
    seen.add(name)
    before, last = name, threshold


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
      pairs = [(f or "nan", k) for f, k in zip(fields, own.values(), strict=True)]
      rows.append(tuple(parse_value(field, kind) for field, kind in pairs))
    except ValueError as error:
      takes = f"a row of a trial's probes ({error})"
      raise refused(path, takes, number, fields) from error
  return table(rows, own)
