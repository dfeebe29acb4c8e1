"""The online protocol: one trial, from its keys to its first passages.

A fresh batch every step; after every `check_every` steps the test loss; n(tau) is
the number of training prompts consumed when that loss is first below tau.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from sepfx.errors import InvalidSetting, require
from sepfx.models import predict
from sepfx.training.risks import averaged_risk, prompt_errors

# Prompts evaluated at once; after each such chunk the screen may decide.
_CHUNK = 125
# Standard errors by which the screen must clear every open threshold. A crossing is
# hidden when the estimate is off by that much at the one check where it happens: a
# chance of about 1e-5 a trial and threshold.
_SCREEN_MARGIN = 4.5
# Chunks after which an undecided screen reads all: the full evaluation that it then
# extrapolates from is a recent one again.
_SCREEN_CHUNKS = 12
# The reference ages: the older it is, the more chunks it takes. When those read beyond
# the first of each check add up to this share of the test set, all are read.
_SCREEN_EXCESS = 0.5

_PUBLISHED_OPTIMIZER = optax.adamw(1e-3, weight_decay=0.01)


@dataclasses.dataclass(frozen=True)
class Online:
  """Settings of the online protocol.

  Attributes:
    thresholds: test losses tau whose first passage is timed, descending.
    optimizer: any optax transformation; the default is the published AdamW.
    batch_size: fresh prompts a step.
    check_every: steps between evaluations.
    num_test: test prompts, drawn once a trial.
    max_samples: training prompts after which a trial is censored.
    screen: stop an evaluation as soon as the prompts read so far show that the test
      loss clears every open threshold; first passages are the same without it.

  Raises:
    InvalidSetting: for a setting outside its domain.
  """

  thresholds: tuple[float, ...] = (0.7,)
  optimizer: optax.GradientTransformation = _PUBLISHED_OPTIMIZER
  batch_size: int = 64
  check_every: int = 10
  num_test: int = 5000
  max_samples: int = 1_000_000
  screen: bool = True

  def __post_init__(self):
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
    require(
      self.num_checks >= 1,
      "max_samples",
      self.max_samples,
      f"at least batch_size * check_every = {self.batch_size * self.check_every}, "
      "the prompts before the first evaluation",
    )

  @property
  def num_checks(self) -> int:
    """Evaluations that the budget allows."""
    return self.max_samples // (self.batch_size * self.check_every)

  @property
  def budget(self) -> int:
    """Training prompts of a censored trial: those before its last evaluation."""
    return self.num_checks * self.check_every * self.batch_size


class Seeds(NamedTuple):
  """All randomness of a trial: `task` draws what is planted, `trial` the rest."""

  trial: PRNGKeyArray
  task: PRNGKeyArray


class Reference(NamedTuple):
  """The last full evaluation, from which the screen extrapolates (M test prompts).

  Zero before the first: the screen's estimate is then a plain mean.
  """

  errors: Float[Array, " M"]
  loss: Float[Array, ""]
  excess: Int[Array, ""]  # chunks read since, beyond the first of each check


class State(NamedTuple):
  """A trial in progress (C checks, K thresholds). Its seeds stay with who runs it."""

  params: Any
  opt_state: Any
  step: Int[Array, ""]
  checks: Int[Array, ""]
  curve: Float[Array, " C"]  # test loss after each check; NaN where not yet
  exact: Bool[Array, " C"]  # False where the screen's estimate stands
  crossings: Int[Array, " K"]  # step of first passage; 0 where not yet
  diverged_at: Int[Array, ""]  # step of the first loss not finite; 0 if none
  reference: Reference
  active: Bool[Array, ""]


def select(condition: Bool[Array, ""], new: Any, old: Any) -> Any:
  """Returns `new` where the condition holds, else `old`, sharing what they share."""
  return jax.tree.map(lambda a, b: a if a is b else jnp.where(condition, a, b), new, old)


class World(NamedTuple):
  """What a trial's seeds fix for its whole length; in no checkpoint."""

  planted: Any
  test: Any
  data_key: PRNGKeyArray


