"""What a training step costs at least: its matrix products, and how fast those are."""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import numpy as np

from sepfx.ensembles.operations import operations_of
from sepfx.training import Seeds, Trial

_MATRIX = 2048


def step_operations(trial: Trial) -> int:
  """Floating-point operations of one training step's matrix products."""
  seeds = Seeds(jax.random.key(0), jax.random.key(1))
  world = jax.eval_shape(trial.world, seeds)
  sample = jax.eval_shape(trial.batch, world, jnp.int32(0))
  params = trial.state_shapes().params
  key = seeds.trial
  return operations_of(
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
