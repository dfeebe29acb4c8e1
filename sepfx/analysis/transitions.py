"""At which step trials on fresh batches go from chance to what was to be learned."""

from __future__ import annotations

from typing import Any

import numpy as np

from sepfx.analysis.statistics import restricted_mean


def transitions(
  records: np.ndarray, batch_size: int, max_steps: int
) -> list[dict[str, Any]]:
  """Summarises the records of a run of one threshold.

  Args:
    records: structured array with the columns of `trials.csv`.
    batch_size: samples a step.
    max_steps: steps after which a trial is censored.

  Returns:
    JSON values, one a task and length: `steps`, the transition of each trial that has
    learned, ascending; how many trials there were and how each ended; and the mean
    number of steps with its 95% interval, a lower bound where `restricted`.
  """
  summary = []
  for task, length in dict.fromkeys(records[["task", "length"]].tolist()):
    own = records[(records["task"] == task) & (records["length"] == length)]
    steps, reached = own["samples"] // batch_size, own["outcome"] == "reached"
    outcomes = own["outcome"].tolist()
    mean = restricted_mean(steps, reached, max_steps)._asdict()
    summary.append(
      {
        "task": task,
        "length": length,
        "steps": sorted(steps[reached].tolist()),
        "trials": len(own),
        **{o: outcomes.count(o) for o in ("reached", "censored", "diverged")},
        **{k: None if np.isnan(v) else v for k, v in mean.items()},
      }
    )
  return summary
