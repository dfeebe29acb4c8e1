"""The matrix of n: mixers by tasks, each over attention's n on the same task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.figure
import numpy as np
import rich.table

from sepfx import specifications
from sepfx.drawing.looks import inches
from sepfx.ensembles import Records
from sepfx.statistics.series import series

# What others are held against, where it is there; else the first mixer.
REFERENCE = "attention"
_SIGNS = {"more than": "> ", "at most": "< ", "": ""}
# Factors over the reference at which the colours end.
_ENDS = 1 / 30, 30


def entries(found: Mapping[str, Any], records: Records) -> list[dict[str, Any]]:
  """Each mixer on each task: n at its best rate, with what bounds it.

  Args:
    found: of `summarise_best`.
    records: that it is of.

  Returns:
    JSON values, in the order of the records: `task` with its difficulty where there are
    several, `model`, `n` with `low` and `high`,
    `bound` ("more than" where the budget of some trials ended, "at most" where the rate
    is at an edge), `rate`, and `over`, n over the reference's; None where both are bounds
    or one of them is not known.
  """
  names = series(records, ("length", "learning_rate"))
  places = {
    name: (_task(name, row["task"].item()), row["model"].item())
    for name, row in zip(names.tolist(), records.table, strict=True)
  }
  cells: list[dict[str, Any]] = []
  for best in found["best"]:
    task, model = places[best["series"]]
    bound = "more than" if best["restricted"] else "at most" if best["edge"] else ""
    cells.append(
      {
        "task": task,
        "model": model,
        "n": best["mean"],
        "low": best["low"],
        "high": best["high"],
        "bound": bound,
        "rate": best["learning_rate"],
      }
    )
  models = list(dict.fromkeys(cell["model"] for cell in cells))
  of = next((m for m in models if specifications.base(m) == REFERENCE), models[0])
  reference = {cell["task"]: cell for cell in cells if cell["model"] == of}
  for cell in cells:
    other = reference[cell["task"]]
    known = other["bound"] != "more than"
    cell["over"] = cell["n"] / other["n"] if known else None
    cell["reference"] = of
  return cells


def _task(name: str, task: str) -> str:
  """A task with its difficulty, where a series' name tells several apart."""
  others = [part for part in name.split(", ")[1:] if not part.startswith("task=")]
  return ", ".join([task, *others])


def draw(summary: Mapping[str, Any]) -> matplotlib.figure.Figure:
  """Colours say n over the reference's, numbers say n; bounds are marked."""
  cells = summary["matrix"]
  tasks = list(dict.fromkeys(cell["task"] for cell in cells))
  models = list(dict.fromkeys(cell["model"] for cell in cells))
  shape = len(models), len(tasks)
  size = inches(2.2 + 1.15 * shape[1], 1.5 + 0.5 * shape[0])
  figure = matplotlib.figure.Figure(figsize=size, layout="constrained")
  axis = figure.subplots()
  factors = np.full(shape, np.nan)
  for cell in cells:
    place = models.index(cell["model"]), tasks.index(cell["task"])
    if cell["over"] is not None:
      factors[place] = np.log10(cell["over"])
    axis.text(place[1], place[0], _text(cell), ha="center", va="center", size="small")
  low, high = np.log10(_ENDS)
  image = axis.imshow(factors, "PiYG_r", vmin=low, vmax=high, aspect="auto", alpha=0.75)
  bar = figure.colorbar(image, ax=axis, label=f"n over {cells[0]['reference']}'s")
  ticks = [1 / 30, 1 / 10, 1 / 3, 1, 3, 10, 30]
  bar.set_ticks(
    np.log10(ticks).tolist(), labels=["1/30", "1/10", "1/3", "1", "3", "10", "30"]
  )
  axis.set_xticks(range(len(tasks)), tasks, rotation=30, ha="right")
  axis.set_yticks(range(len(models)), models)
  level = summary["levels"][0]["value"]
  axis.set_title(f"sequences until the error rate is below {level:g}")
  return figure


def _text(cell: Mapping[str, Any]) -> str:
  return f"{_SIGNS[cell['bound']]}{cell['n']:,.0f}"


def table(summary: Mapping[str, Any]) -> Sequence[Any]:
  """n of each mixer on each task, with its interval and best rate."""
  found = rich.table.Table("task", "mixer", "n", "best rate", "over the reference's")
  for cell in summary["matrix"]:
    n = _text(cell)
    if cell["low"] is not None:
      n += f" [{cell['low']:,.0f}, {cell['high']:,.0f}]"
    rate = "none" if cell["rate"] is None else f"{cell['rate']:g}"
    over = "" if cell["over"] is None else f"{_SIGNS[cell['bound']]}{cell['over']:.2g}"
    found.add_row(cell["task"], cell["model"], n, rate, over)
  return [found]
