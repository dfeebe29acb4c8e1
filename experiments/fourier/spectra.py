"""Fourier spectra of functions of bits, exact by the Walsh-Hadamard transform or sampled.

A set S of positions has the place among 2^T that the input has whose ones are S
(`sepfx.tasks.fourier.all_bits`): the first position is the index's highest digit.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from sepfx import precision
from sepfx.errors import require
from sepfx.tasks.fourier import all_bits, parities

# Above it the values on all inputs and their transform are too many to hold.
MAX_LENGTH = 20
# Inputs that a function is evaluated on at once.
_CHUNK = 4096


def walsh_hadamard(values: Float[Array, " n"]) -> Float[Array, " n"]:
  """Returns f^(S) = E_b f(b) chi_S(b) for all S, in T 2^T steps.

  Args:
    values: of f on `all_bits`, n = 2^T.

  Raises:
    InvalidSetting: if their number is no power of two.
  """
  n = len(values)
  require(n > 0 and n & (n - 1) == 0, "values", n, "2^T numbers")
  values = jnp.asarray(values)
  for place in range(n.bit_length() - 1):
    pairs = values.reshape(-1, 2, 2**place)
    total, difference = pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]
    values = jnp.stack([total, difference], axis=1).reshape(n)
  return values / n


@precision.exact()
def spectrum(
  function: Callable[[Array], Array], length: int
) -> Float[Array, "2**{length}"]:
  """Returns all 2^T coefficients of a function, a trained model say.

  Args:
    function: bits [n T] -> values [n].
    length: T, at most 20.

  Raises:
    InvalidSetting: for a larger T.
  """
  takes = f"an integer from 1 to {MAX_LENGTH}: above, `coefficients` takes samples"
  require(1 <= length <= MAX_LENGTH, "length", length, takes)
  bits = all_bits(length)
  parts = bits.reshape(-1, min(_CHUNK, len(bits)), length)
  return walsh_hadamard(jax.lax.map(function, parts).reshape(-1))


@precision.exact()
def coefficients(
  key: PRNGKeyArray,
  function: Callable[[Array], Array],
  sets: Float[Array, "K T"],
  num_samples: int,
) -> tuple[Float[Array, " K"], Float[Array, " K"]]:
  """Estimates f^(S) of some sets S from uniform inputs.

  Args:
    key: consumed; draws the inputs.
    function: bits [n T] -> values [n].
    sets: masks, 0 or 1.
    num_samples: inputs, at least 2.

  Returns:
    The estimates and their standard errors.

  Raises:
    InvalidSetting: for fewer inputs.
  """
  require(num_samples >= 2, "num_samples", num_samples, "an integer >= 2")
  bits = jax.random.bernoulli(key, 0.5, (num_samples, sets.shape[1])).astype(jnp.int32)
  products = function(bits)[:, None] * parities(bits, sets)
  return jnp.mean(products, axis=0), jnp.std(products, axis=0, ddof=1) / num_samples**0.5
