"""Keeps trials in progress on disk, so that a run goes on where it was killed.

A checkpoint is `lanes-<number>/`, written by orbax, and then `lanes-<number>.sha256`, a
digest of each of its files. One without digests was cut short; one whose digests differ
was damaged. The last two are kept. Its `header.json` says which run it is of, which
trials' states it holds, and their shapes.

A call may leave out trials that an earlier one had in progress. Their checkpoint then
stays beside the later ones, as `left_out-<number>/lanes-<number>`.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import pathlib
import re
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from sepfx.ensembles.cells import Cell
from sepfx.ensembles.watchers import InProgress, TrialOf
from sepfx.records import shares
from sepfx.records.run_directory import (
  ENDED,
  RunDirectory,
  naming,
  remove,
  set_aside,
  write_whole,
)
from sepfx.training import State

_KEPT = 2
_NAME = re.compile(r"lanes-(\d+)\.sha256")
_LEFT_OUT = "left_out-"
# Of what a run that has no settings of its own saves.
_UNNAMED = ""


class Checkpoints:
  """Checkpoints under one directory; a `sepfx.ensembles.Keeper`."""

  def __init__(
    self,
    path: pathlib.Path,
    every_seconds: float,
    *,
    run: str = _UNNAMED,
    directory: RunDirectory | None = None,
    others: Sequence[pathlib.Path] = (),
    wanted: Callable[[TrialOf], bool] = lambda _: True,
  ):
    """Reads and writes nothing yet.

    Args:
      path: where; created when there is something to save.
      every_seconds: time from one save to the next.
      run: what tells its trials from those of other runs whose cells have the same names.
      directory: that it is in, if this process holds one: nothing is written when that
        is held no longer.
      others: further directories of checkpoints, where trials may have been in progress
        that are none here. They are only read.
      wanted: whether a trial may go on from a state in one of those.
    """
    self._path = path.absolute()
    self._every = every_seconds
    self._run, self._directory = run, directory
    self._others, self._wanted = [own.absolute() for own in others], wanted
    self._last_save = time.monotonic()

  def due(self) -> bool:
    """Whether it is time to save."""
    return time.monotonic() - self._last_save >= self._every

  def save(self, in_progress: Sequence[InProgress]) -> None:
    """Writes a checkpoint and removes all but the last two.

    Raises:
      OSError: if it cannot be written; those before it are still there.
    """
    self._last_save = time.monotonic()
    if not in_progress:
      return
    self._check_held()
    kept = [k for own in self._path.glob(f"{_LEFT_OUT}*") for k in self._numbers(own)]
    number = max([*self._numbers(self._path), *kept], default=-1) + 1
    path = self._path / f"lanes-{number}"
    tree = {"lanes": [{"leaves": jax.tree.leaves(group.states)} for group in in_progress]}
    groups = [
      {
        "trials": list(group.trials),
        "leaves": [
          [list(a.shape[1:]), str(a.dtype)] for a in jax.tree.leaves(group.states)
        ],
      }
      for group in in_progress
    ]
    header = {"run": self._run, "lanes": groups}
    try:
      shutil.rmtree(path, ignore_errors=True)  # cut short by a kill
      path.mkdir(parents=True)
      with _plain(path) as plain, naming(path), _checkpointer() as checkpointer:
        checkpointer.save(plain / "states", args=ocp.args.StandardSave(tree))
      self._check_held()
      write_whole(path / "header.json", json.dumps(header, indent=2) + "\n")
      write_whole(path.with_suffix(".sha256"), _digests(path))
      self._remove_old(number)
    except OSError:
      self._check_held()  # says more than that a file is not there
      raise
    except Exception as error:  # orbax and tensorstore raise many kinds
      self._check_held()
      raise OSError(f"the checkpoint {path} could not be written: {error}") from error

  def keep_apart(self, asked: Callable[[TrialOf], bool]) -> None:
    """Keeps the last checkpoint for later calls, if it has trials that this leaves out.

    `restore` reads it there.

    Args:
      asked: whether a trial is asked for, or recorded.

    Raises:
      OSError: if that cannot be written.
    """
    path = self._latest(self._path)
    if path is None or all(map(asked, _trials_in(path))):
      return
    kept = self._path / path.name.replace("lanes-", _LEFT_OUT) / path.name
    if kept.with_suffix(".sha256").exists():
      return
    self._check_held()
    shutil.rmtree(kept, ignore_errors=True)  # cut short by a kill
    with naming(kept):
      shutil.copytree(path, kept)
    write_whole(kept.with_suffix(".sha256"), path.with_suffix(".sha256").read_bytes())

  def _check_held(self) -> None:
    if self._directory is not None:
      self._directory.check_held()

  def restore(self, cells: Sequence[Cell]) -> dict[TrialOf, State]:
    """Returns the states last saved of these cells' trials, in NumPy.

    A checkpoint that is damaged, or of another run, is set aside with a warning, and the
    one before it read. A state of another form than its trial's is left out with a
    warning: that trial starts anew.
    """
    found: dict[TrialOf, State] = {}
    for place in self._elsewhere():
      path = self._latest(place)
      wanted = path is not None and any(map(self._wanted, _trials_in(path)))
      own = self._restored(path, cells) if path and wanted else {}
      for trial, state in own.items():
        if self._wanted(trial) and state.step > getattr(found.get(trial), "step", -1):
          found[trial] = state
    self._set_unusable_aside()
    if known := self._numbers(self._path):
      found |= self._restored(self._path / f"lanes-{known[-1]}", cells)
    return found

  def left_out(self) -> set[TrialOf]:
    """The trials that wait in other places than the last checkpoint."""
    paths = map(self._latest, self._elsewhere())
    return {trial for path in paths if path is not None for trial in _trials_in(path)}

  def _elsewhere(self) -> Iterator[pathlib.Path]:
    """Directories in which trials may have been in progress that are none in its own."""
    for place in (*self._others, self._path):
      yield from sorted(place.glob(f"{_LEFT_OUT}*"))
      if place != self._path:
        yield place

  def _latest(self, place: pathlib.Path) -> pathlib.Path | None:
    """The last checkpoint there that can be used."""
    latest = (place / f"lanes-{number}" for number in reversed(self._numbers(place)))
    return next((each for each in latest if not self._why_unusable(each)), None)

  def _restored(self, path: pathlib.Path, cells: Sequence[Cell]) -> dict[TrialOf, State]:
    groups = json.loads((path / "header.json").read_bytes())["lanes"]
    try:
      template = {
        "lanes": [
          {
            "leaves": [
              np.empty((len(group["trials"]), *shape), dtype)
              for shape, dtype in group["leaves"]
            ]
          }
          for group in groups
        ]
      }
      with _plain(path) as plain, _checkpointer() as checkpointer:
        restored = checkpointer.restore(
          plain / "states", args=ocp.args.StandardRestore(template)
        )
    except Exception as error:  # undamaged, but orbax cannot read it: of many kinds
      if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
        raise
      warnings.warn(
        f"{path} is of other versions, its trials start anew: {error}", stacklevel=2
      )
      return {}
    states, others = _states(groups, restored["lanes"], cells)
    if others:
      warnings.warn(
        f"{path} has states of other versions or another budget, these trials start "
        f"anew: {', '.join(others)}",
        stacklevel=2,
      )
    return states

  def _numbers(self, place: pathlib.Path) -> list[int]:
    """Numbers of the checkpoints that were written to their ends, ascending."""
    if not place.exists():
      return []
    found = [_NAME.fullmatch(file.name) for file in place.iterdir()]
    return sorted(int(match[1]) for match in found if match)

  def _remove_old(self, latest: int) -> None:
    old = [number for number in self._numbers(self._path) if number <= latest - _KEPT]
    for number in old:  # digests first: what has none is not read
      (self._path / f"lanes-{number}.sha256").unlink()
    for file in list(self._path.iterdir()):
      match = re.fullmatch(r"lanes-(\d+)", file.name)
      if match and int(match[1]) <= latest - _KEPT:
        remove(file)

  def _set_unusable_aside(self) -> None:
    for number in reversed(self._numbers(self._path)):
      path = self._path / f"lanes-{number}"
      why = self._why_unusable(path)
      if not why:
        return
      # Digests first: what has none is not read.
      set_aside(path.with_suffix(".sha256"))
      target = set_aside(path) if path.exists() else path
      warnings.warn(
        f"{path} {why}: set aside as {target.name}, and the checkpoint before it used",
        stacklevel=3,
      )

  def _why_unusable(self, path: pathlib.Path) -> str:
    """What is said of a checkpoint that cannot be used; "" of one that can."""
    digests = path.with_suffix(".sha256")
    whole = digests.is_file() and path.is_dir()
    if not whole or digests.read_bytes() != _digests(path).encode():
      return "is damaged"
    try:
      header = json.loads((path / "header.json").read_bytes())
    except (FileNotFoundError, ValueError, RecursionError):
      return "is damaged"
    if isinstance(header, list):
      return "is of an earlier version, which did not say of which run"
    if not isinstance(header, dict) or not _is_proper(header.get("lanes")):
      return "is damaged"
    return "" if header.get("run") == self._run else "is of a run with other settings"


def cells_in_progress(run: pathlib.Path) -> set[str]:
  """Names of the cells of which a checkpoint of a run or of its shares has a trial.

  Args:
    run: the run's directory.
  """
  found = set()
  places = [run / ENDED, *run.glob(f"{shares.DIRECTORY}/*/{ENDED}")]
  places += [kept for own in places for kept in own.glob(f"{_LEFT_OUT}*")]
  for digests in (file for own in places for file in own.glob("lanes-*.sha256")):
    with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError):
      found |= {cell for cell, _ in _trials_in(digests.with_suffix(""))}
  return found


def _trials_in(path: pathlib.Path) -> list[TrialOf]:
  """The trials whose states a checkpoint holds."""
  groups = json.loads((path / "header.json").read_bytes())["lanes"]
  return [(t[0], t[1]) for own in groups for t in own["trials"] if t is not None]


def _is_proper(groups: Any) -> bool:
  """Whether a header's groups are of the form that `save` gives them."""
  try:
    for group in groups:
      for trial in group["trials"]:
        if trial is not None:
          cell, index = trial
          if not (isinstance(cell, str) and type(index) is int):
            return False
      for shape, dtype in group["leaves"]:
        jax.ShapeDtypeStruct(tuple(map(int, shape)), np.dtype(dtype))
  except (TypeError, ValueError, KeyError):
    return False
  return isinstance(groups, list)


