"""Norms of trained weights, layer by layer."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array


def norms(trial: Any, params: Any, world: Any, key: Any) -> dict[str, Array]:
  """Euclidean (Frobenius) norm of each array of parameters, and of all together.

  Returns:
    `norm` and `norm_LAYER_NAME` for each array.
  """
  del trial, world, key
  squares = {
    "_".join(str(entry.key) for entry in path): jnp.sum(array**2)
    for path, array in jax.tree_util.tree_leaves_with_path(params)
  }
  found = {f"norm_{name}": jnp.sqrt(square) for name, square in squares.items()}
  return {"norm": jnp.sqrt(sum(squares.values(), start=jnp.zeros(()))), **found}
