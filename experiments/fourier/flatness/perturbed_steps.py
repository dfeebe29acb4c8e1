"""How far the flat construction's steps move under random perturbations, with a chance.

*A Sharper Picture of Generalization in Transformers* follows a perturbed construction
step by step (appendix L). Its formulas are lost in our copy, and it keeps what is of
first order in sigma alone. The derivation here is our own, along the same steps: exact in
sigma, over all positions, and for neurons that flip (Remark 23). It differs from
`perturbation` beside it in that it bounds what happens with a chance, not moments.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import scipy.special
from jaxtyping import Float

from sepfx.errors import require

# Random quantities that are bounded at once: seven before the second attention, and six
# in each of its heads.
_BEFORE, _PER_HEAD = 7, 6


def chi_bound(freedom: int, failure: float, number: int = 1) -> float:
  """Lemmas 19 and 20: what the norms of normal vectors stay below, all at once.

  After Laurent and Massart: |xi|^2 is above m + 2 sqrt(m t) + 2 t with a chance of at
  most exp(-t).

  Args:
    freedom: m, standard normal numbers in each vector.
    failure: the chance that one of the norms is larger, in (0, 1).
    number: of vectors, dependent or not.

  Raises:
    InvalidSetting: for a chance outside (0, 1).
  """
  require(0 < failure < 1, "failure", failure, "a number between 0 and 1")
  t = math.log(number / failure)
  return math.sqrt(freedom + 2 * math.sqrt(freedom * t) + 2 * t)


def step_changes(
  params: Mapping[str, np.ndarray],
  tokens: Float[np.ndarray, "n S D"],
  sigma: float,
  failure: float,
) -> dict[str, float]:
  """Bounds that hold at once on all inputs, but with a chance of `failure`.

  Args:
    params: of a `sepfx.models.FlatTransformer`, each number of which is moved by sigma
      times a standard normal one.
    tokens: n inputs of S tokens.
    sigma: of the perturbations.
    failure: in (0, 1).

  Returns:
    How far each moves, at most: "read", the norm of what a row reads by the first
    attention (Lemma 21); "row", of a row after the MLP (Lemma 22 and Remark 23);
    "mlp_jacobian", the spectral norm of the MLP's Jacobian where no neuron flips (Lemma
    25); "weights", the 1-norm of the second attention's weights (Lemma 27);
    "softmax_jacobian", the largest 1-norm of a row of their Jacobian (Theorem 29); and
    "output" (Theorem 24).

  Raises:
    InvalidSetting: unless sigma > 0 and 0 < failure < 1.
  """
  require(sigma > 0, "sigma", sigma, "a positive number")
  require(0 < failure < 1, "failure", failure, "a number between 0 and 1")
  own = {name: np.asarray(value, float) for name, value in params.items()}
  X = np.asarray(tokens, float)
  n, S, D = X.shape
  M, heads = own["b"].size, len(own["W_QK2"])
  chance = failure / (_BEFORE + _PER_HEAD * heads)

  def norm(freedom: int, number: int = 1) -> float:
    return sigma * chi_bound(freedom, chance, number)

  def normal(number: int) -> float:
    """The largest of so many normal numbers, in absolute value."""
    return sigma * math.sqrt(2 * math.log(2 * number / chance))

  def operator(rows: int, columns: int) -> float:
    """The spectral norm of a matrix of normal numbers."""
    excess = math.sqrt(2 * math.log(1 / chance))
    return sigma * (math.sqrt(rows) + math.sqrt(columns) + excess)

  values = X @ own["W_V1"]
  scores = X @ own["W_QK1"] @ X.swapaxes(1, 2)
  read = scipy.special.softmax(scores, axis=-1) @ values
  hidden = np.maximum(read @ own["F"] + own["b"], 0.0)
  skipped = X.copy()
  skipped[..., -1] = 0.0
  rows = hidden @ own["G"] + skipped
  x, y = _largest(X), _largest(rows)
  # A softmax moves in 1-norm by no more than its scores in the largest entry.
  moved_read = x**2 * normal(n * S * S) * _largest(values) + x * norm(D, n * S)
  of_F, of_G = operator(D, M), operator(M, D)
  F, G = _spectral(own["F"]), _spectral(own["G"])
  before = moved_read * (F + of_F) + _largest(read) * norm(M, n * S) + norm(M)
  moved = before * (G + of_G) + _largest(hidden) * norm(D, n * S)
  weights = output = 0.0
  for W_QK, W_V in zip(own["W_QK2"], own["W_V2"], strict=True):
    reader = W_V @ own["w"]
    scores_moved = (
      (moved * y + moved**2) * (_spectral(W_QK) + operator(D, D))
      + y**2 * normal(n * S)
      + y * norm(D, n) * moved
      + _largest(rows[:, -1] @ W_QK) * moved
    )
    reader_moved = _spectral(W_V) * norm(D) + norm(D) * float(np.linalg.norm(own["w"]))
    reader_moved += operator(D, D) * norm(D)
    # No two distributions are further apart than 2.
    shifted = min(scores_moved, 2.0)
    weights = max(weights, shifted)
    output += shifted * float(np.max(np.abs(rows @ reader)))
    output += moved * (float(np.linalg.norm(reader)) + reader_moved) + y * reader_moved
  return {
    "read": moved_read,
    "row": moved,
    "mlp_jacobian": of_F * G + F * of_G + of_F * of_G,
    "weights": weights,
    # Of diag(p) - p p^T: |p_i| moves, and so do p_i and p in the product.
    "softmax_jacobian": 3 * weights,
    "output": output,
  }


def _largest(rows: np.ndarray) -> float:
  return float(np.max(np.linalg.norm(rows, axis=-1)))


def _spectral(matrix: np.ndarray) -> float:
  return float(np.linalg.norm(matrix, 2))
