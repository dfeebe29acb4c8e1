"""Runs that are summarised and drawn together: what --beside names."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from sepfx import specifications
from sepfx.ensembles import Cell, Records, joined
from sepfx.ensembles.cells import cell_name
from sepfx.errors import InvalidSetting, require
from sepfx.plotting import notes_by_name
from sepfx.records import load
from sepfx.records.agreement import check_rows
from sepfx.statistics.series import BUDGETS
from sepfx.studies.classes import cells_of
from sepfx.studies.merging import differing_axes
from sepfx.studies.settings import Chosen, from_stored


class Part(NamedTuple):
  """One of the runs.

  Attributes:
    records: what it recorded.
    cells: its grid.
    chosen: its settings.
  """

  records: Records
  cells: Sequence[Cell]
  chosen: Chosen


def read(
  path: str,
  settings: type,
  cells: Callable[[Chosen], list[Cell]],
  trusted: Sequence[str] = (),
  here: Chosen | None = None,
) -> Part:
  """Reads a complete run.

  Args:
    path: its directory.
    settings: of its study.
    cells: settings -> grid.
    trusted: what of a user's own it may name, see `cells_of`.
    here: the settings of this call, see `cells_of`.

  Raises:
    InvalidSetting: if there is no complete run of that study, or it is damaged.
  """
  try:
    records = load(path)
    takes = "the directory of a complete run: this one has not ended; give its command "
    require(records.complete, "directory", path, takes + "or call again")
    chosen = from_stored(settings, records.settings)
    own = cells_of(chosen, cells, trusted, here)
    check_rows(records, own, path)
    return Part(records, own, chosen)
  except InvalidSetting as error:
    itself = error.setting == "directory"
    takes = error.takes if itself else f"directories of complete runs ({error})"
    raise InvalidSetting("beside", path, takes) from error


def tasks_of(cells: Sequence[Cell]) -> list[str]:
  """Names of the tasks of a grid, as its trials have them."""
  return list(dict.fromkeys(cell.trial.coordinates["task"] for cell in cells))


def check(
  parts: Sequence[Part],
  paths: Sequence[str],
  against: str,
  chosen_from: Sequence[str] = (),
  axes: Sequence[str] = (),
) -> None:
  """Refuses cells that would be there twice, and an axis that is not there to draw.

  Args:
    parts: the run at hand, whose records are not read, then those beside it.
    paths: of the latter.
    against: the axis.
    chosen_from: the axes of which the study chooses values. Cells that differ in these
      alone must have been looked at at the same checks within the same budget; those of
      other batch sizes at others.
    axes: all that the study's summary tells apart; empty for any.

  Raises:
    InvalidSetting: for either, and for runs that differ in what is not told apart.
  """
  taken: set[str] = set()
  kinds: dict[str, set[type]] = {}
  checks: dict[str, tuple] = {}
  limits: dict[str, int] = {}
  for part, own, path in zip(parts, _columns(parts), ["", *paths], strict=True):
    strange = sorted({*own} - {*axes}) if axes else []
    takes = f"runs that differ in {' and '.join(axes)} alone, not in "
    if strange:  # the run at hand has no path: the first one beside it is named
      raise InvalidSetting("beside", path or paths[0], takes + ", ".join(strange))
    coordinates = [{**cell.coordinates, **own} for cell in part.cells]
    # Budgets and checks tell no cells apart: the same trials would count twice.
    names = {_name(each, BUDGETS) for each in coordinates}
    both = sorted(taken & names)
    if both:
      more = f" and {len(both) - 1} more" if len(both) > 1 else ""
      takes = f"runs of other cells; {both[0]}{more} would be there twice, so leave out "
      takes += "here what was measured there"
      raise InvalidSetting("beside", path, takes)
    taken |= names
    for each, cell in zip(coordinates if chosen_from else (), part.cells, strict=False):
      without = {*chosen_from} - {"batch_size"}
      where, protocol = _name(each, (*BUDGETS, *without)), cell.trial.protocol
      found = (protocol.batch_size, protocol.check_every, protocol.budget)
      takes = "runs with one budget, batch size and number of steps between checks "
      takes += f"for all of {', '.join(chosen_from)} at {where}"
      require(checks.setdefault(where, found) == found, "beside", path, takes)
      where = _name(each, (*BUDGETS, *chosen_from))
      takes = f"runs with one max_samples for all batch sizes at {where}"
      same = limits.setdefault(where, protocol.max_samples) == protocol.max_samples
      require(same, "beside", path, takes)
    for each in coordinates:
      for name, value in each.items():
        kinds.setdefault(name, set()).add(type(value))
  numeric = sorted(name for name, types in kinds.items() if types <= {int, float})
  numeric = [name for name in numeric if name not in chosen_from]
  takes = f"one of the numeric axes: {', '.join(numeric)}"
  require(against in numeric, "against", against, takes)


def _name(coordinates: Mapping[str, Any], without: Sequence[str]) -> str:
  """A cell's name by some of its coordinates, whatever their order."""
  return cell_name({k: v for k, v in sorted(coordinates.items()) if k not in without})


