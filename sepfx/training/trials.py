"""One trial as pure functions, whatever its protocol: `init(seeds)`, then `advance`.

What differs from protocol to protocol is in `interface`.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from sepfx import precision
from sepfx.errors import require
from sepfx.models import evaluate, evaluates_many, predict
from sepfx.models.building import modes
from sepfx.training.checks import check_model, check_optimizer
from sepfx.training.interface import TrialInterface, at_its_precision
from sepfx.training.optimizers import evaluation_weights
from sepfx.training.penalties import squared_gradient, squared_norm
from sepfx.training.states import Report, Seeds, State, World

# Steps whose batches are drawn together, at most: their rows are held in memory.
_STEPS_AHEAD = 64
# Samples that a model is evaluated on at once, where it does not know a better way.
_CHUNK = 500


@dataclasses.dataclass(frozen=True)
class Trial(TrialInterface):
  """One trial as pure functions: `init(seeds)`, then `advance(state, world)`.

  A protocol is a subclass, which says where batches come from and what is measured at
  a check. `TrialInterface` has the fields and what is to be said.
  """

  @property
  def num_parameters(self) -> int:
    """Numbers that the model learns."""
    leaves = jax.tree.leaves(self.state_shapes().params)
    return sum(math.prod(leaf.shape) for leaf in leaves)

  def check(self) -> None:
    """Raises `InvalidSetting` unless model, task, optimizer and thresholds go together.

    Only shapes are computed.
    """
    sample, inputs = self._shapes(2)
    outputs = self.objective.output_shape(sample.labels.shape)
    params = check_model(self.model, self.coordinates["model"], inputs, outputs)
    check_optimizer(self.protocol.optimizer, params)
    error = self.test_task.best_constant_error()
    for threshold in self.protocol.error_thresholds:
      takes = f"numbers below {error:.4g}, the error of the best constant"
      require(threshold < error, "thresholds", threshold, takes)

  def _shapes(self, n: int) -> tuple[Any, Any]:
    """Shapes of a sample of n and of its inputs: an array's, or several."""

    def draw(key):
      planted = self.task.init(key)
      sample = self.task.sample(key, planted, n)
      return sample, self.task.encode(planted, sample)

    return jax.eval_shape(draw, jax.random.key(0))

  @precision.exact()
  def init(self, seeds: Seeds) -> State:
    """Returns the state before the first step."""
    weights_key, *_ = self.split(seeds)
    _, inputs = self._shapes(1)
    zeros = jax.tree.map(lambda own: jnp.zeros(own.shape, own.dtype), inputs)
    params = modes.init(self.model, weights_key, zeros)
    params = params.get("params", {})
    if self.protocol.init_scale is not None:
      params = jax.tree.map(lambda a: self.protocol.init_scale * a, params)
    curve, memory = self.blank()
    return State(
      params=params,
      opt_state=self.protocol.optimizer.init(params),
      step=jnp.int32(0),
      checks=jnp.int32(0),
      curve=curve,
      crossings=jnp.zeros(len(self.protocol.thresholds), jnp.int32),
      diverged_at=jnp.int32(0),
      memory=memory,
      active=jnp.array(True),
    )

  def weights(self, state: State) -> Any:
    """The parameters at which a trial is evaluated, kept and probed.

    They are those that the steps move, but for optimizers that say others
    (`evaluation_weights`).
    """
    return evaluation_weights(state.opt_state, state.params)

  def curve(self, report: Report) -> np.ndarray:
    """Returns what was measured at each check, a structured array [checks].

    Its fields are what `progress` names, then those of the state's curve.
    """
    name, between = self.progress
    checks = int(report.checks)
    measured = {key: np.asarray(a)[:checks] for key, a in report.curve._asdict().items()}
    columns = {name: between * np.arange(1, checks + 1), **measured}
    array = np.empty(checks, [(key, own.dtype) for key, own in columns.items()])
    for key, own in columns.items():
      array[key] = own
    return array

  def report_of(self, curve: np.ndarray, diverged_at: int = 0) -> Report:
    """Returns the report that a curve was made from, as `record` decides it.

    Args:
      curve: from `curve`, of one check or more.
      diverged_at: the step of the first number that was not finite, which a curve does
        not tell; 0 if all were.
    """
    _, *names = curve.dtype.names or ()
    losses = curve[self.watched]
    steps = self.protocol.check_every * np.arange(1, len(curve) + 1)
    below = losses[:, None] < np.asarray(self.protocol.thresholds, losses.dtype)
    if diverged_at:
      below &= (steps < diverged_at)[:, None]
    crossings = np.where(below.any(axis=0), steps[below.argmax(axis=0)], 0)
    own = _point_type(tuple(names))(*(curve[name] for name in names))
    fields: tuple[Any, ...] = (steps[-1], len(curve), own, crossings, diverged_at, False)
    return Report(*fields)

  def split(self, seeds: Seeds) -> tuple[PRNGKeyArray, ...]:
    """Keys of initial weights, training samples, test samples and dropout."""
    return tuple(jax.random.split(seeds.trial, 4))

  def state_shapes(self) -> State:
    """Returns a state's shapes and dtypes, `jax.ShapeDtypeStruct`s; computes nothing."""
    return jax.eval_shape(self.init, Seeds(jax.random.key(0), jax.random.key(0)))

  def advance(self, state: State, world: World) -> State:
    """Trains to the next check and evaluates: the whole protocol is its iteration."""
    return self.evaluate(self.train(state, world, self.protocol.check_every), world)

  @at_its_precision
  def loss(
    self, params: Any, sample: Any, world: World, key: PRNGKeyArray | None = None
  ) -> Float[Array, ""]:
    """What is minimised: the mean loss of a sample, and the penalties if there are any.

    Args:
      params: the model's.
      sample: of the task.
      world: the trial's.
      key: of dropout and of the gradient penalty; None for neither.
    """
    inputs = self._encoded(self.task, world, sample)
    outputs = predict(self.model, params, inputs, dropout_key=key)
    loss = jnp.mean(self.objective.loss(outputs, sample.labels))
    if self.protocol.l2 is not None:
      loss = loss + self.protocol.l2 * squared_norm(params)
    if self.protocol.gradient_penalty is not None and key is not None:
      size = squared_gradient(self.model, params, inputs, key)
      loss = loss + self.protocol.gradient_penalty * size
    return loss

  @at_its_precision
  def errors(
    self, params: Any, task: Any, sample: Any, world: World
  ) -> Float[Array, " n"]:
    """The error of each of n samples, without dropout, all of them at once.

    Args:
      params: the model's.
      task: which of the two the sample is of; it may have a `score` of its own.
      sample: n samples.
      world: the trial's.
    """

    def apply(inputs: Any) -> Array:
      with self.own_precision():
        return evaluate(self.model, params, inputs)

    if hasattr(task, "score"):
      with precision.exact():
        return task.score(apply, world.planted, sample, world.sample)
    outputs = apply(self._encoded(task, world, sample))
    return self.objective.error(outputs, sample.labels)

  @staticmethod
  @precision.exact()
  def _encoded(task: Any, world: World, sample: Any) -> Any:
    """What the model sees of a sample. A task may multiply matrices for it."""
    return task.encode(world.planted, sample)

  @at_its_precision
  def errors_and_losses(
    self, params: Any, task: Any, sample: Any, world: World
  ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """`errors` and losses of n samples, also where n do not fit in memory at once."""

    def both(part):
      outputs = evaluate(self.model, params, self._encoded(task, world, part))
      losses = self.objective.loss(outputs, part.labels)
      if hasattr(task, "score"):
        return self.errors(params, task, part, world), losses
      return self.objective.error(outputs, part.labels), losses

    n = len(sample.labels)
    if evaluates_many(self.model) or n <= _CHUNK:
      return both(sample)
    whole = n // _CHUNK * _CHUNK
    chunks = jax.tree.map(lambda a: a[:whole].reshape(-1, _CHUNK, *a.shape[1:]), sample)
    parts = jax.tree.map(lambda a: a.reshape(whole), jax.lax.map(both, chunks))
    if whole == n:
      return parts
    last = both(jax.tree.map(lambda a: a[whole:], sample))
    return jax.tree.map(lambda *a: jnp.concatenate(a), parts, last)

  @at_its_precision
  def train(self, state: State, world: World, num_steps: int | Int[Array, ""]) -> State:
    """Takes `num_steps` steps, each on the loss of a batch."""
    optimizer = self.protocol.optimizer
    if isinstance(optimizer, optax.GradientTransformation):
      optimizer = optax.with_extra_args_support(optimizer)

    def one_step(carry, *row):
      params, opt_state, step, diverged_at = carry
      sample = self.batch(world, step, *row)
      key = jax.random.fold_in(world.keys.dropout, step)

      def gradient(params, _=None):  # for optimizers that take another one on the way
        return jax.grad(self.loss)(params, sample, world, key)

      loss, grads = jax.value_and_grad(self.loss)(params, sample, world, key)
      updates, opt_state = optimizer.update(grads, opt_state, params, grad_fn=gradient)
      step = step + 1
      first_bad = ~jnp.isfinite(loss) & (diverged_at == 0)
      diverged_at = jnp.where(first_bad, step, diverged_at)
      return optax.apply_updates(params, updates), opt_state, step, diverged_at

    # What one loop computes for many steps is not computed in each of them.
    block = min(self.protocol.check_every, _STEPS_AHEAD)

    def some_steps(k, carry):
      rows = self.rows(world, carry[2] + jnp.arange(block))
      number = jnp.minimum(block, num_steps - k * block)
      return jax.lax.fori_loop(0, number, lambda j, own: one_step(own, rows[j]), carry)

    carry = (state.params, state.opt_state, state.step, state.diverged_at)
    if self.draws_rows:
      blocks = (num_steps + block - 1) // block
      carry = jax.lax.fori_loop(0, blocks, some_steps, carry)
    else:
      carry = jax.lax.fori_loop(0, num_steps, lambda _, own: one_step(own), carry)
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

  def record(self, state: State, error: Float[Array, ""], point: Any) -> State:
    """Writes down what a check measured and whether the trial ends with it.

    Args:
      state: at the check.
      error: the test error, which thresholds are held against.
      point: the curve's values at this check.
    """
    bad = ~jnp.isfinite(error) & (state.diverged_at == 0)
    diverged_at = jnp.where(bad, state.step, state.diverged_at)
    below = error < jnp.array(self.protocol.thresholds)
    passed = below & (state.crossings == 0) & (diverged_at == 0)
    crossings = jnp.where(passed, state.step, state.crossings)
    checks = state.checks + 1
    decided = jnp.all(crossings > 0) & (not self.run_to_end)
    ended = decided | (diverged_at > 0) | (checks >= self.protocol.num_checks)
    curve = jax.tree.map(lambda a, b: a.at[state.checks].set(b), state.curve, point)
    return state._replace(
      checks=checks,
      curve=curve,
      crossings=crossings,
      diverged_at=diverged_at,
      active=~ended,
    )


# Named scalars of (trial, trained parameters, its world, a key), taken when it has ended.
Probe = Callable[[Trial, Any, World, PRNGKeyArray], Mapping[str, Array]]


@dataclasses.dataclass(frozen=True, eq=False)
class Probes:
  """Several probes as one.

  Attributes:
    each: by its name; no two give a value of one name.
  """

  each: Mapping[str, Probe]

  def __call__(
    self, trial: Trial, params: Any, world: World, key: PRNGKeyArray
  ) -> dict[str, Array]:
    values: dict[str, Any] = {}
    for probe in self.each.values():
      values.update(probe(trial, params, world, key))
    return {name: jnp.asarray(value, jnp.float32) for name, value in values.items()}


def probe_key(seeds: Seeds) -> PRNGKeyArray:
  """The key that a trial's probes get: none of those that its training uses."""
  return jax.random.fold_in(seeds.trial, 0x70726F62)


@functools.cache
def _point_type(names: tuple[str, ...]) -> Any:
  return collections.namedtuple("Curve", names)
