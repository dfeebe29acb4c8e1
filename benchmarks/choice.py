"""How often do the intervals at the best of several rates cover?

    python -m benchmarks.choice

Simulates sweeps as `experiments.best_rate` runs them. log n of each setting is normal;
where some trials are slow, one in ten is three times as slow. Settings are learning
rates, or learning rates and batch sizes. Pilot trials as `sepfx.studies.searches` chooses
them, more of those settings that come near the best. Three lengths, with a true exponent
of 1. Trials of one index are correlated between settings, as they are where they share
their keys. Counts how often the intervals of the best setting's mean, of its median, of
the exponent at the best settings and of the ratio of two such means cover. Says how much
smaller the least mean is than the true one, how many trials are run per length, and how
much larger the true mean of the setting that was chosen is than the least one. Takes a
quarter of an hour on one CPU core.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import rich.console
import rich.table
from absl import app, flags
from scipy.optimize import brentq
from scipy.stats import norm

from experiments import best_rate
from sepfx.statistics.best import (
  FACTOR,
  NEAR,
  PILOTS,
  Best,
  Trials,
  best_of,
  worth_more_trials,
)
from sepfx.statistics.bounded import Bounds
from sepfx.statistics.intervals import ratio
from sepfx.statistics.medians import median_of
from sepfx.statistics.passages import Checks, log_restricted_mean
from sepfx.statistics.scaling import fit_exponent
from sepfx.studies.searches import next_pilots

flags.DEFINE_integer("sweeps", 1000, "Simulated, of each setting.")
flags.DEFINE_integer("repetitions", 200, "Of the bootstrap of each choice.")

FLAGS = flags.FLAGS
LENGTHS = (4, 8, 16)


class Plane(NamedTuple):
  """log n over batch sizes and learning rates, as Adam has it.

  It falls like the rate up to one that grows like the square root of the batch size, and
  rises twice as fast beyond. At these rates it is the same for all batches up to the best
  size, and grows like their square root above.

  Attributes:
    size, rate: the best, and the largest with which n is the least.
  """

  size: int
  rate: float

  def gaps(self, settings: Sequence[Mapping[str, float]]) -> np.ndarray:
    """Of each setting."""
    found = []
    for setting in settings:
      size = setting["batch_size"]
      wide = np.log(size / self.size) / 2
      own = np.log(setting["learning_rate"] / self.rate) - wide
      found.append(max(wide, 0.0) + max(-own, 2 * own))
    return np.array(found)


class Setting(NamedTuple):
  """One kind of sweep.

  Attributes:
    gaps: of log n at each rate, above that of the best; or `Plane`.
    spread: standard deviation of log n, of all settings or of each.
    trials: of a setting that is not given up.
    correlation: of log n between settings, for trials of one index.
    n: at the best setting and the smallest length, in samples.
    budget: in units of n at the best setting.
    every: samples between two checks; at batches of 64, where sizes are chosen from.
    slow: share of trials whose n is three times as large.
  """

  gaps: Sequence[float] | Plane
  spread: float | Sequence[float]
  trials: int
  correlation: float
  n: float
  budget: float
  every: int
  slow: float = 0.0

  @property
  def name(self) -> str:
    """The gaps in a word or in numbers."""
    if isinstance(self.gaps, Plane):
      return f"two axes, least at {self.gaps.size}, {self.gaps.rate:g}"
    return ", ".join(f"{gap:g}" for gap in self.gaps)


RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
GRID = tuple(
  {"batch_size": size, "learning_rate": rate}
  for size in (1, 4, 16, 64, 256)
  for rate in RATES
)
SETTINGS = (
  Setting((0, 0.1, 1.0), 0.2, 6, 0.0, 1500, 8, 64),
  Setting((0, 0.1, 1.0), 0.2, 6, 0.7, 1500, 8, 64),
  Setting((0, 0, 0), 0.2, 6, 0.5, 1500, 8, 64),
  Setting((0, 0, 0, 0, 0), 0.5, 6, 0.0, 15_000, 8, 640),
  Setting((0, 0.3, 1.0, 1.5, 3.0), 0.5, 6, 0.3, 30_000, 8, 640),
  Setting((0, 0.05, 0.8), 0.05, 6, 0.0, 1500, 8, 64),
  Setting((0, 0.2, 1.0), 0.2, 3, 0.0, 15_000, 8, 640),
  Setting((0, 0.2, 0.5), 0.5, 6, 0.3, 15_000, 1.5, 640),
  Setting((0, 0.7, 2.5), (0.2, 0.2, 1.2), 6, 0.3, 3000, 80, 64),
  Setting(Plane(4, 6e-3), 0.1, 10, 0.3, 500, 100, 64),
  Setting(Plane(4, 6e-3), 0.3, 10, 0.3, 500, 100, 64),
  Setting(Plane(16, 3e-3), 0.3, 10, 0.0, 10_000, 20, 640),
  Setting(Plane(64, 1e-2), 0.5, 10, 0.3, 30_000, 8, 640),
  Setting(Plane(256, 3e-3), 0.2, 10, 0.3, 30_000, 20, 640),
  Setting(Plane(4, 6e-3), 0.1, 10, 0.3, 500, 100, 64, slow=0.1),
  Setting(Plane(16, 3e-3), 0.3, 10, 0.0, 10_000, 20, 640, slow=0.1),
  Setting(Plane(64, 1e-2), 0.5, 10, 0.3, 30_000, 8, 640, slow=0.1),
)
SLOWER = 3.0


def alike(settings: int, step: float, every: float, budget: float) -> Checks:
  """Of so many settings the same checks."""
  return Checks(*(np.full((settings, 1), own) for own in (step, every, budget)))


def drawn(
  rng: np.random.Generator,
  logs: Sequence[float],
  spread: float | Sequence[float],
  trials: int,
  checks: Checks,
  correlation: float = 0.0,
  slow: float = 0.0,
) -> Trials:
  """First passages whose log n are normal around `logs`, all trials run.

  Of each setting a share of the trials is `SLOWER`.
  """
  shared = rng.normal(size=(1, trials))
  own = rng.normal(size=(len(logs), trials))
  noise = np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * own
  n = np.exp(np.asarray(logs)[:, None] + np.reshape(spread, (-1, 1)) * noise)
  if slow:
    n = n * np.where(rng.random(n.shape) < slow, SLOWER, 1.0)
  samples = checks.every * np.ceil(n / checks.every)
  reached = samples <= checks.budget
  samples = np.where(reached, samples, checks.budget)
  return Trials(samples, reached, np.ones_like(reached), checks)


def truth(
  logs: Sequence[float],
  spread: float | Sequence[float],
  checks: Checks,
  slow: float = 0.0,
) -> np.ndarray:
  """Restricted means of the same."""
  log_budget = np.log(checks.budget[:, 0])
  spreads = np.broadcast_to(spread, len(logs))
  means = [
    np.exp(log_restricted_mean(np.array(logs, float) + shift, spreads, log_budget))
    for shift in (0.0, np.log(SLOWER))
  ]
  return (1 - slow) * means[0] + slow * means[1]


def middle_of(log: float, spread: float, slow: float) -> float:
  """The median n of one setting."""

  def above(x: float) -> float:
    shares = norm.cdf([(x - log) / spread, (x - log - np.log(SLOWER)) / spread])
    return (1 - slow) * shares[0] + slow * shares[1] - 0.5

  return float(np.exp(brentq(above, log - spread, log + np.log(SLOWER) + spread)))


def with_pilots(trials: Trials, settings: Sequence[Mapping] | None = None) -> Trials:
  """Takes away what the pilot trials say need not run.

  Args:
    trials: all.
    settings: of which they are; None for rates alone.
  """
  n = np.where(trials.reached, trials.samples, np.inf)[:, :PILOTS, None]
  budget = trials.checks.budget[..., None]
  known = np.full_like(n, np.nan)
  settings = settings or [{}] * len(n)
  while pilots := next_pilots(settings, known, budget):
    for each in pilots:
      known[each] = n[each]
  near = FACTOR if len(settings[0]) < 2 else NEAR
  kept = worth_more_trials(known, budget, near)
  run = np.repeat(kept, trials.run.shape[1], axis=1)
  run[:, :PILOTS] |= ~np.isnan(known[..., 0])
  return trials._replace(run=run, reached=trials.reached & run, near=near)


class Found(NamedTuple):
  """What was found of one simulated sweep.

  Attributes:
    covered: of each length, whether the interval has the best setting's true mean.
    medians: whether that of the median has the median of the setting chosen; NaN where
      there is none.
    errors: log of the estimate over that mean.
    halves: what halves that choose for one another report, over it.
    regret: log of the true mean of the setting chosen over it.
    trials: of each length.
    exponent: whether the exponent's interval has 1.
    first: the mean at the first length, with its interval.
  """

  covered: list[bool]
  medians: list[float]
  errors: list[float]
  halves: list[float]
  regret: list[float]
  trials: list[int]
  exponent: bool
  first: tuple[float, float, float]


def checks_of(setting: Setting, n: float) -> Checks:
  """How the trials of one length are looked at."""
  budget = setting.budget * n
  if not isinstance(setting.gaps, Plane):
    return alike(len(setting.gaps), 64, setting.every, budget)
  steps = [own["batch_size"] for own in GRID]
  every = [b * best_rate.check_steps(setting.every // 64, b) for b in steps]
  columns = (steps, every, [budget] * len(GRID))
  return Checks(*(np.array(own, float)[:, None] for own in columns))


def sweep(setting: Setting, rng: np.random.Generator, repetitions: int) -> Found:
  """Simulates one sweep; every length is tried again until some trial reached."""
  found = Found([], [], [], [], [], [], False, (np.nan, np.nan, np.nan))
  lower, upper, reached, lengths = [], [], [], []
  settings, gaps = None, setting.gaps
  if isinstance(gaps, Plane):
    settings, gaps = GRID, gaps.gaps(GRID)
  for length in LENGTHS:
    n = setting.n * length / LENGTHS[0]
    checks, logs = checks_of(setting, n), np.log(n) + np.asarray(gaps)
    own = None
    while own is None:
      trials = drawn(rng, logs, setting.spread, setting.trials, checks,
                     setting.correlation, setting.slow)  # fmt: skip
      trials = with_pilots(trials, settings)
      own, at = chosen_of(trials, repetitions, rng)
    means = truth(logs, setting.spread, checks, setting.slow)
    wanted = float(np.min(means))
    used = trials.run[at]
    bounds = Bounds(*(side[at][used] for side in trials.bounds))
    median = median_of(bounds)
    middle = middle_of(float(logs[at]), np.broadcast_to(setting.spread, len(logs))[at],
                       setting.slow)  # fmt: skip
    if length == LENGTHS[0]:
      found = found._replace(first=(own.mean, own.low, own.high))
    found.covered.append(bool(own.low <= wanted <= own.high))
    high = np.inf if np.isnan(median.high) else median.high
    covers = median.low <= middle <= high
    found.medians.append(np.nan if np.isnan(median.low) else float(covers))
    found.errors.append(float(np.log(own.mean / wanted)))
    found.halves.append(float(own.split / wanted))
    found.regret.append(float(np.log(means[at] / wanted)))
    found.trials.append(int(np.sum(trials.run)))
    lower += bounds.lower.tolist()
    upper += bounds.upper.tolist()
    reached += trials.reached[at][used].tolist()
    lengths += [float(length)] * int(used.sum())
  whole = Bounds(np.array(lower), np.array(upper))
  fitted = fit_exponent(np.array(lengths), whole, np.array(reached))
  covered = fitted is not None and fitted.low <= 1 <= fitted.high
  return found._replace(exponent=bool(covered))


def chosen_of(
  trials: Trials, repetitions: int, rng: np.random.Generator
) -> tuple[Best | None, int]:
  """The best of the settings that were tried, and its number among all."""
  tried = np.flatnonzero(np.any(trials.run, axis=-1))
  own = best_of(trials.settings(tried), repetitions, rng)
  return own, 0 if own is None else int(tried[own.setting])


def ratios_cover(found: Sequence[Found]) -> float:
  """How often the ratio of two sweeps' means, which is 1, lies in its interval."""
  covered = []
  for one, other in zip(found[::2], found[1::2], strict=False):
    _, low, high = ratio(one.first, other.first)
    covered.append(low <= 1 <= high)
  return float(np.mean(covered))


