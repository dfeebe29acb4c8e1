"""Pictures of the suite: mixers by tasks, or n against a difficulty or a state size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib.figure
import numpy as np

from sepfx.drawing.legends import handle_of, legend_below
from sepfx.drawing.looks import fit_labels, inches, styles_of
from sepfx.drawing.marks import (
  AT_MOST,
  BOUND,
  aside,
  draw_arrows,
  leave_room,
  line_with_intervals,
)
from sepfx.drawing.ticks import label_logarithmic, label_places
from sepfx.statistics.series import label_of

from . import matrix

# Factors over the reference at which the colours end.
_ENDS = 1 / 30, 30
# Inches of a letter.
_LETTER = 0.09
_BOUNDS = {"more than": BOUND, "at most": AT_MOST}
_STATE = "numbers that are carried from token to token"


def draw(summary: Mapping[str, Any]) -> matplotlib.figure.Figure:
  """Lines where one task's difficulty, or the mixers' states, differ; else the matrix."""
  cells = summary["matrix"]
  tasks = {cell["task"].partition(", ")[0] for cell in cells}
  along = {name for cell in cells for name in cell["difficulty"]}
  if len(tasks) == 1 and len(along) == 1:
    (name,) = along
    places = [cell["difficulty"].get(name) for cell in cells]
    if all(type(place) in (int, float) and place > 0 for place in places):
      return _lines(summary, "model", places, label_of(name))
  if len(tasks) == 1 and not along and _states_differ(cells):
    return _lines(summary, "mixer", [cell["memory"] for cell in cells], _STATE)
  return _matrix(summary)


def _states_differ(cells: Sequence[Mapping[str, Any]]) -> bool:
  """Whether some mixer has several sizes, and none has two of one size."""
  sizes: dict[str, list[int | None]] = {}
  for cell in cells:
    sizes.setdefault(matrix.base(cell["model"]), []).append(cell["memory"])
  several = any(len(own) > 1 for own in sizes.values())
  apart = all(None not in own and len({*own}) == len(own) for own in sizes.values())
  return several and apart and 0 not in {each for own in sizes.values() for each in own}


def _matrix(summary: Mapping[str, Any]) -> matplotlib.figure.Figure:
  """Colours say n over the reference's, numbers say n; bounds are marked."""
  cells = summary["matrix"]
  factors = [np.nan if c["over"] is None else np.log10(c["over"]) for c in cells]
  low, high = np.log10(_ENDS)
  label = f"n over {matrix.base(cells[0]['reference'])}'s"
  colours = Colours(factors, "PiYG_r", low, high, label)
  figure, bar = coloured(cells, [matrix.text_of(cell) for cell in cells], colours)
  ticks = [1 / 30, 1 / 10, 1 / 3, 1, 3, 10, 30]
  bar.set_ticks(
    np.log10(ticks).tolist(), labels=["1/30", "1/10", "1/3", "1", "3", "10", "30"]
  )
  figure.suptitle(_title(summary))
  fit_labels(figure)
  return figure


class Colours(NamedTuple):
  """Of cells: a number of each, the colours, where they end, and what the number is."""

  values: Sequence[float]
  map: str
  low: float
  high: float
  label: str


def coloured(
  cells: Sequence[Mapping[str, Any]], texts: Sequence[str], colours: Colours
) -> tuple[matplotlib.figure.Figure, Any]:
  """A matrix of models by tasks and its bar of colours.

  Args:
    cells: each with its `task` and `model`.
    texts: what stands in each.
    colours: of each; NaN for none.
  """
  tasks = list(dict.fromkeys(cell["task"] for cell in cells))
  models = list(dict.fromkeys(cell["model"] for cell in cells))
  shape = len(models), len(tasks)
  # Room for the names of models beside it and of tasks below, which stand aslant.
  beside, below = (_LETTER * max(map(len, names)) for names in (models, tasks))
  size = inches(
    max(5.5, 1.7 + beside + 1.15 * shape[1]), max(3.5, 1.2 + below / 2 + 0.5 * shape[0])
  )
  figure = matplotlib.figure.Figure(figsize=size)
  figure.set_layout_engine("constrained", h_pad=_LETTER, w_pad=_LETTER)
  axis = figure.subplots()
  values = np.full(shape, np.nan)
  for cell, text, value in zip(cells, texts, colours.values, strict=True):
    row, column = models.index(cell["model"]), tasks.index(cell["task"])
    values[row, column] = value
    axis.text(column, row, text, ha="center", va="center", size="small")
  # Pale, so that black is read on the darkest.
  image = axis.imshow(
    values, colours.map, vmin=colours.low, vmax=colours.high, aspect="auto", alpha=0.6
  )
  bar = figure.colorbar(image, ax=axis, label=colours.label)
  axis.set_xticks(range(len(tasks)), tasks, rotation=30, ha="right")
  axis.set_yticks(range(len(models)), models)
  return figure, bar


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
      "restricted": cell["bound"] in ("more than", "open"),
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
    fewer = [cell for cell in line if cell["bound"] in ("at most", "open")]
    ends = [c["n"] if c["low"] is None else c["low"] for c in fewer]
    x = shift([cell["place"] for cell in fewer])
    draw_arrows(figure, axis, x, ends, AT_MOST, style["color"], points=-18)
  axis.set(xscale="log", yscale="log", xlabel=label, ylabel="sequences n")
  leave_room(axis)
  label_places(axis.xaxis, every)
  label_logarithmic(axis.yaxis)
  axis.grid(alpha=0.25)
  task = own[0]["task"].partition(", ")[0]
  axis.set_title(f"{task}: {_title(summary)}")
  handles = [handle_of(name, **style) for name, style in styles.items()]
  bounds = {cell["bound"] for cell in own}
  handles += [
    handle_of(word, **arrow) for word, arrow in _BOUNDS.items() if {word, "open"} & bounds
  ]
  legend_below(figure, handles)
  return figure


def _title(summary: Mapping[str, Any]) -> str:
  return f"sequences until the error rate is below {summary['levels'][0]['value']:g}"
