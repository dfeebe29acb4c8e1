"""How figures look: whose colour is which, and sizes for a screen, a paper or slides."""

from __future__ import annotations

import contextlib
import contextvars
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
import matplotlib.axes
import matplotlib.colors
import matplotlib.figure
import numpy as np

from sepfx import specifications
from sepfx.errors import require

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
# How markers are filled: further series have the same colour and marker, filled
# otherwise. Hollow is the last, since figures give it meanings of their own.
_FILLS = ("full", "left", "top", "none")
_DASHES = tuple(style["linestyle"] for style in STYLES)

# A model has one style in all figures, whatever else they show: a colour, a marker and a
# dash pattern. There are more models than colours: those that share one are kin, and
# have markers and dash patterns of their own.
_OF_MODELS: Mapping[str, tuple[int, str, int]] = {
  "transformer": (0, "o", 0),
  "ffn": (1, "s", 1),
  "gru": (2, "^", 2),
  "lstm": (3, "D", 3),
  "relu_rnn": (4, "v", 4),
  "lru": (5, "P", 5),
  "residual_rnn": (6, "X", 6),
  "linear_attention": (7, "p", 7),
  "deep_transformer": (3, "h", 0),
  "min_gru": (2, "<", 4),
  "dense_transformer": (3, "*", 1),
  "dense_convolution": (5, "8", 0),
  "tokens_first": (7, "d", 0),
  "attention": (0, "s", 2),
  "based": (7, "v", 3),
  "gla": (6, "D", 4),
  "delta": (1, "o", 5),
  "gated_delta": (1, "^", 6),
  "mamba2": (3, "v", 5),
  "rwkv7": (6, "o", 7),
  "base_convolution": (5, "s", 3),
  "hyena": (5, "D", 6),
  "rg_lru": (4, "^", 1),
}
# How much of a figure's height its panel may lose to what stands beside it.
_GIVING_WAY = 0.25
# Colours, markers and dash patterns of models that are not the library's: those have none
# of these.
_OWN_COLOURS = ("#7a4419", "#5aa9e6", "#e377c2", "#5e3fbe", "#7fb51f", "#f0866e")
_OWN_MARKERS = (">", "H", (4, 1, 0), (8, 1, 0))
# Markers of a model's series after those that its fills tell apart.
_FURTHER = ("o", "s", "^", "D", "v", "P", "X", "p")

# The light end of the colours of numbers: beyond it they are too pale on white.
_LIGHTEST = 0.85
# A row of panels, in inches at type of 10 points: the least height that it can be read
# at, and the least that it has where there is a page for it.
_LEAST_HEIGHT, _EASY_HEIGHT = 1.9, 2.4
# Width of a letter, and what tick labels and axis labels take beside a panel, in inches
# at type of 10 points.
_LETTER_INCHES, _BESIDE_INCHES = 0.078, 0.75
# What stands for a letter of a formula, and for a space, where no line is broken; and
# what of a formula is not seen.
_HOLD, _HOLD_SPACE = "\x00", "\x01"
_UNSEEN = str.maketrans("", "", "${}^_\\ ")


class Look(NamedTuple):
  """Sizes of what is drawn.

  Attributes:
    points: of type.
    width: of a figure, in inches; None for what its panels take.
    page: height that all panels of a figure have together, in inches, where they can be
      read at it; None for what they take.
    least: width of a figure, in inches, that all of its texts fit in.
    panel: the least width of a panel, in inches.
    dpi: of images.
  """

  points: float
  width: float | None
  page: float | None
  least: float
  panel: float
  dpi: int


LOOKS = {
  "screen": Look(10, None, None, 4.0, 3.0, 150),
  "paper": Look(7, 6.75, 8.4, 2.8, 1.5, 300),
  "slides": Look(16, 12.0, None, 7.0, 4.8, 150),
}
_now: contextvars.ContextVar[Look] = contextvars.ContextVar(
  "look", default=LOOKS["screen"]
)


@contextlib.contextmanager
def look(
  style: str = "screen", width: float | None = None, *, prefix: str = ""
) -> Iterator[None]:
  """What is drawn and written inside has this look.

  Args:
    style: of `LOOKS`.
    width: of figures, in inches; None for the style's own.
    prefix: of the names by which errors call the two.

  Raises:
    InvalidSetting: for another style, or a width that nothing fits in.
  """
  require(style in LOOKS, f"{prefix}style", style, f"one of {', '.join(LOOKS)}")
  chosen = LOOKS[style]
  takes = f"inches from {chosen.least:g} to 60 in the style {style}"
  narrowest = min(LOOKS, key=lambda name: LOOKS[name].least)
  if style != narrowest:
    takes += f", from {LOOKS[narrowest].least:g} in {narrowest}"
  number = isinstance(width, int | float) and not isinstance(width, bool)
  fits = width is None or (number and chosen.least <= width <= 60)
  require(fits, f"{prefix}width", width, takes)
  token = _now.set(chosen if width is None else chosen._replace(width=width))
  try:
    with matplotlib.rc_context(_settings(chosen)):  # type: ignore[arg-type]
      yield
  finally:
    _now.reset(token)


