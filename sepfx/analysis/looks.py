"""How figures look: whose colour is which, and sizes for a screen, a paper or slides."""

from __future__ import annotations

import contextlib
import contextvars
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib

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
# How markers are filled: further series have the same styles, filled otherwise.
_FILLS = ("full", "none", "left", "top")

# A model has one style in all figures, whatever else they show. There are more models
# than colours: those that share one have markers of their own, and are kin.
_OF_MODELS: Mapping[str, tuple[int, str]] = {
  "transformer": (0, "o"),
  "ffn": (1, "s"),
  "gru": (2, "^"),
  "lstm": (3, "D"),
  "relu_rnn": (4, "v"),
  "lru": (5, "P"),
  "residual_rnn": (6, "X"),
  "linear_attention": (7, "p"),
  "deep_transformer": (3, "h"),
  "min_gru": (2, "<"),
  "dense_transformer": (3, "*"),
  "dense_convolution": (5, "8"),
  "tokens_first": (7, "d"),
}


class Look(NamedTuple):
  """Sizes of what is drawn.

  Attributes:
    points: of type.
    width: of a figure, in inches; None for what its panels take.
    panel: the least width of a panel, in inches.
    dpi: of images.
  """

  points: float
  width: float | None
  panel: float
  dpi: int


LOOKS = {
  "screen": Look(10, None, 3.0, 150),
  "paper": Look(7, 6.75, 1.5, 300),
  "slides": Look(16, 12.0, 4.8, 150),
}
_now: contextvars.ContextVar[Look] = contextvars.ContextVar(
  "look", default=LOOKS["screen"]
)


@contextlib.contextmanager
def look(style: str = "screen", width: float | None = None) -> Iterator[None]:
  """What is drawn and written inside has this look.

  Args:
    style: of `LOOKS`.
    width: of figures, in inches; None for the style's own.

  Raises:
    InvalidSetting: for another style, or a width that nothing fits in.
  """
  require(style in LOOKS, "figure_style", style, f"one of {', '.join(LOOKS)}")
  chosen = LOOKS[style]
  takes = f"inches from {chosen.panel:g} to 60"
  fits = width is None or chosen.panel <= width <= 60
  require(fits, "figure_width", width, takes)
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

  A model's own style is that of its first series by name; further ones, and models that
  have none, take what is left.

  Args:
    names: of `sepfx.analysis.series`: a model, then what else tells series apart.
  """
  own: dict[str, dict[str, Any]] = {}
  order = list(dict.fromkeys(names))
  models = set()
  for name in sorted(order):
    model = specifications.base(name.partition(", ")[0])
    if model in _OF_MODELS and model not in models:
      models.add(model)
      k, marker = _OF_MODELS[model]
      own[name] = {**style_of(k), "marker": marker}
  taken = {style["color"] for style in own.values()}
  every = [style_of(k) for k in range(len(STYLES) * len(_FILLS))]
  free = [s for s in every if s["fillstyle"] != "full" or s["color"] not in taken]
  rest = zip(sorted(set(order) - set(own)), itertools.cycle(free), strict=False)
  own.update(rest)
  return {name: own[name] for name in order}
