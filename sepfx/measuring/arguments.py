"""What may be given to a call of Python, in words for such a call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import flax.linen as nn
import numpy as np

from sepfx import kinds, specifications
from sepfx import models as models_lib
from sepfx.errors import InvalidSetting, require


def listed(name: str, values: Any, what: str) -> list:
  """One value, or several, as a list of Python's own numbers."""
  if isinstance(values, np.ndarray | np.generic):
    values = values.tolist()
  single = isinstance(values, str | nn.Module) or not isinstance(values, Iterable)
  own = [values] if single or isinstance(values, type) else list(values)
  require(bool(own), name, own, f"at least one {what}")
  return [value.item() if isinstance(value, np.generic) else value for value in own]


def whole(name: str, value: Any, least: int = 0) -> int:
  """A number that has to be whole: 4.0 and "4" are."""
  takes = f"an integer from {least} to 2^32 - 1"
  try:
    whole = kinds.taken(value, int, name)
  except InvalidSetting as error:
    raise InvalidSetting(name, value, takes) from error
  require(isinstance(whole, int) and least <= whole < 2**32, name, value, takes)
  return int(whole)


def made(factory: Any, task: Any, name: str) -> nn.Module:
  """The module of a factory, with errors that say `models`."""
  try:
    return models_lib.made(factory, task, name)
  except InvalidSetting as error:
    raise InvalidSetting("models", error.got, error.takes) from error


def check_model(module: Any) -> None:
  """Raises `InvalidSetting`, in words for a Python call, unless it is a linen module."""
  is_factory = callable(module) and not isinstance(module, type | nn.Module)
  own = getattr(module, "__name__", "")
  takes = f"a module, not what makes one: did you forget () after {own}? "
  takes += "(One module per cell is made by a function of `task` or `length`.)"
  require(not (is_factory and bool(own)), "models", module, takes)
  try:
    models_lib.check_module(module, module)
  except InvalidSetting as error:
    raise InvalidSetting("models", error.got, error.takes) from error


def check_name(name: str, module: nn.Module) -> None:
  """Raises `InvalidSetting` for a user's module that is named as one of the library."""
  is_own = not type(module).__module__.startswith("sepfx.models")
  known = {each for names in models_lib.NAMES.values() for each in names}
  takes = "a module of another name: this one is a model's of the library"
  require(not (is_own and specifications.base(name) in known), "models", name, takes)
