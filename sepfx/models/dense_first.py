"""Any model behind a fully connected first layer."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
from jaxtyping import Array, Float

from sepfx.errors import require_positive
from sepfx.models.layers.initializers import Scheme
from sepfx.models.layers.network import Network, check_inputs


class DenseFirst(Network):
  """A linear layer on the flattened prompt, and a model on N tokens made of its outputs.

  Theorem 6 of the main paper holds for every network whose first layer is fully
  connected, whatever follows. Where that layer is the identity, this is the model itself.
  No activation between the two. Parameters are of one length N.

  `dtype` and `param_dtype` are those of the first layer. The model has its own.

  Attributes:
    model: a module that maps [n N width] to [n N].
    width: numbers that a token becomes; None for D.
    scheme: initial weights of the first layer, "torch" or "flax".
    dtype, param_dtype: types of the computation and the parameters, as in `Network`.
  """

  model: nn.Module
  width: int | None = None
  scheme: Scheme = "torch"

  @nn.compact
  def __call__(self, inputs: Float[Array, "n N D"], **mode: Any) -> Float[Array, "n N"]:
    """Maps embedded tokens to one prediction per position.

    `mode` is passed on to the model (`sepfx.models.building.modes`).
    """
    check_inputs(inputs, "n N D")
    n, N, D = inputs.shape
    require_positive(self, "width")
    width = D if self.width is None else self.width
    flat = self.cast(inputs).reshape(n, -1)
    mixed = self.linear(N * D, N * width, name="first")(flat)
    return self.model(mixed.reshape(n, N, width), **mode)
