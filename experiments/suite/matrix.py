"""The matrix of n: mixers by tasks, each over attention's n on the same task."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import rich.table

from sepfx.ensembles import Cell
from sepfx.specifications import canonical
from sepfx.statistics.series import BUDGETS, series
from sepfx.studies import study

from .parts import mixers_of

# What others are held against, where it is there; else the first mixer.
REFERENCE = "attention"
SIGNS = {"more than": "> ", "at most": "< ", "open": "<> ", "": ""}
# Coordinates that name a cell already, of which the best is chosen, or that tell none
# apart.
_NAMED = ("task", "model", "learning_rate", *BUDGETS)
_OTHER_WAY = {"more than": "at most", "at most": "more than", "open": "open", "": ""}


def entries(found: Mapping[str, Any], run: study.Run) -> list[dict[str, Any]]:
  """Each mixer on each task: n at its best rate, with what bounds it.

  Args:
    found: of `summarise_best`.
    run: that it is of.

  Returns:
    JSON values, in the order of the cells. `task` and `model`, each with its settings
    where the run has several of them; `difficulty` and `settings`, those by name;
    `state`, numbers that the model carries from token to token, and `memory`, without the
    caches of short convolutions, None where it does not say. `n` with `low` and `high`;
    `bound` ("more than" where the budget of some trials ended, "at most" where the rate
    is at an edge or all trials reached at the first check, "open" for both); `rate`, and
    how many `rates` were tried; `over`, n over the reference's, and `over_bound`, as n
    has it, from the bounds of both, None where nothing is known; `apart`, whether the
    intervals of both do not overlap; `reference`, whose it is. `trials` at all rates, and
    how many of these `diverged`.
  """
  records = run.records
  names = series(records, ("length", "learning_rate"))
  of: dict[tuple[str, int], list[np.void]] = {}  # rows
  for name, row in zip(names.tolist(), records.table, strict=True):
    of.setdefault((name, row["length"].item()), []).append(row)
  # Cells stand rate by rate, and not all rates were tried: a place is one of all of them.
  places: dict[tuple, int] = {}
  for cell in run.cells.values():
    places.setdefault(_but_for_the_rate(cell), len(places))

  def rows_of(best: Mapping[str, Any]) -> list[np.void]:
    return of[best["series"], best["length"]]

  def cell_of(row: np.void) -> Cell:
    return run.cells[records.cell_of(row)]

  def place_of(best: Mapping[str, Any]) -> int:
    return places[_but_for_the_rate(cell_of(rows_of(best)[0]))]

  def coordinates_of(row: np.void) -> dict[str, Any]:
    return {column: row[column].item() for column in records.coordinates}

  every = [(coordinates_of(row), cell_of(row).trial.task) for row, *_ in of.values()]
  cells: list[dict[str, Any]] = []
  spans: dict[tuple[str, str], tuple[float, float]] = {}
  for best in sorted(found["best"], key=place_of):
    rows = rows_of(best)
    own = cell_of(rows[0])
    outcomes = [row["outcome"] for row in rows]
    fewer = best["edge"] or best["at_most"]
    bound = ("", "at most", "more than", "open")[2 * best["restricted"] + fewer]
    cells.append(
      {
        **labels(coordinates_of(rows[0]), own.trial.task, every),
        **sizes(own.trial),
        "n": best["mean"],
        "low": best["low"],
        "high": best["high"],
        "bound": bound,
        "rate": best["learning_rate"],
        "rates": len(best["tried"]),
        "trials": len(rows),
        "diverged": outcomes.count("diverged"),
      }
    )
    spans[cells[-1]["task"], cells[-1]["model"]] = _span(best)
  tasks = list(dict.fromkeys(cell["task"] for cell in cells))
  cells.sort(key=lambda cell: tasks.index(cell["task"]))
  models = list(dict.fromkeys(cell["model"] for cell in cells))
  of_all = next((m for m in models if base(m) == REFERENCE), models[0])
  reference = {cell["task"]: cell for cell in cells if cell["model"] == of_all}
  for entry in cells:
    other = reference.get(entry["task"])
    entry["over"], entry["over_bound"] = _over(entry, other) if other else (None, "")
    low, high = spans[entry["task"], entry["model"]]
    least, most = spans.get((entry["task"], of_all), (-np.inf, np.inf))
    entry["apart"] = high < least or low > most
    entry["reference"] = of_all
  return cells


def _but_for_the_rate(cell: Cell) -> tuple:
  own = {k: v for k, v in cell.coordinates.items() if k != "learning_rate"}
  return tuple(own.items())


def _over(own: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[float | None, str]:
  """n of one over that of another, and how it is bounded."""
  if own is other:
    return 1.0, ""
  bounds = {own["bound"], _OTHER_WAY[other["bound"]]} - {""}
  if len(bounds) > 1 or "open" in bounds:
    return None, ""
  return own["n"] / other["n"], bounds.pop() if bounds else ""


def _span(best: Mapping[str, Any]) -> tuple[float, float]:
  """Where n may be: its interval, open where n is a bound.

  Without an interval, as of a single trial, n is a bound where all trials spent their
  budget, or all reached at the first check. Else nothing is known.
  """
  low, high = best["low"], best["high"]
  if low is None:
    spent, first = best["learning_rate"] is None, best["at_most"]
    low, high = (best["mean"] if spent else -np.inf), (best["mean"] if first else np.inf)
  if best["edge"] or best["at_most"]:
    low = -np.inf
  return low, np.inf if best["restricted"] else high


def base(label: str) -> str:
  """A model's mixers, without any settings."""
  return "+".join(mixers_of(label.partition(", ")[0]))


