"""Norms and sizes of the main paper's constructions, against built networks."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
import scipy.special

from experiments.qstr.bounds import lower_bounds, representation
from experiments.qstr.constructions.interpolation import fit_line
from experiments.qstr.constructions.retrieval import norm_bounds, retrieval_transformer
from sepfx.errors import InvalidSetting
from sepfx.models import ResidualRNN
from sepfx.tasks import QSTR, Linear


def test_attention_is_as_far_off_as_lemma_11_says():
  """All other codes at coherence 1/2, all other tokens opposite to the one."""
  N, q, d, radius = 50, 2, 4, 3.0
  for alpha in (2.0, 6.0, 12.0):
    scores = alpha * d / q * np.where(np.arange(N) == 0, 1.0, 0.5)
    weights = scipy.special.softmax(scores)
    tokens = np.where(np.arange(N) == 0, radius, -radius)
    error = radius - weights @ tokens
    bound = representation.attention_error(N, radius, alpha, q, d)
    assert error <= bound
    if bound < 0.1:
      assert error > 0.9 * bound


@pytest.mark.parametrize("sparsity", [1, 2, 4])
def test_norm_of_the_query_key_matrices(sparsity):
  """Theorem 4's R^2 has q^2 / d where the construction has q^3 / d^2."""
  task = QSTR(
    length=8,
    sparsity=sparsity,
    token_dim=3,
    link=Linear(),
    codes="incoherent",
    encoding_prefactor=True,
  )
  planted = task.init(jax.random.key(0))
  built = retrieval_transformer(task, planted, radius=5.0, eps=0.01)
  r_a, r_w = norm_bounds(built.network)
  log = math.log(2 * r_a * r_w * 5 * 8 * math.sqrt(sparsity) / math.sqrt(0.01))
  found = float(jnp.sum(built.params["W_QK"] ** 2))
  expected = representation.retrieval_squared_norm(
    sparsity, 3, task.resolved_code_dim, log
  )
  assert found == pytest.approx(expected, rel=1e-5)
  polylogarithmic = 4 * task.resolved_code_dim * log**2
  printed = polylogarithmic * sparsity**2 / 3
  assert found / printed == pytest.approx(sparsity / 3, rel=1e-5)  # above 1 for q > d


def test_dense_parameters_are_those_of_the_model():
  widths, output, units = (7, 6, 10), (9, 8, 4), 5
  model = ResidualRNN(
    units=units, transition_widths=widths, output_widths=output, radius=1.0
  )
  shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((2, 3, 11)))
  leaves = jax.tree.leaves(shapes)
  of_transition = representation.dense_parameters((units + 11, *widths, units))
  of_read_out = representation.dense_parameters((2 * units + 11, *output, 1))
  assert sum(leaf.size for leaf in leaves) == 2 * of_transition + of_read_out


def test_size_of_the_papers_own_network():
  given = {"sparsity": 2, "token_dim": 3, "code_dim": 9, "width": 4, "radius": 5.0}
  found = representation.printed_recurrent_size(**given, r_a=2.0, r_w=1.5, eps=0.04)
  # The accuracy that each layer needs, from the last to the first.
  eps_h = 0.2 / (4 * math.sqrt(6) * 3)
  R = math.sqrt(26)
  base = 2 * R**2 * (1 + math.log(2 * R**2 * 4 / eps_h)) * 4 / eps_h
  l1 = 2 * R**2 * base**1.5
  eps_j = eps_h * R / (4 * l1) / 9
  products = (2 * (1 + math.log(2 / eps_j)) / eps_j) ** 2
  m_1, m_2, m_3 = found.transition_widths
  assert m_1 == pytest.approx(2 * 3 + 2 * 9 * products)
  assert m_2 == pytest.approx(6 * base**2)
  assert m_3 == 12
  # Two transitions and a read-out of the same two layers.
  assert found.num_parameters == pytest.approx(3 * m_1 * m_2, rel=1e-3)
  smaller = representation.printed_recurrent_size(**given, r_a=2.0, r_w=1.5, eps=4.0)
  assert smaller.num_parameters < found.num_parameters / 1e3
  assert smaller.squared_norm < found.squared_norm / 1e3


