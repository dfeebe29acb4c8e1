"""The host loop: queues trials into lanes and hands out results as they end."""

from __future__ import annotations

import concurrent.futures
import itertools
import time
import warnings
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from sepfx.ensembles import hosts
from sepfx.ensembles.cells import Cell
from sepfx.ensembles.lanes import CONTINUE, RESUME, START, KeyData, Lanes
from sepfx.ensembles.records import Result, trial_name
from sepfx.errors import Interrupted, require
from sepfx.training import Seeds, State

# Lanes a device where they are vmapped and memory allows. Fixed, so that it does not
# follow the number of trials at hand: under vmap the width decides a program's last
# digits.
_VMAPPED_LANES = 32
# Share of a device's memory that one cell's program may take: one runs, one may run
# beside it.
_MEMORY_SHARE = 0.3
# Cells whose programs are compiled while an earlier one runs.
_COMPILING_AHEAD = 2
# The number of a dispatch's steps is steered towards this share of a trial's whole
# time, within these bounds in seconds. A trial that ends leaves its lane idle until the
# dispatch is over; on the other hand each dispatch costs some milliseconds.
_DISPATCH_SHARE = 0.05
_DISPATCH_SECONDS = (0.05, 1.0)
# How often the loop looks up while it waits for a compilation.
_POLL_SECONDS = 0.2
# How often it looks which of several cells' dispatches is over.
_LOOK_SECONDS = 0.002


class Watcher:
  """Someone who is told what happens: a progress bar, a run directory.

  Subclasses override what they want to hear of.
  """

  def compiling(self, cell: Cell) -> None:
    """Nothing can run before this cell's program is compiled."""

  def advanced(self, cell: Cell, steps: np.ndarray) -> None:
    """A dispatch is over in which the cell's lanes took these steps, [L]."""

  def ended(self, result: Result) -> None:
    """A trial has ended."""


class InProgress(NamedTuple):
  """Trials of one cell that have started and not ended (L lanes).

  Attributes:
    cell: whose they are.
    trials: index of each trial, -1 where a lane is idle, [L].
    states: with a leading lane axis, sharded over devices or in NumPy.
  """

  cell: Cell
  trials: np.ndarray
  states: State


class Keeper(Protocol):
  """Someone who keeps trials in progress, such as `sepfx.ensembles.Checkpoints`."""

  def restore(self, cells: Sequence[Cell]) -> Mapping[str, Mapping[int, State]]:
    """Returns the states last saved, in NumPy, by cell name and trial."""

  def due(self) -> bool:
    """Whether it is time to save."""

  def save(self, in_progress: Sequence[InProgress]) -> None:
    """Keeps these, in place of those saved before."""


def run(
  cells: Sequence[Cell],
  *,
  seed: int,
  num_trials: int,
  lanes: int = 0,
  devices: Sequence[jax.Device] | None = None,
  finished: Collection[str] = (),
  watchers: Sequence[Watcher] = (),
  keeper: Keeper | None = None,
  stopping: Callable[[], bool] = lambda: False,
  programs: dict[str, Lanes] | None = None,
) -> Iterator[Result]:
  """Runs every cell's trials and yields each result when its trial ends.

  A result depends on the seed, the cell and the trial's index alone, not on the
  lanes, the devices, the processes, the other cells or what is already finished. In a
  run of several processes each calls this with the same arguments and gets the same
  results.

  Args:
    cells: the grid, from `grid`.
    seed: from 0 to 2^32 - 1.
    num_trials: trials a cell.
    lanes: lanes a device; 0 to choose.
    devices: where to run; None for all of the default platform.
    finished: names of trials (`trial_name`) not to run again.
    watchers: told of everything that happens.
    keeper: keeps the trials in progress, so that a later run goes on with them.
    stopping: asked after every dispatch whether to save and stop.
    programs: of cells, by name, that an earlier run on the same devices compiled;
      those compiled here are added.

  Raises:
    InvalidSetting: for a setting outside its domain, or codes that cannot be drawn.
    Interrupted: when `stopping` said so, after what is in progress was kept.
  """
  require(0 <= seed < 2**32, "seed", seed, "an integer from 0 to 2^32 - 1")
  require(num_trials >= 1, "num_trials", num_trials, "an integer >= 1")
  require(lanes >= 0, "lanes", lanes, "an integer >= 1, or 0 to choose")
  waiting = {}
  for cell in cells:
    unfinished = [k for k in range(num_trials) if trial_name(cell, k) not in finished]
    if unfinished:
      seeds = cell.seeds(seed, num_trials)
      cell.trial.task.check_draw(seeds.task)
      waiting[cell.name] = (cell, unfinished, seeds)
  devices = list(devices or jax.devices())
  parked = keeper.restore(cells) if keeper else {}
  return _run(
    [_Queue(*own, parked.get(name, {})) for name, own in waiting.items()],
    _Compiler(devices, lanes, programs),
    watchers,
    keeper,
    stopping,
  )


