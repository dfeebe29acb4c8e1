"""How near to stationary a trial has ended."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array


def gradient(trial: Any, params: Any, world: Any, key: Any) -> dict[str, Array]:
  """Euclidean norm of the gradient of what is minimised, without dropout.

  On the training sample; on a fresh batch where every batch is fresh.

  Returns:
    `gradient_norm`, and `training_loss` of the same sample.
  """
  sample = world.sample
  if sample is None:
    sample = trial.task.sample(key, world.planted, trial.samples_a_step)
  loss, grads = jax.value_and_grad(trial.exact.loss)(params, sample, world)
  return {"gradient_norm": jnp.linalg.norm(ravel_pytree(grads)[0]), "training_loss": loss}
