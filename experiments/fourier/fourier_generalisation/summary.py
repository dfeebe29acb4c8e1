"""The generalisation gap of trials on fixed samples, and what it grows with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.stats

from sepfx.ensembles import Records
from sepfx.statistics.intervals import CONFIDENCE, student_interval
from sepfx.statistics.series import series


def summarise_gaps(records: Records, axes: Sequence[str]) -> dict[str, Any]:
  """Summarises runs whose trials have the probe `generalisation`.

  Trials of one index share what their functions are drawn from, whatever the axes: fits
  and correlations have intervals of a jackknife over indices (`clustered`).

  Args:
    records: of runs on fixed samples, with probes.
    axes: two numeric columns, such as degree and num_components.

  Returns:
    JSON values. `cells`: for each its coordinates, `trials`, `reached`, and the mean with
    its 95% Student-t interval of each probe's value over those that reached
    ("gap", "gap_low", ...), and over all at their last check ("gap_all", ...), with the
    median, the least and the largest ("gap_median", "gap_least", "gap_most", ...); None
    where there is none. Gaps are skewed, so that Student's interval of a few of them is
    too narrow. `fits` by series: log gap = a + b log x + c log y + e log x log y over
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
      **clustered(fit_gap, trial[fitted], x[fitted], y[fitted], gap[fitted]),
    }
    correlations[name] = {
      kind: {
        "trials": int(rows.sum()),
        **clustered_correlation(trial[rows], x[rows] * y[rows], gap[rows]),
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
  found: tuple[float, ...] = (np.nan,) * 6
  if len(finite):
    ranked = (np.median(finite), np.min(finite), np.max(finite))
    found = (*student_interval(finite), *map(float, ranked))
  ends = ("", "_low", "_high", "_median", "_least", "_most")
  keys = [f"{name}{end}" for end in ends]
  return {k: None if np.isnan(v) else v for k, v in zip(keys, found, strict=True)}


def fit_gap(x: np.ndarray, y: np.ndarray, gap: np.ndarray) -> dict[str, float]:
  """log gap = a + b log x + c log y + e log x log y; nothing if undetermined."""
  columns = [np.ones(len(x)), np.log(x), np.log(y), np.log(x) * np.log(y)]
  solution, _, rank, _ = np.linalg.lstsq(np.stack(columns, 1), np.log(gap), rcond=None)
  if rank < len(columns):
    return {}
  return dict(zip(("a", "b", "c", "e"), solution.tolist(), strict=True))


def rank_correlation(score: np.ndarray, gap: np.ndarray) -> dict[str, float]:
  if len(np.unique(score)) < 2 or len(np.unique(gap)) < 2:
    return {}
  return {"rho": float(scipy.stats.spearmanr(score, gap).statistic)}


def clustered_correlation(
  clusters: np.ndarray, score: np.ndarray, gap: np.ndarray
) -> dict[str, float | None]:
  """`clustered` of `rank_correlation`, cut at -1 and 1."""
  found = clustered(rank_correlation, clusters, score, gap)
  for key, value in found.items():
    if value is not None:
      found[key] = min(max(value, -1.0), 1.0)
  return found


def clustered(
  estimate: Callable[..., dict[str, float]], clusters: np.ndarray, *data: np.ndarray
) -> dict[str, float | None]:
  """An estimate with the 95% intervals of a jackknife over clusters.

  The estimate is made again without each of the G clusters. The interval has Student's
  quantile of G - 1 degrees of freedom. Where all clusters have the same design and
  the estimate is of least squares, it is Student's interval of the clusters' own
  estimates.

  Args:
    estimate: named numbers of rows; none where they do not determine them.
    clusters: of each row.
    *data: of each row, what `estimate` takes.

  Returns:
    "x", "x_low" and "x_high" for each "x". The ends are None for a single cluster, and
    where the estimate is undetermined without one of them.
  """
  found: dict[str, float | None] = dict(estimate(*data))
  names = np.unique(clusters)
  G = len(names)
  left = [
    estimate(*(a[clusters != name] for a in data))
    for name in (names if found and G > 1 else ())
  ]
  for key, value in list(found.items()):
    ends: tuple[float | None, float | None] = (None, None)
    if left and value is not None and all(key in own for own in left):
      # The error of a mean of G pseudo-values that differ by (G - 1) times as much.
      error = (G - 1) * scipy.stats.sem([own[key] for own in left])
      half = float(error * scipy.stats.t.ppf((1 + CONFIDENCE) / 2, G - 1))
      ends = (value - half, value + half)
    found[f"{key}_low"], found[f"{key}_high"] = ends
  return found
