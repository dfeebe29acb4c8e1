"""What a setting is made of, as JSON: two that differ have different fingerprints."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import re
import sys
import types
from collections.abc import Collection, Mapping
from typing import Any

import jax
import numpy as np


def fingerprint(value: Any, but: str = "") -> Any:
  """Returns what tells a value from others, the same in every process.

  Numbers, texts and sequences are themselves; arrays have a digest of their content;
  dataclasses and objects their class and fields. A function that another process would
  import has its name. Any other, such as a closure, a lambda or one of a notebook, has
  also a digest of its code, what it closes over, and the data and functions that it finds
  in its module.

  Args:
    value: anything.
    but: a field of `value` to leave out.
  """
  return _of(value, but, ())


def _of(value: Any, but: str, above: tuple[int, ...]) -> Any:
  if isinstance(value, np.generic):
    value = value.item()
  if value is None or isinstance(value, bool | int | float | str):
    return value
  if id(value) in above:  # a function that calls itself, say
    return "..."
  above = (*above, id(value))
  if isinstance(value, tuple | list):
    return [_of(each, "", above) for each in value]
  if isinstance(value, Mapping):
    return {str(key): _of(each, "", above) for key, each in value.items()}
  if isinstance(value, np.ndarray | jax.Array):
    return _of_array(value)
  if isinstance(value, functools.partial):
    parts = {"function": value.func, "args": value.args, "keywords": value.keywords}
    return {"class": "functools:partial", **_of(parts, "", above)}
  if callable(value) and hasattr(value, "__qualname__"):
    return _of_function_or_class(value, above)
  return _of_object(value, but, above)


def _of_array(value: Any) -> dict[str, Any]:
  array = np.asarray(
    jax.random.key_data(value)
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)
    else value
  )
  digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
  return {"array": str(array.dtype), "shape": list(array.shape), "sha256": digest}


def _of_function_or_class(value: Any, above: tuple[int, ...]) -> Any:
  name = _name(value)
  function = inspect.unwrap(value)
  if _is_importable(value):
    return name
  if isinstance(function, type):
    methods = {
      key: method
      for key, method in vars(function).items()
      if isinstance(method, types.FunctionType)
      and (key == "__call__" or not key.startswith("_"))
    }
    return {"class": name, "methods": _of(methods, "", above)}
  if not isinstance(function, types.FunctionType):
    return name
  code, names = function.__code__, function.__globals__
  found: dict[str, Any] = {"function": name, "code": _digest(code)}
  held = [_content(cell) for cell in function.__closure__ or ()]
  used = {k: names[k] for k in _global_names(code) if k in names}
  used = {k: v for k, v in used.items() if not isinstance(v, types.ModuleType)}
  own: Any
  for kind, own in (
    ("closure", held),
    (
      "defaults",
      [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()],
    ),
    ("globals", used),
  ):
    if own:
      found[kind] = _of(own, "", above)
  return found


def _of_object(value: Any, but: str, above: tuple[int, ...]) -> Any:
  cls = type(value)
  described = _of_function_or_class(cls, above)
  if dataclasses.is_dataclass(value):
    names = [field.name for field in dataclasses.fields(value)]
    fields = {n: getattr(value, n) for n in names if n not in ("parent", but)}
    return {"class": described, **_of(fields, "", above)}
  if cls.__repr__ is object.__repr__ and getattr(value, "__dict__", None):
    return {"class": described, **_of(vars(value), "", above)}
  return {"class": described, "repr": re.sub(r" at 0x[0-9a-f]+", "", repr(value))}


def _name(value: Any) -> str:
  return f"{getattr(value, '__module__', None)}:{value.__qualname__}"


def _is_importable(value: Any) -> bool:
  """Whether another process finds the same under this name."""
  module = sys.modules.get(getattr(value, "__module__", None) or "")
  if module is None or module.__name__ == "__main__":
    return False
  found: Any = module
  for part in value.__qualname__.split("."):
    found = getattr(found, part, None)
  return found is value


def _content(cell: types.CellType) -> Any:
  try:
    return cell.cell_contents
  except ValueError:  # nothing is there yet
    return None


def _global_names(code: types.CodeType) -> list[str]:
  inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
  return sorted({*code.co_names, *(n for own in inner for n in _global_names(own))})


def _digest(code: types.CodeType) -> str:
  """Of what code does, whatever the lines that it stands on."""

  def text(constant: Any) -> str:
    if isinstance(constant, types.CodeType):
      return _digest(constant)
    if isinstance(constant, Collection) and not isinstance(constant, str | bytes):
      parts = map(text, constant)  # a set's order is another in each process
      return str(sorted(parts) if isinstance(constant, frozenset) else [*parts])
    return repr(constant)

  parts = [code.co_code.hex(), *code.co_names, *map(text, code.co_consts)]
  return hashlib.sha256("\n".join(parts).encode()).hexdigest()
