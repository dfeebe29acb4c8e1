"""A share of a run, and what shares come to together."""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from sepfx.ensembles import Records
from sepfx.errors import InvalidSetting, require
from sepfx.records import adoption, digests, own_code, shares
from sepfx.records.config import CONFIG, read_config
from sepfx.records.loading import rows_so_far
from sepfx.records.run_directory import (
  TRIALS,
  ReadDirectory,
  RunDirectory,
  config_of,
)
from sepfx.records.shares import Share
from sepfx.records.stored_trials import outgrown
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
  # Before anything is written into a directory of something else; and what takes long
  # before others that start have to wait.
  whole = request_of(asked, config_of(path), path)
  check_draws(whole)
  with contextlib.ExitStack() as held:
    with shares.starting(path):
      root = held.enter_context(RunDirectory(path, shared=True))
      if root.stored is not None and _grows(whole, root):  # another share made it
        whole = request_of(asked, root.stored, path)
      search = asked.search(whole)
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
    every = planned(whole, at_root.outgrown_trials, search)
    order = sharing.in_order_of_shares(whole, every)
    part = set(share.cut(order))
    plan = every._replace(
      names=[name for name in every.names if name in part],
      again=[name for name in every.again if name in part],
    )
    known: dict[str, Rows] = dict(at_root.rows)
    others = [path]
    for one, place in shares.there(path).items():
      if one.count != share.count:  # else none of its trials is this one's
        others.append(place)
      if one != share and adoption.has_records(place):
        other = ReadDirectory(place)
        adoption.check_alike(root, one, other.stored or {})
        known |= _read(other, whole).rows if one.count != share.count else {}
    missing = Missing(request, files, own, others, options, elsewhere=known)
    missing.widths = {**at_root.widths(options.devices), **missing.widths}
    if request.own or plan.again:
      missing.run(plan, search)
    recorded = {**at_root.rows, **recorded_in(path, whole)}
    text = _words(share, lambda one: _left(asked, one, whole, order, recorded))
    return Part(text, files.records)


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


def recorded_in(path: pathlib.Path, request: Request) -> dict[str, Rows]:
  """Rows of trials in the shares of a run, as they stand: for counts alone.

  Without those that a larger budget brings back.

  Args:
    path: of the run's directory.
    request: what is asked for.
  """
  cells = {cell.name: cell for cell in request.cells}
  found: dict[str, Rows] = {}
  for place in shares.there(path).values():
    if (place / CONFIG).exists():
      for name, rows in rows_so_far(place, read_config(place / CONFIG)).items():
        cell = cells.get(name.rpartition("/")[0])
        if cell is not None and not outgrown(cell, [tuple(r.values()) for r in rows]):
          found[name] = rows
  return found


def _left(
  asked: Asked,
  share: Share,
  whole: Request,
  order: Sequence[str],
  recorded: Mapping[str, Rows],
) -> tuple[int, int]:
  """Trials of a share, and how many of them are missing: as far as is known by now."""
  search = asked.search(whole)
  if search is None:
    names = share.cut(order)
    return len(names), len(set(names) - recorded.keys())
  part = sharing.request_of(share, whole, search.groups)
  return _searched(asked.search(part), recorded) if part.own else (0, 0)


def _words(share: Share, left: Callable[[Share], tuple[int, int]]) -> str:
  """What a share has come to, and what is missing elsewhere.

  Args:
    share: which.
    left: as `_left`.
  """
  number, own = left(share)
  text = f"{share}: {number - own:,} of {number:,} trials are recorded"
  lacking = {one: missing for one in share.others() if (missing := left(one)[1])}
  if not lacking:
    return f"{text}; none is missing elsewhere: the same command without --share is next"
  number = sum(lacking.values())
  return f"{text}; elsewhere {number:,} are missing, of {shares.named(list(lacking))}"


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
