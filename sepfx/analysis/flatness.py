"""Trained weights beside the flat construction of the same function: norms and bounds."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from sepfx.analysis.gaps import clustered, rank_correlation
from sepfx.constructions import flat_transformer
from sepfx.ensembles import Cell
from sepfx.models import predict
from sepfx.theory import pac_bayes, sharpness
from sepfx.theory.pac_bayes import Setting

# The published mesh.
SIGMAS = np.linspace(1e-5, 1e-2, 20)
DELTA = 0.05
BOUNDS = ("truncated", "posterior_form", "semi_analytic", "mcallester", "neyshabur")
_FLATNESS = ("squared_norm", "trace")
# Standard errors by which a measured E_Q L_n is raised in a bound.
_MARGIN = 3.0
_HELD_OUT = 500
_PRODUCTS, _PERTURBATIONS, _PRIOR_DRAWS = 32, 8, 4


def compare(cell: Cell, seed: int, trial: int, params: Any) -> dict[str, float]:
  """Measures a trained trial, and the construction for the function that it learned.

  Args:
    cell: of trials on a `FourierSparse` task.
    seed: of the run.
    trial: the trial's index.
    params: its weights.

  Returns:
    For "learned" and "constructed" weights, each name beginning with it: `squared_norm`;
    `loss` on the training sample and the Hessian's `trace` there, with `trace_error`;
    `perturbed_K`, the loss under perturbations of `SIGMAS[K]`, with its error;
    the sub-Gaussian C of the losses at the weights (`constant`), and of weights drawn
    from the posterior and from the prior at the sigma of the bound
    (`posterior_constant`, `prior_constant`); what `bounds` has; and `samples_needed` for
    `semi_analytic` to be below the variance of f, NaN for none.
  """
  own = cell.trial
  seeds = jax.tree.map(lambda keys: keys[trial], cell.seeds(seed, trial + 1))
  world = own.world(seeds)
  task, planted = own.task, world.planted
  sample = world.sample
  held_key, first_key, second_key = jax.random.split(seeds.trial, 3)
  held = task.sample(held_key, planted, _HELD_OUT)
  k = int(task.num_components)
  built = flat_transformer(
    np.asarray(planted.sets)[:k],
    np.asarray(planted.coefficients)[:k],
    convention=task.convention,
  )
  variance = task.best_constant_error()
  found: dict[str, float] = {}
  cases = (
    ("learned", first_key, own.model, params, lambda bits: bits),
    ("constructed", second_key, built.model, built.params, built.tokens),
  )
  for name, key, model, weights, encode in cases:
    weights = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), weights)
    parts = (encode(sample.bits), sample.labels), (encode(held.bits), held.labels)
    measured = jax.device_get(_measured(model)(key, weights, *parts))
    values = bounds(measured, len(sample.labels), variance)
    found.update({f"{name}_{own}": value for own, value in values.items()})
  return found


@functools.lru_cache(maxsize=16)
def _measured(model: nn.Module) -> Callable[..., dict[str, Array]]:
  """What is measured of a model's weights, as one program."""

  def measure(key: PRNGKeyArray, params: Any, training: Any, held: Any):
    trace_key, noise_key = jax.random.split(key)

    def losses(own: Any, part: Any) -> Float[Array, " n"]:
      inputs, labels = part
      return (predict(model, own, inputs) - labels) ** 2

    def loss(own: Any) -> Float[Array, ""]:
      return jnp.mean(losses(own, training))

    flat, unravel = ravel_pytree(params)

    def at_sigma(sigma: Array) -> tuple[Array, Array, Array]:
      def posterior(own_key: PRNGKeyArray) -> tuple[Array, Array]:
        own = unravel(flat + sigma * jax.random.normal(own_key, flat.shape))
        return loss(own), losses(own, held)

      def prior(own_key: PRNGKeyArray) -> Array:
        return losses(unravel(sigma * jax.random.normal(own_key, flat.shape)), held)

      # The same directions at every sigma: their losses are compared.
      directions = jax.random.split(noise_key, _PERTURBATIONS)
      of_prior = jax.lax.map(prior, directions[:_PRIOR_DRAWS])
      return *jax.lax.map(posterior, directions), of_prior

    perturbed, of_posterior, of_prior = jax.lax.map(
      at_sigma, jnp.asarray(SIGMAS, jnp.float32)
    )
    trace = sharpness.hessian_trace(trace_key, loss, params, _PRODUCTS)
    return {
      "squared_norm": jnp.sum(flat**2),
      "loss": loss(params),
      "trace": trace.mean,
      "trace_error": trace.error,
      "perturbed": perturbed,
      "held": losses(params, held),
      "posterior_held": of_posterior,
      "prior_held": of_prior,
    }

  return jax.jit(measure)


