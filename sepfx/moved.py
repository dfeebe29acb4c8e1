"""What has other names since the papers have folders of their own.

Files that were written before have the former names of modules. So do those written now:
directories go on.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

# Former modules, and where they are: in `sepfx.experiments`, or in this package.
MODULES = {
  "sepfx.constructions.boolean": "boolean.construction",
  "sepfx.constructions.chain": "fourier.chain_of_thought.construction",
  "sepfx.constructions.classes": "qstr.constructions.classes",
  "sepfx.constructions.fourier": "fourier.flatness.construction",
  "sepfx.constructions.interpolation": "qstr.constructions.interpolation",
  "sepfx.constructions.recurrent": "qstr.constructions.recurrent",
  "sepfx.constructions.retrieval": "qstr.constructions.retrieval",
  "sepfx.constructions.slots": "qstr.constructions.slots",
  "sepfx.models.cls_attention": "sepfx.models.layers.cls_attention",
  "sepfx.models.evaluation": "sepfx.models.building.evaluation",
  "sepfx.models.factories": "sepfx.models.building.factories",
  "sepfx.models.fields": "sepfx.models.building.fields",
  "sepfx.models.flat_transformer": "fourier.flat_transformer",
  "sepfx.models.initializers": "sepfx.models.layers.initializers",
  "sepfx.models.modes": "sepfx.models.building.modes",
  "sepfx.models.network": "sepfx.models.layers.network",
  "sepfx.models.nnx_modules": "sepfx.models.building.nnx_modules",
  "sepfx.models.products": "sepfx.models.layers.products",
  "sepfx.models.published": "sepfx.models.building.published",
  "sepfx.models.sizes": "sepfx.models.building.sizes",
  "sepfx.theory.capacity": "capacity",
  "sepfx.theory.covering": "qstr.bounds.covering",
  "sepfx.theory.exhaustive": "boolean.exhaustive",
  "sepfx.theory.flat_derivatives": "fourier.flatness.flat_derivatives",
  "sepfx.theory.fourier": "fourier.spectra",
  "sepfx.theory.guarantees": "qstr.bounds.guarantees",
  "sepfx.theory.lower_bounds": "qstr.bounds.lower_bounds",
  "sepfx.theory.pac_bayes": "fourier.flatness.pac_bayes",
  "sepfx.theory.perturbation": "fourier.flatness.perturbation",
  "sepfx.theory.perturbed_steps": "fourier.flatness.perturbed_steps",
  "sepfx.theory.property_testing": "fourier.property_testing.estimators",
  "sepfx.theory.rademacher": "boolean.rademacher",
  "sepfx.theory.representation": "qstr.bounds.representation",
  "sepfx.theory.sharpness": "sepfx.probes.hessian",
}
_FORMER = {place: module for module, place in MODULES.items()}
# Of which there are former names to be imported.
_PACKAGES = ("sepfx.constructions", "sepfx.theory")


def recorded_name(module: str) -> str:
  """The name of a module in files: its former one, if it has one."""
  place = module.removeprefix("sepfx.experiments.").removeprefix("experiments.")
  return _FORMER.get(place, module)


def former(package: str, places: Mapping[str, str]) -> Callable[[str], Any]:
  """Returns the `__getattr__` of a package whose names have moved; it warns of each.

  Args:
    package: its name.
    places: the former module, in that package, of each function and class.
  """

  def found(name: str) -> Any:
    module = f"{package}.{name}"
    if module in MODULES:
      return _imported(module, "")
    if name in places:
      return _imported(f"{package}.{places[name]}", name)
    raise AttributeError(f"module {package!r} has no attribute {name!r}")

  return found


def _imported(module: str, attribute: str) -> Any:
  """What stands where a former module is now, or an attribute of it."""
  place = MODULES[module]
  if not place.startswith("sepfx."):
    # In a clone that is not installed they stand beside.
    installed = importlib.util.find_spec("sepfx.experiments") is not None
    place = f"{'sepfx.' if installed else ''}experiments.{place}"
  package, now = module.rpartition(".")[0], f"{place}.{attribute}".rstrip(".")
  was = f"{package}.{attribute}" if attribute else module
  warnings.warn(
    f"{was} is {now} now; the old name goes with the next release",
    DeprecationWarning,
    stacklevel=3,
  )
  found = importlib.import_module(place)
  return getattr(found, attribute) if attribute else found


class _Modules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
  """Imports former modules of the packages that are gone."""

  def find_spec(
    self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
  ) -> importlib.machinery.ModuleSpec | None:
    wanted = name in MODULES and name.rpartition(".")[0] in _PACKAGES
    return importlib.machinery.ModuleSpec(name, self) if wanted else None

  def exec_module(self, module: ModuleType) -> None:
    sys.modules[module.__name__] = _imported(module.__name__, "")


sys.meta_path.append(_Modules())
