"""Figures for people: drawn from records and summaries only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import matplotlib.axes
import matplotlib.axis
import matplotlib.figure
import matplotlib.lines
import matplotlib.ticker
import matplotlib.transforms
import numpy as np

from sepfx.analysis.summary import at_level, of_level
from sepfx.training import Level

# Colours whose luminances differ, each with a marker and a dash pattern of its own:
# the figures are read in grey too.
STYLES: Sequence[Mapping[str, Any]] = (
  {"color": "#0b3c7d", "marker": "o", "linestyle": "-"},
  {"color": "#d9730d", "marker": "s", "linestyle": "--"},
  {"color": "#2e8b57", "marker": "^", "linestyle": "-."},
  {"color": "#9b2d86", "marker": "D", "linestyle": (0, (1, 1))},
  {"color": "#6f6f6f", "marker": "v", "linestyle": (0, (5, 1, 1, 1, 1, 1))},
  {"color": "#c2a300", "marker": "P", "linestyle": (0, (8, 2))},
)

# Arrows on trials that spent their budget, and on means that such trials are part of.
_NOT_REACHED: Mapping[str, Any] = {
  "linestyle": "none",
  "marker": r"$\uparrow$",
  "markersize": 11,
}
BOUND = {**_NOT_REACHED, "marker": r"$\Uparrow$", "markersize": 13}

_MAX_COLUMNS = 3

# Published means: points (N, n) by model and threshold.
Published = Mapping[tuple[str, float], Sequence[tuple[int, float]]]


def sample_complexity(
  records: np.ndarray,
  curves: Mapping[str, np.ndarray],
  levels: Sequence[Level],
  summary: Mapping[str, Any],
  uniform_risk: Mapping[int, float | None],
  published: Published,
) -> matplotlib.figure.Figure:
  """Draws samples against length for each level, and the test loss behind it.

  Args:
    records: structured array with the columns of `trials.csv`.
    curves: structured arrays (samples, loss, exact) by trial name.
    levels: what was to be reached, a panel each.
    summary: `sepfx.analysis.summarise` of the records.
    uniform_risk: risk of uniform attention at each length, None where there is none.
    published: published means to draw beside; may be empty.

  Returns:
    One panel a level, and one with the test loss at the largest length that all
    models have (the largest of all if they have none in common).
  """
  models = list(dict.fromkeys(records["model"].tolist()))
  styles = {model: STYLES[k % len(STYLES)] for k, model in enumerate(models)}
  panels = len(levels) + 1
  columns = min(panels, _MAX_COLUMNS)
  rows = -(-panels // columns)
  figure = matplotlib.figure.Figure(
    figsize=(4.6 * columns, 4.4 * rows + 0.4), layout="constrained"
  )
  axes = figure.subplots(rows, columns, squeeze=False).ravel()
  for axis, level in zip(axes, levels, strict=False):
    own = records[of_level(records, level, uniform_risk)]
    _draw_counts(figure, axis, own, level, summary, styles, published)
  _draw_losses(axes[len(levels)], records, curves, levels, uniform_risk, styles)
  for axis in axes[panels:]:
    axis.set_axis_off()
  figure.legend(
    handles=_legend(models, styles, records, published),
    loc="outside lower center",
    ncols=4,
    frameon=False,
  )
  return figure


def _draw_counts(
  figure: matplotlib.figure.Figure,
  axis: matplotlib.axes.Axes,
  records,
  level,
  summary,
  styles,
  published,
) -> None:
  lengths = sorted(set(records["length"].tolist()))
  shift = 0.012 if len(lengths) > 1 else 0.0
  labels = []
  for k, (model, style) in enumerate(styles.items()):
    # Models stand side by side at a length, so that their intervals can be read.
    aside = np.exp(shift * np.log(lengths[-1] / lengths[0]) * (k - (len(styles) - 1) / 2))
    own = records[records["model"] == model]
    cells = [c for c in at_level(summary["cells"], level) if c["model"] == model]
    budgets = {cell["length"]: cell["budget"] for cell in cells}
    reached = own["outcome"] == "reached"
    spent = np.array([budgets[length] for length in own["length"].tolist()])
    samples = np.where(reached, own["samples"], spent)
    axis.plot(
      own["length"][reached] * aside,
      samples[reached],
      linestyle="none",
      marker=style["marker"],
      markersize=4,
      color=style["color"],
      alpha=0.35,
      markeredgewidth=0,
    )
    # Above the mean's marker, which may be at the budget too; the mean's own arrow is
    # above them.
    not_reached = (own["length"][~reached] * aside, samples[~reached])
    draw_arrows(figure, axis, *not_reached, _NOT_REACHED, style["color"], points=10)
    x = np.array([cell["length"] for cell in cells]) * aside
    mean = np.array([cell["mean"] for cell in cells])
    bounds = np.array(
      [
        [cell["mean"] if cell[end] is None else cell[end] for end in ("low", "high")]
        for cell in cells  # a single trial has no interval
      ]
    ).T
    # On a logarithmic axis an interval that reaches down to zero ends at the floor.
    below = mean - np.maximum(bounds[0], 0.2 * mean)
    axis.errorbar(
      x, mean, [below, bounds[1] - mean], **style, linewidth=2, markersize=6, capsize=3
    )
    restricted = np.array([cell["restricted"] for cell in cells], bool)
    bounded = (x[restricted], mean[restricted])
    draw_arrows(figure, axis, *bounded, BOUND, style["color"], points=24)
    points = () if level.of_uniform else published.get((model, level.value), ())
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
    for exponent in at_level(summary["exponents"], level):
      if exponent["model"] == model:
        labels.append(
          f"{model}: c = {exponent['c']:.2f} "
          f"[{exponent['low']:.2f}, {exponent['high']:.2f}]"
        )
  axis.set(
    xscale="log",
    yscale="log",
    xlabel="length N",
    ylabel="training prompts n",
    title=f"test MSE below {level}",
  )
  axis.set_xticks(lengths, [str(length) for length in lengths])
  axis.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())
  label_logarithmic(axis.yaxis)
  axis.grid(alpha=0.25)
  if labels:
    # Room for them above the data: they must not cover it.
    low, high = axis.get_ylim()
    axis.set_ylim(low, high * (high / low) ** (0.09 * (len(labels) + 1)))
    text = "\n".join(["n ~ N^c", *labels])
    axis.text(0.03, 0.97, text, transform=axis.transAxes, va="top", fontsize=8)


def label_logarithmic(axis: matplotlib.axis.Axis) -> None:
  """Labels a logarithmic axis of counts at 1, 2 and 5 times the powers of ten."""
  axis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
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
  axis: matplotlib.axes.Axes, records, curves, levels, uniform_risk, styles
) -> None:
  lengths = [set(records["length"][records["model"] == m].tolist()) for m in styles]
  length = max(set.intersection(*lengths) or set.union(*lengths))
  for model, style in styles.items():
    chosen = (records["model"] == model) & (records["length"] == length)
    for trial in sorted(set(records["trial"][chosen].tolist())):
      task = records["task"][chosen][0]
      curve = curves[f"task={task}/model={model}/length={length}/trial={trial}"]
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
  risk = uniform_risk[length]
  if risk is not None:
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
    xlabel="training prompts", ylabel="test MSE", title=f"test loss at N = {length}"
  )
  axis.xaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(_thousands))
  axis.grid(alpha=0.25)


def _legend(models, styles, records, published) -> list[matplotlib.lines.Line2D]:
  def handle(label: str, **style: Any) -> matplotlib.lines.Line2D:
    return matplotlib.lines.Line2D([], [], label=label, **{"color": "black", **style})

  handles = [handle(model, **styles[model], linewidth=2) for model in models]
  handles.append(handle("one trial", linestyle="none", marker="o", alpha=0.35))
  handles.append(handle("mean and 95% interval", marker="|", markersize=10))
  if np.any(records["outcome"] != "reached"):
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


def transitions(
  curves: Mapping[str, np.ndarray], summary: Sequence[Mapping[str, Any]], batch_size: int
) -> matplotlib.figure.Figure:
  """Draws each trial's held-out error against steps, a panel a length.

  Args:
    curves: structured arrays (samples, loss, exact) by trial name.
    summary: `sepfx.analysis.transitions` of the records.
    batch_size: samples a step.
  """
  lengths = sorted({cell["length"] for cell in summary})
  figure = matplotlib.figure.Figure(
    figsize=(4.4 * len(lengths), 3.8), layout="constrained"
  )
  axes = figure.subplots(1, len(lengths), squeeze=False)[0]
  tasks = list(dict.fromkeys(cell["task"] for cell in summary))
  for axis, length in zip(axes, lengths, strict=True):
    for task, style in zip(tasks, STYLES, strict=False):
      (cell,) = (c for c in summary if (c["task"], c["length"]) == (task, length))
      label: str | None = f"{task}: {cell['reached']} of {cell['trials']}"
      for name, curve in curves.items():
        if not name.startswith(f"task={task}/") or f"/length={length}/" not in name:
          continue
        axis.plot(
          curve["samples"] // batch_size,
          curve["loss"],
          color=style["color"],
          linestyle=style["linestyle"],
          linewidth=1,
          alpha=0.7,
          label=label,
        )
        label = None
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
