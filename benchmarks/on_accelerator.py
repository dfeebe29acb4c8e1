"""What an accelerator does, in one call: speed, widths, the Boolean grid, compilation.

    python -m benchmarks.on_accelerator --minutes=9
    python -m benchmarks.on_accelerator --parts=boolean,compile

The parts, in the order of their worth, on all devices that JAX finds. A trial-step is one
optimizer step of one trial with its share of the evaluations; compilation is apart.

- pytorch: whole trials of Figure 1(a) with the lanes that are chosen, and the published
  program in eager PyTorch on the same device, which is timed over its first checks, each
  of which costs the same. Both in float32 and both in TF32: the row says what PyTorch's
  products and cuDNN are allowed. Without PyTorch (`pip install -e '.[bench]'`) the part
  has our times alone and says so.
- lanes: the first checks of Figure 1(a), far from the threshold, against lanes per
  device. Then whole trials at the narrowest width within a tenth of the best, beside
  PyTorch's time of the first part. What was found is in widths.json, too.
- long: the Transformer on long prompts.
- boolean: the slowest and the fastest cell of the published grid, on one device, and what
  all of it would take if every trial went on to its last step: a cell is taken to cost a
  constant and a share of m (T + 1), the tokens of a step. Compilation is of 176 programs
  like those two, one after another, and as much faster with all workers as "compile"
  found.
- compile: seconds for programs of Figure 1(a) with all workers and with one, from an
  empty cache each. One worker comes second and has two of them again: what XLA remembers
  of them can only help it.
- evaluations: whole trials beside training with a check every 200 steps. `ms per check`
  is what a check costs per lane, `checks read in full` the share of them that a glance
  did not decide (on CPUs: the screen), of trials that ended.
- memory: what the device lets JAX have, and the most that was in use. What a program
  takes per lane stands in the other parts' rows.
- parity: the trials of `experiments.parity` without clipping.
- repeats: one small run of `experiments.sample_complexity` twice. In one process: a
  program that is compiled anew may be another one.

Timings are of whole dispatches after the first, and programs are compiled as if for the
first time. Where memory runs out there are fewer lanes than asked for. Each part has a
share of `--minutes`; what it leaves goes to those after it. A measurement ends with its
part of that share, but after a second without compilation at the earliest; those that
time does not suffice for are said to be not reached. A program that is being compiled is
waited for, so all of it may take a minute longer.

On a CPU everything is smaller (`ON_CPU`). The Boolean cells are the same, of one trial.

results.json and results.md in `--output_dir` are written anew after every measurement,
widths.json after those of "lanes". A directory has the results of one call. widths.json
is the package's table with what was measured on this kind of device: copied over
sepfx/ensembles/widths.json it is what `--lanes=0` chooses from.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
import pathlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import rich.console
from absl import app, flags, logging

from benchmarks import measurements as ms
from benchmarks.cells import figure_1a
from benchmarks.clock import Clock
from benchmarks.findings import Findings, Row, described
from sepfx.commands import command_line
from sepfx.ensembles import widths
from sepfx.ensembles.compiling import number_of_workers
from sepfx.errors import InvalidSetting, OutOfMemory, require
from sepfx.provenance.environment import kind_of
from sepfx.records.run_directory import write_whole

flags.DEFINE_float("minutes", 9.0, "After which nothing new is begun.")
flags.DEFINE_list("parts", [], "Which, in any order; by default all.")

FLAGS = flags.FLAGS

# The parts in the order of their worth, with their shares of the time.
SHARES = {
  "pytorch": 0.25,
  "lanes": 0.23,
  "long": 0.08,
  "boolean": 0.15,
  "compile": 0.09,
  "evaluations": 0.11,
  "memory": 0.01,
  "parity": 0.05,
  "repeats": 0.03,
}


# What a measurement rests on, where there is time at all: its share may end before its
# program is compiled.
_LEAST_SECONDS = 1.0


@dataclasses.dataclass(frozen=True)
class Sizes:
  """How much is measured: the defaults are for accelerators.

  Attributes:
    models, length: of most parts.
    trials: per device, of which most parts run as many as there is time for.
    precisions: of "pytorch".
    baseline_seconds: of each of its measurements of PyTorch.
    growth_models, growth_lanes, growth_checks: of "lanes".
    long: model and lengths of that part.
    boolean: T and m of the slowest and the fastest cell.
    boolean_trials: of each; published are 50.
    compiled: model and the least length of the programs of "compile": one program for
      each worker.
    compiled_by_one: of those, how many one worker compiles.
    seldom: steps between checks where training is timed alone. A glance then reads one
      prompt for 77 that the three passes of training steps read.
    parity_lengths, parity_trials, parity_steps: T, trials, steps at most.
    repeated: flags of the run that is repeated.
  """

  models: Sequence[str] = ("transformer", "ffn", "gru")
  length: int = 12
  trials: int = 4096
  precisions: Sequence[str] = ("float32", "tensorfloat32")
  baseline_seconds: float = 4.0
  growth_models: Sequence[str] = ("transformer", "ffn")
  growth_lanes: Sequence[int] = (32, 256, 1024, 4096)
  growth_checks: int = 1500
  long: tuple[str, Sequence[int]] = ("transformer", (64, 256))
  boolean: Sequence[tuple[int, int]] = ((800, 200), (100, 50))
  boolean_trials: int = 50
  compiled: tuple[str, int] = ("transformer", 5)
  compiled_by_one: int = 2
  seldom: int = 200
  parity_lengths: Sequence[int] = (15, 20)
  parity_trials: int = 10
  parity_steps: int = 50_000
  repeated: Sequence[str] = ("--models=transformer,ffn", "--lengths=4", "--num_trials=48")


ON_CPU = Sizes(
  trials=2,
  growth_lanes=(1, 4),
  growth_checks=10,
  long=("transformer", (32,)),
  boolean_trials=1,
  parity_trials=2,
  parity_steps=200,
  repeated=("--models=transformer,ffn", "--lengths=4", "--num_trials=4"),
)


class Limit:
  """The time there is, and until when each part may take of it.

  Attributes:
    parts: that are measured, in their order.
  """

  def __init__(self, seconds: float, parts: Sequence[str] = tuple(SHARES)):
    """The time begins.

    Args:
      seconds: in all.
      parts: in their order. They have all of it, in proportion to their shares.
    """
    self.parts = parts
    self._seconds, self._start = seconds, time.perf_counter()
    shares = [SHARES[part] for part in parts]
    ends = (seconds * end / sum(shares) for end in itertools.accumulate(shares))
    self._ends = dict(zip(parts, ends, strict=True))

  def over(self) -> bool:
    """Whether nothing new is to be begun."""
    return time.perf_counter() - self._start >= self._seconds

  def left(self, part: str) -> float:
    """Seconds that a part may still take: what earlier ones left is among them."""
    return self._ends[part] - (time.perf_counter() - self._start)

  def enough(self, seconds: float) -> Callable[[Clock], bool]:
    """Says of a clock when a measurement that begins now has had so much time."""
    until = time.perf_counter() + seconds
    return lambda clock: (
      self.over() or (clock.seconds >= _LEAST_SECONDS and time.perf_counter() > until)
    )


class Measurement(NamedTuple):
  """One row.

  Attributes:
    part: of which part.
    case: what tells it from the others there.
    make: measures, given when it is enough.
    free: whether it takes no time, and so is made also where none is left.
  """

  part: str
  case: Row
  make: Callable[[ms.Enough], Row | None]
  free: bool = False


def planned(
  sizes: Sizes, limit: Limit, rows: Callable[[str], Sequence[Row]]
) -> Iterator[Measurement]:
  """Yields all measurements in their order.

  Args:
    sizes: of them.
    limit: of the time.
    rows: those measured so far of a part.
  """
  partial, length, trials = functools.partial, sizes.length, sizes.trials
  for precision, model in itertools.product(sizes.precisions, sizes.models):
    own = {"model": model, "N": length, "precision": precision}
    seconds = sizes.baseline_seconds
    make = partial(ms.beside_pytorch, model, length, precision, trials, seconds)
    yield Measurement("pytorch", own, make)

  for model in sizes.growth_models:
    own = {"model": model, "N": length, "trials": "first checks"}
    for lanes in sizes.growth_lanes:
      make = partial(ms.growth, model, length, lanes, sizes.growth_checks)
      yield Measurement("lanes", {**own, "lanes_asked_for": lanes}, make)
    own = {"model": model, "N": length, "trials": "whole", "lanes_asked_for": "best"}

    def at_best(enough: ms.Enough, model: str = model) -> Row | None:
      known = rows("lanes"), rows("pytorch")
      return ms.at_best_width(model, length, trials, *known, enough)

    yield Measurement("lanes", own, at_best)

  model, lengths = sizes.long
  for N in lengths:
    make = partial(ms.speed, figure_1a(model, N), trials)
    yield Measurement("long", {"model": model, "N": N}, make)

  for T, m in sizes.boolean:
    make = partial(ms.boolean_cell, T, m, sizes.boolean_trials)
    yield Measurement("boolean", {"cells": 1, "T": T, "m": m}, make)

  model, first = sizes.compiled
  for workers in (number_of_workers(), 1):
    programs = sizes.compiled_by_one if workers == 1 else workers
    own = {"workers": workers, "programs": programs}
    lengths = range(first, first + programs)
    make = partial(ms.compilation, model, lengths, workers)
    yield Measurement("compile", own, lambda _, make=make: make())

  def grid(_: ms.Enough) -> Row | None:
    return ms.boolean_grid(rows("boolean"), rows("compile"))

  yield Measurement("boolean", {"cells": "all"}, grid, free=True)

  for model in sizes.models:
    own = {"model": model, "N": length, "check_every": sizes.seldom}
    make = partial(ms.training_alone, model, length, sizes.seldom, trials)
    yield Measurement("evaluations", own, make)

    def evaluated(enough: ms.Enough, model: str = model) -> Row | None:
      return ms.evaluations(model, length, trials, rows("evaluations"), enough)

    yield Measurement("evaluations", {"model": model, "N": length}, evaluated)

  yield Measurement("memory", {"device": 0}, lambda _: ms.memory(), free=True)

  for T in sizes.parity_lengths:
    make = partial(ms.parities, T, sizes.parity_trials, sizes.parity_steps)
    yield Measurement("parity", {"T": T}, make)

  def repeats(_: ms.Enough) -> Row | None:
    return ms.repeats(sizes.repeated, limit.over)

  yield Measurement("repeats", {"flags": " ".join(sizes.repeated)}, repeats)


def parts_of(asked: Sequence[str]) -> list[str]:
  """Returns the parts asked for in the order of their worth, all where none are.

  Raises:
    InvalidSetting: for one that there is not.
  """
  for part in asked:
    require(part in SHARES, "parts", part, f"some of {', '.join(SHARES)}")
  return [part for part in SHARES if part in asked or not asked]


def checked(minutes: float, asked: Sequence[str], directory: pathlib.Path) -> list[str]:
  """Returns the parts to measure, in the order of their worth.

  Raises:
    InvalidSetting: for a part that there is not, no time, or a directory with results.
  """
  require(0 < minutes < math.inf, "minutes", minutes, "a positive number")
  takes = "a directory without the results of another call"
  there = (directory / "results.json").exists()
  require(not there, "output_dir", str(directory), takes)
  return parts_of(asked)


def measure(
  directory: pathlib.Path,
  sizes: Sizes,
  limit: Limit,
  tell: Callable[[str], None] = lambda _: None,
) -> Findings:
  """Makes all measurements that there is time for, and leaves all files.

  Args:
    directory: of the files.
    sizes: of the measurements.
    limit: of the time; its parts are measured.
    tell: told in words of each measurement that begins.
  """
  wanted = [
    own
    for own in planned(sizes, limit, lambda part: findings.rows.get(part, ()))
    if own.part in limit.parts
  ]
  findings = Findings(directory, [(own.part, own.case) for own in wanted])
  for place, own in enumerate(wanted):
    left = limit.left(own.part)
    if left <= 0 and not own.free:
      continue
    tell(f"{own.part}: {described(own.case)}")
    later = [one for one in wanted[place + 1 :] if one.part == own.part and not one.free]
    try:
      row = own.make(limit.enough(left / (1 + len(later))))
    except (jax.errors.JaxRuntimeError, OutOfMemory) as error:  # the others may do
      row = {"failed": str(error).partition("\n")[0]}
    if row is not None:
      findings.add(own.part, own.case, row)
      if own.part == "lanes":
        _write_widths(directory, findings.rows["lanes"], sizes.length)
  return findings


def _write_widths(directory: pathlib.Path, rows: Sequence[Row], length: int) -> None:
  """Writes the package's table with what was measured here."""
  table = json.loads(widths.TABLE.read_text())
  own = ms.table_of_widths(rows, length)
  merged = widths.merged(table, kind_of(jax.devices()[0]), own)
  write_whole(directory / "widths.json", json.dumps(merged, indent=2) + "\n")


def main(_: list[str]) -> None:
  directory = pathlib.Path(FLAGS.output_dir)
  try:
    parts = checked(FLAGS.minutes, FLAGS.parts, directory)
  except InvalidSetting as error:
    print(f"error: --{error.setting}: {error.words}", file=sys.stderr)
    sys.exit(2)
  limit = Limit(60 * FLAGS.minutes, parts)
  logging.set_verbosity(logging.WARNING)
  command_line.prepare_jax()
  sizes = ON_CPU if jax.devices()[0].platform == "cpu" else Sizes()
  print(f"results go into {directory}", flush=True)
  with ms.empty_cache():
    measure(directory, sizes, limit, functools.partial(print, flush=True))
  text = (directory / "results.md").read_text()
  rich.console.Console(highlight=False, markup=False).print(text, soft_wrap=True)


if __name__ == "__main__":
  FLAGS.set_default("output_dir", "runs/on_accelerator")
  app.run(main)
