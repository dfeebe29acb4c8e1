"""Figures of how often trials on a fixed sample succeed."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.axes
import matplotlib.figure
import matplotlib.ticker
import numpy as np

from sepfx.drawing import looks
from sepfx.drawing.legends import handle_of, legend_under
from sepfx.drawing.marks import BOUND, draw_arrows
from sepfx.drawing.ticks import label_logarithmic, label_places
from sepfx.ensembles import Records
from sepfx.statistics import error_names
from sepfx.statistics.series import label_of

# Contexts that one panel shows; more would hide one another.
_MAX_CURVES = 5
_MAX_COLUMNS = 3
# Factor between sample sizes above which they stand on a logarithmic axis.
_WIDE = 20
# Factor in T between the marks of two models, which would hide one another.
_APART = 1.08
# Share of a panel's errors that it shows, where the largest is so many times as large.
_SHOWN, _JUMP = 0.99, 5
# Fields of curves, and their lines: of one model, and so of one colour.
_ERRORS = {"train_error": ("on the sample", ":"), "test_error": ("held out", "-")}
# In inches at type of 10 points: a line of a note, a letter of small type, what stands
# beside and under the axes of a panel, and an arrow.
_LINE_INCHES, _LETTER_INCHES, _BESIDE_INCHES, _UNDER_INCHES = 0.16, 0.07, 0.8, 0.5
_ARROW_INCHES = 0.35
_INSIDE = 0.75  # the share of a panel's height that its axes have
# What stands at a T where no size is known, with how many points above the mark.
_BOUNDS = {
  "less than half succeeded up to here": (BOUND, 12),
  "more than half succeeded from here": ({**BOUND, "marker": r"$\Downarrow$"}, -12),
}


def success(
  records: Records,
  summary: Mapping[str, Any],
  panels: Sequence[int] | int | None = None,
) -> matplotlib.figure.Figure:
  """Draws success against sample size, critical sizes against T, and training curves.

  Args:
    records: of fixed samples, with curves if there are any.
    summary: `sepfx.statistics.summarise_success` of the records.
    panels: places of those to draw, from 0; None for all.

  Returns:
    A panel a model, one of critical sizes (at each T the models' marks stand side by
    side, with an arrow where a size is only bounded, as where all trials ended alike),
    and where there are curves two of them: of the first model at the largest T, at the
    sample size where most trials failed (the smallest of several) and where most
    succeeded (the largest); one, where they are the same.

  Raises:
    InvalidSetting: for a panel that there is not.
  """
  models = list(dict.fromkeys(cell["series"] for cell in summary["cells"]))
  first = [cell for cell in summary["cells"] if cell["series"] == models[0]]
  regimes = _regimes(first) if records.all_curves else []
  drawn: list[Callable[[matplotlib.axes.Axes], None]] = [
    *(functools.partial(draw_fractions, model=m, summary=summary) for m in models),
    lambda axis: draw_critical(figure, axis, models, summary),
    *(
      functools.partial(
        _training, cell, records, looks.styles_of(models), summary["letter"]
      )
      for cell in regimes
    ),
  ]
  shown = looks.panels_of(panels, len(drawn))
  figure, axes = looks.grid(len(shown), (4.4, 4.0), _MAX_COLUMNS, room=2)
  for axis, panel in zip(axes, shown, strict=True):
    drawn[panel](axis)
  looks.fit_labels(figure)
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
  for length, style in looks.styles_of_numbers(shown).items():
    colour = style["color"]
    own = [cell for cell in cells if cell["length"] == length]
    sizes = [cell["sample_size"] for cell in own]
    fractions = [cell["fraction"] for cell in own]
    errors = [cell["error"] for cell in own]
    axis.errorbar(
      sizes, fractions, errors, fmt="none", color=colour, capsize=looks.points(2)
    )
    # A search has more trials at some sizes than at others.
    most = max(cell["trials"] for cell in own)
    areas = [40 * looks.points(1) ** 2 * cell["trials"] / most for cell in own]
    axis.scatter(
      sizes,
      fractions,
      areas,
      color=colour,
      marker=style["marker"],
      label=f"${summary['letter']}$ = {length}",
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
  axis.axhline(0.5, color="black", linewidth=looks.points(0.8), linestyle=":")
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
  text, arrows, letter = [], {}, summary["letter"]
  width, height = looks.panel_of(axis)
  under = _UNDER_INCHES
  ticks = sorted({c["length"] for c in summary["critical"]})
  nearest = min((b / a for a, b in itertools.pairwise(ticks)), default=_APART**2)
  apart = min(_APART, nearest ** (1 / (len(models) + 1)))
  shifts = apart ** (np.arange(len(models)) - (len(models) - 1) / 2)
  styles = looks.styles_of(models)
  for (model, style), shift in zip(styles.items(), shifts, strict=True):
    drawn = {**style, "linestyle": "none"}
    known = [
      c for c in summary["critical"] if c["series"] == model and c["size"] is not None
    ]
    lengths = np.array([c["length"] for c in known])
    sizes = np.array([c["size"] for c in known])
    bounds = np.array([[c["low"], c["high"]] for c in known]).reshape(-1, 2)
    below_above = np.abs(bounds - sizes[:, None]).T
    axis.errorbar(
      shift * lengths, sizes, below_above, label=model, capsize=looks.points(3), **drawn
    )
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
      axis.plot(fine, a + b * np.log(fine), color=style["color"])
      axis.plot(fine, scale * fine**c, color=style["color"], linestyle="--")
      difference = growth["log_likelihood"] - growth["power_likelihood"]
      likelier = "line" if difference > 0 else "dashes"
      logarithm = rf"${a:.0f} {'+-'[b < 0]} {abs(b):.1f} \log {letter}$ (line)"
      power = rf"${scale:.0f}\,{letter}^{{{c:.2f}}}$ (dashes)"
      text.append(
        f"{model}: {logarithm}, {power}\n"
        f"log-likelihood of the {likelier} higher by {abs(difference):.2f}"
      )
  if summary["floor"]:
    places, needed, _ = zip(*summary["floor"], strict=True)
    label = f"floor: {summary['learner']}"
    axis.plot(places, needed, color="black", linestyle=":", marker=".", label=label)
  axis.set_xscale("log")
  xlabel = "number of bits T" if letter == "T" else label_of("length")
  if len(ticks) == 1 < len(models):
    xlabel = f"{letter} = {ticks[0]}"
    names = [model.replace(", ", "\n") for model in models]
    axis.set_xticks(ticks[0] * shifts, names, fontsize="small")
    axis.tick_params("x", which="minor", bottom=False)
    axis.margins(x=0.15)  # room for the names of the outer ones
    longest = max(len(line) for name in names for line in name.split("\n"))
    across = len(models) * longest * looks.points(_LETTER_INCHES)
    under += _LINE_INCHES * max(name.count("\n") for name in names)
    if across > width - looks.points(_BESIDE_INCHES):
      axis.tick_params("x", rotation=90)
      under += _LETTER_INCHES * longest
  else:
    label_places(axis.xaxis, ticks)
  axis.xaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
  handles, _ = axis.get_legend_handles_labels()
  handles += [handle_of(label, **arrow) for label, arrow in arrows.items()]
  low, high = axis.get_ylim()
  if len(models) == 1:
    axis.set_ylim(0, high + 0.25 * (high - low))
  else:
    axis.set_yscale("log")
    label_logarithmic(axis.yaxis)
    low, high = axis.get_ylim()
    if arrows:
      share = min(0.2, looks.points(_ARROW_INCHES) / (_INSIDE * height))
      factor = (high / low) ** (share / (1 - 2 * share))
      axis.set_ylim(low / factor, high * factor)
  axis.set(xlabel=xlabel, ylabel="m at which half succeed")
  # Above the axes and under them: the panel itself is the data's.
  notes = looks.wrap("\n".join(text), width)
  above = looks.points(_LINE_INCHES) * (notes.count("\n") + 1) * bool(notes)
  axis.annotate(
    notes, (0, 1), xytext=(0, looks.points(3)), xycoords="axes fraction",
    textcoords="offset points", va="bottom", fontsize="small",
  )  # fmt: skip
  title = "critical sample size, 95% intervals"
  axis.set_title(title, pad=looks.points(6) + 72 * above)
  looks.grow(figure, above)
  legend_under(axis, handles, under)
  axis.grid(alpha=0.25)


def _one_sided(model: str, summary) -> tuple[list, list]:
  """Pairs (T, m) where m_crit is only bounded: those above m, and those below."""
  critical = [c for c in summary["critical"] if c["series"] == model]
  more, less = (
    [(c["length"], c[end]) for c in critical if c["bound"] == bound]
    for bound, end in (("more than", "largest"), ("less than", "smallest"))
  )
  return more, less


def _training(
  cell, records: Records, styles, letter: str, axis: matplotlib.axes.Axes
) -> None:
  style = styles[cell["series"]]
  own = {column: cell[column] for column in records.coordinates}
  curves = records.curves(**own)
  # Two of one kind: with loss and error on one axis neither could be read.
  for k, curve in enumerate(curves):
    for field, (label, dashes) in _ERRORS.items():
      axis.plot(
        curve["steps"],
        curve[field],
        color=style["color"],
        linestyle=dashes,
        linewidth=looks.points(1),
        alpha=0.6,
        label=None if k else label,
      )
  # A trial that jumps for a check is cut off there: it would flatten all others.
  values = np.concatenate([curve[field] for curve in curves for field in _ERRORS])
  most = 1.1 * np.quantile(values[np.isfinite(values)], _SHOWN)
  top = (
    most if _JUMP * most < np.max(values, where=np.isfinite(values), initial=0) else None
  )
  axis.set(
    xlabel="step", ylabel=error_names.short(error_names.of(records)), ylim=(0, top),
    title=f"{cell['series']}, {letter} = {cell['length']}, m = {cell['sample_size']}",
  )  # fmt: skip
  axis.legend(frameon=False, fontsize="small")
  axis.grid(alpha=0.25)
