"""Convolutions over positions."""

from __future__ import annotations

import flax.linen as nn
from jaxtyping import Array, Float

from sepfx.errors import require, require_positive
from sepfx.models.initializers import Scheme, dense_init, linear


class Convolution(nn.Module):
  """ReLU layers of convolutions over positions, and a linear read-out per position.

  Ends of the prompt are padded with zeros. A prediction sees num_layers
  (kernel_size - 1) / 2 tokens to each side.

  Attributes:
    num_layers: convolutions.
    features: of each.
    kernel_size: positions that a convolution sees, odd.
    scheme: initial weights, "torch" or "flax".
  """

  num_layers: int = 2
  features: int = 100
  kernel_size: int = 3
  scheme: Scheme = "torch"

  @nn.compact
  def __call__(self, inputs: Float[Array, "n N D"]) -> Float[Array, "n N"]:
    """Maps embedded tokens to one prediction per position."""
    require_positive(self, "num_layers", "features")
    odd = self.kernel_size % 2 == 1 and self.kernel_size > 0
    require(odd, "kernel_size", self.kernel_size, "an odd number >= 1")
    hidden = inputs
    for k in range(self.num_layers):
      fan_in = self.kernel_size * hidden.shape[-1]
      kernel_init, bias_init = dense_init(self.scheme, fan_in)
      layer = nn.Conv(
        self.features,
        (self.kernel_size,),
        kernel_init=kernel_init,
        bias_init=bias_init,
        name=f"convolution_{k + 1}",
      )
      hidden = nn.relu(layer(hidden))
    return linear(self.scheme, self.features, 1, name="output")(hidden)[..., 0]
