"""One trial as pure functions, whatever its protocol: `init(seeds)`, then `advance`."""

from __future__ import annotations

import abc
import collections
import contextlib
import copy
import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from sepfx import precision, specifications
from sepfx.errors import require
from sepfx.models import evaluate, evaluates_many, predict, record_name
from sepfx.models.building import modes
from sepfx.tasks.objectives import Objective
from sepfx.training.checks import check_model, check_optimizer
from sepfx.training.optimizers import evaluation_weights
from sepfx.training.states import Report, Seeds, State, World

# Steps whose batches are drawn together, at most: their rows are held in memory.
_STEPS_AHEAD = 64
# Samples that a model is evaluated on at once, where it does not know a better way.
_CHUNK = 500
# Tells the keys of the gradient penalty's signs from those of dropout.
_SIGNS = 0x7369676E

_Trial = TypeVar("_Trial", bound="Trial")
_Arguments = ParamSpec("_Arguments")
_Returned = TypeVar("_Returned")


def at_its_precision(
  method: Callable[Concatenate[_Trial, _Arguments], _Returned],
) -> Callable[Concatenate[_Trial, _Arguments], _Returned]:
  """A decorator of methods: matrices are multiplied as the trial's protocol says.

  For what a model computes. Its initial weights, samples and inputs are exact.
  """

  @functools.wraps(method)
  def call(trial: _Trial, *arguments: _Arguments.args, **options: _Arguments.kwargs):
    with trial.own_precision():
      return method(trial, *arguments, **options)

  return call


