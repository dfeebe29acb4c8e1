"""Exponents of n ~ N^c with their intervals, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.figure
import matplotlib.lines
import numpy as np

from sepfx.analysis.best_summary import BORDER
from sepfx.analysis.figures import legend_below
from sepfx.analysis.looks import STYLES, inches

_ROW_INCHES = 0.24


def draw_exponents(
  rows: Sequence[Mapping[str, Any]], tasks: Mapping[str, str]
) -> matplotlib.figure.Figure:
  """Draws a line for each exponent, a panel for each task that has any.

  Args:
    rows: with `task`, `column`, `series`, `threshold`, `run`, `c`, its interval `low` and
      `high`, None if there is none, and `marks`: of those that have any the point is
      hollow. Columns have colours.
    tasks: name -> title.
  """
  there = [task for task in tasks if any(row["task"] == task for row in rows)]
  own = {task: [row for row in rows if row["task"] == task] for task in there}
  heights = [1 + len(part) for part in own.values()] or [1]
  figure = matplotlib.figure.Figure(
    figsize=inches(8.2, 1 + _ROW_INCHES * sum(heights)), layout="constrained"
  )
  axes = figure.subplots(
    len(heights), 1, squeeze=False, sharex=True, height_ratios=heights
  )[:, 0]
  runs = {row["run"] for row in rows}
  columns = list(dict.fromkeys(row["column"] for row in rows))
  for axis, (task, part) in zip(axes, own.items(), strict=False):
    for k, row in enumerate(part):
      style = {**STYLES[columns.index(row["column"])], "linestyle": "none"}
      style["fillstyle"] = "none" if row["marks"] else "full"
      axis.plot(row["c"], k, **style, markersize=6)
      if row["low"] is not None:
        axis.plot([row["low"], row["high"]], [k, k], color=style["color"], linewidth=2)
    labels = [f"{row['series']}, below {row['threshold']}" for row in part]
    if len(runs) > 1:
      names = [row["run"].rstrip("/").rpartition("/")[2] for row in part]
      labels = [f"{a} ({b})" for a, b in zip(labels, names, strict=True)]
    axis.set_yticks(np.arange(len(part)), labels, fontsize="small")
    axis.set_ylim(len(part) - 0.5, -0.5)
    axis.axvline(BORDER, color="black", linewidth=0.8, linestyle=":")
    axis.axvline(0, color="black", linewidth=0.8)
    axis.set_title(tasks[task])
    axis.grid(alpha=0.25, axis="x")
  axes[-1].set_xlabel(r"$c$ of $n \sim N^c$")
  handles = [
    matplotlib.lines.Line2D([], [], **{**STYLES[k], "linestyle": "none"}, label=column)
    for k, column in enumerate(columns)
  ]
  if any(row["marks"] for row in rows):
    hollow: dict[str, Any] = {"linestyle": "none", "marker": "o", "fillstyle": "none"}
    label = "hollow: some n are bounds, or coarse"
    handles.append(matplotlib.lines.Line2D([], [], color="black", label=label, **hollow))
  handles.append(
    matplotlib.lines.Line2D([], [], color="black", linewidth=0.8, linestyle=":",
                            label=f"{BORDER:g}, the border of the verdicts")
  )  # fmt: skip
  legend_below(figure, handles)
  return figure
