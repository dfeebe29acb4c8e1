"""Covering numbers and guarantees of the main paper, against simulations."""

import itertools
import math

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.integrate
import scipy.special

from experiments.qstr.bounds import covering, guarantees
from experiments.qstr.bounds.lower_bounds import error_growth
from sepfx.errors import InvalidSetting
from tests.inequalities import many, seeds


def roots_of_d4():
  signed = itertools.product((-1, 1), repeat=2)
  found = []
  for (a, b), pair in itertools.product(signed, itertools.combinations(range(4), 2)):
    row = np.zeros(4)
    row[list(pair)] = a, b
    found.append(row)
  return np.array(found)


def roots_of_e8():
  found = []
  for (a, b), pair in itertools.product(
    itertools.product((-1, 1), repeat=2), itertools.combinations(range(8), 2)
  ):
    row = np.zeros(8)
    row[list(pair)] = a, b
    found.append(row)
  halves = [s for s in itertools.product((-0.5, 0.5), repeat=8) if np.prod(s) > 0]
  return np.array(found + [np.array(s) for s in halves])


@many
@hypothesis.given(seeds, st.floats(1, 4), st.floats(1, 4), st.floats(1.05, 6))
def test_norms_of_a_product_of_matrices(seed, r, s, p):
  """Lemma 39: ||A B||_{r,s} <= ||A||_{r,p} ||B||_{q,s}, of norms of columns."""

  def norm(matrix, inner, outer):
    return np.linalg.norm(np.linalg.norm(matrix, inner, axis=0), outer)

  rng = np.random.default_rng(seed)
  A, B = rng.normal(size=(3, 4)), rng.normal(size=(4, 2))
  q = p / (p - 1)
  assert norm(A @ B, r, s) <= norm(A, r, p) * norm(B, q, s) * (1 + 1e-9)
  # Equality: columns of A alike, and a column of B with Hoelder's own weights.
  A, b = np.outer(rng.normal(size=3), np.ones(4)), np.ones((4, 1))
  np.testing.assert_allclose(norm(A @ b, r, s), norm(A, r, p) * norm(b, q, s))


@pytest.mark.parametrize(("roots", "number"), [(roots_of_d4, 24), (roots_of_e8, 240)])
def test_lemma_41_holds_in_its_first_branch_alone(roots, number):
  """The origin and the shortest vectors of a lattice, 1 apart in the unit ball."""
  points = roots() / math.sqrt(2)
  assert len(points) == number
  points = np.vstack([np.zeros(points.shape[1]), points])
  distances = np.linalg.norm(points[:, None] - points, axis=-1)
  assert np.min(distances[~np.eye(len(points), dtype=bool)]) > 1 - 1e-12
  assert np.max(np.linalg.norm(points, axis=1)) < 1 + 1e-12
  d = points.shape[1]
  printed_second_branch = 1 + math.log(1 + 2 * d)
  assert math.log(len(points)) > printed_second_branch
  assert math.log(len(points)) <= covering.ball_log_packing(d, 1.0)


def test_packing_of_a_ball_by_greedy_choice():
  rng = np.random.default_rng(0)
  for d, eps in ((1, 0.1), (2, 0.3), (3, 0.6)):
    points = rng.normal(size=(20_000, d))
    points *= (rng.random(len(points)) ** (1 / d) / np.linalg.norm(points, axis=1))[
      :, None
    ]
    kept = np.zeros((0, d))
    while len(points):
      kept = np.vstack([kept, points[:1]])
      points = points[np.linalg.norm(points - points[0], axis=1) >= eps]
    bound = covering.ball_log_packing(d, eps)
    assert bound - 2 < math.log(len(kept)) <= bound


OWN = covering.TransformerClass(
  length=8, num_heads=2, width=3, input_dim=4, r_a=1.5, R_w=2.0, r_QK=1.2, r_z=1.7
)


def ball(rng, shape, radius):
  """A direction of a ball, of its largest norm."""
  draw = rng.normal(size=shape)
  return radius * draw / np.linalg.norm(draw)


