"""Risk against the number of prompts, beside the floors of Theorem 6."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.figure
import numpy as np

from sepfx.drawing.legends import legend_below
from sepfx.drawing.looks import fit_labels, grid, points, styles_of
from sepfx.drawing.marks import aside
from sepfx.drawing.ticks import label_logarithmic, label_symmetric

# Beside a risk this high, those near 1 could not be told apart on a linear axis.
_HIGH = 10


def draw_spans(summary: Mapping[str, Any]) -> matplotlib.figure.Figure:
  """Draws `summarise_spans`: risk against n, and n / (N d) above."""
  figure, (axis,) = grid(1, (8, 5.2))
  cells, size = summary["cells"], summary["size"]
  samples = np.unique([cell["samples"] for cell in cells])
  line = np.geomspace(samples[0] / 1.3, max(samples[-1], size), 400)
  axis.plot(line, np.maximum(0, 1 - line / size), color="black", linewidth=points(1.2),
            label="Theorem 6: 1 - n / (N d)")  # fmt: skip
  floored = [cell for cell in cells if "own" in cell]
  if floored:
    x = [cell["samples"] for cell in floored]
    for name, marker, label in (
      ("own", "_", "the floor of the trials' own u"),
      ("predictor", "x", "E[y | u, t, V x], which attains it"),
    ):
      axis.plot(x, [cell[name] for cell in floored], linestyle="none", color="black",
                marker=marker, markersize=points(10), label=label)  # fmt: skip
  styles = styles_of(cell["series"] for cell in cells)
  for k, (name, style) in enumerate(styles.items()):
    # Series stand side by side, so that their intervals can be read.
    shift = aside(samples, True, k - (len(styles) - 1) / 2)
    own = [c for c in cells if c["series"] == name and c["risk"] is not None]
    x = shift([cell["samples"] for cell in own])
    risks = [cell["risk"] for cell in own]
    axis.plot(x, risks, **style, label=name, linewidth=points(1))
    for cell in own:
      if cell["risk_low"] is not None:
        ends = [cell["risk_low"], cell["risk_high"]]
        at = shift([cell["samples"]] * 2)
        axis.plot(at, ends, color=style["color"], linewidth=points(1), alpha=0.5)
    projected = [cell for cell in own if cell.get("projected_risk") is not None]
    if projected:
      hollow = {**style, "linestyle": "none", "fillstyle": "none"}
      risks = [cell["projected_risk"] for cell in projected]
      axis.plot(shift([c["samples"] for c in projected]), risks, **hollow,
                markersize=points(10), label=f"{name}, W V in place of W")  # fmt: skip
  top = 1.1 * max(1.0, *(c["risk"] for c in cells if c["risk"] is not None))
  axis.axhline(0.5, color="black", linestyle=":", linewidth=points(1))
  axis.set(xscale="log", xlabel="training prompts n", ylabel="risk", ylim=(0, top))
  if top > _HIGH:
    axis.set_yscale("symlog", linthresh=1)
    label_symmetric(axis.yaxis)
  label_logarithmic(axis.xaxis)
  above = axis.secondary_xaxis("top", functions=(lambda n: n / size, lambda r: r * size))
  above.set_xlabel(f"n / (N d), N d = {size}")
  label_logarithmic(above.xaxis)
  axis.grid(alpha=0.25)
  fit_labels(figure)
  labelled = [line for line in axis.get_lines() if str(line.get_label())[0] != "_"]
  legend_below(figure, labelled)
  return figure
