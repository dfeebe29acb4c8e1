"""How far a trained model's loss on its sample is from its loss elsewhere."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from sepfx.errors import require


def generalisation(trial: Any, params: Any, world: Any, key: Any) -> dict[str, Array]:
  """Errors of a trial on its fixed sample and elsewhere, without dropout.

  Returns:
    `train_loss` and `test_loss`, the mean errors on the training and the test samples
    (for regression what is minimised, but for a penalty); `gap`, the second less the
    first; and `population_risk`, the mean loss on the test samples as they were drawn,
    also where the test task has a score of its own.

  Raises:
    InvalidSetting: where every batch is fresh.
  """
  del key
  takes = "a protocol with a fixed sample: with fresh batches there is no gap"
  require(world.sample is not None, "probes", "generalisation", takes)
  seen, _ = trial.errors_and_losses(params, trial.task, world.sample, world)
  errors, losses = trial.errors_and_losses(params, trial.test_task, world.test, world)
  train, test = jnp.mean(seen), jnp.mean(errors)
  return {
    "train_loss": train,
    "test_loss": test,
    "gap": test - train,
    "population_risk": jnp.mean(losses),
  }
