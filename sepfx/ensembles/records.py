"""Results of trials, and their form as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from sepfx.ensembles.cells import Cell

_TEXT = ("task", "model", "outcome")
_NUMBERS = {"threshold": float, "accuracy": float, "risk": float}  # all others: int


def columns(cell: Cell) -> tuple[str, ...]:
  """Names of what a row of the cell's grid holds."""
  return (*cell.coordinates, "trial", *cell.trial.columns)


class Result(NamedTuple):
  """A trial that has ended."""

  cell: Cell
  trial: int
  outcomes: Sequence[tuple]
  curve: np.ndarray  # of `sepfx.training.Trial.curve`

  @property
  def name(self) -> str:
    """The cell's name with the trial's index: the key of its curve."""
    return trial_name(self.cell, self.trial)

  @property
  def rows(self) -> list[tuple]:
    """Its rows: `columns` of its cell."""
    coordinates = tuple(self.cell.coordinates.values())
    return [(*coordinates, self.trial, *outcome) for outcome in self.outcomes]


def trial_name(cell: Cell, trial: int) -> str:
  """The name of one trial of a cell."""
  return f"{cell.name}/trial={trial}"


def _type(column: str) -> type:
  return str if column in _TEXT else _NUMBERS.get(column, int)


def parse_row(fields: list[str], names: Sequence[str]) -> tuple:
  """Returns a row from its text fields; raises ValueError if it is not one.

  Args:
    fields: the text.
    names: of the columns.
  """
  row = tuple(_type(name)(field) for name, field in zip(names, fields, strict=True))
  if row[-1] not in ("reached", "censored", "diverged"):
    raise ValueError(f"unknown outcome {row[-1]!r}")
  return row


def table(rows: Iterable[tuple], names: Sequence[str]) -> np.ndarray:
  """Returns rows as a structured array with these fields.

  `pandas.DataFrame(table(rows, names))` works as one expects.
  """
  rows = list(rows)
  dtype = []
  for k, name in enumerate(names):
    width = max((len(row[k]) for row in rows), default=1) if name in _TEXT else None
    dtype.append((name, f"U{width}" if width else np.dtype(_type(name))))
  return np.array(rows, dtype=dtype)