class _Queue:
  """The trials of one cell that have not ended and are in no lane.

  Attributes:
    cell: whose.
    waiting: their indices; those already begun come first.
    parked: states of those already begun, by index.
    key_data: of all the cell's trials.
  """

  def __init__(self, cell: Cell, unfinished: Sequence[int], seeds: Seeds, parked):
    self.cell = cell
    self.parked = {k: parked[k] for k in unfinished if k in parked}
    self.waiting = deque(sorted(unfinished, key=lambda k: k not in self.parked))
    self.key_data: KeyData = tuple(
      np.asarray(jax.random.key_data(keys)) for keys in seeds
    )


class _Compiler:
  """Compiles a cell's program, with as many lanes as are asked for and fit."""

  def __init__(
    self,
    devices: Sequence[jax.Device],
    lanes: int,
    programs: dict[str, Lanes] | None = None,
  ):
    self.devices = devices
    self._programs = programs
    self._mapped = devices[0].platform == "cpu"
    self._lanes = lanes or (1 if self._mapped else _VMAPPED_LANES)
    own = [device for device in devices if device.process_index == jax.process_index()]
    memory = own[0].memory_stats() or {}
    limit = memory.get("bytes_limit") if lanes == 0 else None
    self._budget = _MEMORY_SHARE * limit if limit else None

  def __call__(self, cell: Cell) -> Lanes:
    if self._programs is None:
      return self._compile(cell)
    if cell.name not in self._programs:
      self._programs[cell.name] = self._compile(cell)
    return self._programs[cell.name]

  def _compile(self, cell: Cell) -> Lanes:
    width = self._lanes
    while True:
      try:
        program = Lanes(cell.trial, self.devices, width, mapped=self._mapped)
      except jax.errors.JaxRuntimeError as error:
        width = _narrower(width, error)
        continue
      fits = self._budget is None or program.bytes_per_device <= self._budget
      if fits or width == 1:
        return program
      del program  # its lanes' memory, before narrower ones are made
      width //= 2

  def narrow(self, width: int, error: jax.errors.JaxRuntimeError) -> None:
    """After this error with `width` lanes, compiles with half as many at most."""
    self._lanes = _narrower(width, error)
    if self._programs is not None:
      self._programs.clear()


def _narrower(width: int, error: jax.errors.JaxRuntimeError) -> int:
  """Half as many lanes if memory ran out; raises the error if that is no way out."""
  # Processes do not run out at the same time, so they would halve at different times.
  if "RESOURCE_EXHAUSTED" not in str(error) or width == 1 or jax.process_count() > 1:
    raise error
  warnings.warn(
    f"out of memory with {width} lanes a device: going on with {width // 2}",
    stacklevel=2,
  )
  return width // 2


