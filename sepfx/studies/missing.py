"""Runs those trials of a request that are not recorded yet."""

from __future__ import annotations

import collections
import contextlib
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import jax
import rich.console

from sepfx.ensembles import Watcher, trial_name
from sepfx.ensembles import run as run_trials
from sepfx.ensembles.compiling import Programs
from sepfx.ensembles.watchers import TrialOf
from sepfx.records.beginning import begun
from sepfx.records.checkpoints import Checkpoints
from sepfx.records.run_directory import ENDED, SUMMARY, RunDirectory
from sepfx.records.shares import Share
from sepfx.records.trial_files import TrialFiles
from sepfx.studies.requests import Plan, Request, Rows, Search
from sepfx.watching.progress import Progress
from sepfx.watching.viewers import Profile, TensorBoard


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
    share: of the trials, that this process runs; None for all of them.
    merge: whether what shares have is taken up, and nothing run.
  """

  lanes: int = 0
  devices: Sequence[jax.Device] | None = None
  checkpoint_seconds: float = 300.0
  stopping: Callable[[], bool] = lambda: False
  console: rich.console.Console | None = None
  watchers: Sequence[Watcher] = ()
  tensorboard: bool = False
  profile: bool = False
  share: Share | None = None
  merge: bool = False


def check_draws(request: Request) -> None:
  """Raises `InvalidSetting` if a task cannot be drawn.

  Before a directory says that it is of this run.
  """
  for cell in request.own:
    cell.trial.task.check_draw(cell.seeds(request.seed, request.num_trials).task)


def begun_in(
  directory: RunDirectory,
  request: Request,
  search: Search | None,
  options: Options,
  *,
  is_share: bool = False,
) -> TrialFiles:
  """The records in a directory, which then says which run it is of.

  Args:
    directory: where; open.
    request: what is asked for.
    search: chooses among the trials; None to run all of them.
    options: how trials run.
    is_share: whether it has a part of the trials alone.

  Raises:
    InvalidSetting: as `beginning.begun`.
  """
  number = None if search else request.num_trials
  return begun(
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
    asked=None if is_share else {cell.name: number for cell in request.own},
  )


class Missing:
  """Runs trials that are missing, and tells those who follow."""

  def __init__(
    self,
    request: Request,
    plan: Plan,
    search: Search | None,
    files: TrialFiles,
    directory: RunDirectory,
    others: Iterable[pathlib.Path],
    options: Options,
    watchers: Sequence[Watcher] = (),
    elsewhere: Mapping[str, Rows] | None = None,
    wanted: Callable[[TrialOf], bool] = lambda _: True,
    widths: Mapping[str, int] | None = None,
  ):
    """Runs nothing yet.

    Args:
      request: what is asked for.
      plan: the trials that may run.
      search: chooses among them; None to run all.
      files: where trials are recorded.
      directory: that they are in.
      others: run directories in which trials may have been in progress.
      options: how trials run.
      watchers: told of everything that happens, when it has been recorded.
      elsewhere: rows of trials that are recorded in other directories.
      wanted: whether a trial may go on from a state in one of the others.
      widths: lanes per device that trials elsewhere ran with, by the cell's name.
    """
    self._request, self._plan, self._search = request, plan, search
    self._files, self._directory = files, directory
    self._options, self._watchers = options, watchers
    self._programs: Programs | None = {} if search else None
    self._elsewhere = elsewhere or {}
    self._keeper = Checkpoints(
      directory.path / ENDED,
      options.checkpoint_seconds,
      run=request.identity,
      directory=directory,
      others=[path / ENDED for path in others],
      wanted=wanted,
    )
    self._own = {cell.name for cell in request.own}
    self._names = {*plan.names, *plan.again, *self._elsewhere, *files.rows}
    self._widths = {**(widths or {}), **files.widths(options.devices)}

  def run(self) -> None:
    """Runs those of the plan, or those that the search chooses.

    Raises:
      Interrupted: if the run was asked to stop.
      OSError: if something could not be recorded.
    """
    files, options, path = self._files, self._options, self._directory.path
    plan, search = self._plan, self._search
    self._keeper.keep_apart(self._is_asked)
    with contextlib.ExitStack() as while_running:
      watchers: list[Watcher] = []
      if options.tensorboard:
        watchers.append(TensorBoard(path / "tensorboard", files))
      if options.profile:
        watchers.append(while_running.enter_context(Profile(path / "profile")))
      again = len(plan.again)
      number = again + (search.num_trials if search else len(plan.names))
      progress = Progress(number, self._request.cells, options.console)
      progress.expects(number, at_most=bool(search and search.is_open))
      while_running.enter_context(progress)
      watchers += [files, progress, *self._watchers, *options.watchers]
      if search is None:
        self._finish([*plan.names, *plan.again], progress, watchers)
        return
      if plan.again:
        self._finish(plan.again, progress, watchers)
      ended: dict[str, Rows] = {}
      while chosen := search(ended):
        progress.expects(again + search.num_trials, at_most=search.is_open)
        ended.update(self._finish(chosen, progress, watchers))
      progress.expects(again + search.num_trials)

  @property
  def left_out(self) -> dict[str, int]:
    """How many trials wait that another call began, by the cell's name.

    Of cells of which config.json says nothing: a search chooses trials as it goes.
    """
    known = (self._directory.stored or {}).get("trials", {})
    waiting = self._keeper.left_out()
    cells = [k[0] for k in waiting if not (self._is_asked(k) or known.get(k[0]))]
    return dict(collections.Counter(cells))

  def _is_asked(self, trial: TrialOf) -> bool:
    """Whether a trial is recorded, or this call runs it or gives it up."""
    is_own = trial[0] in self._own
    is_chosen = trial_name(*trial) in self._names or (is_own and self._search is not None)
    return is_chosen or (is_own and trial[1] >= self._plan.num_trials)

  def _finish(
    self, chosen: Sequence[str], progress: Progress, watchers: Sequence[Watcher]
  ) -> dict[str, Rows]:
    """Runs those that are not recorded; returns the rows of all."""
    request, options = self._request, self._options
    known = self._rows(chosen)
    missing = set(chosen) - set(known)
    progress.recorded(len(known))
    progress.awaits(missing)
    if missing:
      self._directory.discard(SUMMARY)  # which says that a run is complete
    for _ in run_trials(
      # All models at one length before the next: what is slow shows early.
      sorted(request.cells, key=lambda cell: cell.coordinates["length"]),
      seed=request.seed,
      num_trials=self._plan.num_trials,
      lanes=options.lanes,
      devices=options.devices,
      finished=self._plan.every - missing,
      watchers=watchers,
      keeper=self._keeper,
      stopping=options.stopping,
      programs=self._programs,
      probe=request.probe,
      keep_weights=request.keep_weights,
      widths=self._widths,
    ):
      pass
    ended = self._rows(chosen)
    if lost := sorted(missing - set(ended)):
      raise RuntimeError(f"these trials ran and left no record: {', '.join(lost)}")
    return ended

  def _rows(self, names: Sequence[str]) -> dict[str, Rows]:
    """The rows of those of these trials of which nothing is missing."""
    every = {**self._elsewhere, **self._files.rows}
    return {name: every[name] for name in names if name in every}
