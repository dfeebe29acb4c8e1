"""Products of tokens and weights, as products of two matrices.

The gradient for the weights contracts all dimensions of the tokens but the last. If there
are two of them, the compiler for CPUs transposes an operand first, and the product itself
is slower: together two to four times as slow as with one.
"""

from __future__ import annotations

import math
from typing import Any

from jax import Array


def product(tokens: Array, weights: Array, contracted: int = 1) -> Array:
  """Contracts the last dimensions of `tokens` with the first of `weights`.

  Args:
    tokens: [... D_1 ... D_k].
    weights: [D_1 ... D_k *features].
    contracted: k.

  Returns:
    [... *features].
  """
  leading = tokens.shape[: tokens.ndim - contracted]
  features = weights.shape[contracted:]
  rows = math.prod(weights.shape[:contracted])
  matrix = weights.reshape(rows, math.prod(features))
  return (tokens.reshape(math.prod(leading), rows) @ matrix).reshape(*leading, *features)


def dot_general(
  tokens: Array, weights: Array, dimension_numbers: Any, precision: Any = None
) -> Array:
  """`product` for flax's dense layers, which contract nothing else."""
  del precision  # theirs is the default
  (axes, _), _ = dimension_numbers
  return product(tokens, weights, len(axes))
