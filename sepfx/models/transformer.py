"""The one-layer Transformer of section 3, in the published and the theory's form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray

from sepfx import precision
from sepfx.errors import require_positive
from sepfx.models.layers.initializers import (
  Initializer,
  Scheme,
  dense_init,
  stacked_xavier_uniform,
  uniform,
)
from sepfx.models.layers.network import Network, check_inputs
from sepfx.models.layers.products import product


class Transformer(Network):
  """Softmax attention with H heads, then a two-layer ReLU read-out per position.

  No residual connection, no layer norm, no causal mask, no position encoding: it cannot
  tell positions apart unless the inputs carry them, as those of q-sparse regression do.

  "separate" is what the published experiments train: W_Q, W_K, W_V with biases,
  scores divided by sqrt(head_dim), W_O back to D, then Dense(width), ReLU and
  Dense(1), all with biases. "full" is section 3's: one D x D matrix W_QK per
  head, scores <z_i, W_QK z_j>, the heads' averages of z concatenated, and
  a^T relu(W h + b), the values being absorbed into W. "separate" is computed in that
  form, too, its weights multiplied first, where it takes fewer multiplications.

  Attributes:
    num_heads: H.
    parametrization: "separate" or "full".
    head_dim: dimension of a head's queries, keys and values ("separate" only);
      None for D, so that H need not divide D.
    width: m, hidden width of the read-out.
    scheme: initial weights, "torch" or "flax".
    dtype, param_dtype: types of the computation and the parameters, as in `Network`.
  """

  num_heads: int = 1
  parametrization: Literal["separate", "full"] = "separate"
  head_dim: int | None = None
  width: int = 100
  scheme: Scheme = "torch"

  @nn.compact
  def __call__(self, inputs: Float[Array, "n N D"]) -> Float[Array, "n N"]:
    """Maps embedded tokens to one prediction per position."""
    require_positive(self, "num_heads", "head_dim", "width")
    check_inputs(inputs, "n N D")
    inputs = self.cast(inputs)
    if self.parametrization == "separate":
      hidden = self._separate(inputs)
    elif self.parametrization == "full":
      heads = self._full_attention(inputs)
      hidden = self.linear(heads.shape[-1], self.width, name="hidden")(heads)
    else:
      raise ValueError(
        f"parametrization: got {self.parametrization!r}, takes 'separate' or 'full'"
      )
    use_bias = self.parametrization == "separate"
    read_out = self.linear(self.width, 1, use_bias=use_bias, name="output")
    return read_out(nn.relu(hidden))[..., 0]

  def _separate(self, inputs: Float[Array, "n N D"]) -> Float[Array, "n N width"]:
    """The hidden layer of the read-out, before its ReLU."""
    n, N, D = inputs.shape
    H, m = self.num_heads, self.width
    e = D if self.head_dim is None else self.head_dim
    layers = _Separate(
      *attention_layers(D, H, e, self.scheme, self.types),
      hidden_layer(D, m, self.scheme, self.types),
    )
    # Multiplications of either form.
    one_by_one = n * N * (4 * D * H * e + D * m + 2 * N * H * e)
    joined_first = n * N * H * D * (D + m + 2 * N) + H * D * e * (D + 2 * m)
    form = _joined if joined_first < one_by_one else _each
    return form(layers, inputs)

  def _full_attention(
    self, inputs: Float[Array, "n N D"]
  ) -> Float[Array, "n N {self.num_heads}*D"]:
    n, length, d_in = inputs.shape
    # The entries' scale at which the published separate matrices start:
    # W_Q^T W_K / sqrt(D) of two Xavier-uniform matrices.
    init = nn.initializers.normal(1 / (2 * d_in))
    w_qk = self.weights("W_QK", init, (self.num_heads, d_in, d_in))
    scores = jnp.einsum("nid,hde,nje->nhij", inputs, w_qk, inputs)
    heads = jnp.einsum("nhij,njd->nihd", nn.softmax(scores), inputs)
    return heads.reshape(n, length, self.num_heads * d_in)


class Layer(NamedTuple):
  """Weights of a dense layer.

  Attributes:
    kernel: [*inputs *features].
    bias: [*features].
  """

  kernel: Array
  bias: Array

  def __call__(self, tokens: Array) -> Array:
    """Maps tokens [... *inputs] to [... *features]."""
    contracted = self.kernel.ndim - self.bias.ndim
    return product(tokens, self.kernel, contracted) + self.bias


class _Weights(Network):
  """The weights of a dense layer, for its caller to apply.

  Attributes:
    inputs, features: shapes of what it takes, and gives, of each token.
    kernel_init, bias_init: initial weights; the kernel's as a matrix of all inputs and
      all features.
  """

  inputs: tuple[int, ...]
  features: tuple[int, ...]
  kernel_init: Initializer
  bias_init: Initializer

  @nn.compact
  def __call__(self) -> Layer:
    def kernel(key: PRNGKeyArray, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
      matrix = math.prod(self.inputs), math.prod(self.features)
      return self.kernel_init(key, matrix, dtype).reshape(shape)

    shape = (*self.inputs, *self.features)
    return Layer(
      self.weights("kernel", kernel, shape),
      self.weights("bias", self.bias_init, self.features),
    )


def attention_layers(
  D: int, num_heads: int, head_dim: int, scheme: Scheme, types: Mapping[str, Any]
) -> tuple[Layer, Layer, Layer, Layer]:
  """Layers "query", "key", "value" and "out" of the module at hand.

  Args:
    D: dimension of the tokens, and of what "out" gives.
    num_heads: H.
    head_dim: e.
    scheme: initial weights.
    types: `Network.types` of that module.
  """
  lecun = nn.initializers.lecun_normal()
  zeros = nn.initializers.zeros_init()
  torch = scheme == "torch"
  init = stacked_xavier_uniform(3) if torch else lecun
  heads = num_heads, head_dim
  query, key, value = (
    _Weights((D,), heads, init, zeros, name=name, **types)()
    for name in ("query", "key", "value")
  )
  init = uniform(1 / math.sqrt(num_heads * head_dim)) if torch else lecun
  return query, key, value, _Weights(heads, (D,), init, zeros, name="out", **types)()


def hidden_layer(D: int, width: int, scheme: Scheme, types: Mapping[str, Any]) -> Layer:
  """The layer "hidden" of the read-out of the module at hand, [D width]."""
  return _Weights((D,), (width,), *dense_init(scheme, D), name="hidden", **types)()


def joined(value: Layer, out: Layer, hidden: Layer) -> Layer:
  """Returns what the three make of mixed tokens [... H D], as one layer.

  Args:
    value: [D H e].
    out: [H e D].
    hidden: [D m].
  """
  read = jnp.einsum("hed,dm->hem", out.kernel, hidden.kernel)
  kernel = jnp.einsum("dhe,hem->hdm", value.kernel, read)
  # Weights of attention sum to 1, and so the values' bias passes through.
  return Layer(kernel, jnp.einsum("he,hem->m", value.bias, read) + hidden(out.bias))


class _Separate(NamedTuple):
  """Layers of a "separate" `Transformer` but for the last."""

  query: Layer
  key: Layer
  value: Layer
  out: Layer
  hidden: Layer


def _each(layers: _Separate, inputs: Float[Array, "n N D"]) -> Float[Array, "n N m"]:
  """One layer after the other."""
  query, key, value = (own(inputs) for own in (layers.query, layers.key, layers.value))
  scores = jnp.einsum("nihe,njhe->nhij", query, key) / math.sqrt(query.shape[-1])
  mixed = jnp.einsum("nhij,njhe->nihe", nn.softmax(scores), value)
  return layers.hidden(layers.out(mixed))


def _joined(layers: _Separate, inputs: Float[Array, "n N D"]) -> Float[Array, "n N m"]:
  """Attention with the weights multiplied first: W_Q with W_K, W_V with W_O and W.

  Attention then acts on the tokens themselves, as in section 3. The bias of the keys has
  no part in it: it adds the same number to all scores of a query.
  """
  query, key, value, out, hidden = layers
  e = query.bias.shape[-1]
  probes = Layer(
    jnp.einsum("dhe,fhe->dhf", query.kernel, key.kernel),
    jnp.einsum("he,fhe->hf", query.bias, key.kernel),
  )
  # The heads of all queries in one dimension: two products for each prompt.
  n, N, D = inputs.shape
  rows = probes(inputs).reshape(n, -1, D)
  scores = rows @ jnp.swapaxes(inputs, 1, 2) / math.sqrt(e)
  heads = (nn.softmax(scores) @ inputs).reshape(n, N, -1, D)
  return joined(value, out, hidden)(heads)


@precision.exact()
def query_key_products(params, d_in: int) -> Float[Array, "H D D"]:
  """W_Q^T W_K of each head of a "separate" `Transformer`, biases left out.

  Args:
    params: the module's parameters (its "params" collection).
    d_in: D.
  """
  query = params["query"]["kernel"].reshape(d_in, -1, params["query"]["bias"].shape[-1])
  key = params["key"]["kernel"].reshape(query.shape)
  return jnp.einsum("dhe,fhe->hdf", query, key)