def draw_transformer(rng):
  H, m, D = OWN.num_heads, OWN.width, OWN.input_dim
  joined = ball(rng, (m, H * D + 1), OWN.R_w)
  scores = [ball(rng, (D, D), OWN.r_QK) for _ in range(H)]
  return ball(rng, m, OWN.r_a), joined, np.array(scores)


def predict_transformer(a, joined, scores, z):
  """The plain Transformer of one layer, at position 0."""
  weights = scipy.special.softmax(np.einsum("d,hde,je->hj", z[0], scores, z), axis=1)
  heads = (weights @ z).reshape(-1)
  return a @ np.maximum(joined @ np.append(heads, 1.0), 0)


def test_proposition_17_is_the_sum_of_its_covers():
  H, m, D = OWN.num_heads, OWN.width, OWN.input_dim
  for eps in (0.01, 0.3, 2.0):
    product = OWN.r_a * OWN.R_w
    plain = m * (H * D + 2) * math.log(
      1 + 8 * product * math.sqrt(1 + H * OWN.r_z**2) / eps
    ) + H * D**2 * math.log(1 + 8 * math.sqrt(H) * OWN.r_QK * OWN.r_z**3 * product / eps)
    assert OWN.log_covering(eps) == pytest.approx(plain)
  a, joined, scores = draw_transformer(np.random.default_rng(0))
  assert OWN.num_parameters == a.size + joined.size + scores.size


def test_transformers_move_as_their_cover_says():
  """No pair of parameters moves further, and the best ones come close enough."""
  rng = np.random.default_rng(1)
  of_read_out, of_scores = [], []
  for _ in range(4000):
    z = rng.normal(size=(3, OWN.input_dim))
    z *= OWN.r_z / np.linalg.norm(z, axis=1, keepdims=True)
    a, joined, scores = draw_transformer(rng)
    b, moved, other = draw_transformer(rng)
    size = rng.choice([0.01, 0.3, 1.0])
    b, moved, other = (
      old + size * (new - old)
      for old, new in zip((a, joined, scores), (b, moved, other), strict=True)
    )
    before = predict_transformer(a, joined, scores, z)
    change = abs(predict_transformer(b, moved, scores, z) - before)
    bound = OWN.read_out_change(np.linalg.norm(b - a), np.linalg.norm(moved - joined))
    of_read_out.append(change / bound)
    change = abs(predict_transformer(a, joined, other, z) - before)
    of_scores.append(change / OWN.attention_change(np.linalg.norm(other - scores)))
  assert 0.2 < max(of_read_out) <= 1
  assert 0.01 < max(of_scores) <= 1
  # The pair that the first bound is made for: all of W and b along one input.
  h = ball(rng, OWN.num_heads * OWN.input_dim, math.sqrt(OWN.num_heads) * OWN.r_z)
  along = np.append(h, 1.0) / np.linalg.norm(np.append(h, 1.0))
  change = OWN.r_a * 0.5 * along @ np.append(h, 1.0)
  assert change == pytest.approx(OWN.read_out_change(0.0, 0.5))


def test_functions_that_differ_are_no_more_than_the_cover_allows():
  """A packing at 2 eps is no larger than a cover at eps."""
  own = covering.TransformerClass(8, 1, 1, 1, r_a=1.0, R_w=1.0, r_QK=1.0, r_z=1.0)
  rng = np.random.default_rng(2)
  z = np.linspace(-1, 1, 9)
  prompts = np.stack(np.meshgrid(z, z), axis=-1).reshape(-1, 2)
  a = rng.uniform(-1, 1, 6000)
  joined = rng.uniform(-1, 1, (6000, 2))
  joined /= np.maximum(1, np.linalg.norm(joined, axis=1, keepdims=True))
  scores = prompts[:, :1] * prompts * rng.uniform(-1, 1, (6000, 1, 1))
  heads = np.sum(scipy.special.softmax(scores, axis=-1) * prompts, axis=-1)
  values = a[:, None] * np.maximum(joined[:, :1] * heads + joined[:, 1:], 0)
  for eps in (0.05, 0.1):
    left, kept = values, 0
    while len(left):
      kept += 1
      left = left[np.max(np.abs(left - left[0]), axis=1) > 2 * eps]
    assert 1 < math.log(kept) <= own.log_covering(eps)


