"""Traces, eigenvalues and perturbations, against dense Hessians."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from experiments.fourier.flatness import construction as fourier
from sepfx import InvalidSetting, precision, probes
from sepfx.probes import hessian as sharpness
from sepfx.tasks.fourier import all_bits
from tests import small

KEY = jax.random.key(0)
MATRIX = np.random.default_rng(0).normal(size=(12, 12))
PARAMS = {"a": jnp.arange(4.0), "b": jnp.ones((4, 2))}


def loss(params):
  """A quartic of all parameters, whose Hessian is not constant."""
  vector, _ = ravel_pytree(params)
  return jnp.sum((MATRIX @ vector) ** 2) / 10 + jnp.sum(vector**4) / 100


@precision.exact()
def dense(params):
  flat, unravel = ravel_pytree(params)
  return np.asarray(jax.hessian(lambda vector: loss(unravel(vector)))(flat))


def test_product_is_with_the_hessian():
  vector = jnp.cos(jnp.arange(12.0))
  product = sharpness.hessian_product(loss, PARAMS)(vector)
  expected = dense(PARAMS) @ np.asarray(vector)
  np.testing.assert_allclose(product, expected, rtol=1e-4)


def test_trace_is_within_its_error():
  expected = np.trace(dense(PARAMS))
  found = [
    sharpness.hessian_trace(key, loss, PARAMS, 200) for key in jax.random.split(KEY, 20)
  ]
  off = np.array([(own.mean - expected) / own.error for own in found])
  assert np.max(np.abs(off)) < 4
  assert 0.5 < np.std(off) < 1.6  # the error is neither too small nor too large


def test_leading_eigenvalues_are_the_dense_ones():
  expected = np.linalg.eigvalsh(dense(PARAMS))[::-1]
  found = sharpness.leading_eigenvalues(KEY, loss, PARAMS, 12)
  np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
  few = sharpness.leading_eigenvalues(KEY, loss, PARAMS, 7)
  np.testing.assert_allclose(few[0], expected[0], rtol=1e-2)


def test_density_has_the_moments_of_the_eigenvalues():
  eigenvalues = np.linalg.eigvalsh(dense(PARAMS))
  nodes, weights = sharpness.spectral_density(KEY, loss, PARAMS, 6, 400)
  np.testing.assert_allclose(np.sum(weights, axis=1), 1, rtol=1e-4)
  for power in (1, 2):
    means = np.sum(weights * nodes**power, axis=1)
    error = np.std(means) / 20
    assert abs(np.mean(means) - np.mean(eigenvalues**power)) < 4 * error


@pytest.mark.usefixtures("exact")
def test_perturbed_loss_is_the_second_order_one():
  """Of a quadratic it is L + sigma^2 Tr H / 2, exactly in the mean."""

  def quadratic(params):
    vector, _ = ravel_pytree(params)
    return jnp.sum((MATRIX @ vector) ** 2)

  flat, unravel = ravel_pytree(PARAMS)
  trace = np.trace(jax.hessian(lambda vector: quadratic(unravel(vector)))(flat))
  found = sharpness.perturbed(KEY, quadratic, PARAMS, 0.3, 4000)
  expected = quadratic(PARAMS) + 0.3**2 / 2 * trace
  assert abs(found.mean - expected) < 4 * found.error
  assert found.error < 0.05 * expected
  still = sharpness.perturbed(KEY, quadratic, PARAMS, 0.0, 2)
  np.testing.assert_allclose(still.mean, quadratic(PARAMS), rtol=1e-6)


@pytest.mark.slow
def test_traces_of_the_construction_agree():
  """Done three ways at T = 8: dense Hessian, random signs, gradients (Theorem 13)."""
  with jax.enable_x64(True):
    bits = np.asarray(all_bits(8))
    sets = np.array([[1, 1, 0, 0, 0, 0, 0, 0], [0, 0, 1, 0, 1, 0, 0, 0]], float)
    c = np.array([0.6, 0.8])
    built = fourier.flat_transformer(sets, c)
    tokens = built.tokens(bits)
    labels = built(bits)
    params = jax.tree.map(jnp.asarray, built.params)

    def one(own, token):
      return built.model.apply({"params": own}, token[None])[0]

    def squared(own):
      outputs = built.model.apply({"params": own}, tokens)
      return jnp.mean((outputs - labels) ** 2)

    flat, _ = ravel_pytree(params)
    product = sharpness.hessian_product(squared, params)
    rows = jax.lax.map(product, jnp.eye(len(flat)), batch_size=32)
    exact = jnp.trace(rows)
    by_gradients = sharpness.gradient_trace(one, params, tokens)
    np.testing.assert_allclose(by_gradients, exact, rtol=1e-6)
    found = sharpness.hessian_trace(KEY, squared, params, 60)
    assert abs(found.mean - exact) < 3 * found.error
    assert found.error < 0.3 * exact


@pytest.mark.slow
def test_probe_is_the_trace_of_the_mean_loss_without_penalties():
  trial = small.with_protocol(small.TRIAL, l2=0.5)
  seeds = small.seeds(0)
  world, state = trial.world(seeds), trial.init(seeds)
  probe = probes.build("sharpness:num_samples=40")
  values = jax.jit(lambda p: probe(trial, p, world, KEY))(state.params)
  sample_key, _ = jax.random.split(KEY)
  sample = trial.task.sample(sample_key, world.planted, trial.samples_a_step)
  flat, unravel = ravel_pytree(state.params)
  plain = small.TRIAL.loss
  hessian = jax.hessian(lambda v: plain(unravel(v), sample, world))(flat)
  off = (values["hessian_trace"] - jnp.trace(hessian)) / values["hessian_trace_error"]
  assert abs(off) < 4
  np.testing.assert_allclose(values["squared_norm"], jnp.sum(flat**2), rtol=1e-5)


@pytest.mark.parametrize(
  ("call", "message"),
  [
    (lambda: sharpness.hessian_trace(KEY, loss, PARAMS, 1), "num_samples: got 1"),
    (lambda: sharpness.perturbed(KEY, loss, PARAMS, 0.1, 1), "num_samples: got 1"),
    (lambda: sharpness.leading_eigenvalues(KEY, loss, PARAMS, 13),
     "num_matvecs: got 13, .* number of parameters, 12"),
    (lambda: probes.build("sharpness:num_samples=1"), "sharpness:num_samples=1"),
  ],
)  # fmt: skip
def test_bad_settings_are_refused(call, message):
  with pytest.raises(InvalidSetting, match=message):
    call()