def together(parts: Sequence[Part]) -> tuple[Records, Mapping[str, Cell]]:
  """Returns all records, and the cells by the names that they have among all."""
  added = _columns(parts)
  records = parts[0].records
  if len(parts) > 1:
    records = joined(
      [(part.records, own) for part, own in zip(parts, added, strict=True)]
    )
  cells = {}
  for part, own in zip(parts, added, strict=True):
    for cell in part.cells:
      coordinates = {**cell.coordinates, **own}
      name = cell_name({c: coordinates[c] for c in records.coordinates})
      cells[name] = cell
  # Those of the cells at hand: older directories have not all of them.
  return dataclasses.replace(records, notes=notes_by_name(cells)), cells


def _columns(parts: Sequence[Part]) -> list[dict[str, Any]]:
  """What each run gets as further columns: the settings in which they differ."""
  settings = _with_fields_of_tasks(parts)
  differing = differing_axes(settings)
  added = []
  for part, chosen in zip(parts, settings, strict=True):
    values = {**chosen.values, **chosen.further}
    have = part.cells[0].coordinates
    added.append({n: values[n][0] for n in differing if n not in have and n in values})
  return added


def _with_fields_of_tasks(parts: Sequence[Part]) -> list[Chosen]:
  """Settings of runs, with each number of their tasks that some of these runs name.

  As a setting (--num_pairs=8), or in the name of a task (mqar:num_pairs=8). The others
  stand at the value that their tasks have, if these have such a field.
  """
  names = dict.fromkeys(name for part in parts for name in _named(part.chosen))
  further = [dict(part.chosen.further) for part in parts]
  for name in names:
    values = [
      own.get(name) or _of_tasks(part, name)
      for own, part in zip(further, parts, strict=True)
    ]
    if all(values):
      for own, value in zip(further, values, strict=True):
        own[name] = value
  return [
    dataclasses.replace(part.chosen, further=own)
    for part, own in zip(parts, further, strict=True)
  ]


def _named(chosen: Chosen) -> list[str]:
  """Fields that a run names, but for settings of its study."""
  tasks = [specifications.parse(task, "task") for task in chosen.values.get("task", ())]
  names = [*chosen.further, *(field for task in tasks for field in task.fields)]
  return [name for name in names if name not in chosen.values]


def _of_tasks(part: Part, name: str) -> tuple:
  """The number that is this field of all tasks of a run; nothing if there is none.

  Other values have no one text: false and False are the same.
  """
  field, tasks = name.removeprefix("task."), [cell.trial.task for cell in part.cells]
  if not all(field in getattr(task, "__dataclass_fields__", ()) for task in tasks):
    return ()
  first, *others = [getattr(task, field) for task in tasks]
  same = type(first) in (int, float) and all(other == first for other in others)
  return (first,) if same else ()
