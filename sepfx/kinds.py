"""Values of the kind that an annotation says: read from text, or as people write them."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from sepfx.errors import InvalidSetting

_SIMPLE = (int, float, bool, str)


def value_of(text: str, kind: Any, setting: str) -> Any:
  """Returns a value from its text.

  Args:
    text: as `canonical` has it.
    kind: a type or annotation: int, float, bool, str, a Literal, a sequence, a union
      with None.
    setting: for the message.

  Raises:
    InvalidSetting: if it is none of this kind.
  """
  for option in _options(kind):
    try:
      return _converted(text, option)
    except ValueError:
      continue
  raise InvalidSetting(setting, text, _takes(kind))


def taken(value: Any, kind: Any, setting: str) -> Any:
  """Returns a value as a setting of this kind has it.

  1e9 is an integer, and so is "8": a text is read as a flag's is. Arrays, and values of
  kinds that have no text, are returned as they are.

  Args:
    value: any.
    kind: as `value_of` takes it.
    setting: for the message.

  Raises:
    InvalidSetting: if it is none of this kind.
  """
  if isinstance(value, np.generic):
    value = value.item()
  options = _options(kind)
  has_text = kind is not Any and all(map(_has_text, options))
  if not has_text or hasattr(value, "dtype"):
    return value
  for option in options:
    element = _element(option)
    if element is not None and isinstance(value, list | tuple):
      return tuple(taken(each, element, setting) for each in value)
  if any(_is_of(value, option) for option in options):
    return value
  if isinstance(value, float) and value.is_integer() and int in options:
    return int(value)
  if isinstance(value, str):
    return value_of(value, kind, setting)
  # What holds several values of another kind is for its owner to refuse.
  if isinstance(value, Iterable) and any(map(_element, options)):
    return value
  raise InvalidSetting(setting, value, _takes(kind))


def settle(owner: Any) -> None:
  """Makes the fields of a dataclass what their annotations say, as `taken` does.

  For its `__post_init__`, before anything else.

  Raises:
    InvalidSetting: for a field that is none of its kind.
  """
  cls: Any = type(owner)
  for name, kind in _kinds(cls).items():
    value = getattr(owner, name)
    own = taken(value, kind, name)
    if own is not value:
      object.__setattr__(owner, name, own)


@functools.cache
def _kinds(cls: type) -> dict[str, Any]:
  return {name: kind for name, kind in fields_of(cls).items() if kind is not Any}


def _has_text(kind: Any) -> bool:
  """Whether values of a kind can be written as text."""
  simple = kind in _SIMPLE or kind is type(None) or typing.get_origin(kind) is Literal
  return simple or _element(kind) is not None


def _element(kind: Any) -> Any:
  """The kind of the elements of a sequence of one simple kind; None if it is none."""
  origin = typing.get_origin(kind)
  if isinstance(origin, type) and issubclass(origin, Sequence):
    element, *others = typing.get_args(kind)
    if element in _SIMPLE and others in ([], [...]):
      return element
  return None


def _is_of(value: Any, kind: Any) -> bool:
  """Whether a value, which is no sequence, is of this kind as it stands."""
  if _element(kind) is not None:
    return False
  if kind is type(None):
    return value is None
  if typing.get_origin(kind) is Literal:
    return value in typing.get_args(kind)
  if isinstance(value, bool) or kind is bool:
    return isinstance(value, bool) and kind is bool
  return isinstance(value, int | float if kind is float else kind)


def _options(kind: Any) -> tuple[Any, ...]:
  if kind is Any:  # not said: a number if it is one
    return (int, float, str)
  if typing.get_origin(kind) in (typing.Union, types.UnionType):
    return tuple(option for each in typing.get_args(kind) for option in _options(each))
  return (kind,)


def _converted(text: str, kind: Any) -> Any:
  """`text` as this kind; raises ValueError if it is none."""
  origin = typing.get_origin(kind) or kind
  if kind is type(None):
    if text.lower() != "none":
      raise ValueError(text)
    return None
  if kind is bool:
    words = {"true": True, "false": False}
    return words[text.lower()] if text.lower() in words else _refuse(text)
  if kind in (int, float, str):
    return kind(text)
  if origin is Literal:
    return text if text in typing.get_args(kind) else _refuse(text)
  if isinstance(origin, type) and issubclass(origin, Sequence):
    (element, *_) = typing.get_args(kind) or (str,)
    return tuple(_converted(part, element) for part in text.split("x") if part)
  return _refuse(text)


def _refuse(text: str) -> typing.NoReturn:
  raise ValueError(text)


def _takes(kind: Any) -> str:
  names: dict[Any, str] = {
    int: "an integer", float: "a number", bool: "true or false", type(None): "none",
    str: "text",
  }  # fmt: skip
  described = []
  for option in _options(kind):
    if typing.get_origin(option) is Literal:
      described += list(typing.get_args(option))
    elif option in names:
      described.append(names[option])
    elif typing.get_args(option) and typing.get_args(option)[0] in names:
      described.append(
        f"values such as 512x512, each {names[typing.get_args(option)[0]]}"
      )
  return " or ".join(dict.fromkeys(described)) or "no text"


def fields_of(target: Callable) -> dict[str, Any]:
  """Names of what a class or factory takes, with their annotations."""
  annotated = target.__init__ if _has_own_call(target) else target
  try:
    hints = typing.get_type_hints(annotated)
  except (NameError, TypeError):  # annotations for readers alone
    hints = {}
  if dataclasses.is_dataclass(target):
    own = sorted(dataclasses.fields(target), key=lambda field: bool(field.kw_only))
    names = [f.name for f in own if f.init]
    hidden = ("parent", "name") if "parent" in names else ()  # of flax.linen
    return {name: hints.get(name, Any) for name in names if name not in hidden}
  parameters = parameters_of(target).values()
  kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
  known = (p.name for p in parameters if p.kind not in kinds)
  return {name: hints.get(name, Any) for name in known if name != "rngs"}  # of flax.nnx


def parameters_of(target: Callable) -> Mapping[str, inspect.Parameter]:
  """What a class or factory is called with, by name."""
  if not _has_own_call(target):
    return inspect.signature(target).parameters
  _, *own = inspect.signature(target.__init__).parameters.values()
  return {parameter.name: parameter for parameter in own}


def _has_own_call(target: Any) -> bool:
  """Whether it is a class that is called as its metaclass says: with anything at all."""
  return isinstance(target, type) and type(target).__call__ is not type.__call__
