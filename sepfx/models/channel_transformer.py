"""The small Transformer whose every part can be drawn: one channel after attention.

The interpretability variant of *A Sharper Picture of Generalization in Transformers*
(section 2.4): the width of the construction, an MLP from one number to one number, and
a linear read-out over positions in place of the second attention.
"""

from __future__ import annotations

import math

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from sepfx.models.layers.initializers import uniform
from sepfx.models.layers.network import Network, check_inputs


class ChannelTransformer(Network):
  """Bits [n T] to numbers [n]; each of S = T + 1 rows reads one number by attention.

  A token is its position, one-hot in S numbers, beside its bit; the last has bit 0, so
  that D = T + 2. With X the tokens, the rows' numbers are
  a = softmax(log T X W_Q W_K^T X^T) X v, and the result is sum_r w_r h(a_r) with h an
  MLP and a bias at the end. The weights of attention, [n 1 S S], are sown as "attention"
  among the "intermediates", and what goes into the ReLUs as "hidden". No residual
  connection, no layer norm, no heads.

  The paper does not print the formula. This form has 1,109 parameters at T = 20; the
  paper says that there are just over 1,000.

  Attributes:
    mlp_width: hidden units of h.
    read_bits: whether attention's scores see the bits, too; otherwise they are of
      positions alone, as in the construction, and only h can tell parities.
    dtype, param_dtype: types of the computation and the parameters, as in `Network`.
  """

  mlp_width: int = 32
  read_bits: bool = True

  def setup(self) -> None:
    self.mlp_in = self.linear(1, self.mlp_width)
    self.mlp_out = self.linear(self.mlp_width, 1)

  @nn.compact
  def __call__(self, bits: Int[Array, "n T"]) -> Float[Array, " n"]:
    """Returns the outputs."""
    check_inputs(bits, "n T")
    n, T = bits.shape
    S, D = T + 1, T + 2
    init = uniform(1 / math.sqrt(D))
    query, key = (
      self.weights(f"{name}_kernel", init, (D, D)) for name in ("query", "key")
    )
    value = self.weights("value_kernel", init, (D,))
    own = jnp.pad(bits, ((0, 0), (0, 1)))
    positions = jnp.broadcast_to(jnp.eye(S, dtype=value.dtype), (n, S, S))
    tokens = jnp.concatenate([positions, own[..., None].astype(value.dtype)], axis=-1)
    scale = math.log(T) if T > 1 else 1.0
    seen = tokens if self.read_bits else tokens.at[..., -1].set(0.0)
    scores = (seen @ (scale * query @ key.T)) @ seen.swapaxes(1, 2)
    weights = nn.softmax(scores)
    self.sow("intermediates", "attention", weights[:, None])
    rows = self.response(weights @ (tokens @ value)[..., None])[..., 0]
    return self.linear(S, 1, name="read_out")(rows)[:, 0]

  def response(self, channel: Float[Array, "*n 1"]) -> Float[Array, "*n 1"]:
    """Returns h, the MLP, at some numbers."""
    hidden = self.mlp_in(channel)
    self.sow("intermediates", "hidden", hidden)
    return self.mlp_out(nn.relu(hidden))
