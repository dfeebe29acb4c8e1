"""Risk against width, and the smallest width and norm against length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.axes
import matplotlib.figure
import matplotlib.lines
import numpy as np

from sepfx.drawing.legends import handle_of, legend_below
from sepfx.drawing.looks import fit_labels, grid, points, styles_of, styles_of_numbers
from sepfx.drawing.marks import aside
from sepfx.drawing.ticks import label_logarithmic, label_places

_TASKS = {"qstr": "1STR", "simple_qstr": "simple-1STR"}
# What is drawn beside the smallest widths: the bound, the largest width, a memory.
_ASKED: dict[str, Any] = {
  "linestyle": "none", "marker": "_", "markersize": 14, "markeredgewidth": 2,
}  # fmt: skip
# Where a mark stands that is beyond the largest width, as a factor of it.
_BEYOND_AT = 1.25
_BEYOND = {"qstr": r"$\uparrow$", "simple_qstr": r"$\Uparrow$"}
_MEMORY: dict[str, Any] = {"color": "black", "linestyle": ":"}


def draw_widths(summary: Mapping[str, Any]) -> matplotlib.figure.Figure:
  """Draws `experiments.qstr.recurrent_width.summary.summarise_widths`.

  For each model its risk against d_h on each task, and L ||U||_F of its networks of 1STR
  over the least that their risk allows; lines and marks tell N. After them the smallest
  d_h against N for both thresholds, which lines tell the models and tasks of.
  """
  cells, smallest = summary["cells"], summary["smallest"]
  tasks = list(dict.fromkeys(cell["task"] for cell in cells))
  models = list(dict.fromkeys(cell["model"] for cell in cells))
  thresholds = list(dict.fromkeys(entry["threshold"] for entry in smallest))
  units = np.unique([cell["units"] for cell in cells])
  lengths = styles_of_numbers(cell["length"] for cell in cells)
  drawn: list[tuple[str, Any, Sequence[Mapping[str, Any]]]] = []
  for model in models:
    own = [cell for cell in cells if cell["model"] == model]
    for task in tasks:
      on_task = [cell for cell in own if cell["task"] == task]
      drawn.append((f"{_TASKS[task]}, {model}", _draw_risks, on_task))
    bounded = [cell for cell in own if cell["least_frobenius"]]
    if bounded:
      drawn.append((f"norm of what is read, {model}", _draw_norms, bounded))
  figure, axes = grid(len(drawn) + len(thresholds), (4.6, 3.9), room=1.2)
  for axis, (title, draw, part) in zip(axes, drawn, strict=False):
    draw(axis, part, lengths)
    axis.set_title(title)
  for axis, threshold in zip(axes[len(drawn) :], thresholds, strict=True):
    entries = [entry for entry in smallest if entry["threshold"] == threshold]
    _draw_smallest(axis, entries, models, units)
    axis.set_title(f"smallest d_h with a risk below {threshold:g}")
  fit_labels(figure)
  legend_below(figure, _legend(summary, models, lengths))
  return figure


def _draw_risks(
  axis: matplotlib.axes.Axes,
  cells: Sequence[Mapping[str, Any]],
  lengths: Mapping[float, Mapping[str, Any]],
) -> None:
  units = np.unique([cell["units"] for cell in cells])
  for N, style in lengths.items():
    own = [c for c in cells if c["length"] == N and c["risk"] is not None]
    x = [cell["units"] for cell in own]
    axis.plot(x, [cell["risk"] for cell in own], **style)
    for cell in own:
      trials = [risk for risk in cell["risks"] if risk is not None]
      at = np.full(len(trials), cell["units"])
      single = {**style, "linestyle": "none", "markersize": points(3)}
      axis.plot(at, trials, **single, alpha=0.4)
    if own and own[0]["memory"] is not None:
      memory = [cell["memory"] for cell in own]
      axis.plot(x, memory, color=style["color"], linestyle=":", linewidth=points(1))
  axis.set(xscale="log", xlabel="width d_h", ylabel="risk")
  axis.set_ylim(bottom=0)
  label_places(axis.xaxis, units)
  axis.grid(alpha=0.25)


def _draw_smallest(
  axis: matplotlib.axes.Axes,
  entries: Sequence[Mapping[str, Any]],
  models: Sequence[str],
  units: np.ndarray,
) -> None:
  lengths = np.unique([e["length"] for entry in entries for e in entry["lengths"]])
  styles = styles_of(models)
  for k, entry in enumerate(entries):
    style = _style(entry["task"], styles[entry["model"]])
    shift = aside(lengths, True, k - (len(entries) - 1) / 2)
    known = [e for e in entry["lengths"] if e["units"] is not None]
    x = shift([e["length"] for e in known])
    axis.plot(x, [e["units"] for e in known], **style)
    beyond = [e for e in entry["lengths"] if _is_beyond(e)]
    at = shift([e["length"] for e in beyond])
    axis.plot(
      at, [_BEYOND_AT * e["largest"] for e in beyond], linestyle="none",
      color=style["color"], marker=_BEYOND[entry["task"]], markersize=points(11),
    )  # fmt: skip
    asked = [e for e in entry["lengths"] if _is_asked(e)]
    if asked:
      axis.plot(
        [e["length"] for e in asked], [e["least_units"] for e in asked],
        **_ASKED, color=style["color"],
      )  # fmt: skip
  memories = {
    e["length"]: e["memory_units"]
    for entry in entries
    for e in entry["lengths"]
    if e["memory_units"]
  }
  if memories:
    values = list(memories.values())
    axis.plot([*memories], values, **_MEMORY)
  axis.set(xscale="log", yscale="log", xlabel="length N", ylabel="width d_h")
  label_places(axis.yaxis, units)
  label_places(axis.xaxis, lengths)
  axis.margins(x=0.08, y=0.12)  # room for the arrows
  axis.grid(alpha=0.25)


def _is_beyond(point: Mapping[str, Any]) -> bool:
  """Whether some trials of a length were not below at the largest width."""
  return point["units"] is None or point["restricted"]


def _is_asked(point: Mapping[str, Any]) -> bool:
  """Whether the bound on the width asks for anything: each width is at least 1."""
  return (point["least_units"] or 0) > 1


def _style(task: str, style: Mapping[str, Any]) -> dict[str, Any]:
  """That of a model: full on 1STR, hollow on simple-1STR."""
  return {**style, "fillstyle": "none"} if task == "simple_qstr" else {**style}


def _legend(
  summary: Mapping[str, Any],
  models: Sequence[str],
  lengths: Mapping[float, Mapping[str, Any]],
) -> list[matplotlib.lines.Line2D]:
  """What all panels show, with the exponents of each threshold."""
  cells, entries = summary["cells"], summary["smallest"]
  handles = [handle_of(f"N = {N}", **style) for N, style in lengths.items()]
  if any(cell["memory"] is not None for cell in cells):
    handles.append(handle_of("a memory of d_h labels", **_MEMORY, linewidth=1))
  if any(cell["least_frobenius"] for cell in cells):
    handles.append(handle_of("norms: least that the risk allows", linewidth=1.2))
  if any(e["c"] is not None for e in entries):
    below = dict.fromkeys(f"below {e['threshold']:g}" for e in entries)
    label = rf"$c$ of $d_h \sim N^c$, at risks {', '.join(below)}:"
    handles.append(handle_of(label, linestyle="none"))
  for task, model in dict.fromkeys((e["task"], e["model"]) for e in entries):
    own = [e for e in entries if (e["task"], e["model"]) == (task, model)]
    label = f"{_TASKS[task]}, {model}"
    if any(e["c"] is not None for e in own):
      label += f": {', '.join(map(_exponent, own))}"
    handles.append(handle_of(label, **_style(task, styles_of(models)[model])))
  points_of = [(entry["task"], e) for entry in entries for e in entry["lengths"]]
  if any(e["memory_units"] for _, e in points_of):
    handles.append(handle_of("a memory of labels of 1STR", **_MEMORY))
  if any(_is_asked(e) for _, e in points_of):
    handles.append(handle_of("Proposition 8 asks for, above 1", **_ASKED))
  for task in dict.fromkeys(task for task, e in points_of if _is_beyond(e)):
    label = f"{_TASKS[task]}: some trials not at the largest width"
    arrow = {"linestyle": "none", "marker": _BEYOND[task], "markersize": 11}
    handles.append(handle_of(label, **arrow))
  return handles


def _exponent(entry: Mapping[str, Any]) -> str:
  if entry["c"] is None:
    return "unknown"
  ends = f" [{entry['low']:.2f}, {entry['high']:.2f}]" if entry["low"] is not None else ""
  return f"{entry['c']:.2f}{ends}"


def _draw_norms(
  axis: matplotlib.axes.Axes,
  cells: Sequence[Mapping[str, Any]],
  lengths: Mapping[float, Mapping[str, Any]],
) -> None:
  for N, style in lengths.items():
    own = [cell for cell in cells if cell["length"] == N]
    ratios = [cell["frobenius"] / cell["least_frobenius"] for cell in own]
    axis.plot([cell["risk"] for cell in own], ratios, **{**style, "linestyle": "none"})
  axis.axhline(1, color="black", linewidth=points(1.2))
  least = min(cell["risk"] for cell in cells)
  axis.set(xscale="log", yscale="log", xlabel="risk on 1STR", xlim=(least / 1.5, 1.2),
           ylabel="L ||U||_F over the least")  # fmt: skip
  axis.set_ylim(bottom=0.2)
  for side in (axis.xaxis, axis.yaxis):
    label_logarithmic(side)
  axis.grid(alpha=0.25)
