"""What a command asks of a directory, and which trials it may run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from sepfx import probes
from sepfx.ensembles import Cell, Records, trial_name
from sepfx.errors import InvalidSetting
from sepfx.records.run_directory import RunDirectory
from sepfx.training import Probe


class Request(NamedTuple):
  """What a command asks of a directory.

  Attributes:
    own: the cells to run.
    cells: all that may run, in the order of the records: those that stand in the
      directory, too, where they can be made again.
    settings: of all of them, for config.json.
    identity: what tells this run from others whose cells have the same names.
    seed: of everything random.
    num_trials: of each of the cells to run.
    added: axes that what is there does not have yet, see `TrialFiles`.
    probe: what is measured of each trial when it has ended.
    keep_weights: whether weights are kept.
    notes: for `Records.notes`.
    order: names of all cells that stand in the directory or will, in the order of the
      records, where `cells` lacks some of them; else empty.
    named: settings of the call alone, whose texts may name code that runs; None for
      `settings`.
  """

  own: Sequence[Cell]
  cells: Sequence[Cell]
  settings: dict[str, Any]
  identity: str
  seed: int
  num_trials: int
  added: dict[str, Any]
  probe: Probe | None
  keep_weights: bool
  notes: Mapping[str, Mapping[str, Any]]
  order: Sequence[str] = ()
  named: Mapping[str, Any] | None = None

  @property
  def probed(self) -> dict[str, list[str]]:
    """Names of values that the trials of a cell are to have, by the cell's name."""
    return {cell.name: probes.value_names(self.probe, cell.trial) for cell in self.own}


class Plan(NamedTuple):
  """Which trials a command may run.

  Attributes:
    names: of those that are asked for.
    again: of those beside them that a larger budget brings back.
    num_trials: of a cell, at most.
    every: names of all that stand in the directory or may.
  """

  names: Sequence[str]
  again: Sequence[str]
  num_trials: int
  every: frozenset[str]


def planned(
  request: Request, outgrown: Sequence[tuple[str, int]], search: Search | None
) -> Plan:
  """Returns which trials a command may run.

  A larger budget is for all that stands in the directory, not only for what is asked
  for today.

  Args:
    request: what is asked for.
    outgrown: name and index of the trials that a larger budget brings back.
    search: chooses among those that are asked for; None to run all of them.
  """
  names = [trial_name(cell, k) for cell in request.own for k in range(request.num_trials)]
  asked = set() if search else set(names)
  again = [name for name, _ in outgrown if name not in asked]
  count = max([request.num_trials, *(k + 1 for _, k in outgrown)])
  every = {trial_name(cell, k) for cell in request.cells for k in range(count)}
  return Plan(names, again, count, frozenset(every))


# What is recorded of one trial: values by column.
Rows = Sequence[Mapping[str, Any]]


class Search(Protocol):
  """Chooses the trials of a run round by round."""

  @property
  def num_trials(self) -> int:
    """How many it will have chosen at its end, at most."""

  @property
  def is_open(self) -> bool:
    """Whether they may be fewer."""

  @property
  def groups(self) -> Sequence[Sequence[Cell]]:
    """The cells among which it chooses: what it does in one group depends on no other."""

  def __call__(self, ended: Mapping[str, Rows]) -> Sequence[str]:
    """Returns the names of the trials to run next, none when it is done.

    Called once per round.

    Args:
      ended: the rows of all trials chosen before, by name.
    """


class Asked(Protocol):
  """What a call asks for."""

  def request(self, stored: Mapping[str, Any] | None) -> Request:
    """Returns what is asked of a directory, with all that stands there.

    Args:
      stored: its config.json; None where there is no run yet.

    Raises:
      InvalidSetting: for a directory of something else; `request_of` fills in which.
    """

  def search(self, request: Request) -> Search | None:
    """What chooses among the trials round by round; None to run all of them."""

  def write_unfinished(
    self, directory: RunDirectory, request: Request, records: Records, of: int | None
  ) -> None:
    """Leaves a figure of what has been recorded so far.

    Args:
      directory: where.
      request: what is asked for.
      records: the trials that have ended.
      of: how many there will be; None if that is not known yet.
    """

  def leave(self, directory: RunDirectory, request: Request, records: Records) -> Any:
    """Leaves figure and summary of a complete run; returns what its caller wants."""


def request_of(
  asked: Asked, stored: Mapping[str, Any] | None, path: str | os.PathLike
) -> Request:
  """Returns what is asked of a directory: the one place that says what a call may do.

  Args:
    asked: what is asked for.
    stored: the directory's config.json; None where there is no run yet.
    path: of the directory, for messages.

  Raises:
    InvalidSetting: for a directory of something else.
  """
  try:
    return asked.request(stored)
  except InvalidSetting as error:
    if error.setting == "output_dir" and not error.got:
      raise InvalidSetting("output_dir", str(path), error.takes) from error
    raise
