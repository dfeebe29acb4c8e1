"""Risk against width, and the smallest width and norm against length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.axes
import matplotlib.figure
import numpy as np

from sepfx.analysis.figures import aside
from sepfx.analysis.looks import inches, style_of, styles_of

_TASKS = {"qstr": "1STR", "simple_qstr": "simple-1STR"}
# What is drawn beside the smallest widths: the bound, the largest width, a memory.
_ASKED: dict[str, Any] = {
  "linestyle": "none", "marker": "_", "markersize": 14, "markeredgewidth": 2,
}  # fmt: skip
_BEYOND = {"qstr": r"$\uparrow$", "simple_qstr": r"$\Uparrow$"}
_MEMORY: dict[str, Any] = {"color": "black", "linestyle": ":"}


def draw_widths(summary: Mapping[str, Any]) -> matplotlib.figure.Figure:
  """Draws `sepfx.analysis.widths.summarise_widths`.

  A row for each model: its risk against d_h on each task, a line for each N, and L
  ||U||_F of its networks of 1STR, marked by N as the risks are, over the least that
  their risk allows. Below them the
  smallest d_h against N for both thresholds.
  """
  cells, smallest = summary["cells"], summary["smallest"]
  tasks = list(dict.fromkeys(cell["task"] for cell in cells))
  models = list(dict.fromkeys(cell["model"] for cell in cells))
  thresholds = list(dict.fromkeys(entry["threshold"] for entry in smallest))
  units = np.unique([cell["units"] for cell in cells])
  figure = matplotlib.figure.Figure(
    figsize=inches(13.8, 3.9 * (len(models) + 1)), layout="constrained"
  )
  axes = figure.subplots(len(models) + 1, max(len(tasks), len(thresholds)) + 1)
  for axis in axes.flat:
    axis.set_axis_off()
  for (*risks, norms), model in zip(axes, models, strict=False):
    own = [cell for cell in cells if cell["model"] == model]
    for axis, task in zip(risks, tasks, strict=False):
      axis.set_axis_on()
      _draw_risks(axis, [cell for cell in own if cell["task"] == task])
      axis.set_title(f"{_TASKS[task]}, {model}")
    bounded = [cell for cell in own if cell["least_frobenius"]]
    if bounded:
      norms.set_axis_on()
      _draw_norms(norms, bounded)
      norms.set_title(f"norm of what is read, {model}")
  for axis, threshold in zip(axes[-1], thresholds, strict=False):
    axis.set_axis_on()
    own = [entry for entry in smallest if entry["threshold"] == threshold]
    _draw_smallest(axis, own, models, units)
    axis.set_title(f"smallest d_h with a risk below {threshold:g}")
  _draw_legend(axes[-1][-1], smallest, models)
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
  axis.set(xscale="log", xlabel="width d_h", ylabel="risk", ylim=(0, 1.4))
  axis.set_xticks(units, [f"{value}" for value in units.tolist()])
  axis.minorticks_off()
  axis.grid(alpha=0.25)
  axis.legend(frameon=False, fontsize="small", ncol=3, loc="upper center")


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
      at, [1.25 * e["largest"] for e in beyond], linestyle="none", markersize=11,
      color=style["color"], marker=_BEYOND[entry["task"]],
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
  axis.set_yticks(units, [f"{value}" for value in units.tolist()])
  axis.set_xticks(lengths, [f"{value}" for value in lengths.tolist()])
  axis.minorticks_off()
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


def _draw_legend(
  axis: matplotlib.axes.Axes,
  entries: Sequence[Mapping[str, Any]],
  models: Sequence[str],
) -> None:
  """What the panels of the smallest widths show, with the exponents of each threshold."""
  for task, model in dict.fromkeys((e["task"], e["model"]) for e in entries):
    own = [e for e in entries if (e["task"], e["model"]) == (task, model)]
    label = f"{_TASKS[task]}, {model}"
    for e in own:
      if e["c"] is not None:
        ends = f"[{e['low']:.2f}, {e['high']:.2f}]" if e["low"] is not None else ""
        label += f"\n  below {e['threshold']:g}: $N^{{{e['c']:.2f}}}$ {ends}"
    axis.plot([], [], **_style(task, styles_of(models)[model]), label=label)
  points = [(entry["task"], e) for entry in entries for e in entry["lengths"]]
  if any(e["memory_units"] for _, e in points):
    axis.plot([], [], **_MEMORY, label="a memory of labels of 1STR")
  if any(_is_asked(e) for _, e in points):
    axis.plot([], [], color="black", **_ASKED, label="Proposition 8 asks for, above 1")
  for task in dict.fromkeys(task for task, e in points if _is_beyond(e)):
    label = f"{_TASKS[task]}: some trials not at the largest width"
    axis.plot([], [], "k", linestyle="none", marker=_BEYOND[task], label=label)
  axis.legend(frameon=False, fontsize="small", loc="upper left")


def _draw_norms(axis: matplotlib.axes.Axes, cells: Sequence[Mapping[str, Any]]) -> None:
  for k, N in enumerate(dict.fromkeys(cell["length"] for cell in cells)):
    own = [cell for cell in cells if cell["length"] == N]
    ratios = [cell["frobenius"] / cell["least_frobenius"] for cell in own]
    style = {**style_of(k), "linestyle": "none"}
    axis.plot([cell["risk"] for cell in own], ratios, **style)
  axis.axhline(1, color="black", linewidth=1.2, label="least that the risk allows")
  least = min(cell["risk"] for cell in cells)
  axis.set(xscale="log", yscale="log", xlabel="risk on 1STR", xlim=(least / 1.5, 1.2),
           ylabel="L ||U||_F over the least")  # fmt: skip
  axis.set_ylim(bottom=0.2)
  axis.grid(alpha=0.25)
  axis.legend(frameon=False, fontsize="small", loc="lower left", bbox_to_anchor=(0, 0.16))
