"""The Transformer that computes a number from bits, read at a position of its own.

The trained model of *A Sharper Picture of Generalization in Transformers* (appendix A):
one-hot positions beside an embedding of the bit, attention scores multiplied by log T
in place of 1/sqrt(D), no layer norm.
"""

from __future__ import annotations

import math

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from sepfx.errors import require
from sepfx.models.layers.initializers import uniform
from sepfx.models.layers.network import Network, check_inputs


class Block(Network):
  """Attention without biases, then an MLP of ReLUs."""

  width: int
  num_heads: int
  mlp_width: int
  residual_attention: bool
  residual_mlp: bool
  layer_norm: bool
  dropout: float

  def setup(self) -> None:
    D, H = self.width, self.num_heads
    init = uniform(1 / math.sqrt(D))
    for name in ("query", "key", "value"):
      setattr(self, name, self.weights(f"{name}_kernel", init, (D, H, D // H)))
    self.out = self.weights("out_kernel", init, (H, D // H, D))
    self.mlp_in = self.linear(D, self.mlp_width)
    self.mlp_out = self.linear(self.mlp_width, D)
    if self.layer_norm:
      self.attention_norm = nn.LayerNorm(epsilon=1e-5, **self.types)
      self.mlp_norm = nn.LayerNorm(epsilon=1e-5, **self.types)
    self.drop = nn.Dropout(self.dropout)

  def __call__(
    self,
    tokens: Float[Array, "n S D"],
    scale: float,
    visible: Bool[Array, "R S"] | None = None,
  ) -> Float[Array, "n R D"]:
    """Returns the last R rows, all of them by default.

    Args:
      tokens: what is read.
      scale: factor of attention scores.
      visible: which tokens each of the last R rows attends to; None for all rows and all
        tokens.
    """
    rows = tokens if visible is None else tokens[:, -len(visible) :]
    normed = self._normed(tokens)
    query = jnp.einsum("nsd,dhe->nshe", self._normed(rows), scale * self.query)
    key = jnp.einsum("nsd,dhe->nshe", normed, self.key)
    value = jnp.einsum("nsd,dhe->nshe", normed, self.value)
    scores = jnp.einsum("nrhe,nshe->nhrs", query, key)
    weights = self._sown(nn.softmax(scores, where=visible))
    heads = jnp.einsum("nhrs,nshe->nrhe", weights, value)
    return self._finished(rows, jnp.einsum("nrhe,hed->nrd", heads, self.out))

  def last_row(self, tokens: Float[Array, "n S D"], scale: float) -> Float[Array, "n D"]:
    """Returns the last row alone.

    Its query is brought to the tokens, and values are taken of their mixture: fewer
    products than to bring every token to a key and a value.
    """
    normed = self._normed(tokens)
    query = jnp.einsum("nd,dhe->nhe", normed[:, -1], scale * self.query)
    probe = jnp.einsum("nhe,dhe->nhd", query, self.key)
    scores = jnp.einsum("nhd,nsd->nhs", probe, normed)
    weights = self._sown(nn.softmax(scores)[:, :, None])[:, :, 0]
    mixed = jnp.einsum("nhs,nsd->nhd", weights, normed)
    heads = jnp.einsum("nhd,dhe->nhe", mixed, self.value)
    read = jnp.einsum("nhe,hed->nd", heads, self.out)
    return self._finished(tokens[:, -1], read)

  def of_vocabulary(
    self,
    vocabulary: Float[Array, "2 S D"],
    bits: Int[Array, "n S"],
    scale: float,
    visible: Bool[Array, "S S"] | None = None,
  ) -> Float[Array, "n S D"]:
    """Returns all rows of inputs whose token at s is `vocabulary[bits[s], s]`.

    There are four scores for each pair of positions and two values for each position,
    whatever the number of inputs: no product with a kernel is left that runs over them.
    """
    S, D = vocabulary.shape[1:]
    normed = self._normed(vocabulary)
    query = jnp.einsum("bsd,dhe->bhse", normed, scale * self.query)
    key = jnp.einsum("bsd,dhe->bhse", normed, self.key)
    scores = jnp.einsum("ahre,bhse->abhrs", query, key)
    is_one = bits[:, None, :, None] == 1, bits[:, None, None, :] == 1
    of_zeros, of_ones = (jnp.where(is_one[1], own[1], own[0]) for own in scores)
    weights = nn.softmax(jnp.where(is_one[0], of_ones, of_zeros), where=visible)
    weights = self._sown(weights)
    value = jnp.einsum("bsd,dhe,hef->bhsf", normed, self.value, self.out)
    # What a one adds to a zero's value goes with the weights of ones alone.
    table = jnp.concatenate([value[0], value[1] - value[0]], axis=1)
    split = jnp.concatenate([weights, jnp.where(is_one[1], weights, 0.0)], axis=-1)
    read = split.transpose(0, 2, 1, 3).reshape(-1, 2 * self.num_heads * S)
    read = (read @ table.reshape(-1, D)).reshape(-1, S, D)
    tokens = jnp.where(bits[..., None] == 1, vocabulary[1], vocabulary[0])
    return self._finished(tokens, read)

  def _normed(self, tokens: Float[Array, "*n D"]) -> Float[Array, "*n D"]:
    return self.attention_norm(tokens) if self.layer_norm else tokens

  def _finished(
    self, rows: Float[Array, "*n D"], read: Float[Array, "*n D"]
  ) -> Float[Array, "*n D"]:
    """Both branches, given what attention reads."""
    read = self._dropped(read)
    rows = rows + read if self.residual_attention else read
    hidden = self.mlp_in(self.mlp_norm(rows) if self.layer_norm else rows)
    self.sow("intermediates", "hidden", hidden)
    branch = self._dropped(self.mlp_out(nn.relu(hidden)))
    return rows + branch if self.residual_mlp else branch

  def _sown(self, weights: Float[Array, "n H R S"]) -> Float[Array, "n H R S"]:
    """Shows the weights of attention to who asks for them, and drops some."""
    self.sow("intermediates", "attention", weights)
    return self._dropped(weights)

  def _dropped(self, array: jax.Array) -> jax.Array:
    return self.drop(array, deterministic=not self.has_rng("dropout"))


class ReadOutTransformer(Network):
  """Bits [n T] to numbers [n], by T + 1 tokens of which the last is read.

  A token is its position, one-hot in T + 1 numbers, beside its bit's embedding; the last
  has bit 0. No causal mask, no biases in attention. Only the last row is read, so the
  last layer computes only that. The
  defaults are the published configuration, in which D = T + 31. Each block sows its
  weights of attention, [n heads rows S], as "attention" among the "intermediates".

  Attributes:
    num_layers: L.
    num_heads: H; divides the width D.
    embedding_dim: numbers that a bit becomes, learned; None for the bit itself, so that
      D = T + 2, the width of the construction.
    mlp_width: hidden units.
    residual_attention: whether attention is added to what it reads, or takes its place.
    residual_mlp: whether the MLP is added to what it reads, or takes its place.
    layer_norm: whether there is one before attention, the MLP and the read-out.
    dropout: rate, on attention weights and both branches, where there is a "dropout" key.
    dtype, param_dtype: types of the computation and the parameters, as in `Network`.

  Raises:
    InvalidSetting: when it is initialised or applied, if there is no layer or the heads
      do not divide the width.
  """

  num_layers: int = 2
  num_heads: int = 1
  embedding_dim: int | None = 30
  mlp_width: int = 128
  residual_attention: bool = True
  residual_mlp: bool = True
  layer_norm: bool = False
  dropout: float = 0.0

  @nn.compact
  def __call__(self, bits: Int[Array, "n T"]) -> Float[Array, " n"]:
    """Returns the outputs."""
    check_inputs(bits, "n T")
    T = bits.shape[1]
    vocabulary = self._vocabulary(T)
    D, H, L = vocabulary.shape[-1], self.num_heads, self.num_layers
    require(1 <= L <= 1000, "num_layers", L, "an integer from 1 to 1000")
    takes = f"a divisor of the width {D}"
    require(H >= 1 and D % H == 0, "num_heads", H, takes)
    require(0 <= self.dropout < 1, "dropout", self.dropout, "a number in [0, 1)")
    settings = (self.residual_attention, self.residual_mlp, self.layer_norm, self.dropout)
    blocks = [
      Block(D, H, self.mlp_width, *settings, name=f"block_{k}", **self.types)
      for k in range(L)
    ]
    scale = math.log(T) if T > 1 else 1.0
    bits = jnp.pad(bits, ((0, 0), (0, 1)))
    if L == 1:
      tokens = jnp.where(bits[..., None] == 1, vocabulary[1], vocabulary[0])
    else:
      tokens = blocks[0].of_vocabulary(vocabulary, bits, scale)
    for block in blocks[1:-1]:
      tokens = block(tokens, scale)
    row = blocks[-1].last_row(tokens, scale)
    if self.layer_norm:
      row = nn.LayerNorm(epsilon=1e-5, name="last_norm", **self.types)(row)
    return self.linear(D, 1, name="read_out")(row)[:, 0]

  def _vocabulary(self, length: int) -> Float[Array, "2 S D"]:
    """The tokens of zeros, and of ones, at each position."""
    if self.embedding_dim is None:
      of_bits = jnp.array([[0.0], [1.0]], self.param_dtype)
      return positioned(self.cast(of_bits), length + 1)
    # As in the library that the published model was made from. With PyTorch's own,
    # normal(1), attention starts saturated and few trials learn (docs/differences.md).
    init = nn.initializers.normal(0.02)
    own = self.weights("embedding", init, (2, self.embedding_dim))
    return positioned(own, length + 1)


def positioned(of_bits: Float[Array, "2 E"], length: int) -> Float[Array, "2 S D"]:
  """The tokens of zeros, and of ones, at each of S positions, one-hot beside them."""
  positions = jnp.eye(length, dtype=of_bits.dtype)
  return jnp.stack(
    [jnp.concatenate([positions, jnp.tile(own, (length, 1))], axis=1) for own in of_bits]
  )
