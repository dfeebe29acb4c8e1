"""What `--dry_run` prints: the programs of a run, and what they would take."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import rich.console
import rich.table

from sepfx.commands import options
from sepfx.commands.rehearsing import Progress, stoppable
from sepfx.ensembles import Cell, rehearse
from sepfx.ensembles.rehearsal import Rehearsed
from sepfx.records import own_code
from sepfx.records.config import CONFIG
from sepfx.records.run_directory import RunDirectory
from sepfx.studies import share_runs
from sepfx.studies.requests import Asked, Request, Search, planned, request_of
from sepfx.watching.progress import time_words

FLAGS = options.FLAGS


def shown(asked: Asked, path: str, stop: options.Stop) -> Iterator[Any]:
  """Compiles the programs of a run, times the first steps of each, and records nothing.

  Args:
    asked: what is asked for.
    path: of the directory, where some of it may be recorded.
    stop: from `options.start`. Where it asks to, the process ends with the exit code of
      a run that was stopped, whatever is being compiled.

  Yields:
    What is to be printed.

  Raises:
    InvalidSetting: if a task cannot be drawn, or a file of the directory is damaged.
    OutOfMemory: if a program does not fit.
  """
  with contextlib.ExitStack() as opened:
    directory = None
    if (pathlib.Path(path) / CONFIG).exists():
      directory = opened.enter_context(RunDirectory(path))
    request = request_of(asked, directory.stored if directory else None, path)
    yield from _of_request(request, asked.search(request), directory, stop)


def _of_request(
  request: Request,
  search: Search | None,
  directory: RunDirectory | None,
  stop: options.Stop,
) -> Iterator[Any]:
  recorded: set[str] = set()
  outgrown: list[tuple[str, int]] = []
  widths: dict[str, int] = {}
  if directory is not None and directory.stored is not None:
    own_code.checked(
      directory, request.named or request.settings, request.cells, request.probe
    )
    files = share_runs.read(directory, request)
    recorded = set(files.rows) | set(share_runs.recorded_in(directory.path, request))
    outgrown = files.outgrown_trials
    widths = files.widths()
  plan = planned(request, outgrown, search)
  missing = {*plan.names, *plan.again} - recorded
  number = len({jax.tree.structure(cell.trial) for cell in request.cells})
  programs = rehearse(
    request.cells,
    seed=request.seed,
    num_trials=plan.num_trials,
    lanes=FLAGS.lanes,
    finished=plan.every - missing,
    watchers=[Progress(number)],
    widths=widths,
  )
  found = list(stoppable(programs, stop))
  there = len(recorded.intersection(plan.names))
  again = f", {len(plan.again)} that a larger budget brings back" if plan.again else ""
  cells = f"{len(request.own)} cell{'s' * (len(request.own) > 1)}"
  asked = f"{cells}, {len(plan.names)} trials, {there} recorded{again}"
  yield f"{asked}; nothing was run."
  if not found:
    return
  yield _table(found)
  to_end = all(c.trial.run_to_end for program in found for c in program.cells)
  ends = "" if to_end else ", which most do not"
  yield f"At most: if all trials spend their budgets{ends}; by the pace of a few steps."
  yield "The sum has the compilation too, of one program after another."
  if search is not None:
    share = min(1.0, search.num_trials / len(plan.names))
    seconds = sum(p.compile_seconds + share * p.most_seconds for p in found)
    most = "at most " if search.is_open else ""
    yield (
      f"A search chooses among the trials: it runs {most}{search.num_trials} of them, "
      f"which takes {time_words(seconds)} at most."
    )


def _table(found: Sequence[Rehearsed]) -> rich.table.Table:
  """One row per program, and one with their sums."""
  table = rich.table.Table()
  table.add_column("program", overflow="fold")
  for name in (
    "cells", "trials", "most steps", "at once", "compiled in", "MiB per lane",
    "ms per step", "at most",
  ):  # fmt: skip
    table.add_column(name, justify="right", min_width=max(map(len, name.split())))
  for program in found:
    table.add_row(
      _words(program.cells),
      str(len(program.cells)),
      str(program.trials),
      f"{program.steps:,}",
      str(program.lanes),
      f"{program.compile_seconds:.1f} s",
      _number(program.bytes_per_lane / 2**20),
      _number(1e3 * program.seconds_per_step),
      time_words(program.most_seconds),
    )
  seconds = [program.compile_seconds for program in found]
  table.add_section()
  table.add_row(
    "sum",
    str(sum(len(program.cells) for program in found)),
    str(sum(program.trials for program in found)),
    f"{sum(program.steps for program in found):,}",
    "",
    f"{sum(seconds):.1f} s",
    "",
    "",
    time_words(sum(seconds) + sum(program.most_seconds for program in found)),
  )
  return table


def _number(value: float) -> str:
  """With two digits, or all before the point."""
  return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _words(cells: Sequence[Cell]) -> str:
  """Tasks and models of a program's cells, and all else that they have in common."""
  coordinates = [cell.coordinates for cell in cells]
  first, *others = coordinates
  same = {k: v for k, v in first.items() if all(own[k] == v for own in others)}
  settings = (f"{k}={v}" for k, v in same.items() if k not in ("task", "model"))
  names = dict.fromkeys(f"{own['task']}: {own['model']}" for own in coordinates)
  return " ".join([", ".join(names), *settings])
