"""What is asked: one folder per paper, and the questions of no single paper.

A question stands in one place: its study, its summary, its figure and its bound. Presets
are in `flags/`. Installed as `sepfx.experiments`.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import pathlib
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType


class _Studies(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
  """Lets `python -m experiments.NAME` name a study of a paper without its folders."""

  def find_spec(
    self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
  ) -> importlib.machinery.ModuleSpec | None:
    parent, _, study = name.rpartition(".")
    if parent != __name__ or not _places(study):
      return None
    return importlib.machinery.ModuleSpec(name, self)

  def get_code(self, name: str) -> CodeType:
    (place,) = _places(name.rpartition(".")[2])
    module = ".".join((__name__, *place.relative_to(__path__[0]).with_suffix("").parts))
    run = (
      f"import runpy\nrunpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    )
    return compile(run, str(place), "exec")

  def get_source(self, name: str) -> None:
    return None

  def is_package(self, name: str) -> bool:
    return False


def _places(study: str) -> list[pathlib.Path]:
  """The file of a study that stands in the folder of a paper, if there is one."""
  here = pathlib.Path(__path__[0])
  return [*here.glob(f"*/**/{study}.py"), *here.glob(f"*/**/{study}/study.py")]


sys.meta_path.append(_Studies())
