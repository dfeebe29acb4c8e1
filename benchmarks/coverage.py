"""How often do the 95% intervals that the docs print contain the truth?

    python -m benchmarks.coverage

Simulates first passages n at three lengths, n ~ N, as runs record them: at the next check
of 640 samples, or not at all beyond a budget. log n has a spread that is normal, or that
of the recorded trials of Figure 1(a); "unequal" is normal with twice the spread at the
smallest length and half of it at the largest; "slow" is normal with one in ten trials
twice as slow. Prints for each setting the share of data sets whose interval contains the
truth, of means, medians and the exponent, and the median width beside that of what
preceded it: Student's interval of the recorded n, and percentiles of least squares over
resampled trials. Then the shares of `benchmarks.clusters` and `benchmarks.intervals`.
"""

from __future__ import annotations

import concurrent.futures
import csv
import itertools
import pathlib
from collections.abc import Sequence

import numpy as np
import rich.console
import scipy.stats
from absl import app, flags

from benchmarks import intervals
from benchmarks.clusters import SHARED, SPREAD, Clustered
from sepfx.statistics.bounded import Bounds
from sepfx.statistics.intervals import student_interval
from sepfx.statistics.medians import median_of
from sepfx.statistics.passages import Checks, bounds_of, restricted_means
from sepfx.statistics.scaling import slope

# How log n is distributed: normal, of one spread or of these multiples of it; as
# recorded; or normal but for slow trials.
DISTRIBUTIONS = ("normal", "unequal", "recorded", "slow")

flags.DEFINE_list("distributions", list(DISTRIBUTIONS), "How log n is distributed.")
flags.DEFINE_integer("data_sets", 1000, "Simulated for each setting.", lower_bound=1)
flags.DEFINE_list("trials", ["3", "5", "10"], "Trials at each length.")
flags.DEFINE_list("spreads", ["0.05", "0.2", "0.5"], "Standard deviations of log n.")
flags.DEFINE_list("smallest", ["1500", "15000"], "Median n at the smallest length.")
flags.DEFINE_integer("seed", 0, "Seed of everything random.")
FLAGS = flags.FLAGS

EVERY, STEP = 640, 64
# Lengths, as multiples of the smallest.
LENGTHS = np.array([1.0, 2.0, 4.0])
_UNEQUAL = np.array([2.0, 1.0, 0.5])
# Of "slow": which share of the trials is by which factor slower.
_SLOW, _SLOWER = 0.1, 2.0
# Share of the largest length's trials that are censored, where some are.
CENSORED = 1 / 3
_RESAMPLES = 200
_RECORDS = pathlib.Path(__file__).parent.parent / "docs" / "results" / "fig1a_simple"
# Cells whose residuals are taken: of many trials, and of n that checks do not blur.
_LEAST_TRIALS, _LEAST_CHECKS = 20, 15
# Values at which a distribution of log n is held, at equal shares.
_QUANTILES = 4000


def recorded_residuals() -> np.ndarray:
  """Residuals of log n of the recorded cells of most trials, of variance 1 in each."""
  cells: dict[tuple[str, str], list[float]] = {}
  with open(_RECORDS / "trials.csv", newline="") as file:
    for row in csv.DictReader(file):
      if row["outcome"] == "reached":
        samples = float(row["samples"]) - EVERY / 2
        cells.setdefault((row["model"], row["length"]), []).append(samples)
  found = []
  for samples in cells.values():
    if len(samples) >= _LEAST_TRIALS and np.mean(samples) >= _LEAST_CHECKS * EVERY:
      logs = np.log(samples)
      found.append((logs - logs.mean()) / logs.std(ddof=1))
  residuals = np.concatenate(found)
  return residuals / residuals.std()


def normal_residuals() -> np.ndarray:
  """Quantiles of the standard normal distribution, at equal shares."""
  return scipy.stats.norm.ppf((np.arange(_QUANTILES) + 0.5) / _QUANTILES)


def slow_residuals(spread: float) -> np.ndarray:
  """The same of trials some of which are slower, in units of the others' spread."""
  quick = normal_residuals()
  times = round(1 / _SLOW) - 1
  slow = quick + np.log(_SLOWER) / spread
  return np.concatenate([np.tile(quick, times), slow])


