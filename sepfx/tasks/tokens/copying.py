"""Copying: tokens again, in their order."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from sepfx import kinds
from sepfx.errors import require
from sepfx.tasks.tokens.task import Sequences, TokenTask, at_least


@dataclasses.dataclass(frozen=True)
class Copying(TokenTask):
  """Some tokens, blanks, a token that asks, and blanks at which the tokens are asked for.

  As `generate_copying_instance` in mad/data/instances.py of athms/mad-lab at 0f49a45, of
  Poli et al., "Mechanistic Design and Scaling of Hybrid Architectures" (2024).

  Attributes:
    length: N, at least twice as many as are copied, and one.
    num_copied: tokens to copy.
    vocabulary: tokens that there are; the last two are the blank and the one that asks.

  Raises:
    InvalidSetting: for a setting outside its domain.
  """

  length: int = 256
  num_copied: int = 16
  vocabulary: int = 16

  name: ClassVar[str] = "copying"
  # Whether the first blanks stand between the tokens and not after them.
  selective: ClassVar[bool] = False

  def __post_init__(self) -> None:
    kinds.settle(self)
    k = self.num_copied
    require(k >= 1, "num_copied", k, "an integer >= 1")
    takes = f"an integer >= {2 * k + 1}, to copy {k} tokens"
    require(self.length >= 2 * k + 1, "length", self.length, takes)
    at_least(self, vocabulary=4)

  @property
  def num_answers(self) -> int:
    """Tokens that are copied."""
    return self.vocabulary - 2

  def draw(self, key: PRNGKeyArray, num_samples: int) -> Sequences:
    """Draws n sequences."""
    n, N, k, blank = num_samples, self.length, self.num_copied, self.vocabulary - 2
    of_tokens, of_blanks = jax.random.split(key)
    copied = jax.random.randint(of_tokens, (n, k), 0, blank)
    places = jnp.broadcast_to(jnp.arange(k), (n, k))
    if self.selective:
      blanks = jax.random.randint(of_blanks, (n, N - 2 * k - 1), 0, k)
      places = places + jnp.sum(blanks[..., None] <= jnp.arange(k), axis=1)
    tokens = jnp.full((n, N), blank).at[:, N - k - 1].set(blank + 1)
    tokens = jnp.put_along_axis(tokens, places, copied, axis=1, inplace=False)
    asked = jnp.broadcast_to(N - k + jnp.arange(k), (n, k))
    return Sequences(tokens, asked, copied)


@dataclasses.dataclass(frozen=True)
class SelectiveCopying(Copying):
  """The same with the first blanks between the tokens, each before one that is drawn."""

  name: ClassVar[str] = "selective_copying"
  selective: ClassVar[bool] = True
