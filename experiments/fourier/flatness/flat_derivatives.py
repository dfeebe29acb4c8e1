"""Gradients and second derivatives of the flat construction in closed form.

Of *A Sharper Picture of Generalization in Transformers*: Theorem 11, Theorem 14 with
Lemma 15, and the second derivatives of appendix J. The printed formulas are lost in our
copy. What stands here is derived anew along the prose of the proofs, for one-hot
positions and coefficients of one sign, and is held against automatic differentiation by
`tests/test_fourier_hessian.py`. That test also says where the prose is not right.

With p_i the second attention's weights, J = diag(p) - p p^T, q = y_S W_QK2 its scores'
vector, u = W_V2 w, m_i the hidden units of row i, and g_i their slopes, 0 or 1.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from sepfx import precision
from sepfx.errors import require

from .construction import FlatConstruction


class Activations(NamedTuple):
  """What the construction computes of n inputs.

  Attributes:
    tokens: X.
    reads: what rows read by the first attention.
    hidden: units of the MLP after the ReLU, m.
    slopes: whether they are on, g.
    rows: Y, what the second attention reads.
    weights: p, of the second attention.
  """

  tokens: Float[Array, "n S D"]
  reads: Float[Array, "n S D"]
  hidden: Float[Array, "n S M"]
  slopes: Float[Array, "n S M"]
  rows: Float[Array, "n S D"]
  weights: Float[Array, "n S"]


def softmax_jacobian(weights: Float[Array, "*n S"]) -> Float[Array, "*n S S"]:
  """Returns J = diag(p) - p p^T.

  Lemma 15: |X^T J u| <= 2 max_i |x_i| max_i |u_i|. The 2 is not needed: J u has entries
  p_i (u_i - mean of u), and their absolute sum is at most u's standard deviation under p.
  """
  each = jnp.eye(weights.shape[-1]) * weights[..., None, :]
  return each - weights[..., :, None] * weights[..., None, :]


@precision.exact()
def activations(built: FlatConstruction, bits: Int[Array, "n T"]) -> Activations:
  """Returns what a construction computes on the way.

  Raises:
    InvalidSetting: for one of two heads, that is, with coefficients of both signs.
  """
  heads = built.model.num_heads
  require(heads == 1, "num_heads", heads, "1: coefficients of one sign")
  own, X = built.params, built.tokens(bits)
  first = jax.nn.softmax(X @ own["W_QK1"] @ X.swapaxes(1, 2))
  reads = first @ (X @ own["W_V1"])
  before = reads @ own["F"] + own["b"]
  hidden = jax.nn.relu(before)
  Y = hidden @ own["G"] + X.at[..., -1].set(0.0)
  scores = jnp.einsum("nd,de,nse->ns", Y[:, -1], own["W_QK2"][0], Y)
  slopes = (before > 0).astype(Y.dtype)
  return Activations(X, reads, hidden, slopes, Y, jax.nn.softmax(scores))


@precision.exact()
def gradients(
  built: FlatConstruction, bits: Int[Array, "n T"]
) -> dict[str, Float[Array, "n ..."]]:
  """The gradient of the output in each array of weights, for each input.

  Those in W_QK1 and W_V1 are left out: they are 0 but for the weight that the second
  attention leaves on rows without a set, since the MLP is flat where the others are.

  The paper takes the one in G to be 0 outside G's last column. It is not: a change of
  the rows' position coordinates changes the second attention's scores, which adds
  sum_i (J Y u)_i m_i q^T + m_S (W_QK2 Y^T J Y u)^T.
  """
  own, a = built.params, activations(built, bits)
  W_QK2, W_V2, w = own["W_QK2"][0], own["W_V2"][0], own["w"]
  u, last = W_V2 @ w, own["G"][:, -1]
  mixed = jnp.einsum("ns,nsd->nd", a.weights, a.rows)
  moved = jnp.einsum("nrs,nsd,d->nr", softmax_jacobian(a.weights), a.rows, u)  # J Y u
  pulled = jnp.einsum("nsd,ns->nd", a.rows, moved)  # Y^T J Y u
  q = a.rows[:, -1] @ W_QK2
  direct = jnp.einsum("ns,nsm,d->nmd", a.weights, a.hidden, u)
  as_keys = jnp.einsum("ns,nsm,nd->nmd", moved, a.hidden, q)
  as_query = jnp.einsum("nm,nd->nmd", a.hidden[:, -1], pulled @ W_QK2.T)
  on = u[-1] * jnp.einsum("ns,nsm,m->nsm", a.weights, a.slopes, last)
  return {
    "w": mixed @ W_V2,
    "W_V2": jnp.einsum("nd,e->nde", mixed, w)[:, None],
    "W_QK2": jnp.einsum("nd,ne->nde", a.rows[:, -1], pulled)[:, None],
    "G": direct + as_keys + as_query,
    "b": on.sum(axis=1),
    "F": jnp.einsum("nsd,nsm->ndm", a.reads, on),
  }


@precision.exact()
def surviving_blocks(
  built: FlatConstruction, bits: Int[Array, "n T"]
) -> dict[tuple[str, str], Float[Array, "n ..."]]:
  """The six blocks of second derivatives that appendix J keeps, for each input.

  Which six is our reading. The paper has 28 blocks, of all arrays but w. It takes 13 to
  be 0 that hold W_QK1 or W_V1; 4 of W_QK2 with itself and the MLP; that of W_V2 with
  itself; and 4 of the MLP. It is not so: see `test_which_blocks_vanish`.

  G is taken in its last column alone, [M], and W_V2 in the products W_V2 w = u, [D]: the
  derivative in W_V2 is the one in u times w. In these coordinates they are exact.
  """
  own, a = built.params, activations(built, bits)
  u, last, D = own["W_V2"][0] @ own["w"], own["G"][:, -1], a.rows.shape[-1]
  J, M = softmax_jacobian(a.weights), len(last)
  inner = jnp.einsum("nrd,nrs,nse->nde", a.rows, J, a.rows)
  on = jnp.einsum("ns,nsm->nsm", a.weights, a.slopes)
  of_b = on.sum(axis=1)
  of_F = jnp.einsum("nsd,nsm->ndm", a.reads, on)
  unit = jnp.eye(D)[-1]
  return {
    ("W_QK2", "u"): jnp.einsum("nd,nef->ndef", a.rows[:, -1], inner),
    ("G", "u"): jnp.einsum("ns,nsm,d->nmd", a.weights, a.hidden, unit),
    ("b", "u"): jnp.einsum("nm,m,d->nmd", of_b, last, unit),
    ("F", "u"): jnp.einsum("ndm,m,e->ndme", of_F, last, unit),
    ("b", "G"): u[-1] * jnp.einsum("nm,mk->nmk", of_b, jnp.eye(M)),
    ("F", "G"): u[-1] * jnp.einsum("ndm,mk->ndmk", of_F, jnp.eye(M)),
  }


@precision.exact()
def theorem_11(
  built: FlatConstruction, bits: Int[Array, "n T"]
) -> dict[str, tuple[float, float]]:
  """Norms of what is computed: the largest over inputs, and its bound.

  In our form. |c|_1 is the sum of the coefficients' absolute values; W_QK2 has one row q
  with numbers in it. The paper takes the last row of Y to have norm about 1, its last
  coordinate being 0. That row attends to all bits alike, and the MLP makes of their mean
  what it makes of any number: up to 1. So its bound is sqrt(2).

  Returns:
    "token", "token_entry", "read", "row", "row_entry": the largest norm and entry of a
    row of X, of what a row reads, of a row of Y; "last_row": of y_S; "value": of a row of
    Y W_V2; "head": |W_V2 w|; "query": |y_S W_QK2|; "operator": of W_QK2; "w".
  """
  own, a = built.params, activations(built, bits)
  W_QK2, W_V2 = own["W_QK2"][0], own["W_V2"][0]
  total, q = abs(float(W_V2[-1, -1])), float(np.linalg.norm(W_QK2))
  two = float(np.sqrt(2))

  def row(array: Array) -> float:
    return float(jnp.max(jnp.linalg.norm(array, axis=-1)))

  return {
    "token": (row(a.tokens), two),
    "token_entry": (float(jnp.max(jnp.abs(a.tokens))), 1.0),
    "read": (row(a.reads), 1.0),
    "row": (row(a.rows), two),
    "row_entry": (float(jnp.max(jnp.abs(a.rows))), 1.0),
    "last_row": (row(a.rows[:, -1]), two),
    "value": (row(a.rows @ W_V2), total),
    "head": (row(W_V2 @ own["w"]), total),
    "query": (row(a.rows[:, -1] @ W_QK2), q),
    "operator": (float(np.linalg.norm(W_QK2, 2)), q),
    "w": (row(own["w"]), 1.0),
  }


@precision.exact()
def theorem_14(built: FlatConstruction) -> dict[str, float]:
  """Bounds of the gradients' Euclidean norms, whatever the input, in our form.

  From `theorem_11` and Lemma 15 without its 2. With 4 (d + 1) hidden units, each at most
  1 + 1/(2 d) and with a last weight of +-4 d (signs; fewer for indicators). "G" is of the
  whole array; "G_last" of its last column, the part that the paper has.
  """
  own = built.params
  total = abs(float(own["W_V2"][0, -1, -1]))
  q = float(np.linalg.norm(own["W_QK2"]))
  hidden = float(np.linalg.norm(np.maximum(own["F"][-1] + own["b"], 0.0)))
  steep = float(np.linalg.norm(own["G"][:, -1]))
  two = float(np.sqrt(2))
  last = total * hidden
  return {
    "w": total,
    "W_V2": two,
    "W_QK2": 2 * total,
    "G_last": last,
    "G": last + hidden * total * q * (1 + two),
    "b": total * steep,
    "F": total * steep,
  }


@precision.exact()
def appendix_k(built: FlatConstruction) -> dict[tuple[str, str], float]:
  """Bounds of the spectral norms of `surviving_blocks`, whatever the input, in our form.

  Their sum bounds that of the matrix of these blocks: a block off the diagonal stands
  there twice, and the squares of a unit vector's two parts add up to at most 1. It
  bounds the Hessian of f as far as appendix J is right about which blocks vanish.

  Each is from `theorem_11`. "inner" of W_QK2 is the covariance of the rows under the
  second attention's weights, at most their mean square, 2.
  """
  own = built.params
  total = abs(float(own["W_V2"][0, -1, -1]))
  hidden = float(np.linalg.norm(np.maximum(own["F"][-1] + own["b"], 0.0)))
  steep = float(np.linalg.norm(own["G"][:, -1]))
  return {
    ("W_QK2", "u"): 2 * float(np.sqrt(2)),
    ("G", "u"): hidden,
    ("b", "u"): steep,
    ("F", "u"): steep,
    ("b", "G"): total,
    ("F", "G"): total,
  }
