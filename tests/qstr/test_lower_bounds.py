"""Floors of the main paper, against simulations and plain calculations."""

import math

import numpy as np
import pytest
import scipy.linalg

from experiments.qstr.bounds import lower_bounds as floors
from sepfx.errors import InvalidSetting


def test_the_proofs_space_has_the_dimension_that_the_floor_counts():
  """A (x) R^d + R^q (x) V, whose complement is what heads do not tell."""
  rng = np.random.default_rng(0)
  for q, d, H in ((4, 20, 1), (4, 20, 3), (5, 3, 2), (3, 3, 3), (2, 6, 4)):
    a, v = rng.normal(size=(H, q)), rng.normal(size=(H, d))
    rows = np.concatenate([np.kron(a, np.eye(d)), np.kron(np.eye(q), v)])
    free = q * d - np.linalg.matrix_rank(rows)
    assert floors.heads_floor(q, d, H) == pytest.approx(2 * free / (q * d))
    # The printed floor counts the two spaces as if they had nothing in common, and
    # averages over all positions with a share of one half.
    printed = floors.printed_heads_floor(q, d, H)
    assert printed == pytest.approx(max(0, 1 - len(rows) / (q * d)))
    assert printed <= floors.heads_floor(q, d, H) / 2 + 1e-12
    assert floors.heads_floor(q, d, H) <= floors.blind_heads_floor(q, H)


def test_variance_given_projections():
  """Lemma 40: what is left of sum ||x_j||^2 given some directions of the q tokens."""
  rng = np.random.default_rng(1)
  q, d, H = 3, 4, 1
  rows = np.concatenate(
    [
      np.kron(rng.normal(size=(H, q)), np.eye(d)),
      np.kron(np.eye(q), rng.normal(size=(H, d))),
    ]
  )
  free = scipy.linalg.null_space(rows)
  known = scipy.linalg.orth(rows.T)
  x = (known @ rng.normal(size=(known.shape[1], 1))) + free @ rng.normal(
    size=(free.shape[1], 400_000)
  )
  y = np.sum(x**2, axis=0) / math.sqrt(q * d)
  np.testing.assert_allclose(np.var(y), floors.heads_floor(q, d, H), rtol=0.02)


def test_variance_of_a_squared_norm():
  """Lemma 40: Var ||x||^2 = 2 tr Sigma^2 + 4 mu^T Sigma mu."""
  rng = np.random.default_rng(3)
  root, mean = rng.normal(size=(3, 3)), rng.normal(size=3)
  covariance = root @ root.T
  x = mean + rng.normal(size=(400_000, 3)) @ root.T
  expected = 2 * np.trace(covariance @ covariance) + 4 * mean @ covariance @ mean
  np.testing.assert_allclose(np.var(np.sum(x**2, axis=1)), expected, rtol=0.03)


def test_retrieving_heads_attain_the_blind_floor():
  rng = np.random.default_rng(2)
  q, d = 4, 20
  x = rng.normal(size=(100_000, q, d))
  squares = np.sum(x**2, axis=-1) - d
  y = np.sum(squares, axis=1) / math.sqrt(q * d)
  for H in range(1, q + 1):
    found = np.mean((y - np.sum(squares[:, :H], axis=1) / math.sqrt(q * d)) ** 2)
    assert found == pytest.approx(floors.blind_heads_floor(q, H), rel=0.03, abs=1e-9)


@pytest.mark.parametrize(("length", "number"), [(10, 6), (11, 6), (7, 4), (2, 2)])
def test_positions_that_have_labels(length, number):
  assert floors.share_with_labels(length) * length == pytest.approx(number)
  assert number == sum(2 * i >= length for i in range(1, length + 1))


@pytest.mark.parametrize("q", [1, 2])
def test_predictor_attains_the_floor_of_its_own_u(q):
  rng = np.random.default_rng(q)
  N, d, k = 6, 4, 40_000
  for n in (3, 10, 20):
    inputs = rng.normal(size=(n, N, d))
    u = rng.normal(size=(q, d))
    u /= np.linalg.norm(u)
    found = floors.span_floor(inputs, u)
    assert found.mean == pytest.approx(1 - n / (N * d))
    assert found.own <= found.worst + 1e-9
    prompts = rng.normal(size=(k, N, d))
    t = np.argsort(rng.random((k, N)), axis=1)[:, :q]
    named = np.take_along_axis(prompts, t[..., None], axis=1)
    errors = np.sum(named * u, axis=(1, 2)) - floors.span_predictor(inputs, u, prompts, t)
    error = np.std(errors**2) / math.sqrt(k)
    assert abs(np.mean(errors**2) - found.own) < 4 * error
    # Nothing of the span predicts what is left.
    seen = prompts.reshape(k, -1) @ inputs.reshape(n, -1).T
    correlations = [np.corrcoef(errors, column)[0, 1] for column in seen.T]
    assert np.max(np.abs(correlations)) < 5 / math.sqrt(k)


