"""Exponents of n ~ N^c with their intervals, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.figure
import numpy as np

from sepfx.drawing.legends import handle_of, legend_below
from sepfx.drawing.looks import inches, points, styles_of, wrap

# What n ~ N^c is called whose c lies below, or above this.
BORDER = 0.5
# Height of a row whose name has one line, of a further line, and of what a panel has
# beside its rows, in inches at type of 10 points.
_ROW_INCHES, _LINE_INCHES, _PANEL_INCHES = 0.2, 0.14, 0.3
_MARKS = 2.5  # before the lines of the intervals
_NAMES = 0.6  # the share of the figure's width that names of rows may take


def draw_exponents(
  rows: Sequence[Mapping[str, Any]], tasks: Mapping[str, str]
) -> matplotlib.figure.Figure:
  """Draws a line for each exponent, a panel for each task that has any.

  Args:
    rows: with `task`, `column`, `series`, `threshold`, `run`, `c`, its interval `low` and
      `high`, None if there is none, and `marks`: of those that have any the point is
      hollow. Models have their colours, and columns stand in the legend.
    tasks: name -> title.
  """
  there = [task for task in tasks if any(row["task"] == task for row in rows)]
  own = {task: [row for row in rows if row["task"] == task] for task in there}
  runs = {row["run"] for row in rows}
  width, _ = inches(8.2, 1)
  names = {
    task: [wrap(_name(row, len(runs) > 1), _NAMES * width) for row in part]
    for task, part in own.items()
  }
  lines = max((name.count("\n") for part in names.values() for name in part), default=0)
  row_inches = points(_ROW_INCHES + lines * _LINE_INCHES)
  heights = [1 + len(part) for part in own.values()] or [1]
  beside = points(0.5 + _PANEL_INCHES * len(heights))
  figure = matplotlib.figure.Figure(
    figsize=(width, beside + row_inches * sum(heights)), layout="constrained"
  )
  axes = figure.subplots(
    len(heights), 1, squeeze=False, sharex=True, height_ratios=heights
  )[:, 0]
  styles = styles_of(row["series"] for row in rows)
  for axis, (task, part) in zip(axes, own.items(), strict=False):
    for k, row in enumerate(part):
      style = {**styles[row["series"]], "linestyle": "none"}
      if row["marks"]:
        style["fillstyle"] = "none"
      axis.plot(row["c"], k, **style, markersize=points(6), zorder=_MARKS)
      if row["low"] is not None:
        axis.plot(
          [row["low"], row["high"]], [k, k], color=style["color"], linewidth=points(2)
        )
    axis.set_yticks(np.arange(len(part)), names[task], fontsize="small")
    axis.set_ylim(len(part) - 0.5, -0.5)
    axis.axvline(BORDER, color="black", linewidth=points(0.8), linestyle=":")
    axis.axvline(0, color="black", linewidth=points(0.8))
    axis.set_title(tasks[task])
    axis.grid(alpha=0.25, axis="x")
  axes[-1].set_xlabel(r"$c$ of $n \sim N^c$")
  columns = {row["series"]: row["column"] for row in rows}
  handles = [
    handle_of(f"{columns[name]}: {name}", **{**style, "linestyle": "none"})
    for name, style in styles.items()
  ]
  if any(row["marks"] for row in rows):
    hollow: dict[str, Any] = {"linestyle": "none", "marker": "o", "fillstyle": "none"}
    handles.append(handle_of("hollow: some n are bounds, or coarse", **hollow))
  label = f"{BORDER:g}, the border of the verdicts"
  handles.append(handle_of(label, linewidth=0.8, linestyle=":"))
  legend_below(figure, handles)
  return figure


def _name(row: Mapping[str, Any], several: bool) -> str:
  """What a row is of: with its run, where there are several."""
  run = f" ({row['run'].rstrip('/').rpartition('/')[2]})" if several else ""
  return f"{row['series']}, below {row['threshold']}{run}"
