"""One call that measures, with neither flags nor files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from sepfx.ensembles.cells import grid
from sepfx.ensembles.host_loop import Watcher, run
from sepfx.ensembles.records import columns, table
from sepfx.training import ERM, Online


def measure(
  task: Any,
  models: Sequence[str | nn.Module],
  lengths: Sequence[int],
  protocol: Online | ERM | None = None,
  *,
  seed: int = 0,
  num_trials: int = 5,
  sample_sizes: Sequence[int] = (),
  uniform_fractions: Sequence[float] = (),
  test_task: Any = None,
  task_draw: str = "per_trial",
  num_heads: int | None = None,
  lanes: int = 0,
  devices: Sequence[jax.Device] | None = None,
  watchers: Sequence[Watcher] = (),
) -> np.ndarray:
  """Measures how many samples each model needs, with neither flags nor files.

  Args:
    task: what is learned, such as `sepfx.tasks.QSTR()`; its length is replaced by
      each of `lengths`.
    models: names from `sepfx.models.NAMES`, "package.module:factory", or
      `flax.linen` modules that map inputs [n N D] to outputs [n N], or bits [n T] to
      logits [n 2] where the task is one of bits.
    lengths: N.
    protocol: thresholds, optimizer, budget; None for the published ones of `Online`.
    seed: from 0 to 2^32 - 1.
    num_trials: trials of each model at each length.
    sample_sizes: m of `ERM`, which replace the protocol's own.
    uniform_fractions: further thresholds, as fractions of the risk that uniform
      attention has on the test prompts of a length.
    test_task: what test prompts are drawn from; None for `task`.
    task_draw: "per_trial" or "shared" planted parameters.
    num_heads: H of the transformer; None for the published number.
    lanes: lanes a device; 0 to choose.
    devices: where to run; None for all of the default platform.
    watchers: told of everything that happens, see `Watcher`.

  Returns:
    A structured array ordered by model, length and trial. Under `Online` one row a
    trial and threshold, with fields task, model, length, trial, threshold, samples,
    outcome ("reached", "censored" or "diverged"); under `ERM` one row a trial, with
    fields task, model, length, sample_size, trial, accuracy (or risk), steps, outcome.

  Raises:
    InvalidSetting: (a ValueError) for bad input, before anything is compiled.
  """
  cells = grid(
    task,
    models,
    lengths,
    protocol or Online(),
    sample_sizes=sample_sizes,
    uniform_fractions=uniform_fractions,
    test_task=test_task,
    task_draw=task_draw,
    num_heads=num_heads,
  )
  results = run(
    cells,
    seed=seed,
    num_trials=num_trials,
    lanes=lanes,
    devices=devices,
    watchers=watchers,
  )
  order = {cell.name: k for k, cell in enumerate(cells)}
  ended = sorted(results, key=lambda result: (order[result.cell.name], result.trial))
  return table((row for result in ended for row in result.rows), columns(cells[0]))
