"""Kills, full disks and failing ones: the whole table.

    python -m benchmarks.faults

Strikes every file operation of a small run of one study and every tenth of the others
(`benchmarks.file_faults`). What was tried stands in runs/faults/ and is not tried again.
Takes hours.
"""

from __future__ import annotations

import subprocess
import sys

from benchmarks.file_faults import EXPERIMENTS

_WHOLE = "sample_complexity"


def main() -> int:
  """Returns 1 if something did not survive."""
  commands = [
    ("file_faults", f"--experiment={name}", f"--every={1 if name == _WHOLE else 10}")
    for name in EXPERIMENTS
  ]
  codes = [
    subprocess.run([sys.executable, "-m", f"benchmarks.{module}", *flags]).returncode
    for module, *flags in commands
  ]
  return int(any(codes))


if __name__ == "__main__":
  sys.exit(main())
