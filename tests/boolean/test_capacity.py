"""Bounds on capacity against plain minimisation over how the error is split."""

import math

import numpy as np
import pytest
import scipy.integrate
import scipy.optimize

from experiments.boolean.construction import selection
from experiments.capacity import (
  HeadNorms,
  LayerNorms,
  deep_capacity,
  generalisation_bound,
  head_norms,
  heads_capacity,
  linear_log_covering,
  matrix_capacity,
  norms,
)
from sepfx.errors import InvalidSetting

M, T = 50, 30
LOG = math.log(M * T)


def test_norms_are_of_what_feeds_an_output():
  kernel = np.array([[3.0, 0.0, 1.0], [4.0, 2.0, 1.0]])
  found = norms(kernel)
  assert found.two_inf == pytest.approx(5)
  assert found.two_one == pytest.approx(5 + 2 + math.sqrt(2))
  assert found.spectral == pytest.approx(np.linalg.svd(kernel)[1][0])
  # |x W| <= spectral |x|, and each output is at most two_inf |x|.
  x = np.random.default_rng(0).normal(size=(1000, 2))
  lengths = np.linalg.norm(x, axis=1)
  assert np.max(np.linalg.norm(x @ kernel, axis=1) / lengths) <= found.spectral
  assert np.max(np.abs(x @ kernel) / lengths[:, None]) <= found.two_inf


def least(error_of, size_of, number):
  """The least size at an error of 1, over positive parts of it."""
  rng = np.random.default_rng(0)

  def size(logs):
    eps = np.exp(logs)
    return math.log(size_of(eps / error_of(eps)))  # errors are linear in their parts

  starts = rng.normal(size=(4, number))
  options = {"maxiter": 20_000, "maxfev": 20_000, "xatol": 1e-9, "fatol": 1e-13}
  options["adaptive"] = True
  return math.exp(
    min(
      scipy.optimize.minimize(size, s, method="Nelder-Mead", options=options).fun
      for s in starts
    )
  )


def test_heads_are_the_best_split_of_the_error():
  heads = [HeadNorms(1.3, 0.9, 2.1), HeadNorms(0.4, 0.3, 0.8)]
  d, B_X, L = 7, 1.7, 0.6

  def error(eps):  # Lemma 4.3 for each head, their sum for all
    of_scores, of_values = eps[:2], eps[2:]
    return sum(
      2 * L * own.V * B_X * s + L * v
      for own, s, v in zip(heads, of_scores, of_values, strict=True)
    )

  def size(eps):  # a score within eps needs the query side within eps / B_X
    of_scores, of_values = eps[:2], eps[2:]
    total = 0.0
    for own, s, v in zip(heads, of_scores, of_values, strict=True):
      total += matrix_capacity(d, own.QK_inf, B_X, M * T) / (s / B_X) ** 2
      total += matrix_capacity(d, own.V_inf, B_X, M * T) / v**2
    return total

  own = heads_capacity(heads, d=d, B_X=B_X, num_samples=M, length=T, L_sigma=L)
  assert own == pytest.approx(least(error, size, 4), rel=1e-5)


def test_heads_are_the_closed_form():
  head, d, B_X = HeadNorms(1.3, 0.9, 2.1), 7, 1.7
  form = 1.3 ** (2 / 3) + (2 * 2.1 * 0.9 * B_X**2) ** (2 / 3)
  settings = {"d": d, "num_samples": M, "length": T}
  one = heads_capacity([head], B_X=B_X, **settings)
  assert one == pytest.approx((d * B_X) ** 2 * form**3 * LOG)
  # H equal heads: H^3 of one (after Lemma A.12); positions add to the tokens' norm.
  assert heads_capacity([head] * 4, B_X=B_X, **settings) == pytest.approx(64 * one)
  shifted = heads_capacity([head], B_X=1.2, B_P=0.5, **settings)
  assert shifted == pytest.approx(one)
  scaled = heads_capacity([head], B_X=B_X, B_w=3.0, constant=0.1, **settings)
  assert scaled == pytest.approx(0.9 * one)