def draw_network(rng, widths, R):
  shapes = [shape for i, o in itertools.pairwise(widths) for shape in ((o, i), (o,))]
  sizes = [math.prod(shape) for shape in shapes[:-1]]
  flat = ball(rng, sum(sizes), R)
  parts = np.split(flat, np.cumsum(sizes)[:-1])
  return [part.reshape(s) for part, s in zip(parts, shapes[:-1], strict=True)], flat


def run_network(layers, x):
  for W, b in zip(layers[:-1:2], layers[1::2], strict=True):
    x = np.maximum(W @ x + b, 0)
  return layers[-1] @ x


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_deep_networks_move_as_lemma_30_says(depth):
  rng = np.random.default_rng(depth)
  widths = (*(3, 2, 2)[:depth], 1)
  ratios, slopes = [], []
  R, radius = 1.8, 2.0
  for _ in range(3000):
    layers, flat = draw_network(rng, widths, R)
    others, other = draw_network(rng, widths, R)
    own = covering.NetworkClass(depth, flat.size, R, radius)
    x = ball(rng, 3, radius)
    change = abs(run_network(layers, x) - run_network(others, x)).item()
    ratios.append(change / np.linalg.norm(flat - other) / own.parameter_lipschitz)
    norms = math.prod(np.linalg.norm(W, 2) for W in layers[::2])
    slopes.append(norms / own.lipschitz)
    after = x
    bounds = own.layer_norms()[1:]
    for W, b, bound in zip(layers[:-1:2], layers[1::2], bounds, strict=True):
      after = np.maximum(W @ after + b, 0)
      assert np.linalg.norm(after) <= bound
  assert 0.01 < max(ratios) < 1 + 1e-12
  assert 0.1 < max(slopes) < 1 + 1e-12
  plain = flat.size * math.log(1 + 2 * R * own.parameter_lipschitz / 0.1)
  assert own.log_covering(0.1) == pytest.approx(plain)
  if depth == 1:
    assert own.parameter_lipschitz == radius


def test_a_product_of_matrices_is_no_lipschitz_constant():
  """Lemma 29 as printed: |x| has matrices whose product is zero."""
  first, last = np.array([[1.0], [-1.0]]), np.array([[1.0, 1.0]])
  assert np.linalg.norm(last @ first) == 0
  values = [(last @ np.maximum(first @ [x], 0)).item() for x in (0.0, 2.0)]
  assert values == [0, 2]  # it moves by 2
  R = math.sqrt(np.sum(first**2) + np.sum(last**2))
  assert covering.NetworkClass(2, 4, R, 1.0).lipschitz >= 1


def test_states_spread_a_change_of_transitions_as_lemma_29_says():
  N, alpha, change = 12, 1 / 12, 1e-3
  own = covering.RecurrentClass(N, alpha, 1.5, 10.0, 1.0, (2, 30), (1, 2))
  before, after = np.zeros(2), np.zeros(2)  # both directions, after N - 1 steps
  for _ in range(N - 1):
    before, after = before + alpha * before, after + alpha * after + change
  weights = np.full(2, own.R / math.sqrt(2))
  moved = weights @ (after - before)
  bound = own.transition_change(change)
  assert bound / 2 < moved <= bound
  assert bound == pytest.approx(2 * 1.5 * error_growth(N - 1, alpha) * change)
  assert own.num_parameters == 62
  # Both transitions are covered where their change costs half of eps.
  transition, read_out = own.networks()
  share = 0.25 / own.transition_change(1.0)
  plain = read_out.log_covering(0.25) + 2 * transition.log_covering(share)
  assert own.log_covering(0.5) == pytest.approx(plain)
  assert transition.radius == pytest.approx(math.hypot(10, 1))
  assert read_out.radius == pytest.approx(math.sqrt(2 * 100 + 1))


