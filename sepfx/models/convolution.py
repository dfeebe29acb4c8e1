"""Convolutions over positions."""

from __future__ import annotations

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from sepfx.errors import require, require_positive
from sepfx.models.layers.initializers import Scheme
from sepfx.models.layers.network import Network, check_inputs


class Convolution(Network):
  """ReLU layers of convolutions over positions, and a linear read-out per position.

  Ends of the prompt are padded with zeros. A prediction sees num_layers
  (kernel_size - 1) / 2 tokens to each side. No residual connection, no normalisation, no
  position encoding: what is near an end is told by the zeros.

  Attributes:
    num_layers: convolutions.
    features: of each.
    kernel_size: positions that a convolution sees, odd.
    scheme: initial weights, "torch" or "flax".
    dtype, param_dtype: types of the computation and the parameters, as in `Network`.
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
    check_inputs(inputs, "n N D")
    hidden, reach = self.cast(inputs), self.kernel_size // 2
    for k in range(self.num_layers):
      # As one product of what each position sees: on a CPU, XLA computes convolutions
      # slowly within a loop, such as that over the steps of a trial.
      padded = jnp.pad(hidden, ((0, 0), (reach, reach), (0, 0)))
      N = hidden.shape[1]
      seen = [padded[:, start : start + N] for start in range(self.kernel_size)]
      windows = jnp.concatenate(seen, axis=-1)
      fan_in = windows.shape[-1]
      layer = self.linear(fan_in, self.features, name=f"convolution_{k + 1}")
      hidden = nn.relu(layer(windows))
    return self.linear(self.features, 1, name="output")(hidden)[..., 0]
