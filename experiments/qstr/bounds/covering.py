"""Covering numbers of the main paper's classes: Lemmas 13 to 16, 29, 30 and 41.

Of *When Do Transformers Outperform Feedforward and Recurrent Networks?* A cover at eps
has, for each function of a class, one that differs from it by at most eps on all inputs
of bounded norm. Where the paper hides constants, these are what its proofs give.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from sepfx.errors import require

from .lower_bounds import error_growth

# log of a class's covering number, of eps.
LogCovering = Callable[[float], float]


def ball_log_packing(dimension: int, eps: float) -> float:
  """d log(1 + 2 / eps): points of the unit ball of R^d that are eps apart (Lemma 41).

  A largest packing is a cover, so this also bounds covers, of the ball and of any
  subset of it, by points of that set. The lemma's second branch is false: see
  docs/errata.md.

  Args:
    dimension: d.
    eps: the distance, as a share of the ball's radius.
  """
  require(dimension >= 1, "dimension", dimension, "an integer >= 1")
  require(eps > 0, "eps", eps, "a positive number")
  return dimension * math.log1p(2 / eps)


class Growth(NamedTuple):
  """|prediction| <= offset + slope max ||z||, over so many tokens.

  Attributes:
    slope: of the largest norm of an encoded token.
    offset: what is left without one.
    num_tokens: over how many the largest is.
  """

  slope: float
  offset: float
  num_tokens: int


class TransformerClass(NamedTuple):
  """Transformers of one layer with bounded weights (Proposition 17).

  Attributes:
    length: N.
    num_heads: H.
    width: m, of the read-out.
    input_dim: D_e, of encoded tokens.
    r_a: bound on ||a||, of the read-out's second layer.
    R_w: bound on ||(W, b)||_F, of its first.
    r_QK: bound on ||W_QK||_F of each head. ||W_QK||_{2,1} is at least as large.
    r_z: bound on the norm of encoded tokens.
  """

  length: int
  num_heads: int
  width: int
  input_dim: int
  r_a: float
  R_w: float
  r_QK: float
  r_z: float

  @property
  def num_parameters(self) -> int:
    """m (H D_e + 2) + H D_e^2."""
    H, D = self.num_heads, self.input_dim
    return self.width * (H * D + 2) + H * D**2

  @property
  def growth(self) -> Growth:
    """r_a R_w (1 + sqrt(H) max_l ||z_l||) bounds predictions (proof of Lemma 20)."""
    offset = self.r_a * self.R_w
    return Growth(math.sqrt(self.num_heads) * offset, offset, self.length)

  def read_out_change(self, of_a: float, of_w: float) -> float:
    """How much f_2NN moves if its layers do so by these norms (Lemma 14).

    Its inputs have norm at most sqrt(H) r_z.
    """
    radius = math.sqrt(1 + self.num_heads * self.r_z**2)
    return radius * (self.r_a * of_w + self.R_w * of_a)

  def attention_change(self, of_qk: float) -> float:
    """How much the prediction moves if (W_QK)_h do by this norm (Lemmas 13, 15, 16)."""
    return 2 * self.r_a * self.R_w * self.r_z**3 * of_qk

  def log_covering(self, eps: float) -> float:
    """Proposition 17, with its constants.

      m (H D_e + 2) log(1 + 8 r_a R_w sqrt(1 + H r_z^2) / eps)
        + H D_e^2 log(1 + 8 sqrt(H) r_QK r_z^3 r_a R_w / eps).

    The proposition has a minimum of its second term and another one, with a constant
    that it takes from elsewhere. Either is a bound.
    """
    H, D = self.num_heads, self.input_dim
    # A quarter of eps for a and for (W, b), a half for the scores.
    share = eps / (4 * self.read_out_change(self.r_a, 0.0))
    of_read_out = ball_log_packing(self.width * (H * D + 2), share)
    radius = math.sqrt(H) * self.r_QK
    of_scores = ball_log_packing(H * D**2, eps / (2 * self.attention_change(radius)))
    return of_read_out + of_scores


class NetworkClass(NamedTuple):
  """Deep ReLU networks x -> W_L relu(... relu(W_1 x + b_1) ...) (Lemma 30).

  Attributes:
    depth: L.
    num_parameters: p.
    R: bound on the norm of all parameters.
    radius: bound on ||x||.
  """

  depth: int
  num_parameters: int
  R: float
  radius: float

  def layer_norms(self) -> list[float]:
    """X_0, ..., X_{L-1}: X_l = R X_{l-1} + R bounds the norm after layer l."""
    found = [self.radius]
    for _ in range(self.depth - 1):
      found.append(self.R * (found[-1] + 1))
    return found

  @property
  def lipschitz(self) -> float:
    """(R / sqrt(L))^L bounds prod_l ||W_l||, by the inequality of the means."""
    return (self.R / math.sqrt(self.depth)) ** self.depth

  @property
  def parameter_lipschitz(self) -> float:
    """K: outputs move by at most K times the norm by which all parameters do.

    K^2 = sum_l R^{2 (L-l)} (X_{l-1}^2 + 1[l < L]).
    """
    L = self.depth
    terms = (
      self.R ** (2 * (L - l)) * (X**2 + (l < L))
      for l, X in enumerate(self.layer_norms(), start=1)
    )
    return math.sqrt(sum(terms))

  def log_covering(self, eps: float) -> float:
    """p log(1 + 2 R K / eps)."""
    return ball_log_packing(
      self.num_parameters, eps / (self.R * self.parameter_lipschitz)
    )


class RecurrentClass(NamedTuple):
  """Recurrent networks of section 5.1 in a ball of radius R (Corollary 31).

  Attributes:
    length: N.
    alpha: alpha_N, Lipschitz constant of transitions in the state.
    R: bound on the norm of all parameters.
    r_h: bound on the norm of states.
    r_z: bound on the norm of encoded tokens.
    transition: (depth, number of parameters) of one transition.
    read_out: (depth, number of parameters) of the read-out.
  """

  length: int
  alpha: float
  R: float
  r_h: float
  r_z: float
  transition: tuple[int, int]
  read_out: tuple[int, int]

  @property
  def num_parameters(self) -> int:
    """p, of two transitions and the read-out."""
    return 2 * self.transition[1] + self.read_out[1]

  @property
  def growth(self) -> Growth:
    """R^L ||(h, h, z)|| + R^2 + ... + R^L bounds predictions (proof of Lemma 34)."""
    depth, _ = self.read_out
    slope = self.R**depth
    biases = sum(self.R**j for j in range(2, depth + 1))
    return Growth(slope, math.sqrt(2) * self.r_h * slope + biases, 1)

  def networks(self) -> tuple[NetworkClass, NetworkClass]:
    """The classes of transitions and of read-outs, with the norms of their inputs."""
    state = math.hypot(self.r_h, self.r_z)
    states = math.hypot(math.sqrt(2) * self.r_h, self.r_z)
    return (
      NetworkClass(*self.transition, self.R, state),
      NetworkClass(*self.read_out, self.R, states),
    )

  def transition_change(self, of_transitions: float) -> float:
    """How much predictions move if both transitions do by this much (Lemma 29).

    The lemma has the norm of the product of the read-out's matrices, which is no
    Lipschitz constant of it; this has a bound on the product of their norms.
    """
    growth = error_growth(self.length - 1, self.alpha)
    return 2 * self.networks()[1].lipschitz * growth * of_transitions

  def log_covering(self, eps: float) -> float:
    """Lemma 29 with Lemma 30: half of eps for the read-out, half for transitions."""
    transition, read_out = self.networks()
    of_states = transition.log_covering(eps / 2 / self.transition_change(1.0))
    return read_out.log_covering(eps / 2) + 2 * of_states
