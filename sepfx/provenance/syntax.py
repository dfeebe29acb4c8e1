"""What a function does, as JSON: its syntax tree without what changes no computation."""

from __future__ import annotations

import ast
import functools
import linecache
import sys
import types
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

# Parts of the syntax tree that say nothing of what is computed.
_SILENT = frozenset(
  ("ctx", "kind", "type_comment", "type_ignores", "annotation", "returns", "type_params")
)
# Marks a digest that was made without the source, which other Pythons make otherwise.
COMPILED = f"@{sys.version_info.major}.{sys.version_info.minor}"


class Function(NamedTuple):
  """What a function does.

  Attributes:
    text: as JSON.
    mark: at the end of a digest of it: "" where the text is of the source, else which
      Python compiled it.
    names: that its text has; None where all that it loads counts.
    changed: names whose content it changes itself, as a cache or a counter; with dots
      where it stores an attribute.
    called: such names with a method that it calls on what is there.
  """

  text: Any
  mark: str
  names: frozenset[str] | None
  changed: frozenset[str]
  called: frozenset[tuple[str, str]]


class _File(NamedTuple):
  """A file of source: its functions in the syntax tree, and compiled."""

  nodes: dict[tuple[int, str], list[ast.AST]]
  compiled: dict[tuple[int, str], list[types.CodeType]]


def of_function(function: types.FunctionType) -> Function:
  """What a function does, whatever its layout and documentation.

  Of its source. Where that is not at hand, or no longer what runs, of what it was
  compiled to.
  """
  code = function.__code__
  # Of a function that was sent to another process the module alone may say where it is.
  module = str(function.__globals__.get("__file__"))
  lines = _lines(code.co_filename, function) or _lines(module, function)
  file = _file("".join(lines), code.co_filename)
  place = (code.co_firstlineno, code.co_name)
  own = _compiled(code, function.__doc__)
  compiled = file.compiled.get(place, ()) if file else ()
  if file and any(_compiled(each, function.__doc__) == own for each in compiled):
    node = _innermost(file.nodes.get(place, ()), code)
    if node is not None:
      silent = {id(each) for own in ast.walk(node) for each in _annotations(own)}
      names = frozenset(_names(node, silent))
      changed, called = frozenset(_changed(node)), frozenset(_called(node))
      return Function(_canonical(node), "", names, changed, called)
  return Function(own, COMPILED, None, frozenset(), frozenset())


def _lines(name: str, function: types.FunctionType) -> list[str]:
  linecache.checkcache(name)
  return linecache.getlines(name, function.__globals__)


def _annotations(node: ast.AST) -> Iterator[ast.AST]:
  """The annotations of an argument, a function or a variable."""
  for name in ("annotation", "returns"):
    if isinstance(own := getattr(node, name, None), ast.AST):
      yield own


def _names(node: ast.AST, silent: Collection[int]) -> Iterator[str]:
  """Names in a tree, but for what stands in annotations alone."""
  if isinstance(node, ast.Name):
    yield node.id
  for child in ast.iter_child_nodes(node):
    if id(child) not in silent:
      yield from _names(child, silent)


def _changed(function: ast.AST) -> Iterator[str]:
  """Names whose content a function changes."""
  for node, inner in _nodes(function):
    if isinstance(node, ast.Global | ast.Nonlocal):
      yield from node.names
    stored = isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)
    if stored and not isinstance(node, ast.Name):
      yield from _path(node, inner)


def _called(function: ast.AST) -> Iterator[tuple[str, str]]:
  """Names with the methods that a function calls on what is there."""
  for node, inner in _nodes(function):
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
      for path in _path(node.func.value, inner):
        yield path, node.func.attr


def _nodes(
  node: ast.AST, inner: frozenset[str] = frozenset()
) -> Iterator[tuple[ast.AST, frozenset[str]]]:
  """All that is in a function, each with the names that are of functions within it."""
  yield node, inner
  for child in ast.iter_child_nodes(node):
    is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    yield from _nodes(child, inner | _arguments(child.args) if is_function else inner)  # type: ignore[attr-defined]


