"""The output directory of one run: its lock, and how its files are written."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import json
import os
import pathlib
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

import jax

from sepfx.errors import InvalidSetting, require
from sepfx.provenance.environment import environment
from sepfx.records import shares
from sepfx.records.config import (
  CONFIG,
  LANES,
  LAYOUT,
  check_rounding,
  read_config,
  warn_of_changes,
  warn_of_other_devices,
)

# Is written last of all, and says that a run is complete.
SUMMARY = "summary.json"
# Then what proves that the run's files are whole: `sepfx.records.digests`.
DIGESTS = "digests.json"
# What a run leaves of its trials, and the files of those that ended since it was last
# complete: see `sepfx.records.trial_files`.
TRIALS, CURVES, PROBES = "trials.csv", "curves.npz", "probes.csv"
ENDED = "checkpoints"
# Begins the name of a file that earlier versions' `--distributed` may have left.
_MARK = ".here-"
# A disk's, not the user's: the same command goes on when it is mended.
_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


class RunDirectory:
  """An output directory that belongs to one live run.

  Its config.json holds the settings, the types of the columns of trials.csv and, for
  each time a run was started on it, the arguments, versions, devices and source
  revision. A context manager: the directory is locked from construction to exit, or to
  the death of the process.

  Attributes:
    path: the directory.
    stored: the content of its config.json; None if there is none yet.
    alone: whether no other process has it open.
  """

  def __init__(self, path: str | os.PathLike, *, shared: bool = False):
    """Opens a new directory, or one that a run has written.

    Args:
      path: created if it is missing.
      shared: whether others may have it open, too, that say so.

    Raises:
      InvalidSetting: if the directory cannot be written, is in use by a live run or
        holds something else.
    """
    self.path = pathlib.Path(path)
    config_of(self.path)  # before anything is written into a directory of something else
    self._lock = self._open(shared)
    try:
      self.check_held()
      self.stored = config_of(self.path)
      for left in self.path.glob(f"{_MARK}*"):  # by a run that was killed
        left.unlink()
    except BaseException:
      self._lock.close()
      raise

  def __enter__(self) -> RunDirectory:
    return self

  def __exit__(self, *_: object) -> None:
    self._lock.close()

  def write(self, name: str, content: bytes | str) -> None:
    """Writes a file so that a reader, or a crash, sees all of it or the old one.

    Digests of what stands there go away first, and a config.json that was deleted comes
    back.

    Raises:
      OSError: if it cannot be written, or the directory is no longer this run's.
    """
    self.change(name)
    write_whole(self.path / name, content)

  def append(self, name: str, text: str) -> None:
    """Writes at the end of a file; a crash may leave a part of the text there.

    Raises:
      OSError: as `write`.
    """
    self.change(name)
    path = self.path / name
    with naming(path), open(path, "ab") as file:
      file.write(text.encode())
      file.flush()
      os.fsync(file.fileno())

  def discard(self, name: str) -> None:
    """Removes a file if it is there.

    Raises:
      OSError: if that fails, or the directory is no longer ours.
    """
    self.change(name)
    if (self.path / name).exists():
      remove(self.path / name)

  def change(self, name: str) -> None:
    """What comes before a file of the directory is changed in any way.

    Raises:
      OSError: as `write`.
    """
    self.check_held()
    if name != DIGESTS and (self.path / DIGESTS).exists():
      remove(self.path / DIGESTS)
    lost = self.stored is not None and not (self.path / CONFIG).exists()
    if name != CONFIG and lost:  # by somebody's hand: without it nothing can be read
      self._replace_config()

  def lanes(self, kind: str) -> dict[str, int]:
    """Lanes per device that a cell's trials last ran with, by its name.

    Args:
      kind: of the devices; with none of those whose lanes are batched there are none.
    """
    noted = (self.stored or {}).get(LANES, {}).get(kind, {})
    return {cell: own[-1] for cell, own in noted.items()}

  def note_lanes(self, kind: str, cells: Sequence[str], lanes: int) -> None:
    """Writes down how wide a program is, before trials of these cells run in it.

    Raises:
      OSError: as `write`.
    """
    assert self.stored is not None
    before = self.lanes(kind)
    changed = [cell for cell in cells if before.get(cell) != lanes]
    if others := sorted({before[cell] for cell in changed if cell in before}):
      warnings.warn(
        f"{self.path} was begun with {' and '.join(map(str, others))} lanes per device "
        f"of kind {kind} (now {lanes}): its trials round differently, and so differ in "
        "their counts",
        stacklevel=2,
      )
    if changed:
      noted = self.stored.setdefault(LANES, {}).setdefault(kind, {})
      for cell in changed:
        noted.setdefault(cell, []).append(lanes)
      self.write_config()

  def rename_cells(self, names: Mapping[str, str]) -> None:
    """Gives cells other names in what the next config.json says of them."""
    stored = self.stored or {}
    for noted in (stored.get("trials", {}), *stored.get(LANES, {}).values()):
      for old in names.keys() & noted.keys():
        noted[names[old]] = noted.pop(old)

  def check_held(self) -> None:
    """Raises OSError if the directory was removed or moved since it was opened.

    Another run may have begun at its path: what is written there would be taken for its.
    """
    try:
      there = os.stat(self.path / shares.LOCK)
      held = os.path.samestat(there, os.fstat(self._lock.fileno()))
    except (FileNotFoundError, NotADirectoryError):
      held = False
    if not held:
      raise OSError(
        f"{self.path} was removed or moved while this run was using it; "
        "this run writes nothing more there"
      )

  def share(self) -> None:
    """Lets others open it from now on that say that they share it.

    Raises:
      InvalidSetting: if another process took it in this moment.
    """
    with naming(self.path / shares.LOCK):
      held = _locked(self._lock, fcntl.LOCK_SH)
    takes = "a directory that no live run is using"
    require(held, "output_dir", str(self.path), takes)
    self.alone = False

  def _open(self, shared: bool) -> IO:
    """Creates the directory and locks it; the lock dies with the process."""
    path = self.path / shares.LOCK
    try:
      self.path.mkdir(parents=True, exist_ok=True)
      lock = open(path, "a+")  # noqa: SIM115
    except OSError as error:
      if error.errno in _OF_THE_DISK:
        raise
      takes = f"a directory that can be written ({error})"
      raise InvalidSetting("output_dir", str(self.path), takes) from error
    try:
      with naming(path):
        self.alone = _locked(lock, fcntl.LOCK_EX)
        held = self.alone or (shared and _locked(lock, fcntl.LOCK_SH))
      if not held:
        takes = "a directory that no live run is using" + self._users(shared)
        raise InvalidSetting("output_dir", str(self.path), takes)
    except (OSError, InvalidSetting):
      lock.close()
      raise
    return lock

  def _users(self, shared: bool) -> str:
    """Which shares are using it; "" if none, or if we come for one ourselves."""
    if shared or not (self.path / shares.DIRECTORY).is_dir():
      return ""
    with shares.starting(self.path):
      some = shares.living(self.path)
    return f": {shares.running(some)} there" if some else ""

  def begin(
    self,
    settings: Mapping[str, Any],
    columns: Mapping[str, str],
    of_cells: Mapping[str, Mapping[str, Any]] | None = None,
    devices: Sequence[jax.Device] | None = None,
  ) -> None:
    """Writes config.json: a run on these settings has started.

    Args:
      settings: everything the results depend on, as JSON values.
      columns: of trials.csv, name -> type.
      of_cells: further entries, of cells, of the code that they run and of how models
        are told whether they learn; None if nothing is trained.
      devices: where it runs; None for all of the default platform.

    Raises:
      InvalidSetting: if an earlier version left trials there that an accelerator computed
        with another matmul precision than settings have a name for.
    """
    starts = list(self.stored["starts"]) if self.stored else []
    here = environment(devices)
    lanes = (self.stored or {}).get(LANES)
    if starts:
      warn_of_changes(self.path, starts[-1], here)
    if columns:  # else nothing is trained, and all is written anew
      check_rounding(self.path, starts)
      warn_of_other_devices(self.path, starts, here)
    self.stored = {
      "layout": LAYOUT,
      "settings": dict(settings),
      "columns": dict(columns),
      **(of_cells or {}),
      **({LANES: lanes} if lanes else {}),
      "starts": [*starts, here],
    }
    self.write_config()

  def write_config(self) -> None:
    """Writes `stored` into config.json.

    Raises:
      OSError: as `write`.
    """
    self.change(CONFIG)
    self._replace_config()

  def _replace_config(self) -> None:
    write_whole(self.path / CONFIG, json.dumps(self.stored, indent=2) + "\n")


class ReadDirectory(RunDirectory):
  """A run directory that is only read, also while a process runs there."""

  def __init__(self, path: pathlib.Path):
    """Reads its config.json.

    Raises:
      InvalidSetting: if it is gone, or none.
    """
    takes = f"a directory with its {CONFIG}, which is gone: put a copy of it back"
    require((path / CONFIG).exists(), "output_dir", str(path), takes)
    self.path, self.stored = path, read_config(path / CONFIG)

  def __exit__(self, *_: object) -> None:
    pass

  def change(self, name: str) -> None:
    """Refuses."""
    raise PermissionError(f"{self.path} is only read here, not its {name} written")


def config_of(directory: pathlib.Path) -> dict[str, Any] | None:
  """The content of a directory's config.json; None if it is new.

  Raises:
    InvalidSetting: for a directory of something else.
  """
  path = directory / CONFIG
  if path.exists():
    return read_config(path)
  if not directory.is_dir():
    return None
  # All that a run may leave that ended before its config.json was written.
  own = {shares.LOCK, shares.DIRECTORY, _partial(path).name}
  names = {file.name for file in directory.iterdir()} - own
  others = sorted(name for name in names if not name.startswith(_MARK))
  if others:
    takes = f"an empty directory or one with a config.json; this one has {others[0]}"
    if not names.isdisjoint((TRIALS, CURVES, ENDED)):
      takes += ". If a run wrote it, put a copy of its config.json back; or move all of "
      takes += "it away, and the trials run again"
    raise InvalidSetting("output_dir", str(directory), takes)
  return None


def _locked(lock: IO, kind: int) -> bool:
  """Locks a file, and returns whether nobody has a lock that is in the way."""
  try:
    fcntl.flock(lock, kind | fcntl.LOCK_NB)
  except BlockingIOError:
    return False
  return True


def write_whole(path: pathlib.Path, content: bytes | str) -> None:
  """Writes a file so that a reader, or a crash, sees all of it or the old one."""
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = _partial(path)
  with naming(path):
    with open(temporary, "wb") as file:
      file.write(content.encode() if isinstance(content, str) else content)
      file.flush()
      os.fsync(file.fileno())
    temporary.replace(path)


def set_aside(path: pathlib.Path) -> pathlib.Path:
  """Renames what cannot be used, and returns its new path: its place is free then."""
  target = free_name(path)
  path.replace(target)
  return target


def free_name(path: pathlib.Path) -> pathlib.Path:
  """Where something may be set aside: a name beside it that is not taken."""
  names = (f"{path.name}.set_aside.{number}" for number in itertools.count(1))
  return next(own for own in map(path.with_name, names) if not os.path.lexists(own))


def _partial(path: pathlib.Path) -> pathlib.Path:
  """The file that is written before it gets a name, so that no one sees a part of it."""
  return path.with_name(f".{path.name}.partial")


def remove(path: pathlib.Path) -> None:
  """Removes a file, or a directory with all that is in it.

  Raises:
    OSError: if that fails; it names the path, where `shutil.rmtree` has the last part of
      what it could not remove.
  """
  try:
    shutil.rmtree(path) if path.is_dir() else path.unlink()
  except OSError as error:
    raise OSError(error.errno, error.strerror, str(path)) from error


@contextlib.contextmanager
def naming(path: pathlib.Path) -> Iterator[None]:
  """Errors of writing say which file: a full disk's do not by themselves."""
  try:
    yield
  except OSError as error:
    if error.filename is None and error.errno is not None:
      error.filename = str(path)
    raise
