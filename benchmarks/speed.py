"""How fast, against the published program in eager PyTorch on the same device?

    pip install -e '.[bench]'
    python -m benchmarks.speed

The first table runs both in turn, cell by cell. A trial-step is one optimizer step of one
trial with its share of the evaluations; compilation is apart. The baseline is timed over
its first checks, each of which costs the same; ours over whole trials, from the first
step to the last check, because what an evaluation costs changes as a trial goes on.
The second table shows how our cost grows with lanes, length and devices; the third
(`--whole_figure`) what all of Figure 1(a) takes, from an empty cache to figure.png.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

import jax
import rich.console
import rich.table
import torch
from absl import app, flags

import sepfx
from benchmarks import baseline
from benchmarks.cells import PRESETS, figure_1a, first_checks
from benchmarks.clock import timed
from benchmarks.products import matrix_peak, step_operations
from sepfx.commands import command_line

flags.DEFINE_list("models", ["transformer", "ffn", "gru"], "First table: which models.")
flags.DEFINE_list("lengths", ["4", "12"], "First table: N.")
flags.DEFINE_integer("num_trials", 6, "First table: trials of ours per cell.")
flags.DEFINE_float("baseline_seconds", 10.0, "First table: the baseline's time per cell.")
flags.DEFINE_list("growth_models", ["transformer", "ffn"], "Second table: which models.")
flags.DEFINE_list("growth_lanes", ["1", "4", "16", "64", "256"], "Second table: lanes.")
flags.DEFINE_list("growth_lengths", ["4", "8", "16", "32", "64"], "Second table: N.")
flags.DEFINE_bool(
  "whole_figure", False, "Third table: run fig1a.cfg (half an hour on 2 CPU cores)."
)

FLAGS = flags.FLAGS  # --lanes, of the first table, is that of the studies
_GROWTH_LENGTH = 12
_GROWTH_CHECKS = 10


def ratios(console: rich.console.Console, models: Sequence[str]) -> None:
  """The first table."""
  num_devices = len(jax.devices())
  peak = matrix_peak(num_devices)
  console.print(f"{num_devices} devices, matrix products at {peak / 1e9:,.0f} GFLOP/s")
  table = rich.table.Table(
    "model", "N", "PyTorch\nms", "sepfx\nms", "ratio", "PyTorch\ntrials/h",
    "sepfx\ntrials/h", "compile\ns", "busy", "of\npeak",
  )  # fmt: skip
  for model in models:
    for length in map(int, FLAGS.lengths):
      slow = baseline.seconds_per_step(model, length, FLAGS.baseline_seconds)
      cell = figure_1a(model, length)
      clock = timed(cell, FLAGS.num_trials, lanes=FLAGS.lanes)
      fast = clock.seconds / clock.steps
      steps_a_trial = clock.steps / FLAGS.num_trials
      table.add_row(
        model,
        str(length),
        f"{1e3 * slow:.2f}",
        f"{1e3 * fast:.2f}",
        f"{slow / fast:.1f}",
        f"{3600 / (slow * steps_a_trial):,.0f}",
        f"{3600 / (fast * steps_a_trial):,.0f}",
        f"{clock.compiled:.1f}",
        f"{clock.occupancy:.0%}",
        f"{step_operations(cell.trial) / fast / peak:.0%}",
      )
      console.print(f"{cell.name} measured")
  console.print(table)
  console.print(
    "ms per trial-step, evaluations included; busy: share of the devices' time that went "
    "into trials while some were waiting. of peak: training's matrix products."
  )


def growth(console: rich.console.Console, models: Sequence[str]) -> None:
  """The second table."""
  num_devices = len(jax.devices())
  layouts = [
    *((_GROWTH_LENGTH, lanes, num_devices) for lanes in map(int, FLAGS.growth_lanes)),
    *((length, 1, num_devices) for length in map(int, FLAGS.growth_lengths)),
    *((_GROWTH_LENGTH, 1, devices) for devices in range(1, num_devices + 1)),
  ]
  table = rich.table.Table("N", "lanes per device", "devices", *models)
  for length, lanes, devices in dict.fromkeys(layouts):
    row = []
    for model in models:
      cell = first_checks(model, length, _GROWTH_CHECKS)
      clock = timed(cell, lanes * devices, lanes=lanes, num_devices=devices)
      row.append(f"{1e3 * clock.seconds / clock.steps:.2f}")
    table.add_row(str(length), str(lanes), str(devices), *row)
    console.print(f"N = {length}, {lanes} lanes, {devices} devices measured")
  console.print(table)
  console.print("ms per trial-step over the first checks")


def whole_figure(console: rich.console.Console) -> None:
  """The third table."""
  with tempfile.TemporaryDirectory() as directory:
    output = pathlib.Path(directory) / "run"
    start = time.perf_counter()
    subprocess.run(
      [
        sys.executable, "-m", "experiments.sample_complexity",
        f"--flagfile={PRESETS / 'fig1a.cfg'}", f"--output_dir={output}",
      ],
      env={**os.environ, "JAX_COMPILATION_CACHE_DIR": directory},
      check=True,
    )  # fmt: skip
    fast = time.perf_counter() - start
    records = sepfx.load(output).table
  table = rich.table.Table("model", "N", "trials", "steps", "PyTorch\nms", "PyTorch\ns")
  total = 0.0
  for model, length in dict.fromkeys(records[["model", "length"]].tolist()):
    own = records[(records["model"] == model) & (records["length"] == length)]
    steps = own["samples"].sum() / baseline.BATCH_SIZE
    slow = baseline.seconds_per_step(model, length, FLAGS.baseline_seconds / 2)
    total += steps * slow
    table.add_row(
      model,
      str(length),
      str(len(own)),
      f"{steps:,.0f}",
      f"{1e3 * slow:.2f}",
      f"{steps * slow:,.0f}",
    )
  console.print(table)
  console.print(
    f"Figure 1(a): PyTorch {total:,.0f} s (as many steps as ours took, at its time a "
    f"step), sepfx {fast:,.0f} s, ratio {total / fast:.1f}"
  )


def main(_: list[str]) -> None:
  command_line.prepare_jax()
  width = None if sys.stdout.isatty() else 100  # room for the tables in a file
  console = rich.console.Console(highlight=False, width=width)
  device = jax.devices()[0]
  console.print(
    f"{device.device_kind}, JAX {jax.__version__}, PyTorch {torch.__version__}"
  )
  ratios(console, FLAGS.models)
  growth(console, FLAGS.growth_models)
  if FLAGS.whole_figure:
    whole_figure(console)


if __name__ == "__main__":
  app.run(main)
