"""Recall: what stood beside a token when it was there before."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from sepfx import kinds
from sepfx.errors import require
from sepfx.tasks.tokens.task import Sequences, TokenTask


@dataclasses.dataclass(frozen=True)
class MQAR(TokenTask):
  """Multi-query associative recall: P pairs of keys and values, then each key again.

  Arora et al., "Zoology: Measuring and Improving Recall in Efficient Language Models"
  (2024), as zoology/data/multiquery_ar.py of HazyResearch/zoology at d88d6f5 draws it.
  The pairs stand first. Each key comes again at an even distance, of which the k-th is
  drawn with a weight of k^(a - 1), no two keys at one. There its value is asked for. Keys
  and values are of either half of the vocabulary, and 0 stands where nothing else does.

  Attributes:
    length: N, even.
    num_pairs: P, at most N / 4.
    vocabulary: tokens that there are, more than N.
    power: a; 1 for distances that are uniform.
    random_rest: whether random tokens stand where else 0 does, as in the published
      generator's default.

  Raises:
    InvalidSetting: for a setting outside its domain.
  """

  length: int = 64
  num_pairs: int = 4
  vocabulary: int = 8192
  power: float = 0.01
  random_rest: bool = False

  name: ClassVar[str] = "mqar"

  def __post_init__(self) -> None:
    kinds.settle(self)
    N, P, V = self.length, self.num_pairs, self.vocabulary
    require(N >= 4 and N % 2 == 0, "length", N, "an even number >= 4")
    require(1 <= P <= N // 4, "num_pairs", P, f"an integer from 1 to {N // 4}, N / 4")
    require(V > N and V % 2 == 0, "vocabulary", V, f"an even number > {N}, the length")
    takes = f"enough for {P} keys that differ, {2 * P + 2}"
    require(V // 2 - 1 >= P, "vocabulary", V, takes)
    proper = math.isfinite(self.power) and self.power > 0
    require(proper, "power", self.power, "a positive number")

  @property
  def num_answers(self) -> int:
    """Values."""
    return self.vocabulary // 2

  def draw(self, key: PRNGKeyArray, num_samples: int) -> Sequences:
    """Draws n sequences."""
    N, P, half = self.length, self.num_pairs, self.vocabulary // 2
    of_keys, of_values, of_places, of_rest = jax.random.split(key, 4)
    keys = 1 + distinct(of_keys, (num_samples, P), half - 1)
    values = half + distinct(of_values, (num_samples, P), half)
    # Largest first of log-weights with Gumbel noise: drawn one by one, none twice.
    places = N // 2 - P
    weights = (self.power - 1) * jnp.log(jnp.arange(1, places + 1))
    noise = jax.random.gumbel(of_places, (num_samples, places))
    asked = 2 * P + 2 * jax.lax.top_k(weights + noise, P)[1]
    tokens = jnp.zeros((num_samples, N), int)
    if self.random_rest:
      tokens = jax.random.randint(of_rest, (num_samples, N), 0, self.vocabulary)
    pairs = jnp.stack([keys, values], axis=-1).reshape(num_samples, 2 * P)
    tokens = tokens.at[:, : 2 * P].set(pairs)
    tokens = jnp.put_along_axis(tokens, asked, keys, axis=1, inplace=False)
    return Sequences(tokens, asked, values)


def distinct(key: PRNGKeyArray, shape: tuple[int, int], number: int) -> Int[Array, "n k"]:
  """k numbers below `number` in each row, no two the same, in random order.

  The i-th is drawn among those that are left, and counted past those that are not.
  """
  n, k = shape
  found = jnp.zeros((n, 0), int)
  for i, own in enumerate(jax.random.split(key, k)):
    x = jax.random.randint(own, (n,), 0, number - i)
    for taken in jnp.moveaxis(jnp.sort(found, axis=1), 1, 0):
      x = x + (x >= taken)
    found = jnp.concatenate([found, x[:, None]], axis=1)
  return found