def bounds(
  measured: dict[str, np.ndarray], num_samples: int, variance: float
) -> dict[str, float]:
  """Returns the bounds of measured weights and what they are made of; see `compare`.

  A bound needs losses that are C-sub-Gaussian at the weights that the prior draws. With
  small sigma those compute about 0, and C is that of f^2. The C of an exact interpolator
  is 0, which bounds nothing. So `semi_analytic` takes the prior's; `posterior_form`, with
  the posterior's C, and `truncated`, with that at the weights and the published form of
  lambda, are no bounds. All C are estimates. `mcallester` and `neyshabur` are for losses
  up to 1, which these are not.

  Args:
    measured: `squared_norm`, `loss`, `trace`, `trace_error`; `perturbed` losses on the
      training sample [sigmas draws]; losses on held-out inputs, `held` [m],
      `posterior_held` [sigmas draws m] and `prior_held` [sigmas prior_draws m].
    num_samples: n.
    variance: of f, what the best constant has.
  """
  norm, loss, trace = (float(measured[k]) for k in ("squared_norm", "loss", "trace"))
  draws = measured["perturbed"].shape[1]
  means = measured["perturbed"].mean(axis=1)
  errors = measured["perturbed"].std(axis=1, ddof=1) / draws**0.5
  expected = means + _MARGIN * errors
  constant = pac_bayes.sub_gaussian_constant(measured["held"])
  of_posterior, of_prior = (
    [pac_bayes.sub_gaussian_constant(own.ravel()) for own in measured[name]]
    for name in ("posterior_held", "prior_held")
  )
  each = DELTA / len(SIGMAS)  # the best sigma is chosen afterwards

  def of_sigma(
    form: Callable[..., float], constants: Sequence[float], n: int = num_samples
  ) -> list[float]:
    return [
      float(form(own, norm, sigma, Setting(n, C, each)))
      for own, sigma, C in zip(expected, SIGMAS, constants, strict=True)
    ]

  semi = of_sigma(pac_bayes.sub_gaussian_bound, of_prior)
  best = int(np.argmin(semi))
  plain = Setting(num_samples, constant, DELTA)
  truncated = np.nan
  if trace > 0:
    sigma = pac_bayes.closed_sigma(trace, norm, plain)
    truncated = pac_bayes.optimised_bound(
      pac_bayes.gaussian_loss(loss, trace, sigma), norm, sigma, plain
    )
  needed = pac_bayes.samples_needed(
    lambda n: min(of_sigma(pac_bayes.sub_gaussian_bound, of_prior, n)), variance
  )
  return {
    "squared_norm": norm,
    "loss": loss,
    "trace": trace,
    "trace_error": float(measured["trace_error"]),
    **{f"perturbed_{k}": float(own) for k, own in enumerate(means)},
    **{f"perturbed_error_{k}": float(own) for k, own in enumerate(errors)},
    "constant": constant,
    "posterior_constant": of_posterior[best],
    "prior_constant": of_prior[best],
    "truncated": truncated,
    "posterior_form": min(of_sigma(pac_bayes.sub_gaussian_bound, of_posterior)),
    "semi_analytic": semi[best],
    "mcallester": min(of_sigma(pac_bayes.mcallester, of_prior)),
    "neyshabur": min(of_sigma(pac_bayes.neyshabur, of_prior)),
    "samples_needed": np.nan if needed is None else float(needed),
  }


def summarise_flatness(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
  """Summarises what `compare` found.

  Args:
    rows: of each trial: degree, num_components, trial, outcome, gap, and what `compare`
      returns.

  Returns:
    JSON values. `cells` by degree and number of components: `trials`, `dominating` (those
    that are below the construction in norm and trace at once), and the geometric means
    of norms and traces. `correlations`: Spearman's of the gap with each bound of learned
    and constructed weights, over trials that reached and over all, with intervals that
    resample trial indices.
  """
  cells = []
  for place in dict.fromkeys((row["degree"], row["num_components"]) for row in rows):
    own = [row for row in rows if (row["degree"], row["num_components"]) == place]
    below = [
      all(row[f"learned_{k}"] <= row[f"constructed_{k}"] for k in _FLATNESS)
      for row in own
    ]
    cells.append(
      {
        "degree": place[0],
        "num_components": place[1],
        "trials": len(own),
        "dominating": sum(below),
        **{
          f"{kind}_{k}": _geometric_mean([row[f"{kind}_{k}"] for row in own])
          for kind in ("learned", "constructed")
          for k in _FLATNESS
        },
      }
    )
  correlations: dict[str, Any] = {}
  for name in (f"{kind}_{k}" for kind in ("learned", "constructed") for k in BOUNDS):
    correlations[name] = {}
    for which in ("reached", "all"):
      used = [
        row
        for row in rows
        if which in ("all", row["outcome"]) and np.isfinite([row[name], row["gap"]]).all()
      ]
      trial, value, gap = (
        np.array([row[k] for row in used]) for k in ("trial", name, "gap")
      )
      correlations[name][which] = clustered(rank_correlation, trial, value, gap)
  return {"cells": cells, "correlations": correlations}


def _geometric_mean(values: Sequence[float]) -> float | None:
  positive = all(value > 0 for value in values)
  return float(np.exp(np.mean(np.log(values)))) if positive else None
