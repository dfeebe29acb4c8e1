"""What a training step costs beside what it must cost.

    python -m benchmarks.floors --floor_models=lru,min_gru --floor_lengths=4,16

A step (gradient and optimizer, 64 prompts, no evaluation) of each model on one device, of
ten in one program, beside two floors: its matrix products at the rate of one large
product, and the memory that the optimizer must read and write at the rate of a large sum.
A ratio is that of the step to both floors together. Each is the least of some
repetitions, all in one run. A device may use the threads of others: pin the process to
one core (`taskset -c 0`, JAX_NUM_CPU_DEVICES=1) for figures of one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import rich.console
import rich.table
from absl import app, flags

from benchmarks.products import matrix_peak, step_operations
from sepfx import models
from sepfx.commands import command_line
from sepfx.tasks import QSTR
from sepfx.training import Online, Seeds, Trial

flags.DEFINE_list("floor_models", list(models.NAMES["regression"]), "Which models.")
flags.DEFINE_list("floor_lengths", ["4", "16"], "N.")
flags.DEFINE_float("floor_seconds", 3.0, "Time for each model and length.")

FLAGS = flags.FLAGS
# AdamW reads weights, gradients and two moments, and writes all but the gradients.
_ADAMW_PASSES = 7
# Steps of one timing.
_STEPS = 10
# Numbers of an array that no cache holds.
_LARGE = 2**25


def least_time(call: Callable[[], Any], seconds: float) -> float:
  """The least time of one call, after a first."""
  jax.block_until_ready(call())
  best, end = np.inf, time.perf_counter() + seconds
  while time.perf_counter() < end or not np.isfinite(best):
    start = time.perf_counter()
    jax.block_until_ready(call())
    best = min(best, time.perf_counter() - start)
  return best


def memory_peak() -> float:
  """Bytes a second of adding two arrays that no cache holds."""
  a = jnp.ones(_LARGE, jnp.float32)
  add = jax.jit(lambda a, b: a + b)
  return 3 * a.nbytes / least_time(lambda: add(a, a), 1.0)


def steps_of(trial: Trial, number: int) -> Callable[[], Any]:
  """Returns what makes so many steps from the initial weights, the batch given.

  In one program, as in training: memory is asked for once.
  """
  seeds = Seeds(jax.random.key(0), jax.random.key(1))
  world = jax.jit(trial.world)(seeds)
  params = jax.jit(trial.init)(seeds).params
  sample = jax.jit(trial.batch)(world, jnp.int32(0))
  optimizer = trial.protocol.optimizer

  def step(_, carry):
    params, state = carry
    grads = jax.grad(trial.loss)(params, sample, world, seeds.trial)
    steps, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, steps), state

  steps = jax.jit(lambda carry: jax.lax.fori_loop(0, number, step, carry))
  start = params, optimizer.init(params)
  return lambda: steps(start)


def main(argv: Sequence[str]) -> None:
  del argv
  command_line.prepare_jax()
  products, memory = matrix_peak(1), memory_peak()
  console = rich.console.Console(width=120)
  console.print(f"one device: {products / 1e9:.0f} GFLOP/s, {memory / 1e9:.1f} GB/s")
  table = rich.table.Table(
    "model", "N", "parameters", "step, ms", "products, ms", "optimizer, ms", "ratio"
  )
  for name in FLAGS.floor_models:
    for length in map(int, FLAGS.floor_lengths):
      task = QSTR(length=length, codes="distinct")
      trial = Online().trial(task, task, models.build(name, task), name)
      took = least_time(steps_of(trial, _STEPS), FLAGS.floor_seconds) / _STEPS
      leaves = jax.tree.leaves(trial.state_shapes().params)
      count = sum(leaf.size for leaf in leaves)
      floors = step_operations(trial) / products, 4 * _ADAMW_PASSES * count / memory
      times = (f"{1e3 * own:.2f}" for own in (took, *floors))
      ratio = f"{took / sum(floors):.2f}"
      table.add_row(name, str(length), f"{count:,}", *times, ratio)
  console.print(table)


if __name__ == "__main__":
  app.run(main)
