"""A learned query-key matrix beside the pattern of Equation (A.2)."""

from __future__ import annotations

from typing import Any

import matplotlib.colors
import matplotlib.figure
import numpy as np

from sepfx.drawing import looks


def block_statistics(matrix: np.ndarray, token_dim: int, code_dim: int) -> dict[str, Any]:
  """Measures W_Q^T W_K of a head for q = 1.

  Args:
    matrix: [D D], rows for the query's (x, omega_i, omega_{t_i}), columns for the key's.
    token_dim: d.
    code_dim: d_e.

  Returns:
    share_in_block: share of the squared Frobenius norm inside the block in which the
      query's omega_{t_i} meets the key's omega_j.
    rows_won_by_diagonal: share of the block's rows whose diagonal entry is positive and
      the largest magnitude of the row (of the whole matrix, not of the block alone).
    mean_diagonal, mean_off_diagonal: mean diagonal entry of the block and mean magnitude
      of its other entries.
  """
  named = slice(token_dim + code_dim, token_dim + 2 * code_dim)
  own = slice(token_dim, token_dim + code_dim)
  matrix = matrix.astype(float)  # sums of squares in double precision
  block = matrix[named, own]
  diagonal = np.diag(block)
  off_diagonal = np.abs(block[~np.eye(code_dim, dtype=bool)])
  won = (diagonal > 0) & (diagonal >= np.abs(matrix[named]).max(axis=1))
  return {
    "share_in_block": float(np.sum(block**2) / np.sum(matrix**2)),
    "rows_won_by_diagonal": float(np.mean(won)),
    "mean_diagonal": float(np.mean(diagonal)),
    "mean_off_diagonal": float(np.mean(off_diagonal)),
  }


def draw_products(
  learned: np.ndarray,
  constructed: np.ndarray,
  token_dim: int,
  code_dim: int,
) -> matplotlib.figure.Figure:
  """Draws |W_Q^T W_K| beside the construction of Equation (A.2).

  Rows belong to the query's z_i = (x, omega_i, omega_{t_i}), columns to the key's.

  Args:
    learned: W_Q^T W_K, [D D].
    constructed: W_Q^T W_K of the construction, [D D].
    token_dim: d.
    code_dim: d_e.
  """
  figure, axes = looks.grid(2, (5.25, 4.6))
  ends = np.array([0, token_dim, token_dim + code_dim, token_dim + 2 * code_dim])
  names = ("x", r"$\omega_i$", r"$\omega_{t_i}$")
  panels = ((learned, "learned"), (constructed, "constructed, Equation (A.2)"))
  for axis, (matrix, name) in zip(axes, panels, strict=True):
    # A power of 1/2 brings the weak entries out; zero stays white.
    norm = matplotlib.colors.PowerNorm(0.5, vmin=0, vmax=np.abs(matrix).max())
    image = axis.imshow(np.abs(matrix), cmap="Greys", norm=norm)
    for end in ends[1:-1]:
      axis.axvline(end - 0.5, color="#d9730d", linestyle="--", linewidth=looks.points(1))
      axis.axhline(end - 0.5, color="#d9730d", linestyle="--", linewidth=looks.points(1))
    middles = (ends[:-1] + ends[1:] - 1) / 2
    axis.set_xticks(middles, names)
    axis.set_yticks(middles, names)
    axis.tick_params(length=0)
    axis.set(xlabel="key token", ylabel="query token", title=rf"$|W_Q^\top W_K|$, {name}")
    figure.colorbar(image, ax=axis, shrink=0.85)
  looks.fit_labels(figure)
  return figure
