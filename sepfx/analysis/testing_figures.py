"""Figures of what property testers find, and of how often they are wrong."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.axes
import matplotlib.figure
import numpy as np

from sepfx.analysis.looks import STYLES, inches

_SHARES = {
  "right_planted": "the planted level is found",
  "right_within": r"the least level within $\tau$ is found",
}
_ERRORS = {"false_rejection": "false rejection", "false_acceptance": "false acceptance"}


def sweeps(
  rows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]
) -> matplotlib.figure.Figure:
  """Draws first accepted levels, shares of right ones and error rates, by property.

  Args:
    rows: as `sepfx.analysis.summarise_tests` takes them.
    summary: what that returned.

  Returns:
    A row of panels for each property. Of target functions the mean of the levels first
    accepted against the planted one. Then shares against tau, of both kinds. Then, where
    there are trained models, what was found of each.
  """
  properties = list(dict.fromkeys(row["property"] for row in rows))
  trained = [row for row in rows if row["kind"] == "trained"]
  columns = 4 if trained else 3
  figure = matplotlib.figure.Figure(
    figsize=inches(4.6 * columns, 4.8 * len(properties)), layout="constrained"
  )
  axes = figure.subplots(len(properties), columns, squeeze=False)
  for line, name in zip(axes, properties, strict=True):
    levels = [
      cell
      for cell in summary["levels"]
      if (cell["kind"], cell["property"]) == ("target", name)
    ]
    rates = [cell for cell in summary["rates"] if cell["property"] == name]
    _draw_levels(line[0], name, levels)
    _draw_shares(line[1], rates, _SHARES, f"{name}: sweeps that stop where")
    _draw_shares(line[2], rates, _ERRORS, f"{name}: errors at the two hardest levels")
    if trained:
      _draw_models(line[3], name, [row for row in trained if row["property"] == name])
    for axis in line:
      axis.grid(alpha=0.25)
    for axis in line[[0, *range(3, columns)]]:
      axis.legend(frameon=False, fontsize="small")
    for axis in line[1:3]:  # whose points may be anywhere
      axis.legend(
        frameon=False, fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.15)
      )
  return figure


def _draw_levels(axis: matplotlib.axes.Axes, name: str, cells) -> None:
  places = sorted({cell["planted"] for cell in cells})
  taus = sorted({cell["tau"] for cell in cells})
  axis.plot(places, places, color="black", linestyle=":", linewidth=1)
  for k, (tau, style) in enumerate(zip(taus, itertools.cycle(STYLES), strict=False)):
    own = sorted((c for c in cells if c["tau"] == tau), key=lambda c: c["planted"])
    x = np.array([c["planted"] for c in own]) + 0.08 * (k - (len(taus) - 1) / 2)
    _errorbar(axis, x, own, "found", {**style, "label": rf"$\tau$ = {tau:g}"})
  axis.set_xticks(places)
  axis.set(xlabel=f"{name} of the target", ylabel="first level accepted, mean")
  axis.set_title(f"{name}: targets, with 95% intervals", fontsize="medium")


def _draw_shares(axis: matplotlib.axes.Axes, cells, names, title: str) -> None:
  kinds = list(dict.fromkeys(cell["kind"] for cell in cells))
  for k, (kind, (name, label)) in enumerate(itertools.product(kinds, names.items())):
    own = [cell for cell in cells if cell["kind"] == kind and cell[name] is not None]
    own.sort(key=lambda cell: cell["tau"])
    x = np.array([cell["tau"] for cell in own]) * 1.05 ** (k - 1)
    face = {} if kind == "target" else {"markerfacecolor": "none"}
    style = {**STYLES[k], **face, "label": f"{label}, {kind}"}
    _errorbar(axis, x, own, name, style)
  _logarithmic(axis, {cell["tau"] for cell in cells})
  axis.set(ylabel="share", ylim=(-0.04, 1.04))
  axis.set_title(title, fontsize="medium")


def _errorbar(axis: matplotlib.axes.Axes, x, cells, name: str, style) -> None:
  middle = np.array([cell[name] for cell in cells])
  low, high = (
    np.array([cell[name] if cell[end] is None else cell[end] for cell in cells])
    for end in (f"{name}_low", f"{name}_high")
  )
  yerr = np.maximum([middle - low, high - middle], 0)  # rounding
  axis.errorbar(x, middle, yerr=yerr, capsize=2, markersize=5, **style)


def _draw_models(axis: matplotlib.axes.Axes, name: str, rows) -> None:
  models: dict[tuple, list] = {}
  for row in rows:
    key = (row["degree"], row["num_components"], row["index"])
    models.setdefault(key, []).append(row)
  most = rows[0]["most"]
  above = most + max(1, most // 8)  # where no level was accepted, or is within tau
  degrees = sorted({row["degree"] for row in rows})
  for k, (key, own) in enumerate(models.items()):
    style = STYLES[degrees.index(key[0]) % len(STYLES)]
    own.sort(key=lambda row: row["tau"])
    x = np.array([row["tau"] for row in own]) * 1.03 ** (k - (len(models) - 1) / 2)
    found, within = (
      [row[value] or above for row in own] for value in ("found", "within")
    )
    drawn = {**style, "linestyle": "none"}
    first = all(other[0] != key[0] for other in list(models)[:k])
    label = f"planted degree {key[0]}" if first else None
    axis.plot(x, found, markersize=4, label=label, **drawn)
    axis.plot(x, within, markersize=9, markerfacecolor="none", **drawn)
  axis.plot([], [], "o", color="black", markersize=4, label="found")
  axis.plot(
    [], [], "o", color="black", markersize=9, markerfacecolor="none",
    label=r"least level within $\tau$",
  )  # fmt: skip
  _logarithmic(axis, {row["tau"] for row in rows})
  ticks = range(1, most + 1, max(1, most // 6))
  axis.set_yticks([*ticks, above], [*map(str, ticks), f"above {most}"])
  axis.set_ylabel(f"{name} of trained models")
  axis.set_title(f"{name}: trained models, a column each", fontsize="medium")


def _logarithmic(axis: matplotlib.axes.Axes, taus) -> None:
  axis.set_xscale("log")
  axis.set_xticks(sorted(taus), [f"{tau:g}" for tau in sorted(taus)])
  axis.set_xticks([], minor=True)
  axis.set_xlabel(r"proximity parameter $\tau$")
