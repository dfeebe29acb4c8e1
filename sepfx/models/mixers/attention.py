"""Softmax attention to the tokens so far, or to the last few."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from sepfx.errors import require, require_positive
from sepfx.models.mixers.mixer import Mixer, state_dtype


class Attention(Mixer):
  """Multi-head softmax attention with a causal mask, and biases in all four layers.

  As `MHA` in zoology/mixers/attention.py of HazyResearch/zoology at d88d6f5, but for the
  options. Rotary positions are those of Su et al., "RoFormer" (2021): the numbers k and
  k + e/2 of a head are a pair that turns by its position over 10,000^(2k/e).

  Attributes:
    num_heads: H, which divides the width.
    window: tokens that are seen, the current one among them; None for all so far.
    rotary: whether queries and keys are turned by their positions.
    use_bias: whether the layers have biases.
  """

  num_heads: int = 1
  window: int | None = None
  rotary: bool = False
  use_bias: bool = True

  def setup(self) -> None:
    e, D = self.head_dim(self.num_heads), self.width
    takes = f"heads of an even size where positions are rotary, not {e}"
    require(not self.rotary or e % 2 == 0, "num_heads", self.num_heads, takes)
    require_positive(self, "window")
    self.query_key_value = self.linear(D, 3 * D, use_bias=self.use_bias)
    self.output = self.output_layer(D, use_bias=self.use_bias)

  def __call__(self, rows: Float[Array, "n N D"]) -> Float[Array, "n N D"]:
    rows = self.checked(rows)
    places = jnp.arange(rows.shape[1])
    query, key, value = self._heads(rows, places)
    behind = places[:, None] - places
    return self._read(query, key, value, self._seen(behind))

  def step(self, state: Any, row: Float[Array, "n D"]) -> tuple[Any, Array]:
    keys, values, count = state
    query, key, value = self._heads(self.cast(row)[:, None], count[None])
    place = count % keys.shape[1]  # of a window's cache the oldest entry
    keys, values = (
      jax.lax.dynamic_update_index_in_dim(kept, own[:, 0].astype(kept.dtype), place, 1)
      for kept, own in ((keys, key), (values, value))
    )
    # How many tokens ago each entry was written; more than there were: never.
    behind = (place - jnp.arange(keys.shape[1])) % keys.shape[1]
    seen = self._seen(behind) & (behind <= count)
    read = self._read(query, keys.astype(key.dtype), values.astype(key.dtype), seen[None])
    return (keys, values, count + 1), read[:, 0]

  def init_state(self, n: int, length: int) -> Any:
    """Keys and values of the tokens that are seen, and how many tokens there were.

    Of more tokens than `length` the last ones are kept.
    """
    kept = length if self.window is None else min(self.window, length)
    e = self.head_dim(self.num_heads)
    empty = jnp.zeros((n, kept, self.num_heads, e), state_dtype(self))
    return empty, empty, jnp.zeros((), jnp.int32)

  def _heads(self, rows: Array, places: Int[Array, "N"]) -> tuple[Array, ...]:
    """Queries, keys and values, [n N H e]."""
    joint = self.query_key_value(rows)
    joint = joint.reshape(*rows.shape[:-1], 3, self.num_heads, -1)
    query, key, value = (joint[..., k, :, :] for k in range(3))
    if self.rotary:
      query, key = rotated(query, places), rotated(key, places)
    return query, key, value

  def _seen(self, behind: Int[Array, "*shape"]) -> Array:
    """Whether a token is seen that is so far behind."""
    seen = behind >= 0
    return seen if self.window is None else seen & (behind < self.window)

  def _read(self, query, key, value, seen) -> Array:
    scores = jnp.einsum("nihe,njhe->nhij", query, key) / math.sqrt(query.shape[-1])
    exact = scores.astype(jnp.promote_types(scores.dtype, jnp.float32))
    weights = jax.nn.softmax(jnp.where(seen, exact, -jnp.inf), axis=-1)
    read = jnp.einsum("nhij,njhe->nihe", weights.astype(value.dtype), value)
    return self.output(read.reshape(*read.shape[:2], -1))


def rotated(
  heads: Float[Array, "n N H e"], places: Int[Array, "N"]
) -> Float[Array, "n N H e"]:
  """Turns each pair of numbers of a head by its position, at a rate of its own."""
  half = heads.shape[-1] // 2
  rates = 10_000.0 ** (-jnp.arange(half) / half)
  angles = places[:, None, None] * rates  # [N 1 half]
  cosine, sine = jnp.cos(angles), jnp.sin(angles)
  first, second = jnp.split(heads, 2, axis=-1)
  turned = first * cosine - second * sine, second * cosine + first * sine
  return jnp.concatenate(turned, axis=-1).astype(heads.dtype)