@dataclasses.dataclass(frozen=True)
class OnlineTrial:
  """One trial as pure functions: `init(seeds)`, then `advance(state, world)`.

  Attributes:
    task: what the training prompts are drawn from.
    test_task: what the test prompts are drawn from; shares `task`'s planted
      parameters.
    model: a `flax.linen` module [n N D] -> [n N] with parameters only.
    protocol: the settings.
  """

  task: Any
  test_task: Any
  model: nn.Module
  protocol: Online

  @property
  def _chunks(self) -> tuple[int, int]:
    """Number of chunks of the test set, and prompts in each (the last may be padded)."""
    size = min(_CHUNK, self.protocol.num_test)
    return -(-self.protocol.num_test // size), size

  def check_model(self, name: str) -> None:
    """Raises `InvalidSetting` unless the model maps [n N D] to [n N].

    Only shapes are computed.

    Args:
      name: how the model was asked for, for the message.
    """
    shape = (2, self.task.length, self.task.input_dim)
    takes = f"a module that maps inputs {list(shape)} to outputs {list(shape[:2])}"
    inputs = jax.ShapeDtypeStruct(shape, jnp.float32)
    try:
      variables = jax.eval_shape(self.model.init, jax.random.key(0), inputs)
    except Exception as error:
      raise InvalidSetting("models", name, f"{takes} (it raised: {error})") from error
    if set(variables) - {"params"}:
      extra = ", ".join(sorted(set(variables) - {"params"}))
      raise InvalidSetting(
        "models", name, f"a module with parameters only (it also has {extra})"
      )
    outputs = jax.eval_shape(self.model.apply, variables, inputs)
    got = getattr(outputs, "shape", None)
    if got != shape[:2]:
      described = list(got) if got is not None else type(outputs).__name__
      raise InvalidSetting("models", name, f"{takes} (it gave {described})")

  def init(self, seeds: Seeds) -> State:
    """Returns the state before the first step."""
    weights_key, _, _ = jax.random.split(seeds.trial, 3)
    inputs = jnp.zeros((1, self.task.length, self.task.input_dim))
    params = self.model.init(weights_key, inputs).get("params", {})
    checks, thresholds = self.protocol.num_checks, len(self.protocol.thresholds)
    return State(
      params=params,
      opt_state=self.protocol.optimizer.init(params),
      step=jnp.int32(0),
      checks=jnp.int32(0),
      curve=jnp.full(checks, jnp.nan),
      exact=jnp.zeros(checks, bool),
      crossings=jnp.zeros(thresholds, jnp.int32),
      diverged_at=jnp.int32(0),
      reference=Reference(
        jnp.zeros(math.prod(self._chunks)), jnp.float32(0), jnp.int32(0)
      ),
      active=jnp.array(True),
    )

  def state_shapes(self) -> State:
    """Returns a state's shapes and dtypes, `jax.ShapeDtypeStruct`s; computes nothing."""
    return jax.eval_shape(self.init, Seeds(jax.random.key(0), jax.random.key(0)))

  def world(self, seeds: Seeds) -> World:
    """Draws what stays fixed: planted parameters and test prompts."""
    _, data_key, test_key = jax.random.split(seeds.trial, 3)
    planted = self.task.init(seeds.task)
    test = self.test_task.sample(test_key, planted, math.prod(self._chunks))
    return World(planted, test, data_key)

  def advance(self, state: State, world: World) -> State:
    """Trains to the next check and evaluates: the whole protocol is its iteration."""
    return self.evaluate(self.train(state, world, self.protocol.check_every), world)

  def train(self, state: State, world: World, num_steps: int | Int[Array, ""]) -> State:
    """Takes `num_steps` steps on the averaged risk (2.2), a fresh batch each."""

    def loss_fn(params, sample):
      inputs = self.task.encode(world.planted, sample)
      return averaged_risk(predict(self.model, params, inputs), sample.labels)

    def one_step(_, carry):
      params, opt_state, step, diverged_at = carry
      batch_key = jax.random.fold_in(world.data_key, step)
      sample = self.task.sample(batch_key, world.planted, self.protocol.batch_size)
      loss, grads = jax.value_and_grad(loss_fn)(params, sample)
      updates, opt_state = self.protocol.optimizer.update(grads, opt_state, params)
      step = step + 1
      first_bad = ~jnp.isfinite(loss) & (diverged_at == 0)
      diverged_at = jnp.where(first_bad, step, diverged_at)
      return optax.apply_updates(params, updates), opt_state, step, diverged_at

    carry = (state.params, state.opt_state, state.step, state.diverged_at)
    carry = jax.lax.fori_loop(0, num_steps, one_step, carry)
    params, opt_state, step, diverged_at = carry
    finite = jax.tree.reduce(
      jnp.logical_and,
      jax.tree.map(lambda a: jnp.all(jnp.isfinite(a)), params),
      jnp.array(True),
    )
    diverged_at = jnp.where(~finite & (diverged_at == 0), step, diverged_at)
    return state._replace(
      params=params, opt_state=opt_state, step=step, diverged_at=diverged_at
    )

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
    thresholds = jnp.array(self.protocol.thresholds)
    due = state.reference.excess >= _SCREEN_EXCESS * num_chunks
    last_look = jnp.where(due, 0, min(_SCREEN_CHUNKS, num_chunks - 1))
    highest_open = jnp.max(jnp.where(state.crossings == 0, thresholds, -jnp.inf))

    def undecided(carry):
      k, _, _, _, decided = carry
      return (k < num_chunks) & ~decided

    def read_chunk(carry):
      k, errors, sums, _, _ = carry
      sample = jax.tree.map(
        lambda a: jax.lax.dynamic_slice_in_dim(a, k * size, size), world.test
      )
      inputs = self.test_task.encode(world.planted, sample)
      own = prompt_errors(predict(self.model, state.params, inputs), sample.labels)
      old = jax.lax.dynamic_slice_in_dim(state.reference.errors, k * size, size)
      change = jnp.where(k * size + jnp.arange(size) < num_test, own - old, 0.0)
      sums = sums + jnp.stack([jnp.sum(change), jnp.sum(change**2)])
      errors = jax.lax.dynamic_update_slice_in_dim(errors, own, k * size, 0)
      read = jnp.minimum((k + 1) * size, num_test)
      mean = sums[0] / read
      variance = (sums[1] - sums[0] * mean) / (read - 1)
      spread = jnp.sqrt(variance / read * (1 - read / num_test))
      estimate = state.reference.loss + mean
      # False when anything is NaN, as when a trial diverges.
      clear = estimate - _SCREEN_MARGIN * spread > highest_open
      decided = clear & (k < last_look) & self.protocol.screen
      return k + 1, errors, sums, estimate, decided

    start = (
      jnp.int32(0),
      jnp.zeros(num_chunks * size),
      jnp.zeros(2),
      jnp.float32(0),
      ~state.active,  # under vmap, a lane that is idle must not keep others reading
    )
    read, errors, _, estimate, decided = jax.lax.while_loop(undecided, read_chunk, start)
    full = Reference(errors, jnp.mean(errors[:num_test]), jnp.int32(0))
    excess = state.reference.excess + read - 1
    reference = select(decided, state.reference._replace(excess=excess), full)
    loss = jnp.where(decided, estimate, full.loss)
    return self._record(state._replace(reference=reference), loss, exact=~decided)

  def _record(self, state: State, loss: Float[Array, ""], *, exact) -> State:
    """Writes the loss of this check down and decides whether the trial ends."""
    bad = ~jnp.isfinite(loss) & (state.diverged_at == 0)
    diverged_at = jnp.where(bad, state.step, state.diverged_at)
    below = loss < jnp.array(self.protocol.thresholds)
    passed = below & (state.crossings == 0) & (diverged_at == 0)
    crossings = jnp.where(passed, state.step, state.crossings)
    checks = state.checks + 1
    ended = (
      jnp.all(crossings > 0) | (diverged_at > 0) | (checks >= self.protocol.num_checks)
    )
    return state._replace(
      checks=checks,
      curve=state.curve.at[state.checks].set(loss),
      exact=state.exact.at[state.checks].set(exact),
      crossings=crossings,
      diverged_at=diverged_at,
      active=~ended,
    )