class _OpenCell:
  """A cell that is running: its queue, its lanes, and which trial is in which."""

  def __init__(self, queue: _Queue, lanes: Lanes):
    self.cell, self.lanes = queue.cell, lanes
    self._queue = queue
    self._in_lane = np.full(lanes.num_lanes, -1)  # index of the trial that a lane runs
    self._step = np.zeros(lanes.num_lanes, int)  # of each lane's trial, last we heard
    self._refill = np.full(lanes.num_lanes, CONTINUE, np.int32)
    self._since = np.zeros(lanes.num_lanes)  # when each lane's trial was put there
    self._lifetime = 0.0  # seconds, of the trial that has been there longest so far
    self._started = 0.0  # when the last dispatch was
    self._report: Any = None
    self.num_steps = lanes.quantum  # of the next dispatch

  @property
  def has_waiting(self) -> bool:
    return bool(self._queue.waiting)

  @property
  def running(self) -> bool:
    return bool(np.any(self._in_lane >= 0))

  def occupies(self, device: int) -> bool:
    """Whether one of the cell's trials is in a lane of this device."""
    return bool(np.any(self._in_lane[self._lanes_of(device)] >= 0))

  def fill(self, device: int) -> None:
    """Puts waiting trials into the idle lanes of a device."""
    parked = {}
    for lane in range(*self._lanes_of(device).indices(self.lanes.num_lanes)):
      if self._in_lane[lane] >= 0 or not self._queue.waiting:
        continue
      trial = self._queue.waiting.popleft()
      self._in_lane[lane], self._since[lane] = trial, time.perf_counter()
      state = self._queue.parked.pop(trial, None)
      if state is None or state.step % self.lanes.quantum:
        self._refill[lane], self._step[lane] = START, 0
      else:
        self._refill[lane], self._step[lane] = RESUME, state.step
        parked[lane] = state
    if parked:
      self.lanes.put(parked)

  def dispatch(self) -> None:
    """Starts to advance the lanes."""
    key_data = tuple(keys[self._in_lane] for keys in self._queue.key_data)
    self._started = time.perf_counter()
    self._report = self.lanes.advance(key_data, self._refill, self.num_steps)

  def ready(self) -> bool:
    """Whether the lanes have come to the end of their dispatch."""
    return all(a.is_ready() for a in jax.tree.leaves(self._report))

  def steer(self) -> None:
    """Sets the steps of the next dispatch, at the end of this one."""
    jax.block_until_ready(self._report)
    now = time.perf_counter()
    oldest = now - np.min(self._since[self._in_lane >= 0], initial=now)
    self._lifetime = max(self._lifetime, oldest)
    wanted = np.clip(_DISPATCH_SHARE * self._lifetime, *_DISPATCH_SECONDS)
    # At most doubled: the first dispatches are too short to extrapolate from.
    ratio = min(2.0, wanted / (now - self._started))
    quantum = self.lanes.quantum
    self.num_steps = quantum * max(1, round(self.num_steps * ratio / quantum))

  def collect(self) -> tuple[np.ndarray, list[Result]]:
    """Returns the steps that each lane took and the trials that ended."""
    report = hosts.fetch(self._report)
    self._refill[:] = CONTINUE
    running = self._in_lane >= 0
    steps = np.where(running, report.step - self._step, 0)
    self._step = np.array(report.step)
    results = []
    for lane in np.flatnonzero(running & ~report.active):
      own = jax.tree.map(lambda field, lane=lane: field[lane], report)
      outcomes, curve = self.cell.trial.outcomes(own), self.cell.trial.curve(own)
      results.append(Result(self.cell, int(self._in_lane[lane]), outcomes, curve))
      self._in_lane[lane] = -1
    return steps, results

  def requeue(self) -> _Queue:
    """Returns the cell's queue, with the trials in its lanes to start anew."""
    self._queue.waiting.extendleft(reversed(self._in_lane[self._in_lane >= 0].tolist()))
    return self._queue

  def in_progress(self) -> InProgress:
    return InProgress(self.cell, self._in_lane, self.lanes.states)

  def _lanes_of(self, device: int) -> slice:
    width = self.lanes.lanes_per_device
    return slice(device * width, (device + 1) * width)


