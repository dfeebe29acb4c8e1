"""Do a trial's bits depend on what runs beside it?

    python -m benchmarks.reproducibility

For each model, runs trial 3 of one cell in ensembles of 4, 5 and 16, with 1, 4 and 8
lanes per device on one CPU device, and in one of 5 with 4 lanes per device on two, and
compares its rows and its test-loss curves bit for bit.
"""

from __future__ import annotations

import os

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "2")

import jax
import numpy as np
import rich.console
import rich.table

from benchmarks.cells import cells
from experiments import sample_complexity
from sepfx.ensembles import Cell, Result, run
from sepfx.models import NAMES

_TRIAL = 3
_CHECKS = 5
# Trials, lanes per device, devices.
_LAYOUTS = ((4, 1, 1), (5, 4, 1), (16, 8, 1), (5, 4, 2))


def main() -> None:
  console = rich.console.Console()
  table = rich.table.Table("model", "rows", "one device, 3 layouts", "one device and two")
  grid = cells(
    sample_complexity.STUDY,
    models=NAMES["regression"],
    lengths=4,
    num_test=1000,
    max_samples=64 * 10 * _CHECKS,
  )
  for cell in grid:
    found = [_trial(cell, *layout) for layout in _LAYOUTS]
    curves = [result.curve["loss"] for result in found]
    same_rows = all(result.rows == found[0].rows for result in found)
    same_bits = all(np.array_equal(curves[0], curve) for curve in curves[:3])
    apart = float(np.max(np.abs(curves[0] / curves[3] - 1)))
    table.add_row(
      cell.trial.model_name,
      "same" if same_rows else "different",
      "same bits" if same_bits else "different bits",
      "same bits" if apart == 0 else f"losses within {apart:.0e} of one another",
    )
    console.print(cell.name, "measured", highlight=False)
  console.print(table)


def _trial(cell: Cell, num_trials: int, lanes: int, num_devices: int) -> Result:
  devices = jax.devices()[:num_devices]
  results = run([cell], seed=0, num_trials=num_trials, lanes=lanes, devices=devices)
  return next(result for result in list(results) if result.trial == _TRIAL)


if __name__ == "__main__":
  main()