def test_lemma_12_bounds_the_largest_token():
  rng = np.random.default_rng(3)
  n, d = 40, 5
  largest = np.max(np.linalg.norm(rng.normal(size=(5000, n, d)), axis=-1), axis=1)
  for radius in (2.0, 3.0, 4.0, 6.0, 8.0):
    assert np.mean(largest >= radius) <= guarantees.tail(radius, n, d)
  radius = guarantees.token_radius(n, d)
  assert guarantees.tail(radius, n, d) == pytest.approx(n**-0.5)
  assert np.mean(largest >= radius) <= n**-0.5


def test_lemma_12_needs_a_moment_that_assumption_1_has():
  """One token of norm sqrt(C_x d): printed is a chance of 0.83, true is certainty."""
  d, radius = 5, math.sqrt(5)
  moments = [radius <= math.sqrt(d * r) for r in (1.0, 2.0, 7.0)]
  assert all(moments)  # E[||x||^r]^(1/r) = sqrt(d)
  printed = math.exp(-(radius**2) / (2 * math.e * d))
  assert printed < 0.84
  assert guarantees.tail(radius, 1, d) == 1


def test_largest_of_several_norms():
  rng = np.random.default_rng(4)
  for N, d in ((1, 3), (8, 3), (500, 2)):
    draws = np.sum(rng.normal(size=(2000, N, d)) ** 2, axis=-1)
    found = math.sqrt(np.mean(np.max(draws, axis=1) ** 2))
    bound = guarantees.largest_moment(N, d)
    assert bound / 12 < found <= bound
    orders = np.linspace(1, 40, 4000)
    best = np.min(N ** (1 / (2 * orders)) * 4 * orders * d)
    assert bound == pytest.approx(best, rel=1e-3)


def test_dudleys_integral():
  def log_covering(eps):
    return 3 * math.log1p(5 / eps)

  n, tau = 400, 2.0

  def at(a):
    found = scipy.integrate.quad(
      lambda e: math.sqrt(log_covering(e / (2 * math.sqrt(tau)))), a, tau
    )[0]
    return 4 * a + 12 / math.sqrt(n) * found

  best = min(at(a) for a in np.geomspace(1e-6, tau, 400))
  found = guarantees.rademacher_bound(log_covering, n, tau)
  assert found == pytest.approx(best, rel=2e-3)


def test_a_large_truncation_puts_no_floor_under_the_bound():
  """For a class of one size it falls like n^(-1/2), at every tau."""
  for tau in (1.0, 1e30):
    first, second = (
      guarantees.rademacher_bound(lambda eps: 5.0, n, tau) for n in (10**40, 10**80)
    )
    assert first / tau == pytest.approx(12 * math.sqrt(5.0) * 1e-20, rel=1e-3)
    assert second == pytest.approx(first * 1e-20, rel=1e-3)


def test_complexity_of_a_class_is_below_its_bound():
  """f(x) = w x with |w| <= 1, of |x| <= 1: a cover at eps has 1 / eps + 1 functions."""
  rng = np.random.default_rng(5)
  n, tau = 60, 1.0
  x, y = rng.uniform(-1, 1, n), rng.uniform(-1, 1, n)
  w = np.linspace(-1, 1, 401)
  losses = np.minimum((w[:, None] * x - y) ** 2, tau)
  signs = rng.choice([-1.0, 1.0], size=(2000, n))
  found = np.mean(np.max(signs @ losses.T, axis=1)) / n
  bound = guarantees.rademacher_bound(lambda eps: math.log(1 / eps + 1), n, tau)
  assert 0 < found <= bound


def test_deviation():
  found = guarantees.deviation(0.1, 200, 2.0, 0.1)
  assert found == pytest.approx(0.2 + 3 * 2 * math.sqrt(math.log(20) / 400))


