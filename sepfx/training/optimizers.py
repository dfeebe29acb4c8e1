"""Optimizers whose rates are data of the lanes, and their specifications."""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax

from sepfx import kinds, specifications
from sepfx.errors import InvalidSetting, require
from sepfx.lanewise import lanewise


def check_rate(learning_rate: float) -> None:
  """Raises `InvalidSetting` unless it is one."""
  # Below the smallest normal number of 32 bits it would be none.
  positive = math.isfinite(learning_rate) and learning_rate >= 1.2e-38
  require(positive, "learning_rate", learning_rate, "a positive number")


class _OfOptax(abc.ABC):
  """An optimizer with optax's `init` and `update`, made anew from fields at each call.

  So a field may be data of a lane.
  """

  @property
  @abc.abstractmethod
  def _transformation(self) -> optax.GradientTransformation: ...

  def init(self, params: Any) -> Any:
    """Returns the state before the first step."""
    return self._transformation.init(params)

  def update(
    self, grads: Any, state: Any, params: Any = None, **extra: Any
  ) -> tuple[Any, Any]:
    """Returns the steps and the next state; `extra` is for optimizers that take more."""
    own = optax.with_extra_args_support(self._transformation)
    return own.update(grads, state, params, **extra)


@lanewise("learning_rate", "weight_decay", "rho")
@dataclasses.dataclass(frozen=True)
class AdamW(_OfOptax):
  """Adam with decoupled weight decay.

  Adam's betas and epsilon are optax's. They are constants of the program: as arguments
  they would change its last digits.

  Attributes:
    learning_rate: eta.
    weight_decay: decoupled, multiplied by the learning rate.
    clip_norm: of the global gradient norm; 0 for none.
    decay: what is decayed, "all" parameters or "kernels" (weight matrices of linear
      layers, whose names end in "kernel", and not biases, layer norms or embeddings).
    warmup_steps: over which the rate rises from 0.
    decay_steps: over which it falls to 0 like a cosine, warm-up included; 0 for a
      constant rate.
    rho: radius of sharpness-aware minimisation (Foret et al., 2021), whose steps use the
      gradient g' at rho g / |g| from the weights in place of their own, g; None for
      ordinary steps.

  Raises:
    InvalidSetting: for a setting outside its domain.
  """

  learning_rate: float = 1e-3
  weight_decay: float = 0.01
  clip_norm: float = 0.0
  decay: Literal["all", "kernels"] = "all"
  warmup_steps: int = 0
  decay_steps: int = 0
  rho: float | None = None

  def __post_init__(self):
    kinds.settle(self)
    check_rate(self.learning_rate)
    for name in ("weight_decay", "clip_norm"):
      value = getattr(self, name)
      require(math.isfinite(value) and value >= 0, name, value, "a number >= 0")
    proper = self.rho is None or 0 < self.rho < math.inf
    require(proper, "rho", self.rho, "a positive number, or none")
    known = ("all", "kernels")
    require(self.decay in known, "decay", self.decay, " or ".join(known))
    warm, steps = self.warmup_steps, self.decay_steps
    require(warm >= 0, "warmup_steps", warm, "an integer >= 0")
    takes = f"0, or an integer above warmup_steps = {warm}"
    require(steps == 0 or steps > warm, "decay_steps", steps, takes)

  @property
  def _transformation(self) -> optax.GradientTransformation:
    mask = _kernels if self.decay == "kernels" else None
    adam = optax.adamw(self._rate, weight_decay=self.weight_decay, mask=mask)
    clipping = optax.clip_by_global_norm(self.clip_norm)
    own = optax.chain(clipping, adam) if self.clip_norm else adam
    if self.rho is None:
      return own
    climbing = optax.chain(optax.contrib.normalize(), optax.sgd(self.rho))
    return optax.contrib.sam(own, climbing, sync_period=2, opaque_mode=True)

  @property
  def _rate(self) -> Any:
    if not (self.warmup_steps or self.decay_steps):
      return self.learning_rate
    rise = optax.linear_schedule(0.0, 1.0, self.warmup_steps)
    fall = optax.constant_schedule(1.0)
    if self.decay_steps:
      fall = optax.cosine_decay_schedule(1.0, self.decay_steps - self.warmup_steps)
    shape = optax.join_schedules([rise, fall], [self.warmup_steps])
    return lambda count: self.learning_rate * shape(count)


def _kernels(params: Any) -> Any:
  """Which parameters are kernels."""
  return jax.tree_util.tree_map_with_path(
    lambda path, _: str(path[-1].key).endswith("kernel"), params
  )


@lanewise("learning_rate")
@dataclasses.dataclass(frozen=True)
class FromOptax(_OfOptax):
  """An optimizer of optax or `optax.contrib`, by its name there.

  Attributes:
    name: such as "sgd" or "lion".
    learning_rate: eta.
    options: its other arguments, constants of the program.
  """

  name: str
  learning_rate: float = 1e-3
  options: tuple[tuple[str, Any], ...] = ()

  def __post_init__(self):
    kinds.settle(self)
    check_rate(self.learning_rate)

  @property
  def _transformation(self) -> optax.GradientTransformation:
    return _of_optax(self.name)(self.learning_rate, **dict(self.options))


def _of_optax(name: str) -> Any:
  return getattr(optax, name, None) or getattr(optax.contrib, name, None)


