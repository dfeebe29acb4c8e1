"""Pictures of the suite: mixers by tasks, or n against a difficulty or a state size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib.figure
import numpy as np

from sepfx import specifications
from sepfx.drawing.legends import handle_of, legend_below
from sepfx.drawing.looks import fit_labels, inches, styles_of, wrap
from sepfx.drawing.marks import (
  AT_MOST,
  BOUND,
  aside,
  draw_arrows,
  leave_room,
  line_with_intervals,
)
from sepfx.drawing.ticks import label_logarithmic, label_places
from sepfx.models.mixers import taking_turns
from sepfx.statistics.series import label_of

from . import matrix

# Factors over the reference at which the colours end.
_ENDS = 1 / 30, 30
# Inches of a letter.
_LETTER = 0.09
_BOUNDS = {"more than": BOUND, "at most": AT_MOST}
_STATE = "numbers carried from token to token, without caches of convolutions"


class Point(NamedTuple):
  """Of a picture of lines: which line it is on, where, and its cell."""

  line: str
  place: float
  cell: Mapping[str, Any]


def draw(summary: Mapping[str, Any]) -> matplotlib.figure.Figure:
  """Lines where one task's difficulty, or the mixers' states, differ; else the matrix."""
  cells = summary["matrix"]
  tasks = {cell["task"].partition(", ")[0] for cell in cells}
  along = {name for cell in cells for name in cell["difficulty"]}
  if len(tasks) == 1 and len(along) == 1:
    (name,) = along
    places = [cell["difficulty"].get(name) for cell in cells]
    if all(type(place) in (int, float) and place > 0 for place in places):
      points = [Point(c["model"], p, c) for c, p in zip(cells, places, strict=True)]
      return _lines(summary, points, label_of(name))
  if len(tasks) == 1 and not along:
    lines = zip(_families(cells), cells, strict=True)
    own = [Point(line, c["memory"], c) for line, c in lines if c["memory"]]
    if len({point.line for point in own}) < len(own):
      others = " and ".join(cell["model"] for cell in cells if not cell["memory"])
      return _lines(summary, own, f"{_STATE}; without {others}" if others else _STATE)
  return _matrix(summary)


def _families(cells: Sequence[Mapping[str, Any]]) -> list[str]:
  """The line of each cell against the size of its state.

  Those of a mixer that differ in one thing alone are on one line: in that of which there
  are the most values, and which alone tells their sizes apart. A line is called by the
  rest. If there is no such thing, each cell is on a line of its own.
  """
  of: dict[str, list[Mapping[str, Any]]] = {}
  for cell in cells:
    of.setdefault(matrix.base(cell["model"]), []).append(cell)
  lines: dict[str, str] = {}
  for base, kin in of.items():
    features = [_features(cell) for cell in kin]
    values = {n: {own.get(n) for own in features} for each in features for n in each}
    differ = [name for name in values if len(values[name]) > 1]
    for along in (*sorted(differ, key=lambda name: -len(values[name])), None):
      rest = [[f"{n}={own[n]}" for n in own if n != along] for own in features]
      names = [", ".join([base, *own]) for own in rest]
      sizes = [cell["memory"] for cell in kin]
      if len({*zip(names, sizes, strict=True)}) == len(kin):
        break
    lines.update(zip((cell["model"] for cell in kin), names, strict=True))
  return [lines[cell["model"]] for cell in cells]


def _features(cell: Mapping[str, Any]) -> dict[str, str]:
  """What tells a mixer's cells apart: fields of the mixers, and settings."""
  mixers = taking_turns(cell["model"].partition(", ")[0])
  own = {}
  for k, mixer in enumerate(mixers, start=1):
    fields = specifications.parse(mixer, "model").fields
    of = f" of mixer {k}" if len(mixers) > 1 else ""
    own.update({f"{name}{of}": value for name, value in fields.items()})
  settings = cell["settings"].items()
  return own | {name: specifications.canonical(value) for name, value in settings}


def _matrix(summary: Mapping[str, Any]) -> matplotlib.figure.Figure:
  """Colours say n over the reference's, numbers say n; bounds are marked."""
  cells = summary["matrix"]
  factors = [np.nan if c["over"] is None else np.log10(c["over"]) for c in cells]
  low, high = np.log10(_ENDS)
  label = f"n over {cells[0]['reference']}'s"
  if any(cell["apart"] for cell in cells):
    label += "\n(bold: the intervals do not overlap)"
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
    weight = "bold" if cell.get("apart") else "normal"
    axis.text(column, row, text, ha="center", va="center", size="small", weight=weight)
  # Pale, so that black is read on the darkest.
  image = axis.imshow(
    values, colours.map, vmin=colours.low, vmax=colours.high, aspect="auto", alpha=0.6
  )
  bar = figure.colorbar(image, ax=axis, label=colours.label)
  axis.set_xticks(range(len(tasks)), tasks, rotation=30, ha="right")
  axis.set_yticks(range(len(models)), models)
  return figure, bar


def _lines(
  summary: Mapping[str, Any], points: Sequence[Point], label: str
) -> matplotlib.figure.Figure:
  """n with its interval against one number."""
  figure = matplotlib.figure.Figure(figsize=inches(6.4, 5.2), layout="constrained")
  axis = figure.subplots()
  styles = styles_of(point.line for point in points)
  every = np.array(sorted({point.place for point in points}))
  taken = {(point.line, point.place) for point in points}
  own = []
  for line, at, cell in points:  # side by side where several are at one place
    there = [name for name in styles if (name, at) in taken]
    shift = aside(every, True, there.index(line) - (len(there) - 1) / 2)
    is_least = cell["bound"] in ("more than", "open")
    marks = {"mean": cell["n"], "restricted": is_least, "at_most": False}
    own.append({**cell, **marks, "line": line, "place": float(shift(at))})
  for name, style in styles.items():
    of = sorted((c for c in own if c["line"] == name), key=lambda cell: cell["place"])
    line_with_intervals(figure, axis, of, "place", np.asarray, style)
    fewer = [cell for cell in of if cell["bound"] in ("at most", "open")]
    ends = [c["n"] if c["low"] is None else c["low"] for c in fewer]
    x = [cell["place"] for cell in fewer]
    draw_arrows(figure, axis, x, ends, AT_MOST, style["color"], points=-18)
  axis.set(xscale="log", yscale="log", ylabel="sequences n")
  axis.set_xlabel(wrap(label, inches(6.4, 5.2)[0] - 1))
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
