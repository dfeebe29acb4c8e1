"""Optimizers that optax does not have under one name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import optax


def adam_with_kernel_decay(
  learning_rate: float = 1e-3, weight_decay: float = 1e-4, clip_norm: float = 1.0
) -> optax.GradientTransformation:
  """Adam as *Inductive Biases and Variable Creation* leaves it to be understood.

  Decoupled weight decay, on the weight matrices of linear layers alone (parameters
  whose name ends in "kernel"), not on biases, layer norms or embeddings.

  Args:
    learning_rate: eta.
    weight_decay: decoupled, multiplied by the learning rate.
    clip_norm: of the global gradient norm; 0 for none.
  """

  def is_kernel(path: tuple, _: Any) -> bool:
    return str(path[-1].key).endswith("kernel")

  adam = optax.adamw(
    learning_rate,
    weight_decay=weight_decay,
    mask=lambda params: jax.tree_util.tree_map_with_path(is_kernel, params),
  )
  return optax.chain(optax.clip_by_global_norm(clip_norm), adam) if clip_norm else adam


def projected(
  optimizer: optax.GradientTransformation, projection: Callable[[Any], Any]
) -> optax.GradientTransformation:
  """An optimizer whose every step is followed by a projection of the parameters.

  With the projection onto a norm ball, from `optax.projections` for instance, it is
  projected gradient descent for the constrained empirical risk minimiser (section 2
  of the main paper).

  Args:
    optimizer: makes the step.
    projection: parameters -> the nearest ones allowed.
  """

  def update(grads, state, params=None):
    steps, state = optimizer.update(grads, state, params)
    allowed = projection(optax.apply_updates(params, steps))
    return jax.tree.map(lambda new, old: new - old, allowed, params), state

  return optax.GradientTransformation(optimizer.init, update)
