"""Compiles programs while earlier ones run, several at once."""

from __future__ import annotations

import concurrent.futures
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from sepfx import cores, precision
from sepfx.ensembles.cells import Cell
from sepfx.ensembles.lanes import Lanes
from sepfx.ensembles.programs import Queue

# How long `wait` waits at most.
_POLL_SECONDS = 0.2
_MOST = 8


def number_of_workers() -> int:
  """How many programs compile at once: on all cores but one, two at least.

  More than eight gain nothing: tracing holds Python's lock for an eighth of the time.
  """
  return min(_MOST, max(2, cores.available() - 1))


class Compilations:
  """The programs of queues, in the order in which they are needed.

  As many are compiled at once as there are workers; one more waits to be taken. A context
  manager: on exit those that have not begun are given up, and the others are waited for.
  """

  def __init__(
    self, queues: Sequence[Queue], compiler: Callable[[Cell], Lanes], workers: int
  ):
    """Compiles nothing yet.

    Args:
      queues: one for each program.
      compiler: makes the program of trials like a cell's.
      workers: programs that compile at once.
    """
    self._uncompiled = iter(queues)
    self._compiler, self._ahead = compiler, 1 + workers
    self._pool = ThreadPoolExecutor(max_workers=workers)
    self._begun: deque[tuple[Queue, Future[Lanes]]] = deque()

  def __enter__(self) -> Compilations:
    return self

  def __exit__(self, *_: object) -> None:
    self._pool.shutdown(cancel_futures=True)

  def begin(self) -> None:
    """Has the next programs compiled."""
    for queue in itertools.islice(self._uncompiled, self._ahead - len(self._begun)):
      compiled = precision.carried(self._compiler)
      self._begun.append((queue, self._pool.submit(compiled, queue.example.cell)))

  @property
  def next(self) -> Queue | None:
    """Whose program is to be taken next; None if all were."""
    return self._begun[0][0] if self._begun else None

  @property
  def ready(self) -> bool:
    """Whether the next one is compiled."""
    return bool(self._begun) and self._begun[0][1].done()

  def wait(self) -> None:
    """Waits a little for the next one."""
    concurrent.futures.wait([self._begun[0][1]], timeout=_POLL_SECONDS)

  def take(self) -> tuple[Queue, Lanes]:
    """Returns the next one, after waiting for it.

    Raises:
      OutOfMemory: if it does not fit.
    """
    queue, program = self._begun.popleft()
    return queue, program.result()

  def unfinished(self) -> list[Cell]:
    """A cell of each program that is being compiled; those not begun are given up."""
    return [
      queue.example.cell
      for queue, program in self._begun
      if not (program.cancel() or program.done())
    ]
