"""How much of its attention a trained model has on the sets of a function's parities."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from sepfx import precision
from sepfx.errors import InvalidSetting, require

# Fresh inputs, and other places for the sets, that means are taken over.
_INPUTS, _PLACES = 256, 16


class Matched(NamedTuple):
  """The row of attention that is nearest to each of K sets.

  Attributes:
    rows: their places.
    shares: of the row's attention on the set's positions.
    overlaps: sum_j min(A_rj, 1/|S| on S) of the row r: 1 less the total variation
      between its attention and what is uniform on the set, which the construction has.
  """

  rows: Int[Array, " K"]
  shares: Float[Array, " K"]
  overlaps: Float[Array, " K"]


def first_attention(model: Any, params: Any, bits: Array) -> Float[Array, "n R S"]:
  """Returns the first weights of attention that a model sows, of all heads and rows.

  Raises:
    InvalidSetting: for a model that sows none.
  """
  _, state = model.apply({"params": params}, bits, mutable="intermediates")
  sown = jax.tree_util.tree_leaves_with_path(state)
  found = [a for path, a in sown if any(key.key == "attention" for key in path[:-1])]
  if not found:
    takes = 'a model that sows its weights of attention as "attention"'
    raise InvalidSetting("probes", f"attention of {type(model).__name__}", takes)
  return found[0].reshape(len(bits), -1, found[0].shape[-1])


@precision.exact()
def matched(weights: Float[Array, "n R S"], sets: Float[Array, "K T"]) -> Matched:
  """Finds the row of the largest overlap for each set.

  Shares and overlaps are means over inputs. A row may be the nearest to several sets.

  Args:
    weights: of attention, rows that sum to 1.
    sets: masks, 0 or 1, T <= S.
  """
  seen = weights[:, :, None, : sets.shape[1]]
  target = sets / jnp.maximum(jnp.sum(sets, axis=1, keepdims=True), 1)
  overlaps = jnp.mean(jnp.sum(jnp.minimum(seen, target), axis=-1), axis=0)
  shares = jnp.mean(weights, axis=0)[:, : sets.shape[1]] @ sets.T
  rows = jnp.argmax(overlaps, axis=0)
  each = np.arange(len(sets))
  return Matched(rows, shares[rows, each], overlaps[rows, each])


def attention(trial: Any, params: Any, world: Any, key: Any) -> dict[str, Array]:
  """Attention on the planted sets, in the row that is nearest to each.

  Of the first attention, on fresh inputs; means over the components that f has.

  Returns:
    `attention_share` and `attention_overlap` (see `Matched`); and those of sets of
    the same sizes at random places, `attention_share_random` and
    `attention_overlap_random`: what the best of so many rows has without being right.

  Raises:
    InvalidSetting: for a task whose planted parameters hold no sets, or a model that
      sows no attention.
  """
  name = f"attention on {trial.task.name}"
  planted = world.planted
  proper = hasattr(planted, "sets") and len(planted.sets) > 0
  require(proper, "probes", name, "a task that plants sets of bits, given as components")
  bits_key, places_key = jax.random.split(key)
  bits = trial.task.sample(bits_key, planted, _INPUTS).bits
  weights = first_attention(trial.model, params, bits)
  used = planted.coefficients != 0

  def mean(sets: Array) -> tuple[Array, Array]:
    _, *found = matched(weights, sets)
    share, overlap = (jnp.sum(jnp.where(used, own, 0)) / jnp.sum(used) for own in found)
    return share, overlap

  def elsewhere(own_key: Array) -> tuple[Array, Array]:
    return mean(jax.random.permutation(own_key, planted.sets, axis=1))

  share, overlap = mean(planted.sets)
  others = jax.lax.map(elsewhere, jax.random.split(places_key, _PLACES))
  return {
    "attention_share": share,
    "attention_overlap": overlap,
    "attention_share_random": jnp.mean(others[0]),
    "attention_overlap_random": jnp.mean(others[1]),
  }
