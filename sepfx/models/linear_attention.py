"""Attention without softmax, and the Transformer's read-out."""

from __future__ import annotations

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from sepfx.models.initializers import Scheme, linear
from sepfx.models.transformer import attention_layers, hidden_layer, joined


class LinearAttention(nn.Module):
  """Linear attention with H heads, then a two-layer ReLU read-out per position.

  Equation 5 of Katharopoulos et al., "Transformers are RNNs" (2020), without a causal
  mask: phi(q_i)^T sum_j phi(k_j) v_j^T / phi(q_i)^T sum_j phi(k_j), phi(x) = elu(x) + 1.
  All else is as in `Transformer`: weights, biases, read-out; no residual connection, no
  layer norm, no position encoding but for what the inputs carry. The state of a head is
  e (e + 1) numbers.

  Attributes:
    num_heads: H.
    head_dim: e, dimension of a head's queries, keys and values; None for D.
    width: hidden width of the read-out.
    scheme: initial weights, "torch" or "flax".
  """

  num_heads: int = 1
  head_dim: int | None = None
  width: int = 100
  scheme: Scheme = "torch"

  @nn.compact
  def __call__(self, inputs: Float[Array, "n N D"]) -> Float[Array, "n N"]:
    """Maps embedded tokens to one prediction per position."""
    D = inputs.shape[-1]
    head_dim = self.head_dim or D
    H, m = self.num_heads, self.width
    query, key, value, out = attention_layers(D, H, head_dim, self.scheme)
    hidden = hidden_layer(D, m, self.scheme)
    if H * m < 2 * H * head_dim + m:  # fewer multiplications: the tokens are the values
      tokens = jnp.broadcast_to(inputs[:, :, None], (*inputs.shape[:2], H, D))
      heads = mixture(query(inputs), key(inputs), tokens)
      rows = joined(value, out, hidden)(heads)
    else:
      rows = hidden(out(mixture(query(inputs), key(inputs), value(inputs))))
    return linear(self.scheme, m, 1, name="output")(nn.relu(rows))[..., 0]


def mixture(
  query: Float[Array, "n N H e"],
  key: Float[Array, "n N H e"],
  value: Float[Array, "n N H f"],
) -> Float[Array, "n N H f"]:
  """What each query reads of all keys and values."""
  query, key = nn.elu(query) + 1, nn.elu(key) + 1
  if key.shape[1] < key.shape[3]:  # N < e: N x N weights are fewer products
    weights = jnp.einsum("nihe,njhe->nhij", query, key)
    weights = weights / jnp.sum(weights, axis=-1, keepdims=True)
    return jnp.einsum("nhij,njhe->nihe", weights, value)
  state = jnp.einsum("njhe,njhf->nhef", key, value)
  total = jnp.einsum("nihe,nhe->nih", query, jnp.sum(key, axis=1))
  return jnp.einsum("nihe,nhef->nihf", query, state) / total[..., None]
