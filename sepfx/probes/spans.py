"""How much of a first layer lies where the training sample has anything to say of it."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from sepfx import precision
from sepfx.errors import require
from sepfx.models import predict

# Singular values below this share of the largest are rounding.
_RELATIVE = 1e-5


def span(trial: Any, params: Any, world: Any, key: Any) -> dict[str, Array]:
  """Share of the first layer's squared norm inside the span of the training inputs.

  For models whose first layer is a matrix on the whole prompt. A stationary point of a
  penalised loss has share 1 (section 4 of the main paper, Definition 5).

  Returns:
    `span_share`.

  Raises:
    InvalidSetting: where there is no such layer, or every batch is fresh.
  """
  del key
  name = f"span of {trial.coordinates['model']}"
  takes = "a protocol with a fixed sample: the inputs of fresh batches span everything"
  require(world.sample is not None, "probes", name, takes)
  inputs = trial.task.encode(world.planted, world.sample)
  size = inputs[0].size
  kernel, seen = first_layer(trial.model, params, inputs)
  takes = f"a model whose first layer is a matrix on all {size} numbers of a prompt"
  require(kernel.shape[0] == size, "probes", name, takes)
  inside = on_span(seen, kernel)
  return {"span_share": jnp.sum(inside**2) / jnp.sum(kernel**2)}


@precision.exact()
def on_span(
  inputs: Float[Array, "n in"], kernel: Float[Array, "in units"]
) -> Float[Array, "in units"]:
  """V W', with V the projection on the span of the inputs (Theorem 6)."""
  _, singular, directions = jnp.linalg.svd(inputs, full_matrices=False)
  kept = directions * (singular > _RELATIVE * singular[0])[:, None]
  return kept.T @ (kept @ kernel)


def first_layer(
  model: nn.Module, params: Any, inputs: Array
) -> tuple[Float[Array, "in units"], Float[Array, "n in"]]:
  """The kernel of the first dense layer that is applied, and what it is applied to.

  Both are empty if there is no dense layer that maps vectors [n in].
  """
  found: list[tuple[Array, Array]] = []

  def watch(call, arguments, keywords, context):
    module = context.module
    if isinstance(module, nn.Dense) and not found and arguments[0].ndim == 2:
      found.append((module.variables["params"]["kernel"], arguments[0]))
    return call(*arguments, **keywords)

  with nn.intercept_methods(watch):
    predict(model, params, inputs)
  return found[0] if found else (jnp.zeros((0, 0)), jnp.zeros((0, 0)))
