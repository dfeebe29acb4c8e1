"""Risk against width, and the smallest width and norm against length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.axes
import matplotlib.figure
import numpy as np

from sepfx.analysis.figures import STYLES, aside, style_of

_TASKS = {"qstr": "1STR", "simple_qstr": "simple-1STR"}


def draw_widths(summary: Mapping[str, Any]) -> matplotlib.figure.Figure:
  """Draws `sepfx.analysis.widths.summarise_widths`.

  A row for each task with risk against d_h, a panel for each model and a line for each
  N. Below them the smallest d_h against N for both thresholds, and L ||U||_F of the
  networks of 1STR over the least that their risk allows.
  """
  cells, smallest = summary["cells"], summary["smallest"]
  tasks = list(dict.fromkeys(cell["task"] for cell in cells))
  models = list(dict.fromkeys(cell["model"] for cell in cells))
  thresholds = list(dict.fromkeys(entry["threshold"] for entry in smallest))
  columns, rows = max(len(models), len(thresholds) + 1), len(tasks) + 1
  figure = matplotlib.figure.Figure(
    figsize=(4.6 * columns, 3.9 * rows), layout="constrained"
  )
  axes = figure.subplots(rows, columns, squeeze=False)
  for row, task in zip(axes, tasks, strict=False):
    for axis, model in zip(row, models, strict=False):
      own = [c for c in cells if (c["task"], c["model"]) == (task, model)]
      _draw_risks(axis, own)
      axis.set_title(f"{_TASKS[task]}, {model}")
    for axis in row[len(models) :]:
      axis.set_axis_off()
  *below, norms = axes[-1][: len(thresholds) + 1]
  for axis, threshold in zip(below, thresholds, strict=True):
    own = [entry for entry in smallest if entry["threshold"] == threshold]
    _draw_smallest(axis, own, models)
    axis.set_title(f"smallest d_h with a risk below {threshold:g}")
  _draw_norms(norms, cells, models)
  for axis in axes[-1][len(thresholds) + 1 :]:
    axis.set_axis_off()
  return figure


def _draw_risks(axis: matplotlib.axes.Axes, cells: Sequence[Mapping[str, Any]]) -> None:
  lengths = list(dict.fromkeys(cell["length"] for cell in cells))
  units = np.unique([cell["units"] for cell in cells])
  for k, N in enumerate(lengths):
    own = [c for c in cells if c["length"] == N and c["risk"] is not None]
    x, style = [cell["units"] for cell in own], style_of(k)
    axis.plot(x, [cell["risk"] for cell in own], **style, label=f"N = {N}")
    for cell in own:
      trials = [risk for risk in cell["risks"] if risk is not None]
      at = np.full(len(trials), cell["units"])
      single = {**style, "linestyle": "none", "markersize": 3}
      axis.plot(at, trials, **single, alpha=0.4)
    if own and own[0]["memory"] is not None:
      memory = [cell["memory"] for cell in own]
      axis.plot(x, memory, color=style["color"], linestyle=":", linewidth=1)
  if any(cell["memory"] is not None for cell in cells):
    axis.plot([], [], color="black", linestyle=":", label="a memory of d_h labels")
  axis.set(xscale="log", xlabel="width d_h", ylabel="risk", ylim=(0, 1.1))
  axis.set_xticks(units, [f"{value}" for value in units.tolist()])
  axis.minorticks_off()
  axis.grid(alpha=0.25)
  axis.legend(frameon=False, fontsize=8)


def _draw_smallest(
  axis: matplotlib.axes.Axes,
  entries: Sequence[Mapping[str, Any]],
  models: Sequence[str],
) -> None:
  lengths = np.unique([e["length"] for entry in entries for e in entry["lengths"]])
  for k, entry in enumerate(entries):
    style = style_of(models.index(entry["model"]))
    if entry["task"] == "simple_qstr":
      style["fillstyle"] = "none"
    shift = aside(lengths, True, k - (len(entries) - 1) / 2)
    label = f"{_TASKS[entry['task']]}, {entry['model']}"
    if entry["c"] is not None:
      label += f": N^{entry['c']:.2f}"
    known = [e for e in entry["lengths"] if e["units"] is not None]
    x = shift([e["length"] for e in known])
    axis.plot(x, [e["units"] for e in known], **style, label=label)
    beyond = [e for e in entry["lengths"] if e["units"] is None or e["restricted"]]
    arrow = {"color": style["color"], "marker": r"$\uparrow$", "markersize": 12}
    at = shift([e["length"] for e in beyond])
    axis.plot(at, [1.25 * e["largest"] for e in beyond], linestyle="none", **arrow)
    # A width is at least 1.
    asked = [e for e in entry["lengths"] if (e["least_units"] or 0) >= 1]
    if asked:
      axis.plot(
        [e["length"] for e in asked], [e["least_units"] for e in asked], linestyle="none",
        marker="_", markersize=14, markeredgewidth=2, color=style["color"],
      )  # fmt: skip
  memories = {
    e["length"]: e["memory_units"]
    for entry in entries
    for e in entry["lengths"]
    if e["memory_units"]
  }
  if memories:
    values = list(memories.values())
    axis.plot([*memories], values, color="black", linestyle=":", label="memory of labels")
  black: dict[str, Any] = {"linestyle": "none", "color": "black"}
  bar: dict[str, Any] = {"marker": "_", "markersize": 14, "markeredgewidth": 2}
  axis.plot([], [], **black, **bar, label="Proposition 8 asks for, above 1")
  arrow = {"marker": r"$\uparrow$", "markersize": 10}
  axis.plot([], [], **black, **arrow, label="not at the largest width")
  axis.set(xscale="log", yscale="log", xlabel="length N", ylabel="d_h")
  axis.set_xticks(lengths, [f"{value}" for value in lengths.tolist()])
  axis.minorticks_off()
  low, high = axis.get_ylim()
  axis.set_ylim(low, high * (high / low) ** 0.9)  # room for the legend
  axis.grid(alpha=0.25)
  axis.legend(frameon=False, fontsize=7, loc="upper left")


def _draw_norms(
  axis: matplotlib.axes.Axes,
  cells: Sequence[Mapping[str, Any]],
  models: Sequence[str],
) -> None:
  drawn = [cell for cell in cells if cell["least_frobenius"]]
  for k, model in enumerate(models):
    own = [cell for cell in drawn if cell["model"] == model]
    ratios = [cell["frobenius"] / cell["least_frobenius"] for cell in own]
    style = {**STYLES[k % len(STYLES)], "linestyle": "none"}
    axis.plot([cell["risk"] for cell in own], ratios, **style, label=model)
  axis.axhline(1, color="black", linewidth=1.2, label="what the risk allows")
  least = min((cell["risk"] for cell in drawn), default=0.1)
  axis.set(xscale="log", yscale="log", xlabel="risk on 1STR", xlim=(least / 1.5, 1.2),
           ylabel="L ||U||_F over the least", title="norm of what is read")  # fmt: skip
  axis.grid(alpha=0.25)
  axis.legend(frameon=False, fontsize=8)
