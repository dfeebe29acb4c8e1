"""The ERM protocol: one trial on a fixed sample of size m.

Gradient steps on the same m samples; after every `check_every` steps the error on
held-out samples. What counts is whether it ever falls below the threshold.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from sepfx.errors import require
from sepfx.models import predict_many
from sepfx.training.optimizers import adam_with_kernel_decay
from sepfx.training.trials import Keys, Outcome, Report, Seeds, State, Trial, World

_OPTIMIZER = adam_with_kernel_decay()


@dataclasses.dataclass(frozen=True)
class ERM:
  """Settings of the ERM protocol.

  Attributes:
    num_samples: m (n in the main paper), size of the training sample.
    threshold: a trial succeeds when its held-out error is below: for classification
      one minus an accuracy, for regression a risk.
    optimizer: any optax transformation, by default the published Adam; `projected`
      keeps weights in a norm ball.
    batch_size: samples a step, reshuffled each epoch; None for all m.
    check_every: steps between evaluations.
    num_test: held-out samples, drawn once a trial.
    max_steps: steps after which a trial is censored.
    run_to_end: take all `max_steps` steps, also when success is certain.

  Raises:
    InvalidSetting: for a setting outside its domain.
  """

  num_samples: int = 100
  threshold: float = 0.01
  optimizer: optax.GradientTransformation = _OPTIMIZER
  batch_size: int | None = None
  check_every: int = 10
  num_test: int = 10_000
  max_steps: int = 1000
  run_to_end: bool = False

  def __post_init__(self):
    for name in ("num_samples", "check_every", "num_test"):
      value = getattr(self, name)
      require(value >= 1, name, value, "an integer >= 1")
    require(
      math.isfinite(self.threshold) and self.threshold > 0,
      "threshold",
      self.threshold,
      "a positive finite number",
    )
    require(
      self.batch_size is None or 1 <= self.batch_size <= self.num_samples,
      "batch_size",
      self.batch_size,
      f"an integer from 1 to the sample size {self.num_samples}, or None for all of it",
    )
    require(
      self.num_checks >= 1,
      "max_steps",
      self.max_steps,
      f"at least check_every = {self.check_every}, the steps before the first evaluation",
    )

  @property
  def num_checks(self) -> int:
    """Evaluations that the budget allows."""
    return self.max_steps // self.check_every

  def trial(self, task: Any, test_task: Any, model: nn.Module) -> ERMTrial:
    """Returns the trial of a model on a task under this protocol."""
    return ERMTrial(task, test_task, model, self)

  @property
  def coordinates(self) -> dict[str, int]:
    """What tells a cell from others at the same task, model and length."""
    return {"sample_size": self.num_samples}

  @property
  def thresholds(self) -> tuple[float, ...]:
    """The one that counts."""
    return (self.threshold,)


class Errors(NamedTuple):
  """The curve of a state (C checks); NaN where not yet.

  Attributes:
    test_error: on the held-out samples.
    train_error: on the training sample, without dropout.
    train_loss: likewise, of what is minimised.
  """

  test_error: Float[Array, " C"]
  train_error: Float[Array, " C"]
  train_loss: Float[Array, " C"]


class Verdict(NamedTuple):
  """What a trial came to.

  Attributes:
    best: the best held-out accuracy or risk at any check; NaN if there was none.
    steps: taken when the threshold was passed ("reached"), when the budget was spent
      ("censored"), or when a loss or weight was first not finite ("diverged").
    outcome: which of the three.
  """

  best: float
  steps: int
  outcome: Outcome


@dataclasses.dataclass(frozen=True)
class ERMTrial(Trial):
  """One trial of the ERM protocol."""

  protocol: ERM

  @property
  def run_to_end(self) -> bool:
    return self.protocol.run_to_end

  @property
  def samples_a_step(self) -> int:
    return self.protocol.batch_size or self.protocol.num_samples

  @property
  def progress(self) -> tuple[str, int]:
    return "steps", self.protocol.check_every

  @property
  def columns(self) -> tuple[str, ...]:
    return (self.objective.measure, "steps", "outcome")

  def blank(self) -> tuple[Errors, tuple[()]]:
    return Errors(*(jnp.full(self.protocol.num_checks, jnp.nan),) * 3), ()

  def world(self, seeds: Seeds) -> World:
    _, data_key, test_key, dropout_key = self.split(seeds)
    sample_key, order_key = jax.random.split(data_key)
    planted = self.task.init(seeds.task)
    sample = self.task.sample(sample_key, planted, self.protocol.num_samples)
    test = self.test_task.sample(test_key, planted, self.protocol.num_test)
    return World(planted, sample, test, Keys(order_key, dropout_key))

  def batch(self, world: World, step: Int[Array, ""]) -> Any:
    """The whole sample, or the next part of it in this epoch's order.

    Where batches do not divide the sample, each epoch leaves out a few, others each
    time.
    """
    m, size = self.protocol.num_samples, self.samples_a_step
    if size == m:
      return world.sample
    epoch, place = step // (m // size), step % (m // size)
    order = jax.random.permutation(jax.random.fold_in(world.keys.data, epoch), m)
    chosen = jax.lax.dynamic_slice_in_dim(order, place * size, size)
    return jax.tree.map(lambda a: a[chosen], world.sample)

  def evaluate(self, state: State, world: World) -> State:
    """Measures on all held-out samples and, without dropout, on the training sample."""
    objective = self.objective

    def outputs(task, sample):
      return predict_many(self.model, state.params, task.encode(world.planted, sample))

    on_test = outputs(self.test_task, world.test)
    on_train = outputs(self.task, world.sample)
    point = Errors(
      test_error=jnp.mean(objective.error(on_test, world.test.labels)),
      train_error=jnp.mean(objective.error(on_train, world.sample.labels)),
      train_loss=jnp.mean(objective.loss(on_train, world.sample.labels)),
    )
    return self.record(state, point.test_error, point)

  def outcomes(self, report: Report) -> list[Verdict]:
    """Returns the one verdict."""
    errors = self.curve(report)["test_error"]
    finite = errors[np.isfinite(errors)]
    best = self.objective.measured(float(np.min(finite))) if len(finite) else math.nan
    crossed, diverged_at = int(report.crossings[0]), int(report.diverged_at)
    if crossed:
      return [Verdict(best, crossed, "reached")]
    outcome: Outcome = "diverged" if diverged_at else "censored"
    return [Verdict(best, diverged_at or int(report.step), outcome)]
