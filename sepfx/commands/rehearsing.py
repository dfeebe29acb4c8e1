"""A dry run while it lasts: what is compiled is said, and SIGTERM ends it."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterator

from sepfx import outlets
from sepfx.commands import options
from sepfx.commands.command_line import STOPPED
from sepfx.ensembles import Cell, Watcher
from sepfx.ensembles.rehearsal import Rehearsed

FLAGS = options.FLAGS

# How often a dry run looks whether it is to stop.
_POLL_SECONDS = 0.2


class Progress(Watcher):
  """Says on stderr what is compiled, and how far the dry run is."""

  def __init__(self, programs: int):
    """Says nothing yet.

    Args:
      programs: how many there are, at most.
    """
    self._programs, self._begun = programs, 0
    self._console = outlets.console(stderr=True, quiet=FLAGS.quiet)

  def compiling(self, cell: Cell) -> None:
    self._begun += 1
    place = f"{self._begun} of {self._programs}"
    self._console.print(f"compiling {place}: {cell.words}", soft_wrap=True)


def stoppable(programs: Iterator[Rehearsed], stop: options.Stop) -> Iterator[Rehearsed]:
  """Yields each, or ends the process when it is asked to stop.

  A thread of its own compiles: in the main one no signal would be heard until it is done.
  """
  done: queue.SimpleQueue[Rehearsed | BaseException | None] = queue.SimpleQueue()

  def work() -> None:
    try:
      for program in programs:
        done.put(program)
      done.put(None)
    except BaseException as error:
      done.put(error)

  threading.Thread(target=work, daemon=True).start()
  while True:
    if stop.requested:
      outlets.say("stopped; nothing was run")
      os._exit(STOPPED)  # an ordinary end would wait for what is being compiled
    try:
      own = done.get(timeout=_POLL_SECONDS)
    except queue.Empty:
      continue
    if isinstance(own, BaseException):
      raise own
    if own is None:
      return
    yield own
