"""What does it cost that a trial's settings are data?

    python -m benchmarks.data

Three tables. First: five learning rates in one run against five runs, CPU seconds a
trial-step without compilation, in alternating pairs. Second: a step on minibatches of a
fixed sample against one on fresh batches. Third: trials with and without probes, one of
which takes a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import rich.console
import rich.table
from absl import app, flags

from sepfx import models
from sepfx.commands.command_line import prepare_jax
from sepfx.ensembles import Cell, Watcher, grid, keys, run
from sepfx.ensembles.compiling import Programs
from sepfx.probes import norms
from sepfx.tasks import QSTR
from sepfx.training import ERM, Online, Probe, Seeds, Trial, with_setting

flags.DEFINE_integer("pairs", 5, "Alternating pairs of each comparison.")

FLAGS = flags.FLAGS
_RATES = (3e-4, 1e-3, 2e-3, 3e-3, 5e-3)
_LENGTH, _TRIALS = 8, 4
_STEPS = 1000  # of the second table's dispatches


class _Steps(Watcher):
  """Counts trial-steps, and knows when the last of them was over."""

  def __init__(self) -> None:
    self.steps, self.last = 0, 0.0

  def advanced(self, cells: Sequence[Cell | None], steps: np.ndarray) -> None:
    self.steps += int(steps.sum())
    self.last = time.perf_counter()


def cells(model: str, rates: Sequence[float], protocol: Online) -> list[Cell]:
  """Returns the cells of a model at these rates."""
  task = QSTR(length=_LENGTH)
  base = protocol.trial(task, task, models.build(model, task), model)
  return grid(
    lambda learning_rate: with_setting(base, "learning_rate", learning_rate),
    {"learning_rate": rates},
  )


def seconds_a_step(
  own: Sequence[Sequence[Cell]], programs: Programs, clock: Callable[[], float]
) -> tuple[float, int]:
  """Runs groups of cells one after another; seconds per trial-step, and trial-steps."""
  counter = _Steps()
  start = clock()
  for group in own:
    settings: dict[str, Any] = {"seed": 0, "num_trials": _TRIALS, "programs": programs}
    for _ in run(group, **settings, watchers=[counter]):
      pass
  return (clock() - start) / counter.steps, counter.steps


def rates(console: rich.console.Console) -> None:
  """The first table."""
  table = rich.table.Table(
    "model", "trial-steps\nin one run", "in five", "CPU ms per trial-step\nin one run",
    "in five", "ratio, median", "range",
  )  # fmt: skip
  protocol = Online(max_samples=100_000)
  for model in ("transformer", "ffn"):
    together = [cells(model, _RATES, protocol)]
    apart = [cells(model, [rate], protocol) for rate in _RATES]
    programs: Programs = {}
    seconds_a_step(apart[:1], programs, time.process_time)  # compiles
    ones, fives = [], []
    for _ in range(FLAGS.pairs):
      one, steps_in_one = seconds_a_step(together, programs, time.process_time)
      five, steps_in_five = seconds_a_step(apart, programs, time.process_time)
      ones.append(1e3 * one)
      fives.append(1e3 * five)
    ratio = np.array(ones) / np.array(fives)
    table.add_row(
      model, f"{steps_in_one:,}", f"{steps_in_five:,}", f"{np.median(ones):.3f}",
      f"{np.median(fives):.3f}", f"{np.median(ratio):.3f}",
      f"{ratio.min():.3f} to {ratio.max():.3f}",
    )  # fmt: skip
  console.print(table)
  console.print(f"{len(_RATES)} rates, {_TRIALS} trials each, N = {_LENGTH}; one program")


def _stepper(trial: Trial) -> Callable[[], None]:
  """Returns what takes `_STEPS` training steps, without evaluations."""
  seeds = Seeds(keys.key(0), keys.key(1))
  world, state = jax.jit(trial.world)(seeds), jax.jit(trial.init)(seeds)
  train = jax.jit(trial.train)
  count = jnp.int32(_STEPS)
  return lambda: jax.block_until_ready(train(state, world, count))


def batches(console: rich.console.Console) -> None:
  """The second table."""
  table = rich.table.Table(
    "model",
    "m",
    "fixed sample\nms per step",
    "fresh\nms per step",
    "ratio, median",
    "range",
  )
  task = QSTR(length=4)
  for model in ("transformer", "ffn:hidden_widths=64"):
    module = models.build(model, task)
    fresh = _stepper(Online().trial(task, task, module))
    for m in (8192, 50_000):
      protocol = ERM(sample_size=m, batch_size=64, num_test=10)
      fixed = _stepper(protocol.trial(task, task, module))
      times: list[tuple[float, float]] = []
      for k in range(FLAGS.pairs + 1):
        pair = []
        for step in (fixed, fresh):
          start = time.perf_counter()
          step()
          pair.append(1e3 * (time.perf_counter() - start) / _STEPS)
        if k:  # the first compiles
          times.append((pair[0], pair[1]))
      own = np.array(times)
      ratio = own[:, 0] / own[:, 1]
      table.add_row(
        model, f"{m:,}", *(f"{value:.3f}" for value in np.median(own, axis=0)),
        f"{np.median(ratio):.2f}", f"{ratio.min():.2f} to {ratio.max():.2f}",
      )  # fmt: skip
  console.print(table)
  console.print("N = 4, batches of 64")


def slow_probe(trial: Trial, params: Any, world: Any, key: Any) -> dict[str, jax.Array]:
  """Takes a second."""

  def wait(value: np.ndarray) -> np.ndarray:
    time.sleep(1.0)
    return np.float32(value)

  shape = jax.ShapeDtypeStruct((), jnp.float32)
  return {
    "norm": jax.pure_callback(wait, shape, norms(trial, params, world, key)["norm"])
  }


def probes(console: rich.console.Console) -> None:
  """The third table."""
  table = rich.table.Table(
    "probe", "trials", "trial-steps", "seconds until the last\nof them, median", "in all"
  )
  (cell,) = cells("transformer", [1e-3], Online(max_samples=100_000))
  kinds: dict[str, Probe | None] = {"none": None, "norms": norms, "a second": slow_probe}
  programs: Programs = {}
  for _ in run([cell], seed=0, num_trials=1, programs=programs):  # compiles
    pass
  times: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
  for _ in range(FLAGS.pairs):
    for name, probe in kinds.items():
      counter = _Steps()
      start = time.perf_counter()
      settings: dict[str, Any] = {"seed": 0, "num_trials": 12, "programs": programs}
      for _ in run([cell], **settings, probe=probe, watchers=[counter]):
        pass
      times[name].append((counter.last - start, time.perf_counter() - start))
  for name, own in times.items():
    trained, whole = np.median(np.array(own), axis=0)
    table.add_row(name, "12", f"{counter.steps:,}", f"{trained:.2f}", f"{whole:.2f}")
  console.print(table)


def main(_: list[str]) -> None:
  prepare_jax()
  console = rich.console.Console(highlight=False, width=100)
  console.print(f"{len(jax.devices())} x {jax.devices()[0].device_kind}")
  rates(console)
  batches(console)
  probes(console)


if __name__ == "__main__":
  app.run(main)
