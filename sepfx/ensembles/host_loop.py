"""The host loop: queues trials into lanes and hands out results as they end.

Cells whose trials have one structure share a program, and so their trials share lanes.
"""

from __future__ import annotations

import concurrent.futures
import functools
import itertools
import time
import warnings
from collections import deque
from collections.abc import (
  Callable,
  Collection,
  Iterator,
  Mapping,
  MutableMapping,
  Sequence,
)
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from sepfx.ensembles import hosts, keys
from sepfx.ensembles.cells import Cell
from sepfx.ensembles.lanes import (
  CONTINUE,
  RESUME,
  START,
  KeyData,
  Lanes,
  Leaves,
  leaves_of,
)
from sepfx.ensembles.records import Result, trial_name
from sepfx.errors import Interrupted, require
from sepfx.training import Probe, Report, Seeds, State, Trial, probe_key

# Lanes a device where they are vmapped and memory allows. Fixed, so that it does not
# follow the number of trials at hand: under vmap the width decides a program's last
# digits.
_VMAPPED_LANES = 32
# Share of a device's memory that one program may take: one runs, one may run beside it.
_MEMORY_SHARE = 0.3
# Programs that are compiled while an earlier one runs.
_COMPILING_AHEAD = 2
# The number of a dispatch's steps is steered towards this share of a trial's whole
# time, within these bounds in seconds. A trial that ends leaves its lane idle until the
# dispatch is over; on the other hand each dispatch costs some milliseconds.
_DISPATCH_SHARE = 0.05
_DISPATCH_SECONDS = (0.05, 1.0)
# How often the loop looks up while it waits for a compilation.
_POLL_SECONDS = 0.2
# How often it looks which of several programs' dispatches is over.
_LOOK_SECONDS = 0.002


class Watcher:
  """Someone who is told what happens: a progress bar, a run directory.

  Subclasses override what they want to hear of.
  """

  def compiling(self, cell: Cell) -> None:
    """Nothing can run before this cell's program is compiled."""

  def advanced(self, cells: Sequence[Cell | None], steps: np.ndarray) -> None:
    """A dispatch of one program is over.

    Args:
      cells: of the trial in each lane, None where there was none.
      steps: that each lane took, [L].
    """

  def ended(self, result: Result) -> None:
    """A trial has ended."""


class Job(NamedTuple):
  """One trial to run.

  Attributes:
    cell: whose.
    trial: its index.
    key_data: of its seeds.
    leaves: of `cell.trial`.
  """

  cell: Cell
  trial: int
  key_data: KeyData
  leaves: Leaves

  @property
  def of(self) -> TrialOf:
    return self.cell.name, self.trial


# A cell's name and a trial's index.
TrialOf = tuple[str, int]


class InProgress(NamedTuple):
  """Trials of one structure that have started and not ended (L lanes).

  Attributes:
    trials: each lane's, None where a lane is idle.
    states: with a leading lane axis, sharded over devices or in NumPy.
  """

  trials: Sequence[TrialOf | None]
  states: State


class Keeper(Protocol):
  """Someone who keeps trials in progress, such as `sepfx.ensembles.Checkpoints`."""

  def restore(self, cells: Sequence[Cell]) -> Mapping[TrialOf, State]:
    """Returns the states last saved of these cells' trials, in NumPy."""

  def due(self) -> bool:
    """Whether it is time to save."""

  def save(self, in_progress: Sequence[InProgress]) -> None:
    """Keeps these, in place of those saved before."""


