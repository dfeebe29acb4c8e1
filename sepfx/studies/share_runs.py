"""A share of a run, and what shares come to together."""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from sepfx.ensembles import Records, trial_name
from sepfx.errors import require
from sepfx.records import adoption, digests, own_code, shares
from sepfx.records.config import CONFIG, read_config
from sepfx.records.run_directory import (
  TRIALS,
  ReadDirectory,
  RunDirectory,
  config_of,
)
from sepfx.records.shares import Share
from sepfx.records.stored_trials import outgrown
from sepfx.records.trial_files import TrialFiles
from sepfx.records.unfinished import has_rows, rows_so_far
from sepfx.studies import sharing
from sepfx.studies.missing import Missing, Options, begun_in, check_draws
from sepfx.studies.requests import (
  Asked,
  Plan,
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
      if root.stored is None and any(map(has_rows, shares.there(path).values())):
        raise adoption.without_config(path)
      if root.stored is not None and _differing(whole, root):  # another share made it
        whole = request_of(asked, root.stored, path)
      search = asked.search(whole)
      living = shares.living(path)
      _check_living(share, living)
      if grown := _grown(whole, root, search):
        takes = f"a call with the {', '.join(grown)} of those before: "
        require(root.alone, "output_dir", str(path), takes + shares.running(living))
        adoption.take_up(root, alone=True)
        begun_in(root, whole, search, options)
      # What a merge may change while this runs.
      at_root = read(root, whole)
      own = held.enter_context(RunDirectory(share.directory(path)))
      root.share()
    if has_rows(own.path):
      adoption.check_alike(root, share, own.stored or {})
    else:
      own.discard(TRIALS)  # of columns that the run may have had before it grew
    request = sharing.request_of(share, whole, search.groups) if search else whole
    search = asked.search(request) if search else None
    files = begun_in(own, request._replace(added={}), search, options, is_share=True)
    plan = _plan_of(share, whole, request, at_root)
    names = {*plan.names, *plan.again}
    cells = {cell.name for cell in request.own} if search else set()
    known: dict[str, Rows] = dict(at_root.rows)
    others = [path]
    for one, place in shares.there(path).items():
      if one == share or one in living:
        continue
      others.append(place)
      if has_rows(place):
        other = ReadDirectory(place)
        adoption.check_alike(root, one, other.stored or {})
        known |= read(other, whole).rows if one.count != share.count else {}
    missing = Missing(
      request,
      plan,
      search,
      files,
      own,
      others,
      options,
      elsewhere=known,
      wanted=lambda trial: trial[0] in cells or trial_name(*trial) in names,
      widths=at_root.widths(options.devices),
    )
    if request.own or plan.again:
      missing.run()
    recorded = {**at_root.rows, **recorded_in(path, whole)}
    text = _words(share, lambda one: _left(asked, one, whole, at_root, recorded))
    return Part(text, files.records)


def _plan_of(share: Share, whole: Request, request: Request, root: TrialFiles) -> Plan:
  """Which trials a share may run.

  Args:
    share: which.
    whole: what is asked of all shares.
    request: of this one; of all but in a search.
    root: records in the directory of the run.
  """
  names = sharing.names_of(share, whole) if request is whole else []
  plan = planned(whole, root.outgrown_trials, None)
  again = plan.again
  if request is not whole:  # a search may not ask for these again
    own = {cell.name for cell in request.own}
    outgrown = [name for name, _ in root.outgrown_trials]
    again = [name for name in outgrown if name in again or name.rpartition("/")[0] in own]
  again = sharing.again_of(share, whole, request, again)
  return plan._replace(names=names, again=again)


def _check_living(share: Share, living: Sequence[Share]) -> None:
  """Refuses a share that is being run, and another number of shares than are."""
  got = f"{share.index}/{share.count}"
  require(share not in living, "share", got, "a share that no live process runs")
  others = [one for one in living if one.count != share.count]
  takes = f"as many shares as those that run: {shares.named(others)}"
  require(not others, "share", got, takes)


def _differing(request: Request, root: RunDirectory) -> list[str]:
  """The settings of a directory that are to be others; of one without a run all."""
  here: dict[str, Any] = json.loads(json.dumps(request.settings))
  there = (root.stored or {}).get("settings", {})
  return [name for name in {**there, **here} if there.get(name) != here.get(name)]


def _grown(request: Request, root: RunDirectory, search: Search | None) -> list[str]:
  """Of what a directory is to say more than it does: settings, or "code".

  Args:
    request: what is asked for.
    root: the directory of the run; open.
    search: chooses among the trials; None to run all of them.

  Raises:
    InvalidSetting: if other code ran.
  """
  differing = _differing(request, root)
  if root.stored is None or differing:
    return differing
  # Cells that other settings made together, and trials that other cells had.
  cells, trials = (root.stored.get(entry, {}) for entry in ("parameters", "trials"))
  if any(cell.name not in cells for cell in request.own):
    return ["cells"]
  fewer = any(trials.get(cell.name, 0) < request.num_trials for cell in request.own)
  if fewer and search is None:
    return ["num_trials"]
  settings = request.named or request.settings
  code = own_code.checked(root, settings, request.cells, request.probe)
  known = root.stored.get("code", {}).get("wholes", {}).keys()
  return [] if code["wholes"].keys() <= known else ["code"]


def read(directory: RunDirectory, request: Request) -> TrialFiles:
  """Returns the records in a directory, which are only read.

  Args:
    directory: where.
    request: what is asked for.

  Raises:
    InvalidSetting: as `TrialFiles`.
  """
  return TrialFiles(
    directory,
    request.cells,
    order=request.order,
    added=request.added,
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
  root: TrialFiles,
  recorded: Mapping[str, Rows],
) -> tuple[int, int]:
  """Trials of a share, and how many of them are missing: as far as is known by now."""
  search = asked.search(whole)
  if search is None:
    plan = _plan_of(share, whole, whole, root)
    names = {*plan.names, *plan.again}
    return len(names), len(names - recorded.keys())
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
  verb = "is" if number == 1 else "are"
  return f"{text}; elsewhere {number:,} {verb} missing, of {shares.named(list(lacking))}"


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


def unfinished(
  asked: Asked,
  directory: RunDirectory,
  request: Request,
  files: TrialFiles,
  lacking: Mapping[str, int],
) -> Part:
  """What a call leaves that has all it asked for, where an earlier one has not.

  Args:
    asked, request: what is asked for.
    directory: where; open.
    files: its records.
    lacking: how many trials are missing, by the cell's name.

  Raises:
    OSError: if something could not be recorded.
  """
  records = files.records
  ended = len(records.all_curves)
  missing = sum(lacking.values())
  asked.write_unfinished(directory, request, records, ended + missing)
  most = 3
  more = f" and {len(lacking) - most} more cells" if len(lacking) > most else ""
  words = f"recorded: {ended:,} of {ended + missing:,} trials, all of this call's; "
  words += f"missing of an earlier call: {', '.join([*lacking][:most])}{more}"
  return Part(words, records)


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
    require(not _differing(request, root), "output_dir", str(path), takes)
    living = shares.living(path)
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
      still = f"; {shares.running(living)}" if living else ""
      least = "at least " if search else ""
      text = f"{of - missing:,} of {least}{of:,} trials are recorded{still}"
      return Part(text, records)
    if files.missing:
      return unfinished(asked, root, request, files, files.missing)
    left = asked.leave(root, request, files.complete())
    if root.alone:
      adoption.discard(root)
    digests.seal(root)
    return left
