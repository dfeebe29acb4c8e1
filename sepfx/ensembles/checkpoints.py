"""Keeps trials in progress on disk, so that a run goes on where it was killed.

A checkpoint is `lanes-<number>/`, written by orbax, all processes taking part, and then
`lanes-<number>.sha256`, a digest of each of its files. One without digests was cut
short; one whose digests differ was damaged. The last two are kept.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import re
import shutil
import time
import warnings
from collections.abc import Sequence

import jax
import numpy as np
import orbax.checkpoint as ocp

from sepfx.ensembles import hosts
from sepfx.ensembles.cells import Cell
from sepfx.ensembles.run_directory import write_whole
from sepfx.ensembles.watchers import InProgress, TrialOf
from sepfx.training import State

_KEPT = 2
_NAME = re.compile(r"lanes-(\d+)\.sha256")


class Checkpoints:
  """Checkpoints under one directory; a `sepfx.ensembles.Keeper`.

  In a run of several processes all of them see the same directory.
  """

  def __init__(self, path: pathlib.Path, every_seconds: float):
    """Reads and writes nothing yet.

    Args:
      path: where; created when there is something to save.
      every_seconds: time from one save to the next.
    """
    self._path = path.absolute()
    self._every = every_seconds
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
    number = self._agreed_latest() + 1
    path = self._path / f"lanes-{number}"
    tree = {"lanes": [{"leaves": jax.tree.leaves(group.states)} for group in in_progress]}
    header = [
      {
        "trials": list(group.trials),
        "leaves": [
          [list(a.shape[1:]), str(a.dtype)] for a in jax.tree.leaves(group.states)
        ],
      }
      for group in in_progress
    ]
    try:
      if hosts.is_primary():
        self._path.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(path, ignore_errors=True)  # cut short by a kill
      hosts.wait_for_all()
      with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as checkpointer:
        checkpointer.save(path / "states", args=ocp.args.StandardSave(tree))
      if hosts.is_primary():
        write_whole(path / "header.json", json.dumps(header, indent=2) + "\n")
        write_whole(path.with_suffix(".sha256"), _digests(path))
        self._remove_old(number)
    except OSError:
      raise
    except Exception as error:  # orbax and tensorstore raise many kinds
      raise OSError(f"the checkpoint {path} could not be written: {error}") from error

  def restore(self, cells: Sequence[Cell]) -> dict[TrialOf, State]:
    """Returns the states last saved of these cells' trials, in NumPy.

    A checkpoint that is damaged is set aside with a warning (its name gets the ending
    ".damaged"), and the one before it read.
    """
    if hosts.is_primary():
      self._set_damaged_aside()
    number = self._agreed_latest()
    if number < 0:
      return {}
    path = self._path / f"lanes-{number}"
    header = json.loads((path / "header.json").read_text())
    try:
      template = {
        "lanes": [
          {
            "leaves": [
              np.empty((len(group["trials"]), *shape), dtype)
              for shape, dtype in group["leaves"]
            ]
          }
          for group in header
        ]
      }
      with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as checkpointer:
        restored = checkpointer.restore(
          path / "states", args=ocp.args.StandardRestore(template)
        )
      return _states(header, restored["lanes"], cells)
    except (KeyError, ValueError) as error:  # undamaged, but another form of state
      warnings.warn(
        f"{path} is of other versions, its trials start anew: {error}", stacklevel=2
      )
      return {}

  def _numbers(self) -> list[int]:
    """Numbers of the checkpoints that were written to their ends, ascending."""
    if not self._path.exists():
      return []
    found = [_NAME.fullmatch(file.name) for file in self._path.iterdir()]
    return sorted(int(match[1]) for match in found if match)

  def _agreed_latest(self) -> int:
    latest = max(self._numbers(), default=-1) if hosts.is_primary() else -1
    return int(hosts.from_primary(np.array(latest)))

  def _remove_old(self, latest: int) -> None:
    for file in list(self._path.glob("lanes-*")):
      match = re.match(r"lanes-(\d+)", file.name)
      if match and int(match[1]) <= latest - _KEPT and not file.name.endswith(".damaged"):
        shutil.rmtree(file) if file.is_dir() else file.unlink()

  def _set_damaged_aside(self) -> None:
    for number in reversed(self._numbers()):
      path = self._path / f"lanes-{number}"
      digests = path.with_suffix(".sha256")
      if digests.read_text() == _digests(path):
        return
      warnings.warn(
        f"{path} is damaged: set aside, and the checkpoint before it used",
        stacklevel=2,
      )
      digests.replace(digests.with_suffix(".sha256.damaged"))
      if path.exists():
        path.replace(path.with_suffix(".damaged"))


def _states(
  header: Sequence[dict], lanes: Sequence[dict], cells: Sequence[Cell]
) -> dict[TrialOf, State]:
  """The states of these cells' trials; raises ValueError if one is of another form."""
  shapes = {cell.name: cell.trial.state_shapes() for cell in cells}
  states: dict[TrialOf, State] = {}
  for group, saved in zip(header, lanes, strict=True):
    for lane, trial in enumerate(group["trials"]):
      if trial is None or trial[0] not in shapes:  # idle; or nobody asks for it today
        continue
      shape = shapes[trial[0]]
      leaves = [leaf[lane] for leaf in saved["leaves"]]
      for leaf, wanted in zip(leaves, jax.tree.leaves(shape), strict=True):
        if leaf.shape != wanted.shape:
          raise ValueError(f"an array has shape {leaf.shape}, not {wanted.shape}")
      states[trial[0], trial[1]] = jax.tree.unflatten(jax.tree.structure(shape), leaves)
  return states


def _digests(path: pathlib.Path) -> str:
  """The digests of a checkpoint's files, as `sha256sum` writes and checks them."""
  lines = []
  for file in sorted(path.rglob("*")):
    if file.is_file():
      with open(file, "rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
      lines.append(f"{digest}  {file.relative_to(path.parent)}\n")
  return "".join(lines)
