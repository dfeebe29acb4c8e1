"""How large networks have to be, and suffice to be: norms and sizes of the main paper.

Of *When Do Transformers Outperform Feedforward and Recurrent Networks?* Lemma 11 (the
retrieving Transformer), Lemmas 22 to 25, 42 and Proposition 28 (the recurrent network
in the paper's own size), Lemmas 36 and 38, Theorem 9 (one that memorises).
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np

from sepfx.errors import require

from .lower_bounds import least_norm

# Of n^3 in Lemma 36: ||z||^2 <= 3 n, ||y||^2 <= 6 n and gaps of sqrt(pi) / (3 n^2).
_MEMORY = 8 * math.sqrt(3) * math.sqrt(24) * 3 / math.sqrt(math.pi)


def attention_error(
  length: int, radius: float, alpha: float, sparsity: int, token_dim: int
) -> float:
  """2 r_x (N - 1) e^(-alpha d / (2 q)): how far a head is from its token (Lemma 11).

  For codes of coherence at most 1/2, encoded with the prefactor sqrt(d / q), and tokens
  of norm at most r_x. Without the prefactor alpha takes the place of alpha d / q.

  Args:
    length: N.
    radius: r_x.
    alpha: scale of the query-key block.
    sparsity: q.
    token_dim: d.
  """
  rate = alpha * token_dim / (2 * sparsity)
  return 2 * radius * (length - 1) * math.exp(-rate)


def retrieval_squared_norm(
  sparsity: int, token_dim: int, code_dim: int, logarithm: float
) -> float:
  """||Theta_QK||_F^2 = q d_e alpha^2 of Lemma 11, at alpha = 2 q log(.) / d.

  It is 4 q^3 d_e log(.)^2 / d^2. Theorem 4 has q^2 / d in its place, which is smaller
  by the factor q / d, once logarithms are left out and where q > d.

  Args:
    sparsity: q.
    token_dim: d.
    code_dim: d_e.
    logarithm: log(2 r_a r_w r_x N sqrt(q) / sqrt(eps_2NN)).
  """
  alpha = 2 * sparsity * logarithm / token_dim
  return sparsity * code_dim * alpha**2


class Approximator(NamedTuple):
  """A two-layer ReLU network that is close to a Lipschitz function (Lemma 42).

  Attributes:
    width: m.
    norm: bound on ||a||_2.
  """

  width: float
  norm: float


def lipschitz_approximator(
  dimension: int, size: float, eps: float, constant: float = 1.0
) -> Approximator:
  """Lemma 42: m = C (LR (1 + log(LR / eps)) / eps)^d units for an error of eps.

  Args:
    dimension: d, of the function's inputs, of norm at most R.
    size: L R, with L its Lipschitz constant; it also bounds the function.
    eps: the largest error.
    constant: C_d, which the lemma hides.
  """
  require(eps > 0, "eps", eps, "a positive number")
  base = size * (1 + math.log(max(1.0, size / eps))) / eps
  m = constant * base**dimension
  return Approximator(m, constant * size * base ** ((dimension + 1) / 2) / math.sqrt(m))


class Size(NamedTuple):
  """Of a recurrent network.

  Attributes:
    transition_widths: of one transition's hidden layers.
    num_parameters: p of two transitions and the read-out, zeros counted.
    squared_norm: bound on ||vec(Theta)||^2.
  """

  transition_widths: tuple[float, float, float]
  num_parameters: float
  squared_norm: float


def printed_recurrent_size(
  *,
  sparsity: int,
  token_dim: int,
  code_dim: int,
  width: int,
  radius: float,
  r_a: float,
  r_w: float,
  eps: float,
  constant: float = 1.0,
) -> Size:
  """The network of Proposition 28's proof: Lemmas 22 to 25 and Proposition 26.

  Products of codes are sums of d_e approximators of two inputs each, and so are gates.
  The read-out has the transition's accuracy, of which the proof needs half.
  `recurrent_retrieval`, the construction, needs none of them for codes of signs.

  Args:
    sparsity: q.
    token_dim: d.
    code_dim: d_e.
    width: m_g.
    radius: r_x.
    r_a, r_w: of Assumption 2.
    eps: eps_2NN; predictions are within 2 sqrt(eps_2NN) of the link.
    constant: C_d of Lemma 42.
  """
  require(eps > 0, "eps", eps, "a positive number")
  q, d, d_e = sparsity, token_dim, code_dim
  units = q * d
  eps_h = math.sqrt(eps) / (4 * math.sqrt(units) * r_a * r_w)
  R = math.sqrt(1 + radius**2)
  # (x, z) -> 2 x relu(z - 1/2) is 2 R-Lipschitz where |(x, z)| <= R.
  gate = lipschitz_approximator(2, 2 * R**2, eps_h / 4, constant)
  l1 = math.sqrt(gate.width) * gate.norm
  eps_1 = eps_h / (4 * l1 / R)
  # (a, b) -> a b is sqrt(2)-Lipschitz where |a|, |b| <= 1; d_e of them are added.
  product = lipschitz_approximator(2, 2.0, eps_1 / d_e, constant)
  m_1 = 2 * d + q * d_e * product.width
  m_2 = units * gate.width
  D = d + (q + 1) * d_e
  of_transition = dense_parameters((units + D, m_1, m_2, 2 * units, units))
  # The read-out passes both states through, and gates the position's own token.
  passed = 4 * units
  widths = (2 * units + D, passed + m_1, passed + m_2, 2 * units, width, 1)
  of_read_out = dense_parameters(widths)
  # Rows of W_1 have 1-norm at most 1, those of W_2 1/R before A_1 is multiplied in.
  of_scores = math.sqrt(2) + math.sqrt(d_e) * product.norm
  squares = (
    (m_1 + m_1)
    + m_2 * ((of_scores / R) ** 2 + 1)
    + units * (2 * gate.norm**2 + eps_h**2 / 2)
    + 2 * units
  )
  # The network is read behind a layer that adds, whose rows have norm sqrt(2).
  of_network = r_a**2 / width + 2 * width * r_w**2
  # Both states pass through three layers: 4, 8 and 8 units, of which 2 are in `squares`.
  total = 3 * squares + of_network + 18 * units
  return Size((m_1, m_2, 2.0 * units), 2 * of_transition + of_read_out, total)


def dense_parameters(widths: tuple[float, ...]) -> float:
  """Entries of the matrices and biases of a deep network, the last without bias."""
  matrices = sum(a * b for a, b in itertools.pairwise(widths))
  return matrices + sum(widths[1:-1])


def line_squared_norm(y: np.ndarray, z: np.ndarray, eps: float) -> float:
  """8 sqrt(3) ||y|| sqrt(n + ||z||^2) / eps, which suffices for `fit_line` (Lemma 38).

  With w = 1 its network has ||a|| <= 4 ||y|| / eps and ||w||^2 + ||b||^2 <=
  3 (n + ||z||^2); balanced, the sum is twice the product of both norms.

  Args:
    y: the values at n >= 2 points.
    z: the points, no two closer than eps.
    eps: at most 1.
  """
  require(0 < eps <= 1, "eps", eps, "a number above 0 and at most 1")
  size = len(z) + float(np.sum(z**2))
  return 8 * math.sqrt(3 * size) * float(np.linalg.norm(y)) / eps


def memorising_squared_norm(num_samples: float, depth: int = 2) -> float:
  """What suffices to fit n samples and learn nothing (Lemma 36, proof of Theorem 9).

  115 n^3 on the event of Lemma 37 with ||y||^2 <= 6 n: `line_squared_norm` there. In a
  read-out of L_y > 2 layers it is `in_more_layers`.

  Args:
    num_samples: n.
    depth: L_y, matrices of the read-out.
  """
  return in_more_layers(_MEMORY * num_samples**3, depth)


def in_more_layers(squared_norm: float, depth: int) -> float:
  """Squared norm of a two-layer network's function in L_y layers (proof of Theorem 9).

  The second layer has a twice, for both signs of the output, each layer between passes
  these two numbers on, and the last subtracts them. Then the scales of all L_y layers,
  which ReLUs leave free, are made equal: their squared norms are P^(2 / L_y) each, with P
  the product of their norms. (The proof leaves the scales as they are.)

  Args:
    squared_norm: of the two layers, ||a||^2 and ||(W, b)||^2 being equal.
    depth: L_y >= 2.
  """
  require(depth >= 2, "depth", depth, "an integer >= 2")
  if depth == 2:
    return squared_norm
  product = squared_norm / 2 * 2 ** ((depth - 1) / 2)
  return float(depth * product ** (2 / depth))


def generalising_squared_norm(length: int, risk: float, depth: int = 2) -> float:
  """What a recurrent network needs for a risk on 1STR: L_y (L ||U||_F)^(2/L_y).

  Theorem 9's other side, for states of norm at most 1 (section 5.2): the inequality of
  the means over the L_y matrices that lead from states to predictions, with the
  corrected norm of Proposition 8.

  Args:
    length: N.
    risk: D, averaged over positions.
    depth: L_y.
  """
  require(depth >= 2, "depth", depth, "an integer >= 2")
  return depth * least_norm(length, risk) ** (2 / depth)


def memorised_samples(length: int, risk: float, depth: int = 2) -> float:
  """n up to which memorising costs less norm than the bound for this risk (Theorem 9).

  Below 1 for every length up to 1e4 and risk of 0.01: with these constants the theorem
  says nothing at sizes that can be trained.
  """
  room = generalising_squared_norm(length, risk, depth)
  if depth > 2:  # what two layers may have: the inverse of `in_more_layers`
    room = 2 * (room / depth) ** (depth / 2) / 2 ** ((depth - 1) / 2)
  return (room / _MEMORY) ** (1 / 3)
