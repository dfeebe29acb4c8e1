"""Which code of a user's own a value runs: a digest of each part of it, by its name.

A part is a function, a class, or a value that code finds under a name (a constant of a
class, a global). What is found does not depend on the version of Python, on where files
are, on comments, docstrings, annotations and the layout of lines.

Code of installed packages is not in it, nor this project's: their versions say what they
are. Packages in directories of their own (editable installs) are a user's.
"""

from __future__ import annotations

import builtins
import dataclasses
import dis
import functools
import hashlib
import importlib.metadata
import importlib.util
import inspect
import json
import pathlib
import sys
import sysconfig
import types
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from typing import Any, NamedTuple

import jax
import numpy as np

from sepfx import syntax
from sepfx.fingerprints import content, defaults, fingerprint, name_of

# Of the way in which digests are made: those of different schemes cannot be compared.
SCHEME = 1
# What decorators and base classes of Flax leave in a class that it does not say itself.
_OF_FLAX = frozenset(
  ("parent", "name", "scope", "_state", "_parent_ref", "_compact_name_scope_methods")
)
# Methods that `dataclasses` makes, none of which computes anything but the fields.
_OF_DATACLASSES = frozenset(
  ("__init__", "__repr__", "__eq__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__",
   "__setattr__", "__delattr__", "__replace__")
)  # fmt: skip
# What modules have of their own, which says where they are.
_OF_MODULES = frozenset(
  ("__name__", "__file__", "__path__", "__doc__", "__package__", "__spec__", "__loader__")
)
# How Pythons load what a function closes over.
_OF_CELLS = ("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF")
_SITE = {"site-packages", "dist-packages"}
_DESCRIPTORS = (staticmethod, classmethod, property, functools.cached_property)
_STANDARD = sys.stdlib_module_names - {"__main__"}
_OURS = pathlib.Path(__file__).parent


class Code(NamedTuple):
  """What values run beside this project.

  Attributes:
    digests: of each part of a user's own code by its name; several where several
      functions have one name.
    packages: names of the installed packages that classes and functions are from.
  """

  digests: dict[str, list[str]]
  packages: list[str]


def code_of(values: Iterable[Any], names: Iterable[str] = ()) -> Code:
  """Returns all code that values may run, theirs and what that code loads.

  Followed are the classes of objects with their bases, methods, constants and
  properties, what functions close over, and the names that they load from their modules.
  What is found at run time alone (`getattr` by a computed name, a file that is read) is
  not.

  Args:
    values: anything: trials, probes.
    names: "package.module:attribute" of what made some of the values, if it is one;
      fields after it do not matter, and other texts are ignored.
  """
  walk = _Walk()
  for value in [*values, *(_named(name) for name in names)]:
    walk.visit(value)
  return walk.code


def changes(
  there: Mapping[str, Collection[str]], here: Mapping[str, Collection[str]]
) -> tuple[list[str], list[str]]:
  """Names of what differs between two runs, and of what cannot be compared.

  What one of them alone has is no difference: it may run more models. Where a function
  lost or gained another one that it runs, it differs itself.

  Args:
    there: digests of the first.
    here: of the second, which may run more than the first.
  """
  changed, unknown = [], []
  for name in sorted(there.keys() & here.keys()):
    old, new = _by_kind(there[name]), _by_kind(here[name])
    both = old.keys() & new.keys()
    if any(not old[kind] <= new[kind] for kind in both):
      changed.append(name)
    elif not both:
      unknown.append(name)
  return changed, unknown


def both(
  there: Mapping[str, Collection[str]], here: Mapping[str, Collection[str]]
) -> dict[str, list[str]]:
  """The digests of all that ran in either of two runs."""
  names = sorted(there.keys() | here.keys())
  return {n: sorted({*there.get(n, ()), *here.get(n, ())}) for n in names}


def _by_kind(digests: Collection[str]) -> dict[str, set[str]]:
  found: dict[str, set[str]] = {}
  for digest in digests:
    found.setdefault(digest.partition("@")[2], set()).add(digest)
  return found


def _named(name: str) -> Any:
  """What a text names in a module that is loaded; None if it names nothing."""
  module, _, rest = name.partition(":")
  attribute = rest.partition(":")[0]
  return getattr(sys.modules.get(module), attribute, None) if attribute else None


