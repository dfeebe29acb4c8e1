"""What docs/errata.md says of the main paper and no other test holds."""

import math

import numpy as np
import pytest

from experiments.qstr.bounds.covering import TransformerClass
from experiments.qstr.bounds.guarantees import guarantee


def relu(x):
  return np.maximum(x, 0)


def test_predictions_grow_with_the_square_of_the_weights():
  """Theorem 4: the range of the squared loss goes with R^4, not with R^2."""
  rng = np.random.default_rng(0)
  a, W, b, h = (
    rng.normal(size=5), rng.normal(size=(5, 3)), rng.normal(size=5), rng.normal(size=3)
  )  # fmt: skip
  squares = [(c * a @ relu(c * W @ h + c * b)) ** 2 for c in (1.0, 2.0)]
  assert squares[1] / squares[0] == pytest.approx(2**4)
  # The loss is cut accordingly, where Theorem 10 with its constants is asked.
  own = TransformerClass(8, 1, 5, 3, r_a=10.0, R_w=10.0, r_QK=1.0, r_z=1.0)
  taus = [
    guarantee(
      own._replace(r_a=c * 10, R_w=c * 10), token_dim=3, encoding=2.0,
      num_samples=10**9,
    ).tau
    for c in (1.0, 2.0)
  ]  # fmt: skip
  assert 2**4 <= taus[1] / taus[0] < 2**4.3  # and a logarithm
  # In a ball of radius R the product of both norms reaches R^2 / 2.
  R = 1.7
  angles = np.linspace(0, math.pi / 2, 1001)
  assert np.max(R * np.cos(angles) * R * np.sin(angles)) == pytest.approx(R**2 / 2)


def test_states_of_norm_one():
  """Section 5.2: W_2 is multiplied by r_h where the states are divided by it."""
  rng = np.random.default_rng(1)
  r_h = 3.0
  U, W_y, b_y, b_2 = (rng.normal(size=s) for s in ((9, 2), (9, 3), 9, 8))
  W_2, W_3 = rng.normal(size=(8, 9)), rng.normal(size=8)
  h, z = rng.normal(size=2), rng.normal(size=3)

  def read_out(h, W_y, b_y, W_2):
    return W_3 @ relu(W_2 @ relu(U @ h + W_y @ z + b_y) + b_2)

  before = read_out(h, W_y, b_y, W_2)
  scaled = h / r_h, W_y / r_h, b_y / r_h
  assert read_out(*scaled, r_h * W_2) == pytest.approx(before)
  assert read_out(*scaled, W_2 / r_h) != pytest.approx(before, rel=0.05)


def test_a_free_f_has_no_least_norm():
  """Definition 5: the same predictions with W as small as one likes."""
  rng = np.random.default_rng(2)
  W, x = rng.normal(size=(4, 6)), rng.normal(size=(9, 6))

  def f(v):
    return np.tanh(v).sum(axis=-1)

  for c in (1e-2, 1e-6):
    smaller = c * W
    np.testing.assert_allclose(f((x @ smaller.T) / c), f(x @ W.T), rtol=1e-9)
    assert np.linalg.norm(smaller) == pytest.approx(c * np.linalg.norm(W))


def draw_codes(rng, N, d_e):
  return rng.choice([-1.0, 1.0], size=(N, d_e)) / math.sqrt(d_e)


def share_of_sets_found(codes_of, q, draws, whitened=False):
  """How often all q members of a set score above all others, with one head."""
  rng = np.random.default_rng(3)
  found = 0
  for _ in range(draws):
    codes = codes_of(rng)
    members = rng.choice(len(codes), q, replace=False)
    own = codes[members]
    query = np.linalg.pinv(own) @ np.ones(q) if whitened else own.sum(axis=0)
    scores = codes @ query
    found += scores[members].min() > np.delete(scores, members).max()
  return found / draws


def shares_of_sets_found_exactly(N, d_e, q, draws):
  """The same of random codes in whole numbers: above all others, and at least equal."""
  rng = np.random.default_rng(3)
  above = equal = 0
  for _ in range(draws):
    signs = rng.choice([-1, 1], size=(N, d_e))
    members = rng.choice(N, q, replace=False)
    scores = signs @ signs[members].sum(axis=0)
    least, others = scores[members].min(), np.delete(scores, members).max()
    above, equal = above + (least > others), equal + (least >= others)
  return above / draws, equal / draws


def test_one_head_for_sparse_averaging():
  def random(N, d_e):
    return lambda rng: draw_codes(rng, N, d_e)

  # Within four standard errors of 4,000 draws.
  above, equal = shares_of_sets_found_exactly(16, 13, 4, 4000)
  assert above == pytest.approx(0.133, abs=0.022)
  assert equal == pytest.approx(0.354, abs=0.030)
  above, equal = shares_of_sets_found_exactly(64, 20, 4, 4000)
  assert above == pytest.approx(0.064, abs=0.016)
  assert equal == pytest.approx(0.207, abs=0.026)
  assert share_of_sets_found(lambda _: np.eye(64), 4, 100) == 1
  assert share_of_sets_found(random(64, 60), 4, 1000, whitened=True) > 0.98


def test_random_codes_seldom_satisfy_assumption_3():
  rng = np.random.default_rng(4)

  def share(N, d_e, draws=1000):
    found = 0
    for _ in range(draws):
      codes = draw_codes(rng, N, d_e)
      found += np.max(np.abs(np.triu(codes @ codes.T, 1))) <= 0.5 + 1e-9
    return found / draws

  assert share(10, math.floor(5 * math.log(10))) == pytest.approx(0.04, abs=0.025)
  for N in (16, 32, 64):
    assert share(N, math.floor(5 * math.log(N))) == 0
    assert share(N, math.floor(24 * math.log(N)), 300) > 0.98