def main(argv: Sequence[str]) -> None:
  del argv
  table = rich.table.Table(
    "gaps of log n", "spread", "trials", "correlation", "n", "budget / n", "slow",
    "mean covers", "median covers", "exponent covers", "ratio covers",
    "least mean / true", "halves / true", "chosen / least", "trials per length",
  )  # fmt: skip
  for setting in SETTINGS:
    rng = np.random.default_rng(0)
    found = [sweep(setting, rng, FLAGS.repetitions) for _ in range(FLAGS.sweeps)]
    medians = [own.medians for own in found]
    table.add_row(
      setting.name,
      *(", ".join(f"{own:g}" for own in np.ravel(value)) for value in setting[1:6]),
      f"{setting.slow:g}",
      f"{np.mean([own.covered for own in found]):.3f}",
      "" if np.all(np.isnan(medians)) else f"{np.nanmean(medians):.3f}",
      f"{np.mean([own.exponent for own in found]):.3f}",
      f"{ratios_cover(found):.3f}",
      f"{np.exp(np.mean([own.errors for own in found])):.3f}",
      f"{np.nanmean([own.halves for own in found]):.3f}",
      f"{np.exp(np.mean([own.regret for own in found])):.3f}",
      f"{np.mean([own.trials for own in found]):.0f}",
    )
  rich.console.Console(width=180).print(table)


if __name__ == "__main__":
  app.run(main)
