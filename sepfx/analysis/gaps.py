"""The generalisation gap of trials on fixed samples, and what it grows with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.stats

from sepfx.analysis.series import series
from sepfx.analysis.statistics import CONFIDENCE, student_interval
from sepfx.ensembles import Records

_RESAMPLES = 1000


def summarise_gaps(records: Records, axes: Sequence[str]) -> dict[str, Any]:
  """Summarises runs whose trials have the probe `generalisation`.

  Trials of one index share what their functions are drawn from, whatever the axes: fits
  and correlations resample indices.

  Args:
    records: of runs on fixed samples, with probes.
    axes: two numeric columns, such as degree and num_components.

  Returns:
    JSON values. `cells`: for each its coordinates, `trials`, `reached`, and the mean with
    its 95% Student-t interval of each probe's value over those that reached
    ("gap", "gap_low", ...), and over all at their last check ("gap_all", ...); None where
    there is none. `fits` by series: log gap = a + b log x + c log y + e log x log y over
    trials that reached and whose gap is positive. `correlations` by series: Spearman's
    of the gap with the product x y, over those that reached and over all.
  """
  probes, names = records.probes, series(records, axes)
  assert probes is not None
  heads = _heads(records)
  values = [name for name in probes.dtype.names or () if name not in heads]
  place = {_key(records, row): k for k, row in enumerate(probes)}
  own = probes[[place[_key(records, row)] for row in records.table]]
  reached = records.table["outcome"] == "reached"
  cells = []
  for cell in dict.fromkeys(map(records.cell_of, records.table)):
    chosen = np.array([records.cell_of(row) == cell for row in records.table])
    first = records.table[chosen][0]
    entry = {
      "series": str(names[chosen][0]),
      **{c: first[c].item() for c in records.coordinates},
      "trials": int(chosen.sum()),
      "reached": int((chosen & reached).sum()),
    }
    for name in values:
      entry.update(_interval(name, own[name][chosen & reached]))
      entry.update(_interval(f"{name}_all", own[name][chosen]))
    cells.append(entry)
  x, y = (records.table[axis].astype(float) for axis in axes)
  trial, gap = records.table["trial"], own["gap"]
  fits, correlations = {}, {}
  for name in dict.fromkeys(names.tolist()):
    mine = (names == name) & np.isfinite(gap)
    fitted = mine & reached & (gap > 0)
    fits[name] = {
      "axes": list(axes),
      "trials": int(fitted.sum()),
      "left_out": int((names == name).sum() - fitted.sum()),
      **clustered(_fit, trial[fitted], x[fitted], y[fitted], gap[fitted]),
    }
    correlations[name] = {
      kind: {
        "trials": int(rows.sum()),
        **clustered(rank_correlation, trial[rows], x[rows] * y[rows], gap[rows]),
      }
      for kind, rows in (("reached", mine & reached), ("all", mine))
    }
  return {"cells": cells, "fits": fits, "correlations": correlations}


def _heads(records: Records) -> tuple[str, ...]:
  return (*records.coordinates, "trial")


def _key(records: Records, row: np.void) -> tuple:
  return tuple(row[name].item() for name in _heads(records))


def _interval(name: str, values: np.ndarray) -> dict[str, float | None]:
  finite = values[np.isfinite(values)]
  found = student_interval(finite) if len(finite) else (np.nan,) * 3
  keys = (name, f"{name}_low", f"{name}_high")
  return {k: None if np.isnan(v) else v for k, v in zip(keys, found, strict=True)}


def _fit(x: np.ndarray, y: np.ndarray, gap: np.ndarray) -> dict[str, float]:
  columns = [np.ones(len(x)), np.log(x), np.log(y), np.log(x) * np.log(y)]
  solution, _, rank, _ = np.linalg.lstsq(np.stack(columns, 1), np.log(gap), rcond=None)
  if rank < len(columns):
    return {}
  return dict(zip(("a", "b", "c", "e"), solution.tolist(), strict=True))


def rank_correlation(score: np.ndarray, gap: np.ndarray) -> dict[str, float]:
  if len(np.unique(score)) < 2 or len(np.unique(gap)) < 2:
    return {}
  return {"rho": float(scipy.stats.spearmanr(score, gap).statistic)}


def clustered(
  estimate: Callable[..., dict[str, float]], clusters: np.ndarray, *data: np.ndarray
) -> dict[str, float | None]:
  """An estimate with percentile intervals from resampled clusters (seed 0)."""
  found: dict[str, float | None] = dict(estimate(*data))
  names = np.unique(clusters)
  generator = np.random.default_rng(0)
  drawn: list[dict[str, float]] = []
  for _ in range(_RESAMPLES if found and len(names) > 1 else 0):
    chosen = generator.choice(names, len(names))
    rows = np.concatenate([np.flatnonzero(clusters == name) for name in chosen])
    drawn.append(estimate(*(a[rows] for a in data)))
  tail = 100 * (1 - CONFIDENCE) / 2
  for key in list(found):
    values = [own[key] for own in drawn if key in own]
    low, high = np.percentile(values, [tail, 100 - tail]) if values else (None, None)
    found[f"{key}_low"] = None if low is None else float(low)
    found[f"{key}_high"] = None if high is None else float(high)
  return found
