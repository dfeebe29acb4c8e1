"""Risks of recurrent networks against their width, beside Proposition 8."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from sepfx.ensembles import Records
from sepfx.statistics.bounded import Bounds
from sepfx.statistics.intervals import student_interval
from sepfx.statistics.scaling import Exponent, fit_exponent
from sepfx.statistics.summary import json_values

from ..bounds.lower_bounds import least_norm, least_width, memory_risk

# Risks below which the smallest width is looked for.
THRESHOLDS = (0.5, 0.1)
# The task that the proposition is about.
_BOUNDED = "qstr"


def summarise_widths(records: Records) -> dict[str, Any]:
  """Summarises trials by their risk at the end: Proposition 8 of the main paper.

  Args:
    records: of axes `task`, `model`, `length` and `units`, with the probe `states`.

  Returns:
    `cells`: for each task, model, N and d_h the trials' `risks`, their mean `risk` with
    its 95% Student-t interval `risk_low`, `risk_high`, None where a trial diverged, the
    mean L ||U||_F as `frobenius`, and the largest L ||U||_op as `operator`. On 1STR
    also `least_units`, the d_h that the proposition asks for at this mean risk and that
    operator norm; `least_frobenius`, likewise L ||U||_F; and `memory`, the risk of a
    memory of d_h labels. None on simple-1STR, of which it says nothing.
    `smallest`: for each task, model and threshold the smallest d_h whose risk is below
    it; that of a trial that diverged is not. `lengths` has for each N the trials' `own`
    smallest d_h, None where there is none up to `largest`; their geometric mean `units`,
    None where no trial got below; and `restricted` where some did not, so that it is a
    lower bound. On 1STR `least_units`
    is the proposition's bound at the threshold and the largest L ||U||_op of the
    networks that got below, and `memory_units` the least d_h of a memory. `c` is the
    exponent of d_h ~ N^c with its interval `low`, `high`: a width is known to lie
    between two that were tried.
  """
  probes = records.probes
  assert probes is not None
  cells = [_cell(probes[at], head) for head, at in _groups(probes)]
  smallest = []
  for task in dict.fromkeys(probes["task"].tolist()):
    for model in dict.fromkeys(probes["model"][probes["task"] == task].tolist()):
      own = probes[(probes["task"] == task) & (probes["model"] == model)]
      for threshold in THRESHOLDS:
        head = {"task": task, "model": model, "threshold": threshold}
        smallest.append({**head, **_smallest(own, task, threshold)})
  return {"cells": cells, "smallest": smallest}


def _groups(probes: np.ndarray) -> Iterator[tuple[dict[str, Any], np.ndarray]]:
  """The rows of each cell, with its coordinates."""
  names = ["task", "model", "length", "units"]
  keys = probes[names]
  for key in dict.fromkeys(keys.tolist()):
    yield dict(zip(names, key, strict=True)), keys == np.array(key, keys.dtype)


def _cell(own: np.ndarray, head: dict[str, Any]) -> dict[str, Any]:
  risks = own["state_risk"].astype(float)
  risk, low, high = student_interval(risks)
  operator = float(np.max(own["state_operator"]))  # NaN where a trial diverged
  bounds: dict[str, Any] = dict.fromkeys(("least_units", "least_frobenius", "memory"))
  if head["task"] == _BOUNDED:
    N, numbers = head["length"], _numbers_per_unit(own)
    bounds["memory"] = memory_risk(N, head["units"])
    if np.isfinite(risk):
      bounds["least_frobenius"] = least_norm(N, risk)
    if np.isfinite(risk) and operator > 0:  # else the read-out sees no state
      bounds["least_units"] = least_width(N, risk, operator) / numbers
  values = {"risk": risk, "risk_low": low, "risk_high": high, "operator": operator}
  values["frobenius"] = float(np.mean(own["state_frobenius"]))
  risks_or_none = [value if np.isfinite(value) else None for value in risks.tolist()]
  return {
    **head, "trials": len(own), "risks": risks_or_none, **json_values(values), **bounds
  }  # fmt: skip


def _numbers_per_unit(own: np.ndarray) -> float:
  """How many numbers a state has for each unit: an LSTM's has two."""
  return float(np.nanmedian(own["state_width"] / own["units"]))


def _smallest(own: np.ndarray, task: str, threshold: float) -> dict[str, Any]:
  """The smallest widths of one task and model at one threshold."""
  lengths, lower, upper, at_length = [], [], [], []
  for N in np.unique(own["length"]).tolist():
    here = own[own["length"] == N]
    found, operators = [], []
    for trial in np.unique(here["trial"]).tolist():
      rows = here[here["trial"] == trial]
      tried = np.unique(rows["units"]).astype(float)
      below = rows[rows["state_risk"] < threshold]
      least = int(np.min(below["units"])) if len(below) else None
      found.append(least)
      before = tried[tried < least] if least else tried
      # A width is at least 1, so above one half.
      lower.append(np.log(np.max(before, initial=0.5)))
      upper.append(np.log(least) if least else np.inf)
      operators += below["state_operator"][below["units"] == least].tolist()
    at_length += [N] * len(found)
    known = [width for width in found if width]
    entry = {
      "length": N, "own": found, "largest": int(np.max(here["units"])),
      "units": float(np.exp(np.mean(np.log(known)))) if known else None,
      "restricted": len(known) < len(found),
      "least_units": None, "memory_units": None,
    }  # fmt: skip
    if task == _BOUNDED:
      entry["memory_units"] = _memory_units(N, threshold)
      if max(operators, default=0) > 0:
        bound = least_width(N, threshold, max(operators))
        entry["least_units"] = bound / _numbers_per_unit(here)
    lengths.append(entry)
  fitted = smallest_width_exponent(
    np.array(at_length, float), np.exp(lower), np.exp(upper)
  )
  exponent = dict.fromkeys(("c", "low", "high"))
  if fitted is not None:
    ends = {"c": fitted.c, "low": fitted.low, "high": fitted.high}
    exponent |= json_values(ends)
  return {"lengths": lengths, **exponent}


def smallest_width_exponent(
  lengths: np.ndarray, above: np.ndarray, least: np.ndarray
) -> Exponent | None:
  """The exponent c of d_h ~ N^c.

  Args:
    lengths: N of each trial, [trials].
    above: the width below which its smallest does not lie.
    least: the least that suffices of those that were tried; infinite for none.
  """
  bounds = Bounds(np.log(above), np.log(least))
  return fit_exponent(lengths, bounds, np.isfinite(least))


def _memory_units(length: int, threshold: float) -> int:
  """The least d_h of a memory of labels whose risk is below the threshold."""
  return next(k for k in range(length + 1) if memory_risk(length, k) < threshold)
