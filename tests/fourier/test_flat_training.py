"""Training that seeks flat minima: a penalty on the outputs' gradient, and SAM."""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sepfx import ERM, InvalidSetting, Online
from sepfx.models import ReadOutTransformer
from sepfx.probes import hessian as sharpness
from sepfx.tasks import FourierSparse
from sepfx.training import AdamW
from tests import small

TASK = FourierSparse(length=5, degree=2, num_components=2)
MODEL = ReadOutTransformer(embedding_dim=3, mlp_width=6)
PROTOCOL = ERM(
  sample_size=16, threshold=1e-9, optimizer=optax.sgd(0.1), check_every=2, num_test=32,
  max_steps=4,
)  # fmt: skip
TRIAL = PROTOCOL.trial(TASK, TASK, MODEL)


def train(trial, own, steps):
  """Its parameters after some steps."""
  world, state = trial.world(own), trial.init(own)
  return jax.jit(trial.train, static_argnums=2)(state, world, steps).params


@pytest.mark.slow
def test_penalty_is_the_gradient_trace_on_average():
  own = small.seeds(0)
  world, params = TRIAL.world(own), TRIAL.init(own).params
  trial = small.with_protocol(TRIAL, gradient_penalty=0.5)
  plain = TRIAL.loss(params, world.sample, world)
  expected = 0.5 * sharpness.gradient_trace(
    lambda own, bits: MODEL.apply({"params": own}, bits[None])[0],
    params,
    world.sample.bits,
  )
  keys = jax.random.split(jax.random.key(1), 4000)
  found = jax.lax.map(
    lambda key: trial.loss(params, world.sample, world, key) - plain, keys
  )
  error = float(jnp.std(found)) / len(keys) ** 0.5
  assert error < 0.05 * expected
  assert abs(float(jnp.mean(found)) - float(expected)) < 4 * error
  # Without a key it is what the sample alone says.
  assert float(trial.loss(params, world.sample, world)) == float(plain)


class Bias(nn.Module):
  """Its outputs are one parameter, whose gradient is 1 in each."""

  @nn.compact
  def __call__(self, bits):
    return jnp.full(len(bits), self.param("bias", nn.initializers.zeros, ()))


def test_penalty_of_sixteen_samples_is_no_larger_than_of_one():
  """A sum of 16 random signs has the square 16 in the mean: 2 |grad f|^2 = 2."""
  trial = small.with_protocol(PROTOCOL.trial(TASK, TASK, Bias()), gradient_penalty=0.5)
  own = small.seeds(0)
  world, params = trial.world(own), trial.init(own).params
  keys = jax.random.split(jax.random.key(1), 2000)
  values = jax.vmap(lambda key: trial.loss(params, world.sample, world, key))(keys)
  found = values - trial.loss(params, world.sample, world)
  assert abs(jnp.mean(found) - 1) < 5 * jnp.std(found) / len(keys) ** 0.5 < 0.3


@pytest.mark.slow
def test_penalty_of_one_sample_is_its_squared_gradient():
  """Twice |grad f|^2, whatever the sign that is drawn; without a key there is none."""
  trial = small.with_protocol(TRIAL, gradient_penalty=0.5)

  @jax.jit
  def losses(own):
    world, params = trial.world(own), trial.init(own).params
    one = jax.tree.map(lambda a: a[:1], world.sample)
    gradient = jax.grad(lambda own: MODEL.apply({"params": own}, one.bits)[0])(params)
    with_key = trial.loss(params, one, world, jax.random.key(1))
    without = trial.loss(params, one, world), TRIAL.loss(params, one, world)
    return with_key, *without, sum(jnp.sum(g**2) for g in jax.tree.leaves(gradient))

  with_key, without, plain, squares = losses(small.seeds(0))
  np.testing.assert_allclose(with_key - plain, 0.5 * 2 * squares, rtol=1e-4)
  assert float(without) == float(plain)


@pytest.mark.slow
def test_penalty_changes_training_where_it_has_weight():
  def trained(weight):
    trial = small.with_protocol(TRIAL, gradient_penalty=weight)
    return train(trial, small.seeds(0), 4)

  plain = trained(None)
  chex.assert_trees_all_close(trained(0.0), plain, rtol=1e-5, atol=1e-7)
  with pytest.raises(AssertionError):
    chex.assert_trees_all_close(trained(0.1), plain, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_sam_steps_with_the_gradient_nearby():
  rate, rho = 0.05, 0.3
  trial = small.with_protocol(TRIAL, optimizer=AdamW(rate, weight_decay=0.1, rho=rho))
  own = small.seeds(0)
  world, state = trial.world(own), trial.init(own)
  gradient = jax.jit(jax.grad(lambda own: trial.loss(own, world.sample, world)))
  adam = optax.adamw(rate, weight_decay=0.1)
  expected, moments = state.params, adam.init(state.params)
  for _ in range(3):
    here = gradient(expected)
    norm = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(here)))
    above = jax.tree.map(lambda a, g, norm=norm: a + rho * g / norm, expected, here)
    steps, moments = adam.update(gradient(above), moments, expected)
    expected = optax.apply_updates(expected, steps)
  trained = train(trial, own, 3)
  chex.assert_trees_all_close(trained, expected, rtol=1e-4, atol=1e-5)
  ordinary = small.with_protocol(TRIAL, optimizer=AdamW(rate, weight_decay=0.1))
  with pytest.raises(AssertionError):
    chex.assert_trees_all_close(train(ordinary, own, 3), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("protocol", [ERM, Online])
@pytest.mark.parametrize("weight", [-0.1, np.inf, np.nan])
def test_a_bad_weight_is_refused(protocol, weight):
  with pytest.raises(InvalidSetting, match="gradient_penalty"):
    protocol(gradient_penalty=weight)


def test_a_random_penalty_has_no_gradient_to_watch():
  with pytest.raises(InvalidSetting, match=r"gradient_penalty.*grad_norm"):
    ERM(gradient_penalty=0.1, watched="grad_norm")


@pytest.mark.parametrize("rho", [0.0, -1.0, np.inf])
def test_a_bad_radius_is_refused(rho):
  with pytest.raises(InvalidSetting, match="rho"):
    AdamW(rho=rho)
