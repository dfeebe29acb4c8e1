"""The measurements of `benchmarks.on_accelerator`; each is None if time did not suffice.

All take `enough`, which says of a clock when to stop.
"""

from __future__ import annotations

import math
import pathlib
import signal
import tempfile
from collections.abc import Callable, Sequence

import jax
import numpy as np
from absl.testing import flagsaver

from benchmarks.cells import cell, chosen, figure_1a, first_checks
from benchmarks.clock import Clock, timed
from benchmarks.findings import Row
from experiments import boolean_sample_complexity as boolean
from experiments import parity, sample_complexity, study
from sepfx.ensembles import load
from sepfx.ensembles.compiling import number_of_workers

Enough = Callable[[Clock], bool]


def _timing(clock: Clock) -> Row:
  return {
    "lanes_a_device": clock.lanes,
    "ms_a_trial_step": 1e3 * clock.seconds / clock.steps,
    "compile_seconds": clock.compiled,
  }


def speed(model: str, length: int, lanes: int, waves: int, enough: Enough) -> Row | None:
  """Trials of Figure 1(a), `waves` for each lane."""
  own, num_devices = figure_1a(model, length), len(jax.devices())
  num_trials = waves * lanes * num_devices
  clock = timed(own, num_trials, lanes=lanes, enough=enough)
  if not clock.steps:
    return None
  row, begun_first = _timing(clock), clock.lanes * num_devices
  # Of all that ended, the long ones are missing where time was short.
  first = [result for result in clock.results if result.trial < begun_first]
  rate = steps = None
  if len(first) == begun_first:
    samples = [result.outcomes[0].samples for result in first]
    steps = float(np.mean(samples)) / own.trial.samples_a_step
    rate = 3.6e6 / (row["ms_a_trial_step"] * steps)
  return {
    **row,
    "trials_an_hour": rate,
    "steps_a_trial": steps,
    "trials_ended": len(clock.results),
    "trials": num_trials,
  }


def boolean_cell(length: int, sample_size: int, lanes: int, enough: Enough) -> Row | None:
  """As many trials of a cell of the published grid as there are lanes, to their end."""
  flags = {"contexts": length, "sample_sizes": sample_size, "run_to_end": True}
  own = cell(boolean.STUDY, "boolean_fig4", **flags)
  clock = timed(own, lanes * len(jax.devices()), enough=enough)
  return _timing(clock) if clock.steps else None


def boolean_grid(rows: Sequence[Row]) -> Row | None:
  """Hours of the whole published grid, given those two cells."""
  timed_rows = [row for row in rows if "ms_a_trial_step" in row]
  if len(timed_rows) < 2:
    return None
  grid, num_devices = chosen(boolean.STUDY, "boolean_fig4"), len(jax.devices())
  sizes = [(T, m) for T in grid.values["length"] for m in grid.values["sample_size"]]
  known = sorted(
    (row["m"] * (row["T"] + 1), row["ms_a_trial_step"] * num_devices)
    for row in timed_rows
  )
  (low, cheap), (high, dear) = known
  per_token = (dear - cheap) / (high - low)
  device_ms = sum(cheap + per_token * (m * (T + 1) - low) for T, m in sizes)
  lanes = max(row["lanes_a_device"] for row in timed_rows)
  filled = math.ceil(grid.one("num_trials") / lanes) * lanes
  steps = grid.one("max_steps") * filled / num_devices
  compiling = np.mean([row["compile_seconds"] for row in timed_rows])
  return {
    "hours_at_most": device_ms * steps / 3.6e6,
    # Beside the trials if those take longer.
    "compile_hours": float(compiling) * len(sizes) / number_of_workers() / 3600,
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
    "samples_a_second": clock.steps * batch / clock.seconds,
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
      study.run(own_study, own_study.chosen(arguments))
  finally:
    for number, handler in handlers.items():  # which the run made its own
      signal.signal(number, handler)


def growth(
  model: str, length: int, lanes: int, num_checks: int, enough: Enough
) -> Row | None:
  """The first checks of as many trials of Figure 1(a) as there are lanes."""
  own = first_checks(model, length, num_checks)
  clock = timed(own, lanes * len(jax.devices()), lanes=lanes, enough=enough)
  return _timing(clock) if clock.steps else None
