"""Pictures of the suite: mixers by tasks, or n against a difficulty or a state size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.figure
import numpy as np

from sepfx.drawing.legends import handle_of, legend_below
from sepfx.drawing.looks import inches, styles_of
from sepfx.drawing.marks import AT_MOST, aside, draw_arrows, line_with_intervals
from sepfx.drawing.ticks import label_logarithmic, label_places
from sepfx.statistics.series import label_of

from . import matrix

# Factors over the reference at which the colours end.
_ENDS = 1 / 30, 30
_STATE = "numbers that are carried from token to token"


def draw(summary: Mapping[str, Any]) -> matplotlib.figure.Figure:
  """Lines where one task's difficulty, or the mixers' states, differ; else the matrix."""
  cells = summary["matrix"]
  tasks = {cell["task"].partition(", ")[0] for cell in cells}
  along = {name for cell in cells for name in cell["difficulty"]}
  if len(tasks) == 1 and len(along) == 1:
    (name,) = along
    places = [cell["difficulty"].get(name) for cell in cells]
    if all(isinstance(place, int | float) for place in places):
      return _lines(summary, "model", places, label_of(name))
  names = {matrix.base(cell["model"]) for cell in cells}
  models = {cell["model"] for cell in cells}
  known = all(cell["memory"] is not None for cell in cells)
  if len(tasks) == 1 and not along and len(names) < len(models) and known:
    return _lines(summary, "mixer", [cell["memory"] for cell in cells], _STATE)
  return _matrix(summary)


def _matrix(summary: Mapping[str, Any]) -> matplotlib.figure.Figure:
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
    axis.text(
      place[1], place[0], matrix.text_of(cell), ha="center", va="center", size="small"
    )
  low, high = np.log10(_ENDS)
  image = axis.imshow(factors, "PiYG_r", vmin=low, vmax=high, aspect="auto", alpha=0.75)
  bar = figure.colorbar(image, ax=axis, label=f"n over {cells[0]['reference']}'s")
  ticks = [1 / 30, 1 / 10, 1 / 3, 1, 3, 10, 30]
  bar.set_ticks(
    np.log10(ticks).tolist(), labels=["1/30", "1/10", "1/3", "1", "3", "10", "30"]
  )
  axis.set_xticks(range(len(tasks)), tasks, rotation=30, ha="right")
  axis.set_yticks(range(len(models)), models)
  axis.set_title(_title(summary))
  return figure


def _lines(
  summary: Mapping[str, Any], of: str, places: Sequence[float], label: str
) -> matplotlib.figure.Figure:
  """n with its interval against one number, a line for each model or each mixer."""
  figure = matplotlib.figure.Figure(figsize=inches(6.4, 5.2), layout="constrained")
  axis = figure.subplots()
  own = [
    {
      **cell,
      "mixer": matrix.base(cell["model"]),
      "place": place,
      "mean": cell["n"],
      "restricted": cell["bound"] == "more than",
      "at_most": False,
    }
    for cell, place in zip(summary["matrix"], places, strict=True)
  ]
  styles = styles_of(dict.fromkeys(cell[of] for cell in own))
  every = np.array(sorted(set(places)))
  for k, (name, style) in enumerate(styles.items()):
    shift = aside(every, True, k - (len(styles) - 1) / 2)
    line = sorted((c for c in own if c[of] == name), key=lambda cell: cell["place"])
    line_with_intervals(figure, axis, line, "place", shift, style)
    edge = [cell for cell in line if cell["bound"] == "at most"]
    ends = [c["n"] if c["low"] is None else c["low"] for c in edge]
    x = shift([cell["place"] for cell in edge])
    draw_arrows(figure, axis, x, ends, AT_MOST, style["color"], points=-18)
  axis.set(xscale="log", yscale="log", xlabel=label, ylabel="sequences n")
  label_places(axis.xaxis, every)
  label_logarithmic(axis.yaxis)
  axis.grid(alpha=0.25)
  task = own[0]["task"].partition(", ")[0]
  axis.set_title(f"{task}: {_title(summary)}")
  legend_below(figure, [handle_of(name, **style) for name, style in styles.items()])
  return figure


def _title(summary: Mapping[str, Any]) -> str:
  return f"sequences until the error rate is below {summary['levels'][0]['value']:g}"
