"""Products of float32 as an H100 rounds them, on CPUs: `pytest --tf32`.

CPUs ignore the precision that a product asks for. After `install` operands lose all but
ten bits of their mantissa, unless the product asks for float32. So what forgets to ask
fails here and not on a GPU first. Programs that tests start are not touched.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Primitive
from jax.extend.core.primitives import conv_general_dilated_p, dot_general_p
from jax.interpreters import mlir

_EXPONENT_BITS, _MANTISSA_BITS = 8, 10


def install() -> None:
  """Changes how this process compiles for CPUs, from now on."""
  for primitive in (dot_general_p, conv_general_dilated_p):
    lowerings = mlir._platform_specific_lowerings["cpu"]
    plain = (lowerings.get(primitive) or mlir._lowerings[primitive]).rule
    rounding = functools.partial(_rounding, primitive, plain)
    mlir.register_lowering(primitive, rounding, platform="cpu")


def _rounding(primitive: Primitive, plain, ctx, *operands, **params) -> Sequence:
  """The lowering of a product whose operands are rounded first."""
  single = all(own.dtype == jnp.float32 for own in ctx.avals_in)
  if not single or _is_exact(params["precision"]):
    return plain(ctx, *operands, **params)

  def rounded(*operands: jax.Array) -> jax.Array:
    few = (lax.reduce_precision(a, _EXPONENT_BITS, _MANTISSA_BITS) for a in operands)
    return primitive.bind(*few, **{**params, "precision": lax.Precision.HIGHEST})

  return mlir.lower_fun(rounded, multiple_results=False)(ctx, *operands)


def _is_exact(precision) -> bool:
  """Whether it asks for float32: one for each operand, or a name of both."""
  if isinstance(precision, tuple):
    return all(map(_is_exact, precision))
  return precision in (lax.Precision.HIGHEST, lax.DotAlgorithmPreset.F32_F32_F32)
