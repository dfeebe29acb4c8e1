"""What `--help` prints: what a study asks, and every flag that it has."""

from __future__ import annotations

import inspect
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence

from absl import flags

from sepfx.commands import presets
from sepfx.studies import settings

# What asks for help.
ASKED = {"--help", "-help", "-h", "-?", "--helpshort", "-helpshort"}

# Flags of those programs that train nothing.
_OF_REPORTS = ("classes", "output_dir", "quiet")


def of_study(study: str, argv: Sequence[str] = ()) -> str:
  """The help of the study that is being run; of a preset, if one is given.

  Args:
    study: its command, such as "sample-complexity".
    argv: the command line.

  Raises:
    InvalidSetting: for a preset that the study does not have.
  """
  main = sys.modules["__main__"]
  folder = presets.folder()
  if preset := presets.described(argv, study, folder):
    return preset
  trains = hasattr(main, "STUDY")
  own, others = [], []
  for module, defined in flags.FLAGS.flags_by_module_dict().items():
    if module == sys.argv[0]:
      own += defined
    elif module.startswith("sepfx."):
      others += [f for f in defined if trains or f.name in _OF_REPORTS]
  common = settings.fields(settings.Common)
  own.sort(key=lambda flag: flag.name in common)
  known = presets.of(study, folder)
  return "\n".join(
    [
      inspect.cleandoc(main.__doc__ or ""),
      *(["\nPresets: " + ", ".join(known)] if known else []),
      *(["--preset=NAME takes one, --preset=NAME --help tells of it."] if known else []),
      "\nWhat is measured. [several]: values with commas between them are an axis.\n",
      *_described(own),
      "\nHow it is run:\n",
      *_described(others),
      "\nA flag may also stand in a file: --flagfile=PATH, one flag per line.",
    ]
  )


def _described(defined: Iterable[flags.Flag]) -> list[str]:
  width = min(shutil.get_terminal_size().columns, 90)
  lines = []
  for flag in defined:
    default = "" if flag.default is None else str(flag.default_as_str).strip("'")
    head = f"--[no]{flag.name}" if flag.boolean else f"--{flag.name}={default}"
    lines.append("  " + head)
    lines += textwrap.wrap(flag.help or "", width, initial_indent=" " * 6,
                           subsequent_indent=" " * 6)  # fmt: skip
  return lines
