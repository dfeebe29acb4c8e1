"""Figures of parities that are told step by step, beside those that are not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.axes
import matplotlib.figure
import numpy as np
from matplotlib.ticker import FixedLocator

from sepfx.drawing.looks import fit_labels, grid, points, styles_of_numbers
from sepfx.drawing.success_figures import draw_critical, draw_fractions
from sepfx.ensembles import Records
from sepfx.statistics.series import series

# Errors below it stand at 0, on the linear part of their axis.
_SMALLEST = 1e-4


def chains(records: Records, summary: Mapping[str, Any]) -> matplotlib.figure.Figure:
  """Draws success against n, critical sizes against T, and errors of steps and answers.

  Args:
    records: as `summarise_chains` takes them.
    summary: what that returned.

  Returns:
    A panel per series of success; one of critical sizes in strings, and in labels where
    a string has several; and one of the answers' errors against the union bound over
    the steps, a mark for each trial of several steps.
  """
  names = list(dict.fromkeys(entry["series"] for entry in summary["critical"]))
  figure, axes = grid(len(names) + 2, (5.5, 4.4), most=2, room=2)
  for axis, name in zip(axes, names, strict=False):
    draw_fractions(axis, name, summary)
    axis.set_xlabel("strings n")
    axis.set_title(f"success, {name}")
  critical, errors = axes[len(names) :]
  both = _with_labels(summary)
  draw_critical(
    figure, critical, list(dict.fromkeys(c["series"] for c in both["critical"])), both
  )
  critical.set_ylabel("strings or labels at which half succeed")
  _draw_errors(errors, records, summary)
  fit_labels(figure)
  return figure


def _with_labels(summary: Mapping[str, Any]) -> dict[str, Any]:
  """The summary, with a second series in labels where a string has several."""
  units = {
    (entry["series"], entry["length"]): entry["labels_per_string"]
    for entry in summary["critical"]
  }

  def counted(entries, fields):
    for entry in entries:
      unit = units[entry["series"], entry["length"]]
      if unit > 1:
        own = {k: unit * entry[k] for k in fields if entry[k] is not None}
        yield {**entry, **own, "series": f"{entry['series']}, in labels"}

  return {
    **summary,
    "cells": [*summary["cells"], *counted(summary["cells"], ["sample_size"])],
    "critical": [
      *summary["critical"],
      *counted(summary["critical"], ["size", "low", "high", "smallest", "largest"]),
    ],
  }  # fmt: skip


def _draw_errors(
  axis: matplotlib.axes.Axes, records: Records, summary: Mapping[str, Any]
) -> None:
  assert records.probes is not None
  names = series(records, ("length", "sample_size"))
  units = {
    (entry["series"], entry["length"]): entry["labels_per_string"]
    for entry in summary["critical"]
  }
  own = dict(zip(map(records.name_of, records.table), names, strict=True))
  lengths = sorted({length for (_, length), unit in units.items() if unit > 1})
  for length, style in styles_of_numbers(lengths).items():
    found = [
      (row["union_bound"], row["chain_error"])
      for row in records.probes
      if row["length"] == length and units[own[records.name_of(row)], length] > 1
    ]
    bound, error = np.array(found).T
    axis.plot(
      bound,
      error,
      **{**style, "linestyle": "none"},
      markersize=points(5),
      alpha=0.7,
      label=f"T = {length}",
    )
  line = np.geomspace(_SMALLEST, 1, 50)
  axis.plot(
    [0, *line], [0, *line], color="black", linewidth=points(0.8), label="bound attained"
  )
  axis.axhline(0.5, color="black", linewidth=points(0.8), linestyle=":")
  for scale in (axis.set_xscale, axis.set_yscale):
    scale("symlog", linthresh=_SMALLEST)
  # Every second power: labels of all would touch where the panel is narrow.
  for side in (axis.xaxis, axis.yaxis):
    side.set_major_locator(FixedLocator([0, 1e-4, 1e-2, 1]))
  axis.set_ylim(-_SMALLEST / 2, 1)
  axis.set_xlim(-_SMALLEST / 2, None)
  axis.set(
    xlabel="(T - 1) p, p the error of a step", ylabel="error of the answer",
    title="own chains of each trial, and the union bound",
  )  # fmt: skip
  axis.legend(frameon=False, fontsize="small")
  axis.grid(alpha=0.25)
