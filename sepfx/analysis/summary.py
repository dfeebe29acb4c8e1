"""What the records of a run say: means with intervals, and exponents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sepfx.analysis.bounded import CONFIDENCE, Bounds
from sepfx.analysis.levels import Level
from sepfx.analysis.passages import Checks, bounds_of, cell_means
from sepfx.analysis.scaling import fit_exponent, paired_ratio
from sepfx.analysis.series import series
from sepfx.ensembles import Records

# What a trial's keys come from, but for its index.
_KEYED = ("length", "sample_size")


def summarise(
  records: Records,
  levels: Sequence[Level],
  checks: Checks,
  uniform_risk: np.ndarray,
  keys: np.ndarray,
  against: str = "length",
) -> dict[str, Any]:
  """Summarises the records of a run, or of several.

  An exponent is fitted over the points at which the risk of uniform attention is above
  the threshold: where it is below, a model passes without finding the token that a
  position names, and its n says nothing about the task. Along an axis that is not in the
  trials' keys it is fitted to each trial index by itself, since these share their keys.

  Args:
    records: with thresholds.
    levels: what was to be reached.
    checks: how first passages were looked for, of each row.
    uniform_risk: risk of uniform attention, [rows]; NaN where there is no such line
      (then every point is fitted).
    keys: numbers what the keys of each row's trial come from but for its index, [rows].
    against: the numeric column that n is fitted against.

  Returns:
    JSON values: `against`; `levels`; `cells`, for each level and cell what
    `sepfx.analysis.passages.Mean` has, with the `resolution`, samples between two checks;
    `exponents`, one for each level and series; and `ratios`, for each level and cell
    whose trials share their keys with those of an earlier cell: its n divided by those of
    that cell, trial by trial. All with 95% intervals. `fraction` is None for an absolute
    threshold, and the `threshold` of an exponent or a ratio at a fraction is None. An
    exponent is `coarse` where one of the means that it is over is.
  """
  cells, exponents, ratios = [], [], []
  names = series(records, (against,))
  for level in levels:
    passages = of_level(records, level, uniform_risk)
    for name in dict.fromkeys(names[passages].tolist()):
      chosen = passages & (names == name)
      own, risk = records.table[chosen], uniform_risk[chosen]
      reached, own_checks = own["outcome"] == "reached", checks.at(chosen)
      means = cell_means(own["samples"], reached, own_checks, own[against])
      for place, mean in means.items():
        at = own[against] == place
        outcomes = own["outcome"][at].tolist()
        cells.append(
          {
            "series": name,
            **{c: own[c][at][0].item() for c in records.coordinates},
            **level.named,
            "threshold": level.threshold(float(risk[at][0])),
            "trials": len(outcomes),
            **{o: outcomes.count(o) for o in ("reached", "censored", "diverged")},
            "budget": int(own_checks.budget[at][0]),
            "resolution": int(own_checks.every[at][0]),
            **json_values(mean._asdict()),
          }
        )
      fitted = np.isnan(risk) | (risk > [level.threshold(each) for each in risk.tolist()])
      bounds = bounds_of(own["samples"], reached, own_checks)
      exponent = fit_exponent(
        own[against][fitted],
        Bounds(*(side[fitted] for side in bounds)),
        reached[fitted],
        paired=None if against in _KEYED else own["trial"][fitted],
      )
      if exponent is not None:
        exponents.append(
          {
            "series": name,
            "model": own["model"][0].item(),
            "against": against,
            **level.named,
            **json_values(exponent._asdict()),
            "coarse": any(means[place].coarse for place in exponent.over),
          }
        )
    for ratio in _ratios(records, passages, checks, keys):
      ratios.append({**level.named, **ratio})
  return {
    "confidence": CONFIDENCE,
    "against": against,
    "levels": [level._asdict() for level in levels],
    "cells": cells,
    "exponents": exponents,
    "ratios": ratios,
  }


def _ratios(
  records: Records, passages: np.ndarray, checks: Checks, keys: np.ndarray
) -> list[dict[str, Any]]:
  """Ratios of n, trial by trial, to the first cell whose trials share their keys."""
  own, own_checks = records.table[passages], checks.at(passages)
  bounds = bounds_of(own["samples"], own["outcome"] == "reached", own_checks)
  names = np.array([records.cell_of(row) for row in own])
  first: dict[int, str] = {}
  found = []
  for name in dict.fromkeys(names.tolist()):
    rows = np.flatnonzero(names == name)
    base = first.setdefault(int(keys[passages][rows[0]]), name)
    if base == name:
      continue
    others = {own["trial"][row].item(): row for row in np.flatnonzero(names == base)}
    mine = [row for row in rows if own["trial"][row].item() in others]
    theirs = [others[own["trial"][row].item()] for row in mine]
    ratio = paired_ratio(*(Bounds(*(s[k] for s in bounds)) for k in (mine, theirs)))
    if ratio is not None:
      head, to = own[rows[0]], own[others[min(others)]]
      columns = [c for c in records.coordinates if head[c] != to[c]]
      found.append(
        {
          **{c: head[c].item() for c in records.coordinates},
          "over": {c: to[c].item() for c in columns},
          **json_values(ratio._asdict()),
        }
      )
  return found


def json_values(values: dict[str, Any]) -> dict[str, Any]:
  """NaN is not JSON."""
  return {
    k: None if isinstance(v, float) and np.isnan(v) else v for k, v in values.items()
  }


def of_level(records: Records, level: Level, uniform_risk: np.ndarray) -> np.ndarray:
  """Returns which records are first passages of a level, [rows]."""
  thresholds = [level.threshold(risk) for risk in uniform_risk.tolist()]
  return records.table["threshold"] == np.array(thresholds)


def at_level(entries: Sequence[dict], level: Level) -> list[dict]:
  """Returns which of a summary's `cells` or `exponents` belong to a level."""
  if level.of_uniform:
    return [entry for entry in entries if entry["fraction"] == level.value]
  absolute = [entry for entry in entries if entry["fraction"] is None]
  return [entry for entry in absolute if entry["threshold"] == level.value]
