"""Recall of keys and values that are several tokens long."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from sepfx import kinds
from sepfx.tasks.tokens.recall import distinct
from sepfx.tasks.tokens.task import Sequences, TokenTask, at_least


class Motifs(NamedTuple):
  """Some tokens each, in none of which one comes twice (S at most).

  Attributes:
    tokens: -1 after the end.
    sizes: how many they are.
  """

  tokens: Int[Array, "n P S"]
  sizes: Int[Array, "n P"]


@dataclasses.dataclass(frozen=True)
class FuzzyRecall(TokenTask):
  """Recall where a key is one token or several, and so is a value.

  After MAD's fuzzy in-context recall of Poli et al. (2024),
  `generate_fuzzy_in_context_recall_instance` in mad/data/instances.py of athms/mad-lab at
  0f49a45, without noise. The size of a key is drawn first, and then one of the keys that
  have it. Before each token of a value whose key was there before, it is asked for. The
  last key is one of those that were there. Blanks stand in front where room is left.
  There the last pair is drawn first, and put in at some place; all keys of test sequences
  are of the largest size; and a model trains on all next tokens.

  Attributes:
    length: N, at least twice the largest pair.
    vocabulary: tokens that there are: keys, values, and the blank.
    key_size: tokens of the longest key.
    value_size: tokens of the longest value.

  Raises:
    InvalidSetting: for a setting outside its domain.
  """

  length: int = 128
  vocabulary: int = 16
  key_size: int = 3
  value_size: int = 3

  name: ClassVar[str] = "fuzzy_recall"

  def __post_init__(self) -> None:
    kinds.settle(self)
    at_least(self, key_size=1, value_size=1)
    largest = max(self.key_size, self.value_size)
    at_least(
      self, length=2 * (self.key_size + self.value_size), vocabulary=2 * largest + 1
    )

  @property
  def num_keys(self) -> int:
    """Tokens of which keys are."""
    return (self.vocabulary - 1) // 2

  @property
  def num_answers(self) -> int:
    """Tokens of which values are."""
    return self.vocabulary - 1 - self.num_keys

  def draw(self, key: PRNGKeyArray, num_samples: int) -> Sequences:
    """Draws n sequences."""
    n, N, pairs = num_samples, self.length, self.length // 2
    of_keys, of_values, of_last = jax.random.split(key, 3)
    keys = _some(of_keys, (n, pairs), 0, self.num_keys, self.key_size)
    values = _some(
      of_values, (n, pairs), self.num_keys, self.num_answers, self.value_size
    )
    # A key has the value that it had the first time.
    alike = jnp.all(keys.tokens[:, :, None] == keys.tokens[:, None], axis=-1)
    first = jnp.argmax(alike, axis=2)
    values = _at(values, first)
    # As many as leave room for one more, of whose value the last token is not seen.
    room = N + 1 - self.key_size - self.value_size
    ends = jnp.cumsum(keys.sizes + values.sizes, axis=1)
    used = jnp.sum(ends <= room, axis=1, keepdims=True)
    place = jnp.arange(pairs)
    again = jax.random.randint(of_last, (n, 1), 0, used)
    own = jnp.where(place == used, again, place)
    keys, values = _at(keys, own), _at(values, own)
    known = (place != first) | (place == used)
    ends = jnp.cumsum(keys.sizes + values.sizes, axis=1)
    ends = ends + N + 1 - jnp.take_along_axis(ends, used, axis=1)
    of_value = ends - values.sizes
    there = place <= used
    tokens = jnp.full((n, N), self.vocabulary - 1)
    tokens = _written(tokens, keys, of_value - keys.sizes, there)
    tokens = _written(tokens, values, of_value, there)
    labels = _written(jnp.full((n, N), -1), values, of_value - 1, there & known)
    return Sequences(tokens, jnp.broadcast_to(jnp.arange(N), (n, N)), labels)


def _some(
  key: PRNGKeyArray, shape: tuple[int, int], first: int, number: int, largest: int
) -> Motifs:
  """Motifs of tokens `first`, `first` + 1 and so on: a size, then one that has it."""
  of_size, of_tokens = jax.random.split(key)
  sizes = jax.random.randint(of_size, shape, 1, largest + 1)
  tokens = first + distinct(of_tokens, (math.prod(shape), largest), number)
  there = jnp.arange(largest) < sizes[..., None]
  return Motifs(jnp.where(there, tokens.reshape(*shape, largest), -1), sizes)


def _at(motifs: Motifs, places: Int[Array, "n P"]) -> Motifs:
  """Those of other places of their sequences."""
  tokens = jnp.take_along_axis(motifs.tokens, places[..., None], axis=1)
  return Motifs(tokens, jnp.take_along_axis(motifs.sizes, places, axis=1))


def _written(
  rows: Int[Array, "n N"],
  motifs: Motifs,
  start: Int[Array, "n P"],
  there: Bool[Array, "n P"],
) -> Int[Array, "n N"]:
  """Puts motifs from their starts on, where they are there and as far as rows go."""
  n, N = rows.shape
  each = jnp.arange(motifs.tokens.shape[-1])
  inside = (motifs.tokens >= 0) & there[..., None]
  places = jnp.where(inside, start[..., None] + each, N).reshape(n, -1)
  own, row = motifs.tokens.reshape(n, -1), jnp.arange(n)[:, None]
  return rows.at[row, places].set(own, mode="drop")
