"""Recall of keys and values that are several tokens long."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from sepfx import kinds
from sepfx.errors import require
from sepfx.tasks.tokens.task import Sequences, TokenTask, at_least


class Motifs(NamedTuple):
  """Motifs of one token, of two and so on (K of them, S tokens at most).

  Attributes:
    tokens: of each, zeros after its end, [K S].
    sizes: tokens of each, [K].
    first: the first motif of each size, and K, [S + 1].
  """

  tokens: np.ndarray
  sizes: np.ndarray
  first: np.ndarray


@functools.cache
def motifs(first: int, last: int, largest: int) -> Motifs:
  """All motifs of tokens `first` to `last` - 1, in none of which one comes twice."""
  every = [
    [*own, *[0] * (largest - size)]
    for size in range(1, largest + 1)
    for own in itertools.permutations(range(first, last), size)
  ]
  counts = [
    sum(1 for _ in itertools.permutations(range(first, last), size))
    for size in range(1, largest + 1)
  ]
  sizes = np.repeat(np.arange(1, largest + 1), counts)
  return Motifs(np.array(every), sizes, np.cumsum([0, *counts]))


@dataclasses.dataclass(frozen=True)
class FuzzyRecall(TokenTask):
  """Recall where a key is one token or several, and so is a value.

  MAD's fuzzy in-context recall of Poli et al. (2024), as
  `generate_fuzzy_in_context_recall_instance` in mad/data/instances.py of athms/mad-lab at
  0f49a45 draws sequences to train on, without noise. A size is drawn first, then one of
  the motifs that have it. Before each token of a value whose key was there before, it is
  asked for. The last key is one of those that were there. A blank stands in front as
  often as there is room. In the published test sequences all keys are of the largest
  size; here test sequences are drawn as those to train on.

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
    for name in ("key_size", "value_size"):
      size = getattr(self, name)
      require(1 <= size <= 4, name, size, "an integer from 1 to 4")
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
    keys = motifs(0, self.num_keys, self.key_size)
    values = motifs(self.num_keys, self.vocabulary - 1, self.value_size)
    chosen = _some(of_keys, (n, pairs), keys)
    table = _some(of_values, (n, len(keys.sizes)), values)

    def ends(chosen: Array) -> tuple[Array, Array]:
      own = jnp.take_along_axis(table, chosen, axis=1)
      sizes = jnp.asarray(keys.sizes)[chosen] + jnp.asarray(values.sizes)[own]
      return jnp.cumsum(sizes, axis=1), own

    # As many as leave room for the last one, of which the last token is not seen.
    room = N + 1 - self.key_size - self.value_size
    used = jnp.sum(ends(chosen)[0] <= room, axis=1, keepdims=True)
    again = jax.random.randint(of_last, (n, 1), 0, used)
    last = jnp.take_along_axis(chosen, again, axis=1)
    place = jnp.arange(pairs)
    chosen = jnp.where(place == used, last, chosen)
    end, own = ends(chosen)
    end = end + N + 1 - jnp.take_along_axis(end, used, axis=1)
    alike = chosen[:, :, None] == chosen[:, None, :]
    known = jnp.any(alike & (place < place[:, None]), axis=2)
    of_value = end - jnp.asarray(values.sizes)[own]
    of_key = of_value - jnp.asarray(keys.sizes)[chosen]
    there = place <= used
    tokens = jnp.full((n, N), self.vocabulary - 1)
    tokens = _written(tokens, keys, chosen, of_key, there)
    tokens = _written(tokens, values, own, of_value, there)
    labels = _written(jnp.full((n, N), -1), values, own, of_value - 1, there & known)
    return Sequences(tokens, jnp.broadcast_to(jnp.arange(N), (n, N)), labels)


def _some(key: PRNGKeyArray, shape: tuple[int, ...], of: Motifs) -> Int[Array, "*shape"]:
  """Motifs: a size first, then one of those that have it."""
  of_size, of_motif = jax.random.split(key)
  size = jax.random.randint(of_size, shape, 0, len(of.first) - 1)
  first = jnp.asarray(of.first)
  return jax.random.randint(of_motif, shape, first[size], first[size + 1])


def _written(
  rows: Int[Array, "n N"],
  motifs: Motifs,
  chosen: Int[Array, "n P"],
  start: Int[Array, "n P"],
  there: Array,
) -> Int[Array, "n N"]:
  """Puts motifs from their starts on, where they are there and as far as rows go."""
  N, each = rows.shape[1], jnp.arange(motifs.tokens.shape[1])
  inside = (each < jnp.asarray(motifs.sizes)[chosen][..., None]) & there[..., None]
  places = jnp.where(inside, start[..., None] + each, N)
  own = jnp.asarray(motifs.tokens)[chosen].reshape(len(rows), -1)
  row = jnp.arange(len(rows))[:, None]
  return rows.at[row, places.reshape(len(rows), -1)].set(own, mode="drop")