def test_norm_and_parameters_of_the_papers_network_matrix_by_matrix(monkeypatch):
  """With approximators of 3 units, rows as large as the lemmas allow them to be."""
  q, d, d_e, m, m_bar, norm = 2, 2, 5, 4, 3, 0.7
  r_a, r_w, radius = 1.3, 0.6, 2.0
  approximator = representation.Approximator(m_bar, norm)
  monkeypatch.setattr(representation, "lipschitz_approximator", lambda *_: approximator)
  found = representation.printed_recurrent_size(
    sparsity=q, token_dim=d, code_dim=d_e, width=m, radius=radius, r_a=r_a, r_w=r_w,
    eps=0.04,
  )  # fmt: skip
  u, D, R = q * d, d + (q + 1) * d_e, math.sqrt(1 + radius**2)
  m_1, m_2 = 2 * d + q * d_e * m_bar, u * m_bar
  eps_h = 0.2 / (4 * math.sqrt(u) * r_a * r_w)
  A_id = np.kron(np.eye(u), [1.0, -1.0])
  W_id = A_id.T
  W_1, b_1 = np.eye(m_1, u + D), np.ones(m_1)  # rows of 1-norm 1
  A_1 = np.zeros((d + q, m_1))
  A_1[:d, : 2 * d] = np.kron(np.eye(d), [1.0, -1.0])
  for gate in range(q):
    own = slice(2 * d + gate * d_e * m_bar, 2 * d + (gate + 1) * d_e * m_bar)
    A_1[d + gate, own] = norm / math.sqrt(m_bar)  # of d_e approximators
  W_2 = np.zeros((m_2, d + q))
  for row in range(m_2):
    W_2[row, row % d] = W_2[row, d + row % q] = 1 / (2 * R)
  b_2 = np.ones(m_2)
  A_2 = np.kron(np.eye(u), np.full(m_bar, norm / math.sqrt(m_bar)))
  b_3 = np.full(2 * u, eps_h / 2)
  transition = [W_1, b_1, W_2 @ A_1, b_2, W_id @ A_2, b_3, A_id]

  def diagonal(*blocks):
    return scipy.linalg.block_diag(*blocks)

  added = W_id @ np.hstack([A_id, A_id, A_2])
  W_g = np.full((m, u), r_w * math.sqrt(m / (m * u)))
  read_out = [
    np.hstack([diagonal(W_id, W_id, np.eye(m_1, D))]), np.append(np.zeros(4 * u), b_1),
    diagonal(W_id @ A_id, W_id @ A_id, W_2 @ A_1), np.append(np.zeros(4 * u), b_2),
    added, np.zeros(2 * u),
    W_g @ A_id, np.zeros(m), np.full(m, r_a / m),
  ]  # fmt: skip
  parts = 2 * transition + read_out
  built = sum(float(np.sum(part**2)) for part in parts)
  assert built <= found.squared_norm <= 3 * built
  assert found.num_parameters == sum(part.size for part in parts)


def test_approximator_of_lemma_42():
  found = representation.lipschitz_approximator(3, 2.0, 0.1, constant=1.5)
  base = 2 * (1 + math.log(20)) / 0.1
  assert found.width == pytest.approx(1.5 * base**3)
  assert found.norm == pytest.approx(1.5 * 2 * base**2 / math.sqrt(1.5 * base**3))


@pytest.mark.parametrize("n", [2, 10, 100])
def test_a_line_costs_no_more_than_lemma_38_says(n):
  rng = np.random.default_rng(n)
  for _ in range(50):
    gaps = rng.uniform(0.01, 0.3, n)
    z = np.cumsum(gaps) + rng.normal()
    y = rng.normal(size=n) if rng.random() < 0.5 else (-1.0) ** np.arange(n)
    found = sum(float(np.sum(part**2)) for part in fit_line(z, y))
    bound = representation.line_squared_norm(y, z, float(np.min(np.diff(z))))
    assert found <= bound


def test_memorising_deeper_costs_no_more_than_said():
  n = 7
  both = representation.memorising_squared_norm(n) / 2  # ||a||^2, and ||(W, b)||^2
  for depth in (3, 4, 5):
    # (W, b); a twice; two ones in each layer between; (1, -1) in the last.
    squares = np.array([both, 2 * both, *[2.0] * (depth - 2)])

    def total(logs, squares=squares):  # scales whose product is 1
      return np.sum(squares * np.exp(2 * np.append(logs, -np.sum(logs))))

    best = scipy.optimize.minimize(total, np.zeros(depth - 1)).fun
    found = representation.memorising_squared_norm(n, depth)
    assert found == pytest.approx(best, rel=1e-5)


