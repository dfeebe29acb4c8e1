"""One call that measures, in a script or a notebook, with files or without."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import flax.linen as nn
import jax
import numpy as np

from sepfx import kinds, plotting, precision
from sepfx import models as models_lib
from sepfx import probes as probes_lib
from sepfx.drawing import looks
from sepfx.ensembles import Cell, Records, Watcher, columns, grid, run, trial_name
from sepfx.ensembles.results import own_columns, probe_table, table
from sepfx.errors import require
from sepfx.measuring import calls, growth
from sepfx.measuring.arguments import check_model, check_name, listed, made, whole
from sepfx.models.building import nnx_modules
from sepfx.provenance.fingerprints import fingerprint
from sepfx.records.run_directory import RunDirectory
from sepfx.records.weights import Kept, trained
from sepfx.studies.missing import Options
from sepfx.studies.requests import Request
from sepfx.studies.share_runs import Part
from sepfx.training import ERM, Online, Probe, Trial, with_setting
from sepfx.watching.progress import Progress


@precision.single()
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
  probes: Sequence[str | Probe] | str | Probe | None = (),
  keep_weights: bool = False,
  directory: str | os.PathLike | None = None,
  share: tuple[int, int] | str | None = None,
  progress: bool = True,
  lanes: int = 0,
  devices: Sequence[jax.Device] | None = None,
  watchers: Sequence[Watcher] | None = (),
) -> Records:
  """Measures how many samples each model needs.

  With a `directory` it leaves there what a study leaves in its `--output_dir`: the same
  call goes on where an earlier one was stopped, and runs nothing that is recorded. Ctrl-C
  keeps what is in progress, too. A call on the same directory may ask for more models,
  lengths, values of an axis or trials, or a protocol with a larger budget: trials that
  spent theirs run again, from their first step. What a call leaves out stays there, its
  trials in progress too; figure and summary are of all. A call gets what it asks for.
  While trials are missing that an earlier call asked for, there is no summary, the figure
  says so, and `sepfx.load` gives records that are not `complete`. A call that asks for
  fewer trials than an earlier one gets as many as that. Code of one's own must be what it
  was: of models, tasks, protocols and probes, with all that they run (see
  docs/guides/own_model.md).

  On CPUs each core that the process may use is a device, if JAX has not been used before
  the call. Trials are computed in 32 bits, also where `jax_enable_x64` is on; it is as it
  was when the call returns.

  Args:
    task: what is learned, such as `sepfx.tasks.QSTR()`; its length is replaced by
      each of `lengths`.
    models: specifications (see `sepfx.models.build`), or `flax.linen` modules that map
      inputs [n N D] to outputs [n N], or bits [n T] to logits [n 2] where the task is
      one of bits; or what makes a module for each cell: a callable with a parameter
      `task` (whose `input_dim` is D) or `length`, a class of `flax.nnx` modules, a
      function of `rngs` that returns one. One may stand for a sequence of one.
    lengths: N.
    protocol: thresholds, optimizer, budget; None for the published ones of `Online`.
    axes: values of further settings by name: fields of the task, the model, the protocol
      or its optimizer ("learning_rate", "sample_size", "noise"); with a prefix
      ("model.units") where several have one of that name.
    seed: from 0 to 2^32 - 1. A trial's random numbers come from it, from the names of
      the task and the model, the length and the trial's index: the same model under
      another name has other trials.
    num_trials: trials of each cell.
    test_task: what test prompts are drawn from; None for `task`.
    task_draw: "per_trial" or "shared" planted parameters.
    probes: what is measured of each trial when it has ended: names from
      `sepfx.probes.NAMES`, "package.module:function", or functions.
    keep_weights: whether each trial's weights are kept, for `Records.models`.
    directory: where trials are recorded; None to keep them in memory alone.
    share: (3, 64), "3/64" or "auto": run a share of the trials, in a directory of its own
      under `directory`. The same call without it takes up what all shares have.
    progress: whether to show how far it is: on stderr, in a notebook under the cell.
    lanes: lanes per device; 0 to choose.
    devices: where to run; None for all of the default platform.
    watchers: told of everything that happens, see `Watcher`.

  Returns:
    Records of the cells that were asked for (of a share: of its own trials), as
    `sepfx.load` returns them of all. `table`
    has one row per trial and threshold under `Online`, with fields task, model, length,
    the axes, trial, threshold, samples, outcome ("reached", "censored" or "diverged");
    under `ERM` one row per trial, with fields task, model, length, sample_size, the axes,
    trial, accuracy (or risk), steps, outcome. `probes` has one row per trial.
    `sepfx.plot` draws them.

  Raises:
    InvalidSetting: (a ValueError) for bad input, or a directory of another call, before
      anything is compiled.
    OSError: if something could not be recorded.
  """
  protocol = Online() if protocol is None else protocol
  test_task = task if test_task is None else test_task
  models = listed("models", models, "model")
  order = sorted(
    {whole("lengths", n, least=1) for n in listed("lengths", lengths, "length")}
  )
  for name, value in (("task", task), ("test_task", test_task), ("protocol", protocol)):
    takes = f"an instance: did you forget () after {getattr(value, '__name__', '')}?"
    require(not isinstance(value, type), name, value, takes)
  for name, value in (("task", task), ("test_task", test_task)):
    takes = "a task: a dataclass with a length, such as sepfx.tasks.QSTR()"
    is_task = dataclasses.is_dataclass(value) and hasattr(value, "length")
    require(is_task, name, value, takes)
  takes = "a protocol, such as sepfx.Online() or sepfx.ERM()"
  require(hasattr(protocol, "trial"), "protocol", protocol, takes)
  seed = whole("seed", seed)
  num_trials = whole("num_trials", num_trials, least=1)
  keep_weights = kinds.taken(keep_weights, bool, "keep_weights")
  if directory is not None:
    calls.check_directory(directory)
  options = calls.options_of(lanes, devices, watchers, progress, share, directory)
  names = [model if isinstance(model, str) else "" for model in models]

  def build(model: int, length: int, **settings: Any) -> Trial:
    own = dataclasses.replace(task, length=length)
    own_test = dataclasses.replace(test_task, length=length)
    given: Any = models[model]

    def trial_of(task: Any) -> Trial:
      label = names[model]
      if label:
        module = models_lib.build(label, task)
      elif models_lib.makes_modules(given):
        label = models_lib.factory_name(given)
        module = made(given, task, label)
      else:
        check_model(given)
        module = nnx_modules.hashable(given)
      label = label or models_lib.record_name(module)
      if not names[model]:
        check_name(label, module)
      trial: Trial = protocol.trial(own, own_test, module, label)
      for name, value in settings.items():
        trial = with_setting(trial, name, value)
      return trial

    trial = trial_of(own)
    if models_lib.makes_modules(given):  # settings may have changed the task
      trial = trial_of(trial.task)
    return trial

  takes = "values by the names of settings, such as {'learning_rate': [1e-3, 3e-3]}"
  require(isinstance(axes or {}, Mapping), "axes", axes, takes)
  others = {name: listed(name, values, "value") for name, values in (axes or {}).items()}
  for name in ("length", "model"):
    takes = f"another name: {name}s are an argument of their own"
    require(name not in others, "axes", name, takes)
  called = [
    name or getattr(model, "__name__", type(model).__name__)
    for name, model in zip(names, models, strict=True)
  ]
  assert options.console is not None
  options.console.print(
    f"checking {', '.join(called)} at N = {', '.join(map(str, order))}"
  )
  cells = grid(
    build,
    {"model": range(len(models)), "length": order, **others},
    task_draw=task_draw,
  )
  settings = {
    "task": fingerprint(task, but="length"),
    "test_task": fingerprint(test_task, but="length"),
    "protocol": fingerprint(protocol),
    "models": {
      cell.coordinates["model"]: names[k] or fingerprint(models[k])
      for k, cell in enumerate(cells[:: len(cells) // len(models)])
    },
    "lengths": order,
    "axes": {name: [fingerprint(value) for value in own] for name, own in others.items()},
    "task_draw": task_draw,
    "seed": seed,
    "num_trials": num_trials,
  }
  asked = () if probes is None else probes
  trials = [cell.trial for cell in cells]
  probe = probes_lib.combined(asked, trials, own_columns(cells))
  call = _Call(cells, settings, probe, keep_weights)
  if directory is None:
    return call.in_memory(options)
  found: Records | Part = calls.recorded(call, directory, options)
  if not isinstance(found, Part):
    return found
  return found.records if share is not None else call.own(found.records, directory)


class _Call:
  """What a call asks for; a `sepfx.studies.requests.Asked`."""

  def __init__(
    self,
    cells: Sequence[Cell],
    settings: dict[str, Any],
    probe: Probe | None,
    keep_weights: bool,
  ):
    self.cells, self.settings = cells, settings
    self._probe, self._keep_weights = probe, keep_weights

  def request(self, stored: Mapping[str, Any] | None) -> Request:
    """Returns what is asked of a directory."""
    cells, settings = self.cells, self.settings
    order: list[str] = []
    if stored is not None:
      settings, cells, order = growth.grown(stored, settings, cells)
    self._asked = {cell.name: cell for cell in cells}
    return Request(
      own=cells,
      cells=cells,
      settings=settings,
      identity=growth.identity(self.settings),
      seed=settings["seed"],
      num_trials=settings["num_trials"],
      added={},
      probe=self._probe,
      keep_weights=self._keep_weights,
      notes=plotting.notes_of(cells),
      order=order,
      named=self.settings,
    )

  def search(self, request: Request) -> None:
    """All trials run."""

  def write_unfinished(
    self, directory: RunDirectory, request: Request, records: Records, of: int | None
  ) -> None:
    """Leaves a figure of what has been recorded so far."""
    with looks.look():
      figure = plotting.plot(records)
      plotting.write_unfinished(directory, figure, len(records.all_curves), of)

  def leave(self, directory: RunDirectory, request: Request, records: Records) -> Records:
    """Leaves figure and summary of all that is there; returns what was asked for."""
    plotting.write(directory, records)
    return self.own(records, directory.path) if request.order else records

  def own(self, records: Records, path: str | os.PathLike) -> Records:
    """Returns those of all records in a directory that were asked for."""
    modules = {name: cell.trial.model for name, cell in self._asked.items()}
    chosen = np.array([records.cell_of(row) in modules for row in records.table], bool)
    asked = records.where(chosen)
    names = {name: modules[name.rpartition("/")[0]] for name in asked.names()}
    probes = records.probes
    if probes is not None:
      probes = probes[[records.name_of(row) in names for row in probes]]
    return dataclasses.replace(
      asked,
      all_curves={name: records.all_curves[name] for name in names},
      probes=probes,
      models=Kept(pathlib.Path(path), list(names), modules=names),
      complete=True,
      missing=0,
    )

  def in_memory(self, options: Options) -> Records:
    """Runs all trials, and keeps no file."""
    cells, settings = self.cells, self.settings
    count = settings["num_trials"]
    trials = [trial_name(cell, k) for cell in cells for k in range(count)]
    with Progress(len(trials), cells, options.console) as shown:
      shown.awaits(trials)
      results = run(
        sorted(cells, key=lambda cell: cell.coordinates["length"]),
        seed=settings["seed"],
        num_trials=count,
        lanes=options.lanes,
        devices=options.devices,
        watchers=[shown, *options.watchers],
        probe=self._probe,
        keep_weights=self._keep_weights,
      )
      by_name = {result.name: result for result in results}
    ended = [by_name[name] for name in trials]
    types = columns(cells)
    return Records(
      table((row for result in ended for row in result.rows), types),
      tuple(cells[0].coordinates),
      {result.name: result.curve for result in ended},
      probe_table([(result.head, result.probes) for result in ended], types),
      settings,
      {
        result.name: trained(result.cell.trial.model, result.params)
        for result in ended
        if result.params is not None
      },
      plotting.notes_of(cells),
    )
