"""Figures for people: drawn from records and summaries only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import matplotlib.artist
import matplotlib.axes
import matplotlib.figure
import matplotlib.lines
import matplotlib.transforms
import numpy as np
import scipy  # loads its parts where they are used

from sepfx.drawing import looks
from sepfx.drawing.legends import handle_of, legend_below
from sepfx.drawing.marks import (
  AT_MOST,
  BOUND,
  NOT_REACHED,
  aside,
  draw_arrows,
  line_with_intervals,
  vertical,
)
from sepfx.drawing.ticks import label_logarithmic, label_places
from sepfx.ensembles import Records
from sepfx.statistics import error_names
from sepfx.statistics.levels import REFERENCE, Level
from sepfx.statistics.series import label_of, series, typeset
from sepfx.statistics.summary import LEAST_PLACES, at_level, of_level

# Width and height of a panel that is as wide as it likes, in inches.
_PANEL = (4.6, 4.0)
_MAX_COLUMNS = 3
# Exponents that a panel has room for, and from how many on they stand in two columns.
_MOST_EXPONENTS, _ONE_COLUMN = 12, 4
# A line of the smallest type and a letter of it, what a marker takes, and all that stands
# beside the axes of a panel, in inches at 10 points; the share of a panel's height that
# its axes have, and the share of that which exponents may take.
_SMALL_LINE_INCHES, _SMALL_LETTER_INCHES, _MARKER_INCHES = 0.14, 0.055, 0.25
_BESIDE_INCHES, _INSIDE, _FOR_EXPONENTS = 0.75, 0.75, 0.33
# Width of a panel, in the same inches, that has room for where the exponents are.
_SENTENCE_INCHES = 3.0
# Height of a line of a label beside a panel, in the same inches.
_LABEL_LINE_INCHES = 0.17
# What arrows above a point take, and one below it, in inches at 10 points.
_ARROW_INCHES, _LOWER_ARROW_INCHES = 0.5, 0.3

# Published means: points (N, n) by model and threshold.
Published = Mapping[tuple[str, float], Sequence[tuple[int, float]]]


def sample_complexity(
  records: Records,
  levels: Sequence[Level],
  summary: Mapping[str, Any],
  reference_risk: np.ndarray,
  published: Published,
  against: str = "length",
  panels: Sequence[int] | int | None = None,
) -> matplotlib.figure.Figure:
  """Draws samples against length for each level, and the test error behind it.

  Args:
    records: with thresholds, and curves (samples, loss, exact) if there are any.
    levels: what was to be reached, a panel each.
    summary: `sepfx.statistics.summarise` of the records.
    reference_risk: risk of uniform attention, [rows], NaN where there is none.
    published: published means to draw beside; may be empty.
    against: the numeric column to draw against, the length or another one.
    panels: places of those to draw, from 0; None for all.

  Returns:
    One panel for each level, and where there are curves one with the test error at the
    largest length that all series have (the largest of all if they have none in common).

  Raises:
    InvalidSetting: for a panel that there is not.
  """
  names = series(records, (against,))
  if against != "length":
    published = {}
  published = {key: points for key, points in published.items() if key[0] in names}
  styles = looks.styles_of(names.tolist())
  shown = looks.panels_of(panels, len(levels) + bool(records.all_curves))
  error = error_names.short(summary["error"])
  # Exponents of many series stand in two columns above the data.
  room = 1.8 if len(styles) > _ONE_COLUMN else 1.25
  figure, axes = looks.grid(len(shown), _PANEL, _MAX_COLUMNS, room)
  height = looks.panel_of(axes[0])[1]
  for axis, panel in zip(axes, shown, strict=True):
    if panel == len(levels):
      own = (records, names, levels, reference_risk, styles, against, error)
      _draw_losses(axis, *own)
      continue
    level = levels[panel]
    chosen = of_level(records, level, reference_risk)
    cells = at_level(summary["cells"], level)
    places = np.unique(records.table[chosen][against])
    logarithmic = bool(np.all(places > 0))
    for k, (name, style) in enumerate(styles.items()):
      # Series stand side by side, so that their intervals can be read.
      shift = aside(places, logarithmic, k - (len(styles) - 1) / 2)
      own = records.table[chosen & (names == name)]
      own_cells = [cell for cell in cells if cell["series"] == name]
      _draw_trials(figure, axis, own, own_cells, against, shift, style)
      line_with_intervals(figure, axis, own_cells, against, shift, style)
      if not level.of_uniform:
        _draw_published(axis, published.get((name, level.value), ()), style)
    _finish_counts(axis, places, against, logarithmic, f"test {error} below {level}")
  looks.fit_labels(figure)
  of_levels = [levels[panel] for panel in shown if panel < len(levels)]
  cells = [cell for level in of_levels for cell in at_level(summary["cells"], level)]
  handles = _of_series(styles)
  if of_levels:
    handles += _of_counts(cells, published)
  if len(levels) in shown:
    handles += _of_curves(records)
  height -= legend_below(figure, handles)
  for axis, panel in zip(axes, shown, strict=True):
    if panel < len(levels):
      cells = at_level(summary["cells"], levels[panel])
      spent = any(cell["reached"] < cell["trials"] for cell in cells)
      if any(cell["at_most"] for cell in cells):
        _room_below(axis, _LOWER_ARROW_INCHES, height)
      exponents = at_level(summary["exponents"], levels[panel])
      _write_exponents(axis, exponents, styles, _ARROW_INCHES * spent, height)
      label_logarithmic(axis.yaxis)
  return figure


def _draw_trials(figure, axis, own, cells, against, shift, style) -> None:
  """Each trial: where it reached the threshold, or an arrow at its budget.

  A point at the check at which it had; where checks are coarse a bar from the check
  before to that one.
  """
  by_place = {cell[against]: cell for cell in cells}
  budget, every, coarse = (
    np.array([by_place[place][name] for place in own[against].tolist()])
    for name in ("budget", "resolution", "coarse")
  )
  reached = own["outcome"] == "reached"
  x, n = shift(own[against]), own["samples"]
  points, bars = reached & ~coarse.astype(bool), reached & coarse.astype(bool)
  axis.plot(
    x[points], n[points], linestyle="none", marker=style["marker"],
    markersize=looks.points(4), color=style["color"], alpha=0.35, markeredgewidth=0,
  )  # fmt: skip
  bar = {"color": style["color"], "alpha": 0.25, "linewidth": looks.points(4)}
  for k in np.flatnonzero(bars):
    vertical(axis, x[k], n[k] - every[k], n[k], bar)
  # Above the mean's marker, which may be at the budget too; the mean's own arrow is
  # above them.
  not_reached = (x[~reached], budget[~reached])
  draw_arrows(figure, axis, *not_reached, NOT_REACHED, style["color"], points=10)


def _draw_published(axis, points, style) -> None:
  if points:
    axis.plot(
      [point[0] for point in points],
      [point[1] for point in points],
      linestyle=":",
      linewidth=looks.points(1),
      color=style["color"],
      marker=style["marker"],
      markerfacecolor="white",
      markersize=looks.points(7),
      zorder=1,
    )


def _finish_counts(axis, places, against, logarithmic, title) -> None:
  axis.set(
    xscale="log" if logarithmic else "linear",
    yscale="log",
    xlabel=label_of(against),
    ylabel="training prompts n",
    title=title,
  )
  label_places(axis.xaxis, places)
  if len(places) == 1:  # or series that stand side by side would fill the panel
    (place,) = places.tolist()
    axis.set_xlim(*((place / 2, 2 * place) if logarithmic else (place - 1, place + 1)))
  axis.grid(alpha=0.25)


def _room_below(axis, below: float, height: float) -> None:
  """Makes room for arrows below the data.

  Args:
    axis: of the panel, logarithmic in n.
    below: what they need, in inches at type of 10 points.
    height: of the panel with all that belongs to it, in inches.
  """
  share = min(looks.points(below) / (_INSIDE * height), 0.3)
  low, high = axis.get_ylim()
  axis.set_ylim(low / (high / low) ** (share / (1 - share)), high)


def _write_exponents(axis, exponents, styles, above: float, height: float) -> None:
  """Writes them above the data, each beside its series' marker.

  Args:
    axis: of the panel.
    exponents: a summary's.
    styles: of series by their names, all that the figure has.
    above: what arrows need above the data, in inches at type of 10 points.
    height: of the panel with all that belongs to it, in inches.
  """
  shown = [e for e in exponents if len(e["over"]) >= LEAST_PLACES]
  handles: list[matplotlib.artist.Artist] = []
  for e in shown:
    interval = "" if e["low"] is None else f" [{e['low']:.2f}, {e['high']:.2f}]"
    marks = {**styles[e["series"]], "linestyle": "none"}
    text = f"{e['c']:.2f}{interval}{', coarse' * e['coarse']}"
    handles.append(matplotlib.lines.Line2D([], [], **marks, label=text))
  width, _ = looks.panel_of(axis)
  columns = 1 if len(handles) <= _ONE_COLUMN else 2
  longest = max((len(str(handle.get_label())) for handle in handles), default=0)
  across = looks.points(_MARKER_INCHES + _SMALL_LETTER_INCHES * longest)
  if columns * across > width - looks.points(_BESIDE_INCHES):
    columns = 1
  lines = 1.5 + -(-len(handles) // columns)
  inside = _INSIDE * height
  share = lines * looks.points(_SMALL_LINE_INCHES) / inside
  if len(handles) > _MOST_EXPONENTS or share > _FOR_EXPONENTS:
    handles, share = [], 1.5 * looks.points(_SMALL_LINE_INCHES) / inside
  # Room for them above the data and its arrows: they must cover neither.
  share = min(share * bool(shown) + looks.points(above) / inside, 0.6)
  low, high = axis.get_ylim()
  axis.set_ylim(low, high * (high / low) ** (share / (1 - share)))
  if not shown:
    return
  title = rf"$c$ of $n \sim {typeset(shown[0]['against'])}^c$"
  if not handles and width < looks.points(_SENTENCE_INCHES):
    return
  axis.legend(
    handles=handles, title=title if handles else f"{title}: in summary.json",
    ncols=columns, loc="upper left", frameon=False,
    fontsize="x-small", title_fontsize="x-small", alignment="left",
    borderaxespad=0.2, handlelength=1, handletextpad=0.5, labelspacing=0.25,
    columnspacing=1,
  )  # fmt: skip


def _draw_losses(
  axis: matplotlib.axes.Axes,
  records,
  names,
  levels,
  reference_risk,
  styles,
  against,
  error,
) -> None:
  places = [set(records.table[against][names == name].tolist()) for name in styles]
  place = max(set.intersection(*places) or set.union(*places))
  at = records.table[against] == place
  for name, style in styles.items():
    chosen = records.where(at & (names == name))
    for curve in chosen.curves():
      axis.plot(
        curve["samples"],
        curve["loss"],
        color=style["color"],
        linestyle=style["linestyle"],
        linewidth=looks.points(1),
        alpha=0.6,
      )
      exact = curve[curve["exact"]]
      axis.plot(
        exact["samples"], exact["loss"], linestyle="none", marker=".", alpha=0.6,
        markersize=looks.points(4), color=style["color"], markeredgewidth=0,
      )  # fmt: skip
  axis.set_xscale("log")
  absolute = [level.value for level in levels if not level.of_uniform]
  name = "threshold\n" if len(absolute) == 1 else ""  # room for one line each
  lines = [(threshold, f"{name}{threshold:g}", "-") for threshold in absolute]
  for risk in np.unique(reference_risk[at][~np.isnan(reference_risk[at])]).tolist():
    name = REFERENCE.replace(" ", "\n")
    lines.append((risk, f"{name}\n{risk:.3g}", ":"))
  # Above the label's variance a curve only shows how it started.
  low, high = axis.get_ylim()
  low, high = min([low, *(value for value, _, _ in lines)]), min(1.6, high)
  low, high = max(0, low - 0.05 * (high - low)), high + 0.05 * (high - low)
  axis.set_ylim(low, high)
  line = looks.points(_LABEL_LINE_INCHES) / (_INSIDE * looks.panel_of(axis)[1])
  lines.sort()
  heights = [(value - low) / (high - low) for value, _, _ in lines]
  sizes = [line * (1 + label.count("\n")) for _, label, _ in lines]
  middles = apart(heights, sizes)
  for (value, label, linestyle), height, middle in zip(
    lines, heights, middles, strict=True
  ):
    axis.axhline(value, color="black", linewidth=1, linestyle=linestyle)
    # Beside the axis: on it, a label would lie over the curves. Led to its line.
    leader = {"arrowstyle": "-", "linewidth": looks.points(0.6), "relpos": (0, 0.5)}
    axis.annotate(
      label, (1, height), (1.05, middle), xycoords="axes fraction", va="center",
      fontsize="small", annotation_clip=False,
      arrowprops={**leader, "shrinkA": 0, "shrinkB": 0},
    )  # fmt: skip
  axis.set(
    xlabel="training prompts",
    ylabel=f"test {error}",
    title=rf"test {error} at ${typeset(against)}$ = {place:g}",
  )
  label_logarithmic(axis.xaxis)
  axis.grid(alpha=0.25)


def apart(wanted: Sequence[float], sizes: Sequence[float]) -> np.ndarray:
  """The middles of labels that do not overlap, as near to where they belong as can be.

  Args:
    wanted: middles, ascending.
    sizes: heights of the labels.
  """
  size = np.array(sizes)
  least = np.concatenate([[0.0], np.cumsum(size[:-1] + size[1:]) / 2])
  # Least squares under that order.
  moved = scipy.optimize.isotonic_regression(np.asarray(wanted) - least)
  return moved.x + least


def _of_series(styles) -> list[matplotlib.lines.Line2D]:
  return [handle_of(name, **style, linewidth=2) for name, style in styles.items()]


def _of_counts(cells, published) -> list[matplotlib.lines.Line2D]:
  handles = [handle_of("one trial", linestyle="none", marker="o", alpha=0.35)]
  if any(cell["coarse"] for cell in cells):
    bar = {"linestyle": "none", "marker": "|", "markersize": 12, "markeredgewidth": 4}
    handles.append(handle_of("one trial, between two checks", alpha=0.25, **bar))
  handles.append(handle_of("mean and 95% interval", marker="|", markersize=10))
  if any(cell["reached"] < cell["trials"] for cell in cells):
    handles.append(handle_of("threshold not reached", **NOT_REACHED))
    handles.append(handle_of("mean is a lower bound", **BOUND))
  if any(cell["at_most"] for cell in cells):
    handles.append(handle_of("at most n: passes at the first check", **AT_MOST))
  if published:
    hollow = {"linestyle": ":", "marker": "o", "markerfacecolor": "white"}
    handles.append(handle_of("published mean", **hollow))
  return handles


def _of_curves(records) -> list[matplotlib.lines.Line2D]:
  if all(np.all(curve["exact"]) for curve in records.all_curves.values()):
    return []
  label = "dots: on all test prompts"  # elsewhere an estimate, on some
  return [handle_of(label, linestyle="-", marker=".", linewidth=1)]
