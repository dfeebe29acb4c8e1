"""Floors under the risk of qSTR: Propositions 3, 8 and 21, Theorem 6.

Of *When Do Transformers Outperform Feedforward and Recurrent Networks?* Without hidden
constants: docs/errata.md says where a printed statement and its proof differ. Labels
have variance 1 (a linear link), but in Propositions 3 and 21, where they have variance 2
at the positions i >= N/2, counted from 1, and the others are left out.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy.optimize
from jaxtyping import Float

from sepfx.errors import require


def _check_heads(sparsity: int, num_heads: int) -> None:
  require(sparsity >= 1, "sparsity", sparsity, "an integer >= 1")
  require(num_heads >= 1, "num_heads", num_heads, "an integer >= 1")


def share_with_labels(length: int) -> float:
  """Share of the positions i >= N/2, counted from 1: what averages over N weigh them."""
  return (length - math.ceil(length / 2) + 1) / length


def printed_heads_floor(sparsity: int, token_dim: int, num_heads: int) -> float:
  """Proposition 3 as printed: 1 - (q + d) H / (q d), of the average over all positions.

  Args:
    sparsity: q.
    token_dim: d.
    num_heads: H.

  Returns:
    The floor; 0 where it is empty.
  """
  _check_heads(sparsity, num_heads)
  q, d = sparsity, token_dim
  return max(0.0, 1 - (q + d) * num_heads / (q * d))


def heads_floor(sparsity: int, token_dim: int, num_heads: int) -> float:
  """Proposition 3 as its proof gives it: 2 (1 - H/q) (1 - H/d), at positions i >= N/2.

  Heads tell A (x) R^d of the q tokens, and their scores tell R^q (x) V, with A and V of
  dimension H. The sum of these spaces has dimension H d + q H - H^2, so (q - H) (d - H)
  directions stay free. Averages over all positions are `share_with_labels` of it.

  Args:
    sparsity: q.
    token_dim: d.
    num_heads: H.

  Returns:
    The floor; 0 from H = min(q, d) on.
  """
  _check_heads(sparsity, num_heads)
  free = max(0, sparsity - num_heads) * max(0, token_dim - num_heads)
  return 2 * free / (sparsity * token_dim)


def blind_heads_floor(sparsity: int, num_heads: int) -> float:
  """Proposition 21: 2 (1 - H/q) at positions i >= N/2, where scores tell nothing of data.

  It holds for every d, with Proposition 3's link, where the block of W_QK between a
  query's position and the keys' data is zero. It is attained: H heads that retrieve H
  of the q tokens, and the sum of their squared norms.

  Args:
    sparsity: q.
    num_heads: H.
  """
  _check_heads(sparsity, num_heads)
  return 2 * max(0.0, 1 - num_heads / sparsity)


class SpanFloor(NamedTuple):
  """Theorem 6 for one sample: the risk of any network that sees the span of its inputs.

  Attributes:
    own: 1 - E_t ||V P_t u||^2, of the link's own u.
    mean: over u uniform on the sphere, 1 - rank / (N d): the printed floor.
    worst: of the worst u. A run whose u is another one may lie below it.
  """

  own: float
  mean: float
  worst: float


def span_floor(
  inputs: Float[np.ndarray, "n N d"], u: Float[np.ndarray, "q d"]
) -> SpanFloor:
  """Floors of simple-qSTR with a linear link, y = sum_l <u_l, x_{t_l}>, for one sample.

  A stationary point of a penalised loss, or an interpolator of least norm, sees of a new
  prompt only its projection V x on the span of the n training inputs, whatever follows
  the first layer and whatever the loss is (Definition 5). `span_predictor` attains
  `own`. Indices t are uniform over the ordered subsets of q positions.

  Args:
    inputs: the tokens of n prompts.
    u: of norm 1.
  """
  _, N, d = inputs.shape
  q = len(u)
  basis = _basis(inputs).reshape(-1, N, d)
  seen = np.einsum("rNd,qd->qNr", basis, u)  # V P_t u_l for each t and l
  gram = np.einsum("qNr,pNr->qp", seen, seen)
  own = np.trace(gram) / N
  if q > 1:  # pairs of different positions
    total = seen.sum(axis=1)
    pairs = total @ total.T - gram
    own += (np.sum(pairs) - np.trace(pairs)) / (N * (N - 1))
  worst = np.linalg.eigvalsh(_second_moment(basis, q))[0]
  rank = len(basis)
  return SpanFloor(max(0.0, float(1 - own)), 1 - rank / (N * d), float(1 - worst))


def span_predictor(
  inputs: Float[np.ndarray, "n N d"],
  u: Float[np.ndarray, "q d"],
  prompts: Float[np.ndarray, "k N d"],
  indices: np.ndarray,
) -> Float[np.ndarray, " k"]:
  """E[y | u, t, V x] for other prompts: their projection is read in place of them.

  Args:
    inputs: the tokens of the n training prompts.
    u: of the link.
    prompts: tokens of k others.
    indices: t, [k q].
  """
  basis = _basis(inputs)
  flat = prompts.reshape(len(prompts), -1)
  projected = (flat @ basis.T @ basis).reshape(prompts.shape)
  named = np.take_along_axis(projected, indices[..., None], axis=1)
  return np.sum(named * u, axis=(1, 2))


def _basis(inputs: np.ndarray) -> np.ndarray:
  """Orthonormal rows that span the inputs, [rank N*d]."""
  flat = np.asarray(inputs, np.float64).reshape(len(inputs), -1)
  _, singular, rows = np.linalg.svd(flat, full_matrices=False)
  return rows[singular > 1e-10 * singular[0]]


def _second_moment(basis: np.ndarray, q: int) -> np.ndarray:
  """E_t of P_t' V' V P_t, [q d, q d]."""
  N = basis.shape[1]
  diagonal = np.einsum("rNd,rNe->de", basis, basis) / N
  total = basis.sum(axis=1)
  other = total.T @ total - N * diagonal
  other = other / (N * (N - 1)) if q > 1 else np.zeros_like(diagonal)
  return np.kron(np.eye(q), diagonal - other) + np.kron(np.ones((q, q)), other)


def least_width(length: int, risk: float, lipschitz: float) -> float:
  """Proposition 8, with constants: how large a recurrent state must be on 1STR.

  For every risk D < 1, where the printed constants need D < 1/32. Quantise what the
  read-out sees at eta r_h / L in a ball of R^(2 d_h) of radius sqrt(2) ||U|| r_h. With
  D' = (sqrt(D N / (N - 1)) + eta)^2 as distortion of N - 1 Gaussians,

    d_h >= max_eta (N - 1) log(1 / D') / (4 log(1 + 2 sqrt(2) L ||U|| / eta)).

  Args:
    length: N >= 2.
    risk: D, averaged over positions.
    lipschitz: L ||U||_op. L / r_h is the Lipschitz constant of the read-out f_y in U h,
      and r_h bounds the norm of each state.

  Returns:
    The bound on d_h, which may lie below 1; 0 if D N / (N - 1) is 1 or more.
  """
  require(lipschitz > 0, "lipschitz", lipschitz, "a positive number")

  def bound(log_eta: float, nats: float) -> float:
    return nats / (2 * math.log1p(2 * math.sqrt(2) * lipschitz / math.exp(log_eta)))

  return _best_resolution(length, risk, bound)


def least_norm(length: int, risk: float) -> float:
  """Proposition 8's other half, corrected: L ||U||_F >= c sqrt(N) on 1STR.

  Printed is ||U||_op^2 >= N / (L^2 log(1 + d_h)) up to a constant, which is false. By
  Sudakov's minoration of the set that U maps states to,

    L ||U||_F >= max_eta eta sqrt((N - 1) log(1 / D') / (8 pi ln 2)).

  Args:
    length: N >= 2.
    risk: D, averaged over positions.

  Returns:
    The bound on L ||U||_F, with L and D' as in `least_width`.
  """

  def bound(log_eta: float, nats: float) -> float:
    return math.exp(log_eta) * math.sqrt(nats / (4 * math.pi * math.log(2)))

  return _best_resolution(length, risk, bound)


def _best_resolution(length: int, risk: float, bound) -> float:
  """max over eta of a bound, given eta and the nats (N - 1) / 2 log(1 / D')."""
  require(length >= 2, "length", length, "an integer >= 2")
  require(risk >= 0, "risk", risk, "a number >= 0")
  root = math.sqrt(risk * length / (length - 1))
  if root >= 1:
    return 0.0

  def loss(log_eta: float) -> float:
    distortion = (root + math.exp(log_eta)) ** 2
    nats = (length - 1) / 2 * max(0.0, -math.log(distortion))
    return -bound(log_eta, nats)

  end = math.log(1 - root)
  etas = np.linspace(end - 20, end, 400)
  k = int(np.argmin([loss(eta) for eta in etas]))
  around = (etas[max(k - 1, 0)], etas[min(k + 1, len(etas) - 1)])
  found = scipy.optimize.minimize_scalar(loss, bounds=around, method="bounded")
  return -min(float(found.fun), loss(etas[k]))


def memory_risk(length: int, width: int) -> float:
  """Risk on 1STR of a memory of d_h numbers per direction that stores labels alone.

  Position i knows its own label and the last d_h of each direction. It is no floor: it
  shows how far training is from what fits.

  Args:
    length: N.
    width: d_h >= 0.
  """
  known = sum(1 + min(width, i) + min(width, length - 1 - i) for i in range(length))
  return 1 - known / length**2


def information_floor(num_labels: float, sparsity: int, token_dim: int) -> float:
  """Risk that no learner is below, linear link, average over u: 1 - labels / (q d).

  A label gives one linear equation for u. A prompt gives N of them where the averaged
  risk (2.2) is learned from, and one where the point-wise risk (2.3) is.
  """
  return max(0.0, 1 - num_labels / (sparsity * token_dim))


def error_growth(length: int, alpha: float) -> float:
  """Lemma 29: sum_{i<N} (1 + alpha)^i, what N steps make of an error of 1 in each.

  States h + f(h, z) with f alpha-Lipschitz in h. At most e N for alpha <= 1 / N.
  """
  require(alpha >= 0, "alpha", alpha, "a number >= 0")
  if alpha == 0:
    return float(length)
  return math.expm1(length * math.log1p(alpha)) / alpha
