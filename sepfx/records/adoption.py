"""A run takes up what its shares have recorded.

Trial by trial, in the order in which a trial is recorded: its row last. So whenever it is
interrupted it can be done again.
"""

from __future__ import annotations

import io
import json
import pathlib
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from sepfx.errors import InvalidSetting
from sepfx.provenance import sources
from sepfx.records import digests, shares, weights
from sepfx.records.config import CONFIG, LANES, warn_of_other_devices
from sepfx.records.run_directory import (
  ENDED,
  SUMMARY,
  TRIALS,
  ReadDirectory,
  RunDirectory,
  remove,
  set_aside,
)
from sepfx.records.stored_trials import csv_text, of_ended
from sepfx.records.unfinished import (
  StoredTrial,
  has_rows,
  later,
  lines_of,
  rows_so_far,
  so_far,
)

# Parts of code, or settings, that a message names.
_NAMED = 5


def take_up(directory: RunDirectory, *, alone: bool) -> None:
  """Records what shares have of a run's trials, beside what stands in its directory.

  Args:
    directory: of the run; open.
    alone: whether no share is being run. What has been taken up is then removed from the
      shares; states of trials in progress stay there.

  Raises:
    InvalidSetting: if a share is of other settings or code, or a trial came to something
      else in two places; it says which.
    OSError: if something cannot be read or written.
  """
  found = {
    share: path for share, path in shares.there(directory.path).items() if has_rows(path)
  }
  if not found:
    return
  config = directory.stored
  if config is None:
    raise without_config(directory.path)
  digests.check(directory.path, config, may_lack=True)  # before any file is changed
  here = so_far(directory.path, config)
  owns, changes, damaged = [], [], []
  for share, path in found.items():
    own = ReadDirectory(path).stored or {}
    check_alike(directory, share, own)
    owns.append(own)
    trials = so_far(path, own)
    if rows_so_far(path, own).keys() - trials.keys():
      damaged.append(path)
    for name, trial in trials.items():
      before = here.get(name)
      here[name] = later(name, before, trial) if before else trial
      if before is None or _has_more(here[name], before):
        changes.append((name, here[name], before))
  if changes or any(_is_unknown(directory, own) for own in owns):
    directory.discard(SUMMARY)
    _note(directory, owns)
  if changes:
    _cut_to_whole(directory, config)
  for name, changed, before in changes:
    _write(directory, name, changed, before)
  for path in damaged if alone else ():
    aside = set_aside(path)
    warnings.warn(
      f"{path} is damaged: set aside as {aside.name}, its other trials run again",
      stacklevel=3,
    )
  for path in found.values() if alone else ():
    if path not in damaged:
      _empty(path)


def without_config(path: pathlib.Path) -> InvalidSetting:
  """What is said of a run whose shares are there and whose config.json is not."""
  takes = f"a directory with its {CONFIG}: shares are there, put a copy of it back"
  return InvalidSetting("output_dir", str(path), takes)


def check_alike(
  directory: RunDirectory, share: shares.Share, own: Mapping[str, Any]
) -> None:
  """Refuses a share of other settings or code than its run's.

  Warns of devices that round otherwise.

  Args:
    directory: of the run; open.
    share: which.
    own: the content of its config.json.

  Raises:
    InvalidSetting: it says what differs.
  """
  stored = directory.stored or {}
  one, two = stored.get("settings", {}), own.get("settings", {})
  differing = [k for k in {**one, **two} if one.get(k) != two.get(k)]
  if stored.get("columns", {}) != own.get("columns", {}):
    differing.append("columns")
  code, other = (each.get("code") for each in (stored, own))
  if code and other and code["scheme"] == other["scheme"] == sources.SCHEME:
    both = (
      sources.Code(each["wholes"], each["parts"], list(each["packages"]))
      for each in (code, other)
    )
    changed, _ = sources.changes(*both)
    differing += [f"the code of {name}" for name in changed]
  if differing:
    takes = f"shares of one run: {share} differs in {', '.join(differing[:_NAMED])}"
    raise InvalidSetting("output_dir", str(directory.path), takes)
  starts = own["starts"]
  if starts:
    warn_of_other_devices(directory.path, stored.get("starts", []), starts[-1])


def _has_more(trial: StoredTrial, before: StoredTrial) -> bool:
  """Whether something of a trial is to be written that is not there."""
  more = (
    trial.text != before.text
    or (trial.probes or {}).keys() != (before.probes or {}).keys()
  )
  return more or (trial.weights is not None and before.weights is None)


def _is_unknown(directory: RunDirectory, own: Mapping[str, Any]) -> bool:
  stored = directory.stored or {}
  return any(start not in stored["starts"] for start in own["starts"])


def _note(directory: RunDirectory, owns: list[dict[str, Any]]) -> None:
  """Writes down where the shares' trials ran, and with how many lanes."""
  stored = directory.stored
  assert stored is not None
  for own in owns:
    stored["starts"] += [each for each in own["starts"] if each not in stored["starts"]]
    for kind, cells in own.get(LANES, {}).items():
      noted = stored.setdefault(LANES, {}).setdefault(kind, {})
      for cell, widths in cells.items():
        before = noted.setdefault(cell, [])
        before += [width for width in widths if width not in before]
  directory.write_config()


def _cut_to_whole(directory: RunDirectory, config: Mapping[str, Any]) -> None:
  """Removes what was appended of a trial before the process was killed."""
  file = directory.path / TRIALS
  if not file.exists():
    return
  header, _ = lines_of(directory.path, config)
  trials = rows_so_far(directory.path, config).values()
  rows = [tuple(row.values()) for own in trials for row in own]
  text = csv_text([header, *rows])
  if text.encode() != file.read_bytes():
    directory.write(TRIALS, text)


def _write(
  directory: RunDirectory,
  name: str,
  trial: StoredTrial,
  before: StoredTrial | None,
) -> None:
  """Records one trial: its row last."""
  if trial.weights and trial.weights != directory.path:
    content = (trial.weights / weights.path_of(name)).read_bytes()
    directory.write(weights.path_of(name), content)
  buffer = io.BytesIO()
  np.save(buffer, trial.curve)
  directory.write(of_ended(name, "npy"), buffer.getvalue())
  if trial.probes is not None:
    directory.write(of_ended(name, "json"), json.dumps(trial.probes))
  if before is not None and before.text == trial.text:
    return
  if (directory.path / TRIALS).exists():
    directory.append(TRIALS, trial.text)
  else:
    header = (trial.place / TRIALS).read_text().partition("\n")[0]
    directory.write(TRIALS, f"{header}\n{trial.text}")


def _empty(share: pathlib.Path) -> None:
  """Removes a share's records, its rows first; checkpoints stay."""
  remove(share / TRIALS)
  for file in [*share.glob(f"{ENDED}/*.npy"), *share.glob(f"{ENDED}/*.json")]:
    remove(file)
  if (share / weights.DIRECTORY).exists():
    remove(share / weights.DIRECTORY)


def discard(directory: RunDirectory) -> None:
  """Removes the shares of a complete run, which has all that they had.

  Those in which something was set aside stay, under another name.

  Args:
    directory: of the run; open, and no share is being run.
  """
  for path in shares.there(directory.path).values():
    if list(path.rglob("*.set_aside.*")):
      set_aside(path)
      continue
    # config.json last: what is left of it is a run directory all the while.
    for file in sorted(path.iterdir(), key=lambda file: file.name == CONFIG):
      remove(file)
    path.rmdir()
  if (claims := directory.path / shares.DIRECTORY / shares.CLAIMS).exists():
    remove(claims)
