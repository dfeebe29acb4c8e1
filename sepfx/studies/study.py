"""The skeleton of every study: settings -> grid -> run -> summary, figure, table.

A study says what its settings are, which trial the settings of a cell make, and how
records are summarised, drawn and printed. All else is here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib.figure
import numpy as np
from absl import flags

from sepfx import probes as probes_lib
from sepfx.ensembles import Cell, Records, grid, numbers_of_parameters
from sepfx.ensembles.results import own_columns
from sepfx.errors import InvalidSetting, UnknownSetting, require
from sepfx.models import has_field
from sepfx.plotting import notes_of, write_figure, write_unfinished
from sepfx.records.run_directory import CONFIG, SUMMARY, RunDirectory
from sepfx.statistics.passages import Checks
from sepfx.statistics.probed import summarise_probes
from sepfx.studies import beside, classes, merging, settings
from sepfx.studies.beside import Part
from sepfx.studies.requests import Request, Search
from sepfx.studies.settings import Chosen
from sepfx.training import Probe, Trial, with_setting

# Trials of a cell: each has a row, and the names of all are held at once.
_MAX_TRIALS = 100_000


@dataclasses.dataclass(frozen=True)
class Run:
  """A complete run, with those beside it.

  Attributes:
    records: of all of them.
    cells: those of all runs, by the names that they have among all.
    chosen: the settings of the run at hand.
    against: the axis to draw along.
  """

  records: Records
  cells: Mapping[str, Cell]
  chosen: Chosen
  against: str

  def per_row(self, of: Callable[[Trial], Any]) -> np.ndarray:
    """Returns a number of each row's trial, [rows]; NaN where it is None."""
    values = {name: of(cell.trial) for name, cell in self.cells.items()}
    found = [values[self.records.cell_of(row)] for row in self.records.table]
    return np.array([np.nan if value is None else value for value in found], float)

  def checks(self) -> Checks:
    """How first passages were looked for on fresh samples, of each row."""
    step = self.per_row(lambda trial: trial.protocol.batch_size)
    every = self.per_row(lambda trial: trial.protocol.check_every)
    return Checks(step, step * every, self.per_row(lambda trial: trial.protocol.budget))

  def keys(self) -> np.ndarray:
    """Numbers what the keys of each row's trial come from, but for its index, [rows].

    Trials of one number and index share their keys: they differ in other settings.
    """
    table = self.records.table
    seeds = table["seed"] if "seed" in self.records.coordinates else np.zeros(len(table))
    numbers: dict[tuple, int] = {}
    found = []
    for row, seed in zip(table, seeds.tolist(), strict=True):
      cell = self.cells[self.records.cell_of(row)]
      own = (cell.trial.key_name, cell.task_draw, seed)
      found.append(numbers.setdefault(own, len(numbers)))
    return np.array(found, int)


