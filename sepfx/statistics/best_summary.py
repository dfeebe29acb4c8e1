"""What a sweep of learning rates says of each architecture at its best rate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sepfx.ensembles import Records
from sepfx.statistics import error_names
from sepfx.statistics.best import Best, Trials, best_of, laid_out
from sepfx.statistics.bounded import CONFIDENCE
from sepfx.statistics.levels import Level
from sepfx.statistics.passages import (
  COARSE,
  Checks,
  at_first_check,
  bounds_of,
  cell_means,
)
from sepfx.statistics.scaling import fit_exponent, local_exponents, straightness
from sepfx.statistics.series import letter_of, series
from sepfx.statistics.summary import at_level, json_values, of_level

RATE = "learning_rate"
# Repetitions of the bootstrap, and the seed of its numbers.
_REPETITIONS, _SEED = 1000, 0
# What n ~ N^c is called whose c lies below, or above this.
BORDER = 0.5
# What may be said of an n at the best rate.
_MARKS = ("coarse", "edge", "restricted")


def summarise_best(
  records: Records,
  levels: Sequence[Level],
  checks: Checks,
  reference_risk: np.ndarray,
  against: str = "length",
  unknowns: np.ndarray | None = None,
) -> dict[str, Any]:
  """Chooses each series' best learning rate at each level and length, or other place.

  Args:
    records: with thresholds, and a column learning_rate.
    levels: what was to be reached.
    checks: how first passages were looked for, of each row.
    reference_risk: risk of uniform attention, [rows]; NaN where there is no such line.
    against: the numeric column in place of the length N, if it is another one.
    unknowns: numbers that are to be learned for each label of a prompt, [rows]; NaN where
      that is not known, None where it is known of none.

  Returns:
    JSON values. `cells`: for each level, series, length and rate what
    `passages.Mean` has. `best`: for each level, series and length the best rate with what
    `best.Best` has; `learning_rate` is None where no trial of any rate reached, and
    then `mean` is the budget. `edge` is True where the rate is the smallest or the
    largest tried, so that one beyond it may need fewer samples.
    `at_most` is True where all its trials reached at the first check, which is `mean`.
    `information`: prompts that any learner needs on average, None where that is not
    known.
    `exponents`: c of n ~ N^c over the trials at the best rates, but for those that are
    known as at most the first check; `at_rates`, c at each
    rate over those lengths at which all its trials reached, which is too small where n
    grows beyond the budget; and the verdict that
    follows from its interval; `straight`, the p-value of a straight line against means
    of any values; `local`, c from each length to the next; and `coarse`, `edge` and
    `restricted` where some n that it was fitted over is so. All intervals have the level
    `confidence`.
  """
  names = series(records, (against, RATE))
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
        rates, which = np.unique(own[RATE], return_inverse=True)
        reached = own["outcome"] == "reached"
        trials = laid_out(own["samples"], reached, which, own["trial"], own_checks)
        cells += [{**head, **cell} for cell in _rates(own, own_checks, trials.running)]
        entry = _best(rates.tolist(), trials)
        threshold = level.threshold(np.ravel(reference_risk[at])[0])
        needed = np.nan if unknowns is None else unknowns[at][0] * max(0, 1 - threshold)
        best.append({**head, **entry, **json_values({"information": needed})})
        used |= at & (records.table[RATE] == entry[RATE])
      exponent = _exponent(records.table[used], checks.at(used), against)
      if exponent is not None:
        over = [e for e in at_level(best, level) if e["series"] == name]
        over = [e for e in over if e[against] in exponent["over"]]
        marks = {mark: any(e[mark] for e in over) for mark in _MARKS}
        at_rates = _at_rates(records.table, chosen, checks, against)
        own = {"series": name, **level.named, **exponent, **marks}
        exponents.append({**own, "at_rates": at_rates})
  return {
    "confidence": CONFIDENCE,
    "against": against,
    "levels": [level._asdict() for level in levels],
    "error": error_names.of(records),
    "repetitions": _REPETITIONS,
    "seed": _SEED,
    "cells": cells,
    "best": best,
    "exponents": exponents,
  }


def verdict(low: float, high: float, letter: str = "N") -> str:
  """What an exponent's interval says of the growth of n with N, or another quantity."""
  if high < BORDER:
    return f"nearly independent of {letter}"
  return "grows" if low > BORDER else "not settled"


