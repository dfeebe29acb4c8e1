"""Random orders of m samples of which any part is computed by itself.

A permutation drawn as an array costs a sort of all m numbers, at every step that needs
a few of them. A keyed bijection gives the sample at each place for the price of those
places.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

# Rounds for each bit of m. Each of them leaves a place where it was or exchanges it with
# one partner, by a fair coin.
_ROUNDS_A_BIT = 6


def place_in_order(
  key: PRNGKeyArray, places: Int[Array, " n"], m: int
) -> Int[Array, " n"]:
  """Returns which of m samples stand at these places of an order that `key` draws.

  The swap-or-not shuffle (Hoang, Morris and Rogaway, "An enciphering scheme based on a
  card shuffle", 2012): in each round a place x has the partner K - x mod m, and the two
  change places if a hash of the pair says so.

  Args:
    key: of the order.
    places: from 0 to m - 1.
    m: number of samples.
  """
  rounds = _ROUNDS_A_BIT * max(1, (m - 1).bit_length())
  words = jax.random.bits(key, (rounds, 3), jnp.uint32)

  def exchange(k, x):
    shift, first, second = words[k]
    shift = (shift % np.uint32(m)).astype(jnp.int32)
    partner = jnp.where(shift >= x, shift - x, shift - x + m)
    pair = jnp.maximum(x, partner).astype(jnp.uint32)
    coin = _hashed(pair + first) ^ second
    return jnp.where(_hashed(coin) >> 31, partner, x)

  return jax.lax.fori_loop(0, rounds, exchange, places.astype(jnp.int32))


def _hashed(word: Array) -> Array:
  """A 32-bit finaliser: each bit of the result depends on all of the word."""
  word = (word ^ (word >> 16)) * np.uint32(0x7FEB352D)
  word = (word ^ (word >> 15)) * np.uint32(0x846CA68B)
  return word ^ (word >> 16)
