"""Runs what is missing of what is asked for, and leaves it in a directory.

The one way to trials that are recorded: of a study, from a command line or from Python,
and of `sepfx.measure`.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import rich.console

from sepfx.coordinator import hosts
from sepfx.ensembles import Records, Watcher
from sepfx.ensembles import run as run_trials
from sepfx.ensembles.compiling import Programs
from sepfx.errors import InvalidSetting, require
from sepfx.records import digests
from sepfx.records.beginning import begun
from sepfx.records.checkpoints import Checkpoints
from sepfx.records.run_directory import SHARED, SUMMARY, RunDirectory
from sepfx.records.trial_files import TrialFiles
from sepfx.studies.requests import Request, Rows, Search, planned
from sepfx.watching.progress import Progress
from sepfx.watching.viewers import LiveFigure, Profile, TensorBoard

# A network's file system may show a new file to other hosts this much later.
_SEEN_SECONDS = 15.0


class Options(NamedTuple):
  """How trials run. What is computed does not depend on it.

  Attributes:
    lanes: lanes per device; 0 to choose.
    devices: where; None for all of the default platform.
    checkpoint_seconds: time between two checkpoints of the trials in progress.
    stopping: asked after every dispatch whether to keep what is in progress and stop.
    console: where progress is shown.
    watchers: told of everything that happens.
    tensorboard: whether curves are written for TensorBoard.
    profile: whether the first dispatches are traced.
  """

  lanes: int = 0
  devices: Sequence[jax.Device] | None = None
  checkpoint_seconds: float = 300.0
  stopping: Callable[[], bool] = lambda: False
  console: rich.console.Console | None = None
  watchers: Sequence[Watcher] = ()
  tensorboard: bool = False
  profile: bool = False


class Asked(Protocol):
  """What a call asks for."""

  def request(self, stored: Mapping[str, Any] | None) -> Request:
    """Returns what is asked of a directory, with all that stands there.

    Args:
      stored: its config.json; None where there is no run yet.

    Raises:
      InvalidSetting: for a directory of something else; `running.run` fills in which.
    """

  def search(self, request: Request) -> Search | None:
    """What chooses among the trials round by round; None to run all of them."""

  def write_unfinished(
    self, directory: RunDirectory, request: Request, records: Records, of: int | None
  ) -> None:
    """Leaves a figure of what has been recorded so far.

    Args:
      directory: where.
      request: what is asked for.
      records: the trials that have ended.
      of: how many there will be; None if that is not known yet.
    """

  def leave(self, directory: RunDirectory, request: Request, records: Records) -> Any:
    """Leaves figure and summary of a complete run; returns what its caller wants."""


def run(asked: Asked, path: str | os.PathLike, options: Options) -> Any:
  """Runs what is missing of what is asked for in a directory.

  Args:
    asked: what is.
    path: of the directory.
    options: how trials run.

  Returns:
    What `asked.leave` does; None in processes other than the primary.

  Raises:
    InvalidSetting: if the directory cannot be used, or a task cannot be drawn.
    Interrupted: if the run was asked to stop.
    OSError: if something could not be recorded.
  """
  with _opened(path) as directory:
    request = request_of(asked, _stored(directory), path)
    search = asked.search(request)
    records = _recorded(asked, request, search, directory, pathlib.Path(path), options)
    if records is None or directory is None:
      return None
    left = asked.leave(directory, request, records)
    digests.seal(directory)
    return left


def request_of(
  asked: Asked, stored: Mapping[str, Any] | None, path: str | os.PathLike
) -> Request:
  """Returns what is asked of a directory: the one place that says what a call may do.

  Args:
    asked: what is asked for.
    stored: the directory's config.json; None where there is no run yet.
    path: of the directory, for messages.

  Raises:
    InvalidSetting: for a directory of something else.
  """
  try:
    return asked.request(stored)
  except InvalidSetting as error:
    if error.setting == "output_dir" and not error.got:
      raise InvalidSetting("output_dir", str(path), error.takes) from error
    raise


@contextlib.contextmanager
def _opened(path: str | os.PathLike) -> Iterator[RunDirectory | None]:
  """Opens a directory; None in processes other than the primary.

  Raises:
    InvalidSetting: if the directory cannot be used.
  """
  if not hosts.is_primary():
    _check_shared(path)
    yield None
    return
  with RunDirectory(path) as directory:
    _check_shared(path)
    yield directory


def _check_shared(directory: str | os.PathLike) -> None:
  """Raises `InvalidSetting` unless every process sees the primary's directory.

  The primary leaves a hidden file there for the moment.
  """
  path = pathlib.Path(directory).absolute()
  name = hosts.text_from_primary(SHARED + uuid.uuid4().hex)
  try:
    if hosts.is_primary():
      (path / name).touch()
    hosts.wait_for_all()
    end = time.monotonic() + _SEEN_SECONDS
    while not (seen := (path / name).exists()) and time.monotonic() < end:
      time.sleep(0.5)
    blind = hosts.largest([0.0 if seen else 1.0 + jax.process_index()])[0]
  finally:
    if hosts.is_primary():
      (path / name).unlink(missing_ok=True)
  takes = "a directory that all processes share; process "
  takes += f"{blind - 1:.0f} does not see what the first one writes there"
  require(not blind, "output_dir", str(path), takes)


def _stored(directory: RunDirectory | None) -> dict[str, Any] | None:
  """The directory's config.json, to all processes; None for none."""
  stored = directory.stored if directory else None
  own: dict[str, Any] | None = json.loads(hosts.text_from_primary(json.dumps(stored)))
  return own


