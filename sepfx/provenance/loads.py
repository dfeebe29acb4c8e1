"""What a function loads from outside of it: names of its module, and what it imports."""

from __future__ import annotations

import builtins
import dis
import importlib.util
import sys
import types
from collections.abc import Callable, Collection, Iterator
from typing import Any

from sepfx.provenance import syntax
from sepfx.provenance.fingerprints import content

# What modules have of their own, which says where they are.
_OF_MODULES = frozenset(
  ("__name__", "__file__", "__path__", "__doc__", "__package__", "__spec__", "__loader__")
)
# How Pythons load what a function closes over.
_OF_CELLS = ("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF")


def loaded(
  function: types.FunctionType,
  names: Collection[str] | None,
  is_own: Callable[[str], bool],
) -> Iterator[tuple[str, Any]]:
  """The names that a function loads, with what stands there.

  With the attributes that are taken of it where it is a user's own module. Built-in
  functions are left out.

  Args:
    function: in Python.
    names: those that count; None for all.
    is_own: whether a module of this name is a user's own.
  """
  around, code = function.__globals__, function.__code__
  cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
  closed = {name: content(cell) for name, cell in cells}
  for name, is_global, chain in _chains(code):
    if is_global and name not in around and hasattr(builtins, name):
      continue
    if names is not None and name not in names:
      continue
    value, dotted = (around if is_global else closed).get(name), name
    for attribute in chain:
      if not (isinstance(value, types.ModuleType) and is_own(value.__name__)):
        break
      value, dotted = vars(value).get(attribute), f"{dotted}.{attribute}"
    if is_global or "." in dotted:  # else it counts as what the function closes over
      yield dotted, value
  for each in syntax.within(code):
    for module in _imports(each, around.get("__package__"), is_own):
      yield from _taken(module, each.co_names, is_own)


def _taken(
  module: types.ModuleType, names: Collection[str], is_own: Callable[[str], bool]
) -> Iterator[tuple[str, Any]]:
  """What code that has these names anywhere may take of a module."""
  own = vars(module)
  for name in own.keys() & {*names}:
    value = own[name]
    if isinstance(value, types.ModuleType) and is_own(value.__name__):
      there = {*names} - {name}
      yield from _taken(value, there, is_own)
    else:
      yield f"{module.__name__}.{name}", value


def _chains(code: types.CodeType) -> list[tuple[str, bool, list[str]]]:
  """Names that code loads, whether they are global, and the attributes taken at once."""
  found: list[tuple[str, bool, list[str]]] = []
  own = set(code.co_freevars)
  for each in syntax.within(code):
    chain: list[str] | None = None
    written = set(_OF_MODULES)
    here = []
    for step in dis.get_instructions(each):
      if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
        chain = []
        here.append((step.argval, True, chain))
      elif step.opname in _OF_CELLS and step.argval in own:
        chain = []
        here.append((step.argval, False, chain))
      elif step.opname in ("LOAD_ATTR", "LOAD_METHOD") and chain is not None:
        chain.append(step.argval)
      elif step.opname not in ("CACHE", "PUSH_NULL", "PRECALL"):
        chain = None
      if step.opname in ("STORE_GLOBAL", "STORE_NAME"):
        written.add(step.argval)  # what code keeps there says nothing of what it does
    found += [own for own in here if own[0] not in written]
  return found


def _imports(
  code: types.CodeType, package: str | None, is_own: Callable[[str], bool]
) -> Iterator[types.ModuleType]:
  """A user's own modules that code imports itself."""
  level: Any = None
  before: Any = None
  for step in dis.get_instructions(code):
    if step.opname == "IMPORT_NAME":
      name = step.argval
      if level:
        name = importlib.util.resolve_name("." * level + name, package)
      if is_own(name) and name in sys.modules:
        yield sys.modules[name]
    if step.opname != "CACHE":
      level, before = before, step.argval