def labels(
  coordinates: Mapping[str, Any],
  own: Any,
  every: Sequence[tuple[Mapping[str, Any], Any]],
) -> dict[str, Any]:
  """A task and a model, each with those of its settings of which there are several.

  Args:
    coordinates: of the cell.
    own: its task.
    every: coordinates and task of all.
  """
  task, model = coordinates["task"], coordinates["model"]
  fields = _fields(own)
  alike = [_fields(other) for each, other in every if each["task"] == task]
  difficulty = {
    name: value
    for name, value in fields.items()
    if any(each.get(name) != value for each in alike)
  }
  others = {
    name: value
    for name, value in coordinates.items()
    if name not in (*_NAMED, "length") and name.removeprefix("task.") not in fields
    if any(each.get(name) != value for each, _ in every)
  }
  named = (
    ", ".join([head, *(f"{name}={canonical(own)}" for name, own in more.items())])
    for head, more in ((task, difficulty), (model, others))
  )
  return {
    **dict(zip(("task", "model"), named, strict=True)),
    "difficulty": difficulty,
    "settings": others,
  }


def _fields(task: Any) -> dict[str, Any]:
  own = dataclasses.fields(task) if dataclasses.is_dataclass(task) else ()
  return {field.name: getattr(task, field.name) for field in own}


def sizes(trial: Any) -> dict[str, int | None]:
  """What a model carries from token to token, with caches and without."""
  length = trial.task.length
  return {
    "state": trial.model.state_size(length),
    "memory": trial.model.state_size(length, caches=False),
  }


def text_of(cell: Mapping[str, Any]) -> str:
  """n with the sign of its bound."""
  return f"{SIGNS[cell['bound']]}{cell['n']:,.0f}"


def table(summary: Mapping[str, Any]) -> Sequence[Any]:
  """n of each mixer on each task, with its interval and best rate."""
  found = rich.table.Table()
  for name in ("task", "mixer"):  # whole, however narrow the terminal
    found.add_column(name, overflow="fold")
  for name in ("state", "without caches", "n", "best rate", "over the reference's"):
    found.add_column(name)
  for cell in summary["matrix"]:
    n = text_of(cell)
    if cell["low"] is not None:
      n += f" [{cell['low']:,.0f}, {cell['high']:,.0f}]"
    rate = "none reached it" if cell["rate"] is None else f"{cell['rate']:g}"
    rate += ", alone" if cell["rates"] == 1 and cell["rate"] is not None else ""
    rate += ", all diverged" if cell["diverged"] == cell["trials"] else ""
    known = cell["over"] is not None
    over = f"{SIGNS[cell['over_bound']]}{cell['over']:.2g}" if known else ""
    sizes = (cell["state"], cell["memory"])
    state = ["" if own is None else f"{own:,}" for own in sizes]
    found.add_row(cell["task"], cell["model"], *state, n, rate, over)
  reference = summary["matrix"][0]["reference"]
  threshold = summary["levels"][0]["value"]
  return [
    found,
    "State: numbers that all layers carry from token to token, and those without the "
    "caches of short convolutions. n: sequences until the error rate is below "
    f"{threshold:g}, on average over trials at the best rate, with its 95% interval. "
    "< : at most, since the best rate is the least or the largest of several, or all "
    "trials were below at the first check. > : more than, since some trials spent their "
    "budget or diverged. <> : both, so that n may be less or more. Alone: no other rate "
    "was tried, and n may be less at another. The last column has n over that of "
    f"{reference}. It is empty where that was not measured, or the bounds leave it open.",
  ]
