"""The Transformer of practice: layers with residual connections and layer norms."""

from __future__ import annotations

import math

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sepfx.errors import require, require_positive
from sepfx.models.layers.initializers import Scheme
from sepfx.models.layers.network import Network, check_inputs
from sepfx.models.read_out_transformer import Block


class DeepTransformer(Network):
  """L layers of attention and ReLUs, pre-layer-norm, with sinusoidal positions.

  Xiong et al., "On Layer Normalization in the Transformer Architecture" (2020): rows of a
  residual stream, which each branch reads through a layer norm and adds to; a last layer
  norm; a linear read-out. Positions are those of Vaswani et al., "Attention Is All You
  Need" (2017), so that no parameter depends on N. No causal mask, no dropout, no biases
  in attention.

  Attributes:
    num_layers: L.
    num_heads: H, which divides the width.
    width: of the residual stream.
    mlp_width: hidden units of a layer; None for 4 times the width.
    scheme: initial weights of the first layer and the read-out, "torch" or "flax".
    dtype, param_dtype: types of the computation and the parameters, as in `Network`.

  Raises:
    InvalidSetting: when it is initialised or applied, if there is no layer, or the heads
      do not divide the width.
  """

  num_layers: int = 2
  num_heads: int = 4
  width: int = 64
  mlp_width: int | None = None
  scheme: Scheme = "torch"

  @nn.compact
  def __call__(self, inputs: Float[Array, "n N D"]) -> Float[Array, "n N"]:
    """Maps embedded tokens to one prediction per position."""
    L, H, width = self.num_layers, self.num_heads, self.width
    require(1 <= L <= 1000, "num_layers", L, "an integer from 1 to 1000")
    require_positive(self, "width", "mlp_width")
    proper = H >= 1 and width % H == 0
    require(proper, "num_heads", H, f"a divisor of the width {width}")
    check_inputs(inputs, "n N D")
    _, N, D = inputs.shape
    rows = self.linear(D, width, name="embedding")(self.cast(inputs))
    rows = rows + positions(N, width).astype(rows.dtype)
    mlp_width = 4 * width if self.mlp_width is None else self.mlp_width
    for k in range(L):
      settings = (width, H, mlp_width, True, True, True, 0.0)
      rows = Block(*settings, name=f"block_{k}", **self.types)(rows, math.sqrt(H / width))
    rows = nn.LayerNorm(epsilon=1e-5, name="last_norm", **self.types)(rows)
    return self.linear(width, 1, name="read_out")(rows)[..., 0]


def positions(length: int, width: int) -> Float[Array, "N width"]:
  """Sines at even and cosines at odd coordinates, of wavelengths up to 2 pi 10,000."""
  rates = 10_000.0 ** (-(np.arange(width) // 2 * 2) / width)
  angles = np.arange(length)[:, None] * rates
  even = np.arange(width) % 2 == 0
  return jnp.asarray(np.where(even, np.sin(angles), np.cos(angles)), jnp.float32)
