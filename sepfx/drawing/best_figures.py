"""The figure of architectures at their best learning rates, or other settings."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.figure
import matplotlib.lines
import numpy as np

from sepfx.drawing.legends import handle_of, legend_below
from sepfx.drawing.looks import columns, fit_labels, inches, points, styles_of
from sepfx.drawing.marks import (
  AT_MOST,
  BOUND,
  aside,
  draw_arrows,
  leave_room,
  line_with_intervals,
)
from sepfx.drawing.ticks import label_logarithmic, label_places
from sepfx.specifications import canonical
from sepfx.statistics import error_names
from sepfx.statistics.levels import Level
from sepfx.statistics.series import label_of, letter_of
from sepfx.statistics.summary import at_level

# What all architectures are trained with in the publication.
PUBLISHED: Mapping[str, Any] = {"learning_rate": 1e-3, "batch_size": 64}
# Laws of n, and their lines.
_LAWS: Mapping[str, Any] = {
  "n = a + b log {}": (0, (1, 1.5)),
  "n = a {}^c": (0, (4, 2)),
}
_INFORMATION: Mapping[str, Any] = {"color": "black", "linestyle": ":", "marker": "."}


def best_rates(summary: Mapping[str, Any]) -> matplotlib.figure.Figure:
  """Draws n against N, or another axis, at each series' best setting, and this below.

  Args:
    summary: of `sepfx.statistics.best_summary.summarise_best`.

  Returns:
    For each level a panel, and one below for each axis of which values were chosen.
    Above, n at the best setting with its interval, and faint, n at the published one; an
    arrow up where an n is a lower bound, since trials spent their budget; one down where
    it is an upper bound, since the setting is at an edge of those tried. Below, the best
    value, hollow at an edge. Against another axis than the length, dotted, the prompts
    that any learner needs, where that is known: on average over links, and in the legend
    where they lie below the axis.
  """
  levels = [Level(**own) for own in summary["levels"]]
  against = summary["against"]
  names = list(dict.fromkeys(entry["series"] for entry in summary["best"]))
  styles = styles_of(names)
  chosen = summary["axes"]
  across = columns(len(levels), len(levels), 1.25)
  down = -(-len(levels) // across)
  rows = 1 + len(chosen)
  figure = matplotlib.figure.Figure(
    figsize=inches(6.4 * across, (5.2 + 2 * len(chosen)) * down), layout="constrained"
  )
  heights = (3, *[1.2] * len(chosen)) * down
  axes = figure.subplots(rows * down, across, squeeze=False, height_ratios=heights)
  blocks = axes.reshape(down, rows, across).swapaxes(1, 2).reshape(-1, rows)
  for level, (upper, *lower) in itertools.zip_longest(levels, blocks):
    if level is None:  # a place left over
      for axis in (upper, *lower):
        axis.set_axis_off()
      continue
    for axis in lower:
      axis.sharex(upper)
    for axis in (upper, *lower[:-1]):
      axis.tick_params(labelbottom=False)
    best = at_level(summary["best"], level)
    cells = at_level(summary["cells"], level)
    places = np.array(sorted({entry[against] for entry in best}))
    scales = [_scale(axis, name, cells) for axis, name in zip(lower, chosen, strict=True)]
    for k, (name, style) in enumerate(styles.items()):
      shift = aside(places, True, k - (len(styles) - 1) / 2)
      own = [entry for entry in best if entry["series"] == name]
      line_with_intervals(figure, upper, own, against, shift, style)
      edge = [entry for entry in own if entry["edge"] and not entry["at_most"]]
      x = shift([entry[against] for entry in edge])
      n = [entry["mean"] if entry["low"] is None else entry["low"] for entry in edge]
      draw_arrows(figure, upper, x, n, AT_MOST, style["color"], points=-18)
      published = [c for c in cells if c["series"] == name and _is_published(c, chosen)]
      _draw_faintly(figure, upper, published, against, shift, style)
      for entry in at_level(summary["exponents"], level):
        if entry["series"] == name and entry.get("laws"):
          _draw_laws(upper, entry, shift, style)
      for axis, of, height in zip(lower, chosen, scales, strict=True):
        _draw_chosen(axis, own, of, height, against, shift, style)
    for axis in (upper, *lower):
      axis.set_xscale("log")
      label_places(axis.xaxis, places)
      axis.grid(alpha=0.25)
    upper.set_yscale("log")
    leave_room(upper)
    if against != "length":
      _draw_information(upper, best, against)
    if len(places) == 1:
      upper.set_xlim(places[0] / 1.2, places[0] * 1.2)
    error = error_names.short(summary["error"])
    upper.set(ylabel="training prompts n", title=f"test {error} below {level}")
    label_logarithmic(upper.yaxis)
    lower[-1].set_xlabel(label_of(against))
  fit_labels(figure)
  figure.align_ylabels()
  legend_below(figure, _legend(styles, summary))
  return figure


def _draw_information(axis, best, against) -> None:
  """A line for each of those that series differ in: lengths, say.

  It lies far below all else, as a rule: the axis stays as it is, the legend has numbers.
  """
  axis.autoscale(False)
  lines = set()
  for name in dict.fromkeys(entry["series"] for entry in best):
    own = [e for e in best if e["series"] == name and e["information"]]
    lines.add(tuple(sorted((e[against], e["information"]) for e in own)))
  for line in sorted(filter(None, lines)):
    axis.plot(*zip(*line, strict=True), **_INFORMATION)


def _draw_laws(axis, entry, shift, style) -> None:
  """The logarithm and the power that fit the trials best, over their lengths."""
  laws, over = entry["laws"], entry["over"]
  x = np.geomspace(over[0], over[-1], 100)
  curves = (laws["a"] + laws["b"] * np.log(x), laws["scale"] * x ** laws["c"])
  for n, dashes in zip(curves, _LAWS.values(), strict=True):
    axis.plot(
      shift(x), n, color=style["color"], linestyle=dashes, linewidth=points(1), alpha=0.7
    )


def _draw_faintly(figure, axis, cells, against, shift, style) -> None:
  x = shift([cell[against] for cell in cells])
  axis.plot(
    x, [cell["mean"] for cell in cells], **style, alpha=0.3,
    linewidth=points(1), markersize=points(4),
  )  # fmt: skip
  spent = [cell for cell in cells if cell["restricted"]]
  x, n = shift([cell[against] for cell in spent]), [cell["mean"] for cell in spent]
  draw_arrows(figure, axis, x, n, {**BOUND, "alpha": 0.3}, style["color"], points=24)


def _scale(axis, name: str, cells: Sequence[Mapping]) -> Callable[[Any], float]:
  """Makes an axis one of all values that were tried; returns where each stands on it."""
  tried = list(dict.fromkeys(cell[name] for cell in cells))
  axis.set_ylabel(f"best {name.replace('_', ' ')}")
  numbers = all(isinstance(value, int | float) for value in tried)
  tried = sorted(tried) if numbers else tried
  if numbers and tried[0] > 0:
    axis.set_yscale("log")
    axis.set_ylim(tried[0] / 1.8, tried[-1] * 1.8)
    label_places(axis.yaxis, tried)
    return float
  axis.set_ylim(-0.5, len(tried) - 0.5)
  axis.set_yticks(range(len(tried)), map(canonical, tried))
  return tried.index


def _is_published(cell: Mapping, chosen: Sequence[str]) -> bool:
  return {*chosen} <= {*PUBLISHED} and all(
    np.isclose(cell[name], PUBLISHED[name]) for name in chosen
  )


def _draw_chosen(axis, entries, of, height, against, shift, style) -> None:
  known = [entry for entry in entries if entry["trials"]]
  x, values = shift([e[against] for e in known]), [height(e[of]) for e in known]
  line = {k: style[k] for k in ("color", "linestyle")}
  axis.plot(x, values, **line, linewidth=points(1))
  for at, value, entry in zip(x, values, known, strict=True):
    face = "white" if of in entry["edges"] else style["color"]
    axis.plot(
      [at], [value], linestyle="none", marker=style["marker"], markersize=points(6),
      color=style["color"], markerfacecolor=face,
    )  # fmt: skip


def _legend(styles, summary) -> list[matplotlib.lines.Line2D]:
  handles = [handle_of(name, **style, linewidth=2) for name, style in styles.items()]
  handles.append(handle_of("mean and 95% interval", marker="|", markersize=10))
  chosen = summary["axes"]
  if any(_is_published(cell, chosen) for cell in summary["cells"]):
    texts = {"learning_rate": "rate", "batch_size": "batch size"}
    named = " and ".join(f"{texts[axis]} {PUBLISHED[axis]:g}" for axis in chosen)
    handles.append(handle_of(f"at the published {named}", alpha=0.3, linewidth=1))
  if any(entry.get("laws") for entry in summary["exponents"]):
    letter = letter_of(summary["against"])
    for text, dashes in _LAWS.items():
      label = text.format(letter)
      handles.append(handle_of(label, alpha=0.7, linestyle=dashes, linewidth=1))
  needed = [e["information"] for e in summary["best"] if e["information"]]
  if summary["against"] != "length" and needed:
    ends = dict.fromkeys(f"{own:.2g}" for own in (min(needed), max(needed)))
    label = f"any learner: q d (1 - MSE) labels, {' to '.join(ends)}"
    handles.append(handle_of(f"{label} prompts", **_INFORMATION))
  if any(entry["restricted"] for entry in summary["best"]):
    handles.append(handle_of("lower bound: trials spent their budget", **BOUND))
  if any(entry["edge"] for entry in summary["best"]):
    what = "rate" if chosen == ["learning_rate"] else "setting"
    label = f"upper bound: {what} at an edge (hollow below)"
    handles.append(handle_of(label, **AT_MOST))
  if any(entry["at_most"] for entry in summary["best"]):
    handles.append(handle_of("at most n: passes at the first check", **AT_MOST))
  return handles
