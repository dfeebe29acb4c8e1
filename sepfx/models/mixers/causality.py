"""Whether a model is causal, by trying."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sepfx.errors import InvalidSetting, require


def check_causal(mixer: nn.Module, inputs: Array, name: str) -> None:
  """Raises `InvalidSetting` if what a position becomes depends on a later one.

  One input at a time is exchanged for another. What depends on later inputs by less than
  rounding errors is not found.

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
  variables = mixer.init(jax.random.key(0), inputs)
  N = inputs.shape[1]

  @jax.jit
  def mixed(inputs: Array, k: Array) -> Array:
    others = jnp.roll(inputs, 1, axis=0)
    other = (jnp.arange(N) == k).reshape(1, N, *(1,) * (inputs.ndim - 2))
    return jnp.asarray(mixer.apply(variables, jnp.where(other, others, inputs)))

  wanted = np.asarray(mixed(inputs, N), float)
  takes = (
    "a causal mixer: outputs of this one are not finite, so that nothing can be told"
  )
  require(bool(np.all(np.isfinite(wanted))), "mixers", name, takes)
  scale = np.max(np.abs(wanted)) * float(jnp.finfo(jnp.float32).eps)
  for k in range(1, N):
    found = np.asarray(mixed(inputs, k), float)[:, :k]
    moved = np.abs(found - wanted[:, :k]).max(axis=(0, *range(2, found.ndim)))
    if np.any(moved > 100 * scale):
      i = int(np.argmax(moved > 100 * scale))
      takes = f"a causal mixer: of this one output {i} depends on input {k}"
      raise InvalidSetting("mixers", name, takes)
