"""How often intervals from few functions contain the truth, simulated.

Gaps as `sepfx fourier-generalisation` finds them: functions of each of four degrees and
four numbers of components, whose log gaps follow one law. Functions of one index share a
deviation from it, and a slope of their own in log d.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.stats

from experiments.fourier.flatness.summary import summarise_growth
from experiments.fourier.fourier_generalisation.summary import (
  clustered,
  clustered_correlation,
  fit_gap,
)
from sepfx.statistics.intervals import CONFIDENCE

# What the recorded gaps at T = 12 have: the law of log gaps, and their spread.
LAW = {"a": -10.0, "b": 3.5, "c": 0.5, "e": 1.3}
SPREAD, SHARED = 1.3, 0.5
# Degree and number of components of each cell.
DEGREES, COMPONENTS = np.array(
  list(itertools.product((1, 2, 3, 4), (2, 4, 8, 12))), float
).T
# Indices among which the true rank correlation is found.
_MANY = 20_000


def logs_of(
  spread: float, shared: float, functions: int, generator: np.random.Generator
) -> np.ndarray:
  """Log gaps of so many indices in each cell, [functions cells]."""
  d, k = np.log(DEGREES), np.log(COMPONENTS)
  law = LAW["a"] + LAW["b"] * d + LAW["c"] * k + LAW["e"] * d * k
  own, tilt = shared * generator.normal(size=(2, functions, 1))
  noise = spread * generator.normal(size=(functions, len(d)))
  return law + own + tilt * (d - d.mean()) + noise


@functools.cache
def true_correlation(spread: float, shared: float) -> float:
  """Spearman's correlation of gaps with d k, of any number of functions."""
  drawn = logs_of(spread, shared, _MANY, np.random.default_rng(0))
  score = np.tile(DEGREES * COMPONENTS, _MANY)
  return float(scipy.stats.spearmanr(score, drawn.ravel()).statistic)


class Clustered:
  """Shares of intervals that contain the truth, of one setting.

  Attributes:
    coefficients: the least share, of those of log gap = a + b log d + c log k + e log d
      log k.
    correlation: of the rank correlation of the gap and d k.
    powers: the least share, of the powers of d and k with which a norm grows.
    width: the largest, over coefficients, of median widths over those of least squares,
      which takes all rows for independent.
  """

  def __init__(
    self,
    spread: float,
    shared: float,
    functions: int,
    data_sets: int,
    generator: np.random.Generator,
  ):
    """Simulates.

    Args:
      spread: of log gaps, of functions of one index and cell.
      shared: of what functions of one index share, and of their slopes.
      functions: of each cell.
      data_sets: how many.
      generator: of everything random.
    """
    degree, components = np.tile(DEGREES, functions), np.tile(COMPONENTS, functions)
    index = np.repeat(np.arange(functions), len(DEGREES))
    both = np.log(degree) * np.log(components)
    rho = true_correlation(spread, shared)
    coefficients, correlations, powers, widths = [], [], [], []
    for _ in range(data_sets):
      logs = logs_of(spread, shared, functions, generator).ravel()
      gap = np.exp(logs)
      fit = clustered(fit_gap, index, degree, components, gap)
      coefficients.append([_inside(fit, key, truth) for key, truth in LAW.items()])
      own = [fit[f"{key}_high"] - fit[f"{key}_low"] for key in LAW]
      widths.append(own / least_squares_widths(degree, components, logs))
      found = clustered_correlation(index, degree * components, gap)
      correlations.append(_inside(found, "rho", rho))
      norm = np.exp(logs - LAW["e"] * both)  # a power of each
      grown = summarise_growth(_rows(degree, components, index, norm))["trace"]
      truths = {"degree": LAW["b"], "num_components": LAW["c"]}
      powers.append([_inside(grown, key, truth) for key, truth in truths.items()])
    self.coefficients = float(np.min(np.mean(coefficients, axis=0)))
    self.correlation = float(np.mean(correlations))
    self.powers = float(np.min(np.mean(powers, axis=0)))
    self.width = float(np.max(np.median(widths, axis=0)))


def least_squares_widths(
  degree: np.ndarray, components: np.ndarray, logs: np.ndarray
) -> np.ndarray:
  """Widths of the coefficients' intervals where all rows are independent."""
  d, k = np.log(degree), np.log(components)
  design = np.stack([np.ones(len(d)), d, k, d * k], axis=1)
  _, (left,), *_ = np.linalg.lstsq(design, logs, rcond=None)
  freedom = len(logs) - design.shape[1]
  variance = left / freedom * np.diag(np.linalg.inv(design.T @ design))
  return 2 * scipy.stats.t.ppf((1 + CONFIDENCE) / 2, freedom) * np.sqrt(variance)


def _inside(found: Mapping[str, Any], key: str, truth: float) -> bool:
  return bool(found[f"{key}_low"] <= truth <= found[f"{key}_high"])


def _rows(
  degree: np.ndarray, components: np.ndarray, index: np.ndarray, norm: np.ndarray
) -> list[dict[str, float]]:
  """As `summarise_growth` takes them."""
  columns = (degree.tolist(), components.tolist(), index.tolist(), norm.tolist())
  return [
    {"length": 12, "degree": d, "num_components": k, "function": own,
     "squared_norm": value, "trace": value}
    for d, k, own, value in zip(*columns, strict=True)
  ]  # fmt: skip
