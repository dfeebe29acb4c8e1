"""How the errors of a chain's steps make up the error of its answer."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from sepfx.errors import require
from sepfx.tasks.fourier import of_unseen
from sepfx.tasks.parity_chain import UnseenChains


def chain(trial: Any, params: Any, world: Any, key: Any) -> dict[str, Array]:
  """Errors of single steps and of the answer, on inputs outside the training sample.

  Returns:
    `step_error`, p: the share of wrong tokens where those before them are the true ones;
    `chain_error`: the share of wrong answers at the end of the model's own chains; and
    `union_bound`, L p for chains of L steps. The second cannot exceed it: a chain whose
    answer is wrong has a first wrong step, and the tokens before it are the true ones
    (Theorem 16).

  Raises:
    InvalidSetting: on a trial that is not tested on `UnseenChains`.
  """
  del key
  task = trial.test_task
  takes = "a trial that is tested on unseen chains"
  require(isinstance(task, UnseenChains), "probes", f"chain of {task.name}", takes)
  wrong, _ = trial.errors_and_losses(params, trial.task, world.test, world)
  if world.sample is not None:
    wrong = of_unseen(wrong, world.test.bits, world.sample.bits)
  answers, _ = trial.errors_and_losses(params, task, world.test, world)
  step_error = jnp.mean(wrong)
  return {
    "step_error": step_error,
    "chain_error": jnp.mean(answers),
    "union_bound": task.num_steps * step_error,
  }
