"""Whether a model is causal, and maps each sequence by itself, by trying."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sepfx.errors import require
from sepfx.models.building import modes


def check_causal(mixer: nn.Module, inputs: Array, name: str) -> None:
  """Raises `InvalidSetting` if what a position becomes depends on a later one.

  Or on another sequence. One input at a time is exchanged for another, with initial
  weights and with all of them moved a little, either way and upwards: a part that begins
  at zero hides what it will depend on. Not found is what depends on later inputs by less
  than rounding errors, only in longer sequences, or only with weights that give no finite
  outputs when they are moved so.

  Args:
    mixer: [n N ...] -> [n N ...].
    inputs: of it, two sequences at least that differ everywhere.
    name: what it is called, for the message.

  Raises:
    InvalidSetting: for a mixer that is not causal, that mixes sequences, or whose outputs
      are not finite.
    ValueError: for inputs that cannot tell.
  """
  if len(inputs) < 2 or np.array_equal(inputs, jnp.roll(inputs, 1, axis=0)):
    raise ValueError("it takes two sequences at least that differ")
  others = jnp.roll(inputs, 1, axis=0)

  args, kwargs = modes.told(mixer, learns=False)

  @jax.jit
  def mixed(variables: Any, rows: Array) -> Array:
    return jnp.asarray(mixer.apply(variables, rows, *args, **kwargs))

  variables = mixer.init(jax.random.key(0), inputs, *args, **kwargs)
  ways: dict[str, Callable[[Array], Array]] = {
    "": jnp.zeros_like,
    ", once its weights have moved": lambda noise: noise,
    ", once its weights have become larger": jnp.abs,
  }
  for when, way in ways.items():
    own = _moved(variables, way)
    wanted = np.asarray(mixed(own, inputs), float)
    if not np.all(np.isfinite(wanted)):
      takes = "a causal mixer: outputs of this one are not finite, so nothing can be told"
      require(when != "", "mixers", name, takes)
      continue  # such weights may be none that it can have
    scale = np.max(np.abs(wanted)) * float(jnp.finfo(jnp.float32).eps)
    alike = np.asarray(mixed(own, jnp.broadcast_to(inputs[:1], inputs.shape)), float)
    differs = np.abs(alike[0] - wanted[0]).max() > 100 * scale
    takes = (
      "a mixer of each sequence by itself: what this one makes of a sequence depends "
    )
    require(not differs, "mixers", name, f"{takes}on others of the batch{when}")
    for k in range(1, inputs.shape[1]):
      exchanged = inputs.at[:, k].set(others[:, k])
      found = np.abs(np.asarray(mixed(own, exchanged), float)[:, :k] - wanted[:, :k])
      leaks = found.max(axis=(0, *range(2, found.ndim))) > 100 * scale
      which = f"output {np.argmax(leaks)} depends on input {k}{when}"
      takes = f"a causal mixer, which sees no later inputs: of this one {which}"
      require(not np.any(leaks), "mixers", name, takes)


def _moved(variables: Any, way: Callable[[Array], Array]) -> Any:
  """The same with noise of a tenth on all parameters, in their own types."""
  leaves, tree = jax.tree.flatten(variables.get("params", {}))
  moved = []
  keys = jax.random.split(jax.random.key(1), len(leaves))
  for leaf, key in zip(leaves, keys, strict=True):
    if jnp.issubdtype(leaf.dtype, jnp.inexact):
      leaf = leaf + 0.1 * way(jax.random.normal(key, leaf.shape, leaf.dtype))
    moved.append(leaf)
  return {**variables, "params": jax.tree.unflatten(tree, moved)}
