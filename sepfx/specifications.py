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
import inspect
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from sepfx.errors import InvalidSetting, require

_T = TypeVar("_T")
_SIMPLE = (int, float, bool, str)

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


def name_of(target: Any) -> str:
  """What a class or factory is called, with the arguments that it has already.

  As a specification: "factory", or "factory:width=64" for a `functools.partial`.
  """
  if isinstance(target, functools.partial):
    named = dict(zip(parameters_of(target.func), target.args, strict=False))
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
  known = fields_of(target)
  values = {}
  for name, text in specification.fields.items():
    own = f"{specification.name}:{name}={text}"
    takes = f"the fields {', '.join(known)}" if known else "no fields"
    require(name in known, setting, own, f"{takes} of {specification.name}")
    try:
      values[name] = value_of(text, known[name], setting)
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
  except (ImportError, AttributeError, ValueError) as error:
    raise InvalidSetting(setting, name, f"{takes} ({error})") from error


def with_field(owner: _T, name: str, value: Any, setting: str) -> _T:
  """Returns a frozen dataclass with another value of one field.

  Raises:
    InvalidSetting: for a value of another type.
  """
  kind = fields_of(type(owner)).get(name, Any)
  if isinstance(value, bool | int | float | str | tuple):
    # By its text: 4.5 is no integer, 1 is a number, 512x512 is widths.
    value = value_of(canonical(value), kind, setting)
  return dataclasses.replace(owner, **{name: value})  # type: ignore[type-var]


def described(own: Any) -> Mapping[str, Any]:
  """A dataclass as JSON: its class and its fields, from which `rebuilt` makes it again.

  A field that is not JSON (a function, say) is None; the result then lacks "class".
  """
  fields: dict[str, Any] = {}
  whole = True
  for name in fields_of(type(own)):
    value = getattr(own, name)
    if dataclasses.is_dataclass(value):
      value = described(value)
      whole = whole and "class" in value
    elif not _is_plain(value):
      value, whole = repr(value), False
    fields[name] = value
  return (
    {"class": qualified(type(own)), "fields": fields} if whole else {"repr": repr(own)}
  )


def _is_plain(value: Any) -> bool:
  """Whether it is JSON, with tuples for lists."""
  if isinstance(value, tuple | list):
    return all(map(_is_plain, value))
  return isinstance(value, bool | int | float | str | None)


def qualified(cls: type) -> str:
  """The name of a class by which it can be imported, "module:QualName"."""
  return f"{cls.__module__}:{cls.__qualname__}"


def class_names(description: Any) -> list[str]:
  """Names of all classes in what `described` returned.

  Raises:
    ValueError: if it is of another form.
  """
  if not isinstance(description, Mapping):
    raise ValueError("no description of a model")
  if "class" not in description:
    return []
  name, fields = description["class"], description.get("fields")
  if not (isinstance(name, str) and isinstance(fields, Mapping)):
    raise ValueError("no description of a model")
  inner = [own for own in fields.values() if isinstance(own, Mapping)]
  return list(dict.fromkeys([name, *(n for own in inner for n in class_names(own))]))


def rebuilt(description: Mapping[str, Any], known: Mapping[str, type]) -> Any:
  """Makes what `described` describes; None if it was not wholly described.

  Args:
    description: such as a file has it.
    known: the classes that may be made, by their `qualified` names. Nothing is imported.

  Raises:
    InvalidSetting: if one of its classes is not known; none is made then.
    ValueError: if it is of another form, or the class does not take these fields.
  """
  missing = [name for name in class_names(description) if name not in known]
  takes = f"a description of {', '.join(known)}"
  require(not missing, "model", ", ".join(missing), takes)
  return _rebuilt(description, known)


def _rebuilt(description: Mapping[str, Any], known: Mapping[str, type]) -> Any:
  if "class" not in description:
    return None
  cls = known[description["class"]]
  fields = {}
  for name, value in description["fields"].items():
    if name not in fields_of(cls):
      raise ValueError(f"{cls.__name__} has no field {name!r}")
    if isinstance(value, Mapping):
      value = _rebuilt(value, known)
    fields[name] = _with_tuples(value)
  try:
    return cls(**fields)
  except (TypeError, AttributeError) as error:
    raise ValueError(f"{cls.__name__} does not take these fields ({error})") from error


def _with_tuples(value: Any) -> Any:
  return tuple(map(_with_tuples, value)) if isinstance(value, list) else value
