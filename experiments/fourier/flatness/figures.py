"""Figures of how flat trained and constructed weights are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.artist
import matplotlib.figure
import numpy as np
from matplotlib.axes import Axes

from sepfx.drawing.legends import handle_of, legend_below
from sepfx.drawing.looks import (
  STYLES,
  fit_labels,
  grid,
  points,
  styles_of,
  styles_of_numbers,
)
from sepfx.drawing.marks import aside
from sepfx.drawing.ticks import label_logarithmic, label_places, label_symmetric

from .bounds import SIGMAS

_KINDS = {"learned": "-", "constructed": ":"}
_LINES = {
  "learned": "learned: full lines and marks", "constructed": "constructed: dotted, hollow"
}  # fmt: skip
_BOUNDS = {
  "truncated": "truncated (no bound)",
  "semi_analytic": "semi-analytic",
  "covering": "covering numbers",
}


def flatness(
  rows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]
) -> matplotlib.figure.Figure:
  """Draws norms, traces, what perturbations do, and bounds.

  Medians that are not positive have no place on a logarithmic axis and are left out.

  Args:
    rows: as `summarise_flatness` takes them.
    summary: what that returned.
  """
  figure, axes = grid(6, (4.6, 4.1))
  norm, trace, loss, change, flips, bounds = axes
  by = "length" if len({row["length"] for row in rows}) > 1 else "degree"
  styles = styles_of_numbers(row[by] for row in rows)
  for axis, name, label in (
    (norm, "squared_norm", "squared norm"),
    (trace, "trace", "trace of the Hessian"),
  ):
    _against_components(axis, summary["cells"], name, by, styles)
    axis.set(xlabel="number of components k", title=label, yscale="log")
    label_logarithmic(axis.yaxis)
  for axis, name, title, label in (
    (loss, "perturbed", "growth of training loss", "median"),
    (change, "trace_change", "growth of the trace", "median E Tr H - Tr H"),
    (flips, "flips", "neurons that flip", "median share"),
  ):
    axis.set(xlabel=r"$\sigma$", title=title, ylabel=label, xscale="log")
    if name == "trace_change":
      axis.set_yscale("symlog", linthresh=1.0)
      label_symmetric(axis.yaxis)
    else:
      axis.set_yscale("log")
    _against_sigma(axis, rows, name, by, styles)
  _bounds_against_gaps(bounds, rows)
  for axis in axes:
    axis.grid(alpha=0.25)
  handles: list[matplotlib.artist.Artist] = [
    handle_of(f"{by} {value}", **style) for value, style in styles.items()
  ]
  handles += [
    handle_of(_LINES[kind], linestyle=line, marker="o", markerfacecolor=face)
    for (kind, line), face in zip(_KINDS.items(), ("black", "none"), strict=True)
  ]
  handles += bounds.get_legend_handles_labels()[0]
  fit_labels(figure)
  legend_below(figure, handles)
  return figure


def spectra(
  rows: Sequence[Mapping[str, Any]], densities: Mapping[str, np.ndarray]
) -> matplotlib.figure.Figure:
  """Draws the share of the Hessian's eigenvalues whose size is above a value.

  Args:
    rows: of each trial, with its degree.
    densities: nodes and weights [rows nodes] of learned and constructed weights, as
      "learned_nodes" and so on.
  """
  figure, axes = grid(2, (4.8, 4.2))
  degrees = np.array([row["degree"] for row in rows])
  places = np.geomspace(1e-6, 1e4, 200)
  for axis, kind in zip(axes, _KINDS, strict=True):
    nodes, weights = (densities[f"{kind}_{name}"] for name in ("nodes", "weights"))
    for degree, style in styles_of_numbers(degrees.tolist()).items():
      own = degrees == degree
      above = np.abs(nodes[own])[..., None] > places
      share = np.sum(weights[own][..., None] * above, axis=1).mean(axis=0)
      axis.plot(places, share, color=style["color"],
                linestyle=style["linestyle"], label=f"degree {degree}")  # fmt: skip
    axis.set(xlabel="size of an eigenvalue", xscale="log", yscale="log", ylim=(1e-6, 1))
    axis.set(title=f"{kind} weights", ylabel="share of eigenvalues above")
    axis.grid(alpha=0.25)
    axis.legend(frameon=False, fontsize="small")
  fit_labels(figure)
  return figure


def growth(rows: Sequence[Mapping[str, Any]]) -> matplotlib.figure.Figure:
  """Draws the construction's norm and trace against T, d and k, means over the others.

  Args:
    rows: as `summarise_growth` takes them.
  """
  figure, axes = grid(6, (4.4, 3.2), most=2, room=1)
  labels = {
    "length": "number of bits T", "degree": "degree d",
    "num_components": "number of components k",
  }  # fmt: skip
  names = {"squared_norm": "squared norm", "trace": "trace of the Hessian"}
  for k, axis in enumerate(axes[len(names) :]):
    axis.sharey(axes[k % len(names)])
  panels = iter(axes)
  for along, label in labels.items():
    for name, text in names.items():
      axis = next(panels)
      places = sorted({row[along] for row in rows})
      means = [
        np.exp(np.mean([np.log(row[name]) for row in rows if row[along] == place]))
        for place in places
      ]
      axis.plot(places, means, **styles_of(["transformer"])["transformer"])
      axis.set(xscale="log", yscale="log", xlabel=label, title=text)
      axis.set_ylabel("geometric mean")
      label_places(axis.xaxis, places)
      axis.grid(alpha=0.25)
  for axis in axes:
    label_logarithmic(axis.yaxis)
  fit_labels(figure)
  return figure


def _against_components(
  axis: Axes, cells: Sequence[Mapping[str, Any]], name: str, by: str, styles
) -> None:
  """Lines where a value has one cell for each of several k, else points side by side."""
  all_places = np.unique([cell["num_components"] for cell in cells])
  for step, (value, style) in enumerate(styles.items()):
    own = [cell for cell in cells if cell[by] == value]
    places = [cell["num_components"] for cell in own]
    joined = len({*places}) == len(places) > 1
    shift = aside(all_places, False, 0 if joined else 4 * (step - (len(styles) - 1) / 2))
    for kind, line in _KINDS.items():
      values = [cell[f"{kind}_{name}"] or np.nan for cell in own]
      axis.plot(
        shift(places), values, linestyle=line if joined else "none",
        color=style["color"], marker=style["marker"],
        markerfacecolor=style["color"] if kind == "learned" else "none",
      )  # fmt: skip
  label_places(axis.xaxis, all_places)
  beside = 1 if len(all_places) > 1 else 0.2
  axis.set_xlim(all_places[0] - beside, all_places[-1] + beside)


def _against_sigma(
  axis: Axes, rows: Sequence[Mapping[str, Any]], name: str, by: str, styles
) -> None:
  for value, style in styles.items():
    own = [row for row in rows if row[by] == value]
    for kind, line in _KINDS.items():
      start = np.array(
        [row[f"{kind}_loss"] if name == "perturbed" else 0.0 for row in own]
      )
      values = np.array(
        [[row[f"{kind}_{name}_{k}"] for row in own] for k in range(len(SIGMAS))]
      )
      middle = np.median(values - start, axis=1)
      if axis.get_yscale() == "log":
        middle = np.where(middle > 0, middle, np.nan)
      # Dots: what stands between two that are left out has no line.
      axis.plot(
        SIGMAS, middle, color=style["color"], linestyle=line, marker=".",
        markersize=points(4),
      )  # fmt: skip


def _bounds_against_gaps(axis: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
  axis.set_xscale("symlog", linthresh=1e-3)
  axis.set_yscale("log")
  label_symmetric(axis.xaxis)
  for (name, label), style in zip(_BOUNDS.items(), STYLES, strict=False):
    for kind in _KINDS:
      if f"{kind}_{name}" not in rows[0]:
        continue
      axis.plot(
        [row["gap"] for row in rows],
        [row[f"{kind}_{name}"] for row in rows],
        **{**style, "linestyle": "none"},
        markersize=points(4),
        markerfacecolor=style["color"] if kind == "learned" else "none",
        label=f"{label}, {kind}",
      )
  axis.axhline(1, color="black", linewidth=points(0.7))
  axis.set(xlabel="measured gap", title="bounds; line: best constant's loss")
