"""Attention without softmax, and the Transformer's read-out."""

from __future__ import annotations

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from sepfx.errors import require_positive
from sepfx.models.layers.initializers import Scheme
from sepfx.models.layers.network import Network, check_inputs
from sepfx.models.transformer import Layer, attention_layers, hidden_layer, joined


class LinearAttention(Network):
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
    dtype, param_dtype: types of the computation and the parameters, as in `Network`.
  """

  num_heads: int = 1
  head_dim: int | None = None
  width: int = 100
  scheme: Scheme = "torch"

  @nn.compact
  def __call__(self, inputs: Float[Array, "n N D"]) -> Float[Array, "n N"]:
    """Maps embedded tokens to one prediction per position."""
    require_positive(self, "num_heads", "head_dim", "width")
    check_inputs(inputs, "n N D")
    inputs = self.cast(inputs)
    n, N, D = inputs.shape
    H, m = self.num_heads, self.width
    e = D if self.head_dim is None else self.head_dim
    query, key, value, out = attention_layers(D, H, e, self.scheme, self.types)
    hidden = hidden_layer(D, m, self.scheme, self.types)

    def mixing(f: int) -> int:
      """Multiplications for each head of a token, with values of dimension f."""
      return N * (e + f) if e > N else 2 * e * f

    # Multiplications of either form, but for the queries and keys that both have.
    one_by_one = n * N * (2 * D * H * e + H * mixing(e) + D * m)
    joined_first = n * N * H * (mixing(D) + D * m) + 2 * H * D * e * m
    form = _joined if joined_first < one_by_one else _each
    rows = form(query(inputs), key(inputs), inputs, value, out, hidden)
    return self.linear(m, 1, name="output")(nn.relu(rows))[..., 0]


def _each(query, key, inputs, value, out, hidden: Layer) -> Float[Array, "n N m"]:
  """One layer after the other, from queries and keys [n N H e]."""
  return hidden(out(mixture(query, key, value(inputs))))


def _joined(query, key, inputs, value, out, hidden: Layer) -> Float[Array, "n N m"]:
  """`_each`, with the last three weights multiplied first: the tokens are the values."""
  n, N, D = inputs.shape
  tokens = jnp.broadcast_to(inputs[:, :, None], (n, N, query.shape[2], D))
  return joined(value, out, hidden)(mixture(query, key, tokens))


def mixture(
  query: Float[Array, "n N H e"],
  key: Float[Array, "n N H e"],
  value: Float[Array, "n N H f"],
) -> Float[Array, "n N H f"]:
  """What each query reads of all keys and values."""
  query, key = positive_feature(query), positive_feature(key)
  if key.shape[1] < key.shape[3]:  # N < e: N x N weights are fewer products
    weights = jnp.einsum("nihe,njhe->nhij", query, key)
    weights = weights / jnp.sum(weights, axis=-1, keepdims=True)
    return jnp.einsum("nhij,njhe->nihe", weights, value)
  state = jnp.einsum("njhe,njhf->nhef", key, value)
  total = jnp.einsum("nihe,nhe->nih", query, jnp.sum(key, axis=1))
  return jnp.einsum("nihe,nhef->nihf", query, state) / total[..., None]


def positive_feature(x: Array) -> Array:
  """elu(x) + 1. As written, it is 0 below -17 in single precision, and 3% off at -15."""
  return jnp.where(x > 0, x + 1, jnp.exp(jnp.minimum(x, 0.0)))