@dataclasses.dataclass(frozen=True)
class Study:
  """One study.

  Attributes:
    settings: a dataclass whose fields are flags (`sepfx.studies.settings.setting`).
    build: settings of one cell -> its trial.
    summarise: the run -> JSON values by name.
    draw: the run and its summary -> the figure.
    table: the summary -> what is printed.
    output_dir: where results are kept by default.
    search: cells and settings -> a `requests.Search`, None for all trials.
    keep_weights: whether weights are kept without being asked for.
    probes: those that are measured without being asked for.
    along_any_axis: whether its figure can be drawn --against another axis.
    chosen_from: settings -> the axes of which its summary chooses values, if it does.
    axes: all that its summary tells apart; empty for any.
    check: raises `InvalidSetting` for settings that do not go together.
    recorded: names that --beside takes, each for a directory whose own directories are
      complete runs that come with the study, of one task each. Those of the tasks in a
      run's directory stand beside it.
  """

  settings: type
  build: Callable[[Any], Trial]
  summarise: Callable[[Run], dict[str, Any]]
  draw: Callable[[Run, Any], matplotlib.figure.Figure]
  table: Callable[[Any], Sequence[Any]]
  output_dir: str
  search: Callable[[Sequence[Cell], Chosen], Search | None] = lambda *_: None
  keep_weights: bool = False
  probes: Sequence[str] = ()
  along_any_axis: bool = False
  chosen_from: Callable[[Chosen], Sequence[str]] = lambda _: ()
  axes: Sequence[str] = ()
  check: Callable[[Chosen], Any] = lambda _: None
  recorded: Mapping[str, pathlib.Path] = dataclasses.field(default_factory=dict)

  def chosen(self, arguments: Sequence[str] = ()) -> Chosen:
    """Reads a command line: for tests and for notebooks.

    Flags that say how trials run are passed over where they are defined.

    Raises:
      InvalidSetting: for a setting that cannot be used.
    """
    values = flags.FlagValues()
    settings.define(self.settings, values)
    flags.DEFINE_string("flagfile", "", "Ignored here.", flag_values=values)
    expanded = values.read_flags_from_files(["study", *arguments], force_gnu=False)
    _, *unknown = values(expanded, known_only=True)
    unknown = settings.overriding(unknown, arguments)
    running_flags = {f"--{name}" for name in flags.FLAGS}
    unknown = [a for a in unknown if a.partition("=")[0] not in running_flags]
    return settings.from_flags(self.settings, values, unknown)

  def cells(
    self, chosen: Chosen, whole: Chosen | None = None, *, shipped: bool = False
  ) -> list[Cell]:
    """Returns the grid of some settings.

    Args:
      chosen: the settings.
      whole: all that stands in the same directory: what tells its cells apart names
        these, too.
      shipped: whether it is of a run that comes with the study. Its trials ran, so
        tasks and models are not traced to be checked once more.

    Raises:
      InvalidSetting: for settings that cannot be used; it names the flag.
    """
    whole = whole or chosen
    values = {**chosen.values, **chosen.further}
    axes = {name: values[name] for name in whole.axes}

    def build(**point: Any) -> Trial:
      own, further = chosen.at(point)
      trial = self.build(own)
      for name, value in further.items():
        trial = with_setting(trial, name, value)
      return trial

    try:
      for name in chosen.axes if self.axes else ():
        takes = f"one value: this study tells {', '.join(self.axes)} apart, nothing else"
        require(name in self.axes, name, list(values[name]), takes)
      if not shipped:
        self.check(chosen)
      draw = chosen.values.get("task_draw", ("per_trial",))[0]
      return grid(build, axes, task_draw=draw, check=not shipped)
    except InvalidSetting as error:
      flag = chosen.flag_of(error.setting)
      takes = error.takes
      if isinstance(error, UnknownSetting) and (others := self._with_field(flag, chosen)):
        takes += f"; {others[0]} has it, as in {others[0]}:{flag}={error.got}"
      raise type(error)(flag, error.got, takes) from error

  def runs_at(self, path: str) -> list[str]:
    """The directories that --beside means by a path, or by a name in `recorded`.

    Raises:
      InvalidSetting: for the name of runs that are not there.
    """
    if path not in self.recorded:
      own = ", ".join(self.recorded) or "none"
      takes = f"a directory, or runs of the study's own: {own}"
      require(not path.startswith("published:"), "beside", path, takes)
      return [path]
    found = sorted(str(own.parent) for own in self.recorded[path].glob(f"*/{CONFIG}"))
    takes = f"runs that come with the package, which should be in {self.recorded[path]}"
    require(len(found) > 0, "beside", path, takes)
    return found

  def _with_field(self, name: str, chosen: Chosen) -> list[str]:
    """The models that have a field of this name."""
    return [
      model
      for model in chosen.values.get("model", ())
      if has_field(self.build(chosen.at({"model": model})[0]).model, name)
    ]


class Finished(NamedTuple):
  """What a study came to.

  Attributes:
    records: of all that stands in the directory, and of the runs beside it.
    summary: JSON values, as summary.json has them.
    cells: by the names that they have in the records.
    probes: means of what was measured of trials, by cell; None if nothing was asked for.
  """

  records: Records
  summary: dict[str, Any]
  cells: Mapping[str, Cell]
  probes: list[dict[str, Any]] | None


