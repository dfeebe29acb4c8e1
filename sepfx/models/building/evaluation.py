"""A module's outputs where it learns, and where it is evaluated."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jax import Array

from sepfx.models.building import modes


def predict(
  model: nn.Module, params: Any, inputs: Array, *, dropout_key: Array | None = None
) -> Array:
  """Applies a module that has parameters only, to inputs [n ...].

  A module that takes a flag (`modes.FLAGS`) is told that it learns where there is a key,
  and that it does not where there is none.

  Args:
    model: the module.
    params: its parameters.
    inputs: what it takes.
    dropout_key: for modules with dropout, which is off where there is none. Other random
      streams that it asks for have keys that are folded from it.
  """
  return jnp.asarray(modes.apply(model, params, inputs, dropout_key))


def evaluate(model: nn.Module, params: Any, inputs: Array) -> Array:
  """The same without dropout.

  A model may know a cheaper way to the same outputs, above all for many inputs: a method
  `evaluate(inputs)`, which is taken if it is there.
  """
  if not evaluates_many(model):
    return predict(model, params, inputs)
  return jnp.asarray(model.apply({"params": params}, inputs, method="evaluate"))


def evaluates_many(model: nn.Module) -> bool:
  """Whether a model has an `evaluate`, which takes any number of inputs."""
  return hasattr(type(model), "evaluate")
