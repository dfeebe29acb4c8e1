"""The online protocol: one trial, from its keys to its first passages.

A fresh batch every step; after every `check_every` steps the test loss; n(tau) is
the number of training prompts consumed when that loss is first below tau.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from sepfx import kinds, precision
from sepfx.errors import require
from sepfx.lanewise import lanewise
from sepfx.training.optimizers import AdamW
from sepfx.training.penalties import check_options
from sepfx.training.states import Keys, Outcome, Report, Seeds, State, World, select
from sepfx.training.trials import Trial

# Prompts evaluated at once; after each such chunk the screen may decide.
CHUNK = 125
# Standard errors by which the screen must clear every open threshold. A crossing is
# hidden when the estimate is off by that much at the one check where it happens: a
# chance of about 1e-5 per trial and threshold.
_SCREEN_MARGIN = 4.5
# Chunks after which an undecided screen reads all: the full evaluation that it then
# extrapolates from is a recent one again.
_SCREEN_CHUNKS = 12
# The reference ages: the older it is, the more chunks it takes. When those read beyond
# the first of each check add up to this share of the test set, all are read.
_SCREEN_EXCESS = 0.5
# Where lanes are batched: prompts of the one look that may decide, and of the parts in
# which all are read otherwise.
GLANCE = 500
PART = 1000


_OPTIMIZER = AdamW()


@lanewise("optimizer", "l2", "gradient_penalty", "init_scale")
@dataclasses.dataclass(frozen=True)
class Online:
  """Settings of the online protocol.

  Attributes:
    thresholds: test losses tau whose first passage is timed, descending.
    optimizer: an `AdamW`, by default the published one at a rate of 1e-3 with a weight
      decay of 0.01, or any optax transformation.
    batch_size: fresh prompts per step.
    check_every: steps between evaluations.
    num_test: test prompts, drawn once per trial.
    max_samples: training prompts after which a trial is censored.
    screen: stop an evaluation as soon as the prompts read so far show that the test
      loss clears every open threshold; first passages are the same without it.
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

  thresholds: tuple[float, ...] = (0.7,)
  optimizer: Any = _OPTIMIZER
  batch_size: int = 64
  check_every: int = 10
  num_test: int = 5000
  max_samples: int = 1_000_000
  screen: bool = True
  l2: float | None = None
  gradient_penalty: float | None = None
  init_scale: float | None = None
  matmul_precision: precision.MatmulPrecision = "float32"

  def __post_init__(self):
    takes = "several, such as (0.7,)"
    several = isinstance(self.thresholds, Iterable)
    require(several, "thresholds", self.thresholds, takes)
    if isinstance(self.thresholds, Iterator):
      object.__setattr__(self, "thresholds", tuple(self.thresholds))
    kinds.settle(self)
    require(len(self.thresholds) > 0, "thresholds", self.thresholds, "at least one")
    for threshold in self.thresholds:
      require(
        math.isfinite(threshold) and threshold > 0,
        "thresholds",
        threshold,
        "positive finite numbers",
      )
    thresholds = tuple(sorted(set(map(float, self.thresholds)), reverse=True))
    object.__setattr__(self, "thresholds", thresholds)
    for name in ("batch_size", "check_every", "num_test"):
      value = getattr(self, name)
      require(value >= 1, name, value, "an integer >= 1")
    check_options(self)
    require(
      self.num_checks >= 1,
      "max_samples",
      self.max_samples,
      f"at least batch_size * check_every = {self.batch_size * self.check_every}, "
      "the prompts before the first evaluation",
    )

    takes = f"fewer than 2^31 batches of {self.batch_size}: they are counted in 32 bits"
    steps = self.max_samples // self.batch_size
    require(steps < 2**31, "max_samples", self.max_samples, takes)

  @property
  def num_checks(self) -> int:
    """Evaluations that the budget allows."""
    return self.max_samples // (self.batch_size * self.check_every)

  def trial(
    self, task: Any, test_task: Any, model: nn.Module, model_name: str = ""
  ) -> OnlineTrial:
    """Returns the trial of a model on a task under this protocol."""
    return OnlineTrial(task, test_task, model, self, model_name)

  @property
  def coordinates(self) -> dict[str, int]:
    """What tells a cell from others at the same task, model and length."""
    return {}

  @property
  def error_thresholds(self) -> tuple[float, ...]:
    """Those of test errors."""
    return self.thresholds

  @property
  def budget(self) -> int:
    """Training prompts of a censored trial: those before its last evaluation."""
    return self.num_checks * self.check_every * self.batch_size


