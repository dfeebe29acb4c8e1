"""Steps of the perturbed construction against bounds that hold with a chance."""

import dataclasses

import jax
import numpy as np
import pytest
import scipy.stats

from experiments.fourier.flatness.flat_derivatives import activations, softmax_jacobian
from experiments.fourier.flatness.flatness import construction_of
from experiments.fourier.flatness.perturbed_steps import chi_bound, step_changes
from sepfx import InvalidSetting
from sepfx.tasks import FourierSparse
from sepfx.tasks.fourier import all_bits


@pytest.mark.parametrize("freedom", [1, 3, 30, 300])
def test_chi_bound_is_above_the_quantile_and_near_it(freedom):
  for failure, number in ((0.05, 1), (1e-3, 1), (0.05, 40)):
    quantile = scipy.stats.chi.isf(failure / number, freedom)
    assert quantile < chi_bound(freedom, failure, number) < 1.8 * quantile
  # Lemma 20: the factor over sqrt(m) goes to 1.
  assert chi_bound(10**6, 0.01, 100) < 1.01 * 10**3


def moved(built, sigma, generator):
  params = {
    name: value + sigma * generator.normal(size=np.shape(value))
    for name, value in built.params.items()
  }
  return dataclasses.replace(built, params=params)


@pytest.mark.parametrize("sigma", [1e-6, 1e-3])
def test_no_step_moves_further_than_its_bound(sigma):
  task = FourierSparse(length=6, degree=2, num_components=3)
  built = construction_of(task, task.init(jax.random.key(0)))
  bits = np.asarray(all_bits(6))[::4]
  tokens = np.asarray(built.tokens(bits), float)
  bounds = step_changes(built.params, tokens, sigma, 0.05)
  generator, largest = np.random.default_rng(0), dict.fromkeys(bounds, 0.0)
  F, G = (built.params[name] for name in ("F", "G"))
  with jax.enable_x64(True):
    own = activations(built, bits)
    jacobian = softmax_jacobian(own.weights)
    plain = np.asarray(built(bits))
    for _ in range(8):
      other = moved(built, sigma, generator)
      found = activations(other, bits)
      F2, G2 = (other.params[name] for name in ("F", "G"))
      on = np.asarray(own.slopes[0, 0])
      changes = {
        "read": np.linalg.norm(found.reads - own.reads, axis=-1),
        "row": np.linalg.norm(found.rows - own.rows, axis=-1),
        "mlp_jacobian": np.linalg.norm((F2 * on) @ G2 - (F * on) @ G, 2),
        "weights": np.abs(found.weights - own.weights).sum(axis=-1),
        "softmax_jacobian": np.abs(softmax_jacobian(found.weights) - jacobian).sum(-1),
        "output": np.abs(np.asarray(other(bits)) - plain),
      }
      for name, change in changes.items():
        largest[name] = max(largest[name], float(np.max(change)))
  for name, bound in bounds.items():
    assert 1e-6 * bound < largest[name] < bound, name


def test_bounds_of_small_perturbations_are_of_their_order():
  task = FourierSparse(length=6, degree=1, num_components=2)
  built = construction_of(task, task.init(jax.random.key(0)))
  tokens = np.asarray(built.tokens(all_bits(6)), float)
  small, larger = (step_changes(built.params, tokens, s, 0.1) for s in (1e-10, 1e-9))
  for name in small:
    assert larger[name] / small[name] == pytest.approx(10, rel=1e-3)


def test_bad_settings_are_refused():
  with pytest.raises(InvalidSetting, match="failure"):
    chi_bound(3, 1.5)
  for sigma, failure in ((0.0, 0.1), (1e-3, 0.0)):
    with pytest.raises(InvalidSetting):
      step_changes({}, np.zeros((1, 2, 3)), sigma, failure)
