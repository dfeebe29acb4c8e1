"""Figures of how flat trained and constructed weights are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.figure
import numpy as np

from sepfx.analysis.figures import STYLES
from sepfx.analysis.flatness import SIGMAS


def flatness(
  rows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]
) -> matplotlib.figure.Figure:
  """Draws norms, traces, perturbed losses and bounds of learned and constructed weights.

  Args:
    rows: as `summarise_flatness` takes them.
    summary: what that returned.
  """
  figure = matplotlib.figure.Figure(figsize=(11, 8.4), layout="constrained")
  (norms, traces), (losses, bounds) = figure.subplots(2, 2)
  degrees = sorted({cell["degree"] for cell in summary["cells"]})
  for axis, name, label in (
    (norms, "squared_norm", "squared norm"),
    (traces, "trace", "trace of the Hessian"),
  ):
    for degree, style in zip(degrees, STYLES, strict=False):
      own = [cell for cell in summary["cells"] if cell["degree"] == degree]
      places = [cell["num_components"] for cell in own]
      for kind, line in (("learned", "-"), ("constructed", ":")):
        values = [cell[f"{kind}_{name}"] or np.nan for cell in own]
        axis.plot(
          places, values, linestyle=line, color=style["color"], marker=style["marker"],
          markerfacecolor=None if kind == "learned" else "none",
          label=f"degree {degree}" if kind == "learned" else None,
        )  # fmt: skip
    axis.set(xlabel="number of components k", ylabel=label, yscale="log")
    axis.set_title(f"{label}: learned (full), constructed (dotted)", fontsize=10)
    axis.legend(frameon=False, fontsize=8)
  for kind, line in (("learned", "-"), ("constructed", ":")):
    for degree, style in zip(degrees, STYLES, strict=False):
      own = [row for row in rows if row["degree"] == degree]
      change = np.array(
        [[r[f"{kind}_perturbed_{k}"] - r[f"{kind}_loss"] for r in own]
         for k in range(len(SIGMAS))]
      )  # fmt: skip
      losses.plot(SIGMAS, np.median(change, axis=1), color=style["color"], linestyle=line)
  losses.set(
    xlabel=r"$\sigma$", ylabel="growth of the training loss", yscale="log", xscale="log"
  )
  losses.set_title("under perturbations, medians", fontsize=10)
  names = {"truncated": "truncated (no bound)", "semi_analytic": "semi-analytic"}
  for (name, label), style in zip(names.items(), STYLES, strict=False):
    for kind, filled in (("learned", True), ("constructed", False)):
      bounds.plot(
        [row["gap"] for row in rows], [row[f"{kind}_{name}"] for row in rows],
        linestyle="none", marker=style["marker"], color=style["color"], markersize=4,
        markerfacecolor=style["color"] if filled else "none",
        label=f"{label}, {kind}",
      )  # fmt: skip
  bounds.axhline(1, color="black", linewidth=0.7)
  bounds.set_xscale("symlog", linthresh=1e-3)
  bounds.set(xlabel="measured gap", ylabel="bound of the loss", yscale="log")
  bounds.set_title("bounds; the line is the best constant's loss", fontsize=10)
  bounds.legend(frameon=False, fontsize=8)
  for axis in (norms, traces, losses, bounds):
    axis.grid(alpha=0.25)
  return figure
