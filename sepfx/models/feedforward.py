"""The feedforward network of section 4, on the flattened prompt."""

from __future__ import annotations

from collections.abc import Sequence

import flax.linen as nn
from jaxtyping import Array, Float

from sepfx.models.initializers import Scheme, linear


class FeedForward(nn.Module):
  """ReLU layers on all N tokens at once, N outputs or as many as asked for.

  Attributes:
    hidden_widths: widths of the hidden layers; the published network has
      (N d, 1000).
    num_outputs: None for one per position.
    scheme: initial weights, "torch" or "flax".
  """

  hidden_widths: Sequence[int]
  scheme: Scheme = "torch"
  num_outputs: int | None = None

  @nn.compact
  def __call__(self, inputs: Float[Array, "n N D"]) -> Float[Array, "n outputs"]:
    """Maps embedded tokens to predictions."""
    n, length, _ = inputs.shape
    hidden = inputs.reshape(n, -1)
    for width in self.hidden_widths:
      hidden = nn.relu(linear(self.scheme, hidden.shape[-1], width)(hidden))
    return linear(self.scheme, hidden.shape[-1], self.num_outputs or length)(hidden)
