"""The ERM protocol: one trial on a fixed sample of size m.

Gradient steps on the same m samples; after every `check_every` steps the errors on them
and on held-out samples. What counts is whether the one that is watched, by default the
held-out error, ever falls below the threshold; or, with a validation part, whether the
held-out error is below it at the check with the least validation error.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal, NamedTuple, get_args

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int

from sepfx import kinds, precision
from sepfx.errors import require
from sepfx.lanewise import lanewise
from sepfx.training.optimizers import adam_with_kernel_decay
from sepfx.training.orders import place_in_order
from sepfx.training.penalties import check_options
from sepfx.training.states import Keys, Outcome, Report, Seeds, State, World
from sepfx.training.trials import Trial

_OPTIMIZER = adam_with_kernel_decay()

Watched = Literal["test_error", "train_loss", "grad_norm"]


@lanewise("optimizer", "l2", "gradient_penalty", "init_scale")
@dataclasses.dataclass(frozen=True)
class ERM:
  """Settings of the ERM protocol.

  Attributes:
    sample_size: m (n in the main paper), of the training sample.
    threshold: a trial succeeds when what is watched is below.
    watched: "test_error" (held out; for classification one minus an accuracy, for
      regression a risk), "train_loss" (on the sample, without dropout and penalty) or
      "grad_norm" (Euclidean norm of the gradient of what is minimised, on the whole
      sample and without dropout: how near to stationary, Definition 5 of the main
      paper). The latter two are at the weights where the optimizer takes its gradients,
      errors at those where it is evaluated: schedule-free optimizers have both.
    optimizer: an `AdamW`, by default the second paper's Adam, or any optax
      transformation; `projected` keeps weights in a norm ball.
    batch_size: samples per step, reshuffled each epoch; None for all m.
    check_every: steps between evaluations.
    num_test: held-out samples, drawn once per trial.
    max_steps: steps after which a trial is censored.
    run_to_end: take all `max_steps` steps, also when success is certain.
    validation: share of the sample that no gradient is taken on, by which the check is
      chosen that counts: a trial takes all its steps, and succeeds when the test error is
      below the threshold at the check with the least error on this part, the first of
      several. Probes and kept weights are of the last step. 0 for none: success at any
      check then, which stops on the test samples.
    l2: penalty on the sum of all squared parameters; None for none.
    gradient_penalty: penalty on 2 E |grad f|^2, over samples and the numbers that the
      model outputs for each: the trace of the squared loss's Hessian where that loss is
      0; None for none.
    init_scale: factor of all initial parameters; None for none.
    matmul_precision: in which accelerators multiply matrices of float32 in the model:
      "float32", "tensorfloat32" or "bfloat16". CPUs have float32 whatever is asked for.

  Raises:
    InvalidSetting: for a setting outside its domain.
  """

  sample_size: int = 100
  threshold: float = 0.01
  optimizer: Any = _OPTIMIZER
  batch_size: int | None = None
  check_every: int = 10
  num_test: int = 10_000
  max_steps: int = 1000
  run_to_end: bool = False
  watched: Watched = "test_error"
  validation: float = 0.0
  l2: float | None = None
  gradient_penalty: float | None = None
  init_scale: float | None = None
  matmul_precision: precision.MatmulPrecision = "float32"

  def __post_init__(self):
    kinds.settle(self)
    for name in ("sample_size", "check_every", "num_test"):
      value = getattr(self, name)
      require(value >= 1, name, value, "an integer >= 1")
    takes = f"an integer below 2^31 = {2**31}: steps are counted in 32 bits"
    require(self.max_steps < 2**31, "max_steps", self.max_steps, takes)
    known = get_args(Watched)
    require(self.watched in known, "watched", self.watched, " or ".join(known))
    check_options(self)
    with_noise = self.gradient_penalty is not None and self.watched == "grad_norm"
    takes = "none where grad_norm is watched: its estimate is a random number"
    require(not with_noise, "gradient_penalty", self.gradient_penalty, takes)
    require(
      math.isfinite(self.threshold) and self.threshold > 0,
      "threshold",
      self.threshold,
      "a positive finite number",
    )
    takes = "a share from 0 to below 1, of which a sample is left to train on"
    proper = 0 <= self.validation < 1 and self.num_training >= 1
    require(proper, "validation", self.validation, takes)
    takes = "test_error, which validation chooses the check of"
    chosen = not self.validation or self.watched == "test_error"
    require(chosen, "watched", self.watched, takes)
    size = self.num_training
    of = "the samples to train on," if self.validation else "the sample size"
    require(
      self.batch_size is None or 1 <= self.batch_size <= size,
      "batch_size",
      self.batch_size,
      f"an integer from 1 to {of} {size}, or None for all of it",
    )
    require(
      self.num_checks >= 1,
      "max_steps",
      self.max_steps,
      f"at least check_every = {self.check_every}, the steps before the first evaluation",
    )

  @property
  def num_training(self) -> int:
    """Samples that gradients are taken on: all but the validation part."""
    part = int(round(self.validation * self.sample_size, 9))
    return self.sample_size - (max(part, 1) if self.validation else 0)

  @property
  def num_checks(self) -> int:
    """Evaluations that the budget allows."""
    return self.max_steps // self.check_every

  def trial(
    self, task: Any, test_task: Any, model: nn.Module, model_name: str = ""
  ) -> ERMTrial:
    """Returns the trial of a model on a task under this protocol."""
    return ERMTrial(task, test_task, model, self, model_name)

  @property
  def coordinates(self) -> dict[str, int]:
    """What tells a cell from others at the same task, model and length."""
    return {"sample_size": int(self.sample_size)}

  @property
  def thresholds(self) -> tuple[float, ...]:
    """The one that counts."""
    return (self.threshold,)

  @property
  def error_thresholds(self) -> tuple[float, ...]:
    """Those of test errors."""
    return self.thresholds if self.watched == "test_error" else ()


class Errors(NamedTuple):
  """The curve of a state (C checks); 0 where not yet.

  Attributes:
    test_error: on the held-out samples.
    train_error: on the training sample, without dropout.
    train_loss: what is minimised, on the training sample without dropout; at the
      weights where the optimizer takes its gradients.
    test_loss: on the held-out samples.
  """

  test_error: Float[Array, " C"]
  train_error: Float[Array, " C"]
  train_loss: Float[Array, " C"]
  test_loss: Float[Array, " C"]


class ErrorsAndGradient(NamedTuple):
  """`Errors`, and `grad_norm` where that is watched."""

  test_error: Float[Array, " C"]
  train_error: Float[Array, " C"]
  train_loss: Float[Array, " C"]
  test_loss: Float[Array, " C"]
  grad_norm: Float[Array, " C"]


class ErrorsAndValidation(NamedTuple):
  """`Errors`, and `validation_error` where a part of the sample is held out for it."""

  test_error: Float[Array, " C"]
  train_error: Float[Array, " C"]
  train_loss: Float[Array, " C"]
  test_loss: Float[Array, " C"]
  validation_error: Float[Array, " C"]


class Verdict(NamedTuple):
  """What a trial came to.

  Attributes:
    best: the best held-out accuracy or risk at any check, or that at the check which
      validation chose; NaN if there was none.
    steps: taken when the threshold was passed ("reached"), when the budget was spent
      ("censored"), or when a loss or weight was first not finite ("diverged").
    outcome: which of the three.
  """

  best: float
  steps: int
  outcome: Outcome


@lanewise("task", "test_task", "protocol")
@dataclasses.dataclass(frozen=True)
class ERMTrial(Trial):
  """One trial of the ERM protocol."""

  protocol: ERM

  @property
  def run_to_end(self) -> bool:
    return self.protocol.run_to_end or self.protocol.validation > 0

  @property
  def watched(self) -> str:
    return self.protocol.watched

  @property
  def samples_a_step(self) -> int:
    return self.protocol.batch_size or self.protocol.num_training

  @property
  def progress(self) -> tuple[str, int]:
    return "steps", self.protocol.check_every

  @property
  def columns(self) -> dict[str, type]:
    return {self.objective.measure: float, "steps": int, "outcome": str}

  @property
  def _curve(self) -> type[Errors | ErrorsAndGradient | ErrorsAndValidation]:
    if self.protocol.validation:
      return ErrorsAndValidation
    return ErrorsAndGradient if self.protocol.watched == "grad_norm" else Errors

  def blank(self) -> tuple[Any, tuple[()]]:
    # Not NaN, which under `jax_debug_nans` would be an error of a healthy trial.
    unmeasured = jnp.zeros(self.protocol.num_checks)
    return self._curve(*(unmeasured,) * len(self._curve._fields)), ()

  @precision.exact()
  def world(self, seeds: Seeds) -> World:
    _, data_key, test_key, dropout_key = self.split(seeds)
    sample_key, order_key = jax.random.split(data_key)
    planted = self.task.init(seeds.task)
    sample = self.task.sample(sample_key, planted, self.protocol.sample_size)
    test = self.test_task.sample(test_key, planted, self.protocol.num_test)
    number, keys = self.protocol.num_training, Keys(order_key, dropout_key)
    if number == self.protocol.sample_size:
      return World(planted, sample, test, keys)
    sample, validation = (
      jax.tree.map(lambda a, part=part: a[part], sample)
      for part in (slice(number), slice(number, None))
    )
    return World(planted, sample, test, keys, validation)

  @precision.exact()
  def batch(
    self, world: World, step: Int[Array, ""] | int, rows: Int[Array, " n"] | None = None
  ) -> Any:
    """The whole sample, or the next part of it in this epoch's order.

    Where batches do not divide the sample, each epoch leaves out a few, others each
    time.
    """
    if not self.draws_rows:
      return world.sample
    own = self.rows(world, jnp.asarray([step]))[0] if rows is None else rows
    return jax.tree.map(lambda a: a[own], world.sample)

  @property
  def draws_rows(self) -> bool:
    return self.samples_a_step < self.protocol.num_training

  def rows(self, world: World, steps: Int[Array, " s"]) -> Int[Array, "s n"]:
    m, size = self.protocol.num_training, self.samples_a_step

    def of_step(step: Int[Array, ""]) -> Int[Array, " n"]:
      epoch, place = step // (m // size), step % (m // size)
      key = jax.random.fold_in(world.keys.data, epoch)
      return place_in_order(key, place * size + jnp.arange(size), m)

    return jax.vmap(of_step)(steps)

  def evaluate(self, state: State, world: World) -> State:
    """Measures on all held-out samples and, without dropout, on the training sample.

    Also on the validation part, if there is one.
    """

    def means(params: Any, task: Any, sample: Any) -> Any:
      return jax.tree.map(jnp.mean, self.errors_and_losses(params, task, sample, world))

    weights = self.weights(state)
    on_test = means(weights, self.test_task, world.test)
    train_error, train_loss = means(weights, self.task, world.sample)
    if weights is not state.params:  # a training loss is of the weights of its gradient
      _, train_loss = means(state.params, self.task, world.sample)
    values = [on_test[0], train_error, train_loss, on_test[1]]
    if self.protocol.watched == "grad_norm":
      gradient = jax.grad(self.loss)(state.params, world.sample, world)
      values.append(jnp.linalg.norm(ravel_pytree(gradient)[0]))
    if self.protocol.validation:
      values.append(means(weights, self.task, world.validation)[0])
    point = self._curve(*values)
    error = getattr(point, self.watched)
    if self.protocol.validation:
      error = self._decisive(state, point)
    return self.record(state, error, point)

  def _decisive(self, state: State, point: Any) -> Float[Array, ""]:
    """The test error that counts at the last check; before, one that decides nothing."""
    at, protocol = state.checks, self.protocol
    before = jnp.arange(protocol.num_checks) < at
    validation = jnp.where(before, state.curve.validation_error, jnp.inf)
    validation = validation.at[at].set(point.validation_error)
    test = state.curve.test_error.at[at].set(point.test_error)
    chosen = test[jnp.argmin(validation)]
    undecided = jnp.maximum(point.test_error, protocol.threshold)
    error = jnp.where(at + 1 < protocol.num_checks, undecided, chosen)
    finite = jnp.isfinite(point.test_error) & jnp.isfinite(point.validation_error)
    return jnp.where(finite, error, jnp.nan)

  def report_of(self, curve: np.ndarray, diverged_at: int = 0) -> Report:
    report = super().report_of(curve, diverged_at)
    if not self.protocol.validation:
      return report
    ended = len(curve) == self.protocol.num_checks and not diverged_at
    below = ended and self._chosen(curve) < np.float32(self.protocol.threshold)
    crossings: Any = np.array([report.step if below else 0])
    return report._replace(crossings=crossings)

  @staticmethod
  def _chosen(curve: np.ndarray) -> float:
    """The test error at the check with the least validation error; NaN if none is."""
    finite = np.isfinite(curve["test_error"]) & np.isfinite(curve["validation_error"])
    if not np.any(finite):
      return math.nan
    own = curve[finite]
    return float(own["test_error"][np.argmin(own["validation_error"])])

  def outcomes(self, report: Report) -> list[Verdict]:
    """Returns the one verdict."""
    curve = self.curve(report)
    if self.protocol.validation:
      least = self._chosen(curve)
    else:
      finite = curve["test_error"][np.isfinite(curve["test_error"])]
      least = float(np.min(finite)) if len(finite) else math.nan
    best = self.objective.measured(least)
    crossed, diverged_at = int(report.crossings[0]), int(report.diverged_at)
    if crossed:
      return [Verdict(best, crossed, "reached")]
    outcome: Outcome = "diverged" if diverged_at else "censored"
    return [Verdict(best, diverged_at or int(report.step), outcome)]