@pytest.mark.parametrize("n", [2, 30])
def test_memorising_costs_a_line_at_the_edge_of_lemma_37(n):
  z, y = np.full(n, math.sqrt(3)), np.full(n, math.sqrt(6))
  line = representation.line_squared_norm(y, z, math.sqrt(math.pi) / (3 * n**2))
  assert representation.memorising_squared_norm(n) == pytest.approx(line)
  assert line < 115 * n**3


def test_theorem_9_says_nothing_at_sizes_that_can_be_trained():
  for N in (100, 10_000):
    for depth in (2, 3, 4):
      assert representation.memorised_samples(N, 0.01, depth) < 1
  N, risk = 10**9, 0.01
  for depth in (2, 3):
    n = representation.memorised_samples(N, risk, depth)
    memory = representation.memorising_squared_norm(n, depth)
    needed = representation.generalising_squared_norm(N, risk, depth)
    assert memory == pytest.approx(needed)
  # The inequality of the means, at matrices of equal norm.
  norm = lower_bounds.least_norm(N, risk)
  for depth in (2, 3):
    each = norm ** (1 / depth)
    needed = representation.generalising_squared_norm(N, risk, depth)
    assert needed == pytest.approx(depth * each**2)


def lloyd_max(num_levels):
  """Levels of the best quantiser of a standard normal number, and its distortion."""
  density = lambda x: np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)  # noqa: E731
  levels = scipy.special.ndtri((np.arange(num_levels) + 0.5) / num_levels)
  for _ in range(3000):
    ends = np.concatenate([[-np.inf], (levels[1:] + levels[:-1]) / 2, [np.inf]])
    mass = np.diff(scipy.special.ndtr(ends))
    levels = -np.diff(density(ends)) / mass
  return levels, 1 - np.sum(mass * levels**2)


def least_distance(length, dimension):
  """w for which Gilbert and Varshamov's code exists: 2^dimension words, w apart."""
  room = 1 << (length - dimension)
  closer, words, w = 0, 1, 0  # words of weight below w, and of weight w
  while closer + words < room:
    closer += words
    words = words * (length - w) // (w + 1)
    w += 1
  return w


def test_the_norm_half_of_proposition_8_is_false_as_printed():
  """States that are codewords: L ||U||_op is bounded, whatever N is.

  At each step the transition decodes the state, adds the level of the token and encodes
  it again. U is the identity for each direction, of norm sqrt(2) together, and states
  have norm 1. The read-out of token t is the level
  that the codeword has for t, extended to all of space with the same Lipschitz constant.
  """
  levels, distortion = lloyd_max(16)
  assert distortion == pytest.approx(0.009497, abs=1e-5)
  reach = levels[-1] - levels[0]
  lengths, found = np.array([8, 32, 128, 512, 2048]), []
  for N in lengths.tolist():
    bits, d_h = 4 * N, 32 * N
    apart = 2 * math.sqrt(least_distance(d_h, bits) / d_h)  # of words +-1 / sqrt(d_h)
    found.append(math.sqrt(2) * reach / apart)
  assert max(found) < 7.2
  # Printed, N / (L^2 ||U||^2) <= C log(1 + d_h): no constant C is large enough.
  ratios = lengths / np.square(found) / np.log(1 + 32 * lengths)
  assert np.all(ratios[1:] > 2.5 * ratios[:-1])
  # Corrected: the Frobenius norm of U is sqrt(d_h) times as large, above its bound.
  for N, product in zip(lengths.tolist(), found, strict=True):
    assert product * math.sqrt(32 * N) > lower_bounds.least_norm(N, distortion)
    assert lower_bounds.least_width(N, distortion, product) <= 32 * N


def test_bad_arguments():
  for call, words in (
    (lambda: representation.lipschitz_approximator(2, 1.0, 0.0), "eps: got 0.0"),
    (lambda: representation.line_squared_norm(np.ones(2), np.ones(2), 2.0), "eps: got"),
    (lambda: representation.memorising_squared_norm(3, 1), "depth: got 1"),
    (lambda: representation.generalising_squared_norm(9, 0.1, 1), "depth: got 1"),
  ):
    with pytest.raises(InvalidSetting, match=words):
      call()
