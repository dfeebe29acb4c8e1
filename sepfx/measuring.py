"""One call that measures, in a script or a notebook, with files or without."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import numpy as np
import rich.console

from sepfx import cores, kinds, plotting, precision, specifications
from sepfx import models as models_lib
from sepfx import probes as probes_lib
from sepfx.drawing import looks
from sepfx.ensembles import Cell, Records, Result, Watcher, columns, grid, run, trial_name
from sepfx.ensembles.programs import check_lanes
from sepfx.ensembles.results import own_columns, probe_table, table
from sepfx.errors import Interrupted, InvalidSetting, require
from sepfx.interrupts import Interrupts
from sepfx.models.building import nnx_modules
from sepfx.provenance.fingerprints import fingerprint
from sepfx.records import digests, growth
from sepfx.records.checkpoints import Checkpoints
from sepfx.records.run_directory import RunDirectory
from sepfx.records.trial_files import begun
from sepfx.records.weights import trained
from sepfx.training import ERM, Online, Probe, Trial, with_setting
from sepfx.watching.progress import Progress
from sepfx.watching.viewers import LiveFigure

# Time between two checkpoints of the trials in progress.
_CHECKPOINT_SECONDS = 300.0
# Width of lines that are written to a file or a pipe.
_FILE_COLUMNS = 160


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
  spent theirs run again, from their first step. A call that asks for fewer trials
  than are recorded gets all that are recorded. Code of one's own must be what it was: of
  models, tasks, protocols and probes, with all that they run (see
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
    progress: whether to show how far it is: on stderr, in a notebook under the cell.
    lanes: lanes per device; 0 to choose.
    devices: where to run; None for all of the default platform.
    watchers: told of everything that happens, see `Watcher`.

  Returns:
    Records, as `sepfx.load` returns them of a directory. `table` has one row per trial
    and threshold under `Online`, with fields task, model, length, the axes, trial,
    threshold, samples, outcome ("reached", "censored" or "diverged"); under `ERM` one row
    per trial, with fields task, model, length, sample_size, the axes, trial, accuracy (or
    risk), steps, outcome. `probes` has one row per trial. `sepfx.plot` draws them.

  Raises:
    InvalidSetting: (a ValueError) for bad input, or a directory of another call, before
      anything is compiled.
    OSError: if something could not be recorded.
  """
  protocol = Online() if protocol is None else protocol
  test_task = task if test_task is None else test_task
  models = _listed("models", models, "model")
  order = sorted({_whole("lengths", n) for n in _listed("lengths", lengths, "length")})
  for name, value in (("task", task), ("test_task", test_task), ("protocol", protocol)):
    takes = f"an instance: did you forget () after {getattr(value, '__name__', '')}?"
    require(not isinstance(value, type), name, value, takes)
  for name, value in (("task", task), ("test_task", test_task)):
    takes = "a task: a dataclass with a length, such as sepfx.tasks.QSTR()"
    is_task = dataclasses.is_dataclass(value) and hasattr(value, "length")
    require(is_task, name, value, takes)
  takes = "a protocol, such as sepfx.Online() or sepfx.ERM()"
  require(hasattr(protocol, "trial"), "protocol", protocol, takes)
  seed = _whole("seed", seed)
  num_trials = _whole("num_trials", num_trials, least=1)
  lanes = kinds.taken(lanes, int, "lanes")
  check_lanes(lanes)
  keep_weights = kinds.taken(keep_weights, bool, "keep_weights")
  progress = kinds.taken(progress, bool, "progress")
  takes = "the path of a directory, or None"
  is_path = directory is None or isinstance(directory, str | os.PathLike)
  require(is_path, "directory", directory, takes)
  for name, several in (("devices", devices), ("watchers", watchers)):
    is_several = several is None or isinstance(several, Iterable)
    require(is_several, name, several, "several, such as a list, or None")
  console = rich.console.Console(stderr=True, highlight=False, quiet=not progress)
  if not console.is_terminal:
    console.width = _FILE_COLUMNS
  if devices is None:
    _use_all_cores(console)
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
        module = _made(given, task, label)
      else:
        _check_model(given)
        module = nnx_modules.hashable(given)
      label = label or models_lib.record_name(module)
      if not names[model]:
        _check_name(label, module)
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
  others = {name: _listed(name, values, "value") for name, values in (axes or {}).items()}
  for name in ("length", "model"):
    takes = f"another name: {name}s are an argument of their own"
    require(name not in others, "axes", name, takes)
  called = [
    name or getattr(model, "__name__", type(model).__name__)
    for name, model in zip(names, models, strict=True)
  ]
  console.print(f"checking {', '.join(called)} at N = {', '.join(map(str, order))}")
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
  told = () if watchers is None else watchers
  plan = _Plan(cells, settings, probe, keep_weights, lanes, devices, told, console)
  return _in_memory(plan) if directory is None else _recorded(plan, directory)