# Compiled programs by the structure of their trials.
Programs = MutableMapping[Any, Lanes]


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
  programs: Programs | None = None,
  probe: Probe | None = None,
  keep_weights: bool = False,
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
    programs: that an earlier run on the same devices compiled; those compiled here are
      added.
    probe: measured on each trial when it has ended.
    keep_weights: whether results hold the weights.

  Raises:
    InvalidSetting: for a setting outside its domain, or codes that cannot be drawn.
    Interrupted: when `stopping` said so, after what is in progress was kept.
  """
  require(0 <= seed < 2**32, "seed", seed, "an integer from 0 to 2^32 - 1")
  require(num_trials >= 1, "num_trials", num_trials, "an integer >= 1")
  require(lanes >= 0, "lanes", lanes, "an integer >= 1, or 0 to choose")
  jobs: dict[Any, list[Job]] = {}
  for cell in cells:
    unfinished = [k for k in range(num_trials) if trial_name(cell, k) not in finished]
    if unfinished:
      seeds = cell.seeds(seed, num_trials)
      cell.trial.task.check_draw(seeds.task)
      key_data = [np.asarray(jax.random.key_data(own)) for own in seeds]
      leaves = leaves_of(cell.trial)
      own = jobs.setdefault(jax.tree.structure(cell.trial), [])
      own += [Job(cell, k, tuple(a[k] for a in key_data), leaves) for k in unfinished]
  devices = list(devices or jax.devices())
  parked = keeper.restore(cells) if keeper else {}
  queues = [_Queue(own, parked) for own in jobs.values()]
  compiler = _Compiler(devices, lanes, programs)
  prober = _Prober(probe) if probe else None
  loop = _Loop(queues, compiler, watchers, keeper, stopping, prober, keep_weights)
  return loop.results()


class _Queue:
  """The trials of one structure that have not ended and are in no lane.

  Attributes:
    example: one of them.
    waiting: all of them; those already begun come first.
    parked: states of those already begun.
  """

  def __init__(self, jobs: Sequence[Job], parked: Mapping[TrialOf, State]):
    self.example = jobs[0]
    self.parked = {job.of: parked[job.of] for job in jobs if job.of in parked}
    self.waiting = deque(sorted(jobs, key=lambda job: job.of not in self.parked))

  def in_progress(self) -> Iterator[InProgress]:
    """What it holds of trials already begun."""
    if self.parked:
      states = jax.tree.map(lambda *rows: np.stack(rows), *self.parked.values())
      yield InProgress(list(self.parked), states)


class _Compiler:
  """Compiles a queue's program, with as many lanes as are asked for and fit."""

  def __init__(
    self,
    devices: Sequence[jax.Device],
    lanes: int,
    programs: Programs | None = None,
  ):
    self.devices = devices
    self._programs = programs
    self._mapped = devices[0].platform == "cpu"
    self._lanes = lanes or (1 if self._mapped else _VMAPPED_LANES)
    own = [device for device in devices if device.process_index == jax.process_index()]
    memory = own[0].memory_stats() or {}
    limit = memory.get("bytes_limit") if lanes == 0 else None
    self._budget = _MEMORY_SHARE * limit if limit else None

  def __call__(self, trial: Trial) -> Lanes:
    if self._programs is None:
      return self._compile(trial)
    structure = jax.tree.structure(trial)
    if structure not in self._programs:
      self._programs[structure] = self._compile(trial)
    return self._programs[structure]

  def _compile(self, trial: Trial) -> Lanes:
    width = self._lanes
    while True:
      try:
        program = Lanes(trial, self.devices, width, mapped=self._mapped)
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


class _OpenProgram:
  """A program that is running: its queue, its lanes, and which trial is in which."""

  def __init__(self, queue: _Queue, lanes: Lanes):
    self.lanes = lanes
    self._queue = queue
    self._jobs: list[Job | None] = [None] * lanes.num_lanes
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
    return any(self._jobs)

  def occupies(self, device: int) -> bool:
    """Whether a trial is in a lane of this device."""
    return any(self._jobs[lane] for lane in self._lanes_of(device))

  def fill(self, device: int) -> None:
    """Puts waiting trials into the idle lanes of a device."""
    parked = {}
    for lane in self._lanes_of(device):
      if self._jobs[lane] or not self._queue.waiting:
        continue
      job = self._queue.waiting.popleft()
      self._jobs[lane], self._since[lane] = job, time.perf_counter()
      state = self._queue.parked.pop(job.of, None)
      if state is None or state.step % self.lanes.quantum:
        self._refill[lane], self._step[lane] = START, 0
      else:
        self._refill[lane], self._step[lane] = RESUME, state.step
        parked[lane] = state
    if parked:
      self.lanes.put(parked)

  def dispatch(self) -> None:
    """Starts to advance the lanes."""
    self._started = time.perf_counter()
    self._report = self.lanes.advance(*self._arguments, self._refill, self.num_steps)

  def ready(self) -> bool:
    """Whether the lanes have come to the end of their dispatch."""
    return all(a.is_ready() for a in jax.tree.leaves(self._report))

  def steer(self) -> None:
    """Sets the steps of the next dispatch, at the end of this one."""
    jax.block_until_ready(self._report)
    now = time.perf_counter()
    busy = [lane for lane, job in enumerate(self._jobs) if job]
    oldest = now - np.min(self._since[busy], initial=now)
    self._lifetime = max(self._lifetime, oldest)
    wanted = np.clip(_DISPATCH_SHARE * self._lifetime, *_DISPATCH_SECONDS)
    # At most doubled: the first dispatches are too short to extrapolate from.
    ratio = min(2.0, wanted / (now - self._started))
    quantum = self.lanes.quantum
    self.num_steps = quantum * max(1, round(self.num_steps * ratio / quantum))

  def collect(
    self, watchers: Sequence[Watcher], with_params: bool
  ) -> list[tuple[Job, Result]]:
    """Returns the trials that ended, after the watchers were told of the steps."""
    report: Report = hosts.fetch(self._report)
    self._refill[:] = CONTINUE
    running = np.array([job is not None for job in self._jobs])
    steps = np.where(running, report.step - self._step, 0)
    self._step = np.array(report.step)
    for watcher in watchers:
      watcher.advanced([job.cell if job else None for job in self._jobs], steps)
    ended = []
    for lane in np.flatnonzero(running & ~report.active):
      job = self._jobs[lane]
      assert job is not None
      own = jax.tree.map(lambda field, lane=lane: field[lane], report)
      trial = job.cell.trial
      params = self.lanes.take(int(lane)) if with_params else None
      outcomes, curve = trial.outcomes(own), trial.curve(own)
      ended.append((job, Result(job.cell, job.trial, outcomes, curve, None, params)))
      self._jobs[lane] = None
    return ended

  def requeue(self) -> _Queue:
    """Returns the queue, with the trials in the lanes to start anew."""
    self._queue.waiting.extendleft(job for job in reversed(self._jobs) if job)
    return self._queue

  def in_progress(self) -> InProgress:
    trials = [job.of if job else None for job in self._jobs]
    return InProgress(trials, self.lanes.states)

  @property
  def _arguments(self) -> tuple[KeyData, Leaves]:
    """Key data and leaves of each lane's trial; of an idle lane, another's."""
    jobs = [job or self._queue.example for job in self._jobs]
    key_data = tuple(
      np.stack(a) for a in zip(*(job.key_data for job in jobs), strict=True)
    )
    leaves = tuple(np.stack(a) for a in zip(*(job.leaves for job in jobs), strict=True))
    return key_data, leaves

  def _lanes_of(self, device: int) -> range:
    width = self.lanes.lanes_per_device
    return range(device * width, (device + 1) * width)


