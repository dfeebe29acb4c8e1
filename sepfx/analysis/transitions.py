"""At which step trials on fresh batches go from chance to what was to be learned."""

from __future__ import annotations

from typing import Any

import numpy as np

from sepfx.analysis.passages import Checks, cell_means
from sepfx.analysis.series import series
from sepfx.ensembles import Records


def transitions(
  records: Records, batch_size: np.ndarray, checks: Checks
) -> dict[str, Any]:
  """Summarises the records of a run of one threshold.

  Args:
    records: with one threshold.
    batch_size: samples per step, [rows].
    checks: of each row, in steps.

  Returns:
    JSON values: `cells`, with for each cell `steps`, the transition of each trial that
    has learned, ascending; how many trials there were and how each ended; and what
    `sepfx.analysis.passages.Mean` says of the number of steps.
  """
  cells = []
  rows = records.table
  names = series(records, ("length",))
  for length, name in dict.fromkeys(zip(rows["length"].tolist(), names, strict=True)):
    chosen = (rows["length"] == length) & (names == name)
    own = rows[chosen]
    steps = own["samples"] // batch_size[chosen].astype(int)
    reached = own["outcome"] == "reached"
    outcomes = own["outcome"].tolist()
    (found,) = cell_means(steps, reached, checks.at(chosen), own["length"]).values()
    cells.append(
      {
        "series": str(name),
        **{c: own[c][0].item() for c in records.coordinates},
        "batch_size": int(batch_size[chosen][0]),
        "steps": sorted(steps[reached].tolist()),
        "trials": len(own),
        **{o: outcomes.count(o) for o in ("reached", "censored", "diverged")},
        **{k: None if np.isnan(v) else v for k, v in found._asdict().items()},
      }
    )
  return {"cells": cells}
