"""Figures of what property testers find, and of how often they are wrong."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.axes
import matplotlib.figure
import matplotlib.lines
import numpy as np

from sepfx.drawing.legends import handle_of, legend_below
from sepfx.drawing.looks import STYLES, fit_labels, grid, points, styles_of_numbers
from sepfx.drawing.ticks import label_places

_SHARES = {
  "right_planted": "the planted level is found",
  "right_within": r"the least level within $\tau$ is found",
}
_ERRORS = {"false_rejection": "false rejection", "false_acceptance": "false acceptance"}
_QUANTITIES = dict(zip({**_SHARES, **_ERRORS}, STYLES, strict=False))


def sweeps(
  rows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]
) -> matplotlib.figure.Figure:
  """Draws first accepted levels, shares of right ones and error rates, by property.

  Args:
    rows: as `sepfx.statistics.summarise_tests` takes them.
    summary: what that returned.

  Returns:
    Panels for each property. Of target functions the mean of the levels first
    accepted against the planted one. Then shares against tau, of both kinds. Then, where
    there are trained models, what was found of each.
  """
  properties = list(dict.fromkeys(row["property"] for row in rows))
  trained = [row for row in rows if row["kind"] == "trained"]
  columns = 4 if trained else 3
  taus = styles_of_numbers(row["tau"] for row in rows)
  degrees = styles_of_numbers(row["degree"] for row in trained)
  figure, axes = grid(columns * len(properties), (4.6, 4.0), columns, room=1.6)
  for k, name in enumerate(properties):
    line = axes[columns * k : columns * (k + 1)]
    levels = [
      cell
      for cell in summary["levels"]
      if (cell["kind"], cell["property"]) == ("target", name)
    ]
    rates = [cell for cell in summary["rates"] if cell["property"] == name]
    _draw_levels(line[0], name, levels, taus)
    _draw_shares(line[1], rates, _SHARES, f"{name}: right sweeps")
    _draw_shares(line[2], rates, _ERRORS, f"{name}: errors")
    if trained:
      own = [row for row in trained if row["property"] == name]
      _draw_models(line[3], name, own, degrees)
    for axis in line:
      axis.grid(alpha=0.25)
  fit_labels(figure)
  legend_below(figure, _legend(taus, degrees, bool(trained)))
  return figure


def _legend(taus, degrees, trained: bool) -> list[matplotlib.lines.Line2D]:
  handles = [handle_of(rf"$\tau$ = {tau:g}", **style) for tau, style in taus.items()]
  handles.append(handle_of("95% interval", marker="|", markersize=10))
  labels = {**_SHARES, **{k: f"{own}, two hardest levels" for k, own in _ERRORS.items()}}
  handles += [handle_of(labels[name], **own) for name, own in _QUANTITIES.items()]
  if trained:
    dot = {"linestyle": "none", "marker": "o"}
    label = "shares and errors, hollow: of trained models"
    handles.append(handle_of(label, **dot, markerfacecolor="none"))
    handles += [
      handle_of(f"trained on degree {degree}", **{**style, "linestyle": "none"})
      for degree, style in degrees.items()
    ]
    handles.append(
      handle_of("found in a trained model, a column each", **dot, markersize=4)
    )
    label = r"least level within $\tau$ in it"
    handles.append(handle_of(label, **dot, markersize=9, markerfacecolor="none"))
  return handles


def _draw_levels(axis: matplotlib.axes.Axes, name: str, cells, taus) -> None:
  places = sorted({cell["planted"] for cell in cells})
  axis.plot(places, places, color="black", linestyle=":", linewidth=points(1))
  for k, (tau, style) in enumerate(taus.items()):
    own = sorted((c for c in cells if c["tau"] == tau), key=lambda c: c["planted"])
    x = np.array([c["planted"] for c in own]) + 0.08 * (k - (len(taus) - 1) / 2)
    _errorbar(axis, x, own, "found", {**style, "label": rf"$\tau$ = {tau:g}"})
  label_places(axis.xaxis, places)
  axis.set(xlabel=f"{name} of the target", ylabel="mean")
  axis.set_title(f"{name} accepted first")


def _draw_shares(axis: matplotlib.axes.Axes, cells, names, title: str) -> None:
  kinds = list(dict.fromkeys(cell["kind"] for cell in cells))
  for k, (kind, name) in enumerate(itertools.product(kinds, names)):
    own = [cell for cell in cells if cell["kind"] == kind and cell[name] is not None]
    own.sort(key=lambda cell: cell["tau"])
    x = np.array([cell["tau"] for cell in own]) * 1.05 ** (k - 1)
    face = {} if kind == "target" else {"markerfacecolor": "none"}
    style = {**_QUANTITIES[name], **face, "label": f"{names[name]}, {kind}"}
    _errorbar(axis, x, own, name, style)
  _logarithmic(axis, {cell["tau"] for cell in cells})
  axis.set(ylabel="share", ylim=(-0.04, 1.04))
  axis.set_title(title)


def _errorbar(axis: matplotlib.axes.Axes, x, cells, name: str, style) -> None:
  middle = np.array([cell[name] for cell in cells])
  low, high = (
    np.array([cell[name] if cell[end] is None else cell[end] for cell in cells])
    for end in (f"{name}_low", f"{name}_high")
  )
  yerr = np.maximum([middle - low, high - middle], 0)  # rounding
  axis.errorbar(x, middle, yerr=yerr, capsize=points(2), markersize=points(5), **style)


def _draw_models(axis: matplotlib.axes.Axes, name: str, rows, degrees) -> None:
  models: dict[tuple, list] = {}
  for row in rows:
    key = (row["degree"], row["num_components"], row["index"])
    models.setdefault(key, []).append(row)
  most = rows[0]["most"]
  above = most + max(1, most // 8)  # where no level was accepted, or is within tau
  for k, (key, own) in enumerate(models.items()):
    drawn = {**degrees[key[0]], "linestyle": "none"}
    own.sort(key=lambda row: row["tau"])
    x = np.array([row["tau"] for row in own]) * 1.03 ** (k - (len(models) - 1) / 2)
    found, within = (
      [row[value] or above for row in own] for value in ("found", "within")
    )
    axis.plot(x, found, markersize=points(4), **drawn)
    axis.plot(x, within, markersize=points(9), markerfacecolor="none", **drawn)
  _logarithmic(axis, {row["tau"] for row in rows})
  ticks = range(1, most + 1, max(1, most // 6))
  label_places(
    axis.yaxis, [*ticks, above], lambda y: f"above {most}" if y == above else f"{y:g}"
  )
  axis.set_ylabel("level")
  axis.set_title(f"{name} of trained models")


def _logarithmic(axis: matplotlib.axes.Axes, taus) -> None:
  axis.set_xscale("log")
  label_places(axis.xaxis, sorted(taus))
  axis.set_xlabel(r"proximity $\tau$")
