"""Figures of the generalisation gap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.figure
import numpy as np

from sepfx.drawing.legends import handle_of, legend_below
from sepfx.drawing.looks import fit_labels, grid, points, styles_of_numbers
from sepfx.drawing.ticks import label_logarithmic, label_symmetric
from sepfx.ensembles import Records
from sepfx.statistics.series import series

_LINEAR = 0.01  # gaps up to this size stand on a linear part of their axis
_LABELS = {"num_components": "number of components k", "degree": "degree d"}


def gaps(
  records: Records, summary: Mapping[str, Any], across: str, along: str
) -> matplotlib.figure.Figure:
  """Draws the gap of each trial, medians and ranges, a panel per series.

  Args:
    records: as `summarise_gaps` takes them.
    summary: what that returned.
    across: column of which each value is a line.
    along: column on the horizontal axis.
  """
  names = list(dict.fromkeys(cell["series"] for cell in summary["cells"]))
  figure, axes = grid(len(names), (6.4, 4.4))
  for axis in axes[1:]:
    axis.sharey(axes[0])
  styles = styles_of_numbers(cell[across] for cell in summary["cells"])
  places = sorted({cell[along] for cell in summary["cells"]})
  assert records.probes is not None
  row_names = series(records, (across, along))
  ended = dict(zip(map(records.name_of, records.table), row_names, strict=True))
  reached = dict(
    zip(map(records.name_of, records.table), records.table["outcome"], strict=True)
  )
  logarithmic = np.nanmax(np.abs(records.probes["gap"])) > 10 * _LINEAR
  for axis, name in zip(axes, names, strict=True):
    for k, (line, style) in enumerate(styles.items()):
      shift = 0.12 * (k - (len(styles) - 1) / 2)
      where = {place: i + shift for i, place in enumerate(places)}
      for row in records.probes:
        trial = records.name_of(row)
        if row[across] == line and ended[trial] == name:
          filled = style["color"] if reached[trial] == "reached" else "none"
          axis.plot(
            where[row[along].item()], row["gap"], marker=style["marker"],
            color=style["color"], markerfacecolor=filled, markersize=points(4), alpha=0.5,
            linestyle="none",
          )  # fmt: skip
      cells = [
        c
        for c in summary["cells"]
        if c["series"] == name and c[across] == line and c["gap"] is not None
      ]
      if not cells:
        continue
      middle, low, high = (
        np.array([c[f"gap_{name}"] for c in cells])
        for name in ("median", "least", "most")
      )
      axis.errorbar(
        [where[c[along]] for c in cells], middle,
        yerr=[middle - low, high - middle],
        capsize=points(3), **style,
      )  # fmt: skip
      for cell in cells:
        if cell["reached"] < cell["trials"]:
          text = f"{cell['reached']} of {cell['trials']}"
          at = (where[cell[along]], cell["gap_median"])
          axis.annotate(
            text,
            at,
            xytext=(points(5), points(4)),
            textcoords="offset points",
            fontsize="x-small",
          )
    axis.set_xticks(range(len(places)), [f"{place:g}" for place in places])
    axis.set_xlim(-0.5, len(places) - 0.5)
    if logarithmic:
      axis.set_yscale("symlog", linthresh=_LINEAR)
      label_symmetric(axis.yaxis)
    axis.set(xlabel=_LABELS.get(along, along), title=name)
    axis.set_ylabel("test loss less training loss")
    axis.axhline(0, color="black", linewidth=points(0.5))
    axis.grid(alpha=0.25)
  handles = [handle_of(f"{across} {line}", **style) for line, style in styles.items()]
  if any(outcome != "reached" for outcome in reached.values()):
    hollow = {"linestyle": "none", "marker": "o", "fillstyle": "none", "markersize": 4}
    label = "hollow: did not get to the training loss that ends a trial"
    handles.append(handle_of(label, **hollow))
  fit_labels(figure)
  legend_below(figure, handles)
  return figure


def front(summary: Mapping[str, Any]) -> matplotlib.figure.Figure:
  """Draws norm against Hessian trace of each cell, and the gap against the trace.

  Args:
    summary: `cells`, as `summarise_paired` returns them for gap, hessian_trace and
      squared_norm; and `constructed`, those two of the constructions, [trials] each.
  """
  figure, (norms, gap) = grid(2, (5.5, 4.4))
  cells = [cell for cell in summary["cells"] if cell["hessian_trace"] is not None]
  varied = [
    name
    for name in (cells[0] if cells else {})
    if len({str(cell[name]) for cell in cells}) > 1 and f"{name}_low" not in cells[0]
    and not name.endswith(("_low", "_high")) and name not in ("reached", "pairs")
  ]  # fmt: skip
  # Settings of one model: colours that no model is known by.
  styles = styles_of_numbers(range(len(cells))).values()
  for cell, style in zip(cells, styles, strict=True):
    label = ", ".join(f"{name} {cell[name]}" for name in varied) or cell["model"]
    for axis, name in ((norms, "squared_norm"), (gap, "gap")):
      x, y = cell["hessian_trace"], cell[name]
      ends = [cell[f"{name}_low"], cell[f"{name}_high"]]
      low, high = (y if end is None else end for end in ends)
      axis.errorbar(
        [x], [y], yerr=[[y - low], [high - y]], capsize=points(2),
        label=label if axis is norms else None, **{**style, "linestyle": "none"},
      )  # fmt: skip
  own = summary["constructed"]
  norms.plot(
    own["hessian_trace"], own["squared_norm"], linestyle="none", marker="*",
    color="black", markersize=points(5), label="constructions",
  )  # fmt: skip
  norms.set(xscale="log", yscale="log", xlabel="trace of the Hessian")
  norms.set(ylabel="squared norm", title="norm and trace of weights")
  gap.set(xscale="log", xlabel="trace of the Hessian")
  gap.set(ylabel="test loss less training loss", title="generalisation gap")
  for scale in (norms.xaxis, norms.yaxis, gap.xaxis):
    label_logarithmic(scale)
  for axis in (norms, gap):
    axis.grid(alpha=0.25)
  fit_labels(figure)
  legend_below(figure, norms.get_legend_handles_labels()[0])
  return figure
