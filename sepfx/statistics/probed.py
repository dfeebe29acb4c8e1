"""What probes measured, cell by cell."""

from __future__ import annotations

from typing import Any

import numpy as np

from sepfx.ensembles import Records
from sepfx.statistics.intervals import student_interval


def summarise_probes(records: Records) -> list[dict[str, Any]]:
  """Means of probes' values over the trials of each cell.

  Args:
    records: with probes.

  Returns:
    JSON values of each cell: its coordinates, and under "probes" by the value's name
    `trials`, those in which it is finite, `mean`, and its 95% Student-t interval `low`,
    `high`. None for what too few trials tell.
  """
  assert records.probes is not None
  names = [
    name
    for name in records.probes.dtype.names or ()
    if name not in (*records.coordinates, "trial")
  ]
  cells = np.array([records.cell_of(row) for row in records.probes])
  found = []
  for cell in dict.fromkeys(cells.tolist()):
    rows = records.probes[cells == cell]
    head = {name: rows[name][0].item() for name in records.coordinates}
    found.append({**head, "probes": {name: _mean(rows[name]) for name in names}})
  return found


def _mean(values: np.ndarray) -> dict[str, Any]:
  finite = values[np.isfinite(values)]
  mean, low, high = student_interval(finite) if len(finite) else (np.nan,) * 3
  own = {"mean": mean, "low": low, "high": high}
  known = {k: float(v) if np.isfinite(v) else None for k, v in own.items()}
  return {"trials": len(finite), **known}
