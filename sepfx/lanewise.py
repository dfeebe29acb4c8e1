"""Settings that lanes may differ in: dataclasses some of whose fields are data.

A compiled program is made for a trial's structure. The leaves of a trial are its
arguments, so that one program trains trials of different rates, noises and the like.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import jax

_Class = TypeVar("_Class", bound=type)
_REGISTERED: set[type] = set()


class _Structure:
  """What is compiled: which fields are data, and all the others with their values.

  Settings that have no hash (a user's list, say) are told apart by comparison alone.
  """

  def __init__(self, data: tuple[str, ...], fixed: tuple[tuple[str, Any], ...]):
    self.data, self.fixed = data, fixed

  def __eq__(self, other: object) -> bool:
    if not isinstance(other, _Structure) or self.data != other.data:
      return False
    try:
      return bool(self.fixed == other.fixed)
    except ValueError:  # NumPy arrays are neither equal nor unequal as a whole
      return False

  def __hash__(self) -> int:
    try:
      return hash((self.data, self.fixed))
    except TypeError:
      return hash(self.data)


def lanewise(*names: str) -> Callable[[_Class], _Class]:
  """Makes fields of a frozen dataclass data of the lanes; all others are structure.

  The class becomes a JAX pytree. A named field is a leaf, or a subtree, where its value
  is a number, an array or of a class that is lanewise itself; otherwise (None, a
  function, a plain dataclass, an `optax.GradientTransformation`) it stays structure.

  Args:
    names: of the fields.

  Raises:
    TypeError: for a name that is no field.
  """

  def register(cls: _Class) -> _Class:
    fields = [field.name for field in dataclasses.fields(cls)]
    if unknown := set(names) - set(fields):
      raise TypeError(f"{cls.__name__} has no field {sorted(unknown)[0]!r}")

    def flatten_with_keys(own: Any):
      data = tuple(name for name in names if _is_data(getattr(own, name)))
      fixed = tuple((name, getattr(own, name)) for name in fields if name not in data)
      children = [(jax.tree_util.GetAttrKey(k), getattr(own, k)) for k in data]
      return children, _Structure(data, fixed)

    def unflatten(structure: _Structure, children: Any) -> Any:
      # Not by the constructor: leaves may be tracers, which no check can look at.
      own: Any = object.__new__(cls)
      for name, value in structure.fixed:
        object.__setattr__(own, name, value)
      for name, value in zip(structure.data, children, strict=True):
        object.__setattr__(own, name, value)
      return own

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten)
    _REGISTERED.add(cls)
    return cls

  return register


def _is_data(value: Any) -> bool:
  if type(value) in _REGISTERED:
    return True
  number = isinstance(value, int | float) and not isinstance(value, bool)
  return number or (hasattr(value, "shape") and hasattr(value, "dtype"))
