"""Figures of how flat trained and constructed weights are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.figure
import numpy as np
from matplotlib.axes import Axes

from sepfx.analysis.figures import label_logarithmic
from sepfx.analysis.flatness_bounds import SIGMAS
from sepfx.analysis.looks import STYLES, inches

_KINDS = {"learned": "-", "constructed": ":"}
_BOUNDS = {
  "truncated": "truncated (no bound)",
  "semi_analytic": "semi-analytic",
  "covering": "covering numbers",
}


def flatness(
  rows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]
) -> matplotlib.figure.Figure:
  """Draws norms, traces, what perturbations do, and bounds.

  Args:
    rows: as `summarise_flatness` takes them.
    summary: what that returned.
  """
  figure = matplotlib.figure.Figure(figsize=inches(14, 8.4), layout="constrained")
  axes = figure.subplots(2, 3)
  by = "length" if len({row["length"] for row in rows}) > 1 else "degree"
  for axis, name, label in (
    (axes[0, 0], "squared_norm", "squared norm"),
    (axes[0, 1], "trace", "trace of the Hessian"),
  ):
    _against_components(axis, summary["cells"], name, by)
    axis.set(xlabel="number of components k", ylabel=label, yscale="log")
  for axis, name, label in (
    (axes[0, 2], "perturbed", "growth of the training loss"),
    (axes[1, 0], "trace_change", "growth of the trace, E Tr H - Tr H"),
    (axes[1, 1], "flips", "share of neurons that flip"),
  ):
    _against_sigma(axis, rows, name, by)
    axis.set(xlabel=r"$\sigma$", ylabel=f"{label}, medians", xscale="log")
    if name == "trace_change":
      axis.set_yscale("symlog", linthresh=1.0)
    else:
      axis.set_yscale("log")
  _bounds_against_gaps(axes[1, 2], rows)
  for axis in axes.ravel():
    axis.grid(alpha=0.25)
  figure.suptitle("learned weights: full lines and marks; constructed: dotted, hollow")
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
  figure = matplotlib.figure.Figure(figsize=inches(9.6, 4.2), layout="constrained")
  degrees = np.array([row["degree"] for row in rows])
  places = np.geomspace(1e-6, 1e4, 200)
  for axis, kind in zip(figure.subplots(1, 2, sharey=True), _KINDS, strict=True):
    nodes, weights = (densities[f"{kind}_{name}"] for name in ("nodes", "weights"))
    for degree, style in zip(np.unique(degrees), STYLES, strict=False):
      own = degrees == degree
      above = np.abs(nodes[own])[..., None] > places
      share = np.sum(weights[own][..., None] * above, axis=1).mean(axis=0)
      axis.plot(places, share, color=style["color"], label=f"degree {degree}")
    axis.set(xlabel="size of an eigenvalue", xscale="log", yscale="log", ylim=(1e-6, 1))
    axis.set_title(kind, fontsize="medium")
    axis.grid(alpha=0.25)
    axis.legend(frameon=False, fontsize="small")
    axis.set_ylabel("share of eigenvalues above" if kind == "learned" else "")
  return figure


def growth(rows: Sequence[Mapping[str, Any]]) -> matplotlib.figure.Figure:
  """Draws the construction's norm and trace against T, d and k, means over the others.

  Args:
    rows: as `summarise_growth` takes them.
  """
  figure = matplotlib.figure.Figure(figsize=inches(11, 6.6), layout="constrained")
  labels = {
    "length": "number of bits T", "degree": "degree d",
    "num_components": "number of components k",
  }  # fmt: skip
  axes = figure.subplots(2, 3, sharey="row", sharex="col")
  for row_axes, name in zip(axes, ("squared_norm", "trace"), strict=True):
    for axis, (along, label) in zip(row_axes, labels.items(), strict=True):
      places = sorted({row[along] for row in rows})
      means = [
        np.exp(np.mean([np.log(row[name]) for row in rows if row[along] == place]))
        for place in places
      ]
      axis.plot(places, means, **STYLES[0])
      axis.set(xscale="log", yscale="log", xlabel=label if name == "trace" else "")
      axis.set_xticks(places, [str(place) for place in places], minor=False)
      axis.minorticks_off()
      axis.grid(alpha=0.25)
    text = "squared norm" if name == "squared_norm" else "trace of the Hessian"
    row_axes[0].set_ylabel(f"{text}, geometric mean")
    label_logarithmic(row_axes[0].yaxis)
  return figure


def _against_components(
  axis: Axes, cells: Sequence[Mapping[str, Any]], name: str, by: str
) -> None:
  for value, style in zip(sorted({cell[by] for cell in cells}), STYLES, strict=False):
    own = [cell for cell in cells if cell[by] == value]
    places = [cell["num_components"] for cell in own]
    for kind, line in _KINDS.items():
      values = [cell[f"{kind}_{name}"] or np.nan for cell in own]
      axis.plot(
        places, values, linestyle=line, color=style["color"], marker=style["marker"],
        markerfacecolor=style["color"] if kind == "learned" else "none",
        label=f"{by} {value}" if kind == "learned" else None,
      )  # fmt: skip
  axis.legend(frameon=False, fontsize="small")


def _against_sigma(
  axis: Axes, rows: Sequence[Mapping[str, Any]], name: str, by: str
) -> None:
  for value, style in zip(sorted({row[by] for row in rows}), STYLES, strict=False):
    own = [row for row in rows if row[by] == value]
    for kind, line in _KINDS.items():
      start = np.array(
        [row[f"{kind}_loss"] if name == "perturbed" else 0.0 for row in own]
      )
      values = np.array(
        [[row[f"{kind}_{name}_{k}"] for row in own] for k in range(len(SIGMAS))]
      )
      middle = np.median(values - start, axis=1)
      axis.plot(SIGMAS, middle, color=style["color"], linestyle=line,
                label=f"{by} {value}" if kind == "learned" else None)  # fmt: skip
  axis.legend(frameon=False, fontsize="small")


def _bounds_against_gaps(axis: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
  for (name, label), style in zip(_BOUNDS.items(), STYLES, strict=False):
    for kind in _KINDS:
      if f"{kind}_{name}" not in rows[0]:
        continue
      axis.plot(
        [row["gap"] for row in rows], [row[f"{kind}_{name}"] for row in rows],
        linestyle="none", marker=style["marker"], color=style["color"], markersize=4,
        markerfacecolor=style["color"] if kind == "learned" else "none",
        label=f"{label}, {kind}",
      )  # fmt: skip
  axis.axhline(1, color="black", linewidth=0.7)
  axis.set_xscale("symlog", linthresh=1e-3)
  axis.set(xlabel="measured gap", ylabel="bound; the line is the best constant's loss")
  axis.set_yscale("log")
  axis.legend(frameon=False, fontsize="small")
