"""Initial weights: PyTorch's defaults, on which published counts depend, or Flax's."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import flax.linen as nn
import jax

Scheme = Literal["torch", "flax"]
# Of mixers and what they are in, too.
MixerScheme = Literal["torch", "flax", "gpt2"]
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


def orthogonal(key, shape, dtype=jax.numpy.float32):
  """A random orthogonal matrix, drawn in single precision at least."""
  at_least = jax.numpy.promote_types(dtype, jax.numpy.float32)
  return nn.initializers.orthogonal()(key, shape, at_least).astype(dtype)


def dense_init(
  scheme: MixerScheme, fan_in: int, depth: int = 1
) -> tuple[Initializer, Initializer]:
  """Initialisers of a dense layer's kernel and bias.

  "torch": both from U(+-1/sqrt(fan_in)). "flax": LeCun-normal and zeros. "gpt2": normal
  with a deviation of 0.02 and zeros, smaller by sqrt(depth) where as many outputs are
  added to one residual stream (Radford et al., 2019).
  """
  if scheme == "gpt2":
    return nn.initializers.normal(0.02 / math.sqrt(depth)), nn.initializers.zeros_init()
  if scheme == "flax":
    return nn.initializers.lecun_normal(), nn.initializers.zeros_init()
  return (uniform(1 / math.sqrt(fan_in)),) * 2
