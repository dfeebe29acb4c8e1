"""How fast are trials on Fourier-sparse functions, on this device?

    pip install -e '.[bench]'
    python -m benchmarks.fourier_speed

Trains the Transformer of Figure 1 (T = 20, batches of 128) in eager PyTorch on all
threads and here on all devices, in turn, several times. A step is an optimizer step of
one trial; evaluations and compilation are apart. Beside them stands the time that the
matrix products of our step take at the speed of large ones.
"""

from __future__ import annotations

import time

import jax
import numpy as np
import rich.console
import rich.table
import torch
from absl import app, flags

from benchmarks import fourier_baseline
from benchmarks.cells import cell
from benchmarks.clock import timed
from benchmarks.products import matrix_peak, step_operations
from experiments.fourier.fourier_generalisation import study as fourier_generalisation
from sepfx.commands import command_line

flags.DEFINE_integer("length", 20, "T.")
flags.DEFINE_integer("batch_size", 128, "Inputs per step.")
flags.DEFINE_integer("pairs", 5, "Measurements of both, in turn.")
flags.DEFINE_float("seconds", 8.0, "Time of each measurement.")

FLAGS = flags.FLAGS
_SAMPLES, _DEGREE, _COMPONENTS = 8192, 3, 4
_STEPS = 20  # between two looks at the clock


def theirs(trial: fourier_baseline.Trial) -> float:
  """Returns the baseline's seconds per step."""
  start, steps = time.perf_counter(), 0
  while time.perf_counter() - start < FLAGS.seconds:
    trial.train(_STEPS, FLAGS.batch_size)
    steps += _STEPS
  return (time.perf_counter() - start) / steps


def our_cell():
  """Returns the cell, which evaluates once only, and on few inputs."""
  return cell(
    fourier_generalisation.STUDY,
    lengths=FLAGS.length,
    degrees=_DEGREE,
    components=_COMPONENTS,
    sample_size=_SAMPLES,
    batch_size=FLAGS.batch_size,
    check_every=10**6,
    max_steps=10**6,
    num_test=1,
    learning_rate=1e-3,
  )


def ours(own) -> float:
  """Returns our seconds per trial-step."""
  lanes = 1 if jax.devices()[0].platform == "cpu" else 32
  clock = timed(
    own,
    lanes * len(jax.devices()),
    lanes=lanes,
    enough=lambda clock: clock.steps > 0 and clock.seconds > FLAGS.seconds,
  )
  return clock.seconds / clock.steps


def main(_: list[str]) -> None:
  command_line.prepare_jax()
  console = rich.console.Console(highlight=False)
  console.print(
    f"{jax.devices()[0].device_kind}, {len(jax.devices())} devices, JAX "
    f"{jax.__version__}; PyTorch {torch.__version__}, {torch.get_num_threads()} threads"
  )
  own = our_cell()
  floor = step_operations(own.trial) / matrix_peak(len(jax.devices()))
  trial = fourier_baseline.Trial(FLAGS.length, _SAMPLES, _DEGREE, _COMPONENTS)
  trial.train(_STEPS, FLAGS.batch_size)  # PyTorch's own first-call costs
  pairs = np.array([(theirs(trial), ours(own)) for _ in range(FLAGS.pairs)])
  ratio = pairs[:, 0] / pairs[:, 1]
  table = rich.table.Table(
    "T", "batch", "PyTorch\nms", "sepfx\nms", "ratio, median", "range", "products\nms"
  )
  slow, fast = np.median(1e3 * pairs, axis=0)
  table.add_row(
    str(FLAGS.length), str(FLAGS.batch_size), f"{slow:.2f}", f"{fast:.2f}",
    f"{np.median(ratio):.2f}", f"{ratio.min():.2f} to {ratio.max():.2f}",
    f"{1e3 * floor:.2f}",
  )  # fmt: skip
  console.print(table)
  console.print(
    "ms per trial-step; products: those of our step at the speed of large ones"
  )


if __name__ == "__main__":
  app.run(main)