class Coverage:
  """Shares of intervals that contain the truth, and their widths, of one setting.

  Attributes:
    means, exponent: the share, of means at each length and of the exponent, of those
      data sets that have an interval.
    median: the least share, over lengths, of medians; NaN for fewer than six trials.
    median_width: as that of means; NaN where some have no end.
    mean_width, exponent_width: median widths; that of means is the widest length's, over
      the truth.
    old_mean_width, old_exponent_width: the same of the intervals that preceded these; NaN
      where trials are censored.
  """

  def __init__(
    self,
    residuals: np.ndarray,
    smallest: float,
    spread: float | Sequence[float],
    trials: int,
    censored: bool,
    data_sets: int,
    generator: np.random.Generator,
  ):
    """Simulates.

    Args:
      residuals: of log n, any number of them, each as likely.
      smallest: median of n at the smallest length.
      spread: of log n, one for all lengths or one for each.
      trials: at each length.
      censored: whether there is a budget that a third of the largest length's trials
        spend.
      data_sets: how many.
      generator: draws from the residuals.
    """
    spreads = np.broadcast_to(spread, LENGTHS.shape)[:, None]
    every_n = smallest * LENGTHS[:, None] * np.exp(spreads * residuals)
    budget = np.inf
    if censored:
      budget = float(np.quantile(every_n[-1], 1 - CENSORED))
    drawn = generator.choice(residuals, (data_sets, len(LENGTHS), trials))
    n = smallest * LENGTHS[:, None] * np.exp(spreads * drawn)
    # As recorded: budgets are whole numbers of checks.
    budget = np.floor(budget / EVERY) * EVERY
    samples = np.ceil(n / EVERY) * EVERY
    reached = samples <= budget
    checks = Checks(np.array(STEP), np.array(EVERY), np.array(budget))
    bounds = bounds_of(np.where(reached, samples, 0), reached, checks)
    truth = np.mean(np.minimum(every_n, budget), axis=1)
    means = restricted_means(bounds, budget, EVERY)
    # Where next to all trials are censored there is no interval, which covers nothing.
    known = ~np.isnan(means.low)
    covered = (means.low <= truth) & (truth <= means.high)
    self.means = np.sum(covered, axis=0) / np.sum(known, axis=0)
    widths = np.nanmedian(means.high - means.low, axis=0)
    self.mean_width = float(np.max(widths / truth))
    _, low, high = slope(LENGTHS, bounds)
    self.exponent = float(np.sum((low <= 1) & (high >= 1)) / np.sum(~np.isnan(low)))
    self.exponent_width = float(np.nanmedian(high - low))
    self.median = self.median_width = np.nan
    each = np.array([_median_ends(bounds, at) for at in np.ndindex(n.shape[:2])])
    ends = each.reshape(*n.shape[:2], 2)
    if not np.all(np.isnan(ends)):
      middle = np.median(every_n, axis=1)
      low, high = np.moveaxis(ends, -1, 0)
      # An end that there is not leaves everything possible.
      covered = ~(low > middle) & ~(high < middle)
      self.median = float(np.min(np.mean(covered, axis=0)))
      if not np.any(np.isnan(ends)):
        self.median_width = float(np.max(np.median(high - low, axis=0) / middle))
    self.old_mean_width = self.old_exponent_width = np.nan
    if not censored:
      ends = np.array([[student_interval(cell) for cell in own] for own in samples])
      widths = np.median(ends[..., 2] - ends[..., 1], axis=0)
      self.old_mean_width = float(np.max(widths / truth))
      self.old_exponent_width = float(np.median(_resampled_widths(samples, generator)))


def _median_ends(bounds: Bounds, at: tuple[int, ...]) -> tuple[float, float]:
  """Ends of the interval of the median of one cell of a data set."""
  found = median_of(Bounds(*(side[at] for side in bounds)))
  return found.low, found.high


def _resampled_widths(samples: np.ndarray, generator: np.random.Generator) -> np.ndarray:
  """Widths of percentile intervals of the least-squares exponent, [data_sets]."""
  data_sets, lengths, trials = samples.shape
  shape = (_RESAMPLES, data_sets, lengths, trials)
  chosen = generator.integers(trials, size=shape)
  means = np.take_along_axis(np.log(samples)[None], chosen, axis=-1).mean(axis=-1)
  x = np.log(LENGTHS) - np.log(LENGTHS).mean()
  slopes = means @ x / np.sum(x**2)
  low, high = np.quantile(slopes, [0.025, 0.975], axis=0)
  return high - low


