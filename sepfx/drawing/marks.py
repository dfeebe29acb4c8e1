"""Marks of figures of counts: means with intervals, and arrows where they are bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import matplotlib.artist
import matplotlib.axes
import matplotlib.figure
import matplotlib.lines
import matplotlib.transforms
import numpy as np

from sepfx.drawing import looks

# Arrows on trials that spent their budget, and on means that such trials are part of.
# Marks lie before lines, and arrows before marks.
MARKS, _ARROWS = 2.5, 2.6
NOT_REACHED: Mapping[str, Any] = {
  "linestyle": "none",
  "marker": r"$\uparrow$",
  "markersize": 11,
}
BOUND = {**NOT_REACHED, "marker": r"$\Uparrow$", "markersize": 13}
AT_MOST = {**BOUND, "marker": r"$\Downarrow$"}


def aside(places: np.ndarray, logarithmic: bool, step: float):
  """Returns what moves points a little to one side, on this axis.

  Args:
    places: where points are, ascending.
    logarithmic: whether the axis is.
    step: how far, to the right; neighbouring series are 1 apart.
  """
  if logarithmic:  # one place alone: as if the axis were of a factor of two
    factor = np.exp(0.012 * np.log(max(places[-1] / places[0], 2)) * step)
    return lambda x: np.asarray(x) * factor
  offset = 0.012 * max(places[-1] - places[0], abs(places[0]) / 2) * step
  return lambda x: np.asarray(x) + offset


def vertical(axis, x: float, low: float, high: float, style: Mapping[str, Any]) -> None:
  """A vertical line; one from 0, which a logarithmic axis has not, has no lower end."""
  if low > 0:
    axis.plot([x, x], [low, high], solid_capstyle="butt", **style)
    return
  axis.plot([x], [high], **style)  # so that the axis reaches it
  bottom = axis.get_xaxis_transform()
  axis.annotate(
    "", (x, 0), (x, high), xycoords=bottom, textcoords="data",
    arrowprops={"arrowstyle": "-", "shrinkA": 0, "shrinkB": 0, **style},
  )  # fmt: skip


def line_with_intervals(
  figure: matplotlib.figure.Figure,
  axis: matplotlib.axes.Axes,
  cells: Sequence[Mapping[str, Any]],
  against: str,
  shift: Any,
  style: Mapping[str, Any],
) -> None:
  """Draws means with their intervals, and an arrow where one is a bound.

  Args:
    figure: that the axis is of.
    axis: to draw on, logarithmic in n.
    cells: with `mean`, `low`, `high`, `restricted` and `at_most`, and
    against: the entry to draw them against.
    shift: moves points a little to one side.
    style: one of `sepfx.drawing.looks`.
  """
  x = shift(np.array([cell[against] for cell in cells], float))
  mean = np.array([cell["mean"] for cell in cells])
  # Marks lie before all lines, those of other series too.
  marks = {**style, "linestyle": "none"}
  axis.plot(x, mean, **{**style, "marker": ""}, linewidth=looks.points(2))
  axis.plot(x, mean, **marks, zorder=MARKS)
  for at, cell in zip(x, cells, strict=True):
    if cell["low"] is None:  # a single trial has no interval
      continue
    whisker = {"color": style["color"], "linewidth": looks.points(2)}
    vertical(axis, at, cell["low"], cell["high"], whisker)
    ends = [end for end in (cell["low"], cell["high"]) if end > 0]
    axis.plot(
      np.full(len(ends), at), ends, linestyle="none", marker="_", color=style["color"],
      markersize=looks.points(7),
    )  # fmt: skip
  restricted = np.array([cell["restricted"] for cell in cells], bool)
  bounded = (x[restricted], mean[restricted])
  draw_arrows(figure, axis, *bounded, BOUND, style["color"], points=24)
  at_most = np.array([cell["at_most"] for cell in cells], bool)
  bounded = (x[at_most], mean[at_most])
  draw_arrows(figure, axis, *bounded, AT_MOST, style["color"], points=-14)


def draw_arrows(
  figure: matplotlib.figure.Figure,
  axis: matplotlib.axes.Axes,
  x: Any,
  y: Any,
  arrow: Mapping[str, Any],
  color: str,
  points: int,
) -> None:
  """Draws an arrow so many typographic points above (< 0: below) each data point.

  At type of 10 points, as its size is.
  """
  size = looks.points(arrow["markersize"])
  axis.plot(
    x,
    y,
    **{**arrow, "markersize": size},
    color=color,
    zorder=_ARROWS,
    transform=matplotlib.transforms.offset_copy(
      axis.transData, figure, y=looks.points(points), units="points"
    ),
  )


def leave_room(axis: matplotlib.axes.Axes) -> None:
  """Room for arrows above and below, also where all n are nearly the same.

  Args:
    axis: whose vertical one is logarithmic.
  """
  axis.margins(y=0.21)
  low, high = axis.get_ylim()
  wider = max(1.0, (10 / (high / low)) ** 0.5)  # a factor of ten at least
  axis.set_ylim(low / wider, high * wider)
