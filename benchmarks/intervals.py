"""How often intervals besides those of means and exponents contain the truth.

Of the intervals that pages of the docs print: Student's of measured values, Wilson's of
shares, of ratios and exponents over trials that share their keys, of the smallest width
against the length, and of critical sample sizes and their ratios. Each function
simulates data sets and returns the share of intervals that contain the truth.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.stats

from experiments.qstr.recurrent_width.summary import smallest_width_exponent
from sepfx.statistics.intervals import student_interval
from sepfx.statistics.passages import Checks, bounds_of
from sepfx.statistics.scaling import paired_contrast
from sepfx.statistics.success import (
  Counts,
  critical_ratio,
  critical_size,
  success_curves,
  success_fraction,
)

EVERY, STEP = 640, 64


class Share(NamedTuple):
  """How many of the intervals contain the truth.

  Attributes:
    covered: the share, of those that there are.
    found: the share of data sets that have an interval.
  """

  covered: float
  found: float


def _share(intervals: list[tuple[float, float]], truth: float) -> Share:
  known = [ends for ends in intervals if not np.isnan(ends).any()]
  inside = [low <= truth <= high for low, high in known]
  return Share(float(np.mean(inside)), len(known) / len(intervals))


def student(
  values: str, trials: int, data_sets: int, generator: np.random.Generator
) -> Share:
  """Of means of "normal" values, or of "skewed" ones, whose logs have a spread of 1.2."""
  drawn = generator.normal(size=(data_sets, trials))
  if values == "skewed":  # as gaps of one degree are
    drawn, truth = np.exp(1.2 * drawn), float(np.exp(1.2**2 / 2))
  else:
    truth = 0.0
  return _share([student_interval(own)[1:] for own in drawn], truth)


def wilson(trials: int) -> Share:
  """Of shares, on average over all chances of success alike. Not simulated."""
  chances = (np.arange(4000) + 0.5) / 4000
  counts = np.arange(trials + 1)
  found = [success_fraction(int(k), trials) for k in counts]
  low, high = (np.array([getattr(own, end) for own in found]) for end in ("low", "high"))
  inside = (low <= chances[:, None]) & (chances[:, None] <= high)
  weights = scipy.stats.binom.pmf(counts, trials, chances[:, None])
  return Share(float(np.mean(np.sum(inside * weights, axis=1))), 1.0)


def paired(
  kind: str, spread: float, trials: int, data_sets: int, generator: np.random.Generator
) -> Share:
  """Of the "ratio" of n at two settings, or of its "exponent" over three.

  Half of the variance of log n is shared by trials of one index. n is 15,000 at the
  first setting and proportional to it.
  """
  settings = np.array([1.0, 2.0, 4.0])[: 2 if kind == "ratio" else 3]
  shared = generator.normal(size=(data_sets, trials, 1))
  own = generator.normal(size=(data_sets, trials, len(settings)))
  n = 15_000 * settings * np.exp(spread * np.sqrt(0.5) * (shared + own))
  samples = np.ceil(n / EVERY) * EVERY
  checks = Checks(*(np.array(own) for own in (STEP, EVERY, np.inf)))
  bounds = bounds_of(samples, np.ones(samples.shape, bool), checks)
  log_x = np.log(settings) - np.mean(np.log(settings))
  weights = np.array([-1.0, 1.0]) if kind == "ratio" else log_x / np.sum(log_x**2)
  _, low, high = paired_contrast(bounds, weights)
  return _share(list(zip(low, high, strict=True)), np.log(2) if kind == "ratio" else 1.0)


def widths(
  spread: float, trials: int, data_sets: int, generator: np.random.Generator
) -> Share:
  """Of the exponent of the smallest width, tried at powers of two, over four lengths.

  Args:
    spread: of the log of the width that suffices, about N^1.5.
    trials: at each length.
    data_sets: how many.
    generator: of everything random.
  """
  lengths = np.repeat([4.0, 8.0, 16.0, 32.0], trials)
  intervals = []
  for _ in range(data_sets):
    suffices = lengths**1.5 * np.exp(spread * generator.normal(size=len(lengths)))
    least = 2.0 ** np.ceil(np.log2(suffices))
    fitted = smallest_width_exponent(lengths, least / 2, least)
    intervals.append((fitted.low, fitted.high) if fitted else (np.nan, np.nan))
  return _share(intervals, 1.5)


class Critical(NamedTuple):
  """Of critical sizes at each length, and of the ratio of the last to the first."""

  size: Share
  ratio: Share


def critical(trials: int, data_sets: int, generator: np.random.Generator) -> Critical:
  """Of critical sample sizes of 40, 60 and 90 and their ratio, on a grid of sizes.

  Args:
    trials: at each of ten sample sizes.
    data_sets: how many.
    generator: of everything random.
  """
  sizes = np.arange(20, 201, 20)
  truths = {50: 40.0, 100: 60.0, 200: 90.0}
  of_sizes, ratios = [], []
  for _ in range(data_sets):
    counts = {}
    for length, truth in truths.items():
      chance = 1 / (1 + (truth / sizes) ** 4)
      drawn = generator.binomial(trials, chance)
      counts[length] = Counts(sizes, drawn, np.full(len(sizes), trials))
    posteriors, _ = success_curves(counts)
    for length, truth in truths.items():
      own = critical_size(counts[length], posteriors.get(length))
      of_sizes.append((own.low / truth, own.high / truth))
    if 50 in posteriors and 200 in posteriors:
      ratios.append(critical_ratio(posteriors[200], posteriors[50])[1:])
  size = _share(of_sizes, 1.0)
  return Critical(size, _share(ratios, truths[200] / truths[50]))