def test_what_is_cut_away_is_bounded():
  """A Gaussian token read along a direction, with and without the truncation."""
  rng = np.random.default_rng(6)
  d = 3
  x = rng.normal(size=(200_000, d))
  y = x[:, 0]
  prediction = 0.5 + 0.8 * np.linalg.norm(x, axis=1)
  growth = covering.Growth(slope=0.8, offset=0.5, num_tokens=1)
  moments = guarantees.Moments()
  for tau in (0.5, 2.0, 10.0, 40.0):
    squares = (prediction - y) ** 2
    away = np.mean(squares - np.minimum(squares, tau))
    assert away <= guarantees.cut_away(growth, 0.0, d, moments, tau)


def test_what_is_cut_away_term_by_term():
  growth = covering.Growth(slope=1.5, offset=0.7, num_tokens=16)
  moments = guarantees.Moments(C_x=0.8, C_y=1.3, s=2.0)
  d = 4
  r = math.log(16) / 2
  squares = 2.0 + 16 ** (1 / (2 * r)) * 4 * r * 0.8 * d
  fourth = 2 * 1.3 * 16 + 2 * (0.7 + 1.5 * math.sqrt(squares)) ** 2
  tau = 3000.0
  of_labels = math.exp(-math.sqrt(tau / (4 * math.e * 1.3)) / 2)
  rho = ((math.sqrt(tau) / 2 - 0.7) / 1.5) ** 2 - 2.0
  of_prediction = 16 * math.exp(-rho / (2 * 0.8 * math.e * d))
  assert 0.1 < of_labels / of_prediction < 1e4  # both count
  expected = fourth * math.sqrt(of_labels + of_prediction)
  assert guarantees.cut_away(growth, 2.0, d, moments, tau) == pytest.approx(expected)
  # Where a bound's order is below 1 the chance is at most 1.
  assert guarantees.cut_away(growth, 2.0, d, moments, 10.0) == pytest.approx(fourth)


@pytest.mark.parametrize("num_samples", [10, 10_000, 10**12])
@pytest.mark.parametrize("s", [1.0, 2.0])
def test_truncation_is_the_smallest(num_samples, s):
  growth = covering.Growth(3.0, 1.0, 16)
  moments = guarantees.Moments(s=s)
  tau = guarantees.truncation(growth, 2.0, 4, moments, num_samples)
  aim = num_samples**-0.5
  assert guarantees.cut_away(growth, 2.0, 4, moments, tau) <= aim
  assert guarantees.cut_away(growth, 2.0, 4, moments, tau * 0.9999) > aim


def test_normal_tokens_have_the_moments_that_are_assumed():
  for d in (1, 4, 30):
    for r in (1.0, 1.5, 2.0, 3.0, 8.0, 40.0):
      log_moment = r / 2 * math.log(2) + (
        scipy.special.gammaln((d + r) / 2) - scipy.special.gammaln(d / 2)
      )
      assert log_moment / r <= math.log(math.sqrt(d * r)) + 1e-12


def test_guarantees_add_up_and_fall_with_n():
  found = [
    guarantees.guarantee(OWN, token_dim=2, encoding=3.0, num_samples=n, eps=0.01)
    for n in (10**6, 10**10, 10**14)
  ]
  for own in found:
    assert own.risk == own.approximation + own.estimation + own.truncated
    assert own.approximation == 0.04
  assert found[0].risk > found[1].risk > found[2].risk
  # At tau and r_z, the parts again by hand.
  n, own = 10**10, found[1]
  r_z = math.sqrt(3 * math.e * 2 * math.log(8 * n) + 3)
  complexity = guarantees.rademacher_bound(OWN._replace(r_z=r_z).log_covering, n, own.tau)
  assert own.estimation == guarantees.deviation(complexity, n, own.tau, 0.05)
  moments = guarantees.Moments()
  assert own.tau == guarantees.truncation(OWN.growth, 3.0, 2, moments, n)
  assert own.failure == pytest.approx(0.05 + (8 * n) ** -0.5)


