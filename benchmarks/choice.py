"""How often do the intervals at the best of several rates cover?

    python -m benchmarks.choice

Simulates sweeps as `experiments.best_rate` runs them. log n of each rate is normal. Two
pilot trials of each rate, more of those that come near the best. Three lengths, with a
true exponent of 1. Trials of one index are correlated between rates, as they are where
they share their keys. Counts how often the intervals of the best rate's mean and of the
exponent at the best rates cover, and how much smaller the least mean is than the true
one. Takes under an hour on one CPU core.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import rich.console
import rich.table
from absl import app, flags

from sepfx.statistics.best import PILOTS, Trials, best_of, worth_more_trials
from sepfx.statistics.bounded import Bounds
from sepfx.statistics.passages import Checks, log_restricted_mean
from sepfx.statistics.scaling import fit_exponent

flags.DEFINE_integer("sweeps", 1000, "Simulated, of each setting.")
flags.DEFINE_integer("repetitions", 200, "Of the bootstrap of each choice.")

FLAGS = flags.FLAGS
LENGTHS = (4, 8, 16)


class Setting(NamedTuple):
  """One kind of sweep.

  Attributes:
    gaps: of log n at each rate, above that of the best.
    spread: standard deviation of log n, of all rates or of each.
    trials: of a rate that is not given up.
    correlation: of log n between rates, for trials of one index.
    n: at the best rate and the smallest length, in samples.
    budget: in units of n at the best rate.
    every: samples between two checks.
  """

  gaps: Sequence[float]
  spread: float | Sequence[float]
  trials: int
  correlation: float
  n: float
  budget: float
  every: int


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
)


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
) -> Trials:
  """First passages whose log n are normal around `logs`, all trials run."""
  shared = rng.normal(size=(1, trials))
  own = rng.normal(size=(len(logs), trials))
  noise = np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * own
  n = np.exp(np.asarray(logs)[:, None] + np.reshape(spread, (-1, 1)) * noise)
  samples = checks.every * np.ceil(n / checks.every)
  reached = samples <= checks.budget
  samples = np.where(reached, samples, checks.budget)
  return Trials(samples, reached, np.ones_like(reached), checks)


def truth(
  logs: Sequence[float], spread: float | Sequence[float], checks: Checks
) -> np.ndarray:
  """Restricted means of the same."""
  log_budget = np.log(checks.budget[:, 0])
  spreads = np.broadcast_to(spread, len(logs))
  return np.exp(log_restricted_mean(np.array(logs, float), spreads, log_budget))


def with_pilots(trials: Trials) -> Trials:
  """Takes away what the pilot trials say need not run."""
  n = np.where(trials.reached, trials.samples, np.inf)[:, :PILOTS]
  kept = worth_more_trials(n, trials.checks.budget)
  later = np.arange(trials.samples.shape[1]) >= PILOTS
  run = kept[:, None] | ~later
  return trials._replace(run=run, reached=trials.reached & run)


class Found(NamedTuple):
  """What was found of one simulated sweep.

  Attributes:
    covered: of each length, whether the interval has the best rate's true mean.
    errors: log of the estimate over that mean.
    halves: what halves that choose for one another report, over it.
    exponent: whether the exponent's interval has 1.
  """

  covered: list[bool]
  errors: list[float]
  halves: list[float]
  exponent: bool


def sweep(setting: Setting, rng: np.random.Generator, repetitions: int) -> Found:
  """Simulates one sweep; every length is tried again until some trial reached."""
  covered, errors, halves = [], [], []
  lower, upper, reached, lengths = [], [], [], []
  for length in LENGTHS:
    n = setting.n * length / LENGTHS[0]
    checks = alike(len(setting.gaps), 64, setting.every, setting.budget * n)
    logs = np.log(n) + np.array(setting.gaps)
    own = None
    while own is None:
      spread, count = setting.spread, setting.trials
      trials = drawn(rng, logs, spread, count, checks, setting.correlation)
      trials = with_pilots(trials)
      own = best_of(trials, repetitions, rng)
    wanted = float(np.min(truth(logs, setting.spread, checks)))
    covered.append(bool(own.low <= wanted <= own.high))
    errors.append(float(np.log(own.mean / wanted)))
    halves.append(float(own.split / wanted))
    used = trials.run[own.setting]
    lower += trials.bounds.lower[own.setting][used].tolist()
    upper += trials.bounds.upper[own.setting][used].tolist()
    reached += trials.reached[own.setting][used].tolist()
    lengths += [float(length)] * int(used.sum())
  bounds = Bounds(np.array(lower), np.array(upper))
  found = fit_exponent(np.array(lengths), bounds, np.array(reached))
  exponent = found is not None and found.low <= 1 <= found.high
  return Found(covered, errors, halves, bool(exponent))


def main(argv: Sequence[str]) -> None:
  del argv
  table = rich.table.Table(
    "gaps of log n", "spread", "trials", "correlation", "n", "budget / n", "mean covers",
    "exponent covers", "least mean / true", "halves / true",
  )  # fmt: skip
  for setting in SETTINGS:
    rng = np.random.default_rng(0)
    found = [sweep(setting, rng, FLAGS.repetitions) for _ in range(FLAGS.sweeps)]
    table.add_row(
      *(", ".join(f"{own:g}" for own in np.ravel(value)) for value in setting[:6]),
      f"{np.mean([own.covered for own in found]):.3f}",
      f"{np.mean([own.exponent for own in found]):.3f}",
      f"{np.exp(np.mean([own.errors for own in found])):.3f}",
      f"{np.nanmean([own.halves for own in found]):.3f}",
    )
  rich.console.Console(width=140).print(table)


if __name__ == "__main__":
  app.run(main)
