"""Cells of a grid, and the keys of their trials."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from sepfx import models as models_lib
from sepfx.ensembles import keys
from sepfx.errors import InvalidSetting, require
from sepfx.training import ERM, Level, Online, Seeds, Trial

TASK_DRAWS = ("per_trial", "shared")


@dataclasses.dataclass(frozen=True)
class Cell:
  """One grid point; its trials differ only in their index.

  Attributes:
    model_name: how the model was asked for.
    trial: the trial's pure functions.
    task_draw: "per_trial" plants anew for each trial; "shared" plants once for all
      trials of all models at this task and length, as the published runs did.
  """

  model_name: str
  trial: Trial
  task_draw: str = "per_trial"

  @property
  def coordinates(self) -> dict[str, Any]:
    """What tells this cell from the others of its grid."""
    return {
      "task": self.trial.task.name,
      "model": self.model_name,
      "length": self.trial.task.length,
      **self.trial.protocol.coordinates,
    }

  @property
  def name(self) -> str:
    """Canonical name: task=.../model=.../length=... and so on."""
    return "/".join(f"{key}={value}" for key, value in self.coordinates.items())

  def seeds(self, seed: int, num_trials: int) -> Seeds:
    """Keys of trials 0, ..., num_trials - 1.

    They are functions of the seed, the cell's name and the index alone. Settings
    that are not in the name (a learning rate, say) do not move them, so runs that
    differ in such a setting are paired trial by trial.
    """
    own = _fold_name(keys.key(seed), self.name)
    own = jax.vmap(jax.random.fold_in, (None, 0))(own, jnp.arange(num_trials))
    trial, task = jnp.unstack(jax.vmap(jax.random.split)(own), axis=1)
    if self.task_draw == "shared":
      coordinates = self.coordinates
      planted = f"task={coordinates['task']}/length={coordinates['length']}"
      task = jnp.broadcast_to(_fold_name(keys.key(seed), planted), task.shape)
    return Seeds(trial, task)


def _fold_name(key: PRNGKeyArray, name: str) -> PRNGKeyArray:
  """Folds a stable 64-bit digest of a name into a key."""
  digest = hashlib.sha256(name.encode()).digest()
  for word in np.frombuffer(digest[:8], dtype="<u4"):
    key = jax.random.fold_in(key, word)
  return key


def grid(
  task: Any,
  models: Sequence[str | nn.Module],
  lengths: Sequence[int],
  protocol: Online | ERM,
  *,
  sample_sizes: Sequence[int] = (),
  uniform_fractions: Sequence[float] = (),
  test_task: Any = None,
  task_draw: str = "per_trial",
  num_heads: int | None = None,
) -> list[Cell]:
  """Returns the cells of models x lengths (x sample sizes), every one of them checked.

  Nothing is compiled: models are only traced for their shapes.

  Args:
    task: what is learned; its `length` is replaced by each of `lengths`.
    models: names (see `sepfx.models.build`) or `flax.linen` modules.
    lengths: N, in any order, each once.
    protocol: how a trial learns.
    sample_sizes: m of `ERM`, which replace the protocol's own.
    uniform_fractions: further thresholds, as fractions of the risk that uniform
      attention has on the test prompts of a length (`sepfx.training.Level`).
    test_task: what the test prompts are drawn from; None for `task`.
    task_draw: "per_trial" or "shared", see `Cell`.
    num_heads: H of the transformer; None for the published number.

  Raises:
    InvalidSetting: for a setting outside its domain; a model that does not map the
      task's inputs to its outputs; a threshold that the best constant already meets.
  """
  require(len(models) > 0, "models", list(models), "at least one model")
  require(len(lengths) > 0, "lengths", list(lengths), "at least one length")
  require(
    task_draw in TASK_DRAWS, "task_draw", task_draw, f"one of {', '.join(TASK_DRAWS)}"
  )
  protocols: list[Online | ERM] = [protocol]
  if sample_sizes:
    if not isinstance(protocol, ERM):
      takes = "nothing but with the ERM protocol"
      raise InvalidSetting("sample_sizes", list(sample_sizes), takes)
    sizes = sorted(set(sample_sizes))
    protocols = [dataclasses.replace(protocol, num_samples=m) for m in sizes]
  cells = []
  for model in dict.fromkeys(models):
    for length in sorted(set(lengths)):
      own_task = dataclasses.replace(task, length=length)
      own_test = dataclasses.replace(test_task or task, length=length)
      if isinstance(model, nn.Module):
        name, module = type(model).__name__, model
      else:
        name = model
        module = models_lib.build(model, own_task, num_heads=num_heads)
      protocol.trial(own_task, own_test, module).check_model(name)
      for own_protocol in protocols:
        own_protocol = _with_fractions(own_protocol, uniform_fractions, own_test)
        trial = own_protocol.trial(own_task, own_test, module)
        cells.append(Cell(name, trial, task_draw))
  names = [cell.name for cell in cells]
  for name in names:
    if names.count(name) > 1:
      raise InvalidSetting("models", name, "models with different names")
  for length in sorted(set(lengths)):
    error = dataclasses.replace(test_task or task, length=length).best_constant_error()
    for threshold in protocol.thresholds:
      require(
        threshold < error,
        "thresholds",
        threshold,
        f"numbers below {error:.4g}, the error of the best constant",
      )
  return cells


def _with_fractions(
  protocol: Online | ERM, fractions: Sequence[float], test_task: Any
) -> Online | ERM:
  """Adds fractions of uniform attention's risk to a protocol's thresholds."""
  if not fractions:
    return protocol
  if not isinstance(protocol, Online):
    takes = "nothing but with the online protocol"
    raise InvalidSetting("uniform_fractions", list(fractions), takes)
  for fraction in fractions:
    takes = "numbers between 0 and 1"
    require(0 < fraction < 1, "uniform_fractions", fraction, takes)
  risk = test_task.uniform_attention_risk()
  takes = "nothing for this task, in which uniform attention's risk is not known"
  require(risk is not None, "uniform_fractions", list(fractions), takes)
  thresholds = [Level(value, of_uniform=True).threshold(risk) for value in fractions]
  return dataclasses.replace(protocol, thresholds=(*protocol.thresholds, *thresholds))
