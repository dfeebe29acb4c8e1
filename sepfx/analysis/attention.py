"""How close a learned query-key matrix is to the pattern of Equation (A.2)."""

from __future__ import annotations

from typing import Any

import numpy as np


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