def _checkpointer() -> ocp.Checkpointer:
  """One that waits for no other process, where JAX knows of several."""
  options = ocp.options.MultiprocessingOptions()
  if jax.process_count() > 1:
    own = jax.process_index()
    options = ocp.options.MultiprocessingOptions(own, {own}, f"process{own}")
  handler = ocp.StandardCheckpointHandler(multiprocessing_options=options)
  return ocp.Checkpointer(handler, multiprocessing_options=options)


@contextlib.contextmanager
def _plain(path: pathlib.Path) -> Iterator[pathlib.Path]:
  """A path to the same directory in UTF-8, without `*`, `?` and `[`.

  orbax looks for its files by patterns that begin with the path, and keeps that in JSON.
  """
  if glob.escape(str(path)) == str(path) and str(path).isprintable():
    yield path
    return
  with tempfile.TemporaryDirectory(prefix="sepfx-") as directory:
    link = pathlib.Path(directory) / "checkpoint"
    link.symlink_to(path, target_is_directory=True)
    yield link


def _states(
  groups: Sequence[dict], lanes: Sequence[dict], cells: Sequence[Cell]
) -> tuple[dict[TrialOf, State], list[str]]:
  """The states of these cells' trials, and the names of those of another form."""
  shapes = {cell.name: cell.trial.state_shapes() for cell in cells}
  states: dict[TrialOf, State] = {}
  others: list[str] = []
  for group, saved in zip(groups, lanes, strict=True):
    for lane, trial in enumerate(group["trials"]):
      if trial is None or trial[0] not in shapes:  # idle; or nobody asks for it today
        continue
      wanted, structure = jax.tree.flatten(shapes[trial[0]])
      leaves = [leaf[lane] for leaf in saved["leaves"]]
      if [(a.shape, a.dtype) for a in leaves] == [(a.shape, a.dtype) for a in wanted]:
        states[trial[0], trial[1]] = jax.tree.unflatten(structure, leaves)
      else:
        others.append(f"{trial[0]}/trial={trial[1]}")
  return states, others


def _digests(path: pathlib.Path) -> str:
  """The digests of a checkpoint's files, as `sha256sum` writes and checks them."""
  lines = []
  for file in sorted(path.rglob("*")):
    if file.is_file():
      with open(file, "rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
      lines.append(f"{digest}  {file.relative_to(path.parent)}\n")
  return "".join(lines)
