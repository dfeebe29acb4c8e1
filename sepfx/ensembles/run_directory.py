"""The output directory of one run: its config, its records, its lock.

Layout while a run lasts, and after it:

    config.json    every setting; per start the versions, devices, source revision
    trials.csv     one row a trial and threshold, appended as trials end, sorted when
                   the run completes
    curves.npz     test loss against samples, one array a trial; written at the end
    checkpoints/   the curves of ended trials until then, one file each
"""

from __future__ import annotations

import contextlib
import csv
import fcntl
import importlib.metadata
import io
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import time
import urllib.parse
import warnings
from collections.abc import Mapping, Sequence
from typing import IO, Any

import jax
import numpy as np

from sepfx.ensembles.cells import Cell
from sepfx.ensembles.records import (
  COLUMNS,
  Result,
  curve_array,
  parse_row,
  table,
  trial_name,
)
from sepfx.errors import InvalidSetting

_PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "sepfx")


class RunDirectory:
  """Keeps a run's records; a `sepfx.ensembles.Watcher`.

  A context manager: the directory is locked from construction to exit.

  Attributes:
    path: the directory.
    finished: names of the trials (`trial_name`) already recorded.
  """

  def __init__(
    self,
    path: str | os.PathLike,
    settings: Mapping[str, Any],
    cells: Sequence[Cell],
    num_trials: int,
    devices: Sequence[jax.Device],
  ):
    """Opens a new directory, or one that holds the same run unfinished.

    Args:
      path: created if it is missing.
      settings: everything the results depend on, as JSON values.
      cells: the grid.
      num_trials: trials a cell.
      devices: where the run takes place; recorded only.

    Raises:
      InvalidSetting: if the directory cannot be written, is in use by a live run,
        holds another config, or a trials.csv that is malformed or another run's.
    """
    self.path = pathlib.Path(path)
    self._cells = list(cells)
    self._names = {
      (*(str(v) for v in cell.coordinates.values()), str(k)): trial_name(cell, k)
      for cell in cells
      for k in range(num_trials)
    }
    self._thresholds = cells[0].trial.protocol.thresholds
    self._lock = self._open()
    try:
      self._check_config(json.loads(json.dumps(dict(settings))), devices)
      self._rows = self._read_trials()
      self.finished = frozenset(self._rows)
    except BaseException:
      self._lock.close()
      raise

  def __enter__(self) -> RunDirectory:
    return self

  def __exit__(self, *_: object) -> None:
    self._lock.close()

  # What a Watcher is told.

  def compiling(self, cell: Cell) -> None:
    pass

  def advanced(self, samples: int) -> None:
    pass

  def ended(self, result: Result) -> None:
    """Records a trial: its curve first, so that a row promises a curve."""
    self._checkpoints.mkdir(exist_ok=True)
    buffer = io.BytesIO()
    np.save(buffer, curve_array(result.curve))
    _write_atomically(self._curve_path(result.name), buffer.getvalue())
    text = _csv_text(result.rows)
    with open(self._trials, "a", newline="") as file:
      file.write(text)
      file.flush()
      os.fsync(file.fileno())
    self._rows[result.name] = result.rows

  # What a run does at its end.

  def complete(self) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Puts records in their final form and returns them.

    `trials.csv` is sorted by cell, trial and threshold, so that it does not depend on
    the order in which trials ended; curves move into `curves.npz`.

    Returns:
      The records (`sepfx.ensembles.table`) and the curves by trial name, structured
      arrays with fields samples, loss, exact.
    """
    names = [name for name in self._names.values() if name in self._rows]
    rows = [row for name in names for row in self._rows[name]]
    curves: dict[str, np.ndarray] = {}
    for name in names:
      stored = self._stored_curve(name)
      assert stored is not None, name  # a row promises a curve
      curves[name] = stored
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **curves)  # type: ignore[arg-type]
    _write_atomically(self._curves, buffer.getvalue())
    _write_atomically(self._trials, (_csv_text([COLUMNS]) + _csv_text(rows)).encode())
    shutil.rmtree(self._checkpoints, ignore_errors=True)
    return table(rows), curves

  # Files.

  @property
  def _trials(self) -> pathlib.Path:
    return self.path / "trials.csv"

  @property
  def _curves(self) -> pathlib.Path:
    return self.path / "curves.npz"

  @property
  def _checkpoints(self) -> pathlib.Path:
    return self.path / "checkpoints"

  def _curve_path(self, name: str) -> pathlib.Path:
    return self._checkpoints / f"{urllib.parse.quote(name, safe='=')}.npy"

  def _stored_curve(self, name: str) -> np.ndarray | None:
    path = self._curve_path(name)
    if path.exists():
      return np.load(path)
    if self._curves.exists():
      with np.load(self._curves) as curves:
        if name in curves:
          return curves[name]
    return None

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

  def _check_config(self, settings: dict, devices: Sequence[jax.Device]) -> None:
    path = self.path / "config.json"
    starts = []
    if path.exists():
      try:
        stored = json.loads(path.read_text())
        old, starts = stored["settings"], stored["starts"]
      except (ValueError, KeyError, TypeError) as error:
        raise InvalidSetting(
          "output_dir", str(path), f"a config.json that sepfx wrote ({error!r})"
        ) from error
      differing = [
        f"{name} (there {old.get(name)!r}, here {settings.get(name)!r})"
        for name in sorted(set(old) | set(settings))
        if old.get(name) != settings.get(name)
      ]
      if differing:
        raise InvalidSetting(
          "output_dir",
          str(self.path),
          "an empty directory or one of the same config; this one differs in "
          + ", ".join(differing),
        )
    elif self._trials.exists():
      raise InvalidSetting(
        "output_dir", str(self.path), "no trials.csv without its config.json"
      )
    stored = {"settings": settings, "starts": [*starts, environment(devices)]}
    _write_atomically(path, (json.dumps(stored, indent=2) + "\n").encode())

  def _read_trials(self) -> dict[str, list[tuple]]:
    """Reads the trials of whom all is there, and cuts the file back to them."""
    rows: dict[str, list[tuple]] = {}
    text = self._trials.read_text() if self._trials.exists() else ""
    complete, newline, cut = text.rpartition("\n")
    if cut:
      warnings.warn(
        f"{self._trials}: the last line was cut short, its trial runs again: {cut!r}",
        stacklevel=4,
      )
    lines = list(csv.reader(io.StringIO(complete + newline)))
    if lines and tuple(lines[0]) != COLUMNS:
      raise self._malformed(1, lines[0], f"the header {','.join(COLUMNS)}")
    for number, fields in enumerate(lines[1:], start=2):
      try:
        row = parse_row(fields)
      except ValueError as error:
        raise self._malformed(number, fields, f"a row of a trial ({error})") from error
      name = self._names.get(tuple(fields[: COLUMNS.index("threshold")]))
      if name is None or row[COLUMNS.index("threshold")] not in self._thresholds:
        raise self._malformed(number, fields, "a row of this run's grid")
      rows.setdefault(name, []).append(row)
    rows = {
      name: own
      for name, own in rows.items()
      if len(own) == len(self._thresholds) and self._stored_curve(name) is not None
    }
    kept = [COLUMNS, *(row for trial in rows.values() for row in trial)]
    _write_atomically(self._trials, _csv_text(kept).encode())
    return rows

  def _malformed(self, number: int, fields: list[str], takes: str) -> InvalidSetting:
    where = f"{self._trials}, line {number}: {','.join(fields)}"
    return InvalidSetting("output_dir", where, takes)


def environment(devices: Sequence[jax.Device]) -> dict[str, Any]:
  """What a run ran on: versions, devices, source revision, time."""
  versions = {"python": platform.python_version()}
  for package in _PACKAGES:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
      versions[package] = importlib.metadata.version(package)
  return {
    "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    "arguments": sys.argv[1:],
    "versions": versions,
    "devices": [f"{device.platform}:{device.device_kind}" for device in devices],
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


def _csv_text(rows: Sequence[Sequence[Any]]) -> str:
  buffer = io.StringIO()
  csv.writer(buffer, lineterminator="\n").writerows(rows)
  return buffer.getvalue()


def _write_atomically(path: pathlib.Path, content: bytes) -> None:
  """Writes a file so that a reader, or a crash, sees all of it or the old one."""
  temporary = path.with_name(path.name + ".partial")
  with open(temporary, "wb") as file:
    file.write(content)
    file.flush()
    os.fsync(file.fileno())
  temporary.replace(path)
