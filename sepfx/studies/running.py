"""Runs what is missing of what is asked for, and leaves it in a directory.

The one way to trials that are recorded: of a study, from a command line or from Python,
and of `sepfx.measure`.
"""

from __future__ import annotations

import os
import pathlib
import warnings
from typing import Any

from sepfx.ensembles import Records
from sepfx.records import adoption, digests, shares
from sepfx.records.run_directory import RunDirectory
from sepfx.records.trial_files import TrialFiles
from sepfx.studies import share_runs
from sepfx.studies.missing import Missing, Options, begun_in, check_draws
from sepfx.studies.requests import Asked, Request, planned, request_of
from sepfx.watching.viewers import LiveFigure


def run(asked: Asked, path: str | os.PathLike, options: Options) -> Any:
  """Runs what is missing of what is asked for in a directory.

  Args:
    asked: what is.
    path: of the directory.
    options: how trials run.

  Returns:
    What `asked.leave` does. A `share_runs.Part` of a share, and where trials are still
    missing: after `options.merge`, or some that earlier calls asked for.

  Raises:
    InvalidSetting: if the directory cannot be used, or a task cannot be drawn.
    Interrupted: if the run was asked to stop.
    OSError: if something could not be recorded.
  """
  path = pathlib.Path(path)
  if options.share is not None:
    return share_runs.run_share(asked, path, options.share, options)
  if options.merge:
    return share_runs.merge(asked, path)
  with RunDirectory(path) as directory:
    request = request_of(asked, directory.stored, path)
    search = asked.search(request)
    check_draws(request)
    adoption.take_up(directory, alone=True)
    files = begun_in(directory, request, search, options)
    _warn_of_repeated(files, request, path)
    plan = planned(request, files.outgrown_trials, search)
    whole = None if search else len({*plan.names, *plan.again, *files.rows})

    def draw(records: Records) -> None:
      asked.write_unfinished(directory, request, records, whole)

    others = shares.there(path).values()
    live = LiveFigure(files, draw)
    run = Missing(request, plan, search, files, directory, others, options, [live])
    run.run()
    if lacking := {**run.left_out, **files.missing}:
      return share_runs.unfinished(asked, directory, request, files, lacking)
    left = asked.leave(directory, request, files.complete())
    adoption.discard(directory)
    digests.seal(directory)
    return left


def _warn_of_repeated(files: TrialFiles, request: Request, path: pathlib.Path) -> None:
  """Says how many recorded trials run again for the sake of probes or weights."""
  own = {cell.name for cell in request.own}
  number, incomplete = request.num_trials, files.incomplete_trials
  if again := sum(cell in own and k < number for cell, k in incomplete):
    warnings.warn(
      f"{path}: recorded trials without the probes or weights that are asked for now run "
      f"again, {again} at most. The directory's former command runs none",
      stacklevel=3,
    )
