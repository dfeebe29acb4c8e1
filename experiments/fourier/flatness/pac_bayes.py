"""PAC-Bayes bounds on the loss of perturbed weights.

The prior is N(0, sigma^2 I), the posterior Q = N(theta, sigma^2 I); losses are
C-sub-Gaussian at the weights that the prior draws, of n samples. *A Sharper Picture of
Generalization in Transformers*, Theorem 2 and appendix E.2. The printed formulas are
lost in our copy; these follow from its prose and from Alquier's bounds. Logarithms are
natural.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from sepfx.errors import require

# lambda of the bound is chosen after the weights are known: from this many values, each
# twice the one before, of which each has its share of delta.
_NUM_LAMBDAS = 40
_MOST_SAMPLES = 10**18


class Setting(NamedTuple):
  """What a bound is about.

  Attributes:
    num_samples: n.
    constant: C, of the sub-Gaussian losses.
    delta: probability with which a bound may fail.
  """

  num_samples: int
  constant: float
  delta: float = 0.05

  def check(self) -> None:
    """Raises `InvalidSetting` for a number outside its domain."""
    n, C, delta = self
    require(n >= 1, "num_samples", n, "an integer >= 1")
    require(C > 0 and math.isfinite(C), "constant", C, "a positive number")
    require(0 < delta < 1, "delta", delta, "a number between 0 and 1")


def divergence(squared_norm: float, sigma: float) -> float:
  """KL(Q || prior) = |theta|^2 / (2 sigma^2)."""
  require(sigma > 0, "sigma", sigma, "a positive number")
  return squared_norm / (2 * sigma**2)


def gaussian_loss(
  loss: float, trace: float, sigma: float, perturbation: float = 0.0
) -> float:
  """E_Q L_n = L_n(theta) + sigma^2 / 2 (Tr H + P), Theorem 12.

  Args:
    loss: L_n(theta).
    trace: Tr H of L_n at theta.
    sigma: of the posterior.
    perturbation: P, what remains of the second order; see `risk_perturbation`.
  """
  require(sigma > 0, "sigma", sigma, "a positive number")
  return loss + sigma**2 / 2 * (trace + perturbation)


def risk_perturbation(
  perturbed_loss: float, loss: float, trace: float, sigma: float
) -> float:
  """P(sigma) = 2 (E L_n(theta + sigma xi) - L_n(theta)) / sigma^2 - Tr H.

  Args:
    perturbed_loss: E L_n(theta + sigma xi), measured.
    loss: L_n(theta).
    trace: Tr H of L_n at theta.
    sigma: of the perturbation.
  """
  require(sigma > 0, "sigma", sigma, "a positive number")
  return 2 * (perturbed_loss - loss) / sigma**2 - trace


def sub_gaussian_bound(
  expected_loss: float, squared_norm: float, sigma: float, setting: Setting
) -> float:
  """An upper bound of E_Q L that holds with probability 1 - delta, for one sigma.

  E_Q L <= E_Q L_n + (KL + log(J / delta)) / lambda + lambda C^2 / (2 n), for the best of
  J values of lambda that were fixed beforehand (a union bound pays for the choice). A
  sigma that is chosen afterwards among K takes delta / K.

  Args:
    expected_loss: E_Q L_n, of `gaussian_loss` for instance.
    squared_norm: |theta|^2.
    sigma: of prior and posterior.
    setting: n, C and delta.

  Raises:
    InvalidSetting: for a number outside its domain.
  """
  setting.check()
  n, C, delta = setting
  price = divergence(squared_norm, sigma) + math.log(_NUM_LAMBDAS / delta)
  smallest = math.sqrt(2 * n * math.log(1 / delta)) / C
  return expected_loss + min(
    price / own + own * C**2 / (2 * n)
    for own in (smallest * 2.0**k for k in range(_NUM_LAMBDAS))
  )


def optimised_bound(
  expected_loss: float, squared_norm: float, sigma: float, setting: Setting
) -> float:
  """The value with the best lambda of all: not a bound, since nothing pays for it.

  E_Q L_n + C sqrt((|theta|^2 / sigma^2 + 2 log(1/delta)) / n): the form of Theorem 2.
  """
  setting.check()
  n, C, delta = setting
  price = 2 * divergence(squared_norm, sigma) + 2 * math.log(1 / delta)
  return expected_loss + C * math.sqrt(price / n)


def closed_sigma(trace: float, squared_norm: float, setting: Setting) -> float:
  """sigma at which sigma^2 / 2 Tr H + C |theta| / (sigma sqrt n) is least.

  That is the truncated form (P = 0), and without the term of log(1/delta).

  Args:
    trace: Tr H, positive.
    squared_norm: |theta|^2.
    setting: n and C.
  """
  setting.check()
  require(trace > 0, "trace", trace, "a positive number")
  n, C, _ = setting
  return (C * math.sqrt(squared_norm / n) / trace) ** (1 / 3)


def mcallester(
  expected_loss: float, squared_norm: float, sigma: float, setting: Setting
) -> float:
  """McAllester's bound, for losses between 0 and 1: C is not used."""
  setting.check()
  n, _, delta = setting
  require(n >= 2, "num_samples", n, "an integer >= 2")
  price = divergence(squared_norm, sigma) + math.log(n / delta)
  return expected_loss + math.sqrt(price / (2 * (n - 1)))


def neyshabur(
  expected_loss: float, squared_norm: float, sigma: float, setting: Setting
) -> float:
  """Neyshabur et al.'s form of it, for losses between 0 and 1: C is not used."""
  setting.check()
  n, _, delta = setting
  price = divergence(squared_norm, sigma) + math.log(2 * n / delta)
  return expected_loss + 4 * math.sqrt(price / n)


def samples_needed(bound: Callable[[int], float], target: float) -> int | None:
  """The least n up to 10^18 at which a bound that falls with n is below a target.

  Args:
    bound: n -> the bound.
    target: such as the variance of f, which the best constant attains.

  Returns:
    n; None if there is none.
  """
  low, high = 0, 1
  while bound(high) >= target:
    if high == _MOST_SAMPLES:
      return None
    low, high = high, min(2 * high, _MOST_SAMPLES)
  while high - low > 1:
    middle = (low + high) // 2
    low, high = (low, middle) if bound(middle) < target else (middle, high)
  return high


def sub_gaussian_constant(losses: Float[np.ndarray, " n"], num_scales: int = 60) -> float:
  """Estimates C: the least with E exp(t (l - E l)) <= exp(t^2 C^2 / 2) for all t.

  An estimate and no bound: the mean of exponentials is the sample's, for |t| up to where
  a tenth of its terms' weight would lie on a single one.

  Args:
    losses: of held-out samples, at least 2 and not all the same.
    num_scales: values of |t|.

  Raises:
    InvalidSetting: for fewer losses.
  """
  losses = np.asarray(losses, float)
  takes = "at least two finite losses, not all the same"
  varied = losses.ndim == 1 and len(losses) >= 2 and bool(np.all(np.isfinite(losses)))
  require(varied and np.std(losses) > 0, "losses", list(losses.shape), takes)
  centred = losses - losses.mean()
  found = [float(np.var(losses))]  # the limit at t = 0
  for sign in (1.0, -1.0):
    for t in np.geomspace(1e-2, 1e2, num_scales) / np.std(losses):
      exponents = sign * t * centred
      weights = np.exp(exponents - exponents.max())
      if weights.max() > 0.1 * weights.sum() and len(losses) > 10:
        break
      log_mean = exponents.max() + math.log(weights.mean())
      found.append(2 * log_mean / t**2)
  return math.sqrt(max(found))