def _settings(chosen: Look) -> dict[str, Any]:
  scale = chosen.points / 10
  return {
    "font.size": chosen.points,
    "axes.titlesize": "medium",
    "axes.linewidth": 0.8 * scale,
    "lines.linewidth": 1.5 * scale,
    "lines.markersize": 6 * scale,
    "savefig.dpi": chosen.dpi,
    "pdf.fonttype": 42,  # TrueType, whole: journals refuse Type 3
    **{f"{side}.major.size": 3.5 * scale for side in ("xtick", "ytick")},
  }


def points(size: float) -> float:
  """A size in points that goes with the type: as given where type has 10."""
  return size * matplotlib.rcParams["font.size"] / 10


def columns(panels: int, most: int, room: float = 1) -> int:
  """How many panels stand side by side.

  Args:
    panels: all of them.
    most: where there is room.
    room: that each takes, in widths of the look's narrowest panel.
  """
  now = _now.get()
  fits = most if now.width is None else int(now.width / (room * now.panel))
  return max(1, min(panels, most, fits))


def panels_of(chosen: Sequence[int] | int | None, number: int) -> list[int]:
  """Which panels of a figure are drawn.

  Args:
    chosen: places from 0, or one of them; None for all.
    number: of panels that it has.

  Raises:
    InvalidSetting: for one that it does not have, or one twice.
  """
  if chosen is None:
    return list(range(number))
  takes = f"places of panels, from 0 to {number - 1}, such as [0]"
  places = [chosen] if isinstance(chosen, int) else chosen
  proper = isinstance(places, Iterable) and not isinstance(places, str)
  require(proper, "panels", chosen, takes)
  own = list(places)
  known = all(isinstance(p, int | np.integer) and 0 <= p < number for p in own)
  known = known and not any(isinstance(place, bool) for place in own)
  require(known and 0 < len(own) == len(set(own)), "panels", chosen, takes)
  return [int(place) for place in own]


def grow(figure: matplotlib.figure.Figure, by: float) -> float:
  """Makes a figure higher, for what stands beside its panels.

  One of a single panel gets no higher than the width that is asked for: its panel gives
  way, but for the larger part of the figure's height.

  Args:
    figure: any.
    by: in inches.

  Returns:
    By how many inches its panel gave way.
  """
  height, width = figure.get_figheight(), _now.get().width
  panels = sum(axis.get_subplotspec() is not None for axis in figure.axes)
  grown = by
  if width is not None and panels == 1:
    grown = max(min(by, max(0.0, width - height)), by - _GIVING_WAY * height)
  figure.set_figheight(height + grown)
  return by - grown


