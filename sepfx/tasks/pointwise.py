"""qSTR of which one label per prompt is seen: the point-wise risk (2.3)."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from sepfx.tasks.objectives import REGRESSION, Objective
from sepfx.tasks.qstr import QSTR, Planted, Prompts


def observed_errors(
  predictions: Float[Array, "n N"], labels: Float[Array, "n N"]
) -> Float[Array, " n"]:
  """Squared error of each prompt, averaged over the positions whose label is known.

  Args:
    predictions: at all positions.
    labels: infinite where they are not known; one of each prompt is.
  """
  known = jnp.isfinite(labels)
  # Labels are filled in first: the gradient of what is not taken would be NaN.
  errors = jnp.where(known, predictions - jnp.where(known, labels, 0.0), 0.0) ** 2
  return jnp.sum(errors, axis=1) / jnp.sum(known, axis=1)


@dataclasses.dataclass(frozen=True)
class PointwiseQSTR(QSTR):
  """qSTR to train on: of each prompt the label of one position, uniform, is known.

  The mean of its errors on n prompts is the point-wise empirical risk, Equation (2.3) of
  the main paper, with positions drawn once for a sample. (`sepfx.training.pointwise_risk`
  draws them for predictions and labels that are given.) See `QSTR` for attributes.
  """

  objective: ClassVar[Objective] = REGRESSION._replace(
    loss=observed_errors, error=observed_errors
  )

  @property
  def name(self) -> str:
    """That of the task with all labels, and what is seen of them."""
    return f"{super().name}_pointwise"

  def sample(self, key: PRNGKeyArray, planted: Planted, num_prompts: int) -> Prompts:
    """Draws prompts with one finite label each, the others infinite. Consumes `key`."""
    key_prompts, key_positions = jax.random.split(key)
    prompts = super().sample(key_prompts, planted, num_prompts)
    positions = jax.random.randint(key_positions, (num_prompts, 1), 0, self.length)
    known = jnp.arange(self.length) == positions
    return prompts._replace(labels=jnp.where(known, prompts.labels, jnp.inf))
