"""The Transformer of the flat construction: attention, MLP, attention at the last token.

Of *A Sharper Picture of Generalization in Transformers*, appendix B: query and key
kernels come as their product, there is no layer norm, and nothing of the first attention
but what the MLP makes of it is added to anything.
"""

from __future__ import annotations

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float


class FlatTransformer(nn.Module):
  """Tokens [n S D] to numbers [n]; a token's last coordinate is its bit.

  With X the tokens: A = softmax(X W_QK1 X^T) X W_V1; Y = [A F + b]_+ G + X without its
  last coordinate; the result is sum_h softmax(y_S W_QK2^h Y^T) Y W_V2^h w, y_S the last
  row of Y. A F + b is sown as "hidden".

  Attributes:
    mlp_width: number of ReLUs.
    num_heads: heads of the second attention.
  """

  mlp_width: int = 16
  num_heads: int = 1

  @nn.compact
  def __call__(self, tokens: Float[Array, "n S D"]) -> Float[Array, " n"]:
    """Returns the outputs."""
    D, M, H = tokens.shape[-1], self.mlp_width, self.num_heads
    init = nn.initializers.normal(D**-0.5)
    zeros = nn.initializers.zeros_init()
    W_QK1 = self.param("W_QK1", init, (D, D))
    W_V1 = self.param("W_V1", init, (D, D))
    F, b = self.param("F", init, (D, M)), self.param("b", zeros, (M,))
    G = self.param("G", nn.initializers.normal(M**-0.5), (M, D))
    W_QK2 = self.param("W_QK2", init, (H, D, D))
    W_V2 = self.param("W_V2", init, (H, D, D))
    w = self.param("w", init, (D,))
    scores = jnp.einsum("nrd,de,nse->nrs", tokens, W_QK1, tokens)
    read = nn.softmax(scores) @ (tokens @ W_V1)
    skipped = tokens.at[..., -1].set(0.0)
    hidden = read @ F + b
    self.sow("intermediates", "hidden", hidden)
    rows = nn.relu(hidden) @ G + skipped
    scores = jnp.einsum("nd,hde,nse->nhs", rows[:, -1], W_QK2, rows)
    return jnp.einsum("nhs,nsd,hde,e->n", nn.softmax(scores), rows, W_V2, w)
