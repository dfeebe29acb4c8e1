"""The measurements of `benchmarks.on_accelerator`; each is None if time did not suffice.

Those that take `enough` ask it of a clock when to stop.
"""

from __future__ import annotations

import contextlib
import math
import pathlib
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence

import jax
import numpy as np
from absl.testing import flagsaver
from jax.experimental.compilation_cache import compilation_cache

from benchmarks.cells import cell, chosen, figure_1a, first_checks
from benchmarks.clock import Clock, timed
from benchmarks.findings import Row
from experiments import sample_complexity
from experiments.boolean import boolean_sample_complexity as boolean
from experiments.boolean import parity
from sepfx import precision
from sepfx.commands import program
from sepfx.ensembles import Cell, widths
from sepfx.ensembles.compiling import Compilations, Compiler
from sepfx.ensembles.programs import Queue, jobs_of
from sepfx.records import load

Enough = Callable[[Clock], bool]

_MIB = 2**20


def _timing(clock: Clock) -> Row:
  return {
    "lanes_per_device": clock.lanes,
    "ms_per_trial_step": 1e3 * clock.seconds / clock.steps,
    "compile_seconds": clock.compiled,
    "MiB_per_lane": clock.bytes_per_lane / _MIB,
  }


def beside_pytorch(
  model: str,
  length: int,
  matmul_precision: str,
  num_trials: int,
  seconds: float,
  enough: Enough,
) -> Row | None:
  """Whole trials of Figure 1(a), and the published program in eager PyTorch.

  Args:
    model, length: which cell.
    matmul_precision: of both.
    num_trials: of ours, per device.
    seconds: of the other program.
    enough: as everywhere.
  """
  theirs = _in_pytorch(model, length, matmul_precision == "tensorfloat32", seconds)
  own = figure_1a(model, length, matmul_precision=matmul_precision)
  ours = speed(own, num_trials, enough)
  if ours is None or "failed" in theirs:
    return ours and {**ours, **theirs}
  ratio = theirs["PyTorch_ms_per_trial_step"] / ours["ms_per_trial_step"]
  return {**theirs, "times_PyTorch": ratio, **ours}


def _in_pytorch(model: str, length: int, tf32: bool, seconds: float) -> Row:
  """The published program: its time, and what it is allowed."""
  try:
    from benchmarks import baseline
  except (ImportError, OSError) as error:  # it is not there, or libraries of it are not
    return {"failed": f"no PyTorch ({error}): pip install -e '.[bench]'"}
  baseline.allow_tf32(tf32)
  try:
    theirs = baseline.seconds_per_step(model, length, seconds)
  except RuntimeError as error:  # such as a card without memory left: ours is measured
    return {"failed": f"PyTorch: {_first_line(error)}"}
  return {"PyTorch": baseline.described(), "PyTorch_ms_per_trial_step": 1e3 * theirs}


def _first_line(error: Exception) -> str:
  return str(error).partition("\n")[0]


def speed(own: Cell, num_trials: int, enough: Enough, lanes: int = 0) -> Row | None:
  """Trials of a cell to their end, as many per device, evaluations included."""
  num_devices = len(jax.devices())
  clock = timed(own, num_trials * num_devices, lanes=lanes, enough=enough)
  if not clock.steps:
    return None
  row, begun_first = _timing(clock), min(num_trials, clock.lanes) * num_devices
  # Of all that ended, the long ones are missing where time was short.
  first = [result for result in clock.results if result.trial < begun_first]
  rate = steps = None
  if len(first) == begun_first:
    samples = [result.outcomes[0].samples for result in first]
    steps = float(np.mean(samples)) / own.trial.samples_a_step
    rate = 3.6e6 / (row["ms_per_trial_step"] * steps)
  read = [result.curve["exact"] for result in clock.results]
  return {
    **row,
    "trials_per_hour": rate,
    "steps_per_trial": steps,
    "trials_ended": len(clock.results),
    "checks_read_in_full": float(np.mean(np.concatenate(read))) if read else None,
  }


def growth(
  model: str, length: int, lanes: int, num_checks: int, enough: Enough
) -> Row | None:
  """The first checks of as many trials of Figure 1(a) as there are lanes."""
  own = first_checks(model, length, num_checks)
  clock = timed(own, lanes * len(jax.devices()), lanes=lanes, enough=enough)
  return _timing(clock) if clock.steps else None


