"""Compiles programs: how many lanes each gets, and several at once while others run."""

from __future__ import annotations

import concurrent.futures
import itertools
import math
import warnings
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax

from sepfx import cores, precision
from sepfx.ensembles import widths
from sepfx.ensembles.cells import Cell
from sepfx.ensembles.lanes import Lanes
from sepfx.ensembles.programs import Queue
from sepfx.errors import OutOfMemory, require
from sepfx.provenance.environment import kind_of
from sepfx.training import Trial

# How long `wait` waits at most.
_POLL_SECONDS = 0.2
# Programs that compile at once, at most.
_MOST = 8
# Lanes per device at most. It is what a run is asked for, never lowered to the trials at
# hand: under vmap the width decides a program's last digits. Wider programs gain nothing
# on any device, and their arrays are made on the host first.
MAX_LANES = 4096
# Share of a device's memory that one program may take: one runs, one may run beside it.
_MEMORY_SHARE = 0.3

# Compiled programs by the structure of their trials.
Programs = MutableMapping[Any, Lanes]


def check_lanes(lanes: int) -> None:
  """Raises `InvalidSetting` unless it is a number of lanes per device, or 0 to choose."""
  takes = f"an integer from 1 to {MAX_LANES}, or 0 to choose"
  require(isinstance(lanes, int), "lanes", lanes, takes)
  require(0 <= lanes <= MAX_LANES, "lanes", lanes, takes)


class Compiler:
  """Compiles a queue's program, with as many lanes as are asked for and fit.

  Attributes:
    devices: where its programs run.
    mapped: whether lanes are advanced one after another: on CPUs.
    kind: of the devices.
  """

  def __init__(
    self,
    devices: Sequence[jax.Device],
    lanes: int,
    programs: Programs | None = None,
    before: Mapping[Any, int] | None = None,
  ):
    """Compiles nothing yet.

    Args:
      devices: where its programs run, all of one kind.
      lanes: per device, of every program; 0 to choose.
      programs: as in `run`.
      before: lanes per device that trials have run with, by their structure: what is
        chosen for them again.
    """
    self.devices = devices
    self._programs = programs
    self.mapped = _are_mapped(devices)
    self.kind = kind_of(devices[0])
    self._asked, self._before = lanes, before or {}
    self._most = MAX_LANES
    memory = devices[0].memory_stats() or {}
    self._memory = _MEMORY_SHARE * memory.get("bytes_limit", math.inf)

  def __call__(self, cell: Cell) -> Lanes:
    """Returns the program for trials like this cell's.

    Raises:
      OutOfMemory: if it does not fit.
    """
    if self._programs is None:
      return self._compile(cell)
    structure = jax.tree.structure(cell.trial)
    program = self._programs.get(structure)
    if program is None:
      program = self._compile(cell)
    if program.lanes_per_device <= self._most:  # else `narrow` was called meanwhile
      self._programs[structure] = program
    return program

  def _compile(self, cell: Cell) -> Lanes:
    given = self._asked or self._before.get(jax.tree.structure(cell.trial), 0)
    memory = math.inf if given else self._memory
    width = min(given or self._chosen(cell.trial), self._most)
    while True:
      try:
        program = Lanes(cell.trial, self.devices, width, mapped=self.mapped)
      except (jax.errors.JaxRuntimeError, MemoryError) as error:
        width = _narrower(width, error, [cell])
        continue
      if program.bytes_per_device <= memory or width == 1:
        return program
      # As many as should fit, a power of two as before.
      share = memory / program.bytes_per_device
      del program  # its lanes' memory, before narrower ones are made
      width = min(width // 2, 2 ** math.floor(math.log2(max(width * share, 1))))

  def _chosen(self, trial: Trial) -> int:
    return 1 if self.mapped else widths.width(trial, self.kind)

  def narrow(self, width: int, error: Exception, cells: Sequence[Cell]) -> None:
    """After this error with `width` lanes, compiles with half as many at most.

    Args:
      width: lanes per device.
      error: any, of JAX or of memory.
      cells: one of each program that ran.

    Raises:
      OutOfMemory: if fewer lanes cannot help.
    """
    self._most = _narrower(width, error, cells)
    if self._programs is not None:
      self._programs.clear()


def _are_mapped(devices: Sequence[jax.Device]) -> bool:
  """Whether lanes are advanced one after another: where a core is a device."""
  return devices[0].platform == "cpu"


def _narrower(width: int, error: Exception, cells: Sequence[Cell]) -> int:
  """Half as many lanes.

  Raises `OutOfMemory` if fewer lanes cannot help, and any error that is not of memory.
  """
  if not ran_out(error):
    raise error
  if width == 1:
    what = ", and beside it ".join(cell.words for cell in cells)
    lanes = f"{width} lane{'s' if width > 1 else ''} per device"
    (reason, *_) = str(error).splitlines() or [type(error).__name__]
    raise OutOfMemory(f"out of memory: {what} with {lanes} ({reason})") from error
  warnings.warn(
    f"out of memory with {width} lanes per device: going on with {width // 2}",
    stacklevel=2,
  )
  return width // 2


def ran_out(error: BaseException) -> bool:
  """Whether an error says that a device or the host is out of memory."""
  of_jax = isinstance(error, jax.errors.JaxRuntimeError)
  return isinstance(error, MemoryError) or (of_jax and "RESOURCE_EXHAUSTED" in str(error))


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