def _arguments(arguments: ast.arguments) -> frozenset[str]:
  return frozenset(own.arg for own in ast.walk(arguments) if isinstance(own, ast.arg))


def _path(node: ast.AST, inner: frozenset[str]) -> Iterator[str]:
  """The name that entries and attributes are taken of, with the first attributes."""
  attributes: list[str] = []
  while isinstance(node, ast.Subscript | ast.Attribute):
    attributes = [node.attr, *attributes] if isinstance(node, ast.Attribute) else []
    node = node.value
  if isinstance(node, ast.Name) and node.id not in inner:
    yield ".".join([node.id, *attributes])


@functools.lru_cache(maxsize=64)
def _file(text: str, name: str) -> _File | None:
  try:
    tree = ast.parse(text)
    whole = compile(text, name, "exec", dont_inherit=True)
  except (SyntaxError, ValueError):
    return None
  nodes: dict[tuple[int, str], list[ast.AST]] = {}
  for node in ast.walk(tree):
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
      first = min(own.lineno for own in (node, *node.decorator_list))
      nodes.setdefault((first, node.name), []).append(node)
    elif isinstance(node, ast.Lambda):
      nodes.setdefault((node.lineno, "<lambda>"), []).append(node)
  compiled: dict[tuple[int, str], list[types.CodeType]] = {}
  for code in within(whole):
    compiled.setdefault((code.co_firstlineno, code.co_name), []).append(code)
  return _File(nodes, compiled)


def within(code: types.CodeType) -> Iterator[types.CodeType]:
  """Compiled code, and that of all functions and classes within it."""
  yield code
  for constant in code.co_consts:
    if isinstance(constant, types.CodeType):
      yield from within(constant)


def _innermost(nodes: Collection[Any], code: types.CodeType) -> Any:
  """Of functions that begin on one line the one that code was compiled from."""
  if len(nodes) == 1:
    (node,) = nodes
    return node
  places = [
    ((line, start), (last, end))
    for line, last, start, end in code.co_positions()
    if None not in (line, last, start, end) and (line, start) != (last, end)
  ]
  around = []
  for node in nodes:
    body = node.body if isinstance(node.body, list) else [node.body]
    first = (body[0].lineno, body[0].col_offset)
    last = (body[-1].end_lineno, body[-1].end_col_offset)
    if all(first <= start and end <= last for start, end in places):
      around.append((first, node))
  return max(around, key=lambda own: own[0])[1] if around else None


def _canonical(node: Any) -> Any:
  """A syntax tree as JSON, without what says nothing of what is computed."""
  if isinstance(node, list):
    return [_canonical(each) for each in node if not _is_idle(each)]
  if isinstance(node, ast.Constant):
    return [type(node.value).__name__, repr(node.value)]
  if isinstance(node, ast.AnnAssign) and node.value is not None:
    node = ast.Assign(targets=[node.target], value=node.value)
  if not isinstance(node, ast.AST):
    return node
  fields = {name: own for name, own in ast.iter_fields(node) if name not in _SILENT}
  said = {name: own for name, own in fields.items() if own is not None and own != []}
  return [type(node).__name__, {name: _canonical(own) for name, own in said.items()}]


def _is_idle(node: Any) -> bool:
  """Whether a statement does nothing: a docstring, `pass`, an annotation alone."""
  documents = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
  declares = isinstance(node, ast.AnnAssign) and node.value is None
  return documents or declares or isinstance(node, ast.Pass)


def _compiled(code: types.CodeType, documentation: str | None = None) -> Any:
  """What code does, as JSON, whatever the lines that it stands on."""

  def text(constant: Any) -> Any:
    if isinstance(constant, types.CodeType):
      return _compiled(constant)
    if isinstance(constant, Collection) and not isinstance(constant, str | bytes):
      parts = map(text, constant)  # a set's order is another in each process
      ordered = isinstance(constant, frozenset)
      return sorted(parts, key=repr) if ordered else [*parts]
    return repr(constant)

  constants = list(code.co_consts)
  if constants and constants[0] == documentation:
    constants[0] = None
  return [code.co_code.hex(), *code.co_names, *map(text, constants)]
