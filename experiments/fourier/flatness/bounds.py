"""PAC-Bayes and covering-number bounds on the loss of measured weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from ... import capacity
from ...capacity import LayerNorms
from . import pac_bayes
from .construction import FlatConstruction
from .pac_bayes import Setting

# The published mesh.
SIGMAS = np.linspace(1e-5, 1e-2, 20)
DELTA = 0.05
# The best sigma is chosen afterwards: each has its share.
_EACH = DELTA / len(SIGMAS)
# Standard errors by which a measured E_Q L_n is raised in a bound.
_MARGIN = 3.0
# What is reported, in this order. `truncated` and `posterior_form` are no bounds.
BOUNDS = (
  "truncated",
  "posterior_form",
  "semi_analytic",
  "analytic",
  "mcallester",
  "neyshabur",
  "covering",
)


def bounds(
  measured: Mapping[str, np.ndarray],
  num_samples: int,
  variance: float,
  analytic: Sequence[float] | None = None,
) -> dict[str, float]:
  """Returns PAC-Bayes bounds of measured weights, and the n that each one needs.

  A bound needs losses that are C-sub-Gaussian at the weights that the prior draws. With
  small sigma those compute about 0, and C is that of f^2. The C of an exact interpolator
  is 0, which bounds nothing. So `semi_analytic` takes the prior's; `posterior_form`, with
  the posterior's C, and `truncated`, with that at the weights and the published form of
  lambda, are no bounds. All C are estimates, and three standard errors of the measured
  loss are added without being paid for in delta: `semi_analytic` estimates a bound.
  `mcallester` and `neyshabur` are for losses up to 1, which these are not.

  Args:
    measured: `squared_norm`, `loss`, `trace`; `perturbed` losses on the training sample
      [sigmas draws]; losses on held-out inputs, `held` [m], `posterior_held` [sigmas
      draws m] and `prior_held` [sigmas prior_draws m].
    num_samples: n.
    variance: of f, what the best constant has.
    analytic: an upper bound of E_Q L_n at each sigma; None for no analytic bound.

  Returns:
    The bounds; "X_needs", the least n at which bound X is below the variance (NaN for
    none up to 10^18); and C at the weights (`constant`) and, at the sigma of the
    semi-analytic bound, of the posterior's and the prior's draws.
  """
  norm, loss, trace = (float(measured[k]) for k in ("squared_norm", "loss", "trace"))
  draws = measured["perturbed"].shape[1]
  errors = measured["perturbed"].std(axis=1, ddof=1) / draws**0.5
  expected = measured["perturbed"].mean(axis=1) + _MARGIN * errors
  constant = _constant(measured["held"])
  posterior, prior = (
    [_constant(own) for own in measured[name]]
    for name in ("posterior_held", "prior_held")
  )

  def of_sigmas(form: Callable[..., float], losses: Sequence[float], Cs: Sequence[float],
                n: int) -> list[float]:  # fmt: skip
    return [
      float(form(own, norm, sigma, Setting(n, C, _EACH))) if C > 0 else np.inf
      for own, sigma, C in zip(losses, SIGMAS, Cs, strict=True)
    ]

  def best(form: Callable[..., float], losses: Sequence[float], Cs: Sequence[float],
           n: int) -> float:  # fmt: skip
    return min(of_sigmas(form, losses, Cs, n))

  def truncated(n: int) -> float:
    if not (trace > 0 and constant > 0):
      return np.nan
    plain = Setting(n, constant, DELTA)
    sigma = pac_bayes.closed_sigma(trace, norm, plain)
    own = pac_bayes.gaussian_loss(loss, trace, sigma)
    return pac_bayes.optimised_bound(own, norm, sigma, plain)

  sub_gaussian = pac_bayes.sub_gaussian_bound
  forms: dict[str, Callable[[int], float]] = {
    "truncated": truncated,
    "posterior_form": partial(best, sub_gaussian, expected, posterior),
    "semi_analytic": partial(best, sub_gaussian, expected, prior),
    # It has no value at n = 1.
    "mcallester": lambda n: best(pac_bayes.mcallester, expected, prior, max(n, 2)),
    "neyshabur": partial(best, pac_bayes.neyshabur, expected, prior),
  }
  if analytic is not None:
    forms["analytic"] = partial(best, sub_gaussian, analytic, prior)
  at = int(np.argmin(of_sigmas(sub_gaussian, expected, prior, num_samples)))
  found = {
    "constant": constant,
    "posterior_constant": posterior[at],
    "prior_constant": prior[at],
  }
  return {**found, **_with_needs(forms, num_samples, variance)}


def _constant(losses: np.ndarray) -> float:
  """An estimate of C from losses [m], or [draws m] of several weights that were drawn.

  The bound is about the losses of each weights around their own mean, so draws are
  centred one by one. NaN where all losses are the same, which tells nothing.
  """
  centred = losses - losses.mean(axis=-1, keepdims=True)
  same = bool(np.all(losses == losses[..., :1]))
  return np.nan if same else pac_bayes.sub_gaussian_constant(centred.ravel())


def covering_bound(
  construction: FlatConstruction, num_samples: int, variance: float
) -> dict[str, float]:
  """The covering-number bound of Theorem A.17 of the second paper, for the same weights.

  Its layers are attention, an activation and a linear map: here W_V1 F with the bias as
  the weights of one more coordinate, the ReLU, and G; then W_V2 and the identity. Tokens
  are scaled to norm at most 1, and the kernels that read them accordingly. The theorem
  has no residual branch; the positions that one carries here are fixed. Constants that
  the paper hides are 1, so this is the form of a bound.

  Args:
    construction: of f, with one head.
    num_samples: n.
    variance: of f.

  Returns:
    `covering`, and `covering_needs` as in `bounds`.
  """
  own = construction.params
  D, M = own["F"].shape
  # The tokens with a constant coordinate for the bias.
  scale = float(np.sqrt(np.max(np.sum(construction.positions**2, axis=1)) + 2))
  values = capacity.norms(scale * np.vstack([own["W_V1"] @ own["F"], own["b"]]))
  scores, out = capacity.norms(scale**2 * own["W_QK1"]), capacity.norms(own["G"] / scale)
  layers = [
    LayerNorms(values.two_inf, scores.two_inf, out.two_inf,
               values.spectral, scores.spectral, out.spectral)
  ]  # fmt: skip
  (W_V2,), (W_QK2,) = own["W_V2"], own["W_QK2"]
  values, scores = capacity.norms(scale * W_V2), capacity.norms(scale**2 * W_QK2)
  layers.append(
    LayerNorms(values.two_inf, scores.two_inf, 1.0,
               values.spectral, scores.spectral, 1.0)
  )  # fmt: skip
  reach = float(np.linalg.norm(W_V2, 2))

  def form(n: int) -> float:
    size = capacity.deep_capacity(
      layers,
      d=D,
      k=max(M, D),
      B_w=float(np.linalg.norm(own["w"])),
      num_samples=n,
      length=len(construction.positions),
    )
    # |f| <= reach, and the loss (f - y)^2 grows by at most 4 reach where f does by 1.
    return capacity.generalisation_bound(
      size, n, A=reach, b=4 * reach**2, L=4 * reach, delta=DELTA
    )

  return _with_needs({"covering": form}, num_samples, variance)


def _with_needs(
  forms: Mapping[str, Callable[[int], float]], num_samples: int, variance: float
) -> dict[str, float]:
  found = {}
  for name, form in forms.items():
    value = form(num_samples)
    needed = pac_bayes.samples_needed(form, variance) if np.isfinite(value) else None
    found[name] = value
    found[f"{name}_needs"] = np.nan if needed is None else float(needed)
  return found
