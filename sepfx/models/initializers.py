"""Initial weights: PyTorch's defaults, on which published counts depend, or Flax's."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import flax.linen as nn
import jax

from sepfx.models.products import dot_general

Scheme = Literal["torch", "flax"]
Initializer = Callable[..., jax.Array]


def uniform(bound: float) -> Initializer:
  """Uniform on [-bound, bound]."""

  def init(key, shape, dtype=jax.numpy.float32):
    return jax.random.uniform(key, shape, dtype, -bound, bound)

  return init


def stacked_xavier_uniform(copies: int) -> Initializer:
  """Xavier uniform over `copies` kernels [fan_in, fan_out] stacked on the output.

  PyTorch's multi-head attention draws the query, key and value projections as
  one 3E x D matrix, so each has bound sqrt(6 / (D + 3E)).
  """

  def init(key, shape, dtype=jax.numpy.float32):
    fan_in, fan_out = shape
    bound = math.sqrt(6 / (fan_in + copies * fan_out))
    return jax.random.uniform(key, shape, dtype, -bound, bound)

  return init


def dense_init(scheme: Scheme, fan_in: int) -> tuple[Initializer, Initializer]:
  """Initialisers of a dense layer's kernel and bias.

  "torch": both from U(+-1/sqrt(fan_in)). "flax": LeCun-normal and zeros.
  """
  if scheme == "flax":
    return nn.initializers.lecun_normal(), nn.initializers.zeros_init()
  return (uniform(1 / math.sqrt(fan_in)),) * 2


def linear(
  scheme: Scheme,
  fan_in: int,
  features: int,
  *,
  use_bias: bool = True,
  name: str | None = None,
) -> nn.Dense:
  """A dense layer [..., fan_in] -> [..., features] with `dense_init` weights."""
  kernel, bias = dense_init(scheme, fan_in)
  return nn.Dense(
    features,
    use_bias=use_bias,
    kernel_init=kernel,
    bias_init=bias,
    dot_general=dot_general,
    name=name,
  )
