"""The feedforward network of section 4, on the flattened prompt."""

from __future__ import annotations

from collections.abc import Sequence

import flax.linen as nn
from jaxtyping import Array, Float

from sepfx.models.layers.initializers import Scheme
from sepfx.models.layers.network import Network, check_inputs


class FeedForward(Network):
  """ReLU layers on all N tokens at once, N outputs or as many as asked for.

  No residual connection, no normalisation, no dropout. Parameters are of one length.

  Attributes:
    hidden_widths: widths of the hidden layers; the published network has
      (N d, 1000).
    num_outputs: None for one per position.
    scheme: initial weights, "torch" or "flax".
    dtype, param_dtype: types of the computation and the parameters, as in `Network`.
  """

  hidden_widths: Sequence[int]
  scheme: Scheme = "torch"
  num_outputs: int | None = None

  @nn.compact
  def __call__(self, inputs: Float[Array, "n N D"]) -> Float[Array, "n outputs"]:
    """Maps embedded tokens to predictions."""
    check_inputs(inputs, "n N D")
    n, length, _ = inputs.shape
    hidden = self.cast(inputs).reshape(n, -1)
    for width in self.hidden_widths:
      hidden = nn.relu(self.linear(hidden.shape[-1], width)(hidden))
    return self.linear(hidden.shape[-1], self.num_outputs or length)(hidden)
