"""A bound on the loss of the flat construction under random perturbations.

*A Sharper Picture of Generalization in Transformers* bounds it in its appendices; those
formulas are lost in our copy. The derivation here is our own. It follows the error of
each step through the forward pass of `sepfx.models.FlatTransformer`, in L_p norms
|Z|_p = (E |Z|^p)^(1/p): sums by Minkowski's inequality, products of independent factors
exactly, and maxima of Gaussians by their tails. Nothing is left out as of higher order,
and neurons may flip, since a ReLU is 1-Lipschitz.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import scipy.special
from jaxtyping import Float

from sepfx.errors import require

# Powers by which a maximum of S norms is bounded: |max|_p <= |max|_q <= S^(1/q) |norm|_q.
_POWERS = (1, 2, 4, 8)


def perturbed_loss_bound(
  params: Mapping[str, np.ndarray],
  tokens: Float[np.ndarray, "n S D"],
  sigma: float,
  loss: float = 0.0,
) -> float:
  """An upper bound of E L_n(theta + sigma xi), xi standard normal in every parameter.

  With f' the perturbed outputs, L_n(theta + sigma xi) is the mean of (f' - y)^2, so its
  expectation is at most (max_x |f'(x) - f(x)|_2 + sqrt(L_n(theta)))^2. The norms of rows
  that do not depend on xi are taken on the inputs themselves.

  Args:
    params: of a `FlatTransformer`.
    tokens: n inputs of S tokens.
    sigma: of the perturbations.
    loss: L_n(theta), the mean squared error on these inputs.

  Raises:
    InvalidSetting: unless sigma > 0.
  """
  require(sigma > 0, "sigma", sigma, "a positive number")
  return float((_change(params, tokens, sigma) + math.sqrt(loss)) ** 2)


def _change(
  params: Mapping[str, np.ndarray], tokens: Float[np.ndarray, "n S D"], sigma: float
) -> float:
  """Bounds |f' - f|_2 on every input."""
  own = {name: np.asarray(value, float) for name, value in params.items()}
  X = np.asarray(tokens, float)
  _, S, D = X.shape
  M = own["b"].size
  x = _largest(X)
  # What the unperturbed pass has in its rows.
  scores = X @ own["W_QK1"] @ X.swapaxes(1, 2)
  values = X @ own["W_V1"]
  read = scipy.special.softmax(scores, axis=-1) @ values
  hidden = np.maximum(read @ own["F"] + own["b"], 0.0)
  skipped = X.copy()
  skipped[..., -1] = 0.0
  rows = hidden @ own["G"] + skipped
  a, h, y = _largest(read), _largest(hidden), _largest(rows)

  def scores_1(p: float) -> float:
    """|max_rs |x_r (W' - W) x_s||_p: S^2 Gaussians of deviation at most sigma x^2."""
    return sigma * x**2 * _largest_normal(S * S, p)

  def attention(p: float) -> float:
    """|max_r ||A'_r - A_r|||_p; a softmax is 1-Lipschitz from max to 1-norm."""
    moved = scores_1(p) * _largest(values)
    return moved + sigma * x * _largest_norm(S, D, p)

  def mlp(p: float) -> float:
    """|max_r ||Y'_r - Y_r|||_p."""
    before = attention(p) * (_spectral(own["F"]) + sigma * _operator(D, M, p))
    before += sigma * a * _largest_norm(S, M, p) + sigma * _norm(M, p)
    after = before * (_spectral(own["G"]) + sigma * _operator(M, D, p))
    return after + sigma * h * _largest_norm(S, D, p)

  total = 0.0
  for W_QK, W_V in zip(own["W_QK2"], own["W_V2"], strict=True):
    reader = W_V @ own["w"]
    noise = sigma * _operator(D, D, 2)
    # The second attention's scores: its last row, its kernel and its rows have changed.
    moved = mlp(2)
    shifted = (moved * y + mlp(4) ** 2) * (_spectral(W_QK) + noise)
    shifted += sigma * y**2 * _largest_normal(S, 2) + sigma * y * _norm(D, 2) * moved
    shifted += _largest(rows[:, -1] @ W_QK) * moved
    # What it reads: y_s W_V2 w.
    reader_noise = sigma * float(np.linalg.norm(W_V))
    reader_noise += sigma * math.sqrt(D) * float(np.linalg.norm(own["w"])) + sigma**2 * D
    total += shifted * float(np.max(np.abs(rows @ reader)))
    total += moved * (float(np.linalg.norm(reader)) + reader_noise) + y * reader_noise
  return total


def _largest(rows: np.ndarray) -> float:
  return float(np.max(np.linalg.norm(rows, axis=-1)))


def _spectral(matrix: np.ndarray) -> float:
  return float(np.linalg.norm(matrix, 2))


def _norm(m: int, p: float) -> float:
  """|‖xi‖|_p for m standard normal numbers."""
  log_ratio = scipy.special.gammaln((m + p) / 2) - scipy.special.gammaln(m / 2)
  return math.sqrt(2) * math.exp(log_ratio / p)


def _largest_norm(number: int, m: int, p: float) -> float:
  """Bounds |max ‖xi_s‖|_p of `number` vectors, dependent or not."""
  return min(number ** (1 / (p * k)) * _norm(m, p * k) for k in _POWERS)


def _operator(rows: int, columns: int, p: float) -> float:
  """Bounds |‖Xi‖|_p, the spectral norm of a matrix of standard normal numbers.

  It exceeds sqrt(rows) + sqrt(columns) by t with probability at most exp(-t^2/2).
  """
  excess = (p * 2 ** (p / 2 - 1) * math.gamma(p / 2)) ** (1 / p)
  return math.sqrt(rows) + math.sqrt(columns) + excess


def _largest_normal(number: int, p: float) -> float:
  """Bounds |max |Z_s||_p of `number` standard normal Z_s, dependent or not.

  P(|Z| > t) <= exp(-t^2/2); below the t0 at which `number` of these make 1 the chance
  is bounded by 1.
  """
  t0 = math.sqrt(2 * math.log(number)) if number > 1 else 0.0
  beyond = scipy.special.gammaincc(p / 2, t0**2 / 2) * math.gamma(p / 2)
  return (t0**p + number * p * 2 ** (p / 2 - 1) * beyond) ** (1 / p)