def at_best_width(
  model: str,
  length: int,
  num_trials: int,
  grown: Sequence[Row],
  beside: Sequence[Row],
  enough: Enough,
) -> Row | None:
  """Whole trials of Figure 1(a) at the best of the widths measured.

  Args:
    model, length: which cell.
    num_trials: per device.
    grown: rows of `growth`, of other models too.
    beside: rows of `beside_pytorch`.
    enough: as everywhere.
  """
  known = _by_width(model, grown)
  if len(known) < 2:
    return None
  ours = speed(figure_1a(model, length), num_trials, enough, lanes=widths.best(known))
  if ours is None:
    return None
  ratios = [
    row["PyTorch_ms_per_trial_step"] / ours["ms_per_trial_step"]
    for row in beside
    if (row["model"], row["N"], row["precision"]) == (model, length, "float32")
    and "PyTorch_ms_per_trial_step" in row
  ]
  return {**ours, "times_PyTorch": ratios[0] if ratios else None}


def table_of_widths(rows: Sequence[Row], length: int) -> list[Row]:
  """What `sepfx/ensembles/widths.json` has of a kind of device, from rows of `growth`."""
  found = []
  for model in dict.fromkeys(row["model"] for row in rows):
    known = _by_width(model, rows)
    if len(known) > 1:
      structure = widths.structure_of(figure_1a(model, length).trial)
      what = f"{model} N = {length}"
      found.append({"what": what, **structure, "lanes": widths.best(known)})
  return found


def _by_width(model: str, rows: Sequence[Row]) -> dict[int, float]:
  """Milliseconds per trial-step of the first checks by width."""
  return {
    row["lanes_per_device"]: row["ms_per_trial_step"]
    for row in rows
    if row["model"] == model and row["trials"] == "first checks" and "failed" not in row
  }


def boolean_cell(
  length: int, sample_size: int, num_trials: int, enough: Enough
) -> Row | None:
  """Trials of a cell of the published grid to their last step, on one device."""
  flags = {"contexts": length, "sample_sizes": sample_size, "run_to_end": True}
  own = cell(boolean.STUDY, "boolean_fig4", **flags)
  clock = timed(own, num_trials, num_devices=1, enough=enough)
  if not clock.steps:
    return None
  # A device advances its lanes also where some are idle.
  grid = chosen(boolean.STUDY, "boolean_fig4")
  filled = math.ceil(grid.one("num_trials") / clock.lanes) * clock.lanes
  lane_steps = grid.one("max_steps") * filled
  return {
    **_timing(clock),
    "minutes_at_most": clock.seconds / clock.lane_steps * lane_steps / 60,
  }


def boolean_grid(rows: Sequence[Row], compiled: Sequence[Row]) -> Row | None:
  """Hours of the whole published grid.

  Args:
    rows: of those two cells.
    compiled: rows of `compilation`, with all workers and with one.
  """
  timed_rows = [row for row in rows if "minutes_at_most" in row]
  if len(timed_rows) < 2:
    return None
  grid, num_devices = chosen(boolean.STUDY, "boolean_fig4"), len(jax.devices())
  sizes = [(T, m) for T in grid.values["length"] for m in grid.values["sample_size"]]
  known = sorted(
    (row["m"] * (row["T"] + 1), row["minutes_at_most"]) for row in timed_rows
  )
  (low, cheap), (high, dear) = known
  per_token = (dear - cheap) / (high - low)
  minutes = sum(cheap + per_token * (m * (T + 1) - low) for T, m in sizes)
  seconds = [row["compile_seconds"] for row in timed_rows]
  alone = float(np.mean(seconds)) * len(sizes) / 3600
  each = {
    row["workers"]: row["seconds_per_program"] for row in compiled if "failed" not in row
  }
  return {
    "training_hours_at_most": minutes / num_devices / 60,
    "compile_hours_with_one_worker": alone,
    "compile_hours_with_all": (
      alone * each[max(each)] / each[1] if len(each) > 1 else None
    ),
  }


@contextlib.contextmanager
def empty_cache() -> Iterator[None]:
  """Within it what is compiled is kept in a directory that is empty at first."""
  before = jax.config.jax_compilation_cache_dir
  try:
    with tempfile.TemporaryDirectory() as directory:
      jax.config.update("jax_compilation_cache_dir", directory)
      compilation_cache.reset_cache()  # else JAX keeps to the one that it knows
      yield
  finally:
    jax.config.update("jax_compilation_cache_dir", before)
    compilation_cache.reset_cache()


