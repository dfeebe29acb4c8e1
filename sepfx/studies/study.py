"""The skeleton of every study: settings -> grid -> run -> summary, figure, table.

A study says what its settings are, which trial the settings of a cell make, and how
records are summarised, drawn and printed. All else is here.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.figure
import numpy as np
from absl import flags

from sepfx import probes as probes_lib
from sepfx.commands import card, command_line, dry_run
from sepfx.ensembles import Cell, Records, grid, numbers_of_parameters
from sepfx.ensembles.results import own_columns
from sepfx.errors import InvalidSetting, UnknownSetting, require
from sepfx.models import has_field
from sepfx.plotting import notes_of, write_figure, write_unfinished
from sepfx.records import digests
from sepfx.records.run_directory import RunDirectory
from sepfx.statistics.passages import Checks
from sepfx.statistics.probed import summarise_probes
from sepfx.studies import beside, classes, merging, running, settings, tables
from sepfx.studies.beside import Part
from sepfx.studies.requests import Request, Search
from sepfx.studies.settings import Chosen
from sepfx.training import Trial, with_setting

flags.disclaim_key_flags()
FLAGS = flags.FLAGS

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
    settings: a dataclass whose fields are flags (`experiments.settings.setting`).
    build: settings of one cell -> its trial.
    summarise: the run -> JSON values by name.
    draw: the run and its summary -> the figure.
    table: the summary -> what is printed.
    output_dir: where results are kept by default.
    search: cells and settings -> a `requests.Search`, None for all trials.
    keep_weights: whether weights are kept without being asked for.
    probes: those that are measured without being asked for.
    along_any_axis: whether its figure can be drawn --against another axis.
    chosen_from: the axis of which its summary chooses a value, if it does.
    axes: all that its summary tells apart; empty for any.
    check: raises `InvalidSetting` for settings that do not go together.
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
  chosen_from: str = ""
  axes: Sequence[str] = ()
  check: Callable[[Chosen], Any] = lambda _: None

  def chosen(self, arguments: Sequence[str] = ()) -> Chosen:
    """Reads a command line, with flags of its own: for tests and for notebooks.

    Raises:
      InvalidSetting: for a setting that cannot be used.
    """
    values = flags.FlagValues()
    settings.define(self.settings, values)
    flags.DEFINE_string("flagfile", "", "Ignored here.", flag_values=values)
    expanded = values.read_flags_from_files(["study", *arguments], force_gnu=False)
    _, *unknown = values(expanded, known_only=True)
    running_flags = {f"--{name}" for name in FLAGS}
    unknown = [a for a in unknown if a.partition("=")[0] not in running_flags]
    return settings.from_flags(self.settings, values, unknown)

  def cells(self, chosen: Chosen, whole: Chosen | None = None) -> list[Cell]:
    """Returns the grid of some settings.

    Args:
      chosen: the settings.
      whole: all that stands in the same directory: what tells its cells apart names
        these, too.

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
      self.check(chosen)
      draw = chosen.values.get("task_draw", ("per_trial",))[0]
      return grid(build, axes, task_draw=draw)
    except InvalidSetting as error:
      flag = chosen.flag_of(error.setting)
      takes = error.takes
      if isinstance(error, UnknownSetting) and (others := self._with_field(flag, chosen)):
        takes += f"; {others[0]} has it, as in {others[0]}:{flag}={error.got}"
      raise type(error)(flag, error.got, takes) from error

  def _with_field(self, name: str, chosen: Chosen) -> list[str]:
    """The models that have a field of this name."""
    return [
      model
      for model in chosen.values.get("model", ())
      if has_field(self.build(chosen.at({"model": model})[0]).model, name)
    ]


def main(study: Study) -> None:
  """Runs a study as a program."""
  settings.define(study.settings, FLAGS)
  FLAGS.set_default("output_dir", study.output_dir)
  command_line.main(
    lambda unknown: run(study, settings.from_flags(study.settings, FLAGS, unknown))
  )


