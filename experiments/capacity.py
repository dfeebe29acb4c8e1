"""How large classes of attention are, by the norms of their weights.

Section 4 and appendix A of *Inductive Biases and Variable Creation in Self-Attention
Mechanisms*. A class has capacity C if log N_inf(eps) <= C / eps^2 for every eps > 0: the
logarithm of the number of functions that are within eps of any other on all m inputs.
The paper hides constants, and logarithms of everything but m and T; here they are an
argument `constant`, 1 unless it is given. Lemma A.10 alone has its constants in print.

These bounds are of Definition 3.2 (`sepfx.models.ClsAttention`): heads without residual
branches or layer norm, whose tokens are at fixed positions. They say nothing of
`sepfx.models.ClsTransformer`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sepfx.errors import require


class Norms(NamedTuple):
  """Three norms of a linear map x -> x W with kernel W [d_in, d_out].

  The paper writes maps as W x here and as x W there, and its transposes do not always
  follow; what its proofs need is the convention of these attributes.

  Attributes:
    two_inf: the largest 2-norm of the weights that feed one output.
    two_one: the sum of these 2-norms over outputs.
    spectral: the largest singular value.
  """

  two_inf: float
  two_one: float
  spectral: float


def norms(kernel: np.ndarray) -> Norms:
  """Returns the norms of a kernel [d_in, d_out]."""
  kernel = np.asarray(kernel, float)
  of_outputs = np.linalg.norm(kernel, axis=0)
  return Norms(
    float(np.max(of_outputs)), float(np.sum(of_outputs)), float(np.linalg.norm(kernel, 2))
  )


class HeadNorms(NamedTuple):
  """Bounds on the weights of one attention head, as Corollary 4.4 takes them.

  Attributes:
    V_inf: (2, inf) norm of W_V.
    V: its spectral norm.
    QK_inf: (2, inf) norm of x -> x W_K W_Q^T, which maps a token to what the query
      token is held against.
  """

  V_inf: float
  V: float
  QK_inf: float


def head_norms(params: Mapping[str, Any]) -> list[HeadNorms]:
  """Returns the norms of each head of a `sepfx.models.ClsAttention`.

  The corollary has no W_C. It is multiplied into W_V, which changes nothing where the
  activation is the identity.

  Args:
    params: with W_Q, W_K, W_V [H d k] and W_C [H k d].
  """
  kernels = (np.asarray(params[name], float) for name in ("W_Q", "W_K", "W_V", "W_C"))
  found = []
  for query, key, value, out in zip(*kernels, strict=True):
    own, of_scores = norms(value @ out), norms(key @ query.T)
    found.append(HeadNorms(own.two_inf, own.spectral, of_scores.two_inf))
  return found


class Term(NamedTuple):
  """A part of a class: covered to eps_i by alpha / eps_i^2, it costs beta eps_i."""

  alpha: float
  beta: float


def split(terms: Sequence[Term]) -> float:
  """Returns the least sum of alpha_i / eps_i^2 with sum of beta_i eps_i = 1 (Lemma A.8).

  It is (sum_i alpha_i^(1/3) beta_i^(2/3))^3, at eps_i proportional to
  (alpha_i / beta_i)^(1/3). For a total of eps instead of 1, divide by eps^2.
  """
  return float(sum((alpha * beta**2) ** (1 / 3) for alpha, beta in terms) ** 3)


def linear_log_covering(B_1: float, B_2: float, eps: float, num_inputs: int) -> float:
  """log N_inf of x -> v.x with ||v|| <= B_1, on inputs of norm at most B_2 (Lemma A.10).

  The one bound that is in print with its constants (Zhang 2002, theorem 4).
  """
  product = B_1 * B_2
  count = 2 * math.ceil(4 * product / eps + 2) * num_inputs + 1
  return 36 * (product / eps) ** 2 * math.log(count)


def matrix_capacity(
  d_2: int,
  B_inf: float,
  B_X: float,
  num_inputs: int,
  *,
  B_1: float | None = None,
  constant: float = 1.0,
) -> float:
  """Capacity of x -> W x with d_2 outputs (Lemma 4.5).

  Args:
    d_2: number of outputs.
    B_inf: bound on the (2, inf) norm.
    B_X: bound on the norm of inputs.
    num_inputs: N.
    B_1: bound on the (2, 1) norm; None for d_2 B_inf, the lemma as it is stated. Given,
      it is the stronger form that its proof gives.
    constant: what the paper hides.
  """
  B_1 = d_2 * B_inf if B_1 is None else B_1
  return constant * d_2 * B_inf * B_1 * B_X**2 * math.log(num_inputs)


def heads_capacity(
  heads: Sequence[HeadNorms],
  *,
  d: int,
  B_X: float,
  num_samples: int,
  length: int,
  L_sigma: float = 1.0,
  B_P: float = 0.0,
  B_w: float = 1.0,
  constant: float = 1.0,
) -> float:
  """Capacity of a sum of attention heads (Corollary 4.4, Lemmas A.11 and A.12).

  One head without positions is Corollary 4.4 in the form that its proof gives,
  (d L B_X)^2 (V_inf^(2/3) + (2 QK_inf V B_X^2)^(2/3))^3 log(m T).

  Args:
    heads: bounds on the weights of each.
    d: width of tokens and of values.
    B_X: bound on the norm of tokens.
    num_samples: m.
    length: T, tokens of an input.
    L_sigma: Lipschitz constant of the activation.
    B_P: bound on the norm of positions added to the tokens; they are fixed, not learned.
    B_w: norm of the fixed vector that reads a number from the heads.
    constant: what the paper hides.
  """
  B = B_X + B_P
  terms = []
  for head in heads:
    # A token's score is its product with the query, whose norm is at most B, too.
    terms.append(Term((d * head.QK_inf * B**2) ** 2, 2 * L_sigma * head.V * B))
    terms.append(Term((d * head.V_inf * B) ** 2, L_sigma))
  return constant * B_w**2 * split(terms) * math.log(num_samples * length)


class LayerNorms(NamedTuple):
  """Bounds on the weights of one layer of Theorem A.17.

  Attributes:
    V_inf, QK_inf, C_inf: (2, inf) norms of W_V, W_QK and W_C.
    V, QK, C: their spectral norms.
  """

  V_inf: float
  QK_inf: float
  C_inf: float
  V: float
  QK: float
  C: float


def deep_capacity(
  layers: Sequence[LayerNorms],
  *,
  d: int,
  k: int,
  B_w: float,
  num_samples: int,
  length: int,
  L_sigma: float = 1.0,
  constant: float = 1.0,
) -> float:
  """Capacity of a number read linearly from [CLS] after several layers (Theorem A.17).

  Tokens have norm at most 1, which the projections onto the unit ball keep.

  Args:
    layers: bounds on the weights of each, from the first.
    d: width of tokens.
    k: width of a head.
    B_w: bound on the norm of w, which is learned.
    num_samples: m.
    length: T, tokens of an input.
    L_sigma: Lipschitz constant of the activation.
    constant: what the paper hides.
  """
  terms = [Term(B_w**2, 1.0)]
  after = B_w  # how much an error grows in the layers after this one, and in w
  for own in reversed(layers):
    terms.append(Term((d * own.C_inf) ** 2, after))
    terms.append(Term((d * own.QK_inf) ** 2, after * 2 * L_sigma * own.C * own.V))
    terms.append(Term((k * own.V_inf) ** 2, after * L_sigma * own.C))
    after *= L_sigma * own.C * own.V * (1 + 4 * own.QK)
  return constant * split(terms) * math.log(num_samples * length)


def generalisation_bound(
  capacity: float,
  num_samples: int,
  *,
  A: float,
  b: float,
  L: float = 1.0,
  delta: float = 0.05,
  constant: float = 1.0,
) -> float:
  """How far risk and empirical risk are apart at most, for all f at once (Lemma 2.2).

  Args:
    capacity: C of the class on m inputs.
    num_samples: m.
    A: bound on |f|.
    b: bound on the loss.
    L: Lipschitz constant of the loss.
    delta: the chance with which it may not hold.
    constant: c, what the paper hides.

  Raises:
    InvalidSetting: for a delta outside (0, 1) or no samples.
  """
  require(0 < delta < 1, "delta", delta, "a number between 0 and 1")
  require(num_samples >= 1, "num_samples", num_samples, "an integer >= 1")
  rate = math.sqrt(capacity / num_samples)
  # Dudley's infimum over its lower end, which is `rate` or, for a large class, A.
  rademacher = rate * (1 + math.log(A / rate)) if rate < A else A
  deviation = 2 * b * math.sqrt(math.log(1 / delta) / (2 * num_samples))
  return 4 * constant * L * rademacher + deviation