def _rates(own: np.ndarray, checks: Checks, running: np.ndarray) -> list[dict[str, Any]]:
  """Means of one series at one length, by rate.

  Rates out of the running share their spread with no other: it may be far larger.
  """
  rates, which = np.unique(own[RATE], return_inverse=True)
  groups = [running[which]] + [which == k for k in np.flatnonzero(~running)]
  means = {}
  for at in groups:
    reached = own["outcome"][at] == "reached"
    means.update(cell_means(own["samples"][at], reached, checks.at(at), own[RATE][at]))
  found = []
  for rate, mean in ((rate, means[rate]) for rate in rates.tolist()):
    outcomes = own["outcome"][own[RATE] == rate].tolist()
    found.append(
      {
        RATE: rate,
        "trials": len(outcomes),
        **{o: outcomes.count(o) for o in ("reached", "censored", "diverged")},
        "budget": int(checks.budget[0]),
        "resolution": int(checks.every[0]),
        **json_values(mean._asdict()),
      }
    )
  return found


def _exponent(own: np.ndarray, checks: Checks, against: str) -> dict[str, Any] | None:
  """How n grows with the length, or what else it is held against, over these trials."""
  reached = own["outcome"] == "reached"
  known = ~at_first_check(own["samples"], reached, checks, own[against])
  own, reached, checks = own[known], reached[known], checks.at(known)
  bounds = bounds_of(own["samples"], reached, checks)
  x = own[against]
  found = fit_exponent(x, bounds, reached)
  if found is None:
    return None
  local = local_exponents(x, bounds, reached)
  return {
    **json_values(found._asdict()),
    "verdict": verdict(found.low, found.high, letter_of(against)),
    "straight": json_values({"p": straightness(x, bounds)})["p"],
    "local": [json_values(each._asdict()) for each in local],
  }


def _at_rates(
  table: np.ndarray, chosen: np.ndarray, checks: Checks, against: str
) -> list[dict[str, Any]]:
  """How n grows at one rate for all lengths, for each rate."""
  found = []
  for rate in np.unique(table[RATE][chosen]).tolist():
    at = chosen & (table[RATE] == rate)
    spent = np.unique(table[against][at & (table["outcome"] != "reached")])
    at &= ~np.isin(table[against], spent)
    exponent = _exponent(table[at], checks.at(at), against) if np.any(at) else None
    if exponent is not None:
      own = {name: exponent[name] for name in ("c", "low", "high", "over")}
      found.append({RATE: rate, **own})
  return found


def _best(rates: list[float], trials: Trials) -> dict[str, Any]:
  """The best rate of one series at one length, of K rates."""
  found = best_of(trials, _REPETITIONS, np.random.default_rng(_SEED))
  setting = 0 if found is None else found.setting
  every, budget = (
    int(own[setting, 0]) for own in (trials.checks.every, trials.checks.budget)
  )
  entry: dict[str, Any] = {"rates": rates, "budget": budget, "resolution": every}
  if found is None:
    nothing = dict.fromkeys((RATE, *Best._fields[1:]))
    nothing |= {"mean": float(budget), "trials": 0, "reached": 0}
    nothing |= {"restricted": True, "coarse": False, "at_most": False}
    return {**entry, **nothing, "edge": False}
  values = found._asdict()
  del values["setting"]
  values["chosen"] = dict(zip(map(str, rates), found.chosen.tolist(), strict=True))
  run = trials.run[setting]
  samples, reached = trials.samples[setting, run], trials.reached[setting, run]
  at_most = bool(np.all(reached & (samples <= every)))
  if at_most:  # no more is known of n than that
    values |= {"mean": float(every), "low": np.nan, "high": np.nan}
  return {
    **entry,
    RATE: rates[setting],
    **json_values(values),
    "trials": len(samples),
    "reached": int(np.sum(reached)),
    "edge": len(rates) > 1 and setting in (0, len(rates) - 1),
    "restricted": not bool(np.all(reached)),
    "coarse": bool(np.mean(samples) < COARSE * every),
    "at_most": at_most,
  }
