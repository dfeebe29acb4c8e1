"""A share of a run, and what shares come to together."""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from sepfx.ensembles import Records
from sepfx.errors import InvalidSetting, require
from sepfx.records import adoption, digests, own_code, shares
from sepfx.records.config import CONFIG
from sepfx.records.run_directory import (
  TRIALS,
  ReadDirectory,
  RunDirectory,
  config_of,
)
from sepfx.records.shares import Share
from sepfx.records.trial_files import TrialFiles
from sepfx.studies import sharing
from sepfx.studies.missing import Missing, Options, begun_in, check_draws
from sepfx.studies.requests import (
  Asked,
  Request,
  Rows,
  Search,
  planned,
  request_of,
)


class Part(NamedTuple):
  """What a share has come to, or what was taken up from shares that still run.

  Attributes:
    words: of it, in one line.
    records: of the trials that have ended: the share's own, or all.
  """

  words: str
  records: Records


def run_share(asked: Asked, path: pathlib.Path, share: Share, options: Options) -> Part:
  """Runs what is missing of a share, in a directory of its own.

  Args:
    asked: what is asked for of all shares.
    path: of the run's directory.
    share: which.
    options: how trials run.

  Raises:
    InvalidSetting: as `running.run`; if the share or another number of shares is being
      run.
    Interrupted: if the run was asked to stop.
    OSError: if something could not be recorded.
  """
  config_of(path)  # before anything is written into a directory of something else
  with contextlib.ExitStack() as held:
    with shares.starting(path):
      root = held.enter_context(RunDirectory(path, shared=True))
      whole = request_of(asked, root.stored, path)
      search = asked.search(whole)
      check_draws(whole)
      _check_others(path, share)
      if _grows(whole, root):
        _check_alone(path, root)
        adoption.take_up(root, alone=True)
        begun_in(root, whole, search, options)
      else:
        own_code.checked(root, whole.named or whole.settings, whole.cells, whole.probe)
      try:
        own = held.enter_context(RunDirectory(share.directory(path)))
      except InvalidSetting as error:
        takes = f"a share that no live process runs ({error.got})"
        raise InvalidSetting("share", f"{share.index}/{share.count}", takes) from error
      root.share()
    if adoption.has_records(own.path):
      adoption.check_alike(root, share, own.stored or {})
    else:
      own.discard(TRIALS)  # of columns that the run may have had before it grew
    at_root = _read(root, whole)
    request = sharing.request_of(share, whole, search.groups) if search else whole
    search = asked.search(request) if search else None
    files = begun_in(own, request._replace(added={}), search, options, is_share=True)
    plan = planned(whole, at_root.outgrown_trials, search)
    plan = sharing.plan_of(share, whole, plan)
    earlier = [p for s, p in shares.there(path).items() if s.count != share.count]
    known = _elsewhere(root, own, whole)
    missing = Missing(request, files, own, [path, *earlier], options, elsewhere=known)
    missing.widths = {**at_root.widths(options.devices), **missing.widths}
    if request.own or plan.again:
      missing.run(plan, search)
    everywhere = {**_elsewhere(root, own, whole), **files.rows}
    return Part(_words(asked, share, whole, at_root, everywhere), files.records)


def _check_others(path: pathlib.Path, share: Share) -> None:
  """Refuses another number of shares while some of them run."""
  others = [one for one in shares.living(path) if one.count != share.count]
  takes = f"as many shares as those that run: {shares.named(others)}"
  require(not others, "share", f"{share.index}/{share.count}", takes)


def _grows(request: Request, root: RunDirectory) -> bool:
  """Whether a directory is to say more than it does."""
  if root.stored is None:
    return True
  settings: dict[str, Any] = json.loads(json.dumps(request.settings))
  return settings != root.stored["settings"]


def _check_alone(path: pathlib.Path, root: RunDirectory) -> None:
  """Refuses a share that asks for more than the directory has, while others run."""
  takes = f"the settings of {shares.named(shares.living(path))}, which runs there"
  require(root.alone, "output_dir", str(path), takes)