def _parked(queue: _Queue) -> Iterator[InProgress]:
  """What a queue holds of trials already begun."""
  if queue.parked:
    states = jax.tree.map(lambda *rows: np.stack(rows), *queue.parked.values())
    yield InProgress(queue.cell, np.array(list(queue.parked)), states)


def _run(queues: list[_Queue], compiler: _Compiler, watchers, keeper, stopping):
  unopened: deque[tuple[_Queue, Future[Lanes]]] = deque()
  uncompiled = iter(queues)
  open_cells: list[_OpenCell] = []
  announced = None
  with ThreadPoolExecutor(max_workers=_COMPILING_AHEAD) as pool:
    try:
      while True:
        # Cells are compiled ahead while earlier ones run.
        for queue in itertools.islice(uncompiled, 1 + _COMPILING_AHEAD - len(unopened)):
          unopened.append((queue, pool.submit(compiler, queue.cell)))
        if not (open_cells or unopened):
          return
        if unopened and not open_cells:
          queue, program = unopened[0]
          if queue is not announced:
            announced = queue
            for watcher in watchers:
              watcher.compiling(queue.cell)
          concurrent.futures.wait([program], timeout=_POLL_SECONDS)
        stop, due, not_ready, *num_steps = hosts.largest(
          [
            stopping(),
            keeper is not None and keeper.due(),
            not (unopened and unopened[0][1].done()),
            *(opened.num_steps for opened in open_cells),
          ]
        )
        if keeper is not None and (stop or due):
          begun = [opened.in_progress() for opened in open_cells if opened.running]
          for queue in queues:
            begun.extend(_parked(queue))
          keeper.save(begun)
        if stop:
          raise Interrupted
        for opened, agreed in zip(open_cells, num_steps, strict=True):
          opened.num_steps = int(agreed)
        # A device works for one cell at a time: the last trials of one cell run on
        # some devices while the others go on to the next.
        for device in range(len(compiler.devices)):
          owner = next((c for c in open_cells if c.occupies(device)), None)
          if owner is None:
            owner = next((c for c in open_cells if c.has_waiting), None)
          if owner is None and unopened and not not_ready:
            queue, program = unopened.popleft()
            owner = _OpenCell(queue, program.result())
            open_cells.append(owner)
            not_ready = True  # one a round: whether the next is, is agreed on then
          if owner is not None:
            owner.fill(device)
        try:
          _advance(open_cells)
        except jax.errors.JaxRuntimeError as error:
          width = max(opened.lanes.lanes_per_device for opened in open_cells)
          compiler.narrow(width, error)
          reopened = [opened.requeue() for opened in open_cells]
          open_cells.clear()  # frees their lanes
          open_cells = [_OpenCell(queue, compiler(queue.cell)) for queue in reopened]
          continue
        for opened in open_cells:
          steps, results = opened.collect()
          for watcher in watchers:
            watcher.advanced(opened.cell, steps)
          for result in results:
            for watcher in watchers:
              watcher.ended(result)
            yield result
        for opened in open_cells:
          if not (opened.running or opened.has_waiting):
            opened.lanes.clear()
        open_cells = [c for c in open_cells if c.running or c.has_waiting]
    finally:
      for _, unneeded in unopened:
        unneeded.cancel()


def _advance(open_cells: list[_OpenCell]) -> None:
  """One dispatch of every cell, side by side where they are on different devices."""
  for opened in open_cells:
    opened.dispatch()
  pending = list(open_cells)
  while pending:
    if len(pending) > 1 and not any(opened.ready() for opened in pending):
      time.sleep(_LOOK_SECONDS)
      continue
    over = [opened for opened in pending if len(pending) == 1 or opened.ready()]
    for opened in over:
      opened.steer()
    pending = [opened for opened in pending if opened not in over]
