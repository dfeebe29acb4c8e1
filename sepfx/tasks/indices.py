"""Distributions of the index tuples t_1, ..., t_N that a prompt names.

An index distribution is any function `(key, num_prompts, length, sparsity) ->
Int[Array, "n N q"]` with values in [0, N) (the papers count from 1). The q
indices of one position are distinct: the label depends on q tokens, not fewer.
"""

from __future__ import annotations

import dataclasses
from typing import Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from sepfx.errors import require

# The longest inputs, and the most positions in one subset. An input's length is a side
# of arrays; the program that draws a subset grows with the square of its size.
MAX_LENGTH, MAX_SPARSITY = 2**20, 100


class IndexDistribution(Protocol):
  def __call__(
    self, key: PRNGKeyArray, num_prompts: int, length: int, sparsity: int
  ) -> Int[Array, "n N q"]: ...


def subsets(key, shape, length: int, sparsity: int) -> Int[Array, "*shape q"]:
  """Ordered q-subsets of [0, N), uniform over all N!/(N-q)! of them."""
  keys = jax.random.split(key, sparsity)
  columns: list[jax.Array] = []
  for j in range(sparsity):
    # A rank among the N - j values not yet taken, moved past the taken ones in
    # ascending order, is the value with that rank.
    value = jax.random.randint(keys[j], shape, 0, length - j)
    if columns:
      taken = jnp.sort(jnp.stack(columns, axis=-1), axis=-1)
      for i in range(j):
        value = value + (value >= taken[..., i])
    columns.append(value)
  return jnp.stack(columns, axis=-1)


def independent(key, num_prompts, length, sparsity):
  """Every position names its own uniform q-subset (qSTR, Proposition 8)."""
  return subsets(key, (num_prompts, length), length, sparsity)


def shared(key, num_prompts, length, sparsity):
  """All positions name the same uniform q-subset (simple-qSTR, Definition 2)."""
  t = subsets(key, (num_prompts, 1), length, sparsity)
  return jnp.broadcast_to(t, (num_prompts, length, sparsity))


@dataclasses.dataclass(frozen=True)
class HalfFixed:
  """Positions i >= N/2 (from 1) name (1, ..., q); the others follow `before`.

  The distribution behind the lower bounds on the number of heads
  (Propositions 3 and 21). Needs q < N/2.
  """

  before: IndexDistribution = independent

  def __call__(self, key, num_prompts, length, sparsity):
    require(
      2 * sparsity < length, "sparsity", sparsity, f"less than length/2 = {length / 2}"
    )
    t = self.before(key, num_prompts, length, sparsity)
    first_half = 2 * jnp.arange(1, length + 1) < length
    return jnp.where(first_half[None, :, None], t, jnp.arange(sparsity))
