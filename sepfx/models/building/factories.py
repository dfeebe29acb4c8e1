"""What makes one module for each task, and what is a module at all."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any

import flax.linen as nn

from sepfx import kinds, specifications
from sepfx.errors import InvalidSetting, require, said
from sepfx.models.building import nnx_modules


def made(
  factory: Callable, task: Any, name: Any, fields: Mapping[str, Any] | None = None
) -> nn.Module:
  """Returns the module that a class or factory makes for a task.

  Args:
    factory: of `flax.linen` modules; or a class of `flax.nnx` modules, or a function of
      `rngs` that returns one. Where it has a parameter `task` or `length`, it is given
      the task, or the task's length.
    task: what the module is to learn.
    name: what it was given as, for messages.
    fields: other arguments.

  Raises:
    InvalidSetting: for what makes no module, or needs other arguments.
  """
  parameters = _parameters(factory)
  of_task = {"task": task, "length": task.length}
  own = {key: value for key, value in of_task.items() if key in parameters}
  own |= fields or {}
  if nnx_modules.is_class(_innermost(factory)) or "rngs" in parameters:
    return nnx_modules.wrapped(factory, own)
  try:
    module = factory(**own)
  except TypeError as error:
    takes = "a factory that needs nothing but the fields given "
    takes += f"({said(error)})"
    raise InvalidSetting("model", name, takes) from error
  check_module(module, name)
  return nnx_modules.hashable(module)


def makes_modules(value: Any) -> bool:
  """Whether a value is given in place of modules, to make one for each task.

  It is a callable with a parameter `task` or `length`, a class of `flax.nnx` modules, or
  a callable with a parameter `rngs`.
  """
  if isinstance(value, nn.Module) or nnx_modules.is_instance(value):
    return False
  is_class = nnx_modules.is_class(_innermost(value))
  return is_class or not {"task", "length", "rngs"}.isdisjoint(_parameters(value))


def factory_name(factory: Callable) -> str:
  """How records call the modules of a factory, the same for every task."""
  return specifications.name_of(factory)


def _parameters(factory: Any) -> Collection[str]:
  """Names of what a callable takes; none if it is no callable or does not tell."""
  try:
    return kinds.parameters_of(factory)
  except (TypeError, ValueError):
    return ()


def _innermost(factory: Any) -> Any:
  while isinstance(factory, functools.partial):
    factory = factory.func
  return factory


def check_module(module: Any, name: Any) -> None:
  """Raises `InvalidSetting`, and says how to mend it, unless it is a linen module."""
  own = type(module).__name__
  if isinstance(module, type):
    hint = f"an instance: did you forget () after {module.__name__}?"
  elif nnx_modules.is_instance(module):
    name = f"{own}(...)" if name is module else name  # all its weights would be shown
    hint = f"no flax.nnx module that has weights: each trial draws its own. Give {own} "
    hint += f"itself, or flax.nnx.bridge.to_linen({own}, ...) with its arguments but rngs"
  else:
    hint = f"a flax.linen module, or a factory of one (this is {own})"
  require(isinstance(module, nn.Module), "model", name, hint)
