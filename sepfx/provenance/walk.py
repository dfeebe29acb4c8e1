"""Goes through a value and all the code that it finds: the digests of `sources`.

That module says what is in them and what is not.
"""

from __future__ import annotations

import collections
import contextlib
import copyreg
import dataclasses
import enum
import functools
import hashlib
import inspect
import json
import pathlib
import sys
import types
from collections.abc import Iterator, Mapping, Set
from typing import Any

import jax
import numpy as np

from sepfx.moved import recorded_name
from sepfx.provenance import loads, syntax
from sepfx.provenance.anatomy import (
  DESCRIPTORS,
  attributes_of,
  fields_of,
  has_value,
  held_by,
  is_code,
  is_data,
  is_importable,
  named,
  qualname,
  state_of,
  text_of,
)
from sepfx.provenance.fingerprints import content, fingerprint
from sepfx.provenance.origins import is_own

# Values are followed so deep: what lies further counts by its class alone.
_DEPTH = 100
# What objects of JAX that stand for a function have beside it: rules of derivatives.
_RULES = ("fun", "fwd", "bwd", "jvp")
# Methods of containers that change them.
_CHANGING = frozenset(
  ("add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop",
   "popitem", "remove", "setdefault", "update")
)  # fmt: skip
_PLAIN = (type(None), bool, int, float, complex, str, bytes)