def _recorded(
  asked: Asked,
  request: Request,
  search: Search | None,
  directory: RunDirectory | None,
  path: pathlib.Path,
  options: Options,
) -> Records | None:
  """Runs what is missing; returns all that stands in the directory then."""
  for cell in request.own:  # before the directory says that it is of this run
    cell.trial.task.check_draw(cell.seeds(request.seed, request.num_trials).task)
  files = None
  if directory is not None:
    files = begun(
      directory,
      request.settings,
      request.cells,
      added=request.added,
      probed=request.probed,
      keep_weights=request.keep_weights,
      probe=request.probe,
      notes=request.notes,
      devices=options.devices,
      order=request.order,
      named=request.named,
      asked=None if search else {c.name: request.num_trials for c in request.own},
    )
  outgrown = files.outgrown_trials if files else []
  outgrown = json.loads(hosts.text_from_primary(json.dumps(outgrown)))
  names, again, count, every = planned(request, outgrown, search)
  programs: Programs | None = {} if search else None
  own_widths = files and files.widths(options.devices)
  widths = json.loads(hosts.text_from_primary(json.dumps(own_widths)))
  # All models at one length before the next: what is slow shows early.
  shortest_first = sorted(request.cells, key=lambda cell: cell.coordinates["length"])
  with contextlib.ExitStack() as while_running:
    watchers: list[Watcher] = []
    progress = None
    if files is not None:
      if options.tensorboard:
        watchers.append(TensorBoard(path / "tensorboard", files))
      if options.profile:
        watchers.append(while_running.enter_context(Profile(path / "profile")))
      number = len(again) + (search.num_trials if search else len(names))
      progress = Progress(number, request.cells, options.console)
      while_running.enter_context(progress)
      whole = None if search else len({*names, *again, *files.rows})

      def draw(records: Records) -> None:
        assert directory is not None
        asked.write_unfinished(directory, request, records, whole)

      watchers += [files, progress, LiveFigure(files, draw)]
    watchers += options.watchers

    def finish(chosen: Sequence[str]) -> dict[str, Rows]:
      """Runs those that are not recorded; returns the rows of all."""
      known = _rows_of(files, chosen)
      missing = set(chosen) - set(known)
      if progress is not None:
        progress.recorded(len(known))
        progress.awaits(missing)
      if missing and directory is not None:
        directory.discard(SUMMARY)  # which says that a run is complete
      for _ in run_trials(
        shortest_first,
        seed=request.seed,
        num_trials=count,
        lanes=options.lanes,
        devices=options.devices,
        finished=every - missing,
        watchers=watchers,
        keeper=Checkpoints(
          path / "checkpoints",
          options.checkpoint_seconds,
          run=request.identity,
          directory=directory,
        ),
        stopping=options.stopping,
        programs=programs,
        probe=request.probe,
        keep_weights=request.keep_weights,
        widths=widths,
      ):
        pass
      ended = _rows_of(files, chosen)
      if lost := sorted(missing - set(ended)):
        raise RuntimeError(f"these trials ran and left no record: {', '.join(lost)}")
      return ended

    if search is None:
      finish([*names, *again])
    else:
      if again:
        finish(again)
      ended: dict[str, Rows] = {}
      expected = search.num_trials
      while True:
        chosen = search(ended)
        if progress is not None:
          progress.leave_out(expected - search.num_trials)
          expected = search.num_trials
        if not chosen:
          break
        ended.update(finish(chosen))
  return files.complete() if files else None


def _rows_of(files: TrialFiles | None, names: Sequence[str]) -> dict[str, Rows]:
  """The rows of those of these trials of which nothing is missing, in all processes.

  Args:
    files: of the primary process; None in the others.
    names: of the trials.
  """
  rows = files.rows if files else {}
  text = json.dumps({name: rows[name] for name in names if name in rows})
  return json.loads(hosts.text_from_primary(text))