class _Prober:
  """Measures trials that have ended, in a thread of its own, while others go on.

  Every process measures all of them: what it needs is with each of them already.
  """

  def __init__(self, probe: Probe):
    self._probe = probe
    self._programs: dict[Any, Callable] = {}
    self._pool = ThreadPoolExecutor(max_workers=1)

  def __call__(self, job: Job, result: Result) -> Future[Result]:
    """Starts to measure; the future has the result with its probes."""
    return self._pool.submit(self._measured, job, result)

  def close(self) -> None:
    """Gives up what has not begun."""
    self._pool.shutdown(cancel_futures=True)

  def _measured(self, job: Job, result: Result) -> Result:
    structure = jax.tree.structure(job.cell.trial)
    if structure not in self._programs:
      self._programs[structure] = jax.jit(functools.partial(self._values, structure))
    program = self._programs[structure]
    found = jax.device_get(program(job.leaves, job.key_data, result.params))
    diverged = any(outcome[-1] == "diverged" for outcome in result.outcomes)
    values = {k: np.nan if diverged else float(value) for k, value in found.items()}
    return result._replace(probes=values)

  def _values(self, structure: Any, leaves: Leaves, key_data: KeyData, params: Any):
    trial = jax.tree.unflatten(structure, leaves)
    seeds = Seeds(*(keys.wrap_key_data(jnp.asarray(own)) for own in key_data))
    return self._probe(trial, params, trial.world(seeds), probe_key(seeds))


class _Agreed(NamedTuple):
  """What all processes do in this round, as any of them asks for it."""

  stop: bool
  save: bool
  open_next: bool
  num_steps: list[int]