def _listed(name: str, values: Any, what: str) -> list:
  """One value, or several, as a list of Python's own numbers."""
  if isinstance(values, np.ndarray | np.generic):
    values = values.tolist()
  single = isinstance(values, str | nn.Module) or not isinstance(values, Iterable)
  own = [values] if single or isinstance(values, type) else list(values)
  require(bool(own), name, own, f"at least one {what}")
  return [value.item() if isinstance(value, np.generic) else value for value in own]


def _whole(name: str, value: Any, least: int = 0) -> int:
  """A number that has to be whole: 4.0 and "4" are."""
  takes = f"an integer from {least} to 2^32 - 1"
  try:
    whole = kinds.taken(value, int, name)
  except InvalidSetting as error:
    raise InvalidSetting(name, value, takes) from error
  require(isinstance(whole, int) and least <= whole < 2**32, name, value, takes)
  return int(whole)


def _made(factory: Any, task: Any, name: str) -> nn.Module:
  """The module of a factory, with errors that say `models`."""
  try:
    return models_lib.made(factory, task, name)
  except InvalidSetting as error:
    raise InvalidSetting("models", error.got, error.takes) from error


def _check_model(module: Any) -> None:
  """Raises `InvalidSetting`, in words for a Python call, unless it is a linen module."""
  is_factory = callable(module) and not isinstance(module, type | nn.Module)
  own = getattr(module, "__name__", "")
  takes = f"a module, not what makes one: did you forget () after {own}? "
  takes += "(One module per cell is made by a function of `task` or `length`.)"
  require(not (is_factory and bool(own)), "models", module, takes)
  try:
    models_lib.check_module(module, module)
  except InvalidSetting as error:
    raise InvalidSetting("models", error.got, error.takes) from error


def _check_name(name: str, module: nn.Module) -> None:
  """Raises `InvalidSetting` for a user's module that is named as one of the library."""
  is_own = not type(module).__module__.startswith("sepfx.models")
  known = {each for names in models_lib.NAMES.values() for each in names}
  takes = "a module of another name: this one is a model's of the library"
  require(not (is_own and specifications.base(name) in known), "models", name, takes)


class _Plan(NamedTuple):
  """What is to be run, and who follows it."""

  cells: Sequence[Cell]
  settings: dict[str, Any]
  probe: Probe | None
  keep_weights: bool
  lanes: int
  devices: Sequence[jax.Device] | None
  watchers: Sequence[Watcher]
  console: rich.console.Console

  @property
  def trials(self) -> list[str]:
    """Names of all of them."""
    count = self.settings["num_trials"]
    return [trial_name(cell, k) for cell in self.cells for k in range(count)]

  def run(self, watchers: Sequence[Watcher], **options: Any) -> Iterator[Result]:
    """Runs those that are not `finished`, all models at one length before the next."""
    return run(
      sorted(self.cells, key=lambda cell: cell.coordinates["length"]),
      seed=self.settings["seed"],
      num_trials=self.settings["num_trials"],
      lanes=self.lanes,
      devices=self.devices,
      watchers=[*watchers, *self.watchers],
      probe=self.probe,
      keep_weights=self.keep_weights,
      **options,
    )


