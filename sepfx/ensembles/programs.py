"""The trials of one structure: those that wait, and those in a running program."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Any, NamedTuple

import jax
import numpy as np

from sepfx import precision
from sepfx.ensembles.advance import CONTINUE, RESUME, START, Leaves
from sepfx.ensembles.cells import Cell
from sepfx.ensembles.lanes import KeyData, Lanes, leaves_of
from sepfx.ensembles.results import Result, trial_name
from sepfx.ensembles.watchers import InProgress, TrialOf
from sepfx.training import Report, State

# The number of a dispatch's steps is steered towards this share of a trial's whole
# time, within these bounds in seconds. A trial that ends leaves its lane idle until the
# dispatch is over; on the other hand each dispatch costs some milliseconds.
_DISPATCH_SHARE = 0.05
_DISPATCH_SECONDS = (0.05, 1.0)


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


def jobs_of(
  cells: Sequence[Cell], seed: int, num_trials: int, finished: Collection[str]
) -> list[list[Job]]:
  """The trials to run, a list for each structure: its trials share a program.

  Args:
    cells, seed, num_trials, finished: as in `run`.

  Raises:
    InvalidSetting: for codes that cannot be drawn.
  """
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
  return list(jobs.values())


def by_structure(
  cells: Sequence[Cell], jobs: Sequence[Sequence[Job]], widths: Mapping[str, int] | None
) -> dict[Any, int]:
  """Lanes per device by the structure of trials, where cells of it have any.

  Args:
    cells: all.
    jobs: those of their trials that are to run, from `jobs_of`. Cells with such trials
      come first: the first of a structure decides.
    widths: by the cell's name.
  """
  known = widths or {}
  to_run = {job.cell.name for own in jobs for job in own}
  found: dict[Any, int] = {}
  for cell in sorted(cells, key=lambda cell: cell.name not in to_run):
    if cell.name in known:
      found.setdefault(jax.tree.structure(cell.trial), known[cell.name])
  return found


class Queue:
  """The trials of one structure that have not ended and are in no lane.

  Attributes:
    cells: whose.
    example: one of them.
    waiting: all of them; those already begun come first.
    parked: states of those already begun.
  """

  def __init__(self, jobs: Sequence[Job], parked: Mapping[TrialOf, State]):
    self.cells = list({job.cell.name: job.cell for job in jobs}.values())
    self.example = jobs[0]
    self.parked = {job.of: parked[job.of] for job in jobs if job.of in parked}
    self.waiting = deque(sorted(jobs, key=lambda job: job.of not in self.parked))

  def in_progress(self) -> Iterator[InProgress]:
    """What it holds of trials already begun."""
    if self.parked:
      states = jax.tree.map(lambda *rows: np.stack(rows), *self.parked.values())
      yield InProgress(list(self.parked), states)


class Dispatched(NamedTuple):
  """What a dispatch of one program came to.

  Attributes:
    cells: of the trial in each lane, None where there was none.
    steps: that each lane took, [L].
    ended: the trials that ended.
  """

  cells: Sequence[Cell | None]
  steps: np.ndarray
  ended: Sequence[tuple[Job, Result]]


class OpenProgram:
  """A program that is running: its queue, its lanes, and which trial is in which."""

  def __init__(self, queue: Queue, lanes: Lanes, launcher: Executor):
    """Nothing runs yet.

    Args:
      queue: of its trials.
      lanes: compiled for them.
      launcher: its threads start dispatches. A GPU's loops may keep the thread that
        starts them until they are over.
    """
    self.lanes, self._launcher = lanes, launcher
    self.cells, self.example = queue.cells, queue.example
    self._queue = queue
    self._jobs: list[Job | None] = [None] * lanes.num_lanes
    self._step = np.zeros(lanes.num_lanes, int)  # of each lane's trial, last we heard
    self._refill = np.full(lanes.num_lanes, CONTINUE, np.int32)
    self._since = np.zeros(lanes.num_lanes)  # when each lane's trial was put there
    self._lifetime = 0.0  # seconds, of the trial that has been there longest so far
    self._started = 0.0  # when the last dispatch was
    self._launched: Future[Report]
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

  def fill(self, device: int) -> list[tuple[Job, int]]:
    """Puts waiting trials into the idle lanes of a device.

    Returns:
      Each of them, with the step that it goes on from.
    """
    parked = {}
    filled = []
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
      filled.append((job, int(self._step[lane])))
    if parked:
      self.lanes.put(parked)
    return filled

  def dispatch(self) -> None:
    """Starts to advance the lanes."""
    self._started = time.perf_counter()
    self._launched = self._launcher.submit(
      precision.carried(self.lanes.advance),
      *self._arguments,
      self._refill,
      self.num_steps,
    )

  def ready(self) -> bool:
    """Whether the lanes have come to the end of their dispatch."""
    launched = self._launched
    return launched.done() and all(a.is_ready() for a in jax.tree.leaves(self._report))

  @property
  def _report(self) -> Report:
    """Of the last dispatch, once it was started; it may still be being computed."""
    return self._launched.result()

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

  def collect(self, *, with_params: bool) -> Dispatched:
    """Returns what the dispatch came to; lanes whose trials ended are idle then.

    Raises:
      FloatingPointError: where `jax_debug_nans` is on, if a number of a trial is NaN.
    """
    report: Report = jax.device_get(self._report._replace(curve=None))
    if jax.config.jax_debug_nans:  # type: ignore[attr-defined]
      self._check_numbers(report)
    self._refill[:] = CONTINUE
    running = np.array([job is not None for job in self._jobs])
    steps = np.where(running, report.step - self._step, 0)
    self._step = np.array(report.step)
    cells = [job.cell if job else None for job in self._jobs]
    ended = []
    over = np.flatnonzero(running & ~report.active)
    if over.size:  # else no curve is needed: they are most of what there is to fetch
      report = report._replace(curve=jax.device_get(self._report.curve))
    for lane in over:
      job = self._jobs[lane]
      assert job is not None
      own = jax.tree.map(lambda field, lane=lane: field[lane], report)
      trial = job.cell.trial
      params = self.lanes.take(int(lane)) if with_params else None
      outcomes, curve = trial.outcomes(own), trial.curve(own)
      result = Result(
        job.cell, job.trial, outcomes, curve, params=params, steps=int(own.step)
      )
      ended.append((job, result))
      self._jobs[lane] = None
    return Dispatched(cells, steps, ended)

  def _check_numbers(self, report: Report) -> None:
    """Raises FloatingPointError if a number of a trial is NaN; it names the trial."""
    with_nan = self.lanes.with_nan()
    bad = [
      f"{trial_name(job.cell, job.trial)} at step {report.step[lane]}"
      for lane, job in enumerate(self._jobs)
      if job and with_nan[lane]
    ]
    if bad:
      raise FloatingPointError(f"NaN, where jax_debug_nans is on, in {', '.join(bad)}")

  def requeue(self) -> Queue:
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
