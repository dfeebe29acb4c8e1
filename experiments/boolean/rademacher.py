"""Empirical Rademacher complexity by simulation.

Definition A.1 of *Inductive Biases and Variable Creation in Self-Attention Mechanisms*,
R = E_sigma sup_f (1/m) sum_i sigma_i f(x_i), for classes whose supremum can be computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from sepfx.errors import require

# sup_f (1/m) sum_i sigma_i f(x_i), from signs [n m] to [n].
Supremum = Callable[[Float[np.ndarray, "n m"]], Float[np.ndarray, " n"]]

# Signs held at once.
_CHUNK = 2**22


class Estimate(NamedTuple):
  """A mean over independent draws, and its standard error."""

  mean: float
  standard_error: float


def finite_class(predictions: Float[np.ndarray, "k m"]) -> Supremum:
  """Returns the supremum over k functions, given by their values on the m inputs."""
  predictions = np.asarray(predictions, float)
  takes = "an array [k m] of at least one function and one input"
  given = predictions.ndim == 2 and predictions.size > 0
  require(given, "predictions", predictions.shape, takes)
  return lambda signs: np.max(signs @ predictions.T, axis=1) / predictions.shape[1]


def linear_class(inputs: Float[np.ndarray, "m d"], bound: float = 1.0) -> Supremum:
  """Returns the supremum over x -> v.x with ||v|| <= bound.

  It is bound ||sum_i sigma_i x_i|| / m, at the v along that sum.
  """
  inputs = np.asarray(inputs, float)
  takes = "an array [m d] of at least one input"
  require(inputs.ndim == 2 and len(inputs) > 0, "inputs", inputs.shape, takes)
  require(bound >= 0, "bound", bound, "a number >= 0")
  return lambda signs: bound * np.linalg.norm(signs @ inputs, axis=1) / len(inputs)


def empirical_rademacher(
  key: PRNGKeyArray, supremum: Supremum, num_samples: int, num_draws: int = 4096
) -> Estimate:
  """Estimates the empirical Rademacher complexity of a class (Definition A.1).

  Args:
    key: consumed.
    supremum: of the class, from `finite_class`, `linear_class` or one's own.
    num_samples: m.
    num_draws: sign vectors that are drawn.

  Raises:
    InvalidSetting: for no samples, or fewer than two draws.
  """
  require(num_samples >= 1, "num_samples", num_samples, "an integer >= 1")
  require(num_draws >= 2, "num_draws", num_draws, "an integer >= 2")
  rows = max(1, _CHUNK // num_samples)
  suprema = []
  for first in range(0, num_draws, rows):
    shape = (min(rows, num_draws - first), num_samples)
    signs = jax.random.rademacher(jax.random.fold_in(key, first), shape, np.int8)
    suprema.append(supremum(np.asarray(signs, float)))
  values = np.concatenate(suprema)
  error = np.std(values, ddof=1) / math.sqrt(num_draws)
  return Estimate(float(np.mean(values)), float(error))
