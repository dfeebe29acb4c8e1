"""Names that were in this package and are among the studies now."""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Callable, Mapping
from typing import Any


def former(
  package: str, places: Mapping[str, str], modules: Mapping[str, str]
) -> Callable[[str], Any]:
  """Returns the `__getattr__` of a module whose names have moved; it warns of each.

  Args:
    package: the module.
    places: where each name of a function or class is, as modules of `sepfx.experiments`
      or, with a full name, of this package.
    modules: likewise where its modules are.
  """

  def found(name: str) -> Any:
    if name in places:
      place, attribute = places[name], name
    elif name in modules:
      place, attribute = modules[name], ""
    else:
      raise AttributeError(f"module {package!r} has no attribute {name!r}")
    place = place if place.startswith("sepfx.") else f"{_studies()}.{place}"
    now = f"{place}.{attribute}".rstrip(".")
    warnings.warn(
      f"{package}.{name} is {now} now; the old name goes with the next release",
      DeprecationWarning,
      stacklevel=3,
    )
    module = importlib.import_module(place)
    return getattr(module, attribute) if attribute else module

  return found


def _studies() -> str:
  """The package of the studies: in a clone that is not installed it stands beside."""
  installed = importlib.util.find_spec("sepfx.experiments") is not None
  return "sepfx.experiments" if installed else "experiments"
