"""Figures of how often trials on a fixed sample succeed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import matplotlib
import matplotlib.axes
import matplotlib.figure
import matplotlib.lines
import matplotlib.ticker
import numpy as np

from sepfx.analysis import looks
from sepfx.analysis.figures import BOUND, draw_arrows, label_logarithmic
from sepfx.ensembles import Records

# Contexts that one panel shows; more would hide one another.
_MAX_CURVES = 5
_MAX_COLUMNS = 3
# Factor between sample sizes above which they stand on a logarithmic axis.
_WIDE = 20
# Factor in T between the marks of two models, which would hide one another.
_APART = 1.08
# Fields of curves.
_ERRORS = {"train_error": "on the sample", "test_error": "held out"}
# What stands at a T where no size is known, with how many points above the mark.
_BOUNDS = {
  "less than half succeeded up to here": (BOUND, 12),
  "more than half succeeded from here": ({**BOUND, "marker": r"$\Downarrow$"}, -12),
}


def success(records: Records, summary: Mapping[str, Any]) -> matplotlib.figure.Figure:
  """Draws success against sample size, critical sizes against T, and training curves.

  Args:
    records: of fixed samples, with curves if there are any.
    summary: `sepfx.analysis.summarise_success` of the records.

  Returns:
    A panel a model, one of critical sizes (at each T the models' marks stand side by
    side, with an arrow where a size is only bounded, as where all trials ended alike),
    and where there are curves two of them: of the first model at the largest T, at the
    sample size where most trials failed (the smallest of several) and where most
    succeeded (the largest); one, where they are the same. Errors are shares of wrong
    answers, of regression mean squared errors.
  """
  models = list(dict.fromkeys(cell["series"] for cell in summary["cells"]))
  first = [cell for cell in summary["cells"] if cell["series"] == models[0]]
  regimes = _regimes(first) if records.all_curves else []
  panels = len(models) + 1 + len(regimes)
  rows = -(-panels // looks.columns(panels, _MAX_COLUMNS, room=2))
  columns = -(-panels // rows)  # four panels make a square
  size = looks.inches(4.4 * columns, 4.0 * rows)
  figure = matplotlib.figure.Figure(figsize=size, layout="constrained")
  axes = figure.subplots(rows, columns, squeeze=False).ravel()
  for axis, model in zip(axes, models, strict=False):
    draw_fractions(axis, model, summary)
  draw_critical(figure, axes[len(models)], models, summary)
  for axis, cell in zip(axes[len(models) + 1 :], regimes, strict=False):
    _draw_training(axis, cell, records)
  for axis in axes[panels:]:
    axis.set_axis_off()
  return figure


def _regimes(cells):
  """The cells at the largest T where most trials failed and where most succeeded."""
  largest = max(cell["length"] for cell in cells)
  own = [cell for cell in cells if cell["length"] == largest]
  failed = max(own, key=lambda c: (c["trials"] - c["reached"], -c["sample_size"]))
  succeeded = max(own, key=lambda c: (c["reached"], c["sample_size"]))
  return [failed] if failed is succeeded else [failed, succeeded]


def draw_fractions(axis: matplotlib.axes.Axes, model: str, summary) -> None:
  """Draws the fraction of successes of one series against m, a curve for each T."""
  cells = [cell for cell in summary["cells"] if cell["series"] == model]
  lengths = sorted({cell["length"] for cell in cells})
  shown = sorted(
    {lengths[round(k)] for k in np.linspace(0, len(lengths) - 1, _MAX_CURVES)}
  )
  colours = matplotlib.colormaps["viridis"](np.linspace(0, 0.85, len(shown)))
  for length, colour, style in zip(shown, colours, looks.STYLES, strict=False):
    own = [cell for cell in cells if cell["length"] == length]
    sizes = [cell["sample_size"] for cell in own]
    fractions = [cell["fraction"] for cell in own]
    errors = [cell["error"] for cell in own]
    axis.errorbar(sizes, fractions, errors, fmt="none", color=colour, capsize=2)
    # A search has more trials at some sizes than at others.
    most = max(cell["trials"] for cell in own)
    areas = [40 * cell["trials"] / most for cell in own]
    axis.scatter(
      sizes,
      fractions,
      areas,
      color=colour,
      marker=style["marker"],
      label=f"$T$ = {length}",
    )
    (critical,) = (
      c for c in summary["critical"] if (c["series"], c["length"]) == (model, length)
    )
    if critical["size"] is not None:
      fine = np.geomspace(sizes[0], sizes[-1], 400)
      x = summary["steepness"][model]["k"] * np.log(fine / critical["size"])
      axis.plot(fine, 1 / (1 + np.exp(-x)), color=colour, linestyle=style["linestyle"])
  sizes = [cell["sample_size"] for cell in cells]
  if max(sizes) > _WIDE * min(sizes):
    axis.set_xscale("log")
    label_logarithmic(axis.xaxis)
  else:
    # Five digits each, at times.
    axis.locator_params(axis="x", nbins="auto", steps=[1, 2, 5, 10])
  axis.axhline(0.5, color="black", linewidth=0.8, linestyle=":")
  axis.set(
    xlabel="sample size m", ylabel="fraction of successes", ylim=(-0.03, 1.03),
    title=f"success, with standard errors:\n{model}",
  )  # fmt: skip
  axis.legend(frameon=False, fontsize="small")
  axis.grid(alpha=0.25)


def draw_critical(
  figure: matplotlib.figure.Figure, axis: matplotlib.axes.Axes, models, summary
) -> None:
  """Draws critical sizes of several series against T, with their growth and a floor.

  Where there is one T, the series stand side by side with their names below them.
  """
  text, arrows = [], {}
  ticks = sorted({c["length"] for c in summary["critical"]})
  nearest = min((b / a for a, b in itertools.pairwise(ticks)), default=_APART**2)
  apart = min(_APART, nearest ** (1 / (len(models) + 1)))
  shifts = apart ** (np.arange(len(models)) - (len(models) - 1) / 2)
  styles = looks.styles_of(models)
  for (model, style), shift in zip(styles.items(), shifts, strict=True):
    drawn = {"color": style["color"], "marker": style["marker"], "linestyle": "none"}
    known = [
      c for c in summary["critical"] if c["series"] == model and c["size"] is not None
    ]
    lengths = np.array([c["length"] for c in known])
    sizes = np.array([c["size"] for c in known])
    bounds = np.array([[c["low"], c["high"]] for c in known]).reshape(-1, 2)
    below_above = np.abs(bounds - sizes[:, None]).T
    axis.errorbar(shift * lengths, sizes, below_above, label=model, capsize=3, **drawn)
    for (label, (arrow, offset)), alike in zip(
      _BOUNDS.items(), _one_sided(model, summary), strict=True
    ):
      if alike:
        arrows[label] = arrow
        at, bound = np.array(alike, float).T
        axis.plot(shift * at, bound, markerfacecolor="white", **drawn)
        draw_arrows(figure, axis, shift * at, bound, arrow, style["color"], offset)
    growth = summary["growth"].get(model)
    if growth:
      (a, b, _), (scale, c, _) = growth["log"], growth["power"]
      fine = np.geomspace(lengths[0], lengths[-1], 200)
      axis.plot(fine, a + b * np.log(fine), color=style["color"], linewidth=1.5)
      axis.plot(fine, scale * fine**c, color=style["color"], linewidth=1, linestyle="--")
      difference = growth["log_likelihood"] - growth["power_likelihood"]
      likelier = "line" if difference > 0 else "dashes"
      logarithm = rf"${a:.0f} + {b:.1f} \log T$ (line)"
      power = rf"${scale:.0f}\,T^{{{c:.2f}}}$ (dashes)"
      text.append(
        f"{model}: {logarithm}, {power}\n"
        f"log-likelihood of the {likelier} higher by {abs(difference):.2f}"
      )
  if summary["floor"]:
    floor = np.array(summary["floor"])
    label = "floor: tries all subsets"
    axis.plot(*floor.T, color="black", linestyle=":", marker=".", label=label)
  axis.set_xscale("log")
  xlabel = "number of bits T"
  if len(ticks) == 1 < len(models):
    xlabel = f"T = {ticks[0]}"
    names = [model.replace(", ", "\n") for model in models]
    axis.set_xticks(ticks[0] * shifts, names, fontsize="small")
    axis.tick_params("x", which="minor", bottom=False)
  else:
    axis.set_xticks(ticks, list(map(str, ticks)))
  axis.xaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
  handles, _ = axis.get_legend_handles_labels()
  for label, arrow in arrows.items():
    shown = {**arrow, "markersize": 9, "color": "black"}
    handles.append(matplotlib.lines.Line2D([], [], label=label, **shown))
  # Room for the text above the data, and for the legend below.
  columns = min(len(models), 2)
  if len(models) == 1:
    low, high = axis.get_ylim()
    axis.set_ylim(0, high + 0.25 * (high - low))
  else:
    axis.set_yscale("log")
    label_logarithmic(axis.yaxis)
    low, high = axis.get_ylim()
    span = high / low
    above = 0.15 + 0.15 * len(text)
    below = 0.12 * -(-len(handles) // columns)
    axis.set_ylim(low / span**below, high * span**above)
  axis.text(
    0.03, 0.97, "\n".join(text), transform=axis.transAxes, va="top", fontsize="small"
  )
  axis.set(
    xlabel=xlabel, ylabel="m at which half succeed",
    title="critical sample size, 95% intervals",
  )  # fmt: skip
  axis.legend(
    handles=handles, ncols=columns, frameon=False, fontsize="x-small", loc="lower right",
    columnspacing=1.0, handlelength=1.4,
  )  # fmt: skip
  axis.grid(alpha=0.25)


def _one_sided(model: str, summary) -> tuple[list, list]:
  """Pairs (T, m) where m_crit is only bounded: those above m, and those below."""
  critical = [c for c in summary["critical"] if c["series"] == model]
  more, less = (
    [(c["length"], c[end]) for c in critical if c["bound"] == bound]
    for bound, end in (("more than", "largest"), ("less than", "smallest"))
  )
  return more, less


def _draw_training(axis: matplotlib.axes.Axes, cell, records: Records) -> None:
  own = {column: cell[column] for column in records.coordinates}
  # Two of one kind: with loss and error on one axis neither could be read.
  for k, curve in enumerate(records.curves(**own)):
    for field, style in zip(_ERRORS, looks.STYLES, strict=False):
      axis.plot(
        curve["steps"],
        curve[field],
        color=style["color"],
        linestyle=style["linestyle"],
        linewidth=1,
        alpha=0.6,
        label=None if k else _ERRORS[field],
      )
  axis.set(
    xlabel="step", ylabel="error", ylim=(0, None),
    title=f"{cell['series']}, T = {cell['length']}, m = {cell['sample_size']}",
  )  # fmt: skip
  axis.legend(frameon=False, fontsize="small")
  axis.grid(alpha=0.25)
