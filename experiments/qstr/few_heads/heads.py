"""Risks of Transformers with few heads beside the floors of Propositions 3 and 21."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.figure
import numpy as np

from sepfx.drawing.legends import legend_below
from sepfx.drawing.looks import fit_labels, grid, points, styles_of_numbers
from sepfx.ensembles import Records
from sepfx.statistics.intervals import student_interval

from ..bounds import lower_bounds

# Constants have this variance left, at the positions that count.
_VARIANCE = 2.0


def summarise_heads(
  records: Records, sparsity: int, token_dim: int, constructed: Sequence[float]
) -> dict[str, Any]:
  """Summarises trials by their last test error.

  Args:
    records: of axes `attention` and `num_heads`, with the probe `risk`.
    sparsity: q.
    token_dim: d.
    constructed: risks of 1 to q heads that retrieve, with a fitted read-out.

  Returns:
    `cells`: for each attention and H the trials' `risks`, their mean `risk`, its 95%
    Student-t interval `risk_low`, `risk_high` and standard `error`, None for one trial;
    `floor`, Proposition 21's for "blind" attention and Proposition 3's for any other;
    `below`, by how many standard errors the mean lies below it, at least 0.
    `lines`: by H, from 1 to q + 1, `floor`, `blind`, `printed`: both propositions, and
    the first as it is printed, at the same positions. `constructed`: as given; with
    q + 1 heads that of q.
  """
  assert records.probes is not None
  q, d = sparsity, token_dim
  cells = []
  for attention in dict.fromkeys(records.probes["attention"].tolist()):
    own = records.probes[records.probes["attention"] == attention]
    for heads in np.unique(own["num_heads"]).tolist():
      risks = own["risk"][own["num_heads"] == heads].astype(float)
      mean, low, high = student_interval(risks)
      error = np.std(risks, ddof=1) / np.sqrt(len(risks)) if len(risks) > 1 else np.nan
      floor = _floors(q, d, heads)["blind" if attention == "blind" else "floor"]
      values = {"risk_low": low, "risk_high": high, "error": error}
      values["below"] = max(0.0, (floor - mean) / error) if error > 0 else np.nan
      known = {k: None if np.isnan(v) else float(v) for k, v in values.items()}
      cells.append(
        {
          "attention": attention, "num_heads": heads, "trials": len(risks),
          "risks": risks.tolist(), "risk": mean, **known, "floor": floor,
        }
      )  # fmt: skip
  lines = [
    {**_floors(q, d, H), "constructed": constructed[min(H, q) - 1]}
    for H in range(1, q + 2)
  ]
  return {"sparsity": q, "token_dim": d, "cells": cells, "lines": lines}


def _floors(sparsity: int, token_dim: int, heads: int) -> dict[str, float]:
  return {
    "num_heads": heads,
    "floor": lower_bounds.heads_floor(sparsity, token_dim, heads),
    "blind": lower_bounds.blind_heads_floor(sparsity, heads),
    "printed": _VARIANCE * lower_bounds.printed_heads_floor(sparsity, token_dim, heads),
  }


def draw_heads(summary: Mapping[str, Any]) -> matplotlib.figure.Figure:
  """Draws risks against the number of heads, with both floors and the printed one."""
  figure, (axis,) = grid(1, (7, 6))
  lines: Sequence[Mapping[str, float]] = summary["lines"]
  x = [0, *(line["num_heads"] for line in lines)]
  for name, dashes, label in (
    ("blind", "-", "Proposition 21, and heads that retrieve: 2 (1 - H/q)"),
    ("floor", "--", "Proposition 3: 2 (1 - H/q) (1 - H/d)"),
    ("printed", ":", "Proposition 3 as printed: 2 (1 - (q + d) H / (q d))"),
  ):
    values = [_VARIANCE, *(line[name] for line in lines)]
    axis.plot(
      x, values, color="black", linestyle=dashes, linewidth=points(1.2), label=label
    )
  axis.plot(
    x[1:], [line["constructed"] for line in lines], color="black", linestyle="none",
    marker="_", markersize=points(26), markeredgewidth=points(3),
    label="constructed: H heads that retrieve",
  )  # fmt: skip
  names = list(dict.fromkeys(cell["attention"] for cell in summary["cells"]))
  # Kinds of one model's attention: colours that no model is known by.
  styles = styles_of_numbers(range(len(names))).values()
  for k, (name, own_style) in enumerate(zip(names, styles, strict=True)):
    style = {**own_style, "linestyle": "none"}
    own = [cell for cell in summary["cells"] if cell["attention"] == name]
    shift = 0.06 * (k - (len(names) - 1) / 2)
    for cell in own:
      at = np.full(cell["trials"], cell["num_heads"] + shift)
      axis.plot(at, cell["risks"], **style, markersize=points(4), alpha=0.4)
    axis.plot(
      [cell["num_heads"] + shift for cell in own], [cell["risk"] for cell in own],
      **style, markersize=points(7), label=f"trained, {name}: mean and trials",
    )  # fmt: skip
  axis.set(
    xlabel="heads H", ylabel="risk at positions i >= N/2",
    title=f"q = {summary['sparsity']}, d = {summary['token_dim']}",
  )  # fmt: skip
  axis.set_xticks(x)
  worst = max(max(cell["risks"]) for cell in summary["cells"])
  axis.set_ylim(0, 1.05 * max(_VARIANCE, worst))
  axis.grid(alpha=0.25)
  fit_labels(figure)
  legend_below(figure, axis.get_legend_handles_labels()[0])
  return figure
