"""The best of several settings: how few samples it needs, and what choosing it does.

Of several noisy means the smallest is smaller than it should be. Two numbers stand
against that. Each half of the trials chooses and the other half reports. A parametric
bootstrap repeats the choice: its mean error is how much the choice flatters.

Letters: K settings (rates, say), m trials of each, B repetitions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Real

from sepfx.statistics.bounded import Bounds
from sepfx.statistics.passages import (
  Checks,
  bounds_of,
  log_restricted_mean,
  points,
  restricted_means,
)

# Trials of each setting in a first round.
PILOTS = 2
# A setting is given up if no pilot trial reached within so many times the least mean n:
# of settings along one axis, and of those along several, of which many come near.
FACTOR = 5.0
NEAR = 2.0


def pilot_means(
  n: Float[np.ndarray, "K pilots *rest"], budget: np.ndarray | float
) -> Float[np.ndarray, "K *rest"]:
  """Means of those pilot trials that were run. One that did not reach has its budget.

  Args:
    n: of the pilot trials; infinite for one that did not reach, NaN for one that was not
      run.
    budget: of a trial, or of each setting's, in the shape of n but for ones.

  Returns:
    NaN for a setting of which none was run.
  """
  run = ~np.isnan(n)
  total = np.sum(np.where(run, np.minimum(n, budget), 0.0), axis=1)
  count = np.sum(run, axis=1)
  return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def worth_more_trials(
  n: Float[np.ndarray, "K pilots *rest"], budget: np.ndarray | float, factor: float
) -> Bool[np.ndarray, "K *rest"]:
  """Which settings get more than their pilot trials.

  Those of which a pilot trial reached within `factor` times the least mean n of all.

  Args:
    n, budget: as `pilot_means` takes them.
    factor: at least 1.
  """
  first = np.min(np.where(np.isnan(n), np.inf, n), axis=1)
  least = np.nanmin(pilot_means(n, budget), axis=0)
  return np.isfinite(first) & (first <= factor * least)


class Trials(NamedTuple):
  """First passages of K settings, m trials each; `run` where a trial is there.

  Attributes:
    samples: n at the check at which the threshold was first met, [*batch K m].
    reached: whether it was.
    run: which trials were run.
    checks: at which checks, of each setting, [K 1].
    near: times the least mean n within which a pilot trial earned others.
  """

  samples: np.ndarray
  reached: np.ndarray
  run: np.ndarray
  checks: Checks
  near: float = FACTOR

  @property
  def bounds(self) -> Bounds:
    """Bounds of log n; open where no trial is."""
    lower, upper = bounds_of(self.samples, self.reached, self.checks)
    return Bounds(np.where(self.run, lower, -np.inf), np.where(self.run, upper, np.inf))

  @property
  def given_up(self) -> Bool[np.ndarray, " K"]:
    """Settings that have their pilot trials alone, because of these."""
    count = np.sum(self.run, axis=-1)
    n = np.where(self.reached, self.samples, np.inf)
    pilots = np.where(self.run, n, np.nan)[:, :PILOTS]
    kept = worth_more_trials(pilots, self.checks.budget, self.near)
    return (count <= PILOTS) & (np.max(count) > PILOTS) & ~kept

  @property
  def running(self) -> Bool[np.ndarray, " K"]:
    """Settings that may be the best, and of which the spread of log n may be one.

    Settings that were given up are left out. So are those with at most one trial that
    reached, unless their mean is the least: they tell no spread of their own, and their
    trials that did not reach would make the others' too large. There may be none left.
    """
    told = np.sum(self.reached & self.run, axis=-1) > 1
    told[choose(self).setting] = True
    return told & ~self.given_up

  def settings(self, chosen: np.ndarray) -> Trials:
    """Those of some settings alone."""
    samples, reached, run = (
      own[..., chosen, :] for own in (self.samples, self.reached, self.run)
    )
    return Trials(samples, reached, run, self.checks.at(chosen), self.near)

  def within_one_budget(self) -> Trials:
    """The trials as they would be within the least budget of all settings.

    Budgets are whole numbers of checks, so that they differ between batch sizes. Else a
    setting that reached nowhere could have the least mean of min(n, budget).
    """
    budget = np.full_like(self.checks.budget, np.min(self.checks.budget))
    reached = self.reached & (self.samples <= budget)
    samples = np.where(reached, self.samples, np.where(self.run, budget, self.samples))
    checks = self.checks._replace(budget=budget)
    return self._replace(samples=samples, reached=reached, checks=checks)

  def half(self, k: int) -> Trials:
    """Every other trial, from trial k on."""
    samples, reached, run = (
      own[..., k::2] for own in (self.samples, self.reached, self.run)
    )
    return Trials(samples, reached, run, self.checks, self.near)


class Best(NamedTuple):
  """The setting with the smallest restricted mean E[min(n, budget)].

  Attributes:
    setting: which of the K.
    mean: of it, from the likelihood of all trials.
    low, high: 95% interval of the best setting's mean; NaN where too few trials tell of
      a spread.
    split: recorded mean where each half of the trials chose and the other half reported,
      on average. NaN where a half has no trial that reached.
    flatters: factor by which the recorded mean of the setting chosen is too small, on
      average over the bootstrap: below 1 where the choice flatters.
    chosen: how often the bootstrap chose each setting, [K].
  """

  setting: int
  mean: float
  low: float
  high: float
  split: float
  flatters: float
  chosen: np.ndarray


class Choice(NamedTuple):
  """What a set of trials, or each of a batch, chooses.

  Attributes:
    setting: which of the K, [*batch].
    mean: recorded of it, [*batch].
  """

  setting: np.ndarray
  mean: np.ndarray


def choose(trials: Trials) -> Choice:
  """Returns the setting with the smallest mean of min(n, budget) as recorded.

  It needs no model of n, and nothing of other settings.
  """
  means = _recorded(trials)
  setting = np.argmin(means, axis=-1)
  mean = np.take_along_axis(means, setting[..., None], axis=-1)[..., 0]
  return Choice(setting, mean)


def _recorded(trials: Trials) -> Float[np.ndarray, "*batch K"]:
  """Means of min(n, budget), n in the middle between the last two checks."""
  checks = trials.checks
  n = np.where(trials.reached, trials.samples - checks.every / 2, checks.budget)
  count = np.maximum(np.sum(trials.run, axis=-1), 1)
  means = np.sum(np.where(trials.run, n, 0.0), axis=-1) / count
  return np.where(np.any(trials.run, axis=-1), means, np.inf)


def split_mean(trials: Trials) -> float:
  """Each half of the trials chooses, the other reports: the mean of both.

  NaN where a half chooses nothing, since none of its trials reached.
  """
  halves = [trials.half(0), trials.half(1)]
  reported = []
  for chooser, reporter in (halves, halves[::-1]):
    if not np.any(chooser.reached & chooser.run):
      return float("nan")
    reported.append(_recorded(reporter)[choose(chooser).setting])
  return float(np.mean(reported))


def repeated(
  trials: Trials, repetitions: int, rng: np.random.Generator
) -> tuple[Trials, Float[np.ndarray, " K"]]:
  """Draws the trials again from the likelihood fitted to them.

  log n of setting k and trial j is normal with the fitted mean and spread of k, looked
  for at the same checks within the same budget. Trials of one index share their keys, so
  their log n are correlated: as much as those observed, on average over pairs of
  settings. A setting of which no trial reached never does.

  Args:
    trials: [K m].
    repetitions: B.
    rng: where the numbers come from.

  Returns:
    Trials [B K m], and the restricted means that they were drawn with, [K].
  """
  found = points(trials.bounds)
  none = ~np.any(trials.reached & trials.run, axis=-1)
  found = found._replace(log=np.where(none, np.inf, found.log))
  spread = found.spread[:, None]
  correlation = _correlation(trials, found.log, spread)
  K, m = trials.samples.shape
  own = rng.normal(size=(repetitions, K, m))
  shared = rng.normal(size=(repetitions, 1, m))
  noise = np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * own
  n = np.exp(np.minimum(found.log[:, None] + spread * noise, 600.0))
  step, every, budget = trials.checks
  samples = every * np.ceil(np.maximum(n, step) / every)
  reached = samples <= budget
  samples = np.where(reached, samples, budget)
  run = np.broadcast_to(trials.run, samples.shape)
  log_budget = np.log(budget[:, 0])
  truth = np.exp(log_restricted_mean(found.log, found.spread, log_budget))
  return trials._replace(samples=samples, reached=reached & run, run=run), truth


def _correlation(trials: Trials, log: np.ndarray, spread: np.ndarray) -> float:
  """Mean correlation of log n between settings, over trials that reached in both."""
  used = trials.reached & trials.run
  centre = np.where(np.isfinite(log), log, 0.0)[:, None]
  residual = np.where(used, np.log(np.maximum(trials.samples, 1)) - centre, 0.0)
  residual = (residual - np.where(used, _mean(residual, used), 0.0)) / spread
  products = np.sum(residual, axis=0) ** 2 - np.sum(residual**2, axis=0)
  count = np.sum(used, axis=0)
  pairs = np.sum(count * (count - 1))
  if not pairs:
    return 0.0
  return float(np.clip(np.sum(products) / pairs, 0.0, 0.95))


def _mean(values: np.ndarray, used: np.ndarray) -> np.ndarray:
  count = np.maximum(np.sum(used, axis=-1, keepdims=True), 1)
  return np.sum(np.where(used, values, 0.0), axis=-1, keepdims=True) / count


def best_of(trials: Trials, repetitions: int, rng: np.random.Generator) -> Best | None:
  """Chooses among K settings and says what the choice is worth.

  Settings out of the running are not the best, and their spread is not that of the
  others.

  The interval is from the likelihood. Any of the settings may be the best, so it begins
  at the lowest end of all their intervals. It ends where that of the chosen one does,
  made larger by the factor by which the choice flatters.

  Args:
    trials: [K m].
    repetitions: B, of the bootstrap.
    rng: where its numbers come from.

  Returns:
    None if no trial reached.
  """
  number = len(trials.samples)
  running = np.flatnonzero(trials.running)
  trials = trials.settings(running)
  if not np.any(trials.reached):
    return None
  own = choose(trials)
  again, truth = repeated(trials, repetitions, rng)
  others = choose(again)
  flatters = np.exp(np.mean(np.log(others.mean) - np.log(truth[others.setting])))
  budget, every = trials.checks.budget[:, 0], trials.checks.every[:, 0]
  means = restricted_means(trials.bounds, budget, every)
  # Where no trial of a setting reached, its spread may not be known.
  known = np.isfinite(means.low)
  low = np.min(means.low[known]) if known[own.setting] else np.nan
  high = means.high[own.setting] / min(flatters, 1.0)
  chosen = np.bincount(running[others.setting], minlength=number) / repetitions
  return Best(
    int(running[own.setting]),
    float(means.mean[own.setting]),
    float(low),
    float(np.minimum(high, budget[own.setting])),
    split_mean(trials),
    float(flatters),
    chosen,
  )


def laid_out(
  samples: Real[np.ndarray, " n"],
  reached: Bool[np.ndarray, " n"],
  setting: Int[np.ndarray, " n"],
  trial: Int[np.ndarray, " n"],
  checks: Checks,
  near: float = FACTOR,
) -> Trials:
  """Lays first passages out as [K m], by the number of their setting and their index.

  Args:
    samples, reached, checks: as `sepfx.statistics.passages.bounds_of` takes them. Trials
      of one setting have the same checks.
    setting: 0, ..., K - 1 of each.
    trial: its index, from 0.
    near: as `Trials` has it.
  """
  shape = (int(setting.max()) + 1, int(trial.max()) + 1)
  table, met = np.ones(shape), np.zeros(shape, bool)
  run = np.zeros(shape, bool)
  table[setting, trial], met[setting, trial] = samples, reached
  run[setting, trial] = True
  _, first = np.unique(setting, return_index=True)
  own_checks = Checks(*(own[first, None] for own in checks))
  return Trials(table, met, run, own_checks, near)
