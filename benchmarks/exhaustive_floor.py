"""How many samples does the learner that tries all subsets need?

    python -m benchmarks.exhaustive_floor

Simulates that learner on the tasks of the published figures and of the gallery, and
prints the table that the package keeps, row by row:
`experiments/boolean/exhaustive_floor.csv`. `size` is the smallest m at which the learner
finds the hidden bits with a chance above 1/2; `error` is the standard error, in samples,
of the m at which the chance is 1/2.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from absl import app, flags

from experiments.boolean.exhaustive import Floor, exhaustive_success
from sepfx.tasks import SparseBoolean

flags.DEFINE_integer("floor_trials", 4000, "Simulated for each task.", lower_bound=200)
flags.DEFINE_integer("floor_seed", 0, "Seed of everything random.")
FLAGS = flags.FLAGS

# T of the AND of three bits: of the gallery, of the defaults and of Figure 4.
LENGTHS = (25, 50, 100, 150, 200, 250, 300, 350, 400, 500, 600, 700, 800)
# Trials simulated together. The standard error is that of the mean of such batches.
_BATCH = 100
# Sizes that are looked at, from the number of labels that could name every subset on.
_BELOW, _ABOVE = 2, 15


class Crossing(NamedTuple):
  """Where a chance that grows with m is first above 1/2, and the standard error."""

  size: int
  error: float


def sizes_of(task: SparseBoolean) -> np.ndarray:
  """Sample sizes among which the chance passes 1/2.

  A label tells at most its entropy of which of the C(T, s) subsets it is.
  """
  rare = task.best_constant_error()
  entropy = -rare * math.log2(rare) - (1 - rare) * math.log2(1 - rare)
  least = math.ceil(math.log2(math.comb(task.length, task.sparsity)) / entropy)
  return np.arange(max(least - _BELOW, 1), min(least + _ABOVE, 64) + 1)


def crossing(sizes: np.ndarray, chances: np.ndarray) -> Crossing:
  """Finds where the mean over batches passes 1/2.

  Args:
    sizes: consecutive, [k].
    chances: of independent batches, [batches k].

  Raises:
    ValueError: if that is not inside these sizes.
  """
  mean = chances.mean(axis=0)
  first = int(np.argmax(mean > 0.5))
  if not 0 < first < len(sizes) - 1:
    raise ValueError(f"the chance does not pass 1/2 inside {sizes[0]} to {sizes[-1]}")
  spread = chances[:, first].std(ddof=1) / math.sqrt(len(chances))
  # The chance's slope, per sample, around where it passes.
  slope = (mean[first + 1] - mean[first - 1]) / 2
  return Crossing(int(sizes[first]), float(spread / slope))


def main(_: Sequence[str]) -> None:
  """Prints a row for each T, as it is done."""
  rows = csv.writer(sys.stdout, lineterminator="\n")
  rows.writerow(Floor._fields)
  for length in LENGTHS:
    task = SparseBoolean(length=length)
    sizes = sizes_of(task)
    batches = FLAGS.floor_trials // _BATCH
    chances = [
      exhaustive_success(task, sizes, _BATCH, seed=FLAGS.floor_seed * batches + k)
      for k in range(batches)
    ]
    found = crossing(sizes, np.array(chances))
    rows.writerow(
      Floor(
        task.name, task.sparsity, task.bit_probability, length, found.size,
        float(f"{found.error:.2f}"), batches * _BATCH,
      )
    )  # fmt: skip
    sys.stdout.flush()


if __name__ == "__main__":
  app.run(main)
