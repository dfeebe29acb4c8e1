"""The Transformer that classifies bit strings, read at a [CLS] token.

The trained model of *Inductive Biases and Variable Creation in Self-Attention
Mechanisms* (appendix C.1): a pre-layer-norm Transformer with dropout, learned positions
and a linear read-out. Only the [CLS] row is read, so the last layer computes only that.
"""

from __future__ import annotations

import functools
import math

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from sepfx import precision
from sepfx.errors import require
from sepfx.models.layers.network import Network, check_inputs

_INIT = nn.initializers.normal(0.02)
_LayerNorm = functools.partial(nn.LayerNorm, epsilon=1e-5)
_Standardise = functools.partial(_LayerNorm, use_scale=False, use_bias=False)
# Inputs that `evaluate` takes at once: a core's cache holds their rows.
_CHUNK = 1000
# A head whose scores span more than this part of a float's exponents underflows for
# inputs that have only its lowest scores.
_EXPONENTS = 0.7


class _Block(Network):
  """A pre-layer-norm block: attention, then an MLP of 4 d GELU units."""

  num_heads: int
  width: int
  dropout: float

  def setup(self) -> None:
    d, heads = self.width, self.num_heads
    shape = (d, heads, d // heads)
    zeros = nn.initializers.zeros_init()
    self.standardise = _Standardise(**self.types)
    self.mlp_norm = _LayerNorm(**self.types)
    # The layer norm before attention, in two parts: where one row is computed, tokens
    # are standardised only (see `_read_by_one`).
    self.attention_scale = self.weights("attention_scale", nn.initializers.ones, (d,))
    self.attention_bias = self.weights("attention_bias", zeros, (d,))
    self.query_kernel = self.weights("query_kernel", _INIT, shape)
    self.query_bias = self.weights("query_bias", zeros, shape[1:])
    # No key bias: it adds the same number to all scores of a query.
    self.key_kernel = self.weights("key_kernel", _INIT, shape)
    self.value_kernel = self.weights("value_kernel", _INIT, shape)
    self.value_bias = self.weights("value_bias", zeros, shape[1:])
    self.out = nn.DenseGeneral(d, axis=(-2, -1), kernel_init=_INIT, **self.types)
    self.mlp_in = nn.Dense(4 * d, kernel_init=_INIT, **self.types)
    self.mlp_out = nn.Dense(d, kernel_init=_INIT, **self.types)
    self.drop = nn.Dropout(self.dropout)

  def __call__(
    self, tokens: Float[Array, "n S d"], num_rows: int
  ) -> Float[Array, "n R d"]:
    """Returns the block's last `num_rows` = R rows."""
    standard = self.standardise(tokens)
    if num_rows == 1:
      heads = self._read_by_one(standard)[:, None]
    else:
      normed = self._affine(standard)
      query = self._query(normed[:, -num_rows:])
      key = jnp.einsum("nsd,dhe->nshe", normed, self.key_kernel)
      scores = jnp.einsum("nrhe,nshe->nrhs", query, key)
      weights = self._dropped(nn.softmax(scores))
      heads = jnp.einsum("nrhs,nshe->nrhe", weights, self._value(normed))
    return self.finish(tokens[:, -num_rows:], heads)

  def _read_by_one(self, standard: Float[Array, "n S d"]) -> Float[Array, "n H e"]:
    """What the heads read for the last token.

    It takes fewer products to bring its query to the tokens than to bring every token
    to a key and a value; and scale, bias and values are linear, so that they are taken
    of the mixture. The bias adds the same number to all scores of a query.
    """
    n, d = len(standard), self.width
    query = self._query(self._affine(standard[:, -1])).reshape(n, d)
    probe = (query @ _blocks(self.key_kernel)).reshape(n, -1, d) * self.attention_scale
    scores = jnp.einsum("nhd,nsd->nsh", probe, standard)
    weights = self._dropped(nn.softmax(scores, axis=1))
    mixed = jnp.einsum("nsh,nsd->nhd", weights, standard) * self.attention_scale
    total = jnp.sum(weights, axis=1)[..., None]  # not one where some are dropped
    mixed = mixed + total * self.attention_bias
    heads = mixed.reshape(n, -1) @ _blocks(self.value_kernel).T
    return heads.reshape(n, self.num_heads, -1) + total * self.value_bias

  def scores_and_values(
    self, vocabulary: Float[Array, "V d"]
  ) -> tuple[Float[Array, "V H"], Float[Array, "V H e"]]:
    """The last vector's scores of all vectors, and their values; without dropout."""
    with precision.exact():
      normed = self._affine(self.standardise(vocabulary))
      probe = jnp.einsum("he,dhe->hd", self._query(normed[-1]), self.key_kernel)
      return jnp.einsum("vd,hd->vh", normed, probe), self._value(normed)

  def finish(
    self, rows: Float[Array, "*#n d"], heads: Float[Array, "*n H e"]
  ) -> Float[Array, "*n d"]:
    """Both residual branches, given what the heads read."""
    rows = rows + self._dropped(self.out(heads))
    hidden = nn.gelu(self.mlp_in(self.mlp_norm(rows)), approximate=False)
    return rows + self._dropped(self.mlp_out(hidden))

  def _affine(self, standard: Float[Array, "*n d"]) -> Float[Array, "*n d"]:
    return standard * self.attention_scale + self.attention_bias

  def _query(self, normed: Float[Array, "*n d"]) -> Float[Array, "*n H e"]:
    query = jnp.einsum("...d,dhe->...he", normed, self.query_kernel) + self.query_bias
    return query / math.sqrt(self.width // self.num_heads)

  def _value(self, normed: Float[Array, "*n d"]) -> Float[Array, "*n H e"]:
    return jnp.einsum("...d,dhe->...he", normed, self.value_kernel) + self.value_bias

  def _dropped(self, array: jax.Array) -> jax.Array:
    return self.drop(array, deterministic=not self.has_rng("dropout"))


def _blocks(kernel: Float[Array, "d H e"]) -> Float[Array, "H*e H*d"]:
  """A kernel of H heads as one matrix, with a block a head and zeros elsewhere.

  One product with it has H times the arithmetic of a product for each head. But those
  want the axis of heads first, and to bring it there and back takes far longer.
  """
  d, heads, e = kernel.shape
  blocks = jnp.einsum("dhe,hg->hegd", kernel, jnp.eye(heads, dtype=kernel.dtype))
  return blocks.reshape(heads * e, heads * d)


class _Embedding(Network):
  """Token plus position, all learned, of T bits and [CLS]."""

  width: int

  @nn.compact
  def __call__(
    self, length: int
  ) -> tuple[Float[Array, "3 d"], Float[Array, "{length}+1 d"]]:
    """Returns the vectors of 0, 1 and [CLS], and of the positions."""
    token = self.weights("token", _INIT, (3, self.width))
    return token, self.weights("position", _INIT, (length + 1, self.width))


class ClsTransformer(Network):
  """Bits [n T] to logits [n classes], by T + 1 tokens of which [CLS] is the last.

  Learned positions, layer norms and residual connections; no causal mask, no key biases.
  Dropout is on where `apply` is given a "dropout" key. The defaults are the published
  configuration.

  Attributes:
    num_layers: L.
    num_heads: H; divides `width`.
    width: d.
    dropout: rate, on embeddings, attention weights and residual branches.
    num_classes: number of logits.
    dtype, param_dtype: types of the computation and the parameters, as in `Network`.

  Raises:
    InvalidSetting: when it is initialised or applied, if there is no layer or the heads
      do not divide the width.
  """

  num_layers: int = 1
  num_heads: int = 16
  width: int = 64
  dropout: float = 0.1
  num_classes: int = 2

  def setup(self) -> None:
    layers, heads = self.num_layers, self.num_heads
    require(1 <= layers <= 1000, "num_layers", layers, "an integer from 1 to 1000")
    takes = f"a divisor of the width {self.width}"
    require(heads >= 1 and self.width % heads == 0, "num_heads", heads, takes)
    require(0 <= self.dropout < 1, "dropout", self.dropout, "a number in [0, 1)")
    self.embedding = _Embedding(self.width, **self.types)
    self.drop = nn.Dropout(self.dropout)
    self.blocks = [
      _Block(self.num_heads, self.width, self.dropout, **self.types)
      for _ in range(self.num_layers)
    ]
    self.last_norm = _LayerNorm(**self.types)
    self.read_out = nn.Dense(
      self.num_classes, use_bias=False, kernel_init=_INIT, **self.types
    )

  def __call__(self, bits: Int[Array, "n T"]) -> Float[Array, "n classes"]:
    """Returns the logits."""
    check_inputs(bits, "n T")
    n, length = bits.shape
    token, position = self.embedding(length)
    # Its gradient is one sum over tokens and one over inputs; a choice between two
    # vectors would have two sums over inputs.
    tokens = token[0] + bits[..., None] * (token[1] - token[0]) + position[:-1]
    cls = jnp.broadcast_to(token[2] + position[-1], (n, 1, self.width))
    tokens = jnp.concatenate([tokens, cls], axis=1)
    tokens = self.drop(tokens, deterministic=not self.has_rng("dropout"))
    for block in self.blocks[:-1]:
      tokens = block(tokens, length + 1)
    return self._logits(self.blocks[-1](tokens, 1)[:, 0])

  def evaluate(self, bits: Int[Array, "n T"]) -> Float[Array, "n classes"]:
    """The logits without dropout, for any number of inputs.

    With one layer at a small part of the cost of the direct pass. Every input is then
    made of the same 2T + 1 token vectors, and the [CLS] query is constant. So is a
    vector's unnormalised attention weight, e^(score - highest score), and its product
    with the vector's value; what a head reads of an input is the quotient of two sums of
    those, which are rows of [1 - b, b, 1] times a table. (A table of differences, for b
    alone, would be half as large; it cancels catastrophically where attention is on bits
    that are 0.)

    Where the scores of a head span more exponents than a float has, all inputs take
    the direct pass instead.
    """
    check_inputs(bits, "n T")
    n, length = bits.shape
    size = min(_CHUNK, n)
    chunks = jnp.pad(bits, ((0, -n % size), (0, 0))).reshape(-1, size, length)
    module, variables = self.unbind()  # Flax refuses bound modules inside a loop
    if self.num_layers > 1:
      logits = jax.lax.map(lambda chunk: module.apply(variables, chunk), chunks)
      return logits.reshape(-1, self.num_classes)[:n]
    (block,) = self.blocks
    vocabulary = self._vocabulary(length)
    scores, values = block.scores_and_values(vocabulary)
    highest = jnp.max(scores, axis=0)
    weights = jnp.exp(scores - highest)
    weighted = (weights[..., None] * values).reshape(2 * length + 1, self.width)
    table = jnp.concatenate([weighted, weights], axis=1)
    span = jnp.max(highest - jnp.min(scores, axis=0))
    too_wide = span > _EXPONENTS * -math.log(jnp.finfo(table.dtype).tiny)

    def by_table(part):
      rows = part.astype(table.dtype)
      with precision.exact():
        sums = (1 - rows) @ table[:length] + rows @ table[length:-1] + table[-1]
      heads = sums[:, : self.width].reshape(-1, *values.shape[1:])
      heads = heads / sums[:, self.width :, None]
      return module.apply(variables, vocabulary[-1], heads, method="_finished")

    def directly(k, logits):
      return logits.at[k].set(module.apply(variables, chunks[k]))

    logits = jax.lax.map(by_table, chunks)
    # A loop of no rounds or all, because under `vmap` a `cond` computes both sides.
    rounds = jnp.where(too_wide, len(chunks), 0)
    logits = jax.lax.fori_loop(0, rounds, directly, logits)
    return logits.reshape(-1, self.num_classes)[:n]

  def _vocabulary(self, length: int) -> Float[Array, "V d"]:
    """All V = 2T + 1 token vectors: zeros by position, ones by position, [CLS]."""
    token, position = self.embedding(length)
    of_bits = [token[b] + position[:-1] for b in (0, 1)]
    return jnp.concatenate([*of_bits, token[2:] + position[-1:]])

  def _finished(self, row: Float[Array, " d"], heads: Float[Array, "n H e"]):
    return self._logits(self.blocks[-1].finish(row, heads))

  def _logits(self, row: Float[Array, "n d"]) -> Float[Array, "n classes"]:
    return self.read_out(self.last_norm(row))
