"""Lemmas 36 to 38, and the network that fits samples in Theorem 9's proof."""

import math

import jax
import numpy as np
import pytest

from experiments.qstr.constructions.interpolation import (
  fit_line,
  interpolator,
  memorising_rnn,
  separation,
)
from sepfx.errors import InvalidSetting
from sepfx.tasks import QSTR

D = 10


def samples(n, rng):
  """x of the standard normal, y = <u, x'> of other tokens, as a 1STR label mostly is."""
  return rng.normal(size=(n, D)), rng.normal(size=n)


def value(network, x):
  a, w, b = network
  return np.maximum(x @ w.T + b, 0) @ a


@pytest.mark.parametrize("n", [2, 10, 50, 200])
def test_it_interpolates_within_lemma_36(n):
  rng = np.random.default_rng(n)
  for _ in range(20):
    x, y = samples(n, rng)
    found = interpolator(x, y, rng)
    error = np.max(np.abs(value(found.network, x) - y))
    assert error <= 1e-9 * np.max(np.abs(y))
    assert found.network.W.shape == (n, D)
    assert found.separation.holds
    if np.sum(y**2) <= 6 * n:  # Lemma 36, with its proof's constants
      assert found.squared_norm <= 115 * n**3


def test_line_is_linear_between_points_and_within_lemma_38():
  rng = np.random.default_rng(0)
  for n in (2, 3, 30):
    z = rng.permutation(np.cumsum(rng.uniform(0.01, 1, size=n)) - n / 4)
    y = rng.normal(size=n)
    a, w, b = fit_line(z, y)
    t = np.linspace(np.min(z), np.max(z), 500)
    order = np.argsort(z)
    found = np.maximum(t[:, None] * w + b, 0) @ a
    np.testing.assert_allclose(found, np.interp(t, z[order], y[order]), atol=1e-9)
    eps = min(1.0, np.min(np.diff(np.sort(z))))
    bound = 8 * math.sqrt(3) * np.linalg.norm(y) * math.sqrt(n + np.sum(z**2)) / eps
    assert np.sum(a**2) + np.sum(w**2) + np.sum(b**2) <= bound
    np.testing.assert_allclose(np.sum(a**2), np.sum(w**2) + np.sum(b**2))


def test_labels_of_zero():
  a, w, _ = fit_line(np.array([0.0, 1.0]), np.zeros(2))
  assert not np.any(a)
  assert np.all(np.isfinite(w))


def test_how_often_lemma_37_holds():
  """At least 1/3 as printed; e^{-1/6} = 0.85 in the limit."""
  rng = np.random.default_rng(1)
  held = []
  for _ in range(400):
    x = rng.normal(size=(60, D))
    v = rng.normal(size=D)
    held.append(separation(x, v / np.linalg.norm(v)).holds)
  spread = 3 * math.sqrt(0.85 * 0.15 / 400)
  assert abs(np.mean(held) - math.exp(-1 / 6)) < spread
  both = separation(x, np.stack([np.eye(D)[0], np.eye(D)[1]]))  # one by one
  np.testing.assert_array_equal(both.gap[1], separation(x, np.eye(D)[1]).gap)
  plain = [abs(p - q) for k, p in enumerate(x[:, 1]) for q in x[:k, 1]]
  np.testing.assert_allclose(both.gap[1], min(plain))


def test_recurrent_network_fits_the_samples_it_has_seen():
  """Point-wise: n prompts, one label each. It does not generalise."""
  with jax.enable_x64(True):
    task = QSTR(length=6, codes="distinct")
    planted = task.init(jax.random.key(0))
    prompts = task.sample(jax.random.key(1), planted, 200)
    inputs = np.asarray(task.encode(planted, prompts), np.float64)
    labels = np.asarray(prompts.labels, np.float64)
    rng = np.random.default_rng(0)
    at = rng.integers(6, size=100)
    rows = np.arange(100)
    x = inputs[rows, at, :D]
    found = interpolator(x, labels[rows, at], rng)
    model, params = memorising_rnn(found.network, task.input_dim)
    predictions = np.asarray(jax.jit(model.apply)({"params": params}, inputs))
    assert predictions.dtype == np.float64
    fitted = predictions[rows, at]
    np.testing.assert_allclose(fitted, labels[rows, at], atol=1e-9)
    assert np.mean((predictions - labels)[100:] ** 2) > 1
    squared = sum(np.sum(leaf**2) for leaf in jax.tree.leaves(params))
    np.testing.assert_allclose(squared, found.squared_norm)


def test_points_that_are_the_same_are_refused():
  with pytest.raises(InvalidSetting, match=r"z: got .*, takes numbers no two"):
    fit_line(np.zeros(2), np.arange(2.0))
  with pytest.raises(InvalidSetting, match="x: got '3 points', takes points no two"):
    interpolator(np.zeros((3, D)), np.arange(3.0), np.random.default_rng(0))
