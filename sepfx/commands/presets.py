"""Presets: files of flags that belong to a study, in `flags/` of its package."""

from __future__ import annotations

import pathlib
import re
import sys
from collections.abc import Sequence

from sepfx.errors import require

_FOLDER = "flags"


def folder() -> pathlib.Path:
  """Where the presets of the study that is being run are: see `folder_of`."""
  return folder_of(getattr(sys.modules["__main__"], "__file__", None) or ".")


def folder_of(file: str | pathlib.Path) -> pathlib.Path:
  """Where the presets of a study's file are: beside it, or beside one of its packages."""
  (own, *above) = pathlib.Path(file).resolve().parents
  for place in (own, *above):
    if (place / _FOLDER).is_dir() or not (place / "__init__.py").exists():
      return place / _FOLDER
  raise AssertionError("a path has a root, which is no package")


def of(study: str, folder: pathlib.Path) -> list[str]:
  """The names of the presets whose comments have a command of this study.

  Args:
    study: its command, such as "sample-complexity".
    folder: where its presets are.
  """
  command = re.compile(rf"^#.*\bsepfx {re.escape(study)} .*--preset=", re.MULTILINE)
  return sorted(f.stem for f in folder.glob("*.cfg") if command.search(f.read_text()))


def described(argv: Sequence[str], study: str, folder: pathlib.Path) -> str:
  """What the presets of a command line say of themselves, and their flags.

  Raises:
    InvalidSetting: for a preset that the study does not have.
  """
  new = [own for own in expanded(list(argv), study, folder) if own not in argv]
  files = [pathlib.Path(own.removeprefix("--flagfile=")) for own in new]
  return "\n".join(path.read_text().rstrip() for path in files)


def expanded(argv: list[str], study: str, folder: pathlib.Path) -> list[str]:
  """Replaces --preset=NAME by the flag file of that preset.

  Args:
    argv: a command line.
    study: whose it is.
    folder: where its presets are.

  Raises:
    InvalidSetting: for a preset that the study does not have.
  """
  known = of(study, folder)
  found = []
  arguments = iter(argv)
  for argument in arguments:
    flag, given, name = argument.partition("=")
    if flag in ("--preset", "-preset"):
      name = name if given else next(arguments, "")
      takes = f"one of {', '.join(known)}" if known else f"nothing: {study} has none"
      require(name in known, "preset", name, takes)
      argument = f"--flagfile={folder / name}.cfg"
    found.append(argument)
  return found
