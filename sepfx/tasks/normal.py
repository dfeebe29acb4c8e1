"""Normal numbers, of which a trial needs more than of anything else.

The same numbers as `jax.random.normal` but for the last digits: the same uniform ones
go through the inverse error function. That function is made of a logarithm, which XLA
computes one at a time on CPUs, and of sums and products, which XLA computes again in
every place where their result is used. Here the logarithm is sums and products too,
which become vector code, and the last operation is a division, which XLA does not repeat.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

# Best fits, highest power first. sqrt(2) erf_inv(x) / x is a quotient of polynomials in
# w = -log(1 - x^2), to a relative 2e-8 for all float32 numbers x in (-1, 1).
_NUMERATOR = (
  3.36363422e-5, 9.14896414e-4, 0.0110422843, 0.0847038554, 0.4351479, 1.25331416,
)  # fmt: skip
_DENOMINATOR = (
  1.2509657e-6, 1.7756412e-4, 1.90813523e-3, 0.032192232, 0.0853989221, 1.0,
)  # fmt: skip
# (log(1 + m) - m + m^2 / 2) / m^3 for 1 + m from sqrt(1/2) to sqrt(2).
_LOG = (
  -0.0763449082, 0.127615781, -0.131601846, 0.14201758, -0.166233572, 0.200012269,
  -0.25000821, 0.333333317,
)  # fmt: skip
_SQRT_HALF_BITS = np.float32(np.sqrt(0.5)).view(np.int32)
_MANTISSA = np.int32((1 << 23) - 1)


def normal(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, " *shape"]:
  """Draws independent N(0, 1) numbers. Consumes `key`.

  They are in float32. Where JAX computes in 64 bits they are JAX's own.
  """
  if jnp.result_type(float) != jnp.float32:
    return jax.random.normal(key, shape)
  above_minus_one = np.nextafter(np.float32(-1), np.float32(0))
  return normal_quantile(
    jax.random.uniform(key, shape, jnp.float32, above_minus_one, 1.0)
  )


def normal_quantile(x: Float[Array, " *n"]) -> Float[Array, " *n"]:
  """Returns sqrt(2) erf_inv(x), the (1 + x) / 2 quantile of N(0, 1).

  Args:
    x: float32 numbers in (-1, 1).
  """
  w = -_log((1 - x) * (1 + x))
  return x * _polynomial(_NUMERATOR, w) / _polynomial(_DENOMINATOR, w)


def _log(x: Float[Array, " *n"]) -> Float[Array, " *n"]:
  """The logarithm of positive normal float32 numbers."""
  # x = 2^exponent (1 + m), by the bits of x relative to those of sqrt(1/2).
  bits = jax.lax.bitcast_convert_type(x, jnp.int32) - _SQRT_HALF_BITS
  exponent = (bits >> 23).astype(jnp.float32)
  nearby = (bits & _MANTISSA) + _SQRT_HALF_BITS
  m = jax.lax.bitcast_convert_type(nearby, jnp.float32) - 1
  return m + (m * _polynomial(_LOG, m) - 0.5) * m * m + exponent * np.float32(np.log(2))


def _polynomial(
  coefficients: tuple[float, ...], x: Float[Array, " *n"]
) -> Float[Array, " *n"]:
  return jnp.polyval(jnp.array(coefficients, jnp.float32), x, unroll=16)
