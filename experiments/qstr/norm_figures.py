"""Norms of recurrent networks that learn 1STR and of those that memorise: Theorem 9."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.figure
import numpy as np

from sepfx.drawing.legends import legend_under
from sepfx.drawing.looks import fit_labels, grid, points, styles_of, styles_of_numbers
from sepfx.drawing.ticks import label_logarithmic


def crossings(summary: Mapping[str, Any]) -> list[float]:
  """n at which memorising costs the squared norm of N slots, for each N.

  By a straight line through the logarithms of the two neighbouring medians; NaN outside
  of those that were measured.

  Args:
    summary: `lengths` with `slots_squared_norm`, `memorised` with `samples` and
      `median`, ascending.
  """
  n = np.log([own["samples"] for own in summary["memorised"]])
  norms = np.log([own["median"] for own in summary["memorised"]])
  aims = np.log([own["slots_squared_norm"] for own in summary["lengths"]])
  found = np.interp(aims, np.maximum.accumulate(norms), n, left=np.nan, right=np.nan)
  return np.exp(found).tolist()


def draw_norms(summary: Mapping[str, Any]) -> matplotlib.figure.Figure:
  """Draws what theorems ask for, norms against n and N, and where they cross.

  Args:
    summary: as `crossings` takes it; `lengths` with `length`, `transformer_samples`,
      `recurrent_samples` and `least_squared_norm` further, `memorised` with `low`,
      `high` and `bound`.
  """
  figure, (asked, norms, where) = grid(3, (4.5, 4.0))
  # The recurrent networks of the constructions have ReLUs.
  transformer, recurrent = styles_of(["transformer", "relu_rnn"]).values()
  lengths = [own["length"] for own in summary["lengths"]]
  for name, label, style in (
    ("transformer_samples", "Transformer, 1STR (Theorem 10)", transformer),
    ("recurrent_samples", "recurrent, simple-1STR (Theorem 7)", recurrent),
  ):
    asked.plot(lengths, [own[name] for own in summary["lengths"]], **style, label=label)
  asked.set(xlabel="length N", ylabel="prompts n",
            title="n that promises half of uniform attention's risk")  # fmt: skip
  n = [own["samples"] for own in summary["memorised"]]
  low, high = ([own[name] for own in summary["memorised"]] for name in ("low", "high"))
  median = [own["median"] for own in summary["memorised"]]
  norms.plot(n, median, **recurrent, label="memorises n labels: median, 5% to 95%")
  norms.fill_between(n, low, high, color=recurrent["color"], alpha=0.2)
  bound = [own["bound"] for own in summary["memorised"]]
  norms.plot(n, bound, color="black", linestyle=":", label="at most (Lemma 36)")
  shown = {own["length"]: own for own in summary["lengths"][::2]}
  for length, style in styles_of_numbers(shown).items():
    own = shown[int(length)]
    norms.axhline(own["slots_squared_norm"], color=style["color"],
                  linestyle=style["linestyle"], linewidth=points(1),
                  label=f"N = {own['length']} slots")  # fmt: skip
  norms.set(xlabel="labels n", ylabel="squared norm of all parameters",
            title="norms of memorising and of N slots")  # fmt: skip
  found = crossings(summary)
  if np.all(np.isnan(found)):
    where.plot(lengths, [min(n)] * len(lengths), alpha=0)  # for the limits alone
    where.text(0.5, 0.5, "at none of the n that were tried", transform=where.transAxes,
               horizontalalignment="center")  # fmt: skip
  else:
    where.plot(lengths, found, **recurrent)
  where.set(xlabel="length N", ylabel="labels n",
            title="n from which on learning costs less norm")  # fmt: skip
  for axis in (asked, norms, where):
    axis.set(xscale="log", yscale="log")
    axis.grid(alpha=0.25)
  for side in (asked.xaxis, norms.xaxis, where.xaxis, where.yaxis):
    label_logarithmic(side)
  fit_labels(figure)
  for axis in (asked, norms):
    legend_under(axis, axis.get_legend_handles_labels()[0])
  return figure
