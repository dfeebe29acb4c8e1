"""Shares of a run: each is run by a process of its own, in a directory of its own.

`shares/3-of-64` of a run's directory is a run directory as any, with lock, records and
checkpoints. A process that runs a share holds the run's directory together with the other
shares, and only reads there; a plain run holds it alone. Who starts does so after the one
before it: `starting`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import pathlib
import re
from collections.abc import Iterator, Sequence

from sepfx.errors import require

DIRECTORY = "shares"
LOCK = ".lock"
# Where tasks of a job whose numbers have gaps say which share they have.
CLAIMS = "claims"
_NAME = re.compile(r"(\d+)-of-(\d+)")


@dataclasses.dataclass(frozen=True)
class Share:
  """One of `count` shares of a run's trials.

  Attributes:
    index: which, from 0.
    count: of how many.
  """

  index: int
  count: int

  def __str__(self) -> str:
    return f"share {self.index} of {self.count}"

  def checked(self) -> Share:
    """Returns it; raises `InvalidSetting` unless 0 <= index < count."""
    got = f"{self.index}/{self.count}"
    takes = "i/n with 0 <= i < n"
    if self.count > 0:
      takes += f": from 0/{self.count} to {self.count - 1}/{self.count}"
    require(0 <= self.index < self.count, "share", got, takes)
    return self

  def directory(self, run: pathlib.Path) -> pathlib.Path:
    """Where its trials are recorded.

    Args:
      run: the directory of the run.
    """
    return run / DIRECTORY / f"{self.index}-of-{self.count}"

  def others(self) -> Iterator[Share]:
    """The other shares of as many."""
    return (Share(k, self.count) for k in range(self.count) if k != self.index)

  def cut(self, items: Sequence) -> Sequence:
    """Its part of what all shares do: runs of nearly equal length, in order."""
    begin, end = (len(items) * k // self.count for k in (self.index, self.index + 1))
    return items[begin:end]


def there(run: pathlib.Path) -> dict[Share, pathlib.Path]:
  """The shares that have a directory, of whatever number, in order.

  Args:
    run: the directory of the run.
  """
  found = {}
  for path in (run / DIRECTORY).glob("*-of-*"):
    if match := _NAME.fullmatch(path.name):
      found[Share(int(match[1]), int(match[2]))] = path
  return dict(sorted(found.items(), key=lambda item: (item[0].count, item[0].index)))


@contextlib.contextmanager
def starting(run: pathlib.Path) -> Iterator[None]:
  """Waits until no other process starts a share of this run, or merges them.

  Args:
    run: the directory of the run.

  Raises:
    OSError: if nothing can be written there.
  """
  (run / DIRECTORY).mkdir(parents=True, exist_ok=True)
  with open(run / DIRECTORY / LOCK, "a+") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    yield


def living(run: pathlib.Path) -> list[Share]:
  """The shares that processes hold.

  Between `starting` and its end alone: a share that is just being taken is refused
  otherwise.

  Args:
    run: the directory of the run.
  """
  return [share for share, path in there(run).items() if _is_held(path / LOCK)]


def _is_held(path: pathlib.Path) -> bool:
  try:
    with open(path, "a+") as lock:
      fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
  except BlockingIOError:
    return True
  except FileNotFoundError:
    return False
  return False


def running(some: Sequence[Share]) -> str:
  """Says of shares that they run: "share 3 of 64 runs"."""
  return f"{named(some)} {'run' if len(some) > 1 else 'runs'}"


def named(some: Sequence[Share]) -> str:
  """Shares in words: "share 3 of 64", "shares 0, 1 and 2 more of 64"."""
  counts = dict.fromkeys(share.count for share in some)
  return " and ".join(
    _of_count([str(share.index) for share in some if share.count == count], count)
    for count in counts
  )


def _of_count(indices: Sequence[str], count: int) -> str:
  most = 8
  more = f" and {len(indices) - most} more" if len(indices) > most else ""
  plural = "s" if len(indices) > 1 else ""
  return f"share{plural} {', '.join(indices[:most])}{more} of {count}"


def claimed(run: pathlib.Path, job: str, task: str, count: int) -> Share:
  """The share of a task of a job whose tasks have no consecutive numbers.

  The first task that comes has the first share, and the same again when it is started
  again.

  Args:
    run: the directory of the run.
    job: what tells the job from others.
    task: what tells the task from the job's others.
    count: how many tasks the job has.

  Raises:
    OSError: if nothing can be written there.
  """
  claims = run / DIRECTORY / CLAIMS
  with starting(run):
    claims.mkdir(exist_ok=True)
    own = claims / f"{job}-{task}"
    if not own.exists():
      number = len(list(claims.glob(f"{job}-*")))
      partial = claims / ".partial"
      partial.write_text(str(number))
      os.replace(partial, own)
    return Share(int(own.read_text()), count).checked()
