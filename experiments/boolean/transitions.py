"""At which step trials on fresh batches go from chance to what was to be learned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.figure
import numpy as np
import rich.table

from sepfx.drawing import looks
from sepfx.ensembles import Records
from sepfx.statistics import error_names
from sepfx.statistics.passages import Checks, cell_means
from sepfx.statistics.series import series


def transitions(
  records: Records, batch_size: np.ndarray, checks: Checks
) -> dict[str, Any]:
  """Summarises the records of a run of one threshold.

  Args:
    records: with one threshold.
    batch_size: samples per step, [rows].
    checks: of each row, in steps.

  Returns:
    JSON values: `cells`, with for each cell `steps`, the transition of each trial that
    has learned, ascending; how many trials there were and how each ended; and what
    `sepfx.statistics.passages.Mean` says of the number of steps.
  """
  cells = []
  rows = records.table
  names = series(records, ("length",))
  for length, name in dict.fromkeys(zip(rows["length"].tolist(), names, strict=True)):
    chosen = (rows["length"] == length) & (names == name)
    own = rows[chosen]
    steps = own["samples"] // batch_size[chosen].astype(int)
    reached = own["outcome"] == "reached"
    outcomes = own["outcome"].tolist()
    (found,) = cell_means(steps, reached, checks.at(chosen), own["length"]).values()
    cells.append(
      {
        "series": str(name),
        **{c: own[c][0].item() for c in records.coordinates},
        "batch_size": int(batch_size[chosen][0]),
        "steps": sorted(steps[reached].tolist()),
        "trials": len(own),
        **{o: outcomes.count(o) for o in ("reached", "censored", "diverged")},
        **{k: None if np.isnan(v) else v for k, v in found._asdict().items()},
      }
    )
  return {"cells": cells}


def draw_transitions(
  records: Records, summary: Mapping[str, Any]
) -> matplotlib.figure.Figure:
  """Draws each trial's held-out error against steps, a panel for each length.

  Args:
    records: with curves (samples, loss, exact).
    summary: `experiments.boolean.transitions` of the records.
  """
  cells = summary["cells"]
  error = error_names.short(error_names.of(records))
  lengths = sorted({cell["length"] for cell in cells})
  figure, axes = looks.grid(len(lengths), (4.4, 3.8))
  styles = looks.styles_of(cell["series"] for cell in cells)
  for cell in cells:
    axis = axes[lengths.index(cell["length"])]
    style = styles[cell["series"]]
    own = {column: cell[column] for column in records.coordinates}
    for k, curve in enumerate(records.curves(**own)):
      label = f"{cell['series']}: {cell['reached']} of {cell['trials']} learned"
      axis.plot(
        curve["samples"] // cell["batch_size"],
        curve["loss"],
        color=style["color"],
        linestyle=style["linestyle"],
        linewidth=looks.points(1),
        alpha=0.7,
        label=None if k else label,
      )
  for axis, length in zip(axes, lengths, strict=True):
    axis.set(xlabel="step", ylabel=f"held-out {error}", title=f"$T$ = {length}")
    axis.set_ylim(bottom=0)
    axis.legend(frameon=False, fontsize="small")
    axis.grid(alpha=0.25)
  looks.fit_labels(figure)
  return figure


def table_of_transitions(summary: dict) -> list[Any]:
  """When each trial went from chance to what was to be learned."""
  table = rich.table.Table("task", "T", "learned", "steps to learn")
  for cell in summary["cells"]:
    table.add_row(
      f"{cell['task']}, {cell['series']}",
      str(cell["length"]),
      f"{cell['reached']}/{cell['trials']}",
      ", ".join(f"{step:,}" for step in cell["steps"]),
    )
  return [table]
