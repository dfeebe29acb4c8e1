"""Risks of networks on few prompts beside the floors of Theorem 6."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from sepfx.ensembles import Cell, Records
from sepfx.models import DenseFirst, FeedForward, TokensFirst
from sepfx.statistics.intervals import student_interval
from sepfx.statistics.series import series
from sepfx.statistics.summary import json_values

from ..bounds.lower_bounds import span_floor, span_predictor

# Risk that the number of prompts is looked for at which an architecture falls below.
THRESHOLD = 0.5
_ROUNDING = 1e-6  # of links, whose norm is 1 in 32 bits
# Networks whose first layer sees all tokens at once: those that the theorem is about.
# What else it sees does not matter, where that depends on the indices alone.
_DENSE = (TokensFirst, DenseFirst, FeedForward)


def floors(cell: Cell, seed: int, trial: int) -> dict[str, float]:
  """Theorem 6 for one trial's own sample and link, and the predictor that attains it.

  Args:
    cell: of simple-qSTR or qSTR with a linear link.
    seed: of the run.
    trial: its index.

  Returns:
    `own`, `mean` and `worst` of `SpanFloor`. `predictor`: the risk of E[y | u, t, V x] at
    the first position of the trial's test prompts, and `predictor_error` its standard
    error.
  """
  seeds = jax.tree.map(lambda keys: keys[trial], cell.seeds(seed, trial + 1))
  world = cell.trial.world(seeds)
  inputs, u = np.asarray(world.sample.tokens), np.asarray(world.planted.link)
  test = world.test
  indices = np.asarray(test.indices)[:, 0]
  predictions = span_predictor(inputs, u, np.asarray(test.tokens), indices)
  errors = (predictions - np.asarray(test.labels)[:, 0]) ** 2
  error = np.std(errors, ddof=1) / np.sqrt(len(errors))
  return {
    **span_floor(inputs, u)._asdict(),
    "predictor": float(np.mean(errors)),
    "predictor_error": float(error),
  }


def summarise_spans(
  records: Records, cells: Mapping[str, Cell], seed: int
) -> dict[str, Any]:
  """Summarises trials on fixed samples of few prompts: Theorem 6 of the main paper.

  Args:
    records: of axes `model`, `sample_size` and `l2`, with the probe `stationarity`.
    cells: by name.
    seed: of the run.

  Returns:
    `size`: N d. `cells`: for each series (a model, with its l2 where there are several)
    and n the trials' `risks`, their mean `risk` and its 95% Student-t interval
    `risk_low`, `risk_high`. For networks whose first layer is fully connected also the
    means of the floors `own`, `mean` and `worst`; `trials_below`, how many trials lie
    below their own floor, and `below`, by how many standard errors among trials the mean
    risk lies below that of their floors, 0 where it does not; the mean risk of the
    `predictor`, and `predictor_off`, the largest distance in standard errors of a
    trial's predictor from its own floor. For `TokensFirst` also the largest
    `gradient_ratio` and `outside_share`; the mean of `projected_risk`; and
    `projected_below`, the largest over trials of what lies below the floor with W V in
    place of W, in standard errors of its own test prompts, 0 where nothing does.
    `crossings`: for each series the least n from which on all mean risks are below 1/2,
    as `samples`, None if there is none up to `largest`.
  """
  probes = records.probes
  assert probes is not None
  found = []
  names = series(dataclasses.replace(records, table=probes), ("sample_size",))
  for name in dict.fromkeys(names.tolist()):
    own = probes[names == name]
    for n in np.unique(own["sample_size"]).tolist():
      rows = own[own["sample_size"] == n]
      cell = cells[records.cell_of(rows[0])]
      found.append({"series": name, "samples": n, **_cell(rows, cell, seed)})
  crossings = []
  for name in dict.fromkeys(cell["series"] for cell in found):
    own = [cell for cell in found if cell["series"] == name]
    samples = None
    for cell in reversed(own):
      if cell["risk"] is None or cell["risk"] >= THRESHOLD:
        break
      samples = cell["samples"]
    crossings.append({"series": name, "samples": samples, "largest": own[-1]["samples"]})
  task = next(iter(cells.values())).trial.task
  size = task.length * task.token_dim
  return {"size": size, "cells": found, "crossings": crossings}


def _cell(rows: np.ndarray, cell: Cell, seed: int) -> dict[str, Any]:
  risks = rows["test_risk"].astype(float)
  risk, low, high = student_interval(risks)
  values = {"risk": risk, "risk_low": low, "risk_high": high}
  listed = [value if np.isfinite(value) else None for value in risks.tolist()]
  found = {"trials": len(rows), "risks": listed, **json_values(values)}
  if not isinstance(cell.trial.model, _DENSE):
    return found
  lines = [floors(cell, seed, k) for k in rows["trial"].tolist()]
  table = {name: np.array([line[name] for line in lines]) for name in lines[0]}
  off = np.abs(table["predictor"] - table["own"])
  # Where a sample spans everything both are 0, but for rounding.
  off = np.where(off > _ROUNDING, off / table["predictor_error"], 0.0)
  values = {name: float(np.mean(table[name])) for name in ("own", "mean", "worst")}
  values |= {
    "below": _below(risks - table["own"]),
    "predictor": float(np.mean(table["predictor"])),
    "predictor_off": float(np.max(off)),
  }
  found["trials_below"] = int(np.sum(risks < table["own"]))
  if isinstance(cell.trial.model, TokensFirst):
    projected = rows["projected_risk"].astype(float)
    excess = (table["own"] - projected) / rows["projected_error"]
    values |= {
      "gradient_ratio": float(np.max(rows["gradient_ratio"])),
      "outside_share": float(np.max(rows["outside_share"])),
      "projected_risk": float(np.mean(projected)),
      "projected_below": max(0.0, float(np.max(excess))),
    }
  return {**found, **json_values(values)}


def _below(excess: np.ndarray) -> float:
  """Standard errors by which a mean lies below 0; NaN for a single trial."""
  if len(excess) < 2:
    return float("nan")
  error = np.std(excess, ddof=1) / np.sqrt(len(excess))
  return max(0.0, float(-np.mean(excess) / error)) if error > 0 else float("nan")
