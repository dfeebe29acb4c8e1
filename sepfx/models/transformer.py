"""The one-layer Transformer of section 3, in the published and the theory's form."""

from __future__ import annotations

import math
from typing import Literal

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from sepfx.models.initializers import (
  Scheme,
  linear,
  stacked_xavier_uniform,
  uniform,
)


class Transformer(nn.Module):
  """Softmax attention with H heads, then a two-layer ReLU read-out per position.

  No residual connection, no layer norm, no causal mask.

  "separate" is what the published experiments train: W_Q, W_K, W_V with biases,
  scores divided by sqrt(head_dim), W_O back to D, then Dense(width), ReLU and
  Dense(1), all with biases. "full" is section 3's: one D x D matrix W_QK per
  head, scores <z_i, W_QK z_j>, the heads' averages of z concatenated, and
  a^T relu(W h + b), the values being absorbed into W.

  Attributes:
    num_heads: H.
    parametrization: "separate" or "full".
    head_dim: dimension of a head's queries, keys and values ("separate" only);
      None for D, so that H need not divide D.
    width: m, hidden width of the read-out.
    scheme: initial weights, "torch" or "flax".
  """

  num_heads: int = 1
  parametrization: Literal["separate", "full"] = "separate"
  head_dim: int | None = None
  width: int = 100
  scheme: Scheme = "torch"

  @nn.compact
  def __call__(self, inputs: Float[Array, "n N D"]) -> Float[Array, "n N"]:
    """Maps embedded tokens to one prediction a position."""
    if self.parametrization == "separate":
      heads = self._separate_attention(inputs)
    elif self.parametrization == "full":
      heads = self._full_attention(inputs)
    else:
      raise ValueError(
        f"parametrization: got {self.parametrization!r}, takes 'separate' or 'full'"
      )
    hidden = linear(self.scheme, heads.shape[-1], self.width, name="hidden")(heads)
    read_out = linear(
      self.scheme,
      self.width,
      1,
      use_bias=self.parametrization == "separate",
      name="output",
    )
    return read_out(nn.relu(hidden))[..., 0]

  def _separate_attention(self, inputs: Float[Array, "n N D"]) -> Float[Array, "n N D"]:
    head_dim = self.head_dim or inputs.shape[-1]
    query, key, value = projections(inputs, self.num_heads, head_dim, self.scheme)
    scores = jnp.einsum("nihe,njhe->nhij", query, key) / math.sqrt(head_dim)
    mixed = jnp.einsum("nhij,njhe->nihe", nn.softmax(scores), value)
    return merged(mixed, inputs.shape[-1], self.scheme)

  def _full_attention(self, inputs: Float[Array, "n N D"]) -> Float[Array, "n N H*D"]:
    n, length, d_in = inputs.shape
    # The entries' scale at which the published separate matrices start:
    # W_Q^T W_K / sqrt(D) of two Xavier-uniform matrices.
    init = nn.initializers.normal(1 / (2 * d_in))
    w_qk = self.param("W_QK", init, (self.num_heads, d_in, d_in))
    scores = jnp.einsum("nid,hde,nje->nhij", inputs, w_qk, inputs)
    heads = jnp.einsum("nhij,njd->nihd", nn.softmax(scores), inputs)
    return heads.reshape(n, length, self.num_heads * d_in)


def projections(
  inputs: Float[Array, "n N D"], num_heads: int, head_dim: int, scheme: Scheme
) -> list[Float[Array, "n N H e"]]:
  """Queries, keys and values, by layers "query", "key" and "value" of the module at hand.

  Args:
    inputs: tokens.
    num_heads: H.
    head_dim: e.
    scheme: initial weights.
  """
  lecun = nn.initializers.lecun_normal()
  init = stacked_xavier_uniform(3) if scheme == "torch" else lecun
  features = (num_heads, head_dim)
  return [
    nn.DenseGeneral(features, kernel_init=init, name=name)(inputs)
    for name in ("query", "key", "value")
  ]


def merged(
  mixed: Float[Array, "n N H e"], features: int, scheme: Scheme
) -> Float[Array, "n N features"]:
  """The heads brought together by a layer "out" of the module at hand."""
  _, _, num_heads, head_dim = mixed.shape
  bound = 1 / math.sqrt(num_heads * head_dim)
  init = uniform(bound) if scheme == "torch" else nn.initializers.lecun_normal()
  return nn.DenseGeneral(features, axis=(-2, -1), kernel_init=init, name="out")(mixed)


def query_key_products(params, d_in: int) -> Float[Array, "H D D"]:
  """W_Q^T W_K of each head of a "separate" `Transformer`, biases left out.

  Args:
    params: the module's parameters (its "params" collection).
    d_in: D.
  """
  query = params["query"]["kernel"].reshape(d_in, -1, params["query"]["bias"].shape[-1])
  key = params["key"]["kernel"].reshape(query.shape)
  return jnp.einsum("dhe,fhe->hdf", query, key)
