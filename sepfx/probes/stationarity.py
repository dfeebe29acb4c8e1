"""How near a trained first layer is to what Theorem 6 of the main paper is about."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from sepfx.errors import require
from sepfx.models import TokensFirst
from sepfx.probes.spans import on_span


def stationarity(trial: Any, params: Any, world: Any, key: Any) -> dict[str, Array]:
  """How far a trial is from a stationary point (Definition 5), and what that costs.

  At a stationary point of a loss with the penalty (lambda / 2) ||W||^2 the rows of W lie
  in the span of the training sample's tokens, x in R^(N d). V projects on it.

  Returns:
    `test_risk`: on the trial's test prompts. For `TokensFirst` also `gradient_ratio`,
    which is ||grad_W|| / ||lambda W||, of the whole loss; `outside_share`, that of
    ||W||^2 outside the span, at most the square of the ratio; and `projected_risk`, with
    W V in place of W, and its standard error `projected_error`: that network is subject
    to the theorem's floor however it was trained.

  Raises:
    InvalidSetting: where every batch is fresh, or there is no penalty.
  """
  del key
  name = f"stationarity of {trial.coordinates['model']}"
  require(world.sample is not None, "probes", name, "a protocol with a fixed sample")
  errors, _ = trial.errors_and_losses(params, trial.test_task, world.test, world)
  found = {"test_risk": jnp.mean(errors)}
  if not isinstance(trial.model, TokensFirst):
    return found
  l2 = trial.protocol.l2
  require(l2 is not None, "probes", name, "a protocol with l2")
  tokens = world.sample.tokens
  kernel = params["first"]["kernel"]  # W', [N*d m_1]
  inside = on_span(tokens.reshape(len(tokens), -1), kernel)
  gradient = jax.grad(trial.exact.loss)(params, world.sample, world)["first"]["kernel"]
  there = {**params, "first": {**params["first"], "kernel": inside}}
  errors, _ = trial.errors_and_losses(there, trial.test_task, world.test, world)
  size = jnp.linalg.norm(kernel)
  return {
    **found,
    "gradient_ratio": jnp.linalg.norm(gradient) / (2 * l2 * size),
    "outside_share": jnp.sum((kernel - inside) ** 2) / size**2,
    "projected_risk": jnp.mean(errors),
    "projected_error": jnp.std(errors) / jnp.sqrt(len(errors)),
  }
