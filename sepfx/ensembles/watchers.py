"""Those who follow a run: they are told what happens, or keep what is in progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from sepfx.ensembles.cells import Cell
from sepfx.ensembles.results import Result
from sepfx.training import State


class Watcher:
  """Someone who is told what happens: a progress bar, a run directory.

  Subclasses override what they want to hear of.
  """

  def compiling(self, cell: Cell) -> None:
    """Nothing can run before this cell's program is compiled."""

  def batched(self, cells: Sequence[Cell], kind: str, lanes: int) -> None:
    """A program is there whose lanes are batched: on accelerators.

    Args:
      cells: whose trials run in it.
      kind: of its devices.
      lanes: per device; fewer than before if memory ran out.
    """

  def started(self, cell: Cell, trial: int, step: int) -> None:
    """A trial was put into a lane, to go on from this step: 0 if it begins."""

  def advanced(self, cells: Sequence[Cell | None], steps: np.ndarray) -> None:
    """A dispatch of one program is over.

    Args:
      cells: of the trial in each lane, None where there was none.
      steps: that each lane took, [L].
    """

  def ended(self, result: Result) -> None:
    """A trial has ended."""

  def held_up(self, cells: Sequence[Cell]) -> None:
    """The run was asked to stop, and waits for these cells' programs to be compiled."""


# A cell's name and a trial's index.
TrialOf = tuple[str, int]


class InProgress(NamedTuple):
  """Trials of one structure that have started and not ended (L lanes).

  Attributes:
    trials: each lane's, None where a lane is idle.
    states: with a leading lane axis, sharded over devices or in NumPy.
  """

  trials: Sequence[TrialOf | None]
  states: State


class Keeper(Protocol):
  """Someone who keeps trials in progress, such as `sepfx.ensembles.Checkpoints`."""

  def restore(self, cells: Sequence[Cell]) -> Mapping[TrialOf, State]:
    """Returns the states last saved of these cells' trials, in NumPy."""

  def due(self) -> bool:
    """Whether it is time to save."""

  def save(self, in_progress: Sequence[InProgress]) -> None:
    """Keeps these, in place of those saved before."""
