"""What the records of a run say: means with intervals, and exponents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sepfx.analysis.scaling import fit_exponent
from sepfx.analysis.statistics import CONFIDENCE, restricted_mean


def summarise(
  records: np.ndarray, budget: int, uniform_risk: Mapping[int, float | None]
) -> dict[str, Any]:
  """Summarises a run's records.

  An exponent is fitted over the lengths at which the risk of uniform attention is
  above the threshold: where it is below, a model passes without finding the token
  that a position names, and its n says nothing about the task.

  Args:
    records: structured array with the columns of `trials.csv`.
    budget: prompts after which a trial is censored.
    uniform_risk: risk of uniform attention at each length; None where there is no
      such line (then every length is fitted).

  Returns:
    JSON values: `cells` (a mean a model, length and threshold) and `exponents` (one a
    model and threshold), both with 95% intervals.
  """
  cells, exponents = [], []
  for threshold in sorted(set(records["threshold"].tolist()), reverse=True):
    for model in dict.fromkeys(records["model"].tolist()):
      own = records[(records["model"] == model) & (records["threshold"] == threshold)]
      reached = own["outcome"] == "reached"
      for length in sorted(set(own["length"].tolist())):
        at = own["length"] == length
        mean = restricted_mean(own["samples"][at], reached[at], budget)
        outcomes = own["outcome"][at].tolist()
        cells.append(
          {
            "model": model,
            "length": length,
            "threshold": threshold,
            "trials": len(outcomes),
            **{o: outcomes.count(o) for o in ("reached", "censored", "diverged")},
            **mean._asdict(),
          }
        )
      risks = [uniform_risk[length] for length in own["length"].tolist()]
      fitted = np.array([risk is None or risk > threshold for risk in risks], bool)
      exponent = fit_exponent(
        own["length"][fitted], own["samples"][fitted], reached[fitted], budget
      )
      if exponent is not None:
        exponents.append({"model": model, "threshold": threshold, **exponent._asdict()})
  # NaN is not JSON.
  for cell in cells:
    for name in ("low", "high"):
      cell[name] = None if np.isnan(cell[name]) else cell[name]
  return {
    "confidence": CONFIDENCE,
    "budget": budget,
    "cells": cells,
    "exponents": exponents,
  }
