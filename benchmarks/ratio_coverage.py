"""How often do the 95% intervals of ratios of n contain the truth?

    python -m benchmarks.ratio_coverage

Simulates first passages of two independent cells, checked every 640 samples, with n
that is lognormal, or gamma, of one spread or of two. The truth is the ratio of geometric
means. Prints for each setting the share of data sets whose interval contains it, and the
median of its upper over its lower end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import rich.console
import scipy.special

from sepfx.statistics.passages import Checks
from sepfx.statistics.ratios import cells_of, ratio_of

DATA_SETS, TRIALS = 8000, (3, 5, 10)
EVERY, STEP, BUDGET = 640, 64, 64 * 10**7

Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


class Cell(NamedTuple):
  """How n of one cell is distributed.

  Attributes:
    name: in words.
    draw: generator and shape -> n.
    log_mean: of log n.
  """

  name: str
  draw: Draw
  log_mean: float


def lognormal(median: float, spread: float) -> Cell:
  """log n is normal."""

  def draw(generator, shape):
    return median * np.exp(spread * generator.standard_normal(shape))

  return Cell(f"lognormal {median:,.0f}, {spread:g}", draw, float(np.log(median)))


def gamma(mean: float, shape: float) -> Cell:
  """n is the sum of `shape` exponential times, as it were."""

  def draw(generator, size):
    return mean * generator.gamma(shape, size=size) / shape

  log_mean = float(np.log(mean / shape) + scipy.special.digamma(shape))
  return Cell(f"gamma {mean:,.0f}, {shape:g}", draw, log_mean)


PAIRS = (
  (lognormal(5000, 0.3), lognormal(15_000, 0.3)),
  (lognormal(5000, 0.2), lognormal(15_000, 0.6)),
  (lognormal(50_000, 0.05), lognormal(15_000, 0.5)),
  (lognormal(1500, 0.2), lognormal(3000, 0.2)),
  (gamma(5000, 4), gamma(15_000, 4)),
  (gamma(5000, 16), gamma(15_000, 2)),
  (gamma(50_000, 100), gamma(15_000, 4)),
  (gamma(2000, 25), gamma(4000, 25)),
  (gamma(20_000, 1), gamma(40_000, 1)),
)


def coverage(
  one: Cell, other: Cell, trials: int, data_sets: int, generator: np.random.Generator
) -> tuple[float, float]:
  """The share of intervals that contain the ratio, and the median high / low.

  Args:
    one, other: the cells.
    trials: of each.
    data_sets: how many are simulated.
    generator: of their numbers.
  """
  shape = (data_sets, trials)
  n = np.stack([cell.draw(generator, shape) for cell in (one, other)], axis=1)
  samples = np.maximum(np.ceil(n / EVERY), 1).ravel() * EVERY
  ones = np.ones(samples.size)
  checks = Checks(STEP * ones, EVERY * ones, BUDGET * ones)
  which = np.repeat(np.arange(2 * data_sets), trials)
  cells = cells_of(samples, samples <= BUDGET, checks, which)
  found = [ratio_of(cells, 2 * k, 2 * k + 1) for k in range(data_sets)]
  ends = np.array([(own.low, own.high) for own in found if own is not None])
  truth = np.exp(one.log_mean - other.log_mean)
  # A bound has one end.
  inside = ~(ends[:, 0] > truth) & ~(ends[:, 1] < truth)
  return float(np.mean(inside)), float(np.nanmedian(ends[:, 1] / ends[:, 0]))


def main() -> None:
  """Prints a row for each setting."""
  console = rich.console.Console(width=120)
  for k, pair in enumerate(PAIRS):
    for trials in TRIALS:
      generator = np.random.default_rng([k, trials])
      share, width = coverage(*pair, trials, DATA_SETS, generator)
      names = " over ".join(cell.name for cell in pair)
      console.print(f"{names} | {trials} trials | {share:.3f} | high / low {width:.2f}")


if __name__ == "__main__":
  main()
