"""At which step trials on fresh batches go from chance to what was to be learned."""

from __future__ import annotations

from typing import Any

import numpy as np

from sepfx.analysis.series import series
from sepfx.analysis.statistics import restricted_mean
from sepfx.ensembles import Records


def transitions(
  records: Records, batch_size: np.ndarray, max_steps: np.ndarray
) -> list[dict[str, Any]]:
  """Summarises the records of a run of one threshold.

  Args:
    records: with one threshold.
    batch_size: samples per step, [rows].
    max_steps: steps after which a trial is censored, [rows].

  Returns:
    JSON values, one for each cell: `steps`, the transition of each trial that has
    learned, ascending; how many trials there were and how each ended; and the mean
    number of steps with its 95% interval, a lower bound where `restricted`.
  """
  summary = []
  rows = records.table
  names = series(records, ("length",))
  for length, name in dict.fromkeys(zip(rows["length"].tolist(), names, strict=True)):
    chosen = (rows["length"] == length) & (names == name)
    own = rows[chosen]
    steps = own["samples"] // batch_size[chosen].astype(int)
    reached = own["outcome"] == "reached"
    outcomes = own["outcome"].tolist()
    mean = restricted_mean(steps, reached, int(max_steps[chosen][0]))._asdict()
    summary.append(
      {
        "series": str(name),
        **{c: own[c][0].item() for c in records.coordinates},
        "batch_size": int(batch_size[chosen][0]),
        "steps": sorted(steps[reached].tolist()),
        "trials": len(own),
        **{o: outcomes.count(o) for o in ("reached", "censored", "diverged")},
        **{k: None if np.isnan(v) else v for k, v in mean.items()},
      }
    )
  return summary
