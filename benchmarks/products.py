"""What a training step costs at least: its matrix products, and how fast those are."""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sepfx.training import Seeds, Trial

_MATRIX = 2048


def matrix_products(jaxpr: Any) -> int:
  """Floating-point operations of all matrix products in a jaxpr, scans unrolled."""
  total = 0
  for equation in jaxpr.eqns:
    if equation.primitive.name == "dot_general":
      (contracted, _), _ = equation.params["dimension_numbers"]
      shape = equation.invars[0].aval.shape
      inner = int(np.prod([shape[axis] for axis in contracted]))
      total += 2 * inner * int(np.prod(equation.outvars[0].aval.shape))
    times = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
    for parameter in jax.tree.leaves(
      list(equation.params.values()), is_leaf=lambda p: hasattr(p, "eqns")
    ):
      inner_jaxpr = getattr(parameter, "jaxpr", parameter)
      if hasattr(inner_jaxpr, "eqns"):
        total += times * matrix_products(inner_jaxpr)
  return total


def step_operations(trial: Trial) -> int:
  """Floating-point operations of one training step's matrix products."""
  seeds = Seeds(jax.random.key(0), jax.random.key(1))
  world = jax.eval_shape(trial.world, seeds)
  sample = jax.eval_shape(trial.batch, world, jnp.int32(0))
  params = trial.state_shapes().params
  key = seeds.trial
  return matrix_products(
    jax.make_jaxpr(jax.grad(trial.loss))(params, sample, world, key).jaxpr
  )


def matrix_peak(num_devices: int) -> float:
  """Floating-point operations a second of a large product on every device at once."""
  devices = jax.devices()[:num_devices]
  key = jax.random.key(0)
  matrices = [
    jax.device_put(jax.random.normal(key, (_MATRIX, _MATRIX)), device)
    for device in devices
  ]
  product = jax.jit(lambda a: a @ a)
  best = np.inf
  for _ in range(6):
    start = time.perf_counter()
    jax.block_until_ready([product(matrix) for matrix in matrices])
    best = min(best, time.perf_counter() - start)
  return len(devices) * 2 * _MATRIX**3 / best
