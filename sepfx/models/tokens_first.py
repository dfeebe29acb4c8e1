"""A network whose first layer sees the tokens alone: Theorem 6 of the main paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from sepfx.errors import require, require_positive
from sepfx.models.layers.initializers import Scheme
from sepfx.models.layers.network import Network, check_inputs

Activation = Literal["gelu", "softplus", "relu"]


class TokensFirst(Network):
  """f(T, W x): a dense layer W on all tokens, and layers that see the codes, too.

  The network of section 4 of the main paper. x are the first `token_dim` numbers of each
  of the N embedded tokens. All other numbers, the codes of positions and of indices, go
  beside W x into the layers that follow. No residual connection, no normalisation. Its
  parameters are of one length N.

  Attributes:
    token_dim: d.
    width: m_1, rows of W.
    hidden_widths: of the layers that follow.
    activation: of all layers. That of a stationary point should be smooth: at the kinks
      of a ReLU gradients do not vanish.
    scheme: initial weights, "torch" or "flax".
    dtype, param_dtype: types of the computation and the parameters, as in `Network`.

  Raises:
    InvalidSetting: when it is applied, for a field outside its domain.
  """

  token_dim: int
  width: int = 200
  hidden_widths: Sequence[int] = (200,)
  activation: Activation = "gelu"
  scheme: Scheme = "torch"

  @nn.compact
  def __call__(self, inputs: Float[Array, "n N D"]) -> Float[Array, "n N"]:
    """Maps embedded tokens to one prediction per position."""
    require_positive(self, "width")
    check_inputs(inputs, "n N D")
    inputs = self.cast(inputs)
    n, N, D = inputs.shape
    takes = f"an integer from 1 to {D}, what an embedded token has"
    require(1 <= self.token_dim <= D, "token_dim", self.token_dim, takes)
    kinds = get_args(Activation)
    require(self.activation in kinds, "activation", self.activation, " or ".join(kinds))
    activation = getattr(nn, self.activation)
    tokens = inputs[..., : self.token_dim].reshape(n, -1)
    codes = inputs[..., self.token_dim :].reshape(n, -1)
    seen = self.linear(tokens.shape[-1], self.width, name="first")(tokens)
    hidden = jnp.concatenate([activation(seen), codes], axis=-1)
    for k, width in enumerate(self.hidden_widths):
      layer = self.linear(hidden.shape[-1], width, name=f"hidden_{k + 1}")
      hidden = activation(layer(hidden))
    return self.linear(hidden.shape[-1], N, name="output")(hidden)