def _measured(place: int, kind: str, *setting: float) -> Coverage:
  """Coverage of one setting, whose random numbers follow from its place."""
  smallest, spread, trials, censored, data_sets, seed = setting
  residuals = {
    "recorded": recorded_residuals,
    "slow": lambda: slow_residuals(spread),
  }.get(kind, normal_residuals)()
  spreads = spread * (_UNEQUAL if kind == "unequal" else np.ones(len(LENGTHS)))
  generator = np.random.default_rng([int(seed), place])
  return Coverage(
    residuals, smallest, spreads, int(trials), bool(censored), int(data_sets), generator
  )


def main(_: Sequence[str]) -> None:
  """Prints a row for each setting, as it is done."""
  console = rich.console.Console(width=140)
  with concurrent.futures.ProcessPoolExecutor() as pool:
    _passages(console, pool)
  _others(console)


def _passages(
  console: rich.console.Console, pool: concurrent.futures.ProcessPoolExecutor
) -> None:
  # Random numbers follow from the place in the grid of all distributions.
  grid = itertools.product(
    DISTRIBUTIONS, map(float, FLAGS.smallest), map(float, FLAGS.spreads),
    map(int, FLAGS.trials), (False, True),
  )  # fmt: skip
  chosen = [(k, own) for k, own in enumerate(grid) if own[0] in FLAGS.distributions]
  settings = [(k, *own, FLAGS.data_sets, FLAGS.seed) for k, own in chosen]
  console.print(
    "log n, n, spread, trials, censored | coverage of means, of the exponent, of medians "
    "| width of means (before), of the exponent (before), of medians"
  )
  found = pool.map(_measured, *zip(*settings, strict=True))
  for (_, kind, smallest, spread, trials, censored, *_), own in zip(
    settings, found, strict=True
  ):
    means = ", ".join(f"{share:.3f}" for share in own.means)
    before = (own.old_mean_width, own.old_exponent_width)
    old_mean, old_exponent = ("" if np.isnan(w) else f" ({w:.2f})" for w in before)
    console.print(
      f"{kind}, {smallest:,.0f}, {spread:g}, {trials}, "
      f"{'a third' if censored else 'none'} | {means}, {own.exponent:.3f}, "
      f"{_or_none(own.median, '.3f')} | "
      f"{own.mean_width:.2f}{old_mean}, {own.exponent_width:.2f}{old_exponent}, "
      f"{_or_none(own.median_width, '.2f')}"
    )


def _or_none(value: float, form: str) -> str:
  return "none" if np.isnan(value) else f"{value:{form}}"


def _others(console: rich.console.Console) -> None:
  """Intervals of functions in clusters, of pairs, shares, widths and critical sizes."""
  data_sets, numbers = FLAGS.data_sets, list(map(int, FLAGS.trials))
  generator = np.random.default_rng([FLAGS.seed, 1])
  console.print(
    "functions, what they share | coverage of coefficients, rank correlations, powers | "
    "width over that of least squares"
  )
  for functions, shared in itertools.product(numbers, (0.0, SHARED)):
    own = Clustered(SPREAD, shared, functions, data_sets, generator)
    shares = (own.coefficients, own.correlation, own.powers)
    console.print(
      f"{functions}, {shared:g} | {', '.join(f'{s:.3f}' for s in shares)} | "
      f"{own.width:.2f}"
    )
  console.print("trials | coverage of Student's, normal and skewed values; of Wilson's")
  for trials in numbers:
    normal, skewed = (
      intervals.student(values, trials, data_sets, generator).covered
      for values in ("normal", "skewed")
    )
    wilson = intervals.wilson(trials).covered
    console.print(f"{trials} | {normal:.3f}, {skewed:.3f}; {wilson:.3f}")
  console.print("spread, pairs | coverage of ratios, of exponents over paired trials")
  for spread, trials in itertools.product(map(float, FLAGS.spreads), numbers):
    ratio, exponent = (
      intervals.paired(kind, spread, trials, data_sets, generator).covered
      for kind in ("ratio", "exponent")
    )
    console.print(f"{spread:g}, {trials} | {ratio:.3f}, {exponent:.3f}")
  console.print("spread, trials | coverage of exponents of the smallest width")
  for spread, trials in itertools.product((0.2, 0.5), (1, 3)):
    share = intervals.widths(spread, trials, data_sets, generator).covered
    console.print(f"{spread:g}, {trials} | {share:.3f}")
  console.print(
    "trials at each of ten sizes | coverage of critical sizes, of their ratio"
  )
  for trials in (4, 10, 20):
    size, ratio = intervals.critical(trials, data_sets, generator)
    console.print(f"{trials} | {size.covered:.3f}, {ratio.covered:.3f}")


if __name__ == "__main__":
  app.run(main)
