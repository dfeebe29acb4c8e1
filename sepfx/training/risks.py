"""The three risks of section 2, on predictions or on a predictor."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from sepfx.tasks.objectives import prompt_errors


def averaged_risk(
  predictions: Float[Array, "n N"], labels: Float[Array, "n N"]
) -> Float[Array, ""]:
  """Averaged empirical risk R_{n,N}, Equation (2.2)."""
  return jnp.mean(prompt_errors(predictions, labels))


def pointwise_risk(
  key: PRNGKeyArray, predictions: Float[Array, "n N"], labels: Float[Array, "n N"]
) -> Float[Array, ""]:
  """Point-wise empirical risk R_n, Equation (2.3): one position j ~ Unif([N]) a prompt.

  Consumes `key`, which draws the positions.
  """
  n, length = labels.shape
  positions = jax.random.randint(key, (n, 1), 0, length)
  errors = jnp.take_along_axis((predictions - labels) ** 2, positions, axis=1)
  return jnp.mean(errors)


def population_risk(
  key: PRNGKeyArray,
  predict: Callable[[jax.Array], jax.Array],
  task,
  planted,
  num_prompts: int,
) -> Float[Array, ""]:
  """Population risk R, Equation (2.1), estimated on `num_prompts` fresh prompts.

  Args:
    key: consumed; draws the prompts.
    predict: maps inputs [n N D] to predictions [n N].
    task: the data-generating model.
    planted: its planted parameters.
    num_prompts: sample size of the estimate.
  """
  sample = task.sample(key, planted, num_prompts)
  return averaged_risk(predict(task.encode(planted, sample)), sample.labels)
