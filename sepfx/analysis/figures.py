"""Figures for people: drawn from records and summaries only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import matplotlib.artist
import matplotlib.axes
import matplotlib.axis
import matplotlib.figure
import matplotlib.lines
import matplotlib.ticker
import matplotlib.transforms
import numpy as np

from sepfx.analysis.levels import Level
from sepfx.analysis.series import label_of, letter_of, series
from sepfx.analysis.summary import at_level, of_level
from sepfx.ensembles import Records

# Colours whose luminances differ, each with a marker and a dash pattern of its own:
# the figures are read in grey too.
STYLES: Sequence[Mapping[str, Any]] = (
  {"color": "#0b3c7d", "marker": "o", "linestyle": "-"},
  {"color": "#d9730d", "marker": "s", "linestyle": "--"},
  {"color": "#2e8b57", "marker": "^", "linestyle": "-."},
  {"color": "#9b2d86", "marker": "D", "linestyle": (0, (1, 1))},
  {"color": "#6f6f6f", "marker": "v", "linestyle": (0, (5, 1, 1, 1, 1, 1))},
  {"color": "#c2a300", "marker": "P", "linestyle": (0, (8, 2))},
  {"color": "#b3262b", "marker": "X", "linestyle": (0, (3, 1, 1, 1))},
  {"color": "#1593a6", "marker": "p", "linestyle": (0, (2, 2))},
)

# How markers are filled: further series have the same styles, filled otherwise.
_FILLS = ("full", "none", "left", "top")

# Arrows on trials that spent their budget, and on means that such trials are part of.
_NOT_REACHED: Mapping[str, Any] = {
  "linestyle": "none",
  "marker": r"$\uparrow$",
  "markersize": 11,
}
BOUND = {**_NOT_REACHED, "marker": r"$\Uparrow$", "markersize": 13}

# Beyond so many decades an axis is labelled at powers of ten alone.
_DECADES_OF_LABELS = 4.5
_MAX_COLUMNS = 3
_MAX_LEGEND_COLUMNS = 4
# Room in a legend, at its usual size of type.
_HANDLE_INCHES, _LETTER_INCHES, _LINE_INCHES = 0.6, 0.08, 0.21
# Lines of a legend that panels have room for.
_LEGEND_LINES = 4
# Characters and lines of small type that a panel has room for.
_PANEL_LETTERS, _PANEL_LINES = 52, 16

# Published means: points (N, n) by model and threshold.
Published = Mapping[tuple[str, float], Sequence[tuple[int, float]]]


def sample_complexity(
  records: Records,
  levels: Sequence[Level],
  summary: Mapping[str, Any],
  uniform_risk: np.ndarray,
  published: Published,
  against: str = "length",
) -> matplotlib.figure.Figure:
  """Draws samples against length for each level, and the test loss behind it.

  Args:
    records: with thresholds, and curves (samples, loss, exact) if there are any.
    levels: what was to be reached, a panel each.
    summary: `sepfx.analysis.summarise` of the records.
    uniform_risk: risk of uniform attention, [rows], NaN where there is none.
    published: published means to draw beside; may be empty.
    against: the numeric column to draw against, the length or another one.

  Returns:
    One panel for each level, and where there are curves one with the test loss at the
    largest length that all series have (the largest of all if they have none in common).
  """
  names = series(records, (against,))
  if against != "length":
    published = {}
  published = {key: points for key, points in published.items() if key[0] in names}
  styles = {name: style_of(k) for k, name in enumerate(dict.fromkeys(names.tolist()))}
  panels = len(levels) + bool(records.all_curves)
  columns = min(panels, _MAX_COLUMNS)
  rows = -(-panels // columns)
  figure = matplotlib.figure.Figure(
    figsize=(4.6 * columns, 4.4 * rows + 0.4), layout="constrained"
  )
  axes = figure.subplots(rows, columns, squeeze=False).ravel()
  for axis, level in zip(axes, levels, strict=False):
    chosen = of_level(records, level, uniform_risk)
    cells = at_level(summary["cells"], level)
    exponents = at_level(summary["exponents"], level)
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
    _finish_counts(axis, places, against, logarithmic, f"test MSE below {level}")
    _write_exponents(axis, exponents, against)
  if records.all_curves:
    last = axes[len(levels)]
    _draw_losses(last, records, names, levels, uniform_risk, styles, against)
  for axis in axes[panels:]:
    axis.set_axis_off()
  legend_below(figure, _legend(styles, records.table, published, summary["cells"]))
  return figure


def style_of(k: int) -> dict[str, Any]:
  """The style of a figure's k-th series; markers repeat after 32, lines after 8."""
  fill = _FILLS[k // len(STYLES) % len(_FILLS)]
  return {**STYLES[k % len(STYLES)], "fillstyle": fill}


def legend_below(
  figure: matplotlib.figure.Figure, handles: Sequence[matplotlib.artist.Artist]
) -> None:
  """Adds a legend below the panels, in as many columns as the longest name leaves.

  A legend of many lines makes the figure higher, and leaves the panels their size.
  """
  longest = max(len(str(handle.get_label())) for handle in handles)
  inches = _HANDLE_INCHES + _LETTER_INCHES * longest
  columns = min(max(int(figure.get_figwidth() // inches), 1), _MAX_LEGEND_COLUMNS)
  further = max(0, -(-len(handles) // columns) - _LEGEND_LINES)
  figure.set_figheight(figure.get_figheight() + _LINE_INCHES * further)
  figure.legend(
    handles=handles,
    loc="outside lower center",
    ncols=columns,
    frameon=False,
  )


def aside(places: np.ndarray, logarithmic: bool, step: float):
  """Returns what moves points a little to one side, on this axis.

  Args:
    places: where points are, ascending.
    logarithmic: whether the axis is.
    step: how far, to the right; neighbouring series are 1 apart.
  """
  if logarithmic:  # one place alone: as if the axis were of a factor of two
    factor = np.exp(0.012 * np.log(max(places[-1] / places[0], 2)) * step)
    return lambda x: np.asarray(x) * factor
  offset = 0.012 * max(places[-1] - places[0], abs(places[0]) / 2) * step
  return lambda x: np.asarray(x) + offset


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
    x[points], n[points], linestyle="none", marker=style["marker"], markersize=4,
    color=style["color"], alpha=0.35, markeredgewidth=0,
  )  # fmt: skip
  bar = {"color": style["color"], "alpha": 0.25, "linewidth": 4}
  for k in np.flatnonzero(bars):
    _vertical(axis, x[k], n[k] - every[k], n[k], bar)
  # Above the mean's marker, which may be at the budget too; the mean's own arrow is
  # above them.
  not_reached = (x[~reached], budget[~reached])
  draw_arrows(figure, axis, *not_reached, _NOT_REACHED, style["color"], points=10)


def _vertical(axis, x: float, low: float, high: float, style: Mapping[str, Any]) -> None:
  """A vertical line; one from 0, which a logarithmic axis has not, has no lower end."""
  if low > 0:
    axis.plot([x, x], [low, high], solid_capstyle="butt", **style)
    return
  axis.plot([x], [high], **style)  # so that the axis reaches it
  bottom = axis.get_xaxis_transform()
  axis.annotate(
    "", (x, 0), (x, high), xycoords=bottom, textcoords="data",
    arrowprops={"arrowstyle": "-", "shrinkA": 0, "shrinkB": 0, **style},
  )  # fmt: skip


def line_with_intervals(
  figure: matplotlib.figure.Figure,
  axis: matplotlib.axes.Axes,
  cells: Sequence[Mapping[str, Any]],
  against: str,
  shift: Any,
  style: Mapping[str, Any],
) -> None:
  """Draws means with their intervals, and an arrow where one is a lower bound.

  Args:
    figure: that the axis is of.
    axis: to draw on, logarithmic in n.
    cells: with `mean`, `low`, `high` and `restricted`, and
    against: the entry to draw them against.
    shift: moves points a little to one side.
    style: one of `STYLES`.
  """
  x = shift(np.array([cell[against] for cell in cells], float))
  mean = np.array([cell["mean"] for cell in cells])
  axis.plot(x, mean, **style, linewidth=2, markersize=6)
  for at, cell in zip(x, cells, strict=True):
    if cell["low"] is None:  # a single trial has no interval
      continue
    whisker = {"color": style["color"], "linewidth": 2}
    _vertical(axis, at, cell["low"], cell["high"], whisker)
    ends = [end for end in (cell["low"], cell["high"]) if end > 0]
    axis.plot(
      np.full(len(ends), at), ends, linestyle="none", marker="_", color=style["color"],
      markersize=7,
    )  # fmt: skip
  restricted = np.array([cell["restricted"] for cell in cells], bool)
  bounded = (x[restricted], mean[restricted])
  draw_arrows(figure, axis, *bounded, BOUND, style["color"], points=24)


def _draw_published(axis, points, style) -> None:
  if points:
    axis.plot(
      [point[0] for point in points],
      [point[1] for point in points],
      linestyle=":",
      linewidth=1,
      color=style["color"],
      marker=style["marker"],
      markerfacecolor="white",
      markersize=7,
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
  axis.set_xticks(places, [f"{place:g}" for place in places.tolist()])
  if len(places) == 1:  # or series that stand side by side would fill the panel
    (place,) = places.tolist()
    axis.set_xlim(*((place / 2, 2 * place) if logarithmic else (place - 1, place + 1)))
  axis.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())
  label_logarithmic(axis.yaxis)
  axis.grid(alpha=0.25)


def _write_exponents(axis, exponents, against) -> None:
  """Writes them above the data."""
  if not exponents:
    return
  lines = [f"n ~ {letter_of(against)}^c"]
  for e in exponents:
    interval = "" if e["low"] is None else f" [{e['low']:.2f}, {e['high']:.2f}]"
    coarse = ", coarse" if e["coarse"] else ""
    value = f"c = {e['c']:.2f}{interval}{coarse}"
    one = f"{e['series']}: {value}"
    lines += [one] if len(one) <= _PANEL_LETTERS else [f"{e['series']}:", f"   {value}"]
  if len(lines) > _PANEL_LINES:
    lines = ["exponents in summary.json"]
  # Room for them above the data: they must not cover it.
  low, high = axis.get_ylim()
  axis.set_ylim(low, high * (high / low) ** (0.09 * len(lines)))
  text = "\n".join(lines)
  axis.text(0.03, 0.97, text, transform=axis.transAxes, va="top", fontsize=8)


def label_logarithmic(axis: matplotlib.axis.Axis) -> None:
  """Labels a logarithmic axis of counts at 1, 2 and 5 times the powers of ten.

  At the powers alone where the data span so many that further labels would collide.
  """
  low, high = axis.get_view_interval()
  subs = (1, 2, 5) if high <= low * 10**_DECADES_OF_LABELS else (1,)
  axis.set_major_locator(matplotlib.ticker.LogLocator(subs=subs))
  axis.set_major_formatter(matplotlib.ticker.FuncFormatter(_thousands))
  axis.set_minor_formatter(matplotlib.ticker.NullFormatter())


def draw_arrows(
  figure: matplotlib.figure.Figure,
  axis: matplotlib.axes.Axes,
  x: Any,
  y: Any,
  arrow: Mapping[str, Any],
  color: str,
  points: int,
) -> None:
  """Draws an arrow so many typographic points above (< 0: below) each data point."""
  axis.plot(
    x,
    y,
    **arrow,
    color=color,
    transform=matplotlib.transforms.offset_copy(
      axis.transData, figure, y=points, units="points"
    ),
  )


def _draw_losses(
  axis: matplotlib.axes.Axes, records, names, levels, uniform_risk, styles, against
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
        linewidth=1,
        alpha=0.6,
      )
  # Above the label's variance a curve only shows how it started.
  axis.set_xscale("log")
  axis.set_ylim(0, min(1.6, 1.05 * axis.get_ylim()[1]))
  absolute = [level.value for level in levels if not level.of_uniform]
  name = "threshold\n" if len(absolute) == 1 else ""  # room for one line each
  lines = [(threshold, f"{name}{threshold:g}", "-") for threshold in absolute]
  for risk in np.unique(uniform_risk[at][~np.isnan(uniform_risk[at])]).tolist():
    lines.append((risk, f"uniform\nattention\n{risk:.3g}", ":"))
  for value, label, linestyle in lines:
    axis.axhline(value, color="black", linewidth=1, linestyle=linestyle)
    # Beside the axis: on it, a label would lie over the curves.
    axis.annotate(
      label,
      (1.02, value),
      xycoords=("axes fraction", "data"),
      va="center",
      fontsize=8,
      annotation_clip=False,
    )
  axis.set(
    xlabel="training prompts",
    ylabel="test MSE",
    title=f"test loss at {letter_of(against)} = {place:g}",
  )
  label_logarithmic(axis.xaxis)
  axis.grid(alpha=0.25)


def _legend(styles, rows, published, cells) -> list[matplotlib.lines.Line2D]:
  def handle(label: str, **style: Any) -> matplotlib.lines.Line2D:
    return matplotlib.lines.Line2D([], [], label=label, **{"color": "black", **style})

  handles = [handle(name, **style, linewidth=2) for name, style in styles.items()]
  handles.append(handle("one trial", linestyle="none", marker="o", alpha=0.35))
  if any(cell["coarse"] for cell in cells):
    bar = {"linestyle": "none", "marker": "|", "markersize": 12, "markeredgewidth": 4}
    handles.append(handle("one trial, between two checks", alpha=0.25, **bar))
  handles.append(handle("mean and 95% interval", marker="|", markersize=10))
  if np.any(rows["outcome"] != "reached"):
    handles.append(handle("threshold not reached", **_NOT_REACHED))
    handles.append(handle("mean is a lower bound", **BOUND))
  if published:
    hollow = {"linestyle": ":", "marker": "o", "markerfacecolor": "white"}
    handles.append(handle("published mean", **hollow))
  return handles


def _thousands(value: float, _: object) -> str:
  for unit, name in ((1_000_000, "M"), (1000, "k")):
    if value >= unit:
      return f"{value / unit:g}{name}"
  return f"{value:g}"


def transitions(records: Records, summary: Mapping[str, Any]) -> matplotlib.figure.Figure:
  """Draws each trial's held-out error against steps, a panel for each length.

  Args:
    records: with curves (samples, loss, exact).
    summary: `sepfx.analysis.transitions` of the records.
  """
  cells = summary["cells"]
  lengths = sorted({cell["length"] for cell in cells})
  figure = matplotlib.figure.Figure(
    figsize=(4.4 * len(lengths), 3.8), layout="constrained"
  )
  axes = figure.subplots(1, len(lengths), squeeze=False)[0]
  names = list(dict.fromkeys(cell["series"] for cell in cells))
  for cell in cells:
    axis = axes[lengths.index(cell["length"])]
    style = STYLES[names.index(cell["series"]) % len(STYLES)]
    own = {column: cell[column] for column in records.coordinates}
    for k, curve in enumerate(records.curves(**own)):
      label = f"{cell['series']}: {cell['reached']} of {cell['trials']}"
      axis.plot(
        curve["samples"] // cell["batch_size"],
        curve["loss"],
        color=style["color"],
        linestyle=style["linestyle"],
        linewidth=1,
        alpha=0.7,
        label=None if k else label,
      )
  for axis, length in zip(axes, lengths, strict=True):
    axis.set(xlabel="step", ylabel="held-out error", title=f"T = {length}")
    axis.set_ylim(bottom=0)
    axis.legend(frameon=False, fontsize=8)
    axis.grid(alpha=0.25)
  return figure


def attention(
  learned: np.ndarray,
  constructed: np.ndarray,
  token_dim: int,
  code_dim: int,
) -> matplotlib.figure.Figure:
  """Draws |W_Q^T W_K| beside the construction of Equation (A.2).

  Rows belong to the query's z_i = (x, omega_i, omega_{t_i}), columns to the key's.

  Args:
    learned: W_Q^T W_K, [D D].
    constructed: the same of the construction, [D D].
    token_dim: d.
    code_dim: d_e.
  """
  figure = matplotlib.figure.Figure(figsize=(10.5, 5.4), layout="constrained")
  axes = figure.subplots(1, 2)
  ends = np.array([0, token_dim, token_dim + code_dim, token_dim + 2 * code_dim])
  names = ("x", r"$\omega_i$", r"$\omega_{t_i}$")
  panels = ((learned, "learned"), (constructed, "constructed, Equation (A.2)"))
  for axis, (matrix, name) in zip(axes, panels, strict=True):
    # A power of 1/2 brings the weak entries out; zero stays white.
    norm = matplotlib.colors.PowerNorm(0.5, vmin=0, vmax=np.abs(matrix).max())
    image = axis.imshow(np.abs(matrix), cmap="Greys", norm=norm)
    for end in ends[1:-1]:
      axis.axvline(end - 0.5, color="#d9730d", linestyle="--", linewidth=1)
      axis.axhline(end - 0.5, color="#d9730d", linestyle="--", linewidth=1)
    middles = (ends[:-1] + ends[1:] - 1) / 2
    axis.set_xticks(middles, names)
    axis.set_yticks(middles, names)
    axis.tick_params(length=0)
    axis.set(xlabel="key token", ylabel="query token", title=rf"$|W_Q^\top W_K|$, {name}")
    figure.colorbar(image, ax=axis, shrink=0.85)
  return figure
