"""Legends that fit: below all panels of a figure, or under one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.artist
import matplotlib.axes
import matplotlib.figure
import matplotlib.lines
import matplotlib.transforms

from sepfx.drawing import looks

_MAX_COLUMNS = 4
# What a legend takes beside its longest name, and around it, and what stands beside the
# axes of a panel, in inches at type of 10 points.
_HANDLE_INCHES, _AROUND_INCHES, _BESIDE_INCHES = 0.6, 0.15, 0.75


def handle_of(label: str, **style: Any) -> matplotlib.lines.Line2D:
  """What a legend shows beside a name, black unless said otherwise.

  Args:
    label: the name.
    style: of a line; sizes are those at type of 10 points.
  """
  sizes = {"linewidth": 1.5, "markersize": 6, "markeredgewidth": 1}
  scaled = {name: looks.points(style.pop(name, size)) for name, size in sizes.items()}
  return matplotlib.lines.Line2D(
    [], [], label=label, **{"color": "black", **style, **scaled}
  )


def legend_below(
  figure: matplotlib.figure.Figure, handles: Sequence[matplotlib.artist.Artist]
) -> float:
  """Adds a legend below the panels, in as many columns as there is room for.

  It makes the figure higher, and leaves the panels their size, but for one alone
  (`sepfx.drawing.looks.grow`). Names that are longer than the figure is wide are broken.

  Returns:
    By how many inches a panel alone gave way.
  """
  return _fitting_legend(
    figure, handles, figure.get_figwidth(), figure, {"loc": "outside lower center"}
  )


def legend_under(
  axis: matplotlib.axes.Axes,
  handles: Sequence[matplotlib.artist.Artist],
  below: float = 0.5,
) -> None:
  """Adds a legend under one panel, as `legend_below` does under all.

  Args:
    axis: of the panel.
    handles: what is shown, with labels.
    below: how far under the axes it begins, in inches at type of 10 points: beyond the
      labels of ticks and the axis' name.
  """
  figure = axis.figure.figure
  under = matplotlib.transforms.ScaledTranslation(
    0, -looks.points(below), figure.dpi_scale_trans
  )
  _fitting_legend(
    axis,
    handles,
    looks.panel_of(axis)[0] - looks.points(_BESIDE_INCHES),
    figure,
    {
      "loc": "upper center",
      "bbox_to_anchor": (0.5, 0),
      "bbox_transform": axis.transAxes + under,
      "borderaxespad": 0,
      "fontsize": "small",
    },
  )


def _fitting_legend(owner, handles, width: float, figure, settings) -> float:
  """A legend of at most this width; the figure grows by its height."""
  room = width - looks.points(_HANDLE_INCHES)
  labels = [looks.wrap(str(handle.get_label()), room) for handle in handles]
  for columns in range(min(len(handles), _MAX_COLUMNS), 0, -1):
    legend = owner.legend(
      handles=handles, labels=labels, ncols=columns, frameon=False, **settings
    )
    box = legend.get_window_extent()
    if box.width <= 0.98 * width * figure.dpi or columns == 1:
      break
    legend.remove()
  return looks.grow(figure, box.height / figure.dpi + looks.points(_AROUND_INCHES))