class _Walk:
  """Goes through values and keeps the digest of each part of their code."""

  def __init__(self) -> None:
    self._found: dict[str, set[str]] = {}
    self._packages: set[str] = set()
    self._seen: dict[int, Any] = {}  # the values too: a freed one's id is used again

  @property
  def code(self) -> Code:
    digests = {name: sorted(own) for name, own in sorted(self._found.items())}
    return Code(digests, sorted(self._packages))

  def visit(self, value: Any) -> None:
    """Finds the code of a value and of all that is in it."""
    if value is None or isinstance(value, str | bytes | int | float | complex):
      return
    if isinstance(value, np.ndarray | np.generic | jax.Array | types.ModuleType):
      return
    if id(value) in self._seen:
      return
    self._seen[id(value)] = value
    if isinstance(value, type):
      self._visit_class(value)
    elif isinstance(value, types.FunctionType):
      self._visit_function(value)
    else:
      self.visit(type(value))
      for part in _parts(value):
        self.visit(part)

  def _is_own(self, module: str | None) -> bool:
    """Whether a module is a user's own; notes the package of one that is installed."""
    own = is_own(module)
    if not own and module and module.partition(".")[0] not in _STANDARD:
      self._packages.add(module.partition(".")[0])
    return own

  def _add(self, name: str, *parts: Any, kind: str = "") -> None:
    text = json.dumps(parts, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16] + kind
    self._found.setdefault(name, set()).add(digest)

  def _visit_class(self, cls: type) -> None:
    module = cls.__module__
    compiled = module not in sys.modules and not _has_python(cls)
    if self._is_own(module) and not compiled:
      name, bases = name_of(cls), [name_of(base) for base in cls.__bases__]
      found: dict[str, Any] = {}
      for key, value in _attributes(cls).items():
        self.visit(value)
        found[key] = self._bound(value, f"{name}.{key}")
      self._add(name, "class", bases, found)
    for base in (*cls.__bases__, type(cls)):
      self.visit(base)

  def _visit_function(self, function: types.FunctionType) -> None:
    closure = [content(cell) for cell in function.__closure__ or ()]
    wrapped = getattr(function, "__wrapped__", None)
    for value in (wrapped, *closure, *defaults(function)):
      self.visit(value)
    module = function.__globals__.get("__name__")
    if not self._is_own(module):
      return
    loaded = {}
    for name, value in _loads(function):
      self.visit(value)
      loaded[name] = self._bound(value, f"{module}:{name}")
    text, kind = syntax.of_function(function)
    held = [fingerprint(value) for value in (closure, defaults(function))]
    own = f"{module}:{function.__code__.co_qualname}"
    self._add(own, "function", text, held, loaded, kind=kind)

  def _bound(self, value: Any, name: str) -> Any:
    """What a name stands for: another part of the code, or a value, which is a part."""
    if isinstance(value, _DESCRIPTORS):
      return [type(value).__name__, *(self._bound(own, name) for own in _parts(value))]
    if isinstance(value, types.FunctionType) and self._is_own(
      value.__globals__.get("__name__")
    ):
      return f"{value.__globals__.get('__name__')}:{value.__code__.co_qualname}"
    named = hasattr(value, "__wrapped__") and hasattr(value, "__qualname__")
    if isinstance(value, type) or named:
      return name_of(value)
    if isinstance(value, types.ModuleType):
      return value.__name__
    self._add(name, "value", fingerprint(value))
    return "value"


def is_own(module: str | None) -> bool:
  """Whether a module is a user's own, by its name: of no installed package."""
  if module == "__main__":
    return True
  if module is None or module.startswith("namedtuple_"):  # generated
    return False
  top = module.partition(".")[0]
  if top in _STANDARD or top == _OURS.name:
    return False
  file = getattr(sys.modules.get(module), "__file__", None)
  if file is None:
    return True
  path = pathlib.Path(file)
  standard = pathlib.Path(sysconfig.get_path("stdlib"))
  # The studies of a clone stand beside this package.
  apart = (standard, _OURS, _OURS.parent / "experiments")
  return not (_SITE & set(path.parts) or any(path.is_relative_to(own) for own in apart))


def versions(packages: Iterable[str]) -> dict[str, str]:
  """The versions of the distributions of installed packages, by their names."""
  if not (packages := set(packages)):
    return {}
  known = importlib.metadata.packages_distributions()
  found = {name for package in packages for name in known.get(package, ())}
  return {name: importlib.metadata.version(name) for name in sorted(found)}


