"""benchmarks.floors: what it times is training's own steps."""

import jax
import numpy as np
import pytest

from benchmarks import floors
from sepfx.training import Seeds
from tests import small


@pytest.mark.slow
def test_steps_are_those_of_training():
  seeds = Seeds(jax.random.key(0), jax.random.key(1))
  world, state = small.TRIAL.world(seeds), small.TRIAL.init(seeds)
  batch = small.TRIAL.batch(world, 0)
  params, optimizer = state.params, small.TRIAL.protocol.optimizer
  own = optimizer.init(params)
  for _ in range(3):
    grads = jax.grad(small.TRIAL.loss)(params, batch, world, seeds.trial)
    steps, own = optimizer.update(grads, own, params)
    params = jax.tree.map(lambda a, b: a + b, params, steps)
  found, _ = floors.steps_of(small.TRIAL, 3)()
  # AdamW turns the last digits of gradients near zero into parts of a step of 1e-3.
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), found, params)


def test_least_time_is_the_least_and_positive():
  calls = []
  assert 0 < floors.least_time(lambda: calls.append(0), 0.0) < 1
  assert len(calls) == 2  # one to warm up, one that is timed
