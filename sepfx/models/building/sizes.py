"""The widths with which a model has so many parameters."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

import flax.linen as nn
import jax
from jax import Array

from sepfx import specifications
from sepfx.errors import InvalidSetting, require
from sepfx.models.building import modes
from sepfx.models.building.published import PUBLISHED, build

# By how much of the number of parameters that was asked for a model may miss it.
_CLOSE = 0.05


def sized(name: str, task: Any, num_parameters: int) -> dict[str, Any]:
  """Returns the fields with which a named model has about so many parameters.

  One width is scaled, or all by one factor: the read-out's of the Transformer and linear
  attention, the state of recurrent networks, the dense layer of what is behind one, the
  residual stream (in multiples of four heads) of the deep Transformer.

  Args:
    name: a specification, one of `NAMES` for the task's objective with other fields.
    task: what it is to learn.
    num_parameters: wanted, a positive number.

  Raises:
    InvalidSetting: for a model of another name, a field that would be scaled, a number
      of which no width comes within 5%, or for what `build` refuses.
  """
  require(num_parameters > 0, "num_parameters", num_parameters, "a positive number")
  fields = _sized(name, task)
  inputs = jax.eval_shape(lambda key: _inputs(task, key), jax.random.key(0))

  def count(k: int) -> int:
    return _num_parameters(build(name, task, fields(task, k)), inputs)

  check_sized(name, task, ())
  low, high = 1, 2
  while count(high) < num_parameters:
    low, high = high, 2 * high
  while high - low > 1:
    middle = (low + high) // 2
    low, high = (middle, high) if count(middle) < num_parameters else (low, middle)
  best = min((low, high), key=lambda k: abs(count(k) - num_parameters))
  found = count(best)
  takes = f"a number that a width reaches; the nearest of {name} is {found}"
  close = abs(found - num_parameters) <= _CLOSE * num_parameters
  require(close, "num_parameters", num_parameters, takes)
  return fields(task, best)


def check_sized(name: str, task: Any, given: Iterable[str]) -> None:
  """Raises `InvalidSetting` if fields are given that follow from a number of parameters.

  Args:
    name: the model's specification, whose own fields count.
    task: what it is to learn.
    given: names of further fields.
  """
  specification = specifications.parse(name, "model")
  fixed = {*_sized(name, task)(task, 1)} & {*specification.fields, *given}
  takes = f"a model without {', '.join(sorted(fixed))}, which it sets"
  require(not fixed, "num_parameters", name, takes)


def _sized(name: str, task: Any) -> Callable[[Any, int], dict[str, Any]]:
  own = PUBLISHED.get(task.objective.name, {}).get(
    specifications.parse(name, "model").name
  )
  if own is None or own.sized is None:
    takes = "a model whose widths are known to scale: one of those named for tokens"
    raise InvalidSetting("num_parameters", name, takes)
  return own.sized


def _inputs(task: Any, key: Array) -> Array:
  planted = task.init(key)
  return task.encode(planted, task.sample(key, planted, 1))


@functools.lru_cache(1000)  # a grid asks for one size in each of its cells
def _num_parameters(module: nn.Module, inputs: jax.ShapeDtypeStruct) -> int:
  params = jax.eval_shape(
    functools.partial(modes.init, module), jax.random.key(0), inputs
  )
  return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))
