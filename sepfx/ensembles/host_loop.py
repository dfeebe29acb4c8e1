"""The host loop: queues trials into lanes and hands out results as they end.

Cells whose trials have one structure share a program, and so their trials share lanes.
"""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import (
  Callable,
  Collection,
  Generator,
  Iterator,
  Mapping,
  Sequence,
)
from concurrent.futures import Future, ThreadPoolExecutor

import jax

from sepfx import precision
from sepfx.ensembles.cells import Cell
from sepfx.ensembles.compiling import (
  Compilations,
  Compiler,
  Programs,
  check_lanes,
  number_of_workers,
)
from sepfx.ensembles.prober import Prober
from sepfx.ensembles.programs import (
  Dispatched,
  Job,
  OpenProgram,
  Queue,
  by_structure,
  jobs_of,
)
from sepfx.ensembles.results import Result
from sepfx.ensembles.watchers import Keeper, Watcher
from sepfx.errors import Interrupted, require
from sepfx.training import Probe

# How often it looks which of several programs' dispatches is over.
_LOOK_SECONDS = 0.002


@precision.single()
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
  widths: Mapping[str, int] | None = None,
) -> Iterator[Result]:
  """Runs every cell's trials and yields each result when its trial ends.

  A result depends on the seed, the cell and the trial's index alone, not on the
  lanes, the devices, the other cells or what is already finished.

  Args:
    cells: the grid, from `grid`.
    seed: from 0 to 2^32 - 1.
    num_trials: trials per cell.
    lanes: lanes per device; 0 to choose.
    devices: where to run; None for all of this process's, of the default platform.
    finished: names of trials (`trial_name`) not to run again.
    watchers: told of everything that happens.
    keeper: keeps the trials in progress, so that a later run goes on with them.
    stopping: asked after every dispatch whether to save and stop. Watchers hear of that
      dispatch while the next one runs.
    programs: that an earlier run on the same devices compiled; those compiled here are
      added.
    probe: measured on each trial when it has ended.
    keep_weights: whether results hold the weights.
    widths: lanes per device that other trials of these cells ran with, by the cell's
      name: what is chosen again. Where lanes are batched the width decides last digits.
      Cells that share a program have that of the first of them with trials to run.

  Raises:
    InvalidSetting: for a setting outside its domain, or codes that cannot be drawn.
    Interrupted: when `stopping` said so, after what is in progress was kept.
    OutOfMemory: if something does not fit, even with fewer lanes.
  """
  require(0 <= seed < 2**32, "seed", seed, "an integer from 0 to 2^32 - 1")
  require(num_trials >= 1, "num_trials", num_trials, "an integer >= 1")
  check_lanes(lanes)
  jobs = jobs_of(cells, seed, num_trials, finished)
  devices = list(devices or jax.local_devices())
  parked = keeper.restore(cells) if keeper else {}
  queues = [Queue(own, parked) for own in jobs]
  compiler = Compiler(devices, lanes, programs, by_structure(cells, jobs, widths))
  prober = Prober(probe) if probe else None
  loop = _Loop(queues, compiler, watchers, keeper, stopping, prober, keep_weights)
  return loop.results()