@dataclasses.dataclass(frozen=True)
class Trial(abc.ABC):
  """One trial as pure functions: `init(seeds)`, then `advance(state, world)`.

  A protocol is a subclass, which says where batches come from and what is measured at
  a check.

  Attributes:
    task: what the training samples are drawn from.
    test_task: what the test samples are drawn from; shares `task`'s planted
      parameters.
    model: a `flax.linen` module with parameters only, from the task's inputs to the
      outputs of its objective.
    protocol: the settings.
    model_name: how records call the model; "" for its class with the fields that are not
      at their defaults.
  """

  task: Any
  test_task: Any
  model: nn.Module
  protocol: Any
  model_name: str = ""

  @property
  def objective(self) -> Objective:
    """What is minimised and measured."""
    return self.task.objective

  @property
  def coordinates(self) -> dict[str, Any]:
    """What tells a cell from others, but for the axes of its grid."""
    return {
      "task": self.task.name,
      "model": self.model_name or record_name(self.model),
      "length": self.task.length,
      **self.protocol.coordinates,
    }

  @property
  def key_name(self) -> str:
    """What a trial's keys are folded from, together with the seed and its index.

    The model's fields are not in it, nor is any other setting: runs that differ in
    those are paired trial by trial.
    """
    coordinates = self.coordinates
    coordinates["model"] = specifications.base(coordinates["model"])
    return "/".join(f"{key}={value}" for key, value in coordinates.items())

  def own_precision(self) -> contextlib.AbstractContextManager[None]:
    """Within it matrices are multiplied as the protocol says; by default in float32."""
    own = getattr(self.protocol, "matmul_precision", "float32")
    return jax.default_matmul_precision(own)

  @property
  def exact(self: _Trial) -> _Trial:
    """The same, with matrices of float32 multiplied as such on any device."""
    # Not by the constructor, which checks: fields may be tracers.
    protocol = copy.copy(self.protocol)
    object.__setattr__(protocol, "matmul_precision", "float32")
    return dataclasses.replace(self, protocol=protocol)

  @property
  def mode(self) -> str:
    """By what the model is told whether it learns, as "train"; "" for nothing."""
    return modes.described(self.model)

  @property
  def num_parameters(self) -> int:
    """Numbers that the model learns."""
    leaves = jax.tree.leaves(self.state_shapes().params)
    return sum(math.prod(leaf.shape) for leaf in leaves)

  @property
  def most_steps(self) -> int:
    """Steps of a trial that spends its budget."""
    return self.protocol.num_checks * self.protocol.check_every

  @property
  def run_to_end(self) -> bool:
    """Whether a trial goes on when all its thresholds are reached."""
    return False

  # What a protocol says.

  @property
  @abc.abstractmethod
  def progress(self) -> tuple[str, int]:
    """What a curve is drawn against, and how much of it lies between two checks."""

  @property
  @abc.abstractmethod
  def watched(self) -> str:
    """What of a curve thresholds are held against."""

  @property
  @abc.abstractmethod
  def samples_a_step(self) -> int:
    """Samples that one gradient is taken on."""

  @property
  @abc.abstractmethod
  def columns(self) -> dict[str, type]:
    """Names, as records call them, and types of what `outcomes` gives."""

  @abc.abstractmethod
  def blank(self) -> tuple[Any, Any]:
    """Returns a curve of no checks yet and the memory before the first."""

  @abc.abstractmethod
  def world(self, seeds: Seeds) -> World:
    """Draws what stays fixed: planted parameters, samples."""

  @abc.abstractmethod
  def batch(self, world: World, step: Int[Array, ""] | int) -> Any:
    """Returns the sample that the step takes its gradient on.

    Where `draws_rows`, `batch(world, step, rows)` takes the rows that are known already.
    """

  @property
  def draws_rows(self) -> bool:
    """Whether batches are parts of one fixed sample."""
    return False

  def rows(self, world: World, steps: Int[Array, " s"]) -> Int[Array, "s n"]:
    """Returns of which rows of the sample the batches of some steps are made."""
    raise TypeError(f"{type(self.protocol).__name__} draws no rows of a sample")

  @abc.abstractmethod
  def evaluate(self, state: State, world: World) -> State:
    """Measures, records, and decides whether the trial ends."""

  @abc.abstractmethod
  def outcomes(self, report: Report) -> Sequence[tuple]:
    """Returns what the trial came to, one tuple per row of its records."""

  # Of an evaluation in two stages, for lanes that are computed together.

  @property
  def glances(self) -> bool:
    """Whether there is such an evaluation; it has to come to what `evaluate` does."""
    return False

  def glance(self, state: State, world: World) -> tuple[State, Bool[Array, ""]]:
    """Evaluates on the first test samples alone.

    Returns:
      The state with what they tell recorded, and whether that decides: where it does not,
      `evaluate_in_full` is to follow on the state before.
    """
    raise TypeError(f"{type(self).__name__} has one evaluation")

  def evaluate_in_full(self, state: State, world: World) -> State:
    """Evaluates on all test samples, and records what they tell, where `glances`."""
    raise TypeError(f"{type(self).__name__} has one evaluation")

  # What all share.

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

  def _shapes(self, n: int) -> tuple[Any, jax.ShapeDtypeStruct]:
    """Shapes of a sample of n and of its inputs."""

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
    zeros = jnp.zeros(inputs.shape, inputs.dtype)
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
      loss = loss + self.protocol.l2 * _squares(params)
    if self.protocol.gradient_penalty is not None and key is not None:
      size = self._squared_gradient(params, inputs, jax.random.fold_in(key, _SIGNS))
      loss = loss + self.protocol.gradient_penalty * size
    return loss

  def _squared_gradient(
    self, params: Any, inputs: Any, key: PRNGKeyArray
  ) -> Float[Array, ""]:
    """An unbiased estimate of 2 E |grad f|^2, f an output without dropout.

    The gradient of a sum of outputs with random signs: squares add up in its squared
    norm, and products cancel in expectation.
    """

    def signed(own: Any) -> Float[Array, ""]:
      outputs = predict(self.model, own, inputs)
      signs = jax.random.rademacher(key, outputs.shape, outputs.dtype)
      return jnp.sum(signs * outputs) / outputs.size**0.5

    return 2 * _squares(jax.grad(signed)(params))

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
  def measured(
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


def _squares(params: Any) -> Float[Array, ""]:
  return sum((jnp.sum(a**2) for a in jax.tree.leaves(params)), jnp.zeros(()))


def check_options(protocol: Any) -> None:
  """Raises `InvalidSetting` for a penalty or a scale that no protocol takes."""
  for name in ("l2", "gradient_penalty"):
    weight = getattr(protocol, name)
    require(weight is None or 0 <= weight < np.inf, name, weight, "a number >= 0")
  scale = protocol.init_scale
  positive = scale is None or 0 < scale < np.inf
  require(positive, "init_scale", scale, "a positive number")
