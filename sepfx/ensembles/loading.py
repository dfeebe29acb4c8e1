"""What a run left, for analysis in Python."""

from __future__ import annotations

import csv
import os
import pathlib

import numpy as np

from sepfx.ensembles import weights
from sepfx.ensembles.records import TYPES, Columns, Records, parse_row, parse_value, table
from sepfx.ensembles.run_directory import CONFIG, read_config
from sepfx.errors import InvalidSetting

# Types of the columns of the first layout, which did not write them down.
_TEXT = ("task", "model", "outcome")
_NUMBERS = ("threshold", "accuracy", "risk")


def load(directory: str | os.PathLike) -> Records:
  """Reads the directory of a complete run.

  Args:
    directory: `--output_dir` of the run.

  Returns:
    Its records. `load(...).table` is what pandas reads; `models` has, for runs with
    `--keep_weights`, each trial's module with its weights.

  Raises:
    InvalidSetting: if it is not the directory of a complete run.
  """
  path = pathlib.Path(directory)
  try:
    (path / "summary.json").stat()  # is written last
    config = read_config(path / CONFIG)
    with open(path / "trials.csv", newline="") as file:
      names, *lines = csv.reader(file)
    stored = config.get("columns", {})
    types = {name: TYPES[stored[name]] if stored else _type(name) for name in names}
    records = table((parse_row(fields, types) for fields in lines), types)
    with np.load(path / "curves.npz") as file:
      curves = dict(file)
    probes = _read_probes(path / "probes.csv", types)
  except (OSError, ValueError, KeyError) as error:
    takes = f"the directory of a complete run ({error})"
    raise InvalidSetting("directory", str(directory), takes) from error
  coordinates = tuple(names[: names.index("trial")])
  return Records(
    records,
    coordinates,
    curves,
    probes,
    config["settings"],
    weights.Kept(path, list(curves)),
  )


def _read_probes(path: pathlib.Path, types: Columns) -> np.ndarray | None:
  if not path.exists():
    return None
  with open(path, newline="") as file:
    names, *lines = csv.reader(file)
  own = {name: types.get(name, float) for name in names}
  rows = (tuple(map(parse_value, fields, own.values())) for fields in lines)
  return table(rows, own)


def _type(column: str) -> type:
  return str if column in _TEXT else float if column in _NUMBERS else int
