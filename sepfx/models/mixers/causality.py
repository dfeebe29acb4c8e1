"""Whether a model is causal, by trying."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sepfx.errors import require


def check_causal(mixer: nn.Module, inputs: Array, name: str) -> None:
  """Raises `InvalidSetting` if what a position becomes depends on a later one.

  One input at a time is exchanged for another, with initial weights and with all of them
  moved a little: a part that begins at zero hides what it will depend on. What depends on
  later inputs by less than rounding errors is not found.

  Args:
    mixer: [n N ...] -> [n N ...].
    inputs: of it, two sequences at least that differ everywhere.
    name: what it is called, for the message.

  Raises:
    InvalidSetting: for a mixer that is not causal, or whose outputs are not finite.
    ValueError: for inputs that cannot tell.
  """
  if len(inputs) < 2 or np.array_equal(inputs, jnp.roll(inputs, 1, axis=0)):
    raise ValueError("it takes two sequences at least that differ")
  variables, N = mixer.init(jax.random.key(0), inputs), inputs.shape[1]
  flat, back = jax.flatten_util.ravel_pytree(variables)
  moved = back(flat + 0.1 * jax.random.normal(jax.random.key(1), flat.shape))

  @jax.jit
  def mixed(variables: Any, k: Array | int) -> Array:
    others = jnp.roll(inputs, 1, axis=0)
    other = (jnp.arange(N) == k).reshape(1, N, *(1,) * (inputs.ndim - 2))
    return jnp.asarray(mixer.apply(variables, jnp.where(other, others, inputs)))

  for own in (variables, moved):
    wanted = np.asarray(mixed(own, N), float)
    if not np.all(np.isfinite(wanted)):
      takes = "a causal mixer: outputs of this one are not finite, so nothing can be told"
      require(own is moved, "mixers", name, takes)
      continue  # such weights may be none that it can have
    scale = np.max(np.abs(wanted)) * float(jnp.finfo(jnp.float32).eps)
    for k in range(1, N):
      found = np.abs(np.asarray(mixed(own, k), float)[:, :k] - wanted[:, :k])
      leaks = found.max(axis=(0, *range(2, found.ndim))) > 100 * scale
      takes = (
        f"a causal mixer: of this one output {np.argmax(leaks)} depends on input {k}"
      )
      require(not np.any(leaks), "mixers", name, takes)
