"""What keeping predictions within a range does to a risk."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from sepfx.errors import require
from sepfx.models import evaluate
from sepfx.training.trials import Probe


def clipped(at: float = 4.0) -> Probe:
  """Returns a probe: risks with predictions as they are, and kept within [-at, at].

  The first remark after Theorem 4 of the main paper: with predictions clipped at a large
  constant the bound loses its factor C_1. What it does to a trained network is measured.

  Args:
    at: the constant, > 0.

  Raises:
    InvalidSetting: for a constant that is not positive, and where outputs are classes.
  """
  require(at > 0, "probes", f"clipped:at={at}", "a positive number")

  def measure(trial: Any, params: Any, world: Any, key: Any) -> dict[str, Array]:
    """Returns `unclipped_risk`, `clipped_risk` and `clipped_share` of predictions."""
    del key
    name = f"clipped of {trial.coordinates['model']}"
    regression = trial.objective.name.startswith("regression")
    require(regression, "probes", name, "a task whose labels are numbers")
    sample = world.test
    inputs = trial.test_task.encode(world.planted, sample)
    outputs = evaluate(trial.model, params, inputs)
    kept = jnp.clip(outputs, -at, at)
    error = trial.objective.error
    return {
      "unclipped_risk": jnp.mean(error(outputs, sample.labels)),
      "clipped_risk": jnp.mean(error(kept, sample.labels)),
      "clipped_share": jnp.mean(jnp.abs(outputs) > at),
    }

  return measure
