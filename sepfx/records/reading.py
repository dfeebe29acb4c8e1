"""Reads the files of a run's trials; one that is damaged is refused in words."""

from __future__ import annotations

import csv
import io
import itertools
import json
import pathlib
from collections.abc import Collection, Sequence

import numpy as np

from sepfx.ensembles.cells import cell_name
from sepfx.ensembles.results import Columns, parse_value
from sepfx.errors import InvalidSetting


def read_csv(path: pathlib.Path, content: bytes | None = None) -> list[list[str]]:
  """Returns the lines of a file, each as its fields.

  Args:
    path: of the file.
    content: what to read of it; None for all.

  Raises:
    InvalidSetting: if it is no text of such lines.
    OSError: if it cannot be read.
  """
  content = path.read_bytes() if content is None else content
  try:
    return list(csv.reader(io.StringIO(content.decode(), newline="")))
  except UnicodeDecodeError as error:
    line = content.count(b"\n", 0, error.start) + 1
    raise refused(path, f"text in UTF-8 (a byte of line {line} is none)") from error
  except csv.Error as error:
    raise refused(path, f"comma-separated values ({error})") from error


def read_curves(path: pathlib.Path) -> dict[str, np.ndarray]:
  """Returns the curves of an archive by name.

  Raises:
    InvalidSetting: if it is damaged: what is right of it cannot be told.
    OSError: if it cannot be read.
  """
  content = path.read_bytes()
  try:
    with np.load(io.BytesIO(content)) as file:
      curves = dict(file)
    if not all(map(_is_curve, curves.values())):
      raise ValueError("it holds something else")
  except Exception as error:  # zipfile, zlib and NumPy raise many kinds
    takes = f"curves as a run wrote them: it is damaged ({error}). Put a copy in its "
    takes += "place; or move it away, and the trials run again"
    raise refused(path, takes) from error
  return curves


def read_curve(path: pathlib.Path) -> np.ndarray | None:
  """Returns the curve of one file; None if it is damaged."""
  content = path.read_bytes()
  try:
    curve = np.load(io.BytesIO(content))
  except Exception:  # NumPy raises many kinds
    return None
  return curve if _is_curve(curve) else None


def read_own_probes(path: pathlib.Path) -> dict[str, float] | None:
  """Returns the values of one trial's probes; None if the file is damaged."""
  try:
    values = json.loads(path.read_bytes())
  except (ValueError, RecursionError):
    return None
  numbers = isinstance(values, dict) and all(
    isinstance(value, int | float) for value in values.values()
  )
  return values if numbers else None


def read_probes(
  path: pathlib.Path, types: Columns, optional: Collection[str] = ()
) -> dict[str, dict[str, float]]:
  """Returns the values of probes.csv by the trial's name: those that were measured.

  Args:
    path: of the file.
    types: of the columns of trials.csv.
    optional: columns that need not be there.

  Raises:
    InvalidSetting: if it is malformed.
    OSError: if it cannot be read.
  """
  header, *lines = read_csv(path) or [[]]
  heads = [*itertools.takewhile(lambda name: name != "trial", types), "trial"]
  heads = [name for name in heads if name in header or name not in optional]
  if header[: len(heads)] != heads:
    raise refused(path, f"a header that begins with {','.join(heads)}", 1, header)
  found = {}
  for number, fields in enumerate(lines, start=2):
    try:
      row = {
        name: parse_value(field, types[name] if name in heads else float)
        for name, field in zip(header, fields, strict=True)
        if field or name in heads
      }
    except ValueError as error:
      takes = f"a row of a trial's probes ({error})"
      raise refused(path, takes, number, fields) from error
    trial = cell_name({name: row.pop(name) for name in heads})
    found[trial] = row
  return found


def refused(
  path: pathlib.Path, takes: str, number: int = 0, fields: Sequence[str] = ()
) -> InvalidSetting:
  """What is raised for a file, or for one of its lines."""
  where = f"{path}, line {number}" if number else str(path)
  if fields:
    line = ",".join(fields)
    where += f": {line if len(line) <= 200 else line[:200] + '...'}"
  return InvalidSetting("output_dir", where, takes)


def _is_curve(array: object) -> bool:
  return isinstance(array, np.ndarray) and array.ndim == 1 and bool(array.dtype.names)
