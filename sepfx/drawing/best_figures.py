"""The figure of architectures at their best learning rates."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import matplotlib.figure
import matplotlib.lines
import numpy as np

from sepfx.drawing.legends import handle_of, legend_below
from sepfx.drawing.looks import columns, fit_labels, inches, points, styles_of
from sepfx.drawing.marks import AT_MOST, BOUND, aside, draw_arrows, line_with_intervals
from sepfx.drawing.ticks import label_logarithmic, label_places
from sepfx.statistics import error_names
from sepfx.statistics.best_summary import RATE
from sepfx.statistics.levels import Level
from sepfx.statistics.series import label_of
from sepfx.statistics.summary import at_level

# The rate that all architectures are trained at in the publication.
PUBLISHED_RATE = 1e-3
_INFORMATION: Mapping[str, Any] = {"color": "black", "linestyle": ":", "marker": "."}


def best_rates(summary: Mapping[str, Any]) -> matplotlib.figure.Figure:
  """Draws n against N, or another axis, at each series' best rate, and that rate below.

  Args:
    summary: of `sepfx.statistics.best_summary.summarise_best`.

  Returns:
    Two panels for each level. Above, n at the best rate with its interval, and faint, n
    at the published rate; an arrow up where an n is a lower bound, since trials spent
    their budget; one down where it is an upper bound, since the rate is at an edge of
    those tried. Below, the best rate, hollow at an edge. Against another axis than the
    length, dotted, the prompts that any learner needs, where that is known: on average
    over links, and in the legend where they lie below the axis.
  """
  levels = [Level(**own) for own in summary["levels"]]
  against = summary["against"]
  names = list(dict.fromkeys(entry["series"] for entry in summary["best"]))
  styles = styles_of(names)
  across = columns(len(levels), len(levels), 1.25)
  down = -(-len(levels) // across)
  figure = matplotlib.figure.Figure(
    figsize=inches(6.4 * across, 7.2 * down), layout="constrained"
  )
  axes = figure.subplots(2 * down, across, squeeze=False, height_ratios=(3, 1.2) * down)
  pairs = zip(axes[::2].ravel(), axes[1::2].ravel(), strict=True)
  for level, (upper, lower) in itertools.zip_longest(levels, pairs):
    if level is None:  # a place left over
      upper.set_axis_off()
      lower.set_axis_off()
      continue
    lower.sharex(upper)
    upper.tick_params(labelbottom=False)
    best = at_level(summary["best"], level)
    cells = at_level(summary["cells"], level)
    places = np.array(sorted({entry[against] for entry in best}))
    for k, (name, style) in enumerate(styles.items()):
      shift = aside(places, True, k - (len(styles) - 1) / 2)
      own = [entry for entry in best if entry["series"] == name]
      line_with_intervals(figure, upper, own, against, shift, style)
      edge = [entry for entry in own if entry["edge"] and not entry["at_most"]]
      x = shift([entry[against] for entry in edge])
      n = [entry["mean"] if entry["low"] is None else entry["low"] for entry in edge]
      draw_arrows(figure, upper, x, n, AT_MOST, style["color"], points=-18)
      at_published = [
        c for c in cells if c["series"] == name and np.isclose(c[RATE], PUBLISHED_RATE)
      ]
      _draw_faintly(figure, upper, at_published, against, shift, style)
      _draw_rates(lower, own, against, shift, style)
    for axis in (upper, lower):
      axis.set(xscale="log", yscale="log")
      label_places(axis.xaxis, places)
      axis.grid(alpha=0.25)
    _leave_room(upper)
    if against != "length":
      _draw_information(upper, best, against)
    if len(places) == 1:
      upper.set_xlim(places[0] / 1.2, places[0] * 1.2)
    tried = sorted({cell[RATE] for cell in cells})
    lower.set_ylim(tried[0] / 1.8, tried[-1] * 1.8)
    label_places(lower.yaxis, tried)
    error = error_names.short(summary["error"])
    upper.set(ylabel="training prompts n", title=f"test {error} below {level}")
    label_logarithmic(upper.yaxis)
    lower.set(xlabel=label_of(against), ylabel="best learning rate")
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


def _leave_room(axis) -> None:
  """Room for arrows above and below, also where all n are nearly the same."""
  axis.margins(y=0.21)
  low, high = axis.get_ylim()
  wider = max(1.0, (10 / (high / low)) ** 0.5)  # a factor of ten at least
  axis.set_ylim(low / wider, high * wider)


def _draw_faintly(figure, axis, cells, against, shift, style) -> None:
  x = shift([cell[against] for cell in cells])
  axis.plot(
    x, [cell["mean"] for cell in cells], **style, alpha=0.3,
    linewidth=points(1), markersize=points(4),
  )  # fmt: skip
  spent = [cell for cell in cells if cell["restricted"]]
  x, n = shift([cell[against] for cell in spent]), [cell["mean"] for cell in spent]
  draw_arrows(figure, axis, x, n, {**BOUND, "alpha": 0.3}, style["color"], points=24)


def _draw_rates(axis, entries, against, shift, style) -> None:
  known = [entry for entry in entries if entry[RATE] is not None]
  x, rates = shift([e[against] for e in known]), [e[RATE] for e in known]
  line = {k: style[k] for k in ("color", "linestyle")}
  axis.plot(x, rates, **line, linewidth=points(1))
  for at, entry in zip(x, known, strict=True):
    face = "white" if entry["edge"] else style["color"]
    axis.plot(
      [at], [entry[RATE]], linestyle="none", marker=style["marker"], markersize=points(6),
      color=style["color"], markerfacecolor=face,
    )  # fmt: skip


def _legend(styles, summary) -> list[matplotlib.lines.Line2D]:
  handles = [handle_of(name, **style, linewidth=2) for name, style in styles.items()]
  handles.append(handle_of("mean and 95% interval", marker="|", markersize=10))
  rates = {cell[RATE] for cell in summary["cells"]}
  if any(np.isclose(rate, PUBLISHED_RATE) for rate in rates):
    label = f"at the published rate, {PUBLISHED_RATE:g}"
    handles.append(handle_of(label, alpha=0.3, linewidth=1))
  needed = [e["information"] for e in summary["best"] if e["information"]]
  if summary["against"] != "length" and needed:
    ends = dict.fromkeys(f"{own:.2g}" for own in (min(needed), max(needed)))
    label = f"any learner: q d (1 - MSE) labels, {' to '.join(ends)}"
    handles.append(handle_of(f"{label} prompts", **_INFORMATION))
  if any(entry["restricted"] for entry in summary["best"]):
    handles.append(handle_of("lower bound: trials spent their budget", **BOUND))
  if any(entry["edge"] for entry in summary["best"]):
    handles.append(handle_of("upper bound: rate at an edge (hollow below)", **AT_MOST))
  if any(entry["at_most"] for entry in summary["best"]):
    handles.append(handle_of("at most n: passes at the first check", **AT_MOST))
  return handles
