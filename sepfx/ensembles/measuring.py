"""One call that measures, with neither flags nor files."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from sepfx import models as models_lib
from sepfx import probes as probes_lib
from sepfx.ensembles.cells import grid
from sepfx.ensembles.host_loop import run
from sepfx.ensembles.records import Records, columns, probe_table, table
from sepfx.ensembles.watchers import Watcher
from sepfx.errors import require
from sepfx.training import ERM, Online, Probe, Trial, with_setting


def measure(
  task: Any,
  models: Sequence[str | nn.Module] | str | nn.Module,
  lengths: Sequence[int] | int,
  protocol: Online | ERM | None = None,
  *,
  axes: Mapping[str, Sequence] | None = None,
  seed: int = 0,
  num_trials: int = 5,
  test_task: Any = None,
  task_draw: str = "per_trial",
  probes: Sequence[str | Probe] | str | Probe = (),
  lanes: int = 0,
  devices: Sequence[jax.Device] | None = None,
  watchers: Sequence[Watcher] = (),
) -> Records:
  """Measures how many samples each model needs, with neither flags nor files.

  Args:
    task: what is learned, such as `sepfx.tasks.QSTR()`; its length is replaced by
      each of `lengths`.
    models: specifications (see `sepfx.models.build`), or `flax.linen` modules that map
      inputs [n N D] to outputs [n N], or bits [n T] to logits [n 2] where the task is
      one of bits. One may stand for a sequence of one.
    lengths: N.
    protocol: thresholds, optimizer, budget; None for the published ones of `Online`.
    axes: values of further settings by name: fields of the task, the model, the protocol
      or its optimizer ("learning_rate", "sample_size", "noise"); with a prefix
      ("model.units") where several have one of that name.
    seed: from 0 to 2^32 - 1.
    num_trials: trials of each cell.
    test_task: what test prompts are drawn from; None for `task`.
    task_draw: "per_trial" or "shared" planted parameters.
    probes: what is measured of each trial when it has ended: names from
      `sepfx.probes.NAMES`, "package.module:function", or functions.
    lanes: lanes per device; 0 to choose.
    devices: where to run; None for all of the default platform.
    watchers: told of everything that happens, see `Watcher`.

  Returns:
    Records. `table` has one row per trial and threshold under `Online`, with fields task,
    model, length, the axes, trial, threshold, samples, outcome ("reached", "censored" or
    "diverged"); under `ERM` one row per trial, with fields task, model, length,
    sample_size, the axes, trial, accuracy (or risk), steps, outcome. `probes` has one row
    per trial.

  Raises:
    InvalidSetting: (a ValueError) for bad input, before anything is compiled.
  """
  protocol = protocol or Online()
  models = [models] if isinstance(models, str | nn.Module | type) else list(models)
  lengths = [lengths] if isinstance(lengths, int | np.integer) else list(lengths)
  for name, value in (("task", task), ("test_task", test_task), ("protocol", protocol)):
    instance = not isinstance(value, type)
    takes = f"an instance: did you forget () after {getattr(value, '__name__', '')}?"
    require(instance, name, value, takes)
  names = [model if isinstance(model, str) else "" for model in models]

  def build(model: int, length: int, **settings: Any) -> Trial:
    own = dataclasses.replace(task, length=length)
    own_test = dataclasses.replace(test_task or task, length=length)
    module: Any = models[model]
    if names[model]:
      module = models_lib.build(names[model], own)
    models_lib.check_module(module, module)
    label = names[model] or models_lib.record_name(module)
    trial: Trial = protocol.trial(own, own_test, module, label)
    for name, value in settings.items():
      trial = with_setting(trial, name, value)
    return trial

  order = sorted({int(length) for length in lengths})
  others = {
    name: [values] if isinstance(values, str) or np.ndim(values) == 0 else list(values)
    for name, values in (axes or {}).items()
  }
  cells = grid(
    build,
    {"model": range(len(models)), "length": order, **others},
    task_draw=task_draw,
  )
  probe = probes_lib.combined(probes, [cell.trial for cell in cells])
  results = run(
    cells,
    seed=seed,
    num_trials=num_trials,
    lanes=lanes,
    devices=devices,
    watchers=watchers,
    probe=probe,
  )
  place = {cell.name: k for k, cell in enumerate(cells)}
  ended = sorted(results, key=lambda result: (place[result.cell.name], result.trial))
  types = columns(cells)
  return Records(
    table((row for result in ended for row in result.rows), types),
    tuple(cells[0].coordinates),
    {result.name: result.curve for result in ended},
    probe_table([(result.head, result.probes) for result in ended], types),
  )
