"""What classes, functions and objects are made of, as far as it is their own."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import inspect
import re
import sys
import types
from typing import Any

from sepfx.moved import recorded_name

# What Flax and typing leave in a class that it does not say itself.
_LEFT = (
  "_abc_",
  "_pytree__",
  "_is_protocol",
  "_is_runtime_protocol",
  "_non_callable_proto",
)
_NAMING = frozenset(
  ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__", "__dict__",
   "__weakref__")
)  # fmt: skip
_OF_FLAX = frozenset(
  ("parent", "name", "scope", "_state", "_parent_ref", "_compact_name_scope_methods")
)
# Of the standard library, what has a value; all else there is a lock, a log, a cache.
_VALUES = frozenset(
  ("_decimal", "argparse", "builtins", "collections", "datetime", "decimal", "fractions",
   "functools", "operator", "re", "types", "uuid")
)  # fmt: skip
# Installed classes whose objects change while they are used, or are of JAX's workings.
_CHANGING = ("absl.", "numpy.random", "scipy.stats._distn", "flax.nnx.rnglib", "jax")
DESCRIPTORS = (staticmethod, classmethod, property, functools.cached_property)
# Modules that put methods of theirs into a user's classes.
_MAKERS = ("collections", "dataclasses", "enum", "typing")
PYTHON = (types.FunctionType, *DESCRIPTORS)


def has_value(cls: type) -> bool:
  """Whether objects of an installed class have a value that stays."""
  module = cls.__module__
  standard = module.partition(".")[0] in sys.stdlib_module_names
  return module in _VALUES if standard else not module.startswith(_CHANGING)


def attributes_of(cls: type) -> dict[str, Any]:
  """What a class says itself: no documentation, nothing that a decorator made."""
  if issubclass(cls, enum.Enum):
    members = {name: own.value for name, own in getattr(cls, "__members__").items()}  # noqa: B009
  else:
    members = {}
  found: dict[str, Any] = dict(members)
  of_flax = any(base.__module__.startswith("flax.") for base in cls.__mro__)
  named_tuple = issubclass(cls, tuple) and hasattr(cls, "_fields")
  for name, value in vars(cls).items():
    wrapped = inspect.getattr_static(value, "wrapped", None)  # a property, of flax.linen
    value = wrapped if isinstance(wrapped, DESCRIPTORS) else value
    code = is_code(value)
    special = name.startswith("__") and name.endswith("__")
    silent = (special and not code) or name.startswith(("__anno", "__protocol", *_LEFT))
    silent |= of_flax and name in _OF_FLAX and not code
    silent |= isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType)
    made = _is_generated(value) or (named_tuple and not isinstance(value, PYTHON))
    if not (silent or made or (members and not isinstance(value, PYTHON))):
      found[name] = value
  declared = inspect.get_annotations(cls)
  for field in dataclasses.fields(cls) if is_data(cls) else ():
    # Not `is`: a class that was sent to another process has a marker of its own.
    none = isinstance(field.default_factory, type(dataclasses.MISSING))
    if field.name in declared and not none:
      found[field.name] = field.default_factory
  return found


def _is_generated(value: Any) -> bool:
  """Whether `dataclasses`, `typing`, `enum` or the like made a method."""
  for own in held_by(value) if isinstance(value, DESCRIPTORS) else (value,):
    function = inspect.unwrap(own) if isinstance(own, types.FunctionType) else None
    if not isinstance(function, types.FunctionType):
      continue
    module = str(function.__globals__.get("__name__"))
    made = function.__code__.co_qualname.startswith("__create_fn__")
    if made or module in _MAKERS or module.startswith("namedtuple_"):
      return True
  return False


def is_code(value: Any) -> bool:
  """Whether a value is a class, a function, or one that was made of such."""
  code = isinstance(value, (type, types.FunctionType, types.MethodType, *DESCRIPTORS))
  return code or "__wrapped__" in state_of(value)


def is_data(cls: type) -> bool:
  return "__dataclass_fields__" in vars(cls) or dataclasses.is_dataclass(cls)


def is_importable(value: Any) -> bool:
  found: Any = sys.modules.get(value.__module__ or "")
  for part in value.__qualname__.split("."):
    found = getattr(found, part, None)
  return found is value


def held_by(value: Any) -> tuple[Any, ...]:
  """The functions of a descriptor."""
  if isinstance(value, functools.cached_property):
    return (value.func,)
  if isinstance(value, property):
    return (value.fget, value.fset, value.fdel)
  return (value.__func__,)


def fields_of(value: Any) -> dict[str, Any]:
  """The fields of a dataclass that are set, but for the module that one of Flax is in."""
  names = [field.name for field in dataclasses.fields(value) if field.name != "parent"]
  return {name: getattr(value, name) for name in names if hasattr(value, name)}


def state_of(value: Any) -> dict[str, Any]:
  """The attributes of an object, without what it is called and what it keeps aside."""
  try:
    own = dict(object.__getattribute__(value, "__dict__"))
  except (AttributeError, TypeError):
    own = {}
  for cls in type(value).__mro__:
    slots = cls.__dict__.get("__slots__", ())
    for slot in (slots,) if isinstance(slots, str) else slots:
      private = slot.startswith("__") and not slot.endswith("__")
      name = f"_{cls.__name__.lstrip('_')}{slot}" if private else slot
      # Not set, or, as `__weakref__` of classes in C, nothing that can be read.
      with contextlib.suppress(AttributeError, TypeError):
        own[name] = object.__getattribute__(value, name)
  kept = {
    name
    for cls in type(value).__mro__
    for name, each in vars(cls).items()
    if isinstance(each, functools.cached_property)
  }
  return {name: each for name, each in own.items() if name not in kept | _NAMING}


def named(value: Any) -> str:
  """The name of a class or a function, as files have it."""
  module = recorded_name(value.__module__) if value.__module__ else value.__module__
  return f"{module}:{_without_comprehensions(value.__qualname__)}"


def qualname(code: types.CodeType) -> str:
  return _without_comprehensions(code.co_qualname)


def _without_comprehensions(name: str) -> str:
  """Without functions that only some Pythons make of comprehensions."""
  return re.sub(r"<(list|set|dict)comp>\.(<locals>\.)?", "", name)


def text_of(value: Any) -> str:
  return hex(value) if type(value) is int else repr(value)
