"""Presets: files of flags that belong to a study, in `flags/`."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Sequence

from sepfx.errors import require

_FILES = pathlib.Path(__file__).parent / "flags"


def of(study: str) -> list[str]:
  """The names of the presets whose comments have a command of this study.

  Args:
    study: its command, such as "sample-complexity".
  """
  command = re.compile(rf"^#.*\bsepfx {re.escape(study)} .*--preset=", re.MULTILINE)
  return sorted(f.stem for f in _FILES.glob("*.cfg") if command.search(f.read_text()))


def described(argv: Sequence[str], study: str) -> str:
  """What the presets of a command line say of themselves, and their flags.

  Raises:
    InvalidSetting: for a preset that the study does not have.
  """
  new = [own for own in expanded(list(argv), study) if own not in argv]
  files = [pathlib.Path(own.removeprefix("--flagfile=")) for own in new]
  return "\n".join(path.read_text().rstrip() for path in files)


def expanded(argv: list[str], study: str) -> list[str]:
  """Replaces --preset=NAME by the flag file of that preset.

  Args:
    argv: a command line.
    study: whose it is.

  Raises:
    InvalidSetting: for a preset that the study does not have.
  """
  known = of(study)
  found = []
  arguments = iter(argv)
  for argument in arguments:
    flag, given, name = argument.partition("=")
    if flag in ("--preset", "-preset"):
      name = name if given else next(arguments, "")
      takes = f"one of {', '.join(known)}" if known else f"nothing: {study} has none"
      require(name in known, "preset", name, takes)
      argument = f"--flagfile={_FILES / name}.cfg"
    found.append(argument)
  return found
