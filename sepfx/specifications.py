"""Settings as text: `transformer:num_heads=2`, `package.module:factory:width=64`.

A segment with "=" is a field; those before it are the name. Fields are checked against
the signature of what the name stands for, before anything is made of it.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
import importlib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from sepfx import kinds
from sepfx.errors import InvalidSetting, raised, require

_T = TypeVar("_T")

# The only names that may be imported; None where all may.
_ALLOWED: contextvars.ContextVar[Collection[str] | None] = contextvars.ContextVar(
  "allowed", default=None
)


class Specification(NamedTuple):
  """A name and fields, as text."""

  name: str
  fields: dict[str, str]


def parse(text: str, setting: str) -> Specification:
  """Takes a specification apart.

  Args:
    text: as above.
    setting: what it was given as, for messages.

  Raises:
    InvalidSetting: for a name after a field, or a field that is there twice.
  """
  names: list[str] = []
  fields: dict[str, str] = {}
  for segment in text.split(":"):
    name, is_field, value = segment.partition("=")
    ordered = is_field or not fields
    require(ordered and name not in fields, setting, text, "NAME:FIELD=VALUE:...")
    if is_field:
      fields[name] = value
    else:
      names.append(name)
  return Specification(":".join(names), fields)


def base(text: str) -> str:
  """The name without the fields: what a trial's keys are folded from."""
  return ":".join(part for part in text.split(":") if "=" not in part)


def canonical(value: Any) -> str:
  """The one text of a value: 0.001 and 1e-3 are the same number, and so are 1 and 1.0.

  Widths and the like are 512x512; "/" separates the parts of a cell's name.
  """
  if isinstance(value, tuple | list):
    return "x".join(map(canonical, value))
  value = value.item() if hasattr(value, "item") else value
  if callable(value) and hasattr(value, "__qualname__"):
    return str(value.__qualname__)  # text without its address in memory
  if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
    return str(int(value))
  return repr(value) if isinstance(value, float) else str(value)


def name_of(target: Any) -> str:
  """What a class or factory is called, with the arguments that it has already.

  As a specification: "factory", or "factory:width=64" for a `functools.partial`.
  """
  if isinstance(target, functools.partial):
    named = dict(zip(kinds.parameters_of(target.func), target.args, strict=False))
    return with_fields(name_of(target.func), {**named, **target.keywords})
  return str(getattr(target, "__name__", type(target).__name__)).strip("<>")


def with_fields(name: str, fields: Mapping[str, Any]) -> str:
  """Returns the specification of a name and fields."""
  values = {key: canonical(value).replace(":", ",") for key, value in fields.items()}
  return ":".join([name, *(f"{key}={value}" for key, value in values.items())])


def typed(specification: Specification, target: Callable, setting: str) -> dict[str, Any]:
  """Returns the fields of a specification as values.

  Raises:
    InvalidSetting: for one that `target` does not have, or of another type.
  """
  known = kinds.fields_of(target)
  values = {}
  for name, text in specification.fields.items():
    own = f"{specification.name}:{name}={text}"
    takes = f"the fields {', '.join(known)}" if known else "no fields"
    require(name in known, setting, own, f"{takes} of {specification.name}")
    try:
      values[name] = kinds.value_of(text, known[name], setting)
    except InvalidSetting as error:
      raise InvalidSetting(setting, own, error.takes) from error
  return values


@contextlib.contextmanager
def importing_only(names: Collection[str]) -> Iterator[None]:
  """Within it `imported` takes these names alone: for texts that stand in a directory."""
  token = _ALLOWED.set(names)
  try:
    yield
  finally:
    _ALLOWED.reset(token)


def imported(name: str, setting: str, takes: str) -> Any:
  """Returns what "package.module:name" stands for.

  Raises:
    InvalidSetting: if it cannot be imported, or may not be within `importing_only`.
  """
  module_name, separator, attribute = name.partition(":")
  if not separator:
    raise InvalidSetting(setting, name, takes)
  allowed = _ALLOWED.get()
  if allowed is not None and name not in allowed:
    takes = "names that this call gives: what stands in a directory alone is not imported"
    raise InvalidSetting(setting, name, f"{takes}. If you trust it, --classes={name}")
  try:
    return getattr(importlib.import_module(module_name), attribute)
  except Exception as error:  # a module of somebody's own may raise anything
    takes = f"{takes} (importing it raised {raised(error)})"
    raise InvalidSetting(setting, name, takes) from error


def with_field(owner: _T, name: str, value: Any, setting: str) -> _T:
  """Returns a frozen dataclass with another value of one field.

  Raises:
    InvalidSetting: for a value of another type.
  """
  kind = kinds.fields_of(type(owner)).get(name, Any)
  if isinstance(value, bool | int | float | str | tuple):
    # By its text: 4.5 is no integer, 1 is a number, 512x512 is widths.
    value = kinds.value_of(canonical(value), kind, setting)
  return dataclasses.replace(owner, **{name: value})  # type: ignore[type-var]
