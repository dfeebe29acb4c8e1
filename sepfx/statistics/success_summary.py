"""The records of runs on fixed samples, summarised."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from sepfx.ensembles import Records
from sepfx.statistics import error_names
from sepfx.statistics.intervals import CONFIDENCE
from sepfx.statistics.ratios import AT_LEAST, AT_MOST, BOTH_BOUNDED, comparisons
from sepfx.statistics.series import series, telling_apart
from sepfx.statistics.success import (
  LESS,
  MORE,
  Counts,
  Critical,
  Posterior,
  count,
  critical_ratio,
  critical_size,
  fit_growth,
  independent_ratio,
  success_curves,
  success_fraction,
)


class Floor(Protocol):
  """How many samples any learner needs.

  Attributes:
    size: the smallest that suffices.
    error: its standard error.
  """

  @property
  def size(self) -> int: ...

  @property
  def error(self) -> float: ...


def summarise_success(
  records: Records,
  floors: Mapping[int, Floor | None],
  letter: str = "T",
  learner: str = "tries all subsets",
) -> dict[str, Any]:
  """Summarises the records of a run on fixed samples.

  Args:
    records: of fixed samples.
    floors: what any learner needs, by length; None where that is not known. Lengths at
      which no floor is defined are left out.
    letter: of the length: T of bits, N of tokens.
    learner: whose needs the floors are: one that does so.

  Returns:
    JSON values: `letter` and `learner`; `cells` (a fraction of successes for each cell),
    `critical` (a critical size for each series and length), `steepness` (by series, of
    its success curves at all lengths, with the support for that), `growth` (by series);
    `floor` (length, size and its standard error, of those that are known), `no_floor`
    (the other lengths of `floors`); `ratios`, how much the critical size of a series
    grows from each length to each larger one, where both are known; `between`, critical
    sizes over those of cells that differ in the model, or in one setting from its first
    value, and in nothing else; `left_out`, what is not said, of which series, and why;
    and `error`, what thresholds are about. All with 95% intervals.
  """
  cells, critical, steepness, ratios, growth = [], [], {}, [], {}
  known_sizes: list[tuple[dict[str, Any], Critical, Posterior | None]] = []
  left_out: list[dict[str, Any]] = []
  others = [c for c in records.coordinates if c != "sample_size"]
  names = series(records, ("length", "sample_size"))
  for name in dict.fromkeys(names.tolist()):
    by_length: dict[int, Counts] = {}
    mine = records.table[names == name]
    for length in np.unique(mine["length"]).tolist():
      own = mine[mine["length"] == length]
      counts = count(own["sample_size"], own["outcome"] == "reached")
      by_length[length] = counts
      for size, successes, trials in zip(*(a.tolist() for a in counts), strict=True):
        at = own[own["sample_size"] == size]
        outcomes = at["outcome"].tolist()
        cells.append(
          {
            "series": name,
            **{c: at[c][0].item() for c in records.coordinates},
            "trials": trials,
            **{o: outcomes.count(o) for o in ("reached", "censored", "diverged")},
            **success_fraction(successes, trials)._asdict(),
          }
        )
    posteriors, own_steepness = success_curves(by_length)
    steepness[name] = own_steepness._asdict() if own_steepness else None
    found = {
      length: critical_size(counts, posteriors.get(length))
      for length, counts in by_length.items()
    }
    for length, own_size in found.items():
      # NaN is not JSON.
      values = {k: None if v != v else v for k, v in own_size._asdict().items()}
      critical.append({"series": name, "length": length, **values})
      row = mine[mine["length"] == length][0]
      point = {c: row[c].item() for c in others}
      known_sizes.append((point, own_size, posteriors.get(length)))
      if own_size.bound:
        end = own_size.largest if own_size.bound == MORE else own_size.smallest
        why = f"{letter} = {length}: {own_size.bound} {end}, one of the sizes tried"
        left_out.append({"what": "critical size", "series": name, "why": why})
    known = [length for length in posteriors if found[length].bound is None]
    for smaller, larger in itertools.combinations(known, 2):
      ratio, low, high = critical_ratio(posteriors[larger], posteriors[smaller])
      ratios.append(
        {"series": name, "lengths": [smaller, larger], "ratio": ratio, "low": low,
         "high": high}
      )  # fmt: skip
    fitted = fit_growth(by_length)
    growth[name] = fitted._asdict() if fitted else None
    if not fitted:
      why = f"it takes critical sizes at three values of {letter}, and has "
      why += f"{len(known)}"
      left_out.append({"what": "growth", "series": name, "why": why})
  aside = [c for c in records.coordinates if c not in telling_apart(records)]
  between, missing = _between(known_sizes, aside)
  return {
    "confidence": CONFIDENCE,
    "error": error_names.of(records),
    "letter": letter,
    "learner": learner,
    "cells": cells,
    "critical": critical,
    "steepness": steepness,
    "ratios": ratios,
    "between": between,
    "left_out": left_out + missing,
    "growth": growth,
    "floor": [[T, own.size, own.error] for T, own in floors.items() if own],
    "no_floor": [T for T, own in floors.items() if not own],
  }


def _between(
  sizes: Sequence[tuple[dict[str, Any], Critical, Posterior | None]],
  aside: Sequence[str],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
  """Critical sizes over those of cells that differ in one thing; and what is not known.

  Args:
    sizes: coordinates, critical size and posterior of each model and length.
    aside: coordinates that tell no cells apart.
  """
  found, missing = [], []
  for one, other, name in comparisons([point for point, *_ in sizes], aside):
    (point, own, mine), (base, to, theirs) = sizes[one], sizes[other]
    entry = {**point, "of": name, "over": base[name]}
    higher = own.bound == MORE or to.bound == LESS
    lower = own.bound == LESS or to.bound == MORE
    if higher and lower:
      missing.append({"what": "ratio", **entry, "why": BOTH_BOUNDED})
      continue
    bound = AT_LEAST if higher else AT_MOST if lower else ""
    if mine is not None and theirs is not None and not bound:
      ratio, low, high = independent_ratio(mine, theirs)
    else:  # from the bound of the one and the interval of the other
      (least, size, most), (to_least, to_size, to_most) = _known(own), _known(to)
      ratio, low, high = size / to_size, least / to_most, most / to_least
    found.append(
      {
        **entry,
        "ratio": ratio,
        "low": None if bound == AT_MOST else low,
        "high": None if bound == AT_LEAST else high,
        "bound": bound,
        "pairs": None,
      }
    )
  return found, missing


def _known(size: Critical) -> tuple[float, float, float]:
  """A critical size with its interval, or the size that bounds it, three times."""
  if size.bound:
    return (float(size.largest if size.bound == MORE else size.smallest),) * 3
  return size.low, size.size, size.high