def grid(
  panels: int, size: tuple[float, float], most: int = 3, room: float = 1.25
) -> tuple[matplotlib.figure.Figure, list[matplotlib.axes.Axes]]:
  """A figure of panels, in as many rows as its width asks for.

  Args:
    panels: how many.
    size: of one that is as wide as it likes, in inches.
    most: panels side by side, where there is room.
    room: that each takes, in widths of the look's narrowest panel. Where so many rows
      would be higher than a page, panels stand as close as they can.

  Returns:
    The figure and its panels.
  """
  now, (width, height) = _now.get(), size
  down = -(-panels // columns(panels, most, room))
  if now.page is not None and down * points(_EASY_HEIGHT) > now.page:
    down = -(-panels // columns(panels, most))
  across = -(-panels // down)  # four panels make a square
  if now.width is not None:
    own = now.width / across
    height = max(points(_LEAST_HEIGHT), min(points(height), height * own / width))
    width = own
  if now.page is not None:
    height = max(points(_LEAST_HEIGHT), min(height, now.page / down))
  figure = matplotlib.figure.Figure(
    figsize=(width * across, height * down), layout="constrained"
  )
  return figure, [figure.add_subplot(down, across, 1 + k) for k in range(panels)]


def wrap(text: str, room: float) -> str:
  """Breaks lines of text that are longer than so many inches, between words.

  Args:
    text: in the type of the look. What stands between dollars is not broken.
    room: in inches.
  """
  letters = max(8, int(room / points(_LETTER_INCHES)))
  return "\n".join(_broken(line, letters) for line in text.split("\n"))


def _broken(line: str, letters: int) -> str:
  formulas = re.findall(r"\$[^$]*\$", line)
  # A formula counts what is seen of it: a letter for a command, none for braces.
  shown = [re.sub(r"\\[a-z]+", "x", own).translate(_UNSEEN) for own in formulas]
  plain = iter(shown)
  # A letter at the end, such as "k", stands beside what it is the letter of.
  line = re.sub(r" (\S)$", rf"{_HOLD_SPACE}\1", line)
  held = re.sub(r"\$[^$]*\$", lambda _: _HOLD * max(1, len(next(plain))), line)
  broken = textwrap.fill(held, letters, break_long_words=False, break_on_hyphens=False)
  back = iter(formulas)
  broken = broken.replace(_HOLD_SPACE, " ")
  return re.sub(f"{_HOLD}+", lambda _: next(back), broken)


def fit_labels(figure: matplotlib.figure.Figure) -> None:
  """Breaks titles and names of axes that are longer than their panel."""
  for axis in figure.axes:
    if axis.get_subplotspec() is None:  # a bar of colours
      continue
    width, height = panel_of(axis)
    beside = points(_BESIDE_INCHES)
    for text, room in (
      (axis.title, width - beside),
      (axis.xaxis.label, width - beside),
      (axis.yaxis.label, height - beside / 2),
    ):
      text.set_text(wrap(text.get_text(), room))


def panel_of(axis: matplotlib.axes.Axes) -> tuple[float, float]:
  """Width and height of a panel with all that belongs to it, in inches."""
  spec = axis.get_subplotspec()
  assert spec is not None
  cells, whole = spec.get_gridspec(), axis.figure
  width, height = whole.bbox.width / whole.dpi, whole.bbox.height / whole.dpi
  width, height = width / cells.ncols, height / cells.nrows
  return width * len(spec.colspan), height * len(spec.rowspan)


def inches(width: float, height: float) -> tuple[float, float]:
  """The size of a figure of this shape, as wide as is asked for."""
  asked = _now.get().width
  return (width, height) if asked is None else (asked, height * asked / width)


def style_of(k: int) -> dict[str, Any]:
  """The style of a figure's k-th line; markers repeat after 32, colours after 8."""
  fill = _FILLS[k // len(STYLES) % len(_FILLS)]
  return {**STYLES[k % len(STYLES)], "fillstyle": fill}


def styles_of(names: Iterable[str]) -> dict[str, dict[str, Any]]:
  """The styles of series, by their names, in the order given.

  A model's own style is that of its first series by name. Its further ones have its
  colour, with other fills and dash patterns. What is no model of the library has colours
  and markers that no model of the library has.

  Args:
    names: of `sepfx.statistics.series`: a model, then what else tells series apart.
  """
  order = list(dict.fromkeys(names))
  known: dict[str, list[str]] = {}
  for name in sorted(order):
    model = specifications.base(name.partition(", ")[0])
    if model in _OF_MODELS:
      known.setdefault(model, []).append(name)
  own = {mine[0]: _of_model(model) for model, mine in known.items()}
  for model, (_, *further) in known.items():
    for k, name in enumerate(further, start=1):
      own[name] = _of_model(model, k, own.values())
  rest = sorted(set(order) - set(own))
  own.update((name, _of_others(k)) for k, name in enumerate(rest))
  return {name: own[name] for name in order}


def _of_others(k: int) -> dict[str, Any]:
  """The style of the k-th series that is of no model of the library."""
  turn, place = divmod(k, len(_OWN_COLOURS))
  marker = _OWN_MARKERS[(place + turn) % len(_OWN_MARKERS)]
  fills = _FILLS if isinstance(marker, str) else ("full", "none")
  return {
    "color": _OWN_COLOURS[place],
    "marker": marker,
    "linestyle": _DASHES[(place + turn) % len(_DASHES)],
    "fillstyle": fills[turn // len(_OWN_MARKERS) % len(fills)],
  }


def _of_model(
  model: str, k: int = 0, others: Iterable[Mapping[str, Any]] = ()
) -> dict[str, Any]:
  """The style of a model's k-th series beside others."""
  colour, marker, dash = _OF_MODELS[model]
  color, turn = STYLES[colour]["color"], k // len(_FILLS)
  if turn:
    of_kin = {own for color_of, own, _ in _OF_MODELS.values() if color_of == colour}
    left = [own for own in _FURTHER if own not in of_kin]
    marker = left[(turn - 1) % len(left)]
  taken = [style["linestyle"] for style in others if style["color"] == color]
  turned = [*_DASHES[dash:], *_DASHES[:dash]]
  dashes = min(turned, key=taken.count)  # the first of those taken least
  fill = _FILLS[k % len(_FILLS)]
  return {"color": color, "marker": marker, "linestyle": dashes, "fillstyle": fill}


def styles_of_numbers(values: Iterable[float]) -> dict[float, dict[str, Any]]:
  """The styles of series that differ in a number, from dark for the least to light.

  These are no colours of models: a figure may have both.
  """
  ordered = sorted(set(values))
  shades = matplotlib.colormaps["viridis"](np.linspace(0, _LIGHTEST, len(ordered)))
  return {
    value: {**style_of(k), "color": matplotlib.colors.to_hex(shade)}
    for k, (value, shade) in enumerate(zip(ordered, shades, strict=True))
  }
