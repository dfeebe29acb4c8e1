"""What the records of a run say: means with intervals, and exponents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sepfx.analysis.levels import Level
from sepfx.analysis.scaling import fit_exponent
from sepfx.analysis.series import series
from sepfx.analysis.statistics import CONFIDENCE, restricted_mean
from sepfx.ensembles import Records


def summarise(
  records: Records,
  levels: Sequence[Level],
  budget: int | np.ndarray,
  uniform_risk: np.ndarray,
  against: str = "length",
) -> dict[str, Any]:
  """Summarises the records of a run, or of several.

  An exponent is fitted over the points at which the risk of uniform attention is above
  the threshold: where it is below, a model passes without finding the token that a
  position names, and its n says nothing about the task.

  Args:
    records: with thresholds.
    levels: what was to be reached.
    budget: prompts after which a trial is censored, the same for all trials of a cell:
      one number, or [rows].
    uniform_risk: risk of uniform attention, [rows]; NaN where there is no such line
      (then every point is fitted).
    against: the numeric column that n is fitted against.

  Returns:
    JSON values: `against`, `levels`, `cells` (a mean for each level and cell) and
    `exponents` (one for each level and series), both with 95% intervals.
    `fraction` is None for an absolute threshold, and the `threshold` of an exponent at a
    fraction is None.
  """
  cells, exponents = [], []
  rows = records.table
  budget = np.broadcast_to(budget, rows.shape)
  names = series(records, (against,))
  for level in levels:
    passages = of_level(records, level, uniform_risk)
    for name in dict.fromkeys(names[passages].tolist()):
      chosen = passages & (names == name)
      own, own_budget, own_risk = rows[chosen], budget[chosen], uniform_risk[chosen]
      reached = own["outcome"] == "reached"
      for place in np.unique(own[against]).tolist():
        at = own[against] == place
        limit = int(own_budget[at][0])
        mean = restricted_mean(own["samples"][at], reached[at], limit)
        outcomes = own["outcome"][at].tolist()
        cells.append(
          {
            "series": name,
            **{c: own[c][at][0].item() for c in records.coordinates},
            "threshold": level.threshold(float(own_risk[at][0])),
            "fraction": level.value if level.of_uniform else None,
            "trials": len(outcomes),
            **{o: outcomes.count(o) for o in ("reached", "censored", "diverged")},
            "budget": limit,
            **mean._asdict(),
          }
        )
      fitted = np.array(
        [np.isnan(risk) or risk > level.threshold(risk) for risk in own_risk], bool
      )
      exponent = fit_exponent(
        own[against][fitted], own["samples"][fitted], reached[fitted], own_budget[fitted]
      )
      if exponent is not None:
        exponents.append(
          {
            "series": name,
            "model": own["model"][0].item(),
            "against": against,
            "threshold": None if level.of_uniform else level.value,
            "fraction": level.value if level.of_uniform else None,
            **exponent._asdict(),
          }
        )
  # NaN is not JSON.
  for cell in cells:
    for end in ("low", "high"):
      cell[end] = None if np.isnan(cell[end]) else cell[end]
  return {
    "confidence": CONFIDENCE,
    "against": against,
    "levels": [level._asdict() for level in levels],
    "cells": cells,
    "exponents": exponents,
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