def adam_with_kernel_decay(
  learning_rate: float = 1e-3, weight_decay: float = 1e-4, clip_norm: float = 1.0
) -> AdamW:
  """Adam as *Inductive Biases and Variable Creation* leaves it to be understood.

  Decoupled weight decay, on the weight matrices of linear layers alone.

  Args:
    learning_rate: eta.
    weight_decay: decoupled, multiplied by the learning rate.
    clip_norm: of the global gradient norm; 0 for none.
  """
  return AdamW(learning_rate, weight_decay, clip_norm, decay="kernels")


def optimizer(text: str, default: AdamW) -> AdamW | FromOptax:
  """Returns what a specification stands for.

  Args:
    text: "adamw", or the name of an optimizer in optax or `optax.contrib`, and fields:
      "adamw:decay_steps=5000", "sgd:momentum=0.9".
    default: AdamW's fields where none are given; its learning rate is every
      optimizer's.

  Raises:
    InvalidSetting: for another name, an unknown field or a value of another type.
  """
  specification = specifications.parse(text, "optimizer")
  if specification.name == "adamw":
    fields = specifications.typed(specification, AdamW, "optimizer")
    try:
      return dataclasses.replace(default, **fields)
    except InvalidSetting as error:
      takes = f"{error.takes} as {error.setting}"
      raise InvalidSetting("optimizer", text, takes) from error
  factory = _of_optax(specification.name)
  parameters = kinds.fields_of(factory) if callable(factory) else {}
  takes = "adamw, or the name of an optimizer with a learning rate in optax"
  require("learning_rate" in parameters, "optimizer", text, takes)
  fields = specifications.typed(specification, factory, "optimizer")
  rate = fields.pop("learning_rate", default.learning_rate)
  return FromOptax(specification.name, rate, tuple(fields.items()))


def evaluation_weights(state: Any, params: Any) -> Any:
  """The weights at which an optimizer says that a model is to be evaluated.

  Schedule-free optimizers (Defazio et al., "The Road Less Scheduled", 2024) step from
  weights that lie between two sequences. They are evaluated at one of the two, an
  average: `optax.contrib.schedule_free_eval_params`. Optax has no other optimizer that is
  evaluated elsewhere.

  Args:
    state: the optimizer's, which may hold a `ScheduleFreeState` anywhere: under
      `optax.chain`, `optax.inject_hyperparams`, `optax.masked` and the like.
    params: those that its steps move.

  Returns:
    `params` itself, for other optimizers.
  """
  leaves = jax.tree.leaves(state, is_leaf=_is_schedule_free)
  for own in filter(_is_schedule_free, leaves):
    params = jax.tree.map(
      functools.partial(_average, own), own.z, params, is_leaf=_is_masked
    )
  return params


def _average(state: optax.contrib.ScheduleFreeState, z: Any, params: Any) -> Any:
  """One leaf's, or the parameters themselves where others are optimized."""
  if _is_masked(z):
    return params
  own = optax.contrib.schedule_free_eval_params(state._replace(z=z), params)
  return own.astype(params.dtype)


def _is_schedule_free(own: Any) -> bool:
  return isinstance(own, optax.contrib.ScheduleFreeState)


def _is_masked(own: Any) -> bool:
  return isinstance(own, optax.MaskedNode)


def penalised(
  optimizer: optax.GradientTransformation | AdamW, l2: Callable[[Any], Any]
) -> optax.GradientTransformation:
  """An optimizer that adds the gradient of a penalty on all squared parameters.

  With a penalty that falls, each a little after the last, it follows the path of
  penalised minimisers from small norms to large ones. `ERM` that watches the training
  loss ends where the path first has a loss below its threshold eps. Where the loss is
  convex and the penalty falls slowly, its weights have the least norm of all whose loss
  is at most eps. That is (2.4) of the main paper, which takes eps above the least loss.
  Where it is not convex, they are some point of that loss, and nothing says that its
  norm is the least.

  Args:
    optimizer: makes the steps, from the gradient at the weights alone.
    l2: number of steps taken -> the penalty's factor, at least 0.

  Raises:
    InvalidSetting: for an `AdamW` with rho, which takes another gradient.
  """
  rho = getattr(optimizer, "rho", None)
  require(rho is None, "rho", rho, "none: the other gradient would have no penalty")
  inner = optax.with_extra_args_support(optimizer)

  def init(params):
    return jnp.int32(0), inner.init(params)

  def update(grads, state, params=None, **extra):
    step, own = state
    factor = 2 * l2(step)
    grads = jax.tree.map(lambda grad, value: grad + factor * value, grads, params)
    steps, own = inner.update(grads, own, params, **extra)
    return steps, (step + 1, own)

  return optax.GradientTransformationExtraArgs(init, update)


def projected(
  optimizer: optax.GradientTransformation | AdamW,
  projection: Callable[[Any], Any],
) -> optax.GradientTransformation:
  """An optimizer whose every step is followed by a projection of the parameters.

  With the projection onto a norm ball, from `optax.projections` for instance, it is
  projected gradient descent for the constrained empirical risk minimiser (section 2
  of the main paper). Its limit is that minimiser where the loss is convex, and a
  stationary point of the constrained problem at most where it is not.

  Args:
    optimizer: makes the step.
    projection: parameters -> the nearest ones allowed.
  """

  inner = optax.with_extra_args_support(optimizer)

  def update(grads, state, params=None, **extra):
    steps, state = inner.update(grads, state, params, **extra)
    allowed = projection(optax.apply_updates(params, steps))
    return jax.tree.map(lambda new, old: new - old, allowed, params), state

  return optax.GradientTransformationExtraArgs(inner.init, update)
