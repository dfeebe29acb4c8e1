"""What norms, traces, spectra and bounds of many trained weights come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.stats

from ..fourier_generalisation.summary import clustered, clustered_correlation
from .bounds import BOUNDS

_AXES = ("length", "degree", "num_components")
_PLACE = ("run", "model", "sample_size", *_AXES)
_FLATNESS = ("squared_norm", "trace")
# What a cell has a geometric mean of, for learned and for constructed weights.
_MEANS = (*_FLATNESS, "eigenvalue")


def summarise_flatness(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
  """Summarises what `compare` found.

  Args:
    rows: of each trial: run, model, sample_size, length, degree, num_components, trial,
      outcome, gap, and what `compare` returns.

  Returns:
    JSON values. `cells` by run, model, sample size, T, d and k: `trials`,
    `dominating` (those that are below the construction in norm and trace at once), the
    geometric means of norms, traces and largest eigenvalues, and for each bound its
    median and that of the n from which on it says something (None where half of the
    trials have none).
    `correlations`: Spearman's of the gap with each bound of learned and constructed
    weights, over trials that reached ("reached"), over these ranked among those of their
    cell alone ("within"), and over all, with the intervals of a jackknife over trial
    indices.
  """
  cells = []
  for place in dict.fromkeys(tuple(row[name] for name in _PLACE) for row in rows):
    own = [row for row in rows if tuple(row[name] for name in _PLACE) == place]
    below = [
      all(row[f"learned_{k}"] <= row[f"constructed_{k}"] for k in _FLATNESS)
      for row in own
    ]
    kinds = ("learned", "constructed")
    cells.append(
      {
        **dict(zip(_PLACE, place, strict=True)),
        "trials": len(own),
        "dominating": sum(below),
        **{
          f"{kind}_{k}": _geometric_mean([row[f"{kind}_{k}"] for row in own])
          for kind in kinds
          for k in _MEANS
        },
        **{
          f"{kind}_{name}{end}": _median([row[f"{kind}_{name}{end}"] for row in own])
          for kind in kinds
          for name in BOUNDS
          for end in ("", "_needs")
          if f"{kind}_{name}" in own[0]
        },
      }
    )
  correlations: dict[str, Any] = {}
  names = (f"{kind}_{k}" for kind in ("learned", "constructed") for k in BOUNDS)
  for name in (name for name in names if name in rows[0]):
    correlations[name] = {}
    for which in ("reached", "within", "all"):
      used = [
        row
        for row in rows
        if (which == "all" or row["outcome"] == "reached")
        and np.isfinite([row[name], row["gap"]]).all()
      ]
      trial, value, gap = (
        np.array([row[k] for row in used]) for k in ("trial", name, "gap")
      )
      if which == "within":
        value, gap = (_ranks_within(used, numbers) for numbers in (value, gap))
      correlations[name][which] = {
        "trials": len(used),
        **clustered_correlation(trial, value, gap),
      }
  return {"cells": cells, "correlations": correlations}


def _ranks_within(rows: Sequence[Mapping[str, Any]], values: np.ndarray) -> np.ndarray:
  """Ranks of the values among those of their cell, from -1/2 to 1/2."""
  places = [tuple(row[name] for name in _PLACE) for row in rows]
  ranks = np.zeros(len(values))
  for place in dict.fromkeys(places):
    own = np.flatnonzero([each == place for each in places])
    ranks[own] = (scipy.stats.rankdata(values[own]) - 0.5) / len(own) - 0.5
  return ranks


def summarise_growth(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
  """Fits log norm and log trace = a + sum of b_x log x, x over T, d and k.

  Args:
    rows: of each construction: length, degree, num_components, function, squared_norm
      and trace.

  Returns:
    JSON values by what is fitted: each axis' power with the 95% interval of a jackknife
    over the functions' indices, for axes that have several values.
  """
  axes = [name for name in _AXES if len({row[name] for row in rows}) > 1]
  places = [np.log([row[name] for row in rows]) for name in axes]
  function = np.array([row["function"] for row in rows])

  def fit(values: np.ndarray, *logs: np.ndarray) -> dict[str, float]:
    columns = np.stack([np.ones(len(values)), *logs], axis=1)
    solution, *_ = np.linalg.lstsq(columns, values, rcond=None)
    return dict(zip(axes, solution[1:].tolist(), strict=True))

  return {
    name: clustered(fit, function, np.log([row[name] for row in rows]), *places)
    for name in _FLATNESS
  }


def _geometric_mean(values: Sequence[float]) -> float | None:
  positive = all(value > 0 for value in values)
  return float(np.exp(np.mean(np.log(values)))) if positive else None


def _median(values: Sequence[float]) -> float | None:
  """Of numbers among which NaN stands for more than any."""
  middle = sorted(values, key=lambda v: (np.isnan(v), v))[len(values) // 2]
  return None if np.isnan(middle) else float(middle)