def _read(directory: RunDirectory, request: Request) -> TrialFiles:
  """Records that are only read."""
  return TrialFiles(
    directory,
    request.cells,
    order=request.order,
    probed=request.probed,
    keep_weights=request.keep_weights,
    only_read=True,
  )


def _elsewhere(
  root: RunDirectory, own: RunDirectory, request: Request
) -> dict[str, Rows]:
  """Rows of all trials of which nothing is missing, in the run and its other shares."""
  found: dict[str, Rows] = dict(_read(root, request).rows)
  for share, path in shares.there(root.path).items():
    if path != own.path and adoption.has_records(path):
      other = ReadDirectory(path)
      adoption.check_alike(root, share, other.stored or {})
      found |= _read(other, request).rows
  return found


def _words(
  asked: Asked,
  share: Share,
  whole: Request,
  root: TrialFiles,
  recorded: Mapping[str, Rows],
) -> str:
  """What a share has come to, and what is missing elsewhere."""
  search = asked.search(whole)

  def left(one: Share) -> tuple[int, int]:
    """Trials of a share, and how many of them are missing; as far as is known."""
    if search is None:
      plan = planned(whole, root.outgrown_trials, None)
      own = sharing.plan_of(one, whole, plan)
      names = {*own.names, *own.again}
      return len(names), len(names - recorded.keys())
    part = sharing.request_of(one, whole, search.groups)
    return _searched(asked.search(part), recorded) if part.own else (0, 0)

  number, own = left(share)
  text = f"{share}: {number - own:,} of {number:,} trials are recorded"
  lacking = {one: left(one)[1] for one in share.others()}
  lacking = {one: missing for one, missing in lacking.items() if missing}
  if not lacking:
    return f"{text}; none is missing elsewhere: the same command without --share is next"
  least = "at least " if search else ""
  return (
    f"{text}; elsewhere {least}{sum(lacking.values()):,} are missing, of "
    f"{shares.named(list(lacking))}"
  )


def _searched(search: Search | None, recorded: Mapping[str, Rows]) -> tuple[int, int]:
  """Trials that a search has chosen by now, and how many of them are missing."""
  assert search is not None
  ended: dict[str, Rows] = {}
  while chosen := search(ended):
    missing = [name for name in chosen if name not in recorded]
    if missing:
      return len(ended) + len(chosen), len(missing)
    ended.update({name: recorded[name] for name in chosen})
  return len(ended), 0


def merge(asked: Asked, path: pathlib.Path) -> Any:
  """Takes up what shares have, and runs nothing; they may be running.

  Args:
    asked: what is asked for.
    path: of the run's directory.

  Returns:
    What `asked.leave` does where nothing is missing; else a `Part`.

  Raises:
    InvalidSetting: as `running.run`; for a directory that has no run, or another.
    OSError: if something could not be recorded.
  """
  takes = "the directory of a run: there is none yet"
  require((path / CONFIG).exists(), "output_dir", str(path), takes)
  with shares.starting(path), RunDirectory(path, shared=True) as root:
    request = request_of(asked, root.stored, path)
    takes = "the settings of the run that stands there: --merge runs nothing"
    require(not _grows(request, root), "output_dir", str(path), takes)
    running = shares.living(path)
    adoption.take_up(root, alone=root.alone)
    files = TrialFiles(
      root,
      request.cells,
      order=request.order,
      probed=request.probed,
      keep_weights=request.keep_weights,
    )
    search = asked.search(request)
    plan = planned(request, files.outgrown_trials, search)
    names = {*plan.names, *plan.again}
    of, missing = len(names), len(names - files.rows.keys())
    if search is not None:
      of, missing = _searched(search, files.rows)
    if missing:
      records = files.records
      asked.write_unfinished(root, request, records, None if search else of)
      still = f"; {shares.named(running)} runs" if running else ""
      least = "at least " if search else ""
      text = f"{of - missing:,} of {least}{of:,} trials are recorded{still}"
      return Part(text, records)
    left = asked.leave(root, request, files.complete())
    if root.alone:
      adoption.discard(root)
    digests.seal(root)
    return left
