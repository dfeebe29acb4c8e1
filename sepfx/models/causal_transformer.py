"""The Transformer that continues a sequence of bits.

Its blocks, positions and score factor are those of `ReadOutTransformer`. The causal mask
is for the chain of thought of *A Sharper Picture of Generalization in Transformers*
(Theorem 7).
"""

from __future__ import annotations

import math

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from sepfx.errors import require
from sepfx.models.layers.network import Network, check_inputs
from sepfx.models.read_out_transformer import Block, positioned


class CausalTransformer(Network):
  """Tokens [n S], 0 or 1, to two logits at each of the last R rows, [n R 2].

  A token is its position, one-hot in S numbers, beside its bit's embedding. A row attends
  to itself and to those before it. Scores are multiplied by log(S - 1); there is no layer
  norm.

  Attributes:
    num_read: R.
    num_layers: L.
    num_heads: H; divides the width D = S + embedding_dim.
    embedding_dim: numbers that a bit becomes, learned.
    mlp_width: hidden units.
    dtype, param_dtype: types of the computation and the parameters, as in `Network`.

  Raises:
    InvalidSetting: when it is initialised or applied, if there is no layer, the heads do
      not divide the width or there are fewer than R tokens.
  """

  num_read: int = 1
  num_layers: int = 2
  num_heads: int = 1
  embedding_dim: int = 30
  mlp_width: int = 128

  @nn.compact
  def __call__(self, tokens: Int[Array, "n S"]) -> Float[Array, "n R 2"]:
    """Returns the logits."""
    check_inputs(tokens, "n S")
    S, R, H, L = tokens.shape[1], self.num_read, self.num_heads, self.num_layers
    D = S + self.embedding_dim
    require(1 <= L <= 1000, "num_layers", L, "an integer from 1 to 1000")
    require(H >= 1 and D % H == 0, "num_heads", H, f"a divisor of the width {D}")
    require(1 <= R <= S, "num_read", R, f"an integer from 1 to {S}, the number of tokens")
    init = nn.initializers.normal(0.02)
    of_bits = self.weights("embedding", init, (2, self.embedding_dim))
    settings = (D, H, self.mlp_width, True, True, False, 0.0)
    blocks = [Block(*settings, name=f"block_{k}", **self.types) for k in range(L)]
    scale = math.log(S - 1) if S > 2 else 1.0
    visible = jnp.tril(jnp.ones((S, S), bool))
    rows = blocks[0].of_vocabulary(positioned(of_bits, S), tokens, scale, visible)
    for block in blocks[1:-1]:
      rows = block(rows, scale, visible)
    if L > 1:  # the last layer computes only the rows that are read
      rows = blocks[-1](rows, scale, visible[-R:])
    return self.linear(D, 2, name="read_out")(rows[:, -R:])
