"""Dataclasses as JSON values, and what is made of those again."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from sepfx import kinds
from sepfx.errors import require
from sepfx.moved import recorded_name


def described(own: Any) -> Mapping[str, Any]:
  """A dataclass as JSON: its class and its fields, from which `rebuilt` makes it again.

  A field that is not JSON (a function, say) is None; the result then lacks "class".
  """
  fields: dict[str, Any] = {}
  whole = True
  for name in kinds.fields_of(type(own)):
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
  """The name of a class in files, "module:QualName"."""
  return f"{recorded_name(cls.__module__)}:{cls.__qualname__}"


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
    if name not in kinds.fields_of(cls):
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
