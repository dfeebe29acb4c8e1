"""Cells of one run held against its first, trial by trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sepfx.ensembles import Records
from sepfx.statistics.intervals import student_interval


def summarise_paired(
  records: Records,
  groups: Mapping[str, Any],
  *,
  differences: Sequence[str],
  ratios: Sequence[str],
) -> list[dict[str, Any]]:
  """Compares probes' values between cells whose trials share their seeds.

  Args:
    records: with probes.
    groups: each cell's, by name. Cells of one group share their functions and samples:
      the first of them is what the others are held against.
    differences: probes' values of which the mean is taken, and that of the difference.
    ratios: positive values of which the geometric means are, of themselves and of ratios.

  Returns:
    JSON values of each cell: its coordinates, `trials`, `reached`, and over those that
    reached the mean of each value X with its 95% Student-t interval (X, "X_low",
    "X_high"); `pairs`, how many reached in both cells, and over these "X_change", a
    difference or a ratio, with its interval. None where there is none.
  """
  probes, table = records.probes, records.table
  assert probes is not None
  names = [*records.coordinates, "trial"]
  place = {tuple(row[name].item() for name in names): k for k, row in enumerate(probes)}
  values = probes[[place[tuple(row[name].item() for name in names)] for row in table]]
  own = np.array([records.cell_of(row) for row in table])
  reached = table["outcome"] == "reached"
  first: dict[Any, dict[int, int]] = {}  # of each group: trial -> row
  found = []
  for cell in dict.fromkeys(own.tolist()):
    rows = np.flatnonzero(own == cell)
    head = table[rows[0]]
    base = first.setdefault(
      groups[cell],
      {int(table[row]["trial"]): int(row) for row in rows if reached[row]},
    )
    used = [row for row in rows if reached[row]]
    mine = [row for row in used if int(table[row]["trial"]) in base]
    others = [base[int(table[row]["trial"])] for row in mine]
    entry: dict[str, Any] = {
      **{name: head[name].item() for name in records.coordinates},
      "trials": len(rows),
      "reached": len(used),
      "pairs": len(mine),
    }
    for name in differences:
      entry.update(_interval(name, values[name][used]))
      change = values[name][mine] - values[name][others]
      entry.update(_interval(f"{name}_change", change))
    for name in ratios:
      logs = np.log(values[name])
      entry.update(_exponentials(_interval(name, logs[used])))
      entry.update(_exponentials(_interval(f"{name}_change", logs[mine] - logs[others])))
    found.append(entry)
  return found


def _interval(name: str, values: np.ndarray) -> dict[str, float | None]:
  own = student_interval(values) if len(values) else (np.nan,) * 3
  keys = (name, f"{name}_low", f"{name}_high")
  return {
    key: float(value) if np.isfinite(value) else None
    for key, value in zip(keys, own, strict=True)
  }


def _exponentials(values: dict[str, float | None]) -> dict[str, float | None]:
  return {k: None if v is None else float(np.exp(v)) for k, v in values.items()}