class _Loop:
  """Advances the programs round by round, several side by side on different devices."""

  def __init__(
    self,
    queues: Sequence[_Queue],
    compiler: _Compiler,
    watchers: Sequence[Watcher],
    keeper: Keeper | None,
    stopping: Callable[[], bool],
    prober: _Prober | None,
    keep_weights: bool,
  ):
    self._queues, self._compiler = queues, compiler
    self._watchers, self._keeper, self._stopping = watchers, keeper, stopping
    self._prober, self._keep_weights = prober, keep_weights
    self._measuring: list[Future[Result]] = []
    self._uncompiled = iter(queues)
    self._unopened: deque[tuple[_Queue, Future[Lanes]]] = deque()
    self._open: list[_OpenProgram] = []
    self._announced: _Queue | None = None

  def results(self) -> Iterator[Result]:
    """Runs to the end."""
    with ThreadPoolExecutor(max_workers=_COMPILING_AHEAD) as pool:
      try:
        while True:
          self._compile_ahead(pool)
          if not (self._open or self._unopened):
            break
          if not self._open:
            self._wait_for_program()
          agreed = self._agree()
          if self._keeper is not None and (agreed.stop or agreed.save):
            self._save(self._keeper)
          if agreed.stop:
            break
          self._fill(agreed)
          if self._advance():
            yield from self._collect()
        concurrent.futures.wait(self._measuring)
        yield from self._measured()
        if self._open or self._unopened:
          raise Interrupted
      finally:
        for _, unneeded in self._unopened:
          unneeded.cancel()
        if self._prober is not None:
          self._prober.close()

  def _compile_ahead(self, pool: ThreadPoolExecutor) -> None:
    """Has the next programs compiled while earlier ones run."""
    number = 1 + _COMPILING_AHEAD - len(self._unopened)
    for queue in itertools.islice(self._uncompiled, number):
      future = pool.submit(self._compiler, queue.example.cell.trial)
      self._unopened.append((queue, future))

  def _wait_for_program(self) -> None:
    """Waits a little for the next program: without it nothing can run."""
    queue, program = self._unopened[0]
    if queue is not self._announced:
      self._announced = queue
      for watcher in self._watchers:
        watcher.compiling(queue.example.cell)
    concurrent.futures.wait([program], timeout=_POLL_SECONDS)

  def _agree(self) -> _Agreed:
    stop, save, not_ready, *num_steps = hosts.largest(
      [
        self._stopping(),
        self._keeper is not None and self._keeper.due(),
        not (self._unopened and self._unopened[0][1].done()),
        *(opened.num_steps for opened in self._open),
      ]
    )
    return _Agreed(bool(stop), bool(save), not not_ready, list(map(int, num_steps)))

  def _save(self, keeper: Keeper) -> None:
    begun = [opened.in_progress() for opened in self._open if opened.running]
    for queue in self._queues:
      begun.extend(queue.in_progress())
    keeper.save(begun)

  def _fill(self, agreed: _Agreed) -> None:
    """Puts trials into idle lanes.

    A device works for one program at a time: the last trials of one run on some devices
    while the others go on to the next.
    """
    for opened, num_steps in zip(self._open, agreed.num_steps, strict=True):
      opened.num_steps = num_steps
    open_next = agreed.open_next
    for device in range(len(self._compiler.devices)):
      owner = next((c for c in self._open if c.occupies(device)), None)
      if owner is None:
        owner = next((c for c in self._open if c.has_waiting), None)
      if owner is None and self._unopened and open_next:
        queue, program = self._unopened.popleft()
        owner = _OpenProgram(queue, program.result())
        self._open.append(owner)
        open_next = False  # one a round: whether the next is, is agreed on then
      if owner is not None:
        owner.fill(device)

  def _advance(self) -> bool:
    """One dispatch of every open program; False if memory ran out in it."""
    try:
      _advance(self._open)
      return True
    except jax.errors.JaxRuntimeError as error:
      width = max(opened.lanes.lanes_per_device for opened in self._open)
      self._compiler.narrow(width, error)
    queues = [opened.requeue() for opened in self._open]
    self._open.clear()  # frees their lanes
    self._open = [
      _OpenProgram(queue, self._compiler(queue.example.cell.trial)) for queue in queues
    ]
    return False

  def _collect(self) -> Iterator[Result]:
    """Hands out what has ended and closes the programs that have nothing left."""
    with_params = self._keep_weights or self._prober is not None
    for opened in self._open:
      for job, result in opened.collect(self._watchers, with_params):
        if self._prober is None:
          yield self._told(result)
        else:
          self._measuring.append(self._prober(job, result))
    yield from self._measured()
    for opened in self._open:
      if not (opened.running or opened.has_waiting):
        opened.lanes.clear()
    self._open = [c for c in self._open if c.running or c.has_waiting]

  def _measured(self) -> Iterator[Result]:
    """Hands out what has been measured, in the order in which it ended."""
    while self._measuring and self._measuring[0].done():
      result = self._measuring.pop(0).result()
      yield self._told(result if self._keep_weights else result._replace(params=None))

  def _told(self, result: Result) -> Result:
    for watcher in self._watchers:
      watcher.ended(result)
    return result


def _advance(programs: Sequence[_OpenProgram]) -> None:
  """One dispatch of every program, side by side where they are on different devices."""
  for opened in programs:
    opened.dispatch()
  pending = list(programs)
  while pending:
    if len(pending) > 1 and not any(opened.ready() for opened in pending):
      time.sleep(_LOOK_SECONDS)
      continue
    over = [opened for opened in pending if len(pending) == 1 or opened.ready()]
    for opened in over:
      opened.steer()
    pending = [opened for opened in pending if opened not in over]
