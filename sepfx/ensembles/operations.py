"""The matrix products and convolutions of a computation, counted without a device."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from sepfx.ensembles import keys
from sepfx.training import Seeds, Trial


def loss_operations(trial: Trial) -> int:
  """Returns the floating-point operations of one batch's loss, in both.

  A training step takes about three times as many: gradients of both factors.
  """
  seeds = Seeds(keys.key(0), keys.key(0))
  world = jax.eval_shape(trial.world, seeds)
  sample = jax.eval_shape(trial.batch, world, jnp.int32(0))
  params = trial.state_shapes().params
  return operations_of(
    jax.make_jaxpr(trial.loss)(params, sample, world, seeds.trial).jaxpr
  )


def operations_of(jaxpr: Any) -> int:
  """Returns the floating-point operations of matrix products and convolutions in a jaxpr.

  Scans count with their length, other loops once; of a conditional the branch with most.
  """
  total = 0
  for equation in jaxpr.eqns:
    name, parameters = equation.primitive.name, equation.params
    if name == "dot_general":
      (contracted, _), _ = parameters["dimension_numbers"]
      shape = equation.invars[0].aval.shape
      inner = math.prod(shape[axis] for axis in contracted)
      total += 2 * inner * math.prod(equation.outvars[0].aval.shape)
    if name == "conv_general_dilated":
      kernel = equation.invars[1].aval.shape
      outputs = kernel[parameters["dimension_numbers"].rhs_spec[0]]
      size = math.prod(equation.outvars[0].aval.shape)
      total += 2 * size * math.prod(kernel) // outputs
    within = [operations_of(own) for own in _within(parameters)]
    times = parameters["length"] if name == "scan" else 1
    total += times * (max(within, default=0) if name == "cond" else sum(within))
  return total


def _within(parameters: dict[str, Any]) -> list[Any]:
  """The jaxprs that an equation evaluates."""
  leaves = jax.tree.leaves(
    list(parameters.values()), is_leaf=lambda own: hasattr(own, "eqns")
  )
  found = [getattr(own, "jaxpr", own) for own in leaves]
  return [own for own in found if hasattr(own, "eqns")]
