"""Critical sample sizes of chains, in strings and in labels, and the errors of steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from sepfx.ensembles import Records
from sepfx.statistics.intervals import student_interval
from sepfx.statistics.series import series
from sepfx.statistics.success_summary import summarise_success

# Share of wrong labels on its own sample below which a trial has fitted it.
_FITTED = 0.01
_PROBED = ("step_error", "chain_error", "union_bound")


def summarise_chains(records: Records, labels: np.ndarray) -> dict[str, Any]:
  """Summarises runs on fixed samples whose trials have the probe `chain`.

  Args:
    records: with curves and probes.
    labels: of each string, by row of the table.

  Returns:
    `sepfx.statistics.summarise_success` without a floor. Each of `critical` has
    `labels_per_string`; `trials`, `failed`, how many did not succeed, and
    `failed_fitted`, how many of these had less than 1% of the labels of their sample
    wrong at their last check.
    Further `steps`, for each series and length: the means over those trials that
    succeeded, at their end, of `step_error`, `chain_error` and `union_bound`, each with
    its 95% Student-t interval, from 0 on; None where there is none.
  """
  summary = summarise_success(records, {})
  names, table = series(records, ("length", "sample_size")), records.table
  assert records.probes is not None
  probed = {records.name_of(row): row for row in records.probes}
  reached = table["outcome"] == "reached"
  steps = []
  for entry in summary["critical"]:
    own = (names == entry["series"]) & (table["length"] == entry["length"])
    failed = table[own & ~reached]
    curves = [records.all_curves[records.name_of(row)] for row in failed]
    entry.update(
      labels_per_string=int(labels[own][0]),
      trials=int(np.sum(own)),
      failed=len(failed),
      failed_fitted=sum(bool(curve["train_error"][-1] < _FITTED) for curve in curves),
    )
    rows = [probed[records.name_of(row)] for row in table[own & reached]]
    found = {"series": entry["series"], "length": entry["length"], "trials": len(rows)}
    for name in _PROBED:
      found.update(_interval(name, np.array([row[name] for row in rows])))
    steps.append(found)
  return {**summary, "steps": steps}


def _interval(name: str, errors: np.ndarray) -> dict[str, float | None]:
  mean, low, high = student_interval(errors) if len(errors) else (np.nan,) * 3
  found = {name: mean, f"{name}_low": np.maximum(low, 0.0), f"{name}_high": high}
  return {k: None if np.isnan(v) else float(v) for k, v in found.items()}
