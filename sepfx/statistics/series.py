"""Which records belong together: lines of a figure, rows of a table."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from sepfx import specifications
from sepfx.ensembles import Records

# Columns in which runs that are drawn together may differ, without being other cells:
# a long run of a few lengths beside a short one of all.
BUDGETS = ("max_samples", "max_steps", "check_every")
# What stands on an axis, with a letter of the papers.
_LABELS = {
  "length": "length N",
  "sparsity": "sparsity q",
  "token_dim": "dimension d",
  "num_heads": "heads H",
  "link_width": "width of the link m_g",
}


def label_of(axis: str) -> str:
  """What stands on an axis: "length N"."""
  return _LABELS.get(axis, axis.replace("_", " "))


def letter_of(axis: str) -> str:
  """The papers' letter for an axis: "N". Its name if it has none."""
  return _LABELS.get(axis, axis).rpartition(" ")[2]


def typeset(axis: str) -> str:
  """An axis's letter as mathematics, for matplotlib: "N", or a name upright."""
  letter = letter_of(axis)
  if axis in _LABELS:
    return letter
  return rf"\mathrm{{{letter.replace('_', ' ')}}}".replace(" ", r"\ ")


def telling_apart(records: Records) -> tuple[str, ...]:
  """The coordinates without budgets; all of them where budgets alone tell some apart."""
  without = tuple(name for name in records.coordinates if name not in BUDGETS)
  cells, fewer = (
    np.unique(records.table[list(names)]) for names in (records.coordinates, without)
  )
  return without if len(fewer) == len(cells) else records.coordinates


def series(records: Records, against: Collection[str]) -> np.ndarray:
  """Names what each row is a point of: the model, and all else that is not drawn along.

  Args:
    records: of one run or several.
    against: columns along which one series has several points.

  Returns:
    Such as "gru" or "gru, learning_rate=0.003", [rows]; settings that all rows share are
    not named.
  """
  told_apart = [
    column
    for column in telling_apart(records)
    if column not in ("model", *against) and len(np.unique(records.table[column])) > 1
  ]
  names = []
  for row in records.table:
    others = [
      f"{column}={specifications.canonical(row[column])}" for column in told_apart
    ]
    names.append(", ".join([str(row["model"]), *others]))
  return np.array(names, dtype=str)
