"""What is asked: one folder per paper, and the questions of no single paper.

A question stands in one place: its study, its summary, its figure and its bound. Presets
are in `flags/`. Installed as `sepfx.experiments`.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType

from sepfx.commands import catalogue

_RUN_OR_IMPORT = """
if __name__ == "__main__":
  import runpy
  runpy.run_module({0!r}, run_name="__main__", alter_sys=True)
else:
  import importlib, sys
  sys.modules[__name__] = importlib.import_module({0!r})
"""


class _Studies(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
  """Lets `experiments.NAME` name a study of a paper without its folders."""

  def find_spec(
    self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
  ) -> importlib.machinery.ModuleSpec | None:
    parent, _, study = name.rpartition(".")
    if parent != __name__ or not _module_of(study):
      return None
    return importlib.machinery.ModuleSpec(name, self)

  def get_code(self, name: str) -> CodeType:
    module = _module_of(name.rpartition(".")[2])
    return compile(_RUN_OR_IMPORT.format(module), f"<{name}>", "exec")

  def get_source(self, name: str) -> None:
    return None

  def is_package(self, name: str) -> bool:
    return False


def _module_of(study: str) -> str:
  """The module of a study of this package; "" if there is none."""
  entry = catalogue.of_package(__name__).get(study.replace("_", "-"))
  return entry.module if entry else ""


sys.meta_path.append(_Studies())