def test_transformers_grow_as_their_guarantee_assumes():
  growth = OWN.growth
  assert growth.num_tokens == 8
  # Both heads at one token, all of W along what they give.
  z = ball(np.random.default_rng(8), OWN.input_dim, 2.5)
  heads = np.append(np.tile(z, OWN.num_heads), 0.0)
  joined = np.zeros((OWN.width, len(heads)))
  joined[0] = OWN.R_w * heads / np.linalg.norm(heads)
  a = np.zeros(OWN.width)
  a[0] = OWN.r_a
  scores = np.zeros((OWN.num_heads, OWN.input_dim, OWN.input_dim))
  value = predict_transformer(a, joined, scores, np.tile(z, (3, 1)))
  assert value == pytest.approx(growth.slope * 2.5)
  joined[0] = OWN.R_w * np.append(np.zeros(len(heads) - 1), 1.0)
  value = predict_transformer(a, joined, scores, 0 * np.tile(z, (3, 1)))
  assert value == pytest.approx(growth.offset)


def test_recurrent_predictions_grow_as_their_guarantee_assumes():
  R, r_h, widths = 1.6, 2.0, (7, 3, 2, 1)
  own = covering.RecurrentClass(8, 0.1, R, r_h, 1.0, (2, 20), (3, 40))
  found = guarantees.guarantee(own, token_dim=2, encoding=2.0, num_samples=10**8)
  assert found.risk > found.estimation > 0
  growth = own.growth
  assert growth.num_tokens == 1
  assert growth.slope == pytest.approx(R**3)
  assert growth.offset == pytest.approx(math.sqrt(2) * r_h * R**3 + R**2 + R**3)
  rng = np.random.default_rng(7)
  largest = 0.0
  for _ in range(3000):
    layers, _ = draw_network(rng, widths, R)
    states = [ball(rng, 2, r_h) for _ in range(2)]
    z = ball(rng, 3, rng.exponential(3.0))
    value = abs(run_network(layers, np.concatenate([*states, z]))).item()
    bound = growth.offset + growth.slope * np.linalg.norm(z)
    largest = max(largest, value / bound)
  assert 0.001 < largest <= 1


@pytest.mark.slow
def test_samples_that_a_guarantee_asks_for():
  def of(n):
    return guarantees.guarantee(OWN, token_dim=2, encoding=3.0, num_samples=n, eps=0.01)

  n = guarantees.samples_for(0.5, of)
  assert of(round(n)).risk < 0.5 <= of(round(0.998 * n)).risk
  with pytest.raises(InvalidSetting, match=r"risk: got 0.03, takes a risk that"):
    guarantees.samples_for(0.03, of)


def test_short_forms():
  found = guarantees.theorem_4(
    1000, sparsity=2, token_dim=5, width=7, eps=0.1, factor=3.0
  )
  assert found == pytest.approx(0.1 + 3 * math.sqrt((7 * 2 * 7 + 8 + 50) / 1000))
  found = guarantees.theorem_7(
    1e6, length=10, num_parameters=50, R=3.0, tau=2.0, eps=0.1, delta=0.1, constant=5.0
  )
  plain = 0.4 + 10 * math.sqrt(50 * math.log(6e7) / 1e6)
  plain += 2 * math.sqrt(math.log(10) / 1e6) + 1e-3
  assert found == pytest.approx(plain)


def test_bad_arguments():
  for call, words in (
    (lambda: covering.ball_log_packing(0, 0.1), "dimension: got 0"),
    (lambda: OWN.log_covering(0.0), "eps: got 0.0, takes a positive number"),
    (lambda: guarantees.token_radius(1, 3), "num_tokens: got 1"),
    (lambda: guarantees.rademacher_bound(OWN.log_covering, 0, 1.0), "num_samples: got 0"),
    (lambda: guarantees.rademacher_bound(OWN.log_covering, 5, 0.0), "tau: got 0.0"),
    (lambda: guarantees.deviation(0.1, 10, 1.0, 1.0), "delta: got 1.0"),
    (lambda: guarantees.theorem_7(9, length=3, num_parameters=1, R=1, tau=0.5), "tau"),
  ):
    with pytest.raises(InvalidSetting, match=words):
      call()