class Reference(NamedTuple):
  """The last full evaluation, from which the screen extrapolates (M test prompts).

  Zero before the first: the screen's estimate is then a plain mean.
  """

  errors: Float[Array, " M"]
  loss: Float[Array, ""]
  excess: Int[Array, ""]  # chunks read since, beyond the first of each check


class Losses(NamedTuple):
  """The curve of a state (C checks).

  Attributes:
    loss: test loss after each check; 0 where not yet.
    exact: whether it was evaluated on all test prompts; else it is an estimate that
      was clear of every threshold still open.
  """

  loss: Float[Array, " C"]
  exact: Bool[Array, " C"]


class Passage(NamedTuple):
  """First passage of one threshold.

  Attributes:
    threshold: tau.
    samples: training prompts consumed at first passage ("reached"), when the budget
      was spent ("censored"), or at the first loss or weight that was not finite
      ("diverged").
    outcome: which of the three.
  """

  threshold: float
  samples: int
  outcome: Outcome


@lanewise("task", "test_task", "protocol")
@dataclasses.dataclass(frozen=True)
class OnlineTrial(Trial):
  """One trial of the online protocol."""

  protocol: Online

  @property
  def _chunks(self) -> tuple[int, int]:
    """Number of chunks of the test set, and samples in each (the last may be padded)."""
    size = min(CHUNK, self.protocol.num_test)
    return -(-self.protocol.num_test // size), size

  @property
  def watched(self) -> str:
    return "loss"

  @property
  def samples_a_step(self) -> int:
    return self.protocol.batch_size

  @property
  def progress(self) -> tuple[str, int]:
    return "samples", self.protocol.batch_size * self.protocol.check_every

  @property
  def columns(self) -> dict[str, type]:
    return {"threshold": float, "samples": int, "outcome": str}

  def blank(self) -> tuple[Losses, Reference]:
    checks = self.protocol.num_checks
    # Not NaN, which under `jax_debug_nans` would be an error of a healthy trial.
    losses = Losses(jnp.zeros(checks), jnp.zeros(checks, bool))
    errors = jnp.zeros(math.prod(self._chunks))
    return losses, Reference(errors, jnp.zeros(()), jnp.int32(0))

  @precision.exact()
  def world(self, seeds: Seeds) -> World:
    _, data_key, test_key, dropout_key = self.split(seeds)
    planted = self.task.init(seeds.task)
    test = self.test_task.sample(test_key, planted, math.prod(self._chunks))
    return World(planted, None, test, Keys(data_key, dropout_key))

  @precision.exact()
  def batch(self, world: World, step: Int[Array, ""] | int) -> Any:
    """A fresh one."""
    key = jax.random.fold_in(world.keys.data, step)
    return self.task.sample(key, world.planted, self.protocol.batch_size)

  def evaluate(self, state: State, world: World) -> State:
    """Evaluates the test loss, in full unless the screen decides, and records it.

    The prompts are read chunk by chunk. After each the screen estimates the loss as
    that of the last full evaluation plus the mean change of the prompts read so far.
    Between two checks most of a prompt's error stays what it was, so the change has
    a far smaller spread than the errors, and few prompts suffice to see that no open
    threshold can be crossed.
    """
    num_chunks, size = self._chunks
    num_test = self.protocol.num_test
    weights = self.weights(state)
    due = state.memory.excess >= _SCREEN_EXCESS * num_chunks
    last_look = jnp.where(due, 0, min(_SCREEN_CHUNKS, num_chunks - 1))
    screened = self.protocol.screen and self.objective.continuous

    def undecided(carry):
      k, _, _, _, decided = carry
      return (k < num_chunks) & ~decided

    def read_chunk(carry):
      k, errors, sums, _, _ = carry
      sample = jax.tree.map(
        lambda a: jax.lax.dynamic_slice_in_dim(a, k * size, size), world.test
      )
      own = self.errors(weights, self.test_task, sample, world)
      own = own.astype(errors.dtype)
      old = jax.lax.dynamic_slice_in_dim(state.memory.errors, k * size, size)
      change = jnp.where(k * size + jnp.arange(size) < num_test, own - old, 0.0)
      sums = sums + jnp.stack([jnp.sum(change), jnp.sum(change**2)])
      errors = jax.lax.dynamic_update_slice_in_dim(errors, own, k * size, 0)
      read = jnp.minimum((k + 1) * size, num_test)
      estimate, clear = self._look(state, sums, read)
      decided = clear & (k < last_look) & screened
      return k + 1, errors, sums, estimate, decided

    start = (
      jnp.int32(0),
      jnp.zeros(num_chunks * size),
      jnp.zeros(2),
      jnp.zeros(()),
      ~state.active,  # under vmap, a lane that is idle must not keep others reading
    )
    read, errors, _, estimate, decided = jax.lax.while_loop(undecided, read_chunk, start)
    full = Reference(errors, jnp.mean(errors[:num_test]), jnp.int32(0))
    excess = state.memory.excess + read - 1
    reference = select(decided, state.memory._replace(excess=excess), full)
    loss = jnp.where(decided, estimate, full.loss)
    state = state._replace(memory=reference)
    return self.record(state, loss, Losses(loss, ~decided))

  def _look(self, state: State, sums: Float[Array, "2"], read: Any) -> tuple[Any, Any]:
    """The loss that some prompts tell of, and whether it clears every open threshold.

    Args:
      state: at a check.
      sums: of the changes of their errors since the last full evaluation, and of squares.
      read: their number.
    """
    thresholds = jnp.array(self.protocol.thresholds)
    highest_open = jnp.max(jnp.where(state.crossings == 0, thresholds, -jnp.inf))
    mean = sums[0] / read
    variance = (sums[1] - sums[0] * mean) / (read - 1)
    spread = jnp.sqrt(variance / read * (1 - read / self.protocol.num_test))
    estimate = state.memory.loss + mean
    # False when anything is NaN, as when a trial diverges.
    return estimate, estimate - _SCREEN_MARGIN * spread > highest_open

  @property
  def glances(self) -> bool:
    enough = self.protocol.num_test > GLANCE
    own = type(self).evaluate is OnlineTrial.evaluate  # a subclass may have another
    return self.protocol.screen and self.objective.continuous and enough and own

  def glance(self, state: State, world: World) -> tuple[State, Bool[Array, ""]]:
    sample = jax.tree.map(lambda a: a[:GLANCE], world.test)
    own = self.errors(self.weights(state), self.test_task, sample, world)
    change = own.astype(state.memory.errors.dtype) - state.memory.errors[:GLANCE]
    sums = jnp.stack([jnp.sum(change), jnp.sum(change**2)])
    estimate, clear = self._look(state, sums, GLANCE)
    return self.record(state, estimate, Losses(estimate, jnp.array(False))), clear

  def evaluate_in_full(self, state: State, world: World) -> State:
    total = len(state.memory.errors)
    size, weights = min(PART, total), self.weights(state)

    def read_part(k, errors):
      start = jnp.minimum(k * size, total - size)  # the last one reads some twice
      sample = jax.tree.map(
        lambda a: jax.lax.dynamic_slice_in_dim(a, start, size), world.test
      )
      own = self.errors(weights, self.test_task, sample, world).astype(errors.dtype)
      return jax.lax.dynamic_update_slice_in_dim(errors, own, start, 0)

    errors = jax.lax.fori_loop(0, -(-total // size), read_part, state.memory.errors)
    loss = jnp.mean(errors[: self.protocol.num_test])
    state = state._replace(memory=Reference(errors, loss, jnp.int32(0)))
    return self.record(state, loss, Losses(loss, jnp.array(True)))

  def outcomes(self, report: Report) -> list[Passage]:
    """Returns one `Passage` per threshold, in the protocol's order."""
    protocol = self.protocol
    diverged_at = int(report.diverged_at)
    unreached: Outcome = "diverged" if diverged_at else "censored"
    last = (diverged_at or int(report.step)) * protocol.batch_size
    return [
      Passage(threshold, int(step) * protocol.batch_size, "reached")
      if step
      else Passage(threshold, last, unreached)
      for threshold, step in zip(protocol.thresholds, report.crossings, strict=True)
    ]
