"""Penalties that are added to a loss, and a check of a protocol's settings of them."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from sepfx.errors import require
from sepfx.models import predict

# Tells the keys of the gradient penalty's signs from those of dropout.
_SIGNS = 0x7369676E


def squared_norm(params: Any) -> Float[Array, ""]:
  """The sum of the squares of all parameters."""
  return sum((jnp.sum(a**2) for a in jax.tree.leaves(params)), jnp.zeros(()))


def squared_gradient(
  model: nn.Module, params: Any, inputs: Any, key: PRNGKeyArray
) -> Float[Array, ""]:
  """An unbiased estimate of 2 E |grad f|^2, f an output without dropout.

  The gradient of a sum of outputs with random signs: squares add up in its squared
  norm, and products cancel in expectation.

  Args:
    model: whose output f is.
    params: its parameters, by which the gradient is taken.
    inputs: of a sample.
    key: of the step's dropout; that of the signs is folded from it.
  """
  key = jax.random.fold_in(key, _SIGNS)

  def signed(own: Any) -> Float[Array, ""]:
    outputs = predict(model, own, inputs)
    signs = jax.random.rademacher(key, outputs.shape, outputs.dtype)
    return jnp.sum(signs * outputs) / outputs.size**0.5

  return 2 * squared_norm(jax.grad(signed)(params))


def check_options(protocol: Any) -> None:
  """Raises `InvalidSetting` for a penalty or a scale that no protocol takes."""
  for name in ("l2", "gradient_penalty"):
    weight = getattr(protocol, name)
    require(weight is None or 0 <= weight < np.inf, name, weight, "a number >= 0")
  scale = protocol.init_scale
  positive = scale is None or 0 < scale < np.inf
  require(positive, "init_scale", scale, "a positive number")
