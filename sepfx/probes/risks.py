"""The risk of a trained model on prompts of another kind than it was tested on."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax.errors import FlaxError

from sepfx import kinds, specifications
from sepfx.errors import InvalidSetting, require, said
from sepfx.training.trials import Probe


def risk(
  length: int | None = None,
  indices: str | None = None,
  noise: float | None = None,
  num_samples: int = 2000,
  **others: Any,
) -> Probe:
  """Returns a probe: the mean error on fresh samples of another task.

  The planted parameters are the trial's. Where the length differs, what there is one of
  for each position (a code) is the trial's for the positions that it has, and drawn for
  those that are new; what has another shape altogether is drawn anew. Models of one
  width take other lengths only where the input's dimension does not follow the length:
  a task's `max_length`, or its `code_dim`, sees to that.

  Args:
    length: N of the other prompts; None for the trial's.
    indices: "package.module:function" with another distribution of indices, or
      "shared" or "independent"; None for the test task's.
    noise: of labels; None for the test task's.
    num_samples: fresh samples, an integer >= 1.
    others: of a task of tokens any other field that leaves its vocabulary as it is, such
      as `num_pairs`: as a value, or a text that the field's type reads.

  Raises:
    InvalidSetting: if the probe is used on a task that has no such field or does not take
      its value, or a model that does not take such samples.
  """
  require(
    num_samples >= 1, "probes", f"risk:num_samples={num_samples}", "an integer >= 1"
  )
  changes: dict[str, Any] = {**others}
  if length is not None:
    changes["length"] = length
  if noise is not None:
    changes["noise"] = noise
  if indices is not None:
    name = indices if ":" in indices else f"sepfx.tasks.indices:{indices}"
    changes["indices"] = specifications.imported(
      name, "probes", "risk:indices=shared, independent or package.module:function"
    )
  suffix = "".join(
    f"_{name}_{getattr(value, '__name__', value)}" for name, value in changes.items()
  )

  def measure(trial, params, world, key):
    task = trial.test_task
    known, of_tokens = kinds.fields_of(type(task)), hasattr(task, "vocabulary")
    for name in changes:
      takes = f"num_samples or a field of the task {task.name}: {', '.join(known)}"
      require(name in known, "probes", f"risk:{name}", takes)
      # Elsewhere a field may say what is planted, and that is the trial's.
      takes = f"length, indices, noise and num_samples on {task.name}, which is no task "
      require(
        of_tokens or name not in others, "probes", f"risk:{name}", takes + "of tokens"
      )
    own = {k: kinds.taken(v, known[k], k) for k, v in changes.items()}
    other = dataclasses.replace(task, **own)
    name = f"risk{suffix} of {trial.coordinates['model']}"
    dim, vocabulary = (getattr(task, n, None) for n in ("input_dim", "vocabulary"))
    takes = f"a task whose tokens have {dim} numbers at that length, too: set max_length"
    require(getattr(other, "input_dim", None) == dim, "probes", name, takes)
    takes = f"a task with the vocabulary of {vocabulary} that the model has"
    same = getattr(other, "vocabulary", None) == vocabulary
    require(same, "probes", name, takes)
    drawn_key, sample_key = jax.random.split(key)
    planted = world.planted
    if other.length != task.length:
      planted = _at_length(other.init(drawn_key), planted)
    sample = other.sample(sample_key, planted, num_samples)
    try:
      errors, _ = trial.errors_and_losses(
        params, other, sample, world._replace(planted=planted)
      )
    except (TypeError, ValueError, FlaxError) as error:
      takes = "a model that takes such samples, whose parameters do not depend on the "
      takes += f"length ({said(error)})"
      raise InvalidSetting("probes", name, takes) from error
    return {f"risk{suffix}": jnp.mean(errors)}

  return measure


def _at_length(drawn: Any, planted: Any) -> Any:
  """`planted` for another length, with what it lacks from `drawn`."""

  def own(new, old):
    if new.ndim == 0 or new.shape[1:] != old.shape[1:]:
      return old if new.shape == old.shape else new
    kept = min(len(new), len(old))
    return new.at[:kept].set(old[:kept])

  return jax.tree.map(own, drawn, planted)