def _in_memory(plan: _Plan) -> Records:
  """Runs all trials."""
  trials = plan.trials
  with Progress(len(trials), plan.cells, plan.console) as shown:
    shown.awaits(trials)
    by_name = {result.name: result for result in plan.run([shown])}
  ended = [by_name[name] for name in trials]
  types = columns(plan.cells)
  return Records(
    table((row for result in ended for row in result.rows), types),
    tuple(plan.cells[0].coordinates),
    {result.name: result.curve for result in ended},
    probe_table([(result.head, result.probes) for result in ended], types),
    plan.settings,
    {
      result.name: trained(result.cell.trial.model, result.params)
      for result in ended
      if result.params is not None
    },
    plotting.notes_of(plan.cells),
  )


def _recorded(plan: _Plan, directory: str | os.PathLike) -> Records:
  """Runs the trials that are not recorded yet, and returns all that are."""
  settings, count = plan.settings, plan.settings["num_trials"]
  for cell in plan.cells:  # before the directory says that it is of this call
    cell.trial.task.check_draw(cell.seeds(settings["seed"], count).task)
  probed = {c.name: probes_lib.value_names(plan.probe, c.trial) for c in plan.cells}
  identity = growth.identity(settings)
  with _opened(directory) as there, Interrupts(plan.console) as interrupts:
    if there.stored is not None:
      settings = growth.grown(there.stored["settings"], settings, there.path)
      growth.check_budget(there.stored["settings"], plan.cells, settings)
      plan = plan._replace(settings=settings)
    files = begun(
      there,
      settings,
      plan.cells,
      probed=probed,
      keep_weights=plan.keep_weights,
      probe=plan.probe,
      notes=plotting.notes_of(plan.cells),
      devices=plan.devices,
      asked={cell.name: settings["num_trials"] for cell in plan.cells},
    )
    trials, rows = plan.trials, files.rows
    missing = [name for name in trials if name not in rows]
    if missing:
      there.discard("summary.json")  # which says that a run is complete
    checkpoints = Checkpoints(
      there.path / "checkpoints", _CHECKPOINT_SECONDS, run=identity, directory=there
    )

    def draw(records: Records) -> None:
      with looks.look():
        figure = plotting.plot(records)
        so_far = len(records.all_curves)
        plotting.write_unfinished(there, figure, so_far, len(trials))

    with Progress(len(trials), plan.cells, plan.console) as shown:
      shown.recorded(len(trials) - len(missing))
      shown.awaits(missing)
      try:
        for _ in plan.run(
          [files, shown, LiveFigure(files, draw)],
          widths=files.widths(plan.devices),
          finished=set(trials) - set(missing),
          keeper=checkpoints,
          stopping=lambda: interrupts.requested,
        ):
          pass
      except Interrupted:
        raise KeyboardInterrupt("stopped; the same call goes on from here") from None
    records = files.complete()
    plotting.write(there, records)
    digests.seal(there)
    if (
      interrupts.requested
    ):  # too late for what was to be stopped, not for a loop of calls
      raise KeyboardInterrupt("stopped when all trials were recorded")
  return records


@contextlib.contextmanager
def _opened(path: str | os.PathLike) -> Iterator[RunDirectory]:
  """A run directory, with errors that say `directory` for `--output_dir`."""
  try:
    with RunDirectory(path) as there:
      yield there
  except InvalidSetting as error:
    name = "directory" if error.setting == "output_dir" else error.setting
    raise InvalidSetting(name, error.got, error.takes) from error


def _use_all_cores(console: rich.console.Console) -> None:
  """Makes each CPU core a device; where that is too late, says how it would be done."""
  number = cores.available()
  chosen = jax.config.jax_num_cpu_devices > 0  # type: ignore[attr-defined]
  if chosen or "JAX_NUM_CPU_DEVICES" in os.environ:
    return
  try:
    jax.config.update("jax_num_cpu_devices", number)
  except RuntimeError:  # JAX has been used
    if jax.default_backend() == "cpu" and jax.device_count() < number:
      console.print(
        f"runs on {jax.device_count()} of {number} cores: for all of them, set "
        f"JAX_NUM_CPU_DEVICES={number} before Python starts"
      )
