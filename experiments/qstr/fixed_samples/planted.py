"""Learners of 1STR that know part of the answer, and bounds for those that do not.

The link is linear, u is uniform on the unit sphere of R^d, tokens are standard normal
and every position's index is uniform. Samples are m prompts with all their N labels.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import NamedTuple

import numpy as np

# The learner of rules tries all N^N of them.
MOST_RULES = 256
# Rules of which the squared error on the sample is this small agree with it.
_EXACT = 1e-9


class Size(NamedTuple):
  """The m of a planted learner.

  Attributes:
    size: the smallest m at which more than half of the trials succeed.
    error: standard error of it, in samples: that of the chance there, over what one
      sample adds to the chance.
  """

  size: int
  error: float


class Prompts(NamedTuple):
  """m prompts of 1STR: tokens [m N d], indices [m N] and labels [m N]."""

  tokens: np.ndarray
  indices: np.ndarray
  labels: np.ndarray

  @classmethod
  def drawn(cls, rng: np.random.Generator, m: int, u: np.ndarray, length: int) -> Prompts:
    """m prompts of N tokens whose link is u, [d]."""
    tokens = rng.normal(size=(m, length, len(u)))
    indices = rng.integers(length, size=(m, length))
    named = np.take_along_axis(tokens, indices[..., None], axis=1)
    return cls(tokens, indices, named @ u)


def knows_index(prompts: Prompts) -> tuple[np.ndarray, np.ndarray]:
  """The rule that is right, and u by least squares of least norm."""
  rule = np.arange(prompts.tokens.shape[1])
  (found,), _ = _least_squares(prompts, rule[None])
  return rule, found


def best_rule(prompts: Prompts) -> tuple[np.ndarray, np.ndarray]:
  """The rule t -> position, of all N^N, that fits the sample best, with its u.

  Of several that agree with the sample, the one whose u has the least norm.
  """
  length = prompts.tokens.shape[1]
  rules = _rules(length)
  found, errors = _least_squares(prompts, rules)
  agree = errors <= _EXACT
  norms = np.sum(found**2, axis=-1)
  best = int(np.argmin(np.where(agree, norms, np.inf) if agree.any() else errors))
  return rules[best], found[best]


@functools.cache
def _rules(length: int) -> np.ndarray:
  """All maps of N indices to N positions, [N^N N]."""
  return np.array(list(itertools.product(range(length), repeat=length)))


def _least_squares(prompts: Prompts, rules: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """u of least norm and the mean squared error on the sample, for each of R rules.

  Returns:
    [R d] and [R].
  """
  tokens, indices, labels = prompts
  places = rules[:, indices]  # [R m N]
  named = tokens[np.arange(len(tokens))[:, None], places]  # [R m N d]
  rows = named.reshape(len(rules), labels.size, -1)
  found = np.linalg.pinv(rows, rcond=1e-10) @ labels.ravel()
  errors = np.mean((np.einsum("rnd,rd->rn", rows, found) - labels.ravel()) ** 2, axis=1)
  return found, errors


def risk(rule: np.ndarray, found: np.ndarray, u: np.ndarray) -> float:
  """E (y - <found, x_rule(t)>)^2 over fresh prompts."""
  right = rule == np.arange(len(rule))
  wrong = np.sum(u**2) + np.sum(found**2)
  return float(np.mean(np.where(right, np.sum((u - found) ** 2), wrong)))


@functools.cache
def planted_size(
  learner: str, length: int, token_dim: int, threshold: float, trials: int = 400
) -> Size:
  """The smallest m at which a planted learner mostly has a risk below the threshold.

  Args:
    learner: "knows_index" or "best_rule", the latter for N^N <= `MOST_RULES`.
    length: N.
    token_dim: d.
    threshold: of the risk, below 1.
    trials: simulated at each m.
  """
  rng = np.random.default_rng(0)
  m, before = math.ceil(label_floor(length, token_dim, threshold)) - 1, 0.0
  learn = {"knows_index": knows_index, "best_rule": best_rule}[learner]
  while True:
    m += 1
    succeeded = 0
    for _ in range(trials):
      u = rng.normal(size=token_dim)
      u /= np.linalg.norm(u)
      own = risk(*learn(Prompts.drawn(rng, m, u, length)), u)
      succeeded += own < threshold
    chance = succeeded / trials
    if chance > 0.5:
      error = np.sqrt(chance * (1 - chance) / trials) / (chance - before)
      return Size(m, float(error))
    before = chance


def label_floor(length: int, token_dim: int, threshold: float) -> float:
  """The m below which no learner has a risk below the threshold, on average over u.

  m N labels tell of at most m N of the d directions of u: the risk is 1 - m N / d.
  """
  return (1 - threshold) * token_dim / length


def first_layer_floor(length: int, token_dim: int, threshold: float) -> float:
  """The m below which no stationary feedforward network has such a risk (Theorem 6).

  Its first layer lies in the span of the m inputs, of N d token coordinates: on average
  over u the risk is at least 1 - m / (N d).
  """
  return (1 - threshold) * token_dim * length
