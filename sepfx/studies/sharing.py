"""Which share of a run a process has, and which trials that is.

A trial depends on its seed, its cell and its index alone, so processes have nothing to
tell one another. A scheduler that starts several of them says to each which it is.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from sepfx.ensembles import Cell, trial_name
from sepfx.errors import InvalidSetting, require
from sepfx.records import shares
from sepfx.records.run_directory import config_of
from sepfx.records.shares import Share
from sepfx.studies.requests import Request

_TAKES = "i/n with 0 <= i < n, such as 3/64; auto; auto/n; or a pair (i, n)"
_NUMBERS = re.compile(r"(\d+)/(\d+)")
_AUTO = re.compile(r"auto(?:/(\d+))?")


@dataclasses.dataclass(frozen=True)
class Task:
  """What a scheduler says of a process.

  Attributes:
    index: which of its job's, from 0; None where numbers have gaps.
    count: how many the job has; None where the scheduler does not say it.
    source: the variable that says it.
    job, number: of a job whose numbers have gaps.
  """

  index: int | None
  count: int | None
  source: str
  job: str = ""
  number: str = ""


def share_of(asked: Any, run: pathlib.Path) -> tuple[Share, str]:
  """Returns the share that is asked for, and a line that says what told it.

  Args:
    asked: "3/64", "auto", "auto/64" or a pair (3, 64).
    run: the directory of the run.

  Raises:
    InvalidSetting: for no such share, or where nothing says which.
    OSError: if a share cannot be claimed.
  """
  if isinstance(asked, tuple | list):
    proper = len(asked) == 2 and all(type(k) is int for k in asked)
    require(proper, "share", asked, _TAKES)
    share = Share(*asked).checked()
    return share, str(share)
  text = asked if isinstance(asked, str) else ""
  if match := _NUMBERS.fullmatch(text):
    share = Share(int(match[1]), int(match[2])).checked()
    return share, str(share)
  found = _AUTO.fullmatch(text)
  if found is None:
    raise InvalidSetting("share", asked, _TAKES)
  task = task_of(os.environ)
  if task is None:
    takes = "i/n here: no SLURM array or step, Open MPI, Kubernetes index or JAX process "
    raise InvalidSetting("share", text, takes + "says which share this is")
  count = int(found[1]) if found[1] else task.count
  if count is None:
    takes = f"auto/n: {task.source} does not say how many there are"
    raise InvalidSetting("share", text, takes)
  if task.count not in (None, count):
    raise InvalidSetting("share", text, f"auto: {task.source} says {task.count}")
  if task.index is None:
    config_of(run)  # before anything is written into a directory of something else
    share = shares.claimed(run, task.job, task.number, count)
  else:
    share = Share(task.index, count).checked()
  return share, f"{share}, as {task.source} says"


def task_of(environment: Mapping[str, str]) -> Task | None:
  """Returns what a scheduler says in the environment; None where none does.

  Args:
    environment: such as `os.environ`.
  """
  texts = environment.items()
  number = {name: int(own) for name, own in texts if own.isascii() and own.isdigit()}
  inner = None
  # The innermost first: what `mpirun` starts has the variables of SLURM, too.
  for index, count in (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    # SLURM_PROCID alone is a batch script's, which is not started once per task.
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
  ):
    if inner is None and {index, count} <= number.keys():
      inner = Task(number[index], number[count], index)
  if {"SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT"} <= number.keys():
    return _of_array(number, environment.get("SLURM_ARRAY_JOB_ID", ""), inner)
  if inner is not None:
    return inner
  if (own := number.get("JOB_COMPLETION_INDEX")) is not None:
    return Task(own, None, "JOB_COMPLETION_INDEX")
  if jax.distributed.is_initialized():
    return Task(jax.process_index(), jax.process_count(), "jax.distributed")
  return None


def _of_array(number: Mapping[str, int], job: str, inner: Task | None) -> Task:
  """The task of a SLURM array, each of which may start several processes."""
  source, own = "SLURM_ARRAY_TASK_ID", number["SLURM_ARRAY_TASK_ID"]
  process, processes = (inner.index or 0, inner.count or 1) if inner else (0, 1)
  tasks = number["SLURM_ARRAY_TASK_COUNT"]
  ends = [number.get(f"SLURM_ARRAY_TASK_{name}", own) for name in ("MIN", "MAX")]
  step = max(1, number.get("SLURM_ARRAY_TASK_STEP", 1))
  ids = range(ends[0], ends[1] + 1, step)
  if len(ids) == tasks and own in ids:  # else there are gaps
    return Task(ids.index(own) * processes + process, tasks * processes, source)
  return Task(None, tasks * processes, source, job, f"{own}.{process}")


def in_order(cells: Sequence[Cell]) -> list[Cell]:
  """Cells by their program: those of one stand together, the shortest prompts first."""
  place: dict[Any, int] = {}
  for cell in sorted(cells, key=lambda cell: cell.coordinates["length"]):
    place.setdefault(jax.tree.structure(cell.trial), len(place))
  return sorted(cells, key=lambda cell: place[jax.tree.structure(cell.trial)])


def request_of(
  share: Share, request: Request, groups: Sequence[Sequence[Cell]]
) -> Request:
  """What a share asks for where a search chooses: whole groups.

  Args:
    share: which.
    request: of all shares.
    groups: cells among which it chooses: `Search.groups`.
  """
  place = {cell.name: k for k, cell in enumerate(in_order(request.own))}
  ordered = sorted(groups, key=lambda group: min(place[cell.name] for cell in group))
  names = {cell.name for group in share.cut(ordered) for cell in group}
  return request._replace(own=[cell for cell in request.own if cell.name in names])


def names_of(share: Share, request: Request) -> list[str]:
  """Names of a share's trials, of those that are asked for.

  They depend on what is asked for alone, not on what is recorded by now.

  Args:
    share: which.
    request: of all shares.
  """
  cells = in_order(request.own)
  names = [trial_name(cell, k) for cell in cells for k in range(request.num_trials)]
  return list(share.cut(names))


def again_of(
  share: Share, request: Request, own: Request, again: Sequence[str]
) -> list[str]:
  """A share's part of the trials beside them that a larger budget brings back.

  Each belongs to one share, whatever else is brought back.

  Args:
    share: which.
    request: of all shares.
    own: of this one: in a search those of its groups' cells are its own.
    again: names of all.
  """
  place = {cell.name: k for k, cell in enumerate(request.cells)}
  asked = {cell.name for cell in request.own} if own is not request else set()
  mine = {cell.name for cell in own.own}
  found = []
  for name in again:
    cell, _, trial = name.rpartition("/trial=")
    turn = (place[cell] + int(trial)) % share.count == share.index
    if (cell in mine) if cell in asked else turn:
      found.append(name)
  return found
