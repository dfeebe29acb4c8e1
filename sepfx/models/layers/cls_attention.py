"""The theory's attention module over bits, read at a [CLS] token.

Definition 3.2 of *Inductive Biases and Variable Creation in Self-Attention Mechanisms*,
with the input maps and the read-out of its appendix B: no residual connection, no layer
norm.
"""

from __future__ import annotations

from typing import Literal

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from sepfx.errors import InvalidSetting, require
from sepfx.models.layers.network import Network, check_inputs
from sepfx.models.residual_rnn import project

INPUT_MAPS = ("deterministic", "trainable", "bag")


def near_orthonormal(
  count: int, dim: int, coherence: float = 0.0
) -> Float[np.ndarray, "count dim"]:
  """Unit vectors any two of which have inner product +coherence or -coherence.

  Signs are pseudo-random and always the same: equal ones would favour no position.

  Args:
    count: how many.
    dim: at least as large.
    coherence: Delta.

  Raises:
    InvalidSetting: if there are no such vectors.
  """
  require(count <= dim, "dim", dim, f"an integer >= {count}, the number of vectors")
  signs = np.triu(np.random.default_rng(0).choice([-1.0, 1.0], (count, count)), 1)
  gram = np.eye(count) + coherence * (signs + signs.T)
  try:
    rows = np.linalg.cholesky(gram)
  except np.linalg.LinAlgError as error:
    takes = f"a number small enough for {count} vectors"
    raise InvalidSetting("coherence", coherence, takes) from error
  return np.pad(rows, ((0, 0), (0, dim - count)))


class InputMap(Network):
  """Bits [n T] to tokens [n T+1 d], the last of which is v_CLS (appendix B.1).

  "deterministic": P_t + E_{b_t} with fixed, nearly orthonormal P. "trainable": the same,
  P a parameter. "bag": b_t v_t. The last three coordinates are those of E_0, E_1 and
  v_CLS, orthogonal to every P_t and v_t ("trainable" starts there).

  Attributes:
    kind: one of `INPUT_MAPS`.
    dim: d; at least T + 3 unless positions are trainable.
    coherence: Delta, of the fixed vectors.
    dtype, param_dtype: types of the computation and the parameters, as in `Network`.
  """

  kind: Literal["deterministic", "trainable", "bag"] = "deterministic"
  dim: int = 16
  coherence: float = 0.0

  @nn.compact
  def __call__(self, bits: Int[Array, "n T"]) -> Float[Array, "n T+1 d"]:
    """Returns the tokens."""
    require(self.kind in INPUT_MAPS, "kind", self.kind, f"one of {', '.join(INPUT_MAPS)}")
    check_inputs(bits, "n T")
    n, length = bits.shape
    zero, one, cls = np.eye(self.dim)[-3:]
    if self.kind == "trainable":
      init = nn.initializers.normal(0.02)
      positions = self.weights("P", init, (length, self.dim))
    else:
      vectors = near_orthonormal(length, self.dim - 3, self.coherence)
      fixed = np.pad(vectors, ((0, 0), (0, 3)))
      positions = self.cast(jnp.asarray(fixed, self.param_dtype))
    if self.kind == "bag":
      tokens = bits[..., None] * positions
    else:
      tokens = positions + jnp.where(bits[..., None] == 1, one, zero)
    tokens = tokens.astype(positions.dtype)
    last = jnp.broadcast_to(jnp.asarray(cls, tokens.dtype), (n, 1, self.dim))
    return jnp.concatenate([tokens, last], axis=1)


class ClsAttention(Network):
  """f_tf-scalar and f_tf+mlp: attention at [CLS], then w, or a network of three layers.

  y = sum_h sigma(softmax(v_CLS^T W_Q W_K^T X^T) X W_V) W_C, over H heads. The result is
  w^T y, or w^T ([([y 1] W_1)_+ 1] W_2)_+ with `hidden_widths`. No residual connection, no
  layer norm, no biases in attention, no division by sqrt(k).

  Attributes:
    input_map: bits to tokens.
    num_heads: H.
    head_dim: k.
    activation: sigma, "identity" or "relu".
    project: whether y is projected onto the unit ball (Pi_norm).
    hidden_widths: (d_2, d_3); None for w alone.
    dtype, param_dtype: types of the computation and the parameters, as in `Network`.
  """

  input_map: InputMap
  num_heads: int = 1
  head_dim: int = 4
  activation: Literal["identity", "relu"] = "identity"
  project: bool = False
  hidden_widths: tuple[int, int] | None = None

  def setup(self) -> None:
    require(
      self.activation in ("identity", "relu"),
      "activation",
      self.activation,
      "identity or relu",
    )
    d, k, heads = self.input_map.dim, self.head_dim, self.num_heads
    init = nn.initializers.lecun_normal(batch_axis=0)
    self.W_Q = self.weights("W_Q", init, (heads, d, k))
    self.W_K = self.weights("W_K", init, (heads, d, k))
    self.W_V = self.weights("W_V", init, (heads, d, k))
    self.W_C = self.weights("W_C", init, (heads, k, d))
    dense, last = nn.initializers.lecun_normal(), d
    if self.hidden_widths is not None:
      d_2, last = self.hidden_widths
      self.W_1 = self.weights("W_1", dense, (d + 1, d_2))
      self.W_2 = self.weights("W_2", dense, (d_2 + 1, last))
    self.w = self.weights("w", nn.initializers.normal(last**-0.5), (last,))

  def __call__(self, bits: Int[Array, "n T"]) -> Float[Array, " n"]:
    """Returns the scalar output."""
    hidden = self.heads(bits)
    if self.hidden_widths is not None:
      for matrix in (self.W_1, self.W_2):
        hidden = nn.relu(hidden @ matrix[:-1] + matrix[-1])
    return hidden @ self.w

  def heads(self, bits: Int[Array, "n T"]) -> Float[Array, "n d"]:
    """Returns y, what the heads read at [CLS]."""
    tokens = self.cast(self.input_map(bits))
    query = jnp.einsum("nd,hdk->nhk", tokens[:, -1], self.W_Q)
    probe = jnp.einsum("nhk,hdk->nhd", query, self.W_K)
    weights = nn.softmax(jnp.einsum("nhd,ntd->nht", probe, tokens))
    mixed = jnp.einsum("nht,ntd->nhd", weights, tokens)
    values = jnp.einsum("nhd,hdk->nhk", mixed, self.W_V)
    if self.activation == "relu":
      values = nn.relu(values)
    y = jnp.einsum("nhk,hkd->nd", values, self.W_C)
    if self.project:
      y = project(y, 1.0)
    return y
