"""What a Transformer with one channel after attention has learned, and its figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import matplotlib.figure
import numpy as np
from jaxtyping import Array, Float, Int
from matplotlib.ticker import MaxNLocator

from sepfx import precision
from sepfx.drawing.looks import STYLES, columns, inches, points
from sepfx.models import ChannelTransformer
from sepfx.probes.attention import first_attention, matched
from sepfx.tasks.fourier import Spectrum, parities

# A swing of the response counts from this share of its range on.
_SWING = 0.1
_GRID = 2001


class Learned(NamedTuple):
  """A trained `ChannelTransformer` beside the k components of its function.

  Attributes:
    sets: S_i as masks.
    coefficients: c_i.
    attention: mean over inputs.
    rows: the row that is nearest to each set (`sepfx.probes.attention.matched`).
    shares: of that row's attention on the set.
    overlaps: of that row with what is uniform on the set.
    channel: the number that each of these rows reads, of each input.
    ones: how many bits of the set are 1.
    agreements: |correlation| over inputs of h of that number with chi_i: 1 where the row
      computes the parity, but for scale.
    grid, response: the MLP's h, over what all rows read.
    turns: extrema of h over what these rows read; swings below a tenth of its range
      there are not counted. One parity of d bits needs d - 1.
  """

  sets: Float[np.ndarray, "k T"]
  coefficients: Float[np.ndarray, " k"]
  attention: Float[np.ndarray, "S S"]
  rows: Int[np.ndarray, " k"]
  shares: Float[np.ndarray, " k"]
  overlaps: Float[np.ndarray, " k"]
  channel: Float[np.ndarray, "n k"]
  ones: Int[np.ndarray, "n k"]
  agreements: Float[np.ndarray, " k"]
  grid: Float[np.ndarray, " G"]
  response: Float[np.ndarray, " G"]
  turns: int


@precision.exact()
def look(
  model: ChannelTransformer, params: Any, planted: Spectrum, bits: Int[Array, "n T"]
) -> Learned:
  """Looks into trained weights.

  Args:
    model: what was trained.
    params: its weights.
    planted: the components of its function.
    bits: inputs that means are over.
  """
  used = np.asarray(planted.coefficients) != 0
  sets = np.asarray(planted.sets)[used]
  weights = first_attention(model, params, bits)
  rows, shares, overlaps = map(np.asarray, matched(weights, jnp.asarray(sets)))
  values = np.asarray(params["value_kernel"])
  places, of_bit = values[:-1], values[-1]
  inputs = np.concatenate([bits, np.zeros((len(bits), 1))], axis=1)
  read = np.einsum("nrs,ns->nr", weights, places + of_bit * inputs)

  def h(channel: np.ndarray) -> np.ndarray:
    return np.asarray(
      model.apply({"params": params}, channel[..., None], method="response")
    )[..., 0]

  own = read[:, rows]
  chi = np.asarray(parities(bits, jnp.asarray(sets)))
  agreements = [
    abs(np.corrcoef(a, b)[0, 1]) if np.std(a) > 0 else 0.0
    for a, b in zip(h(own).T, chi.T, strict=True)
  ]
  grid = np.linspace(read.min(), read.max(), _GRID)
  return Learned(
    sets=sets,
    coefficients=np.asarray(planted.coefficients)[used],
    attention=np.asarray(weights).mean(axis=0),
    rows=rows,
    shares=shares,
    overlaps=overlaps,
    channel=own,
    ones=np.asarray(bits) @ sets.T.astype(int),
    agreements=np.array(agreements),
    grid=grid,
    response=h(grid),
    turns=turns(h(np.linspace(own.min(), own.max(), _GRID))),
  )


def turns(values: Float[np.ndarray, " G"], swing: float = _SWING) -> int:
  """Counts the extrema of a curve between swings of a share of its range, at least.

  Args:
    values: along the curve.
    swing: the share.
  """
  least = swing * float(np.ptp(values))
  low = high = float(values[0])
  direction, found = 0, 0
  for value in map(float, values):
    low, high = min(low, value), max(high, value)
    rises = direction <= 0 and value - low > least
    falls = direction >= 0 and high - value > least
    if rises or falls:
      found += direction != 0
      direction = 1 if rises else -1
      low = high = value
  return found


def figure(trials: Sequence[tuple[str, Learned]]) -> matplotlib.figure.Figure:
  """Draws trials, a line of panels for each.

  Args:
    trials: titles, and what was learned.

  Returns:
    Attention; the rows nearest to the planted sets above what is uniform on these sets,
    in shades that end there; and the MLP's response with what those rows read.
  """
  wide = columns(3, 3, 1.25) == 3  # else panels stand below one another
  size = inches(12.5, 3.9 * len(trials)) if wide else inches(4.2, 11 * len(trials))
  made = matplotlib.figure.Figure(figsize=size, layout="constrained")
  lines = made.subfigures(len(trials), 1, squeeze=False)[:, 0]
  for part, (title, own) in zip(lines, trials, strict=True):
    part.suptitle(title, fontsize="medium")
    if wide:
      panels = part.subplot_mosaic(
        [["all", "rows", "mlp"], ["all", "sets", "mlp"]], width_ratios=(1, 0.9, 1.5)
      )
    else:
      panels = part.subplot_mosaic(
        [["all"], ["rows"], ["sets"], ["mlp"]], height_ratios=(2, 1, 1, 2)
      )
    names = [f"$S_{i + 1}$" for i in range(len(own.sets))]
    T, most = own.sets.shape[1], 1 / own.sets.sum(axis=1).min()
    image = panels["all"].imshow(own.attention, cmap="Greys", vmin=0, vmax=1)
    for name in ("all", "sets"):
      panels[name].xaxis.set_major_locator(MaxNLocator(integer=True))
    part.colorbar(image, ax=panels["all"], shrink=0.7)
    panels["all"].set(xlabel="position attended to", ylabel="row")
    panels["all"].set_title("attention, mean over inputs", fontsize="small")
    for name, shown, text in (
      (
        "rows",
        own.attention[own.rows, :T],
        "the rows nearest to the sets, shades to 1/d",
      ),
      ("sets", own.sets / own.sets.sum(axis=1, keepdims=True), "planted sets, 1/d each"),
    ):
      panels[name].imshow(shown, cmap="Greys", vmin=0, vmax=most, aspect="auto")
      labels = [
        f"{s}: row {r}" if name == "rows" else f"{s}, c = {c:.2f}"
        for s, r, c in zip(names, own.rows, own.coefficients, strict=True)
      ]
      panels[name].set_yticks(range(len(names)), labels, fontsize="small")
      panels[name].set_title(text, fontsize="small")
    panels["rows"].set_xticks([])
    panels["sets"].set_xlabel("position")
    _draw_response(panels["mlp"], own, names)
  return made


def _draw_response(axis: Any, own: Learned, names: Sequence[str]) -> None:
  axis.plot(own.grid, own.response, color="black", linewidth=points(1))
  for i, (name, style) in enumerate(zip(names, STYLES, strict=False)):
    heights = np.interp(own.channel[:, i], own.grid, own.response)
    for odd in (0, 1):
      part = own.ones[:, i] % 2 == odd
      axis.plot(
        own.channel[part, i], heights[part], linestyle="none", markersize=points(5),
        marker=style["marker"], color=style["color"], alpha=0.5,
        markerfacecolor="none" if odd else style["color"],
        label=None
        if odd
        else f"{name}: overlap {own.overlaps[i]:.2f}, parity {own.agreements[i]:.2f}",
      )  # fmt: skip
  axis.set(xlabel="number that a row reads", ylabel="MLP's response h")
  axis.set_title("filled: an even number of the set's bits; empty: odd", fontsize="small")
  axis.legend(
    frameon=False,
    fontsize="small",
    ncol=2,
    loc="upper center",
    bbox_to_anchor=(0.5, -0.17),
  )
  axis.grid(alpha=0.25)