def _parts(value: Any) -> Iterator[Any]:
  """What an object is made of."""
  if isinstance(value, Mapping):
    yield from value.values()
  elif isinstance(value, tuple | list | Set):
    yield from value
  elif isinstance(value, functools.partial):
    yield from (value.func, value.args, value.keywords)
  elif isinstance(value, types.MethodType | staticmethod | classmethod):
    yield value.__func__
  elif isinstance(value, functools.cached_property):
    yield value.func
  elif isinstance(value, property):
    yield from (value.fget, value.fset, value.fdel)
  elif dataclasses.is_dataclass(value):
    names = (field.name for field in dataclasses.fields(value))
    yield from (getattr(value, name, None) for name in names if name != "parent")
  elif type(value).__module__.partition(".")[0] not in _STANDARD - {"functools", "types"}:
    yield getattr(value, "__wrapped__", None)
    yield from list(getattr(value, "__dict__", {}).values())
  if isinstance(value, types.MethodType):
    yield value.__self__


def _has_python(cls: type) -> bool:
  """Whether a class has a method in Python."""
  return any(isinstance(own, types.FunctionType) for own in vars(cls).values())


def _attributes(cls: type) -> dict[str, Any]:
  """What a class says itself: no documentation, nothing that a decorator made."""
  fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
  generated = _OF_DATACLASSES if fields else frozenset()
  found = {}
  for name, value in vars(cls).items():
    wrapped = getattr(value, "wrapped", None)  # as flax.linen keeps a property
    value = wrapped if isinstance(wrapped, _DESCRIPTORS) else value
    special = name.startswith("__") and name.endswith("__")
    code = callable(value) or isinstance(value, _DESCRIPTORS)
    silent = (special and not code) or name.startswith(("__anno", "_abc_", "_pytree__"))
    if not (silent or name in _OF_FLAX or name in generated):
      found[name] = value
  declared = inspect.get_annotations(cls)
  for field in fields:
    if field.name in declared and field.default_factory is not dataclasses.MISSING:
      found[field.name] = field.default_factory
  return found


def _loads(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
  """The names outside of it that a function loads, with what stands there.

  With the attributes that are taken of it where it is a user's own module.
  """
  names, code = function.__globals__, function.__code__
  free = zip(code.co_freevars, function.__closure__ or (), strict=True)
  around = {name: content(cell) for name, cell in free}
  for name, is_global, chain in _chains(code):
    if is_global and name not in names and hasattr(builtins, name):
      continue
    value, dotted = (names if is_global else around).get(name), name
    for attribute in chain:
      if not (isinstance(value, types.ModuleType) and is_own(value.__name__)):
        break
      value, dotted = getattr(value, attribute, None), f"{dotted}.{attribute}"
    if is_global or "." in dotted:  # else it counts as what the function closes over
      yield dotted, value
  for each in syntax.within(code):
    for name in _imports(each, names.get("__package__")):
      module = sys.modules.get(name)
      taken = [attribute for attribute in each.co_names if hasattr(module, attribute)]
      yield from ((f"{name}.{own}", getattr(module, own)) for own in taken)


def _chains(code: types.CodeType) -> list[tuple[str, bool, list[str]]]:
  """Names that code loads, whether they are global, and the attributes taken at once."""
  found: list[tuple[str, bool, list[str]]] = []
  own = set(code.co_freevars)
  for each in syntax.within(code):
    chain: list[str] | None = None
    written = set(_OF_MODULES)
    loaded = []
    for step in dis.get_instructions(each):
      if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
        chain = []
        loaded.append((step.argval, True, chain))
      elif step.opname in _OF_CELLS and step.argval in own:
        chain = []
        loaded.append((step.argval, False, chain))
      elif step.opname in ("LOAD_ATTR", "LOAD_METHOD") and chain is not None:
        chain.append(step.argval)
      elif step.opname not in ("CACHE", "PUSH_NULL", "PRECALL"):
        chain = None
      if step.opname in ("STORE_GLOBAL", "STORE_NAME"):
        written.add(step.argval)  # what code keeps there says nothing of what it does
    found += [own for own in loaded if own[0] not in written]
  return found


def _imports(code: types.CodeType, package: str | None) -> Iterator[str]:
  """Names of a user's own modules that code imports itself."""
  level: Any = None
  before: Any = None
  for step in dis.get_instructions(code):
    if step.opname == "IMPORT_NAME":
      name = step.argval
      if level:
        name = importlib.util.resolve_name("." * level + name, package)
      if is_own(name):
        yield name
    if step.opname != "CACHE":
      level, before = before, step.argval
