"""Trained weights beside the flat construction of the same function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from sepfx import precision
from sepfx.ensembles import Cell
from sepfx.errors import require
from sepfx.probes import hessian as sharpness
from sepfx.tasks import FourierSparse
from sepfx.tasks.fourier import Spectrum

from .bounds import SIGMAS, bounds, covering_bound
from .construction import FlatConstruction, flat_transformer
from .perturbation import perturbed_loss_bound

# Tells the keys of what is measured from those that the trial has used.
_KEYS = 0x666C6174
_HELD_OUT = 500
_PRODUCTS, _NODES = 32, 30
_PERTURBATIONS, _PRIOR_DRAWS = 8, 4
# Training inputs, themselves drawn at random, that second derivatives are taken on.
_MOST = 1024


def construction_of(task: FourierSparse, planted: Spectrum) -> FlatConstruction:
  """Returns the flat construction of a planted function.

  Raises:
    InvalidSetting: for a function that is given by its values.
  """
  takes = "random or tiling: the construction is of planted components"
  require(task.function in ("random", "tiling"), "function", task.function, takes)
  c = np.asarray(planted.coefficients)
  used = c != 0
  sets = np.asarray(planted.sets)[used]
  return flat_transformer(sets, c[used], convention=task.convention)


@precision.exact()
def compare(
  cell: Cell, seed: int, trial: int, params: Any
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
  """Measures a trained trial, and the construction for the function that it learned.

  Args:
    cell: of trials on a `FourierSparse` task.
    seed: of the run.
    trial: the trial's index.
    params: its weights.

  Returns:
    First `num_components`, k; and for "learned" and "constructed" weights, each name
    beginning with it: `squared_norm`; `loss` on the training sample and the Hessian's
    `trace` there, with `trace_error`; its largest `eigenvalue`; at the K-th of `SIGMAS`
    `perturbed_K`, the loss under perturbations, `flips_K`, the share of neurons that are
    active with and not without them or the other way, and `trace_change_K`,
    E Tr H(theta + sigma xi) - Tr H, each with its standard error (`perturbed_error_K`);
    and what `flatness_bounds.bounds` has. For a construction of one head
    `covering_bound`, too.
    Second, the Hessian's spectral densities, "learned_nodes" and "learned_weights", ...
  """
  own = cell.trial
  seeds = jax.tree.map(lambda keys: keys[trial], cell.seeds(seed, trial + 1))
  world = own.world(seeds)
  task, planted, sample = own.task, world.planted, world.sample
  own_key = jax.random.fold_in(seeds.trial, _KEYS)
  held_key, first_key, second_key = jax.random.split(own_key, 3)
  held = task.sample(held_key, planted, _HELD_OUT)
  built = construction_of(task, planted)
  variance = task.best_constant_error()
  n = len(sample.labels)
  found: dict[str, float] = {"num_components": int(np.sum(planted.coefficients != 0))}
  spectra: dict[str, np.ndarray] = {}
  cases = (
    ("learned", first_key, own.model, params, lambda bits: bits),
    ("constructed", second_key, built.model, built.params, built.tokens),
  )
  for name, key, model, weights, encode in cases:
    weights = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), weights)
    parts = (encode(sample.bits), sample.labels), (encode(held.bits), held.labels)
    measured = jax.device_get(_measured(model)(key, weights, *parts))
    analytic = None
    if name == "constructed":
      tokens, loss = np.asarray(parts[0][0]), float(measured["loss"])
      analytic = [
        perturbed_loss_bound(built.params, tokens, sigma, loss) for sigma in SIGMAS
      ]
    values = {**_reported(measured), **bounds(measured, n, variance, analytic)}
    if name == "constructed" and built.model.num_heads == 1:
      values.update(covering_bound(built, n, variance))
    found.update({f"{name}_{own}": value for own, value in values.items()})
    spectra.update({f"{name}_{own}": measured[own] for own in ("nodes", "weights")})
  return found, spectra


def _reported(measured: dict[str, np.ndarray]) -> dict[str, float]:
  names = ("squared_norm", "loss", "trace", "trace_error")
  found = {name: float(measured[name]) for name in names}
  found["eigenvalue"] = float(measured["nodes"].max())
  for name in ("perturbed", "flips", "trace_change"):
    values = measured[name]
    errors = values.std(axis=1, ddof=1) / values.shape[1] ** 0.5
    for k, (mean, error) in enumerate(zip(values.mean(axis=1), errors, strict=True)):
      found[f"{name}_{k}"], found[f"{name}_error_{k}"] = float(mean), float(error)
  return found


@functools.lru_cache(maxsize=16)
def _measured(model: nn.Module) -> Callable[..., dict[str, Array]]:
  """What is measured of a model's weights, as one program."""

  def forward(own: Any, inputs: Any) -> tuple[Array, Array]:
    """Outputs, and which neurons are active."""
    variables = {"params": own}
    outputs, state = model.apply(variables, inputs, mutable=["intermediates"])
    sown = jax.tree_util.tree_leaves_with_path(state)
    hidden = [a for path, a in sown if any(key.key == "hidden" for key in path[:-1])]
    return outputs, jnp.concatenate([a.reshape(len(a), -1) > 0 for a in hidden], axis=1)

  def losses(own: Any, part: Any) -> Float[Array, " n"]:
    inputs, labels = part
    return (forward(own, inputs)[0] - labels) ** 2

  def measure(key: PRNGKeyArray, params: Any, training: Any, held: Any):
    trace_key, noise_key, spectrum_key = jax.random.split(key, 3)
    few = jax.tree.map(lambda a: a[:_MOST], training)

    def loss(own: Any, part: Any = training) -> Float[Array, ""]:
      return jnp.mean(losses(own, part))

    def curvature(own: Any) -> Float[Array, ""]:
      return loss(own, few)

    flat, unravel = ravel_pytree(params)
    _, active = forward(params, held[0])
    trace = sharpness.hessian_trace(trace_key, curvature, params, _PRODUCTS)
    spectrum = sharpness.spectral_density(spectrum_key, curvature, params, _NODES, 1)

    def form(own: Any, signs: Array) -> Float[Array, ""]:
      return signs @ sharpness.hessian_product(curvature, own)(signs)

    def draws(own_key: PRNGKeyArray) -> tuple[Array, Array, Array]:
      """A direction xi and signs, with what they give without a perturbation."""
      xi_key, sign_key = jax.random.split(own_key)
      signs = jax.random.rademacher(sign_key, flat.shape, flat.dtype)
      return jax.random.normal(xi_key, flat.shape), signs, form(params, signs)

    # The same directions at every sigma: what they give is compared.
    directions, signs, before = jax.lax.map(
      draws, jax.random.split(noise_key, _PERTURBATIONS)
    )

    def at_sigma(sigma: Array) -> dict[str, Array]:
      def posterior(drawn: tuple[Array, Array, Array]) -> tuple[Array, ...]:
        direction, own_signs, own_before = drawn
        own = unravel(flat + sigma * direction)
        outputs, now = forward(own, held[0])
        errors = (outputs - held[1]) ** 2
        flips, change = jnp.mean(now != active), form(own, own_signs) - own_before
        return loss(own), errors, flips, change

      def prior(direction: Array) -> Array:
        return losses(unravel(sigma * direction), held)

      drawn = (directions, signs, before)
      perturbed, of_posterior, flips, change = jax.lax.map(posterior, drawn)
      return {
        "perturbed": perturbed,
        "posterior_held": of_posterior,
        "flips": flips,
        "trace_change": change,
        "prior_held": jax.lax.map(prior, directions[:_PRIOR_DRAWS]),
      }

    return {
      "squared_norm": jnp.sum(flat**2),
      "loss": loss(params),
      "trace": trace.mean,
      "trace_error": trace.error,
      "nodes": spectrum[0][0],
      "weights": spectrum[1][0],
      "held": losses(params, held),
      **jax.lax.map(at_sigma, jnp.asarray(SIGMAS, jnp.float32)),
    }

  return jax.jit(measure)
