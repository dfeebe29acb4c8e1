"""What the records of a run say: means with intervals, exponents, and ratios."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from sepfx.ensembles import Records
from sepfx.specifications import canonical
from sepfx.statistics import error_names
from sepfx.statistics.bounded import CONFIDENCE, Bounds
from sepfx.statistics.levels import REFERENCE, Level
from sepfx.statistics.passages import Checks, Mean, at_first_check, bounds_of, cell_means
from sepfx.statistics.ratios import BOTH_BOUNDED, cells_of, comparisons, ratio_of
from sepfx.statistics.scaling import fit_exponent
from sepfx.statistics.series import letter_of, series, telling_apart

# What a trial's keys come from, but for its index.
_KEYED = ("length", "sample_size")
# Fewer values of x give no exponent that is shown: two would always lie on a line.
LEAST_PLACES = 3


def summarise(
  records: Records,
  levels: Sequence[Level],
  checks: Checks,
  reference_risk: np.ndarray,
  keys: np.ndarray,
  against: str = "length",
) -> dict[str, Any]:
  """Summarises the records of a run, or of several.

  An exponent is fitted over the points at which the risk of uniform attention is above
  the threshold: where it is below, a model passes without finding the token that a
  position names, and its n says nothing about the task. Nor is it fitted over cells all
  of whose trials pass at their first check: their n is not known. Along an axis that is
  not in the trials' keys it is fitted to each trial index by itself, since these share
  their keys.

  Args:
    records: with thresholds.
    levels: what was to be reached.
    checks: how first passages were looked for, of each row.
    reference_risk: risk of uniform attention, [rows]; NaN where there is no such line
      (then every point is fitted).
    keys: numbers what the keys of each row's trial come from but for its index, [rows].
    against: the numeric column that n is fitted against.

  Returns:
    JSON values: `against`; `levels`; `error`, what thresholds are about; `cells`, for
    each level and cell what `sepfx.statistics.passages.Mean` has, with the `resolution`,
    samples between two checks; `exponents`, one for each level and series; `ratios`, of n
    between cells that differ in the model, or in one setting from its first value, and
    in nothing else: what `sepfx.statistics.ratios.Ratio` has, with the one cell's
    coordinates, the name that differs (`of`) and its value in the other (`over`); and
    `left_out`, what is not said, of which series, and why. All with 95% intervals.
    `fraction` is None for an absolute threshold, and the `threshold` of all but cells is
    None at a fraction. An exponent is `coarse` where one of the means that it is over is.
  """
  cells, exponents, ratios = [], [], []
  left_out: list[dict[str, Any]] = []
  names = series(records, (against,))
  for level in levels:
    passages = of_level(records, level, reference_risk)
    for name in dict.fromkeys(names[passages].tolist()):
      chosen = passages & (names == name)
      own, risk = records.table[chosen], reference_risk[chosen]
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
      thresholds = [level.threshold(each) for each in risk.tolist()]
      without_task = ~np.isnan(risk) & (risk <= thresholds)
      first = at_first_check(own["samples"], reached, own_checks, own[against])
      fitted = ~without_task & ~first
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
      over = exponent.over if exponent is not None else ()
      for what, why in (
        *_unknown_means(means, own_checks, letter_of(against)),
        *_unfitted(own[against], without_task, first, reached, over, against),
      ):
        left_out.append({"what": what, "series": name, **level.named, "why": why})
    found, missing = _ratios(records, passages, checks, keys)
    ratios += [{**level.named, **ratio} for ratio in found]
    left_out += [{**entry, **level.named, "why": BOTH_BOUNDED} for entry in missing]
  return {
    "confidence": CONFIDENCE,
    "against": against,
    "levels": [level._asdict() for level in levels],
    "error": error_names.of(records),
    "cells": cells,
    "exponents": exponents,
    "ratios": ratios,
    "left_out": left_out,
  }


def _unknown_means(
  means: Mapping[Any, Mean], checks: Checks, letter: str
) -> Iterator[tuple[str, str]]:
  """Which means are bounds or have no interval, and why."""
  for place, mean in means.items():
    at = f"{letter} = {canonical(place)}"
    if mean.at_most:
      check = f"{checks.every[0]:,.0f}"
      yield "mean", f"{at}: all trials pass at their first check, at {check} samples"
    elif np.isnan(mean.low):
      yield "interval", f"{at}: too few trials reached the threshold to tell of a spread"


def _unfitted(
  x: np.ndarray,
  without_task: np.ndarray,
  first: np.ndarray,
  reached: np.ndarray,
  over: Sequence[float],
  against: str,
) -> Iterator[tuple[str, str]]:
  """Which points no exponent is fitted over, or why there is none."""
  letter = letter_of(against)
  for rows, why in (
    (without_task, f"{REFERENCE}'s loss is not above the threshold"),
    (first & ~without_task, "n is known as at most the first check"),
  ):
    places = [canonical(place) for place in np.unique(x[rows]).tolist()]
    if places and len(np.unique(x)) > 1:
      yield "point of the exponent", f"{letter} = {', '.join(places)}: {why}"
  left = ~without_task & ~first
  known, some = np.unique(x[left]), np.unique(x[left & reached])
  if np.any(known <= 0):
    yield "exponent", f"{letter} = {canonical(known[0])} has no logarithm"
  elif len(known) < LEAST_PLACES:
    yield "exponent", f"it takes three values of {letter}, and has {len(known)}"
  elif len(some) < 2:
    yield "exponent", f"trials reached the threshold at {len(some)} values of {letter}"
  elif not over:
    yield "exponent", f"no trial is there at all values of {letter}"


def _ratios(
  records: Records, passages: np.ndarray, checks: Checks, keys: np.ndarray
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
  """Ratios of n between cells that differ in one thing; and those that are not known."""
  own, own_keys = records.table[passages], keys[passages]
  found: list[dict[str, Any]] = []
  missing: list[dict[str, Any]] = []
  names = [records.cell_of(row) for row in own]
  places = {name: k for k, name in enumerate(dict.fromkeys(names))}
  which = np.array([places[name] for name in names], int)
  if len(places) < 2:
    return found, missing
  reached = own["outcome"] == "reached"
  cells = cells_of(own["samples"], reached, checks.at(passages), which)
  heads = [own[np.argmax(which == k)] for k in range(len(places))]
  key = [own_keys[np.argmax(which == k)] for k in range(len(places))]
  points = [{c: head[c].item() for c in records.coordinates} for head in heads]
  aside = [c for c in records.coordinates if c not in telling_apart(records)]
  for one, other, name in comparisons(points, aside):
    paired = own["trial"] if key[one] == key[other] else None
    ratio = ratio_of(cells, one, other, paired)
    entry = {**points[one], "of": name, "over": points[other][name]}
    if ratio is not None:
      found.append({**entry, **json_values(ratio._asdict())})
    else:
      missing.append({"what": "ratio", **entry})
  return found, missing


def json_values(values: dict[str, Any]) -> dict[str, Any]:
  """NaN is not JSON."""
  return {
    k: None if isinstance(v, float) and np.isnan(v) else v for k, v in values.items()
  }


def of_level(records: Records, level: Level, reference_risk: np.ndarray) -> np.ndarray:
  """Returns which records are first passages of a level, [rows]."""
  thresholds = [level.threshold(risk) for risk in reference_risk.tolist()]
  return records.table["threshold"] == np.array(thresholds)


def at_level(entries: Sequence[dict], level: Level) -> list[dict]:
  """Returns which of a summary's `cells` or `exponents` belong to a level."""
  if level.of_uniform:
    return [entry for entry in entries if entry["fraction"] == level.value]
  absolute = [entry for entry in entries if entry["fraction"] is None]
  return [entry for entry in absolute if entry["threshold"] == level.value]
