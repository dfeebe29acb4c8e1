"""Labels of ticks that do not touch one another, however narrow a panel is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import matplotlib.axis
import matplotlib.ticker
import numpy as np

# A letter, a line, and the least room between two labels, in sizes of the type.
_LETTER, _LINE, _BETWEEN = 0.64, 1.1, 0.5
# Steps on a logarithmic axis, the finest first; then come every second power of ten and
# so on.
_STEPS = ((1, 2, 5), (1,))
_UNSEEN = str.maketrans("", "", "${}^")  # of what is typeset as mathematics
_FEWEST = 2  # labels that tell how an axis runs


def label_logarithmic(axis: matplotlib.axis.Axis) -> None:
  """Labels a logarithmic axis of counts at 1, 2 and 5 times the powers of ten.

  At the powers alone, or some of them, where further labels would collide. That is seen
  when the figure is drawn, since only then the panels have their size.
  """
  axis.set_major_locator(_Counts())
  axis.set_major_formatter(matplotlib.ticker.FuncFormatter(_thousands))
  axis.set_minor_formatter(matplotlib.ticker.NullFormatter())


def label_places(
  axis: matplotlib.axis.Axis,
  places: Sequence[float] | np.ndarray,
  name: Callable[[float], str] = "{:g}".format,
) -> None:
  """Puts a tick at each place, with a label where it does not touch the one before."""
  axis.set_major_locator(matplotlib.ticker.FixedLocator(list(map(float, places))))
  # Points beside their place may leave it out.
  axis.set_view_interval(float(min(places)), float(max(places)))
  axis.set_major_formatter(_Sparse(name))
  axis.set_minor_locator(matplotlib.ticker.NullLocator())


def label_symmetric(axis: matplotlib.axis.Axis) -> None:
  """Labels an axis that is logarithmic on both sides of 0, where there is room."""
  axis.set_major_formatter(_Sparse(_power))


def _power(value: float) -> str:
  if value == 0:
    return "0"
  return rf"${'-' if value < 0 else ''}10^{{{math.log10(abs(value)):.0f}}}$"


class _Counts(matplotlib.ticker.Locator):
  def __call__(self) -> Sequence[float]:
    assert self.axis is not None
    return self.tick_values(*self.axis.get_view_interval())

  def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
    low, high = sorted((vmin, vmax))
    if low <= 0:
      return []
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    fewer = [list(powers)[::-step][::-1] for step in range(2, len(powers))]
    choices = [[sub * 10.0**k for k in powers for sub in subs] for subs in _STEPS]
    choices += [[10.0**k for k in own] for own in fewer]
    within = [[tick for tick in own if low <= tick <= high] for own in choices]
    for ticks in within:
      if len(ticks) >= _FEWEST and all(self._clear(ticks)):
        return ticks
    finest = within[0]
    if len(finest) < _FEWEST:  # less than a factor of five or so
      linear = matplotlib.ticker.MaxNLocator(3, steps=[1, 2, 5, 10])
      finest = [t for t in linear.tick_values(low, high) if low <= t <= high]
    return [t for t, own in zip(finest, self._clear(finest), strict=True) if own]

  def _clear(self, ticks: Sequence[float]) -> list[bool]:
    return clear(self.axis, ticks, [_thousands(tick, None) for tick in ticks])


class _Sparse(matplotlib.ticker.Formatter):
  def __init__(self, name: Callable[[float], str]):
    self._name = name

  def __call__(self, x: float, pos: int | None = None) -> str:
    return self._name(x)

  def format_ticks(self, values: Sequence[float]) -> list[str]:
    labels = [self._name(value) for value in values]
    shown = clear(self.axis, values, labels)
    return [label if own else "" for label, own in zip(labels, shown, strict=True)]


def clear(axis, ticks: Sequence[float], labels: Sequence[str]) -> list[bool]:
  """Which labels do not touch the last one that is kept before them.

  Args:
    axis: as it stands now.
    ticks: where labels are, ascending.
    labels: what they say.
  """
  upright = axis is axis.axes.yaxis
  size = axis.get_major_ticks(1)[0].label1.get_size() * axis.axes.figure.dpi / 72
  middle = np.array([[tick, tick] for tick in ticks], float).reshape(-1, 2)
  at = axis.axes.transData.transform(middle)[:, int(upright)]
  long = [
    _LINE if upright else _LETTER * len(label.translate(_UNSEEN)) + _BETWEEN
    for label in labels
  ]
  kept, end = [], -math.inf
  for x, own in zip(at, long, strict=True):
    kept.append(bool(x - own * size / 2 >= end))
    if kept[-1]:
      end = x + own * size / 2
  return kept


def _thousands(value: float, _: object) -> str:
  for unit, name in ((1_000_000, "M"), (1000, "k")):
    if value >= unit:
      return f"{value / unit:g}{name}"
  return f"{value:g}"
