"""The derived bound on the loss under perturbations, against the measured loss."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from experiments.fourier.flatness import pac_bayes, perturbation
from experiments.fourier.flatness.bounds import SIGMAS
from experiments.fourier.flatness.flatness import construction_of
from sepfx import InvalidSetting
from sepfx.probes import hessian as sharpness
from sepfx.tasks import FourierSparse
from sepfx.tasks.fourier import all_bits


def built(**fields):
  task = FourierSparse(length=6, **fields)
  construction = construction_of(task, task.init(jax.random.key(0)))
  return construction, construction.tokens(all_bits(6))


def losses_at(construction, tokens, sigma, number):
  """L_n(theta + sigma xi) of some draws, in float64."""
  with jax.enable_x64(True):
    params = jax.tree.map(jnp.asarray, construction.params)
    inputs = jnp.asarray(np.asarray(tokens), jnp.float64)

    @jax.jit
    def outputs(own):
      return construction.model.apply({"params": own}, inputs)

    clean, generator = outputs(params), np.random.default_rng(1)
    found = []
    for _ in range(number):
      moved = jax.tree.map(
        lambda a: a + sigma * generator.normal(size=a.shape), construction.params
      )
      found.append(float(jnp.mean((outputs(moved) - clean) ** 2)))
  return np.array(found)


@pytest.mark.slow
@pytest.mark.parametrize(
  "fields",
  [
    {"degree": 2, "num_components": 3},
    pytest.param(
      {"degree": 3, "num_components": 4, "signed": True}, marks=pytest.mark.slow
    ),
  ],
)
def test_bound_is_above_the_measured_loss_on_the_whole_mesh(fields):
  construction, tokens = built(**fields)
  for sigma in (*SIGMAS[::6], 0.1):
    measured = losses_at(construction, tokens, sigma, 20)
    bound = perturbation.perturbed_loss_bound(construction.params, tokens, sigma)
    assert np.mean(measured) + 3 * scipy.stats.sem(measured) < bound
    # And so is the bound of P, whatever the trace.
    risk = pac_bayes.risk_perturbation(np.mean(measured), 0.0, 5.0, sigma)
    assert risk < pac_bayes.risk_perturbation(bound, 0.0, 5.0, sigma)


def test_bound_of_a_small_perturbation_is_of_its_order():
  construction, tokens = built(degree=1, num_components=2)
  at = [
    perturbation.perturbed_loss_bound(construction.params, tokens, sigma)
    for sigma in (1e-9, 1e-8)
  ]
  assert at[1] / at[0] == pytest.approx(100, rel=1e-2)
  with_loss = perturbation.perturbed_loss_bound(construction.params, tokens, 1e-9, 0.25)
  assert with_loss == pytest.approx((np.sqrt(at[0]) + 0.5) ** 2)


def test_moments_are_bounded_and_not_by_much():
  generator = np.random.default_rng(0)
  for p in (1, 2, 4):
    normals = np.max(np.abs(generator.normal(size=(4000, 50))), axis=1)
    norms = np.max(np.linalg.norm(generator.normal(size=(4000, 9, 12)), axis=2), axis=1)
    matrices = np.linalg.norm(generator.normal(size=(1000, 7, 11)), 2, axis=(1, 2))
    for sampled, bound in (
      (normals, perturbation._largest_normal(50, p)),
      (norms, perturbation._largest_norm(9, 12, p)),
      (matrices, perturbation._operator(7, 11, p)),
    ):
      moment = np.mean(sampled**p) ** (1 / p)
      assert moment < bound < 1.6 * moment
  one = np.mean(np.abs(generator.normal(size=(200_000, 3))) ** 2, axis=0).sum() ** 0.5
  assert perturbation._norm(3, 2) == pytest.approx(one, rel=0.01)
  assert perturbation._norm(3, 2) == pytest.approx(3**0.5)


def test_trace_is_below_what_the_bound_allows():
  """sigma^2 / 2 Tr H is the loss at second order, which the bound covers."""
  construction, tokens = built(degree=2, num_components=3)
  params = jax.tree.map(jnp.asarray, construction.params)
  trace = sharpness.gradient_trace(
    lambda own, token: construction.model.apply({"params": own}, token[None])[0],
    params,
    tokens,
  )
  bound = perturbation.perturbed_loss_bound(construction.params, tokens, 1e-6)
  assert 1e-12 / 2 * float(trace) < bound


@pytest.mark.parametrize("sigma", [0.0, -1e-3])
def test_a_bad_sigma_is_refused(sigma):
  construction, tokens = built(degree=1, num_components=1)
  with pytest.raises(InvalidSetting, match="sigma"):
    perturbation.perturbed_loss_bound(construction.params, tokens, sigma)
