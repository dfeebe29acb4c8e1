"""The host loop: queues trials into lanes and hands out results as they end."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from sepfx.ensembles.cells import Cell, grid
from sepfx.ensembles.lanes import Lanes, Report
from sepfx.ensembles.records import Result, table, trial_name
from sepfx.errors import require
from sepfx.training import Online, curve, passages

# Lanes a device where they are vmapped. Fixed, so that it does not follow the number
# of trials at hand: under vmap the width decides a program's last digits.
_VMAPPED_LANES = 32
# Cells whose programs are compiled while an earlier one runs.
_COMPILING_AHEAD = 2
# Wall time of one dispatch that the number of its checks is steered towards.
_DISPATCH_SECONDS = 1.0


class Watcher(Protocol):
  """Someone who is told what happens: a progress bar, a run directory."""

  def compiling(self, cell: Cell) -> None:
    """A cell's program is about to be compiled."""

  def advanced(self, samples: int) -> None:
    """The running trials have consumed this many more training prompts."""

  def ended(self, result: Result) -> None:
    """A trial has ended."""


def run(
  cells: Sequence[Cell],
  *,
  seed: int,
  num_trials: int,
  lanes: int = 0,
  devices: Sequence[jax.Device] | None = None,
  finished: Collection[str] = (),
  watchers: Sequence[Watcher] = (),
) -> Iterator[Result]:
  """Runs every cell's trials and yields each result when its trial ends.

  A result depends on the seed, the cell and the trial's index alone, not on the
  lanes, the devices, the other cells or what is already finished.

  Args:
    cells: the grid, from `grid`.
    seed: from 0 to 2^32 - 1.
    num_trials: trials a cell.
    lanes: lanes a device; 0 to choose.
    devices: where to run; None for all of the default platform.
    finished: names of trials (`trial_name`) not to run again.
    watchers: told of everything that happens.

  Raises:
    InvalidSetting: for a setting outside its domain, or codes that cannot be drawn.
  """
  require(0 <= seed < 2**32, "seed", seed, "an integer from 0 to 2^32 - 1")
  require(num_trials >= 1, "num_trials", num_trials, "an integer >= 1")
  require(lanes >= 0, "lanes", lanes, "an integer >= 1, or 0 to choose")
  for cell in cells:
    cell.trial.task.check_draw(cell.seeds(seed, num_trials).task)
  return _run(
    cells, seed, num_trials, lanes, devices or jax.devices(), finished, watchers
  )


def _run(cells, seed, num_trials, lanes, devices, finished, watchers):
  mapped = devices[0].platform == "cpu"
  lanes = lanes or (1 if mapped else _VMAPPED_LANES)
  waiting = {
    cell.name: [k for k in range(num_trials) if trial_name(cell, k) not in finished]
    for cell in cells
  }
  cells = [cell for cell in cells if waiting[cell.name]]
  with ThreadPoolExecutor(max_workers=_COMPILING_AHEAD) as pool:
    # Cells are compiled ahead while earlier ones run; no more than that, because each
    # holds its lanes' memory.
    programs: deque[Future[Lanes]] = deque()
    ahead = iter(cells)
    try:
      for cell in cells:
        for later in itertools.islice(ahead, 1 + _COMPILING_AHEAD - len(programs)):
          programs.append(pool.submit(Lanes, later.trial, devices, lanes, mapped=mapped))
        for watcher in watchers:
          watcher.compiling(cell)
        program = programs.popleft().result()
        seeds = cell.seeds(seed, num_trials)
        yield from _run_cell(cell, program, seeds, waiting[cell.name], watchers)
    finally:
      for unneeded in programs:
        unneeded.cancel()


def _run_cell(cell, lanes: Lanes, seeds, waiting, watchers) -> Iterator[Result]:
  protocol = cell.trial.protocol
  queue = deque(waiting)
  in_lane = np.full(lanes.num_lanes, -1)  # index of the trial that a lane runs
  before = np.zeros(lanes.num_lanes, int)  # its steps before the dispatch
  num_checks = 1
  while queue or np.any(in_lane >= 0):
    refill = np.zeros(lanes.num_lanes, bool)
    for lane in np.flatnonzero(in_lane < 0)[: len(queue)]:
      in_lane[lane], refill[lane], before[lane] = queue.popleft(), True, 0
    own_seeds = jax.tree.map(lambda a: a[jnp.asarray(in_lane)], seeds)
    start = time.perf_counter()
    report = lanes.advance(own_seeds, refill, num_checks)
    ratio = _DISPATCH_SECONDS / (time.perf_counter() - start)
    # At most doubled: the first dispatches are too short to extrapolate from.
    num_checks = max(1, round(num_checks * min(2.0, ratio)))
    running = in_lane >= 0
    steps = int(np.sum((report.step - before)[running]))
    before = np.array(report.step)
    for watcher in watchers:
      watcher.advanced(steps * protocol.batch_size)
    for lane in np.flatnonzero(running & ~report.active):
      own = Report(*(field[lane] for field in report))
      result = Result(
        cell, int(in_lane[lane]), passages(own, protocol), curve(own, protocol)
      )
      in_lane[lane] = -1
      for watcher in watchers:
        watcher.ended(result)
      yield result


def measure(
  task: Any,
  models: Sequence[str | nn.Module],
  lengths: Sequence[int],
  protocol: Online | None = None,
  *,
  seed: int = 0,
  num_trials: int = 5,
  test_task: Any = None,
  task_draw: str = "per_trial",
  num_heads: int = 1,
  lanes: int = 0,
  devices: Sequence[jax.Device] | None = None,
  watchers: Sequence[Watcher] = (),
) -> np.ndarray:
  """Measures how many samples each model needs, with neither flags nor files.

  Args:
    task: what is learned, such as `sepfx.tasks.QSTR()`; its length is replaced by
      each of `lengths`.
    models: names from `sepfx.models.NAMES`, "package.module:factory", or
      `flax.linen` modules that map inputs [n N D] to outputs [n N].
    lengths: N.
    protocol: thresholds, optimizer, budget; None for the published ones.
    seed: from 0 to 2^32 - 1.
    num_trials: trials of each model at each length.
    test_task: what test prompts are drawn from; None for `task`.
    task_draw: "per_trial" or "shared" planted parameters.
    num_heads: H of the transformer.
    lanes: lanes a device; 0 to choose.
    devices: where to run; None for all of the default platform.
    watchers: told of everything that happens, see `Watcher`.

  Returns:
    A structured array, one row a trial and threshold, with fields task, model,
    length, trial, threshold, samples, outcome ("reached", "censored" or
    "diverged"), ordered by model, length, trial and threshold.

  Raises:
    InvalidSetting: (a ValueError) for bad input, before anything is compiled.
  """
  cells = grid(
    task,
    models,
    lengths,
    protocol or Online(),
    test_task=test_task,
    task_draw=task_draw,
    num_heads=num_heads,
  )
  results = run(
    cells,
    seed=seed,
    num_trials=num_trials,
    lanes=lanes,
    devices=devices,
    watchers=watchers,
  )
  order = {cell.name: k for k, cell in enumerate(cells)}
  ended = sorted(results, key=lambda result: (order[result.cell.name], result.trial))
  return table(row for result in ended for row in result.rows)
