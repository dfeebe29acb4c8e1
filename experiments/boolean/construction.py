"""Transformers that compute sparse Boolean functions: Lemmas B.2 to B.6 and B.8.

Of *Inductive Biases and Variable Creation in Self-Attention Mechanisms*. Where the
printed proofs slip, docs/differences.md says what is done here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from sepfx.errors import require
from sepfx.models import ClsAttention, InputMap
from sepfx.models.layers.cls_attention import INPUT_MAPS, near_orthonormal


class Selection(NamedTuple):
  """Attention that reads a function g of the bits in I, up to gamma / 4.

  Attributes:
    model: its `heads` approximate g, in the first coordinates.
    params: its parameters; w reads the first coordinate.
    subset: I.
    target: g, from the hidden bits [n s] to [n d_f] (d_f = 1 or s).
    gamma: g's strict monotonicity (d_f = 1) or injectivity.
    bound: B, of |g|.
  """

  model: ClsAttention
  params: Any
  subset: tuple[int, ...]
  target: Callable[[np.ndarray], np.ndarray]
  gamma: float
  bound: float


def selection(
  kind: str,
  length: int,
  subset: Sequence[int],
  *,
  vector: bool = False,
  coherence: float = 0.0,
) -> Selection:
  """Builds the attention weights of Lemma B.2, B.3 or B.4.

  The error is within gamma / 4 for orthonormal positions, and trainable ones. It is
  not guaranteed with others (one head of B.2, and B.4): scores of the positions in I
  then differ, and attention is not uniform over them.

  Args:
    kind: input map: "deterministic" (B.2), "trainable" (B.3) or "bag" (B.4).
    length: T.
    subset: I, s positions from 0.
    vector: False for a monotone g of the number of ones among the hidden bits; True
      for an injective g of the hidden bits, with s heads (B.2, B.3) or one (B.4).
    coherence: Delta, of deterministic positions and bags of vectors.

  Raises:
    InvalidSetting: for an unknown kind, a subset that is none, or a coherence of
      1/(2s) or more.
  """
  require(kind in INPUT_MAPS, "kind", kind, f"one of {', '.join(INPUT_MAPS)}")
  subset = tuple(sorted(int(i) for i in subset))
  s = len(subset)
  inside = s >= 1 and len(set(subset)) == s and subset[0] >= 0 and subset[-1] < length
  require(inside, "subset", subset, f"different positions from 0 to {length - 1}")
  takes = f"a number in [0, 1/(2s)), here below {1 / (2 * s):.4g}"
  require(0 <= coherence < 1 / (2 * s), "coherence", coherence, takes)
  dim = max(length, s) + 3
  input_map = InputMap(kind=kind, dim=dim, coherence=coherence)  # type: ignore[arg-type]
  build = _bag if kind == "bag" else _positions
  return build(input_map, length, subset, vector)


def _positions(
  input_map: InputMap, length: int, subset: tuple[int, ...], vector: bool
) -> Selection:
  """Lemmas B.2 and B.3: heads that attend to positions, and read their tokens."""
  s, d = len(subset), input_map.dim
  zero, one, cls = np.eye(d)[-3:]
  heads = s if vector else 1
  gamma = 2.0 if vector else 2 / s
  if input_map.kind == "trainable":
    # One direction a head; all other positions stay at the origin.
    positions = np.zeros((length, d))
    positions[list(subset), np.arange(s) if vector else 0] = 1.0
    keys = np.eye(d)[:heads]
    margin = 1.0
  else:
    vectors = _fixed_vectors(input_map, length)
    keys = vectors[list(subset)] if vector else vectors[list(subset)].sum(0)[None]
    margin = 1 - 2 * (1 if vector else s) * input_map.coherence
  scale = math.log(8 * length / gamma) / margin
  first = np.eye(s)[0]  # of k = s coordinates one is used
  params = {
    "W_Q": np.stack([scale * np.outer(cls, first)] * heads),
    "W_K": np.stack([np.outer(key, first) for key in keys]),
    "W_V": np.stack([np.outer(one - zero, first)] * heads),
    "W_C": np.stack([np.outer(first, e) for e in np.eye(d)[:heads]]),
    "w": np.eye(d)[0],
  }
  if input_map.kind == "trainable":
    params["input_map"] = {"P": positions}

  def target(hidden: Int[np.ndarray, "n s"]) -> Float[np.ndarray, "n d_f"]:
    signs = 2.0 * hidden - 1.0
    return signs if vector else signs.mean(axis=1, keepdims=True)

  model = ClsAttention(input_map, num_heads=heads, head_dim=s)
  return Selection(model, _arrays(params), subset, target, gamma, 1.0)


def _bag(
  input_map: InputMap, length: int, subset: tuple[int, ...], vector: bool
) -> Selection:
  """Lemma B.4: one head that attends to [CLS] and to the ones in I."""
  s, d = len(subset), input_map.dim
  gamma = 1 / s
  coherence = input_map.coherence
  vectors = _fixed_vectors(input_map, length)[list(subset)]
  cls = np.eye(d)[-1]
  size = s * (1 + coherence)  # of what is read of a token
  scale = math.log(8 * length * size / gamma) / (1 - 2 * s * coherence)
  read = np.eye(s) if vector else np.ones((s, 1))
  params = {
    "W_Q": scale * np.outer(cls, np.eye(s)[0])[None],
    "W_K": np.outer(vectors.sum(axis=0) + cls, np.eye(s)[0])[None],
    "W_V": (vectors.T - cls[:, None])[None],
    "W_C": np.pad(read, ((0, 0), (0, d - read.shape[1])))[None],
    "w": np.eye(d)[0],
  }

  def target(hidden: Int[np.ndarray, "n s"]) -> Float[np.ndarray, "n d_f"]:
    r = hidden.sum(axis=1, keepdims=True)
    return (hidden - 1.0) / (r + 1) if vector else (r - s) / (r + 1.0)

  model = ClsAttention(input_map, num_heads=1, head_dim=s)
  return Selection(
    model, _arrays(params), subset, target, gamma, 1.0 if vector else float(s)
  )


def represent(
  selected: Selection, function: Callable[[np.ndarray], np.ndarray]
) -> tuple[ClsAttention, Any]:
  """Puts a network on top that computes a function exactly: Lemmas B.5 and B.6.

  Args:
    selected: attention that is within gamma / 4 of its g.
    function: from hidden bits [n s] to values [n]; symmetric where g is of the number
      of ones (Lemma B.5).

  Returns:
    The module and its parameters.

  Raises:
    InvalidSetting: if the function is not symmetric and has to be.
  """
  s = len(selected.subset)
  hidden = np.array(list(itertools.product((0, 1), repeat=s)))
  values, centres = function(hidden), selected.target(hidden)
  # Inputs on which g is the same are one: s + 1 of them for a monotone g.
  centres, chosen = np.unique(centres, axis=0, return_index=True)
  by_centre = {tuple(c): value for c, value in zip(centres, values[chosen], strict=True)}
  same = all(
    by_centre[tuple(c)] == value
    for c, value in zip(selected.target(hidden), values, strict=True)
  )
  require(same, "function", "one that is not", "a symmetric function here")
  W_1, W_2, w = piecewise_constant(centres, values[chosen], selected.gamma / 4)
  d, d_f = selected.model.input_map.dim, centres.shape[1]
  W_1 = np.vstack([W_1[:d_f], np.zeros((d - d_f, W_1.shape[1])), W_1[d_f:]])
  model = selected.model.clone(hidden_widths=(W_1.shape[1], W_2.shape[1]))
  params = {**selected.params, **_arrays({"W_1": W_1, "W_2": W_2, "w": w})}
  return model, params


class Network(NamedTuple):
  """A ReLU network of three layers; the last rows of W_1 and W_2 are biases."""

  W_1: Float[np.ndarray, "d_f+1 4*n*d_f"]
  W_2: Float[np.ndarray, "4*n*d_f+1 2*n"]
  w: Float[np.ndarray, "2*n"]


def piecewise_constant(
  centres: Float[np.ndarray, "n d_f"], values: Float[np.ndarray, " n"], delta: float
) -> Network:
  """Builds the network of Lemma B.8: f(x_i) wherever ||x - x_i||_inf <= delta.

  Args:
    centres: x_i, at least 4 delta apart in the maximum norm.
    values: f(x_i).
    delta: the radius.

  Raises:
    InvalidSetting: if two centres are closer.
  """
  n, d_f = centres.shape
  apart = np.abs(centres[:, None] - centres[None]).max(axis=-1)
  nearest = np.min(apart[~np.eye(n, dtype=bool)], initial=math.inf)
  takes = f"at most a quarter of the smallest distance, {nearest / 4:.4g}"
  require(0 < 4 * delta <= nearest * (1 + 1e-12), "delta", delta, takes)
  # With u = (x - x_ij) / delta a bump is (u+2)_+ - (u+1)_+ - (u-1)_+ + (u-2)_+: 1 for
  # |u| <= 1 and 0 for |u| >= 2. The h-th part of the bump (i, j) is unit (h, i, j).
  shifts, signs = (2.0, 1.0, -1.0, -2.0), (1.0, -1.0, -1.0, 1.0)
  W_1 = np.zeros((d_f + 1, 4, n, d_f))
  for j in range(d_f):
    W_1[j, :, :, j] = 1 / delta
  W_1[-1] = np.array(shifts)[:, None, None] - centres / delta
  # (S - d_f + 1)_+ - (S - d_f)_+ of the sum S of d_f bumps is 1 where all are.
  W_2 = np.zeros((4 * n * d_f + 1, 2, n))
  W_2[:-1] = np.einsum("h,ik,j->hijk", signs, np.eye(n), np.ones(d_f)).reshape(
    4 * n * d_f, 1, n
  )
  W_2[-1] = np.array([[1.0 - d_f], [-d_f]])
  w = np.concatenate([values, -values])
  return Network(W_1.reshape(d_f + 1, -1), W_2.reshape(4 * n * d_f + 1, -1), w)


def _fixed_vectors(input_map: InputMap, length: int) -> np.ndarray:
  vectors = near_orthonormal(length, input_map.dim - 3, input_map.coherence)
  return np.pad(vectors, ((0, 0), (0, 3)))


def _arrays(params: Any) -> Any:
  return jax.tree.map(jnp.asarray, params)
