"""What an accelerator does: speed, lanes, the Boolean grid, parities, repeated runs.

    python -m benchmarks.on_accelerator --minutes=9

Five parts, on all devices that JAX finds:

- speed: trials of Figure 1(a), several for each lane. Milliseconds per trial-step (one
  optimizer step of one trial with its share of the evaluations); trials per hour, from
  the steps of the trials that were begun first, where all of those ended in time.
- boolean: the slowest and the fastest cell of the published grid, and what all of it
  would take if every trial went on to its last step: a trial-step is taken to cost a
  constant and a share of m (T + 1), the tokens of a step, and a device to advance its
  lanes also where some are idle.
- parity: the trials of `experiments.parity` without clipping.
- repeats: one small run of `experiments.sample_complexity` twice. In one process: a
  program that is compiled anew may be another one.
- lanes: milliseconds per trial-step against lanes per device, over the first checks.

Timings are of whole dispatches after the first, and programs are compiled as if for the
first time. Where memory runs out there are fewer lanes than asked for. A measurement ends
with its share of the time; those that time does not suffice for are said to be not
reached. A program that is being compiled is waited for, so all of it may take a minute
longer than `--minutes`.

On a CPU everything is smaller: one lane per device instead of 64 or 32 (1 and 4 in place
of 1 to 256 in the last part), two trials per device for the first table instead of 256,
two parity trials of at most 200 steps instead of ten of 50,000, repeats of 4 trials
instead of 48, and 10 checks instead of 50 against lanes. The Boolean cells are the same.

results.json and results.md in `--output_dir` are written anew after every measurement.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence

import jax
import rich.console
from absl import app, flags, logging

from benchmarks import measurements as ms
from benchmarks.clock import Clock
from benchmarks.findings import Findings, Row
from experiments import command_line

flags.DEFINE_float("minutes", 9.0, "After which nothing new is begun.")

FLAGS = flags.FLAGS


@dataclasses.dataclass(frozen=True)
class Sizes:
  """How much is measured: the defaults are for accelerators.

  Attributes:
    lanes: per device, in the speed table.
    waves: trials for each of those lanes.
    models, length: of the speed table; the length also of the last part.
    boolean: T and m of the slowest and the fastest cell.
    boolean_lanes: per device.
    parity_lengths, parity_trials, parity_steps: T, trials, steps at most.
    repeated: flags of the run that is repeated.
    growth_lanes, growth_models, growth_checks: of the last part.
  """

  lanes: int = 64
  waves: int = 4
  models: Sequence[str] = ("transformer", "ffn", "gru")
  length: int = 12
  boolean: Sequence[tuple[int, int]] = ((800, 200), (100, 50))
  boolean_lanes: int = 32
  parity_lengths: Sequence[int] = (15, 20)
  parity_trials: int = 10
  parity_steps: int = 50_000
  repeated: Sequence[str] = ("--models=transformer,ffn", "--lengths=4", "--num_trials=48")
  growth_lanes: Sequence[int] = (1, 4, 16, 64, 256)
  growth_models: Sequence[str] = ("transformer", "ffn")
  growth_checks: int = 50


ON_CPU = Sizes(
  lanes=1,
  waves=2,
  boolean_lanes=1,
  parity_trials=2,
  parity_steps=200,
  repeated=("--models=transformer,ffn", "--lengths=4", "--num_trials=4"),
  growth_lanes=(1, 4),
  growth_checks=10,
)


class Limit:
  """The time there is."""

  def __init__(self, seconds: float):
    self._seconds = seconds
    self._start = time.perf_counter()

  def over(self) -> bool:
    """Whether nothing new is to be begun."""
    return time.perf_counter() - self._start > self._seconds

  def share(self, share: float) -> Callable[[Clock], bool]:
    """Says of a clock when this share of all time went into what it measures."""
    return lambda clock: (
      self.over() or (clock.steps > 0 and clock.seconds > share * self._seconds)
    )


def planned(
  sizes: Sizes, limit: Limit, rows: Callable[[str], Sequence[Row]]
) -> Iterator[tuple[str, Row, Callable[[], Row | None]]]:
  """Yields part, what tells a measurement from the others there, and how to make it.

  Args:
    sizes: of them.
    limit: of the time.
    rows: those measured so far of a part.
  """
  partial, length = functools.partial, sizes.length
  enough = limit.share(0.03)
  for model in sizes.models:
    make = partial(ms.speed, model, length, sizes.lanes, sizes.waves, enough)
    yield "speed", {"model": model, "N": length}, make
  enough = limit.share(0.02)
  for T, m in sizes.boolean:
    make = partial(ms.boolean_cell, T, m, sizes.boolean_lanes, enough)
    yield "boolean", {"cells": 1, "T": T, "m": m}, make
  yield "boolean", {"cells": "all"}, lambda: ms.boolean_grid(rows("boolean"))
  enough = limit.share(0.12)
  for T in sizes.parity_lengths:
    make = partial(ms.parities, T, sizes.parity_trials, sizes.parity_steps, enough)
    yield "parity", {"T": T}, make
  make = partial(ms.repeats, sizes.repeated, limit.over)
  yield "repeats", {"flags": " ".join(sizes.repeated)}, make
  enough = limit.share(0.01)
  for lanes in sizes.growth_lanes:
    for model in sizes.growth_models:
      make = partial(ms.growth, model, length, lanes, sizes.growth_checks, enough)
      yield "lanes", {"model": model, "N": length, "lanes_asked_for": lanes}, make


def measure(directory: pathlib.Path, sizes: Sizes, limit: Limit) -> Findings:
  """Makes all measurements that there is time for, and leaves both files."""
  measurements = list(planned(sizes, limit, lambda part: findings.rows[part]))
  findings = Findings(directory, [(part, case) for part, case, _ in measurements])
  for part, case, make in measurements:
    if limit.over():
      break
    try:
      row = make()
    except jax.errors.JaxRuntimeError as error:  # the others may do
      row = {"failed": str(error).partition("\n")[0]}
    if row is not None:
      findings.add(part, case, row)
  return findings


def main(_: list[str]) -> None:
  limit = Limit(60 * FLAGS.minutes)
  directory = pathlib.Path(FLAGS.output_dir)
  logging.set_verbosity(logging.WARNING)
  command_line.prepare_jax()
  with tempfile.TemporaryDirectory() as cache:
    jax.config.update("jax_compilation_cache_dir", cache)
    sizes = ON_CPU if jax.devices()[0].platform == "cpu" else Sizes()
    measure(directory, sizes, limit)
  text = (directory / "results.md").read_text()
  rich.console.Console(highlight=False, markup=False).print(text, soft_wrap=True)


if __name__ == "__main__":
  FLAGS.set_default("output_dir", "runs/on_accelerator")
  app.run(main)
