"""Results of trials, and their form as a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from sepfx.ensembles.cells import Cell
from sepfx.training import Curve, Passage

COLUMNS = ("task", "model", "length", "trial", "threshold", "samples", "outcome")
_TEXT = ("task", "model", "outcome")
_TYPES: dict[str, type] = {
  "length": int,
  "trial": int,
  "threshold": float,
  "samples": int,
}


class Result(NamedTuple):
  """A trial that has ended."""

  cell: Cell
  trial: int
  passages: list[Passage]
  curve: Curve

  @property
  def name(self) -> str:
    """The cell's name with the trial's index: the key of its curve."""
    return trial_name(self.cell, self.trial)

  @property
  def rows(self) -> list[tuple]:
    """One row of `COLUMNS` a threshold."""
    coordinates = tuple(self.cell.coordinates.values())
    return [(*coordinates, self.trial, *passage) for passage in self.passages]


def trial_name(cell: Cell, trial: int) -> str:
  """The name of one trial of a cell."""
  return f"{cell.name}/trial={trial}"


def parse_row(fields: list[str]) -> tuple:
  """Returns a row from its text fields; raises ValueError if it is not one."""
  row = tuple(
    _TYPES.get(column, str)(field) for column, field in zip(COLUMNS, fields, strict=True)
  )
  if row[-1] not in ("reached", "censored", "diverged"):
    raise ValueError(f"unknown outcome {row[-1]!r}")
  return row


def table(rows: Iterable[tuple]) -> np.ndarray:
  """Returns rows as a structured array with fields `COLUMNS`.

  `pandas.DataFrame(table(rows))` works as one expects.
  """
  rows = list(rows)
  widths = {
    column: max((len(row[COLUMNS.index(column)]) for row in rows), default=1)
    for column in _TEXT
  }
  dtype = [
    (column, f"U{widths[column]}" if column in _TEXT else np.dtype(_TYPES[column]))
    for column in COLUMNS
  ]
  return np.array(rows, dtype=dtype)


def curve_array(curve: Curve) -> np.ndarray:
  """Returns a curve as one structured array with fields samples, loss, exact."""
  dtype = [("samples", np.int64), ("loss", np.float32), ("exact", np.bool_)]
  array = np.empty(len(curve.samples), dtype)
  for name, values in curve._asdict().items():
    array[name] = values
  return array
