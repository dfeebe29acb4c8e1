"""What a setting is made of, as JSON: two that differ have different fingerprints.

What functions and classes do is not in it: `sources` has the digests of that.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import re
import sys
import types
from collections.abc import Mapping, Set
from typing import Any

import jax
import numpy as np

from sepfx.moved import recorded_name


def fingerprint(value: Any, but: str = "") -> Any:
  """Returns what tells a value from others, the same in every process.

  Numbers, texts and sequences are themselves; arrays have a digest of their content;
  dataclasses and objects their class and fields. Functions and classes have their names.
  A function that another process would not import under its name, such as a closure, has
  also what it closes over and its defaults.

  Args:
    value: anything.
    but: a field of `value` to leave out.
  """
  return _of(value, but, ())


def without_code(found: Any) -> Any:
  """Returns a fingerprint as it is today, of one that an earlier version wrote.

  That had digests of code in it.
  """
  if isinstance(found, list):
    return [without_code(each) for each in found]
  if not isinstance(found, dict):
    return found
  if found.keys() == {"class", "methods"}:
    return found["class"]
  gone = ("code", "globals") if "function" in found else ()
  return {key: without_code(own) for key, own in found.items() if key not in gone}


def name_of(value: Any) -> str:
  """The name of a function or class in files, "package.module:name"."""
  module = getattr(value, "__module__", None)
  return f"{recorded_name(module) if module else module}:{value.__qualname__}"


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
  if isinstance(value, Set):  # its order is another in each process
    return {"set": sorted((_of(each, "", above) for each in value), key=repr)}
  if isinstance(value, Mapping):
    return {_key(key): _of(each, "", above) for key, each in value.items()}
  if isinstance(value, np.ndarray | jax.Array):
    return _of_array(value)
  if isinstance(value, functools.partial):
    parts = {"function": value.func, "args": value.args, "keywords": value.keywords}
    return {"class": "functools:partial", **_of(parts, "", above)}
  if isinstance(value, types.ModuleType):
    return value.__name__
  if callable(value) and hasattr(value, "__qualname__"):
    return _of_function_or_class(value, above)
  return _of_object(value, but, above)


def _key(value: Any) -> str:
  """The text of a mapping's key, without an address."""
  named = callable(value) and hasattr(value, "__qualname__")
  return name_of(value) if named else str(value)


def _of_array(value: Any) -> dict[str, Any]:
  array = np.asarray(
    jax.random.key_data(value)
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)
    else value
  )
  if array.dtype == object:
    return {
      "array": "object",
      "shape": list(array.shape),
      "of": _of(array.tolist(), "", ()),
    }
  digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
  return {"array": str(array.dtype), "shape": list(array.shape), "sha256": digest}


def _of_function_or_class(value: Any, above: tuple[int, ...]) -> Any:
  function = inspect.unwrap(value)
  if isinstance(value, type) or _is_importable(value):
    return name_of(value)
  if not isinstance(function, types.FunctionType):
    return name_of(value)
  found: dict[str, Any] = {"function": name_of(value)}
  own: Any
  for kind, own in (
    ("closure", [content(cell) for cell in function.__closure__ or ()]),
    ("defaults", defaults(function)),
  ):
    if own:
      found[kind] = _of(own, "", above)
  return found


def _of_object(value: Any, but: str, above: tuple[int, ...]) -> Any:
  cls = type(value)
  name = name_of(cls)
  if dataclasses.is_dataclass(value):
    names = [field.name for field in dataclasses.fields(value)]
    fields = {n: getattr(value, n) for n in names if n not in ("parent", but)}
    return {"class": name, **_of(fields, "", above)}
  if cls.__repr__ is object.__repr__ and getattr(value, "__dict__", None):
    return {"class": name, **_of(vars(value), "", above)}
  return {"class": name, "repr": re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))}


def _is_importable(value: Any) -> bool:
  """Whether another process finds the same under this name."""
  module = sys.modules.get(getattr(value, "__module__", None) or "")
  if module is None or module.__name__ == "__main__":
    return False
  found: Any = module
  for part in value.__qualname__.split("."):
    found = getattr(found, part, None)
  return found is value


def content(cell: types.CellType) -> Any:
  """What a function closes over; None where nothing is there yet."""
  try:
    return cell.cell_contents
  except ValueError:
    return None


def defaults(function: types.FunctionType) -> list[Any]:
  """The defaults of a function's arguments, those by keyword with their names."""
  return [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()]