class _Loop:
  """Advances the programs round by round, several side by side on different devices."""

  def __init__(
    self,
    queues: Sequence[Queue],
    compiler: Compiler,
    watchers: Sequence[Watcher],
    keeper: Keeper | None,
    stopping: Callable[[], bool],
    prober: Prober | None,
    keep_weights: bool,
  ):
    self._queues, self._compiler = queues, compiler
    self._watchers, self._keeper, self._stopping = watchers, keeper, stopping
    self._prober, self._keep_weights = prober, keep_weights
    self._measuring: list[Future[Result]] = []
    self._unopened = Compilations(queues, compiler, number_of_workers())
    self._launcher = ThreadPoolExecutor(max_workers=len(compiler.devices))
    self._open: list[OpenProgram] = []
    self._over: list[Dispatched] = []
    self._announced: Queue | None = None

  @precision.steps_in_single
  def results(self) -> Generator[Result, None, None]:
    """Runs to the end.

    What a dispatch came to is handed out, and so recorded, while the devices compute the
    next one.
    """
    with self._launcher, self._unopened:
      try:
        while True:
          self._unopened.begin()
          if not (self._open or self._unopened.next):
            break
          if not self._open:
            yield from self._hand_out()
            self._wait_for_program()
          stop = self._stopping()
          if stop or (self._keeper is not None and self._keeper.due()):
            # First what has ended: it is in no checkpoint of what is in progress.
            yield from self._hand_out()
            if self._keeper is not None:
              self._save(self._keeper)
          if stop:
            break
          started = self._fill()
          begun = self._fits(self._dispatch)
          yield from self._hand_out()
          for job, step in started:
            for watcher in self._watchers:
              watcher.started(job.cell, job.trial, step)
          if begun and self._fits(self._wait):
            self._collect()
        yield from self._hand_out()
        concurrent.futures.wait(self._measuring)
        yield from self._measured()
        if self._open or self._unopened.next:
          raise Interrupted
      except Exception:
        yield from self._hand_out()  # what ended before it is recorded
        raise
      finally:
        held_up = self._unopened.unfinished()
        for watcher in self._watchers if held_up else ():
          watcher.held_up(held_up)
        if self._prober is not None:
          self._prober.close()

  def _wait_for_program(self) -> None:
    """Waits a little for the next program: without it nothing can run.

    One that is there at once, as those of an earlier round, is not announced.
    """
    self._unopened.wait()
    queue = self._unopened.next
    if queue is None or queue is self._announced or self._unopened.ready:
      return
    self._announced = queue
    for watcher in self._watchers:
      watcher.compiling(queue.example.cell)

  def _save(self, keeper: Keeper) -> None:
    begun = [opened.in_progress() for opened in self._open if opened.running]
    for queue in self._queues:
      begun.extend(queue.in_progress())
    keeper.save(begun)

  def _fill(self) -> list[tuple[Job, int]]:
    """Puts trials into idle lanes; returns each, with the step that it goes on from.

    A device works for one program at a time: the last trials of one run on some devices
    while the others go on to the next.
    """
    open_next = self._unopened.ready
    started = []
    for device in range(len(self._compiler.devices)):
      owner = next((c for c in self._open if c.occupies(device)), None)
      if owner is None:
        owner = next((c for c in self._open if c.has_waiting), None)
      if owner is None and self._unopened.next and open_next:
        owner = OpenProgram(*self._unopened.take(), self._launcher)
        self._open.append(owner)
        self._tell_of(owner)
        open_next = False  # one per round
      if owner is not None:
        started += owner.fill(device)
    return started

  def _fits(self, work: Callable[[], None]) -> bool:
    """Does what may run out of memory; if it does, the programs begin anew, narrower."""
    try:
      work()
      return True
    except (jax.errors.JaxRuntimeError, MemoryError) as error:
      width = max(opened.lanes.lanes_per_device for opened in self._open)
      cells = [opened.example.cell for opened in self._open]
      self._compiler.narrow(width, error, cells)
    queues = [opened.requeue() for opened in self._open]
    self._open.clear()  # frees their lanes
    self._open = [
      OpenProgram(queue, self._compiler(queue.example.cell), self._launcher)
      for queue in queues
    ]
    for opened in self._open:
      self._tell_of(opened)
    return False

  def _dispatch(self) -> None:
    """Starts every open program, side by side where they are on different devices."""
    for opened in self._open:
      opened.dispatch()

  def _wait(self) -> None:
    """Waits for all of them."""
    pending = list(self._open)
    while pending:
      if len(pending) > 1 and not any(opened.ready() for opened in pending):
        time.sleep(_LOOK_SECONDS)
        continue
      over = [opened for opened in pending if len(pending) == 1 or opened.ready()]
      for opened in over:
        opened.steer()
      pending = [opened for opened in pending if opened not in over]

  def _tell_of(self, opened: OpenProgram) -> None:
    """Says how wide a program is, before a trial runs in it."""
    if not self._compiler.mapped:
      for watcher in self._watchers:
        kind, width = self._compiler.kind, opened.lanes.lanes_per_device
        watcher.batched(opened.cells, kind, width)

  def _collect(self) -> None:
    """Takes what has ended out of the lanes, and closes programs with nothing left."""
    with_params = self._keep_weights or self._prober is not None
    for opened in self._open:
      self._over.append(opened.collect(with_params=with_params))
    for opened in self._open:
      if not (opened.running or opened.has_waiting):
        opened.lanes.clear()
    self._open = [c for c in self._open if c.running or c.has_waiting]

  def _hand_out(self) -> Iterator[Result]:
    """Tells of the dispatches that are over, and hands out what ended in them."""
    over, self._over = self._over, []
    for dispatched in over:
      for watcher in self._watchers:
        watcher.advanced(dispatched.cells, dispatched.steps)
      for job, result in dispatched.ended:
        if self._prober is None:
          yield self._told(result)
        else:
          self._measuring.append(self._prober(job, result))
    yield from self._measured()

  def _measured(self) -> Iterator[Result]:
    """Hands out what has been measured, in the order in which it ended."""
    while self._measuring and self._measuring[0].done():
      result = self._measuring.pop(0).result()
      yield self._told(result if self._keep_weights else result._replace(params=None))

  def _told(self, result: Result) -> Result:
    for watcher in self._watchers:
      watcher.ended(result)
    return result
