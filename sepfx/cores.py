"""How many CPU cores this process may use.

A machine may have more of them than a job was given, by `taskset`, by a scheduler such as
SLURM, or by a container.
"""

from __future__ import annotations

import contextlib
import math
import os
import pathlib
from collections.abc import Iterator

# Version 2: https://docs.kernel.org/admin-guide/cgroup-v2.html
# Version 1: https://docs.kernel.org/scheduler/sched-bwc.html
_GROUPS = "proc/self/cgroup"
_MOUNTED = "sys/fs/cgroup"


def available(root: str | os.PathLike = "/") -> int:
  """Returns the number of cores that this process may use, at least 1.

  That is the least of three: the machine's cores, those that the process may run on
  (its affinity), and the quota of CPU time of its control groups. A part of a core counts
  as a whole one, so that nothing of a quota is left unused: 1.5 cores are 2.

  Args:
    root: where the system's files begin.
  """
  quotas = [math.ceil(quota) for quota in _quotas(pathlib.Path(root))]
  return max(1, min([_allowed(), *quotas]))


def _allowed() -> int:
  """The cores that the process may run on."""
  with contextlib.suppress(AttributeError, OSError):  # not every system has affinities
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


def _quotas(root: pathlib.Path) -> Iterator[float]:
  """The quotas of the process's control groups and of all that these are in, in cores."""
  for line in _text(root / _GROUPS).splitlines():
    _, _, rest = line.partition(":")
    controllers, _, path = rest.partition(":")
    if not controllers:  # version 2
      for group in _upwards(root / _MOUNTED, path):
        yield from _quota(*_text(group / "cpu.max").split()[:2])
    elif "cpu" in controllers.split(","):
      for mounted in dict.fromkeys((controllers, "cpu")):
        for group in _upwards(root / _MOUNTED / mounted, path):
          files = (group / f"cpu.cfs_{name}_us" for name in ("quota", "period"))
          yield from _quota(*(_text(file).strip() for file in files))


def _upwards(mounted: pathlib.Path, path: str) -> Iterator[pathlib.Path]:
  """The directories of a control group and of all that it is in.

  In a container the path may be the host's. Its own group is then where all are mounted,
  which is the last of these.
  """
  parts = [part for part in path.split("/") if part not in ("", "..")]
  for depth in range(len(parts), -1, -1):
    yield mounted.joinpath(*parts[:depth])


def _quota(quota: str = "", period: str = "") -> Iterator[float]:
  """Microseconds of CPU time in a period of so many; none where they are no limit."""
  if quota.isdecimal() and period.isdecimal() and int(period) > 0:
    yield int(quota) / int(period)


def _text(path: pathlib.Path) -> str:
  """The content of a file, "" where there is none to be read."""
  try:
    return path.read_text()
  except (OSError, ValueError):
    return ""
