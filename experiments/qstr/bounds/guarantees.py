"""What empirical risk minimisers of the main paper are promised: Theorems 4, 7 and 10.

Of *When Do Transformers Outperform Feedforward and Recurrent Networks?* The chain of
the proofs with their constants: tokens are bounded with high probability (Lemma 12), a
covering number bounds the Rademacher complexity of the truncated loss (Lemmas 18 and
32), truncation costs little (Lemmas 20 and 34). `theorem_4` and `theorem_7` are the
short forms, whose hidden constant is an argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.integrate
import scipy.optimize

from sepfx.errors import require

from .covering import Growth, LogCovering, RecurrentClass, TransformerClass


class Moments(NamedTuple):
  """Assumption 1: E[||x||^r]^(1/r) <= sqrt(C_x d r), E[|y|^r]^(1/r) <= sqrt(C_y r^s).

  For all r >= 1. The defaults hold for standard normal tokens and a linear link.
  """

  C_x: float = 1.0
  C_y: float = 1.0
  s: float = 1.0


def token_radius(num_tokens: float, token_dim: int, C_x: float = 1.0) -> float:
  """r_x = sqrt(3 C_x e d log(n N)) (Lemma 12).

  Args:
    num_tokens: n N, of all prompts together; at least 2.
    token_dim: d.
    C_x: of Assumption 1.
  """
  require(num_tokens >= 2, "num_tokens", num_tokens, "a number >= 2")
  return math.sqrt(3 * C_x * math.e * token_dim * math.log(num_tokens))


def tail(radius: float, num_tokens: float, token_dim: int, C_x: float = 1.0) -> float:
  """Bounds P(max ||x|| >= r) by n N exp(-r^2 / (2 C_x e d)) (Lemma 12).

  The proof has a moment of order r^2 / (C_x e d), which Assumption 1 has from 1 on. For
  a smaller radius this is 1.
  """
  order = radius**2 / (C_x * math.e * token_dim)
  return min(1.0, num_tokens * math.exp(-order / 2)) if order >= 1 else 1.0


def rademacher_bound(log_covering: LogCovering, num_samples: int, tau: float) -> float:
  """Bounds the Rademacher complexity of (f - y)^2, cut at tau (Lemmas 18 and 32).

  Dudley's integral: inf_a 4 a + 12 / sqrt(n) int_a^tau sqrt(log C(e / (2 sqrt(tau)))) de,
  since the loss moves by at most 2 sqrt(tau) times what f does.

  Args:
    log_covering: of the class, of a distance that is the largest over the sample: a sum
      of terms p log(1 + c / eps), whose root is convex.
    num_samples: n.
    tau: bound on the loss.
  """
  require(num_samples >= 1, "num_samples", num_samples, "an integer >= 1")
  require(tau > 0, "tau", tau, "a positive number")
  # Down to where 4 a is of no account, whatever tau is.
  ends = np.geomspace(1e-100 * tau, tau, 4001)
  rates = np.sqrt([log_covering(end / (2 * math.sqrt(tau))) for end in ends])
  # Of a convex integrand the trapezoidal rule lies above the integral.
  below = scipy.integrate.cumulative_trapezoid(rates, ends, initial=0)
  return float(np.min(4 * ends + 12 / math.sqrt(num_samples) * (below[-1] - below)))


def deviation(rademacher: float, num_samples: int, tau: float, delta: float) -> float:
  """2 R + 3 tau sqrt(log(2 / delta) / (2 n)): risk less empirical risk (Corollary 19).

  With probability 1 - delta, for all functions at once and losses between 0 and tau;
  R is the complexity on the sample itself.
  """
  require(0 < delta < 1, "delta", delta, "a number between 0 and 1")
  chance = 3 * tau * math.sqrt(math.log(2 / delta) / (2 * num_samples))
  return 2 * rademacher + chance


def largest_moment(num_tokens: int, token_dim: int, C_x: float = 1.0) -> float:
  """Bounds E[max_l ||x_l||^4]^(1/2) by N^(1/(2 r)) 4 r C_x d, at its best r >= 1."""
  r = max(1.0, math.log(num_tokens) / 2)
  return num_tokens ** (1 / (2 * r)) * 4 * r * C_x * token_dim


def cut_away(
  growth: Growth, encoding: float, token_dim: int, moments: Moments, tau: float
) -> float:
  """Bounds the risk less the risk cut at tau (proofs of Lemmas 20 and 34).

  It is E[D^4]^(1/2) P(D >= sqrt(tau))^(1/2), with D the error of the prediction: y and
  the prediction both lie below sqrt(tau) / 2 unless one of them is large.

  Args:
    growth: of the predictions.
    encoding: squared norm of a token's encoding: ||z||^2 = ||x||^2 + encoding.
    token_dim: d.
    moments: of Assumption 1.
    tau: where the loss is cut.
  """
  C_x, C_y, s = moments
  squares = encoding + largest_moment(growth.num_tokens, token_dim, C_x)
  fourth = 2 * C_y * 4**s + 2 * (growth.offset + growth.slope * math.sqrt(squares)) ** 2
  order = (tau / (4 * math.e * C_y)) ** (1 / s)
  of_labels = math.exp(-order / 2) if order >= 1 else 1.0
  radius = max(0.0, math.sqrt(tau) / 2 - growth.offset) / growth.slope
  rest = math.sqrt(max(0.0, radius**2 - encoding))
  of_prediction = tail(rest, growth.num_tokens, token_dim, C_x)
  return fourth * math.sqrt(min(1.0, of_labels + of_prediction))


def truncation(
  growth: Growth, encoding: float, token_dim: int, moments: Moments, num_samples: int
) -> float:
  """The smallest tau at which what is cut away is at most n^(-1/2) (Lemmas 20, 34)."""
  aim = math.log(num_samples) / 2

  def above(log_tau: float) -> float:
    found = cut_away(growth, encoding, token_dim, moments, math.exp(log_tau))
    return math.log(max(found, 1e-300)) + aim

  low = high = 0.0
  while above(high) > 0:
    high += 1
  while above(low) <= 0:
    low -= 1
  # The upper end of the last bracket, so that the bound holds there.
  root = scipy.optimize.bisect(above, low, high, xtol=1e-6)
  return math.exp(root + 1e-6)


class Guarantee(NamedTuple):
  """A bound on the risk of an empirical risk minimiser, and its parts.

  Attributes:
    risk: their sum.
    approximation: the empirical risk of the construction, 4 eps_2NN.
    estimation: `deviation` of the truncated loss.
    truncated: n^(-1/2), what is cut away.
    tau: where the loss is cut.
    failure: the probability with which it need not hold.
  """

  risk: float
  approximation: float
  estimation: float
  truncated: float
  tau: float
  failure: float


def guarantee(
  own: TransformerClass | RecurrentClass,
  *,
  token_dim: int,
  encoding: float,
  num_samples: int,
  eps: float = 0.0,
  moments: Moments | None = None,
  delta: float = 0.05,
) -> Guarantee:
  """Theorems 10 and 7 without hidden constants, for a class that has the construction.

  Args:
    own: the class; r_z is replaced by the one of Lemma 12.
    token_dim: d.
    encoding: squared norm of a token's encoding, ||z||^2 = ||x||^2 + encoding:
      (q + 1) d / q, or q + 1 without the prefactor.
    num_samples: n.
    eps: eps_2NN of Assumption 2.
    moments: of Assumption 1.
    delta: share of the failure that concentration may have.
  """
  require(eps >= 0, "eps", eps, "a number >= 0")
  moments = moments or Moments()
  num_tokens = num_samples * own.length
  r_x = token_radius(num_tokens, token_dim, moments.C_x)
  own = own._replace(r_z=math.sqrt(r_x**2 + encoding))
  tau = truncation(own.growth, encoding, token_dim, moments, num_samples)
  complexity = rademacher_bound(own.log_covering, num_samples, tau)
  estimation = deviation(complexity, num_samples, tau, delta)
  parts = 4 * eps, estimation, num_samples**-0.5
  return Guarantee(sum(parts), *parts, tau, delta + num_tokens**-0.5)


def samples_for(risk: float, guarantee_of: Callable[[int], Guarantee]) -> float:
  """The n from which a guarantee is below a risk, to a part in a thousand.

  Args:
    risk: above what the guarantee tends to, 4 eps_2NN.
    guarantee_of: the guarantee for n prompts, which falls with n.

  Raises:
    InvalidSetting: if no n up to 1e100 is enough.
  """

  def above(log_n: float) -> bool:
    return guarantee_of(round(math.exp(log_n))).risk >= risk

  low, high = math.log(2), math.log(1e100)
  require(not above(high), "risk", risk, "a risk that the guarantee gets below")
  while high - low > 1e-3:
    middle = (low + high) / 2
    low, high = (middle, high) if above(middle) else (low, middle)
  return math.exp(high)


def theorem_4(
  num_samples: float,
  *,
  sparsity: int,
  token_dim: int,
  width: int,
  eps: float = 0.0,
  factor: float = 1.0,
) -> float:
  """eps_2NN + C_1 sqrt((m_g q (d + q) + q^3 + q d^2) / n), logarithms left out.

  Args:
    num_samples: n.
    sparsity: q.
    token_dim: d.
    width: m_g.
    eps: eps_2NN.
    factor: C_1, with what the theorem hides. Printed is R^2 q d, the proof of Theorem 10
      gives R^4 q d, and clipping the predictions makes it a constant.
  """
  require(num_samples > 0, "num_samples", num_samples, "a positive number")
  q, d = sparsity, token_dim
  return eps + factor * math.sqrt((width * q * (d + q) + q**3 + q * d**2) / num_samples)


def theorem_7(
  num_samples: float,
  *,
  length: int,
  num_parameters: int,
  R: float,
  tau: float,
  eps: float = 0.0,
  delta: float = 0.05,
  constant: float = 1.0,
) -> float:
  """4 eps_2NN + C tau sqrt(p log(R N n tau) / n) + tau sqrt(log(1/delta) / n) + n^(-1/2).

  Args:
    num_samples: n.
    length: N.
    num_parameters: p.
    R: bound on the norm of all parameters.
    tau: where the loss is cut (Lemma 34), at least 1.
    eps: eps_2NN.
    delta: the chance with which it may not hold.
    constant: C, what Lemma 32 hides.
  """
  require(num_samples > 0, "num_samples", num_samples, "a positive number")
  require(tau >= 1, "tau", tau, "a number >= 1")
  n = num_samples
  estimation = math.sqrt(num_parameters * math.log(R * length * n * tau) / n)
  chance = math.sqrt(math.log(1 / delta) / n)
  return 4 * eps + constant * tau * estimation + tau * chance + n**-0.5