def test_deep_is_the_best_split_of_the_error():
  layers = [
    LayerNorms(1.2, 0.7, 0.9, 0.8, 0.5, 1.1),
    LayerNorms(0.6, 1.4, 1, 0.9, 0.3, 1),
  ]
  d, k, B_w, L = 5, 3, 1.6, 0.9

  def error(eps):  # the recursion in the proof of Theorem A.17, then Lemma A.16
    total = 0.0
    for own, (c, qk, v) in zip(layers, eps[:6].reshape(2, 3), strict=True):
      total *= L * own.C * own.V * (1 + 4 * own.QK)
      total += c + 2 * L * own.C * own.V * qk + L * own.C * v
    return B_w * total + eps[6]

  def size(eps):
    total = B_w**2 / eps[6] ** 2
    for own, (c, qk, v) in zip(layers, eps[:6].reshape(2, 3), strict=True):
      total += (d * own.C_inf / c) ** 2 + (d * own.QK_inf / qk) ** 2
      total += (k * own.V_inf / v) ** 2
    return total * LOG

  own = deep_capacity(layers, d=d, k=k, B_w=B_w, num_samples=M, length=T, L_sigma=L)
  assert own == pytest.approx(least(error, size, 7), rel=1e-4)


def test_matrices():
  plain = matrix_capacity(6, 1.5, 2.0, 100)
  assert plain == pytest.approx((6 * 1.5 * 2.0) ** 2 * math.log(100))
  # The form with the (2, 1) norm is never looser, and equal where columns are.
  kernel = np.random.default_rng(0).normal(size=(4, 6))
  own = norms(kernel)
  assert matrix_capacity(6, own.two_inf, 2.0, 100, B_1=own.two_one) < matrix_capacity(
    6, own.two_inf, 2.0, 100
  )
  assert matrix_capacity(6, 1.5, 2.0, 100, B_1=9.0) == pytest.approx(plain)
  # Zhang's theorem at numbers small enough for a pocket calculator: ceil(4 + 2) = 6.
  expected = 36 * math.log(2 * 6 * 10 + 1)
  assert linear_log_covering(0.5, 2.0, 1.0, 10) == pytest.approx(expected)


@pytest.mark.parametrize("capacity", [3.0, 5000.0])
def test_generalisation_is_dudleys_infimum(capacity):
  A, b, L, delta = 2.0, 3.0, 0.5, 0.1

  def dudley(low):
    integrand = lambda eps: math.sqrt(capacity / eps**2 / M)  # noqa: E731
    return low + scipy.integrate.quad(integrand, low, A)[0]

  found = scipy.optimize.minimize_scalar(
    dudley, bounds=(1e-6, A), method="bounded", options={"xatol": 1e-10}
  )
  expected = 4 * L * found.fun + 2 * b * math.sqrt(math.log(10) / (2 * M))
  own = generalisation_bound(capacity, M, A=A, b=b, L=L, delta=delta)
  assert own == pytest.approx(expected, rel=1e-5)
  for setting, value in (("delta", 1.0), ("delta", 0.0)):
    with pytest.raises(InvalidSetting, match=setting):
      generalisation_bound(capacity, M, A=A, b=b, delta=value)


def test_capacity_of_a_construction_grows_slower_than_roots_of_t():
  """One head for any hidden function of s bits: its norms grow with log T alone."""
  lengths, found = (10, 30, 90), []
  for length in lengths:
    (own,) = head_norms(selection("deterministic", length, (1, 4, 7)).params)
    # The d of the corollary is fixed here, so that what grows is norms and log(m T).
    found.append(heads_capacity([own], d=4, B_X=2**0.5, num_samples=100, length=length))
  roots = np.diff(np.log(found)) / np.diff(np.log(lengths))
  assert np.all((roots > 0) & (roots < 0.6))
  assert roots[1] < roots[0]