def run(study: Study, chosen: Chosen) -> None:
  """Runs what is asked for, in --output_dir, and leaves summary and figure there.

  Under --dry_run it says what it would take, and leaves nothing.
  """
  seed, count = chosen.one("seed"), chosen.one("num_trials")
  require(0 <= seed < 2**32, "seed", seed, "an integer from 0 to 2^32 - 1")
  takes = f"an integer >= 1, at most {_MAX_TRIALS}"
  require(1 <= count <= _MAX_TRIALS, "num_trials", count, takes)
  against = study.along_any_axis or FLAGS.against == "length"
  require(against, "against", FLAGS.against, "length: this figure is along that alone")
  takes = "another axis: the study chooses a value of this one"
  require(FLAGS.against != study.chosen_from, "against", FLAGS.against, takes)
  stop = running.start(card.made(study.output_dir, chosen))
  console = running.console()
  own = study.cells(chosen)
  asked = [*study.probes, *(name for name in FLAGS.probes if name not in study.probes)]
  probe = probes_lib.combined(asked, [cell.trial for cell in own], own_columns(own))
  others = [
    beside.read(path, study.settings, study.cells, chosen) for path in FLAGS.beside
  ]
  with running.opened() as directory:
    whole, cells = chosen, own
    added: dict[str, Any] = {}
    stored = json.loads(running.stored_settings(directory))
    if stored is not None:
      whole, added = _taken_up(settings.from_stored(study.settings, stored), chosen)
      cells = classes.cells_of(whole, study.cells, chosen)
      own = study.cells(chosen, whole)
      _check_budget(stored, whole, cells)
    nothing = Records(np.empty(0), (), {})
    parts = [Part(nothing, cells, whole), *others]
    beside.check(parts, FLAGS.beside, FLAGS.against, study.chosen_from, study.axes)
    request = Request(
      own=own,
      cells=cells,
      settings=whole.stored(),
      identity=merging.identity(whole),
      seed=seed,
      num_trials=count,
      added=added,
      probe=probe,
      keep_weights=study.keep_weights or FLAGS.keep_weights,
      notes=notes_of(cells),
    )
    search = study.search(own, chosen)
    if FLAGS.dry_run:
      for part in dry_run.shown(request, directory, search, stop):
        console.print(part)
      return

    def run_of(records: Records) -> Run:
      everything = beside.together([Part(records, cells, whole), *others])
      return Run(*everything, whole, FLAGS.against)

    def draw_unfinished(records: Records, of: int | None) -> None:
      assert directory is not None
      so_far = run_of(records)
      figure = study.draw(so_far, study.summarise(so_far))
      write_unfinished(directory, figure, len(records.all_curves), of)

    records = running.recorded(request, directory, stop, draw_unfinished, search)
    if records is None or directory is None:
      return
    complete = run_of(records)
    summary = study.summarise(complete)
    write_figure(directory, study.draw(complete, summary))
    counts = numbers_of_parameters(complete.cells)
    shown = [*study.table(summary), tables.parameters(complete.cells, counts)]
    if FLAGS.probes:
      means = summarise_probes(complete.records)
      directory.write("probes.json", json.dumps(means, indent=2) + "\n")
      shown += tables.probes(means)
    summary = {**summary, "parameters": counts}
    directory.write("summary.json", json.dumps(summary, indent=2) + "\n")
    digests.seal(directory)
    for part in shown:
      console.print(part)
    console.print(f"figure: {directory.path / 'figure.png'}", soft_wrap=True)


def _taken_up(there: Chosen, here: Chosen) -> tuple[Chosen, dict[str, Any]]:
  """`merging.merged`, with the directory in its message."""
  try:
    return merging.merged(there, here)
  except InvalidSetting as error:
    raise InvalidSetting("output_dir", FLAGS.output_dir, error.takes) from error


def _check_budget(stored: Mapping, whole: Chosen, cells: Sequence[Cell]) -> None:
  """Refuses a larger budget where trials use all of it."""
  for flag, field in settings.fields(whole.cls).items():
    grown = field.metadata["kind"] == "budget" and (
      stored.get(flag, field.default) != whole.one(field.name)
    )
    if grown and any(cell.trial.run_to_end for cell in cells):
      takes = f"{stored[flag]}, as there: these trials run to the end of it"
      raise InvalidSetting(flag, whole.one(field.name), takes)


def write_csv(directory: RunDirectory, name: str, rows: Sequence[Mapping]) -> None:
  """Writes rows; what is None, or what a row does not have, is left empty."""
  text = io.StringIO(newline="")
  names = list(dict.fromkeys(name for row in rows for name in row))
  writer = csv.DictWriter(text, names, lineterminator="\n")
  writer.writeheader()
  writer.writerows(rows)
  directory.write(name, text.getvalue())
