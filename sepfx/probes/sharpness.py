"""How flat the minimum is in which a trial has ended."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from sepfx.errors import require
from sepfx.probes.hessian import hessian_trace
from sepfx.training.trials import Probe


def sharpness(num_samples: int = 32) -> Probe:
  """Returns a probe: the trace of the Hessian of the loss on the training sample.

  Of the mean loss without dropout and penalties; on a fresh batch where every batch is
  fresh. It gives `hessian_trace`, with its standard error `hessian_trace_error`, and
  `squared_norm`, of all parameters.

  Args:
    num_samples: Hessian-vector products, at least 2.

  Raises:
    InvalidSetting: for fewer.
  """
  takes = "an integer >= 2"
  require(num_samples >= 2, "probes", f"sharpness:num_samples={num_samples}", takes)

  def measure(trial: Any, params: Any, world: Any, key: Any) -> dict[str, Array]:
    sample_key, trace_key = jax.random.split(key)
    sample = world.sample
    if sample is None:
      sample = trial.task.sample(sample_key, world.planted, trial.samples_a_step)

    def loss(own: Any) -> Array:
      return jnp.mean(trial.exact.errors_and_losses(own, trial.task, sample, world)[1])

    mean, error = hessian_trace(trace_key, loss, params, num_samples)
    flat, _ = ravel_pytree(params)
    return {
      "hessian_trace": mean,
      "hessian_trace_error": error,
      "squared_norm": jnp.sum(flat**2),
    }

  return measure
