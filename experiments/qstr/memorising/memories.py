"""Norms and risks of networks trained on few labels: Theorem 9 beside training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.figure
import numpy as np

from sepfx.drawing.legends import legend_below
from sepfx.drawing.looks import fit_labels, grid, points, styles_of_numbers
from sepfx.drawing.ticks import label_logarithmic
from sepfx.ensembles import Records
from sepfx.statistics.intervals import student_interval
from sepfx.statistics.summary import json_values

from ..norm_figures import crossings

# Below this share of what a constant has, a risk says that the task was learned.
_LEARNED = 0.5


def summarise_memories(
  records: Records,
  token_dim: int,
  memorised: Mapping[int, float],
  slots: Mapping[int, float],
) -> dict[str, Any]:
  """Summarises trials by what they fit, what they predict, and their norm.

  Args:
    records: of axes `length` and `sample_size`, with the probes `generalisation` and
      `norms`. Labels have variance 1.
    token_dim: d.
    memorised: n -> median squared norm of networks that memorise n labels (Lemma 36),
      n ascending.
    slots: N -> squared norm of N slots, which solve 1STR.

  Returns:
    `cells`: for each N and n the means over trials, with 95% Student-t intervals NAME_low
    and NAME_high, cut at 0: `train`, the risk on the labels that were seen; `risk`, on
    fresh prompts. `squared_norm` of all parameters, its mean and interval those of its
    logarithm. None where a trial diverged.
    `memorised`, `lengths`: as given, as `experiments.qstr.norm_figures.crossings` takes
    them.
    `crossings`: for each N, `constructed`, the n where both constructions have one norm,
    None if it is outside of `memorised`; and `learned`, the least n whose risk is below
    one half, interval included, None if there is none.
    `token_dim`: d.
  """
  probes = records.probes
  assert probes is not None
  cells = []
  for N in np.unique(probes["length"]).tolist():
    for n in np.unique(probes["sample_size"]).tolist():
      own = probes[(probes["length"] == N) & (probes["sample_size"] == n)]
      cell = {"length": N, "samples": n, "trials": len(own)}
      for name, each in (("train", "train_loss"), ("risk", "population_risk")):
        mean, low, high = student_interval(own[each].astype(float))
        cell |= _ends(name, (mean, np.maximum(low, 0.0), high))
      logs = student_interval(2 * np.log(own["norm"].astype(float)))
      cells.append({**cell, **_ends("squared_norm", np.exp(logs).tolist())})
  lists = {
    "memorised": [{"samples": n, "median": norm} for n, norm in memorised.items()],
    "lengths": [{"length": N, "slots_squared_norm": own} for N, own in slots.items()],
  }
  constructed = dict(zip(slots, crossings(lists), strict=True))
  found = []
  for N in dict.fromkeys(cell["length"] for cell in cells):
    known = [c for c in cells if c["length"] == N and c["risk_high"] is not None]
    below = [cell["samples"] for cell in known if cell["risk_high"] < _LEARNED]
    at = json_values({"constructed": constructed[N]})
    found.append({"length": N, **at, "learned": min(below, default=None)})
  return {"token_dim": token_dim, "cells": cells, **lists, "crossings": found}


def _ends(name: str, values: Sequence[float]) -> dict[str, Any]:
  """A mean and the ends of its interval; None where they are not finite."""
  names = (name, f"{name}_low", f"{name}_high")
  return json_values(dict(zip(names, map(float, values), strict=True)))


def draw_memories(summary: Mapping[str, Any]) -> matplotlib.figure.Figure:
  """Draws squared norms and risks against the number of labels."""
  figure, (norms, risks) = grid(2, (5.5, 4.2))
  memorised = summary["memorised"]
  norms.plot(
    [own["samples"] for own in memorised],
    [own["median"] for own in memorised],
    color="black",
    linewidth=points(1.2),
    label="memorises n labels (Lemma 36)",
  )
  styles = styles_of_numbers(slots["length"] for slots in summary["lengths"])
  for slots in summary["lengths"]:
    style = styles[slots["length"]]
    own = [cell for cell in summary["cells"] if cell["length"] == slots["length"]]
    norms.axhline(
      slots["slots_squared_norm"],
      color=style["color"],
      linestyle=":",
      linewidth=points(1.2),
      label=f"N = {slots['length']} slots solve 1STR",
    )
    label = f"N = {slots['length']}, trained"
    _line(norms, own, "squared_norm", label, style)
    _line(risks, own, "risk", f"{label}: fresh prompts", style)
    hollow = {**style, "fillstyle": "none", "linestyle": "--"}
    _line(risks, own, "train", f"{label}: labels seen", hollow)
  norms.set(yscale="log", ylabel="squared norm of all parameters")
  norms.set_title("norms of networks, trained and constructed")
  risks.set_title("risks of the trained networks")
  label_logarithmic(norms.yaxis)
  d, shown = summary["token_dim"], sorted({c["samples"] for c in summary["cells"]})
  n = np.geomspace(shown[0], max(shown[-1], d), 200)
  risks.plot(n, np.maximum(0, 1 - n / d), color="black", linewidth=points(1.2),
             label="any learner: 1 - n / d")  # fmt: skip
  risks.axhline(1, color="black", linestyle=":", linewidth=points(1), label="a constant")
  risks.set(ylabel="squared error", ylim=(0, None))
  for axis in (norms, risks):
    axis.set(xscale="log", xlabel="labels n, one of each prompt")
    label_logarithmic(axis.xaxis)
    axis.grid(alpha=0.25)
  fit_labels(figure)
  drawn = [axis.get_legend_handles_labels()[0] for axis in (norms, risks)]
  legend_below(figure, [handle for handles in drawn for handle in handles])
  return figure


def _line(axis, cells, name, label, style) -> None:
  known = [cell for cell in cells if cell[name] is not None]
  x = [cell["samples"] for cell in known]
  axis.plot(
    x, [cell[name] for cell in known], **style, linewidth=points(1.5), label=label
  )
  for cell in known:
    if cell[f"{name}_low"] is not None:
      ends = [cell[f"{name}_low"], cell[f"{name}_high"]]
      axis.plot([cell["samples"]] * 2, ends, color=style["color"], linewidth=points(1))
