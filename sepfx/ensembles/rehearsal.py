"""What a run would take: its programs, compiled, and a few steps of each, timed."""

from __future__ import annotations

import time
from collections.abc import Collection, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import numpy as np

from sepfx import precision
from sepfx.ensembles.cells import Cell
from sepfx.ensembles.compiling import Compiler
from sepfx.ensembles.forecast import makespan
from sepfx.ensembles.lanes import Lanes
from sepfx.ensembles.programs import Job, OpenProgram, Queue, by_structure, jobs_of
from sepfx.ensembles.watchers import Watcher

# How long a program's steps are timed, in seconds; one check's at least.
_TIMED_SECONDS = 2.0


class Rehearsed(NamedTuple):
  """One program of a run, and what its trials take.

  Attributes:
    cells: whose trials share it.
    trials: that are to run.
    steps: of all of them, if each goes on to the end of its budget.
    lanes: trials that advance at once, over all devices.
    compile_seconds: until it was compiled.
    bytes_per_lane: device memory for one trial.
    seconds_per_step: of one trial, beside those in the other lanes, in their first
      steps. Evaluations near a threshold read more test samples than these do.
    most_seconds: until all trials have ended, if each goes on to the end of its budget.
  """

  cells: Sequence[Cell]
  trials: int
  steps: int
  lanes: int
  compile_seconds: float
  bytes_per_lane: float
  seconds_per_step: float
  most_seconds: float


@precision.steps_in_single
def rehearse(
  cells: Sequence[Cell],
  *,
  seed: int,
  num_trials: int,
  lanes: int = 0,
  devices: Sequence[jax.Device] | None = None,
  finished: Collection[str] = (),
  watchers: Sequence[Watcher] = (),
  widths: Mapping[str, int] | None = None,
) -> Generator[Rehearsed, None, None]:
  """Compiles the programs that `run` would, and times the first steps of each.

  Nothing is recorded. One program runs at a time, with as many trials as it has lanes.

  Args:
    cells, seed, num_trials, lanes, devices, finished, widths: as in `run`.
    watchers: told of each program before it is compiled.

  Raises:
    InvalidSetting: for codes that cannot be drawn.
    OutOfMemory: if a program does not fit, even with fewer lanes.
  """
  programs = jobs_of(cells, seed, num_trials, finished)
  before = by_structure(cells, programs, widths)
  compiler = Compiler(list(devices or jax.local_devices()), lanes, before=before)
  for jobs in programs:
    for watcher in watchers:
      watcher.compiling(jobs[0].cell)
    yield _rehearsed(jobs, compiler)


def _rehearsed(jobs: Sequence[Job], compiler: Compiler) -> Rehearsed:
  start = time.perf_counter()
  while True:
    lanes = compiler(jobs[0].cell)
    compiled = time.perf_counter() - start
    busy = min(len(jobs), lanes.num_lanes)
    try:
      pace = _pace(jobs, compiler, lanes, busy)
      break
    except (jax.errors.JaxRuntimeError, MemoryError) as error:
      compiler.narrow(lanes.lanes_per_device, error, [jobs[0].cell])
      del lanes  # its memory, before there are narrower ones
  steps = [job.cell.trial.most_steps for job in jobs]
  return Rehearsed(
    list({job.cell.name: job.cell for job in jobs}.values()),
    len(jobs),
    sum(steps),
    busy,
    compiled,
    lanes.bytes_per_device / lanes.lanes_per_device,
    pace,
    makespan([pace * own for own in steps], busy),
  )


def _pace(jobs: Sequence[Job], compiler: Compiler, lanes: Lanes, busy: int) -> float:
  """Seconds per step of one trial, with trials in so many lanes."""
  launcher = ThreadPoolExecutor(max_workers=1)
  opened = OpenProgram(Queue(jobs, {}), lanes, launcher)

  def advance() -> int:
    """To the next check; returns the steps of all lanes."""
    for device in range(len(compiler.devices)):
      opened.fill(device)
    opened.num_steps = jobs[0].cell.trial.protocol.check_every
    opened.dispatch()
    return int(np.sum(opened.collect(with_params=False).steps))

  def goes_on() -> bool:
    return opened.running or opened.has_waiting

  with launcher:
    since = time.perf_counter()
    steps = advance()
    if goes_on():  # the first drew what trials begin with, which takes its own time
      since, steps = time.perf_counter(), advance()
      while goes_on() and time.perf_counter() - since < _TIMED_SECONDS:
        steps += advance()
    seconds = time.perf_counter() - since
  lanes.clear()
  return seconds * busy / steps
