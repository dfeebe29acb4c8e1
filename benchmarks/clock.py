"""The time that trials take, compilation apart."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

import jax
import numpy as np

from sepfx.ensembles import Cell, Result, Watcher, run
from sepfx.ensembles.compiling import Programs
from sepfx.errors import Interrupted


class Clock(Watcher):
  """Measures a run of one cell, in whole dispatches after the first.

  Attributes:
    compiled: seconds until the first dispatch was over.
    seconds: from then until the last dispatch was over; 0 before.
    steps: of all trials in that time.
    lane_steps: the same with those by which idle lanes were advanced beside busy ones.
    longest: steps of a lane that was busy in every dispatch, the first too.
    lanes: lanes per device.
    bytes_per_lane: device memory of the program and what its lanes hold, over the lanes
      of a device.
    results: of the trials that have ended.
  """

  def __init__(self, num_trials: int, num_devices: int):
    self._created = self._last = time.perf_counter()
    self._first: float | None = None
    self._num_trials, self._num_devices = num_trials, num_devices
    self._busy, self._offered = 0.0, 0.0
    self.steps = self.lane_steps = self.longest = self.lanes = 0
    self.bytes_per_lane = 0.0
    self.results: list[Result] = []

  @property
  def compiled(self) -> float:
    assert self._first is not None
    return self._first - self._created

  @property
  def seconds(self) -> float:
    return 0.0 if self._first is None else self._last - self._first

  @property
  def occupancy(self) -> float:
    """Share of the devices' time that went into trials, while some were waiting."""
    return self._busy / self._offered if self._offered else float("nan")

  def advanced(self, cells: Sequence[Cell | None], steps: np.ndarray) -> None:
    del cells
    now = time.perf_counter()
    self.longest += int(steps.max())
    self.lanes = len(steps) // self._num_devices
    if self._first is None:
      self._first = self._last = now
      return
    by_device = steps.reshape(self._num_devices, -1)
    batched = jax.devices()[0].platform != "cpu"
    if batched:  # an idle lane costs what a busy one does
      by_device = by_device.T.reshape(-1, 1)
    by_device = by_device.sum(axis=1)
    if self._num_trials - len(self.results) > np.count_nonzero(steps):
      share = by_device.sum() / (by_device.max() * len(by_device))
      self._busy += share * (now - self._last)
      self._offered += now - self._last
    self._last = now
    self.steps += int(steps.sum())
    self.lane_steps += int(len(steps) * steps.max() if batched else steps.sum())

  def ended(self, result: Result) -> None:
    self.results.append(result)


def timed(
  cell: Cell,
  num_trials: int,
  *,
  lanes: int = 0,
  num_devices: int | None = None,
  seed: int = 0,
  enough: Callable[[Clock], bool] = lambda clock: False,
) -> Clock:
  """Runs trials of a cell until all have ended.

  Args:
    cell: whose.
    num_trials: how many.
    lanes: per device; 0 to choose.
    num_devices: None for all.
    seed: of everything random.
    enough: asked after every dispatch whether to stop before.
  """
  devices = jax.devices()[:num_devices]
  clock = Clock(num_trials, len(devices))
  programs: Programs = {}
  results = run(
    [cell],
    seed=seed,
    num_trials=num_trials,
    lanes=lanes,
    devices=devices,
    watchers=[clock],
    stopping=lambda: enough(clock),
    programs=programs,
  )
  with contextlib.suppress(Interrupted):
    for _ in results:
      pass
  for program in programs.values():
    clock.bytes_per_lane = program.bytes_per_device / program.lanes_per_device
    program.clear()  # where the run was stopped its lanes are not empty
  return clock