@pytest.mark.parametrize("q", [1, 2])
def test_mean_and_worst_are_those_over_u(q):
  rng = np.random.default_rng(3)
  inputs = rng.normal(size=(7, 5, 3))
  us = rng.normal(size=(4000, q, 3))
  us /= np.linalg.norm(us, axis=(1, 2), keepdims=True)
  found = [floors.span_floor(inputs, u) for u in us]
  own = np.array([each.own for each in found])
  assert abs(np.mean(own) - found[0].mean) < 4 * np.std(own) / math.sqrt(len(own))
  assert np.max(own) <= found[0].worst + 1e-9
  assert np.max(own) > found[0].worst - 0.05


def test_inputs_that_span_everything_leave_nothing():
  inputs = np.random.default_rng(0).normal(size=(40, 5, 3))
  u = np.array([[1.0, 0, 0]])
  np.testing.assert_allclose(floors.span_floor(inputs, u), 0, atol=1e-9)
  doubled = np.concatenate([inputs[:4], inputs[:4]])
  assert floors.span_floor(doubled, u).mean == pytest.approx(1 - 4 / 15)


@pytest.mark.parametrize(
  ("length", "risk", "expected"),
  [(32, 0.01, 4.6), (32, 0.1, 2.4), (32, 0.5, 0.66), (128, 0.01, 19), (128, 0.1, 10)],
)
def test_width_is_the_best_over_resolutions(length, risk, expected):
  found = floors.least_width(length, risk, 10.0)
  root = math.sqrt(risk * length / (length - 1))
  etas = np.geomspace(1e-6, 1 - root, 20_001)[:-1]
  nats = -np.log((root + etas) ** 2) * (length - 1)
  plain = np.max(nats / (4 * np.log(1 + 2 * math.sqrt(2) * 10 / etas)))
  assert found == pytest.approx(plain, rel=1e-4)
  assert found == pytest.approx(expected, rel=0.03)
  norm = np.max(etas * np.sqrt(nats / (8 * math.pi * math.log(2))))
  assert floors.least_norm(length, risk) == pytest.approx(norm, rel=1e-4)


def test_bounds_grow_with_the_length_as_they_say():
  widths = [floors.least_width(N, 0.1, 5.0) for N in (64, 128, 256, 512)]
  norms = [floors.least_norm(N, 0.1) for N in (64, 128, 256, 512)]
  np.testing.assert_allclose(np.diff(np.log2(widths)), 1, atol=0.06)
  np.testing.assert_allclose(np.diff(np.log2(norms)), 0.5, atol=0.03)
  assert floors.least_width(8, 1.0, 5.0) == floors.least_norm(8, 0.9) == 0


def test_a_memory_is_above_the_width_that_it_must_have():
  """A memory of labels is a recurrent network with L ||U|| = sqrt(2 N) or less."""
  for N in (8, 32, 128):
    for width in range(N):
      risk = floors.memory_risk(N, width)
      # States (label at each slot) have norm about sqrt(width); the read-out picks one.
      assert floors.least_width(N, risk, math.sqrt(4 * N)) <= width + 1e-9


def test_memory_by_counting():
  N = 7
  for width in (0, 1, 3, 6):
    known = [abs(i - j) <= width for i in range(N) for j in range(N)]
    assert floors.memory_risk(N, width) == pytest.approx(1 - np.mean(known))


@pytest.mark.parametrize("q", [1, 2])
def test_no_learner_is_below_the_information_floor(q):
  """The Bayes predictor of a Gaussian u from n labels of known tokens."""
  rng = np.random.default_rng(4)
  d, n = 6, 4
  risks = []
  for _ in range(4000):
    u = rng.normal(size=q * d) / math.sqrt(q * d)
    x = rng.normal(size=(n, q * d))
    estimate = np.linalg.pinv(x) @ (x @ u)  # the posterior mean
    risks.append(np.sum((estimate - u) ** 2))
  floor = floors.information_floor(n, q, d)
  assert abs(np.mean(risks) - floor) < 4 * np.std(risks) / math.sqrt(len(risks))
  assert floors.information_floor(100, q, d) == 0


def test_growth_of_errors():
  for N, alpha in ((10, 0.1), (100, 0.01), (100, 0.1), (50, 0.0)):
    error = 0.0
    for _ in range(N):
      error = (1 + alpha) * error + 1
    assert floors.error_growth(N, alpha) == pytest.approx(error)
    if alpha <= 1 / N:
      assert error <= math.e * N
  assert floors.error_growth(1000, 2 / 1000) == pytest.approx(3.2e3, rel=0.01)
  assert floors.error_growth(100, 0.1) == pytest.approx(1.38e5, rel=0.01)


def test_bad_arguments():
  for call, words in (
    (lambda: floors.heads_floor(4, 20, 0), "num_heads: got 0, takes an integer >= 1"),
    (lambda: floors.blind_heads_floor(0, 1), "sparsity: got 0"),
    (lambda: floors.least_width(1, 0.1, 1.0), "length: got 1, takes an integer >= 2"),
    (lambda: floors.least_width(4, 0.1, 0.0), "lipschitz: got 0.0"),
    (lambda: floors.least_norm(4, -0.1), "risk: got -0.1"),
    (lambda: floors.error_growth(4, -1.0), "alpha: got -1.0"),
  ):
    with pytest.raises(InvalidSetting, match=words):
      call()