def compilation(model: str, lengths: Sequence[int], workers: int) -> Row:
  """Seconds for programs of Figure 1(a), each with another N, from an empty cache."""
  cells = [figure_1a(model, length) for length in lengths]
  start = time.perf_counter()
  with empty_cache(), precision.single():
    queues = [Queue(jobs, {}) for jobs in jobs_of(cells, 0, 1, ())]
    with Compilations(queues, Compiler(jax.devices(), 0), workers) as programs:
      programs.begin()
      while programs.next is not None:
        programs.take()
        programs.begin()
  seconds = time.perf_counter() - start
  return {"seconds": seconds, "seconds_per_program": seconds / len(cells)}


def training_alone(
  model: str, length: int, check_every: int, num_trials: int, enough: Enough
) -> Row | None:
  """Training for Figure 1(a) with checks that are few, and far from a threshold."""
  own = figure_1a(model, length, check_every=check_every, thresholds=1e-6)
  clock = timed(own, num_trials * len(jax.devices()), enough=enough)
  return _timing(clock) if clock.steps else None


def evaluations(
  model: str, length: int, num_trials: int, alone: Sequence[Row], enough: Enough
) -> Row | None:
  """Whole trials of Figure 1(a), and what a check costs in them.

  That is all that they take beside training: also lanes that are idle until a dispatch is
  over, and trials that begin.

  Args:
    model, length: which cell.
    num_trials: per device.
    alone: rows of `training_alone`, of other models too.
    enough: as everywhere.
  """
  own = figure_1a(model, length)
  whole = speed(own, num_trials, enough)
  training = [
    row["ms_per_trial_step"]
    for row in alone
    if row["model"] == model and "failed" not in row
  ]
  if whole is None or not training:
    return whole
  steps = own.trial.protocol.check_every
  return {**whole, "ms_per_check": steps * (whole["ms_per_trial_step"] - training[0])}


def memory() -> Row:
  """What the first device lets JAX have, and the most that it has held so far."""
  known = jax.devices()[0].memory_stats()
  if known is None:
    return {"failed": "this kind of device does not tell"}
  return {
    "MiB_limit": known["bytes_limit"] / _MIB,
    "MiB_in_use_at_most": known["peak_bytes_in_use"] / _MIB,
  }


def parities(length: int, num_trials: int, max_steps: int, enough: Enough) -> Row | None:
  """Trials of `experiments.parity`, all at once and without clipping."""
  own = cell(parity.STUDY, contexts=length, max_steps=max_steps, clip_norm=0.0)
  lanes = math.ceil(num_trials / len(jax.devices()))
  clock = timed(own, num_trials, lanes=lanes, enough=enough)
  if not clock.steps:
    return None
  batch = own.trial.samples_a_step
  outcomes = [result.outcomes[0] for result in clock.results]
  learned = sorted(o.samples // batch for o in outcomes if o.outcome == "reached")
  return {
    "learned": len(learned),
    "trials": num_trials,
    "after_steps": learned,
    "steps_of_the_others": clock.longest,
    "samples_per_second": clock.steps * batch / clock.seconds,
    **_timing(clock),
  }


def repeats(arguments: Sequence[str], over: Callable[[], bool]) -> Row | None:
  """Whether a run of `experiments.sample_complexity` gives the same twice.

  Args:
    arguments: its flags.
    over: whether there is no time left; asked before each of the two.
  """
  found = []
  with tempfile.TemporaryDirectory() as temporary:
    for name in ("one", "two"):
      if over():
        return None
      path = pathlib.Path(temporary) / name
      _run_study(path, arguments)
      found.append(((path / "trials.csv").read_bytes(), load(path).all_curves))
  (one, curves), (two, others) = found
  lines = zip(one.splitlines(), two.splitlines(), strict=True)
  same = [own.tobytes() == others[name].tobytes() for name, own in curves.items()]
  return {
    "trials_csv": "same bytes" if one == two else "different",
    "rows_that_differ": sum(first != second for first, second in lines),
    "curves_that_differ": same.count(False),
    "trials": len(same),
  }


def _run_study(path: pathlib.Path, arguments: Sequence[str]) -> None:
  handlers = {own: signal.getsignal(own) for own in (signal.SIGINT, signal.SIGTERM)}
  own_study = sample_complexity.STUDY
  try:
    with flagsaver.flagsaver(output_dir=str(path), quiet=True):
      program.run(own_study, own_study.chosen(arguments))
  finally:
    for number, handler in handlers.items():  # which the run made its own
      signal.signal(number, handler)
