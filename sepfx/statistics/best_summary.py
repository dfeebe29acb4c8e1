"""What a sweep of settings says of each architecture at its best one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sepfx.ensembles import Records
from sepfx.statistics import error_names
from sepfx.statistics.best import FACTOR, NEAR, Best, Trials, best_of, laid_out
from sepfx.statistics.bounded import CONFIDENCE, Bounds
from sepfx.statistics.levels import Level
from sepfx.statistics.medians import median_of
from sepfx.statistics.passages import (
  COARSE,
  Checks,
  at_first_check,
  bounds_of,
  cell_means,
)
from sepfx.statistics.scaling import fit_exponent, growth, laws, local_exponents
from sepfx.statistics.series import series
from sepfx.statistics.summary import at_level, json_values, of_level

# Repetitions of the bootstrap, and the seed of its numbers.
_REPETITIONS, _SEED = 1000, 0
# What is said of the median.
_MEDIAN = ("median", "median_low", "median_high", "slow")
# What may be said of an n at the best rate.
_MARKS = ("coarse", "edge", "restricted")


def summarise_best(
  records: Records,
  levels: Sequence[Level],
  checks: Checks,
  reference_risk: np.ndarray,
  against: str = "length",
  unknowns: np.ndarray | None = None,
  axes: Sequence[str] = ("learning_rate",),
) -> dict[str, Any]:
  """Chooses each series' best setting at each level and length, or other place.

  Args:
    records: with thresholds, and a column of each axis.
    levels: what was to be reached.
    checks: how first passages were looked for, of each row.
    reference_risk: risk of uniform attention, [rows]; NaN where there is no such line.
    against: the numeric column in place of the length N, if it is another one.
    unknowns: numbers that are to be learned for each label of a prompt, [rows]; NaN where
      that is not known, None where it is known of none.
    axes: of whose values the best are chosen.

  Returns:
    JSON values. `cells`: for each level, series, length and setting what
    `passages.Mean` has. `best`: for each level, series and length the best value of each
    axis with what `best.Best` has of it; `tried`, all settings, each with how often the
    bootstrap chose it; `median`, `median_low`, `median_high` and `slow` of the best
    one's trials, what `medians.Median` says. Where nothing can be chosen, as where no
    trial reached, `trials` is 0, the values are None, and `mean` is the budget. `edges`:
    the axes along which the best is the smallest or the largest value tried, so that one
    beyond it may need fewer samples (`_edges`), and `edge` whether there is any.
    `at_most` is True where all its trials reached at the first check, which is `mean`.
    `information`: prompts that any learner needs on average, None where that is not
    known.
    `exponents`: c of n ~ N^c over the trials at the best settings, but for those that are
    known as at most the first check; `at_settings`, c at each setting over those lengths
    at which all its trials reached, which is too small where n grows beyond the budget;
    `growth`, how many times as large n is at the last length as at the first
    (`scaling.Growth`), and the verdict that follows from its interval; `laws`, a
    logarithm beside a power (`scaling.Laws`), None for fewer than three lengths;
    `local`, c from each length to the next; and `coarse`, `edge` and `restricted` where
    some n that it was fitted over is so. All intervals have the level `confidence`.
  """
  names = series(records, (against, *axes))
  cells, best, exponents = [], [], []
  for level in levels:
    passages = of_level(records, level, reference_risk)
    for name in dict.fromkeys(names[passages].tolist()):
      chosen = passages & (names == name)
      used = np.zeros_like(chosen)  # those at the best rates
      for place in np.unique(records.table[against][chosen]).tolist():
        at = chosen & (records.table[against] == place)
        own, own_checks = records.table[at], checks.at(at)
        head = {"series": name, "model": own["model"][0].item(), against: place}
        head |= level.named
        values, which = np.unique(own[list(axes)], return_inverse=True)
        settings = [dict(zip(axes, value, strict=True)) for value in values.tolist()]
        reached = own["outcome"] == "reached"
        near = FACTOR if len(axes) == 1 else NEAR
        trials = laid_out(own["samples"], reached, which, own["trial"], own_checks, near)
        trials = trials.within_one_budget()
        means = _means(own, own_checks, which, trials.running)
        cells += [
          {**head, **setting, **mean}
          for setting, mean in zip(settings, means, strict=True)
        ]
        entry, setting = _best(settings, trials)
        threshold = level.threshold(np.ravel(reference_risk[at])[0])
        needed = np.nan if unknowns is None else unknowns[at][0] * max(0, 1 - threshold)
        best.append({**head, **entry, **json_values({"information": needed})})
        used[np.flatnonzero(at)[which == setting]] = True
      exponent = _exponent(records.table[used], checks.at(used), against)
      if exponent is not None:
        over = [e for e in at_level(best, level) if e["series"] == name]
        over = [e for e in over if e[against] in exponent["over"]]
        marks = {mark: any(e[mark] for e in over) for mark in _MARKS}
        one = _at_settings(records.table[chosen], checks.at(chosen), against, axes)
        own = {"series": name, **level.named, **exponent, **marks}
        exponents.append({**own, "at_settings": one})
  return {
    "confidence": CONFIDENCE,
    "against": against,
    "axes": list(axes),
    "levels": [level._asdict() for level in levels],
    "error": error_names.of(records),
    "repetitions": _REPETITIONS,
    "seed": _SEED,
    "cells": cells,
    "best": best,
    "exponents": exponents,
  }


def verdict(low: float, high: float) -> str:
  """What the interval of a factor says: whether n grows from the first to the last."""
  if low > 1:
    return "grows"
  if high < 1:
    return "falls"
  return "no growth seen" if low <= 1 <= high else "not settled"


def _means(
  own: np.ndarray, checks: Checks, which: np.ndarray, running: np.ndarray
) -> list[dict[str, Any]]:
  """Means of one series at one length, by setting.

  Settings out of the running share their spread with no other: it may be far larger.
  """
  groups = [running[which]] + [which == k for k in np.flatnonzero(~running)]
  means = {}
  for at in groups:
    reached = own["outcome"][at] == "reached"
    means.update(cell_means(own["samples"][at], reached, checks.at(at), which[at]))
  found = []
  for setting in range(len(running)):
    outcomes = own["outcome"][which == setting].tolist()
    first = int(np.argmax(which == setting))
    found.append(
      {
        "trials": len(outcomes),
        **{o: outcomes.count(o) for o in ("reached", "censored", "diverged")},
        "budget": int(checks.budget[first]),
        "resolution": int(checks.every[first]),
        **json_values(means[setting]._asdict()),
      }
    )
  return found


def _exponent(own: np.ndarray, checks: Checks, against: str) -> dict[str, Any] | None:
  """How n grows with the length, or what else it is held against, over these trials."""
  x, bounds, reached = _known(own, checks, against)
  found = fit_exponent(x, bounds, reached)
  if found is None:
    return None
  local = local_exponents(x, bounds, reached)
  ends, both = growth(x, bounds, reached), laws(x, bounds)
  return {
    **json_values(found._asdict()),
    "verdict": verdict(ends.low, ends.high) if ends else "not settled",
    "growth": json_values(ends._asdict()) if ends else None,
    "laws": json_values(both._asdict()) if both else None,
    "local": [json_values(each._asdict()) for each in local],
  }


def _known(
  own: np.ndarray, checks: Checks, against: str
) -> tuple[np.ndarray, Bounds, np.ndarray]:
  """Places, bounds of log n and what reached, without what is at most the first check."""
  reached = own["outcome"] == "reached"
  known = ~at_first_check(own["samples"], reached, checks, own[against])
  own, reached, checks = own[known], reached[known], checks.at(known)
  return own[against], bounds_of(own["samples"], reached, checks), reached


def _at_settings(
  table: np.ndarray, checks: Checks, against: str, axes: Sequence[str]
) -> list[dict[str, Any]]:
  """How n of one series grows at one setting for all lengths, for each setting."""
  found = []
  values, which = np.unique(table[list(axes)], return_inverse=True)
  for setting, value in enumerate(values.tolist()):
    at = which == setting
    spent = np.unique(table[against][at & (table["outcome"] != "reached")])
    at &= ~np.isin(table[against], spent)
    if not np.any(at):
      continue
    exponent = fit_exponent(*_known(table[at], checks.at(at), against))
    if exponent is not None:
      own = json_values(exponent._asdict())
      found.append({**dict(zip(axes, value, strict=True)), **own})
  return found


def _best(
  settings: Sequence[dict[str, Any]], trials: Trials
) -> tuple[dict[str, Any], int | None]:
  """The best setting of one series at one length, and which of the K it is."""
  found = best_of(trials, _REPETITIONS, np.random.default_rng(_SEED))
  setting = 0 if found is None else found.setting
  every, budget = (
    int(own[setting, 0]) for own in (trials.checks.every, trials.checks.budget)
  )
  entry: dict[str, Any] = {"budget": budget, "resolution": every}
  if found is None:
    nothing = dict.fromkeys((*settings[0], *Best._fields[1:-1], *_MEDIAN))
    nothing |= {"mean": float(budget), "trials": 0, "reached": 0}
    nothing |= {"restricted": True, "coarse": False, "at_most": False}
    tried = [{**own, "chosen": None} for own in settings]
    return {**entry, **nothing, "edge": False, "edges": [], "tried": tried}, None
  values = {**found._asdict(), **_median(trials, setting)}
  shares = found.chosen.tolist()
  del values["setting"], values["chosen"]
  run = trials.run[setting]
  samples, reached = trials.samples[setting, run], trials.reached[setting, run]
  at_most = bool(np.all(reached & (samples <= every)))
  if at_most:  # no more is known of n than that
    values |= {"mean": float(every), "low": np.nan, "high": np.nan}
  edges = _edges(settings, setting)
  return {
    **entry,
    **settings[setting],
    **json_values(values),
    "trials": len(samples),
    "reached": int(np.sum(reached)),
    "edge": bool(edges),
    "edges": edges,
    "restricted": not bool(np.all(reached)),
    "coarse": bool(np.mean(samples) < COARSE * every),
    "at_most": at_most,
    "tried": [
      {**own, "chosen": share} for own, share in zip(settings, shares, strict=True)
    ],
  }, setting


def _median(trials: Trials, setting: int) -> dict[str, float]:
  """The median n of one setting's trials, with its interval."""
  run = trials.run[setting]
  found = median_of(Bounds(*(side[setting, run] for side in trials.bounds)))
  return dict(zip(_MEDIAN, found, strict=True))


def _edges(settings: Sequence[dict[str, Any]], setting: int) -> list[str]:
  """Axes of numbers along which a setting is the first or the last of those tried.

  It is held against those that differ from it in this axis alone; for the batch size, in
  the learning rate, too, which follows it. Nothing is below 0, nor below a batch of one
  sample.
  """
  best = settings[setting]
  found = []
  for axis, own in best.items():
    if isinstance(own, str | bool) or own is None:
      continue
    follow = (axis, *(("learning_rate",) if axis == "batch_size" else ()))
    values = {
      other[axis]
      for other in settings
      if all(other[name] == best[name] for name in best if name not in follow)
    }
    nothing_below = own == 0 or (axis == "batch_size" and own == 1)
    enclosed = (own > min(values) or nothing_below) and own < max(values)
    several = len({other[axis] for other in settings}) > 1
    if several and not enclosed:
      found.append(axis)
  return found
