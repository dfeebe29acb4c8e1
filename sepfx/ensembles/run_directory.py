"""The output directory of one run: its lock, its config, what the run ran on."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.metadata
import json
import os
import pathlib
import platform
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping
from typing import IO, Any

import jax

from sepfx.errors import InvalidSetting

_PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "sepfx")
CONFIG = "config.json"
# 1 had no types of columns; lists stood for the settings that a grid runs over, only.
LAYOUT = 2


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
  """Says of each setting in which two runs differ what it is in the one and the other."""
  return [
    f"{name} (there {there.get(name)!r}, here {here.get(name)!r})"
    for name in sorted(set(there) | set(here))
    if there.get(name) != here.get(name)
  ]


class RunDirectory:
  """An output directory that belongs to one live run.

  Its config.json holds the settings, the types of the columns of trials.csv and, for
  each time a run was started on it, the arguments, versions, devices and source
  revision. A context manager: the directory is locked from construction to exit, or to
  the death of the process.

  Attributes:
    path: the directory.
    stored: the content of its config.json; None if there is none yet.
  """

  def __init__(self, path: str | os.PathLike):
    """Opens a new directory, or one that a run has written.

    Args:
      path: created if it is missing.

    Raises:
      InvalidSetting: if the directory cannot be written, is in use by a live run or
        holds something else.
    """
    self.path = pathlib.Path(path)
    self._lock = self._open()
    try:
      self.stored = self._read_config()
    except BaseException:
      self._lock.close()
      raise

  def __enter__(self) -> RunDirectory:
    return self

  def __exit__(self, *_: object) -> None:
    self._lock.close()

  def write(self, name: str, content: bytes | str) -> None:
    """Writes a file so that a reader, or a crash, sees all of it or the old one."""
    write_whole(self.path / name, content)

  def _open(self) -> IO:
    """Creates the directory and locks it; the lock dies with the process."""
    try:
      self.path.mkdir(parents=True, exist_ok=True)
      lock = open(self.path / ".lock", "w")  # noqa: SIM115
    except OSError as error:
      raise InvalidSetting(
        "output_dir", str(self.path), f"a directory that can be written ({error})"
      ) from error
    try:
      fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
      lock.close()
      raise InvalidSetting(
        "output_dir", str(self.path), "a directory that no live run is using"
      ) from error
    return lock

  def begin(self, settings: Mapping[str, Any], columns: Mapping[str, str]) -> None:
    """Writes config.json: a run on these settings has started.

    Args:
      settings: everything the results depend on, as JSON values.
      columns: of trials.csv, name -> type.
    """
    starts = list(self.stored["starts"]) if self.stored else []
    here = environment()
    if starts:
      self._warn_of_changes(starts[-1], here)
    self.stored = {
      "layout": LAYOUT,
      "settings": dict(settings),
      "columns": dict(columns),
      "starts": [*starts, here],
    }
    self.write(CONFIG, json.dumps(self.stored, indent=2) + "\n")

  def _read_config(self) -> dict[str, Any] | None:
    path = self.path / CONFIG
    if path.exists():
      return read_config(path)
    others = sorted(file.name for file in self.path.iterdir() if file.name != ".lock")
    if others:
      takes = f"an empty directory or one with a config.json; this one has {others[0]}"
      raise InvalidSetting("output_dir", str(self.path), takes)
    return None

  def _warn_of_changes(self, before: dict, here: dict) -> None:
    """Says what is not as it was when the run was last started."""
    old = {**before.get("versions", {}), "source revision": before.get("revision")}
    new = {**here["versions"], "source revision": here["revision"]}
    changed = [
      f"{name} {old.get(name)} (now {new.get(name)})"
      for name in dict.fromkeys([*old, *new])
      if old.get(name) != new.get(name)
    ]
    if changed:
      warnings.warn(
        f"{self.path} was begun with {', '.join(changed)}: its trials may differ in "
        "their last digits, and so in their counts",
        stacklevel=4,
      )


def read_config(path: pathlib.Path) -> dict[str, Any]:
  """Returns the content of a config.json.

  Raises:
    InvalidSetting: if it is none, or of a later layout than this version's.
  """
  try:
    stored = json.loads(path.read_text())
    _ = stored["settings"], stored["starts"]
    layout = stored.get("layout", 1)
  except (ValueError, KeyError, TypeError, AttributeError) as error:
    takes = f"a config.json that sepfx wrote ({error!r})"
    raise InvalidSetting("output_dir", str(path), takes) from error
  if layout > LAYOUT:
    takes = f"a config.json of layout {LAYOUT} or earlier: a later version wrote it"
    raise InvalidSetting("output_dir", str(path), takes)
  return stored


def write_whole(path: pathlib.Path, content: bytes | str) -> None:
  """Writes a file so that a reader, or a crash, sees all of it or the old one."""
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = path.with_name(f".{path.name}.partial")
  with open(temporary, "wb") as file:
    file.write(content.encode() if isinstance(content, str) else content)
    file.flush()
    os.fsync(file.fileno())
  temporary.replace(path)


def environment() -> dict[str, Any]:
  """What a run ran on: versions, devices, matmul precision, source revision, time."""
  versions = {"python": platform.python_version()}
  for package in _PACKAGES:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
      versions[package] = importlib.metadata.version(package)
  return {
    "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    "arguments": sys.argv[1:],
    "versions": versions,
    "devices": [f"{device.platform}:{device.device_kind}" for device in jax.devices()],
    # Accelerators multiply with fewer bits by default.
    "matmul_precision": (
      jax.config.jax_default_matmul_precision or "default"  # type: ignore[attr-defined]
    ),
    "revision": _source_revision(),
  }


def _source_revision() -> str | None:
  """The git revision of this source, "-dirty" if it was changed; None outside git."""

  def git(*arguments: str) -> str:
    return subprocess.run(
      ("git", *arguments),
      cwd=pathlib.Path(__file__).parent,
      check=True,
      capture_output=True,
      text=True,
    ).stdout.strip()

  try:
    changed = git("status", "--porcelain", "--untracked-files=no", "--", "..")
    return git("rev-parse", "HEAD") + ("-dirty" if changed else "")
  except (OSError, subprocess.CalledProcessError):
    return None