class StudyCall:
  """What a call asks for of a study; a `sepfx.studies.requests.Asked`."""

  def __init__(
    self,
    study: Study,
    chosen: Chosen,
    *,
    probes: Sequence[str | Probe] = (),
    keep_weights: bool = False,
    paths: Sequence[str] = (),
    against: str = "length",
    trusted: Sequence[str] = (),
    look: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext,
  ):
    """Checks all that can be told before a directory is opened.

    Args:
      study: which.
      chosen: its settings.
      probes: measured of each trial when it has ended, beside the study's own.
      keep_weights: whether weights are kept.
      paths: directories of complete runs to summarise and draw together with this one,
        or what stands for those that come with the study.
      against: the axis to draw along.
      trusted: what of a user's own directories may name, see `classes.cells_of`.
      look: the look of figures.

    Raises:
      InvalidSetting: for what cannot be asked for.
    """
    seed, count = chosen.one("seed"), chosen.one("num_trials")
    require(0 <= seed < 2**32, "seed", seed, "an integer from 0 to 2^32 - 1")
    takes = f"an integer >= 1, at most {_MAX_TRIALS}"
    require(1 <= count <= _MAX_TRIALS, "num_trials", count, takes)
    takes = (
      "length, which is the default: this study says itself what its figure is along"
    )
    require(study.along_any_axis or against == "length", "against", against, takes)
    takes = "another axis: the study chooses a value of this one"
    require(against not in study.chosen_from(chosen), "against", against, takes)
    self._study, self._chosen = study, chosen
    self._keep_weights = study.keep_weights or keep_weights
    self._against, self._look = against, look
    self._trusted, self._is_probed = trusted, len(probes) > 0
    self._own = study.cells(chosen)
    every = [*study.probes, *(each for each in probes if each not in study.probes)]
    trials = [cell.trial for cell in self._own]
    self._probe = probes_lib.combined(every, trials, own_columns(self._own))
    self._beside: list[tuple[str, dict[str, Part]]] = []
    for name in paths:
      cells = functools.partial(study.cells, shipped=name in study.recorded)
      parts = {
        path: beside.read(path, study.settings, cells, trusted, chosen)
        for path in study.runs_at(name)
      }
      self._beside.append((name, parts))

  def request(self, stored: Mapping[str, Any] | None) -> Request:
    """Returns what is asked of a directory: see `requests.Asked`."""
    study, chosen = self._study, self._chosen
    whole, cells, own = chosen, self._own, self._own
    added: dict[str, Any] = {}
    if stored is not None:
      there = settings.from_stored(study.settings, stored["settings"])
      whole, added = merging.merged(there, chosen)
      cells = classes.cells_of(whole, study.cells, self._trusted, chosen)
      own = study.cells(chosen, whole)
      _check_budget(stored["settings"], whole, cells)
    paths, self._others = self._shown(cells)
    nothing = Records(np.empty(0), (), {})
    parts = [Part(nothing, cells, whole), *self._others]
    chosen_from = study.chosen_from(whole)
    beside.check(parts, paths, self._against, chosen_from, study.axes)
    self._whole = whole
    return Request(
      own=own,
      cells=cells,
      settings=whole.stored(),
      identity=merging.identity(whole),
      seed=chosen.one("seed"),
      num_trials=chosen.one("num_trials"),
      added=added,
      probe=self._probe,
      keep_weights=self._keep_weights,
      notes=notes_of(cells),
    )

  def _shown(self, cells: Sequence[Cell]) -> tuple[list[str], list[Part]]:
    """Paths and runs that stand beside a grid.

    Of the runs that come with the study, those that have one of the grid's tasks.
    """
    tasks, shown = beside.tasks_of(cells), []
    for name, parts in self._beside:
      found = list(parts.items())
      if name in self._study.recorded:
        known = [own for _, part in found for own in beside.tasks_of(part.cells)]
        takes = f"tasks of which it has trials: {', '.join(known)}"
        found = [own for own in found if {*tasks} & {*beside.tasks_of(own[1].cells)}]
        require(len(found) > 0, "beside", f"{name} of {', '.join(tasks)}", takes)
      shown += found
    return [path for path, _ in shown], [part for _, part in shown]

  def search(self, request: Request) -> Search | None:
    """What chooses among the trials: see `requests.Asked`."""
    return self._study.search(request.own, self._chosen)

  def write_unfinished(
    self, directory: RunDirectory, request: Request, records: Records, of: int | None
  ) -> None:
    """Leaves a figure of what has been recorded so far: see `requests.Asked`."""
    so_far = self._run_of(request, records)
    with self._look():
      figure = self._study.draw(so_far, self._study.summarise(so_far))
      write_unfinished(directory, figure, len(records.all_curves), of)

  def leave(
    self, directory: RunDirectory, request: Request, records: Records
  ) -> Finished:
    """Leaves figure, means of probes and summary of a complete run."""
    complete = self._run_of(request, records)
    summary = self._study.summarise(complete)
    with self._look():
      write_figure(directory, self._study.draw(complete, summary))
    means = summarise_probes(complete.records) if self._is_probed else None
    if means is not None:
      directory.write("probes.json", json.dumps(means, indent=2) + "\n")
    summary = {**summary, "parameters": numbers_of_parameters(complete.cells)}
    directory.write(SUMMARY, json.dumps(summary, indent=2) + "\n")
    return Finished(complete.records, summary, complete.cells, means)

  def _run_of(self, request: Request, records: Records) -> Run:
    parts = [Part(records, request.cells, self._whole), *self._others]
    return Run(*beside.together(parts), self._whole, self._against)


def _check_budget(stored: Mapping, whole: Chosen, cells: Sequence[Cell]) -> None:
  """Refuses a larger budget where trials use all of it."""
  for flag, field in settings.fields(whole.cls).items():
    grown = field.metadata["kind"] == "budget" and (
      stored.get(flag, field.default) != whole.one(field.name)
    )
    if grown and any(cell.trial.run_to_end for cell in cells):
      takes = f"{stored[flag]}, as there: these trials run to the end of it"
      raise InvalidSetting(flag, whole.one(field.name), takes)
