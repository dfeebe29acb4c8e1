"""Standard output and standard error that may be gone, full, or read by nobody.

What a run prints is worth less than the run: text that cannot be written is dropped.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import stat
import sys

import rich.console

# How long text waits for the reader of a full pipe.
_PATIENCE_SECONDS = 10.0
# A pipe that is ready takes this much at once.
_PIECE = select.PIPE_BUF


class Outlet(io.TextIOBase):
  """A stream that never fails and never waits for long."""

  def __init__(self, descriptor: int):
    """Writes to this file descriptor, which stays open."""
    self._descriptor = descriptor
    self._is_pipe = False
    with contextlib.suppress(OSError):
      mode = os.fstat(descriptor).st_mode
      self._is_pipe = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)

  encoding = "utf-8"

  def writable(self) -> bool:
    return True

  def fileno(self) -> int:
    return self._descriptor

  def isatty(self) -> bool:
    return os.isatty(self._descriptor)

  def write(self, text: str) -> int:
    left = memoryview(text.encode(errors="replace"))
    with contextlib.suppress(OSError):
      while left and self._ready():
        left = left[os.write(self._descriptor, left[:_PIECE]) :]
    return len(text)

  def _ready(self) -> bool:
    if not self._is_pipe:
      return True
    return bool(select.select([], [self._descriptor], [], _PATIENCE_SECONDS)[1])


def install() -> None:
  """Makes outlets of `sys.stdout` and `sys.stderr`, for the rest of the process.

  Where one of them was closed from the start its number is given to the null device:
  otherwise the next file that is opened would get the number, and with it all that
  libraries write there.
  """
  for name, descriptor in (("stdout", 1), ("stderr", 2)):
    if getattr(sys, name) is None:
      try:
        os.fstat(descriptor)
        null = os.open(os.devnull, os.O_WRONLY)  # its number is in use by now
      except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        if null != descriptor:
          os.dup2(null, descriptor)
          os.close(null)
          null = descriptor
      setattr(sys, name, Outlet(null))
    else:
      with contextlib.suppress(OSError, ValueError):
        getattr(sys, name).flush()
      setattr(sys, name, Outlet(descriptor))


def console(*, stderr: bool = False, quiet: bool = False) -> rich.console.Console:
  """Returns what prints to standard output or standard error; nothing if quiet.

  Text stands as it is: a model's name is neither markup nor an emoji, also where it has
  brackets or is `drop:A:rate=0.9`.
  """
  return rich.console.Console(
    stderr=stderr, quiet=quiet, highlight=False, markup=False, emoji=False
  )


def say(text: str) -> None:
  """Writes lines to standard error, in one piece: other threads write there, too."""
  Outlet(2).write(text + "\n")