class Walk:
  """Goes through one value and all that it finds.

  The digest of an object has in it those of all that it holds. One that holds itself is
  known there by how far above it stands.

  Attributes:
    found_own: whether it has come to a user's own code.
    mark: which Python compiled functions of it that have no source; "" where all have.
  """

  def __init__(self, parts: dict[str, set[str]], packages: set[str]):
    """Goes nowhere yet.

    Args:
      parts: digests of functions, classes and values by name; it adds what it finds.
      packages: names of installed packages, likewise.
    """
    self.found_own, self.mark = False, ""
    self._parts, self._packages = parts, packages
    self._open: dict[int, int] = {}
    # The objects too: a freed one's id is used again.
    self._done: dict[int, tuple[Any, str]] = {}

  def of_settings(self, value: Any) -> str:
    """The digest of a value whose own numbers and texts do not count."""
    return _digest(self._of_settings(value))

  def _of_settings(self, value: Any) -> Any:
    if type(value) in _PLAIN or isinstance(value, np.generic):
      return None
    if isinstance(value, str | bytes | int | float | complex):  # and more: an `Enum`, say
      return self.digest(type(value))
    if isinstance(value, tuple | list):
      named_tuple = type(value) not in (tuple, list)
      made_by = [self.digest(type(value))] if named_tuple else []
      return [*made_by, *map(self._of_settings, value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
      own = {k: self._of_settings(v) for k, v in fields_of(value).items()}
      return [self.digest(type(value)), own]
    return self.digest(value)

  def digest(self, value: Any) -> str:
    """The digest of a value and of all that it holds."""
    if id(value) in self._done:
      return self._done[id(value)][1]
    depth = len(self._open)
    if id(value) in self._open:
      return f"{depth - self._open[id(value)]} above"
    self._open[id(value)] = depth
    try:
      found = self._of(value) if depth <= _DEPTH else named(type(value))
    finally:
      del self._open[id(value)]
    digest = _digest(found)
    self._done[id(value)] = (value, digest)
    return digest

  def _of(self, value: Any) -> Any:
    if type(value) in _PLAIN:
      return [type(value).__name__, text_of(value)]
    if isinstance(value, type):
      return self._of_class(value)
    if isinstance(value, types.FunctionType):
      return self._of_function(value)
    if isinstance(value, types.MethodType):
      return ["method", self.digest(value.__func__), self.digest(value.__self__)]
    if isinstance(value, types.ModuleType):
      return ["module", recorded_name(value.__name__), *self._of_module(value)]
    if isinstance(value, types.BuiltinFunctionType | np.ufunc | np.dtype):
      return ["built in", str(getattr(value, "__qualname__", value))]
    if isinstance(value, DESCRIPTORS):
      return [type(value).__name__, *map(self.digest, held_by(value))]
    try:
      return self._of_object(value)
    except Exception:  # a user's object may refuse anything
      return ["unreadable", self.digest(type(value))]

  def _of_module(self, module: types.ModuleType) -> Iterator[Any]:
    """Of a user's own, which is a value here, all that it may be used for."""
    if self._is_own_module(module.__name__):
      own = {k: v for k, v in vars(module).items() if not k.startswith("__")}
      elsewhere = (types.ModuleType, types.BuiltinFunctionType)
      yield self._of_names(
        {
          k: v
          for k, v in sorted(own.items())
          if not isinstance(v, elsewhere)
          and not (is_code(v) and getattr(v, "__module__", None) != module.__name__)
        }
      )

  def _of_object(self, value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype == object:
      return ["objects", list(value.shape), self.digest(value.ravel().tolist())]
    if isinstance(value, np.ndarray | np.generic | jax.Array):
      return fingerprint(np.asarray(value) if isinstance(value, np.generic) else value)
    cls = type(value)
    state = state_of(value)
    if "__wrapped__" in state and not self._is_own(cls):
      if is_importable(value) and not self._is_own_module(value.__module__):
        return ["function", named(value)]
      rules = {name: state[name] for name in ("__wrapped__", *_RULES) if name in state}
      return ["function", self._of_names(rules)]
    if not self._is_own(cls) and not has_value(cls):
      return "no value"
    own: list[Any] = [self.digest(cls)]
    if isinstance(value, enum.Enum):
      return [*own, value.name]
    if isinstance(value, pathlib.PurePath):  # where things are says nothing
      return ["path", "" if value.is_absolute() else str(value)]
    if isinstance(value, functools.partial):
      return [*own, *map(self.digest, (value.func, value.args, value.keywords))]
    if dataclasses.is_dataclass(value):
      return [*own, self._of_names(fields_of(value))]
    # Containers, and classes made of them.
    if isinstance(value, collections.defaultdict):
      own.append(self.digest(value.default_factory))
      own.append(self._of_names(_filled(value)))
    elif isinstance(value, dict):
      own.append([[self.digest(k), self.digest(v)] for k, v in dict.items(value)])
    elif isinstance(value, tuple | list | collections.deque):
      own.append([self.digest(each) for each in value])
    elif isinstance(value, Set):
      own.append(sorted(self.digest(each) for each in value))
    elif isinstance(value, int | float | complex | str | bytes):
      own.append(text_of(value))
    elif not self._is_own(cls):
      return [*own, self._of_installed(value)]
    return [*own, self._of_names(state)]

  def _of_installed(self, value: Any) -> Any:
    """What an object of an installed class is made from, or its attributes."""
    with contextlib.suppress(Exception):
      reduced = copyreg.dispatch_table.get(type(value))
      made = reduced(value) if reduced else value.__reduce_ex__(4)
      if isinstance(made, str):
        return made
      parts = [list(own) if isinstance(own, Iterator) else own for own in made]
      return [self.digest(own) for own in parts]
    return self._of_names(state_of(value))

  def _of_names(self, values: Mapping[str, Any]) -> Any:
    return [[str(name), self.digest(own)] for name, own in values.items()]

  def _of_class(self, cls: type) -> Any:
    if not (self._is_own(cls) or not is_importable(cls)):
      return ["class", named(cls)]
    name = named(cls)
    bases = [self.digest(base) for base in (*cls.__bases__, type(cls))]
    fields = [f.name for f in dataclasses.fields(cls)] if is_data(cls) else []
    attributes: dict[str, str] = {}
    said: dict[str, str] = {}
    for key, value in sorted(attributes_of(cls).items()):
      attributes[key] = self.digest(value)
      said[key] = self._said(value)
      if not said[key] and self._is_own(cls):
        self._add(f"{name}.{key}", attributes[key])
    made = getattr(vars(cls).get("__dataclass_params__"), "init", None)
    if self._is_own(cls):
      self._add(name, ["class", [named(base) for base in cls.__bases__], fields, said])
    return ["class", name, bases, fields, made, attributes]

  def _of_function(self, function: types.FunctionType) -> Any:
    module = function.__globals__.get("__name__")
    wrapped = state_of(function).get("__wrapped__")
    # Generated, by a type checker for instance, or by Flax for each method.
    if module is None or (wrapped is not None and module == "flax.linen.module"):
      return ["wrapped", self.digest(wrapped)]
    closed = dict(
      zip(
        function.__code__.co_freevars,
        map(content, function.__closure__ or ()),
        strict=True,
      )
    )
    if not self._is_own_module(module):
      # What wraps a user's function has its name.
      if is_importable(function) and not self._is_own_module(function.__module__):
        return ["function", named(function)]
      own = self._of_names(closed), self.digest(function.__defaults__)
      keywords = self.digest(function.__kwdefaults__)
      return ["function", named(function), *own, keywords, self.digest(wrapped)]
    found = syntax.of_function(function)
    self.mark = self.mark or found.mark
    defaults = self._defaults(function, found)
    held = {name: self._found(name, own, found) for name, own in closed.items()}
    names: dict[str, str] = {}
    said: dict[str, str] = {}
    for name, value in loads.loaded(function, found.names, self._is_own_module):
      names[name] = self._found(name, value, found)
      said[name] = self._said(value)
      if not said[name]:
        self._add(f"{module}:{name}", names[name])
    own_name = f"{module}:{qualname(function.__code__)}"
    self._add(own_name, ["function", found.text, said], found.mark)
    return ["function", found.text, defaults, held, names, self.digest(wrapped)]

  def _found(self, name: str, value: Any, by: syntax.Function) -> str:
    """The digest of what stands under a name that a function loads.

    Of its class alone where the function changes it itself: what a cache holds is another
    whenever one looks.
    """
    if not is_code(value) and self._is_changed(name, value, by):
      return self.digest(type(value))
    return self.digest(value)

  def _is_changed(self, name: str, value: Any, by: syntax.Function) -> bool:
    if any(_reaches(name, path) for path in by.changed):
      return True
    methods = {method for path, method in by.called if path == name}
    cls = type(value)
    if cls.__module__ in ("builtins", "collections"):
      return not methods.isdisjoint(_CHANGING)
    return self._is_own(cls) and any(_changes_itself(cls, own) for own in methods)

  def _defaults(self, function: types.FunctionType, by: syntax.Function) -> Any:
    """Those of arguments, by their names."""
    code, values = function.__code__, function.__defaults__ or ()
    first = code.co_argcount - len(values)
    names = code.co_varnames[first : code.co_argcount]
    all_of_them = {
      **dict(zip(names, values, strict=True)),
      **(function.__kwdefaults__ or {}),
    }
    return {name: self._found(name, own, by) for name, own in all_of_them.items()}

  def _said(self, value: Any) -> str:
    """How a part names another; "" for a value, which is a part itself."""
    inner = inspect.unwrap(value) if isinstance(value, types.FunctionType) else value
    if isinstance(inner, types.FunctionType):
      return f"{inner.__globals__.get('__name__')}:{qualname(inner.__code__)}"
    if isinstance(value, types.ModuleType):
      return value.__name__
    if isinstance(value, DESCRIPTORS):
      return " ".join([type(value).__name__, *map(self._said, held_by(value))])
    return named(value) if isinstance(value, type) else ""

  def _add(self, name: str, part: Any, mark: str = "") -> None:
    self.found_own = True
    self._parts.setdefault(name, set()).add(_digest(part) + mark)

  def _is_own(self, cls: type) -> bool:
    module = cls.__module__
    return self._is_own_module(module if isinstance(module, str) else "builtins")

  def _is_own_module(self, module: str) -> bool:
    """Whether it is a user's own; notes the package of one that is installed."""
    own = is_own(module)
    top = module.partition(".")[0]
    if not own and top not in sys.stdlib_module_names:
      self._packages.add(top)
    return own


def _filled(value: collections.defaultdict) -> dict[Any, Any]:
  """What was put into it: reading it leaves what its factory makes."""
  entries = dict.items(value)
  if value.default_factory is None:
    return dict(entries)
  unset = value.default_factory()
  return {key: own for key, own in entries if own != unset}


def _reaches(name: str, path: str) -> bool:
  """Whether what stands under a name has a part that a path leads to, or is in it."""
  return path == name or f"{path}.".startswith(f"{name}.") or name.startswith(f"{path}.")


def _changes_itself(cls: type, method: str) -> bool:
  """Whether a method stores what it is called on anew."""
  function = inspect.getattr_static(cls, method, None)
  if not isinstance(function, types.FunctionType):
    return issubclass(cls, dict | list | set) and method in _CHANGING
  if not function.__code__.co_argcount:
    return False
  own = syntax.of_function(function)
  itself = function.__code__.co_varnames[0]
  stored = any(_reaches(itself, path) for path in own.changed)
  return stored or any(
    path.startswith(f"{itself}.") and each in _CHANGING for path, each in own.called
  )


def _digest(found: Any) -> str:
  text = json.dumps(found, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:16]
