"""What the records of a run say: means with intervals, and exponents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sepfx.analysis.scaling import fit_exponent
from sepfx.analysis.statistics import CONFIDENCE, restricted_mean
from sepfx.training import Level


def summarise(
  records: np.ndarray,
  levels: Sequence[Level],
  budget: int | np.ndarray,
  uniform_risk: Mapping[int, float | None],
) -> dict[str, Any]:
  """Summarises the records of a run, or of several.

  An exponent is fitted over the lengths at which the risk of uniform attention is
  above the threshold: where it is below, a model passes without finding the token
  that a position names, and its n says nothing about the task.

  Args:
    records: structured array with the columns of `trials.csv`, [rows].
    levels: what was to be reached.
    budget: prompts after which a trial is censored, the same for all trials of a
      model and length: one number, or [rows].
    uniform_risk: risk of uniform attention at each length; None where there is no
      such line (then every length is fitted).

  Returns:
    JSON values: `cells` (a mean a level, model and length) and `exponents` (one a
    level and model), both with 95% intervals. `fraction` is None for an absolute
    threshold, and the `threshold` of an exponent at a fraction is None.
  """
  cells, exponents = [], []
  budget = np.broadcast_to(budget, records.shape)
  for level in levels:
    passages = of_level(records, level, uniform_risk)
    for model in dict.fromkeys(records["model"].tolist()):
      chosen = passages & (records["model"] == model)
      own, own_budget = records[chosen], budget[chosen]
      reached = own["outcome"] == "reached"
      for length in sorted(set(own["length"].tolist())):
        at = own["length"] == length
        limit = int(own_budget[at][0])
        mean = restricted_mean(own["samples"][at], reached[at], limit)
        outcomes = own["outcome"][at].tolist()
        cells.append(
          {
            "model": model,
            "length": length,
            "threshold": level.threshold(uniform_risk[length]),
            "fraction": level.value if level.of_uniform else None,
            "trials": len(outcomes),
            **{o: outcomes.count(o) for o in ("reached", "censored", "diverged")},
            "budget": limit,
            **mean._asdict(),
          }
        )
      risks = [uniform_risk[length] for length in own["length"].tolist()]
      fitted = np.array(
        [risk is None or risk > level.threshold(risk) for risk in risks], bool
      )
      exponent = fit_exponent(
        own["length"][fitted], own["samples"][fitted], reached[fitted], own_budget[fitted]
      )
      if exponent is not None:
        exponents.append(
          {
            "model": model,
            "threshold": None if level.of_uniform else level.value,
            "fraction": level.value if level.of_uniform else None,
            **exponent._asdict(),
          }
        )
  # NaN is not JSON.
  for cell in cells:
    for name in ("low", "high"):
      cell[name] = None if np.isnan(cell[name]) else cell[name]
  return {"confidence": CONFIDENCE, "cells": cells, "exponents": exponents}


def of_level(
  records: np.ndarray, level: Level, uniform_risk: Mapping[int, float | None]
) -> np.ndarray:
  """Returns which records are first passages of a level, [rows]."""
  thresholds = [
    level.threshold(uniform_risk[length]) for length in records["length"].tolist()
  ]
  return records["threshold"] == np.array(thresholds)


def at_level(entries: Sequence[dict], level: Level) -> list[dict]:
  """Returns which of a summary's `cells` or `exponents` belong to a level."""
  if level.of_uniform:
    return [entry for entry in entries if entry["fraction"] == level.value]
  absolute = [entry for entry in entries if entry["fraction"] is None]
  return [entry for entry in absolute if entry["threshold"] == level.value]
