"""Models of vectors, applied to bits."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
from jaxtyping import Array, Float, Int

from sepfx.models.layers.network import check_inputs


class OnBits(nn.Module):
  """A model of tokens [n T 1], given bits [n T] as -1 and 1.

  `dtype` and `param_dtype` are fields of that model.

  Attributes:
    model: any module on [n T 1].
  """

  model: nn.Module

  def __call__(self, bits: Int[Array, "n T"], **mode: Any) -> Float[Array, "n outputs"]:
    """Returns the model's outputs; `mode` is passed on to it."""
    check_inputs(bits, "n T")
    return self.model(2.0 * bits[..., None] - 1.0, **mode)
