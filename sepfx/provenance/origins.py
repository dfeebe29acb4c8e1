"""Whose code a module is: a user's own, or an installed package's."""

from __future__ import annotations

import functools
import importlib.metadata
import pathlib
import sys
import sysconfig
from collections.abc import Mapping

_SITE = {"site-packages", "dist-packages"}
_OURS = pathlib.Path(__file__).parents[1]
_STANDARD = pathlib.Path(sysconfig.get_path("stdlib"))


def is_own(module: str) -> bool:
  """Whether a module is a user's own, by its name: of no installed package."""
  if module == "__main__":
    return True
  top = module.partition(".")[0]
  if top in ("builtins", _OURS.name) or top.startswith("namedtuple_"):
    return False
  file, name = None, module
  while file is None and name:
    loaded = sys.modules.get(name)
    places = getattr(loaded, "__path__", None) or (None,)
    file = getattr(loaded, "__file__", None) or next(iter(places))
    name = name.rpartition(".")[0]
  if file is None:  # made by hand, or of C
    return module in sys.modules and top not in sys.stdlib_module_names
  path = pathlib.Path(file)
  # The studies of a clone stand beside this package.
  apart = (_STANDARD, _OURS, _OURS.parent / "experiments")
  return not (_SITE & set(path.parts) or any(path.is_relative_to(own) for own in apart))


@functools.lru_cache  # it reads what every installed distribution consists of
def versions(packages: frozenset[str]) -> Mapping[str, str]:
  """The versions of the distributions of installed packages, by their names."""
  if not packages:
    return {}
  known = importlib.metadata.packages_distributions()
  found = {name for package in packages for name in known.get(package, ())}
  return {name: importlib.metadata.version(name) for name in sorted(found)}
