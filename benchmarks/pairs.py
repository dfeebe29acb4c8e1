"""How fast as a whole process, against the published program's?

    pip install -e '.[bench]'
    python -m benchmarks.pairs

Runs the study of Figure 1(a) and `benchmarks.baseline` in turn, as processes from start
to end, on one model and length. Both train whole trials to a test MSE of 0.7. A trial
takes as many steps here as there only on average, so times are per trial-step. The first
pair is from an empty compilation cache and is shown by itself; later ones find what it
compiled.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

import numpy as np
import rich.console
import rich.table
from absl import app, flags

import sepfx
from benchmarks.cells import PRESETS
from sepfx.training import Online

flags.DEFINE_list(
  "pair_cells",
  ["transformer:12:200:4", "ffn:12:24:3", "gru:4:24:2", "gru:12:6:1"],
  "MODEL:N:TRIALS:THEIRS, with so many trials in a process of ours, and of theirs.",
)
flags.DEFINE_integer("pairs", 5, "Pairs of each after the first.")

FLAGS = flags.FLAGS


def ours(model: str, length: str, trials: str, cache: str, seed: int) -> float:
  """Returns seconds per trial-step of a process of this project."""
  with tempfile.TemporaryDirectory() as directory:
    output = pathlib.Path(directory) / "run"
    command = [
      sys.executable, "-m", "experiments.sample_complexity",
      f"--flagfile={PRESETS / 'fig1a.cfg'}", f"--models={model}", f"--lengths={length}",
      f"--num_trials={trials}", f"--seed={seed}", "--published=",
      f"--output_dir={output}",
    ]  # fmt: skip
    seconds = _timed(command, JAX_COMPILATION_CACHE_DIR=cache)[0]
    samples = sepfx.load(output).table["samples"]
  return seconds / (np.sum(samples) / Online().batch_size)


def theirs(model: str, length: str, trials: str) -> float:
  """Returns the same of the published program."""
  command = [
    sys.executable, "-m", "benchmarks.baseline", f"--model={model}",
    f"--length={length}", f"--trials={trials}",
  ]  # fmt: skip
  seconds, printed = _timed(command)
  return seconds / sum(map(int, printed.split()))


def _timed(command: Sequence[str], **environment: str) -> tuple[float, str]:
  start = time.perf_counter()
  done = subprocess.run(
    command,
    env={**os.environ, **environment},
    check=True,
    stdout=subprocess.PIPE,
    text=True,
  )
  return time.perf_counter() - start, done.stdout


def main(_: list[str]) -> None:
  console = rich.console.Console(width=100)
  table = rich.table.Table(
    "model", "N", "trials", "PyTorch\nms", "sepfx\nms", "ratio", "cold"
  )
  for cell in FLAGS.pair_cells:
    model, length, own, other = cell.split(":")
    with tempfile.TemporaryDirectory() as cache:
      pairs = []
      for k in range(FLAGS.pairs + 1):
        fast = ours(model, length, own, cache, seed=k)
        pairs.append((theirs(model, length, other), fast))
        console.print(f"{cell}, pair {k}: {pairs[-1][0] / fast:.2f}")
    slow, fast = 1e3 * np.array(pairs).T
    ratios = (slow / fast)[1:]
    table.add_row(
      model,
      length,
      f"{own}, {other}",
      f"{np.median(slow[1:]):.2f}",
      f"{np.median(fast[1:]):.2f}",
      f"{np.median(ratios):.1f} ({np.min(ratios):.1f} to {np.max(ratios):.1f})",
      f"{slow[0] / fast[0]:.1f}",
    )
  console.print(table)
  console.print(
    "ms of the whole process per trial-step and ratio, median of the pairs (range). "
    "Cold: the first pair, from an empty compilation cache."
  )


if __name__ == "__main__":
  app.run(main)
