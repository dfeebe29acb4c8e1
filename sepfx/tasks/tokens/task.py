"""What tasks of tokens have in common: sequences, positions that are asked, answers."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from sepfx.errors import require
from sepfx.tasks.asked import Asked
from sepfx.tasks.objectives import Objective, cross_entropy, misclassified


class Sequences(NamedTuple):
  """A sample of n sequences.

  Attributes:
    tokens: from 0 to the vocabulary's size less 1.
    asked: positions at which an answer is asked for.
    labels: the answers; -1 where there is none, as where sequences ask for fewer.
  """

  tokens: Int[Array, "n N"]
  asked: Int[Array, "n M"]
  labels: Int[Array, "n M"]


def _answered(values: Array, labels: Array) -> Float[Array, " n"]:
  """Means over the answers of each sequence."""
  there = labels >= 0
  total = jnp.sum(jnp.where(there, values, 0.0), axis=1)
  return total / jnp.maximum(jnp.sum(there, axis=1), 1)


def _loss(logits: Float[Array, "n M V"], labels: Int[Array, "n M"]) -> Array:
  return _answered(cross_entropy(logits, jnp.maximum(labels, 0)), labels)


def _error(logits: Float[Array, "n M V"], labels: Int[Array, "n M"]) -> Array:
  return _answered(misclassified(logits, labels), labels)


@functools.cache
def token_objective(vocabulary: int) -> Objective:
  """Cross-entropy at the asked positions; the share of wrong answers.

  Args:
    vocabulary: tokens that there are, each with a logit.
  """
  return Objective(
    name="tokens",
    loss=_loss,
    error=_error,
    output_shape=lambda labels_shape: (*labels_shape, vocabulary),
    measure="accuracy",
    measured=lambda error: 1 - error,
    continuous=False,
    error_name="error rate",
  )


def at_least(task: Any, **least: int) -> None:
  """Raises `InvalidSetting` unless the fields of these names are as large."""
  for name, value in least.items():
    own = getattr(task, name)
    require(own >= value, name, own, f"an integer >= {value}")


class TokenTask:
  """A task of tokens; subclasses are frozen dataclasses.

  They have `name`, `length`, `vocabulary` and `num_answers`; and `draw`, or where they
  plant something `init` and `sample`.
  """

  @property
  def vocabulary(self) -> int:
    """Tokens that there are."""
    raise NotImplementedError("vocabulary")

  @property
  def objective(self) -> Objective:
    """Of the vocabulary's tokens."""
    return token_objective(self.vocabulary)

  @property
  def num_answers(self) -> int:
    """Tokens among which the answers are, all of them equally likely."""
    raise NotImplementedError("num_answers")

  def draw(self, key: PRNGKeyArray, num_samples: int) -> Sequences:
    """Draws n sequences."""
    raise NotImplementedError("draw")

  def init(self, key: PRNGKeyArray) -> Any:
    """Plants nothing."""
    del key
    return ()

  def sample(self, key: PRNGKeyArray, planted: Any, num_samples: int) -> Sequences:
    """Draws n sequences."""
    del planted
    return self.draw(key, num_samples)

  def encode(self, planted: Any, sample: Sequences) -> Asked:
    """The sequences, and where to answer."""
    del planted
    return Asked(sample.tokens, sample.asked)

  def best_constant_error(self) -> float:
    """Of one answer to all questions, where every sequence has one."""
    return 1 - 1 / self.num_answers

  def check_draw(self, keys: Key[Array, " k"]) -> None:
    """There is nothing to draw."""
