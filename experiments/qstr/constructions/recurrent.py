"""The recurrent network that solves simple-qSTR: Proposition 28, exactly and small."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.linalg

from sepfx.errors import InvalidSetting, require
from sepfx.models import ResidualRNN
from sepfx.tasks import QSTR, Planted, TwoLayer, coherence, shared


class RecurrentRetrieval(NamedTuple):
  """A `ResidualRNN` and parameters for it.

  Attributes:
    model: states of q d numbers per direction; the transition ignores the state.
    params: its "params" collection, in the precision of the codes.
    network: f_2NN, the two-layer network that reads the retrieved tokens.
  """

  model: ResidualRNN
  params: Any
  network: TwoLayer


def recurrent_retrieval(
  task: QSTR, planted: Planted, *, radius: float
) -> RecurrentRetrieval:
  """Builds a network that computes the link of simple-qSTR without error.

  Proposition 28 approximates products by networks of many units. Codes of signs +-s
  need none of them: a b = s (|a + b| - s) for a, b in {-s, s}, so z_l = <omega_i,
  omega_{t_l}> / ||omega||^2 is linear in 2 d_e ReLUs. Where z_l = 1 or z_l <= 1/2, as
  Assumption 3 has it, and |x| <= r,

    relu(x - 2 r (1 - z_l)) - relu(-x - 2 r (1 - z_l)) = x 1[z_l = 1].

  The transition adds x_i 1[t_l = i] to the l-th d numbers of the state; its kernel of
  the hidden state is zero (alpha_N = 0). The read-out does so once more with the
  position's own token, and has f_2NN of the sum.

  Args:
    task: simple-qSTR, with a link that is a two-layer ReLU network.
    planted: its planted parameters, in single or double precision.
    radius: r_x, bound of the tokens' norms. The prediction is exact up to rounding for
      prompts within it.

  Returns:
    Hidden widths 2 q d_e + 2 d and 2 q d of the transition, 2 q d_e + 2 d + 2 q d,
    4 q d and m of the read-out; r_h = sqrt(q) r_x.

  Raises:
    InvalidSetting: if positions do not share their indices, the link is no two-layer
      network, the codes are not of signs, their coherence is above 1/2 (Assumption 3),
      or the radius is not positive.
  """
  require(radius > 0, "radius", radius, "a positive number")
  takes = "simple-qSTR: indices that all positions share"
  require(task.indices is shared, "indices", task.name, takes)
  q, d, d_e = task.sparsity, task.token_dim, task.resolved_code_dim
  network = task.link.two_layer(planted.link, q, d)
  if network is None:
    takes = "a link that is a two-layer ReLU network"
    raise InvalidSetting("link", task.link.name, takes)
  s = _sign(task, planted)
  takes = "codes of coherence at most 1/2 (Assumption 3), such as incoherent ones"
  found = float(coherence(planted.codes))
  require(found <= 0.5 + 1e-6, "codes", f"coherence {found:.3g}", takes)

  units = q * d
  gates = _Gates(q, d, d_e, s, radius)
  first = gates.first()
  w_1 = np.concatenate([np.zeros((units, first.shape[1])), first])
  transition = {
    "W_1": w_1,
    "b_1": np.zeros(first.shape[1]),
    "W_2": gates.second(),
    "b_2": np.full(2 * units, gates.offset),
    "W_3": _difference(units),
  }
  states = np.concatenate([_difference(units).T, _difference(units).T])  # h-> + h<-
  hidden_1 = scipy.linalg.block_diag(states, first)
  hidden_2 = scipy.linalg.block_diag(np.eye(2 * units), gates.second())
  summed = _difference(units)
  hidden_3 = np.concatenate([summed, summed]) @ np.asarray(network.W, np.float64).T
  params = {
    "forward": transition,
    "backward": transition,
    "hidden_1": {"kernel": hidden_1, "bias": np.zeros(hidden_1.shape[1])},
    "hidden_2": {
      "kernel": hidden_2,
      "bias": np.repeat([0.0, gates.offset], 2 * units),
    },
    "hidden_3": {"kernel": hidden_3, "bias": np.asarray(network.b)},
    "output": {"kernel": np.asarray(network.a)[:, None]},
  }
  model = ResidualRNN(
    units=units,
    transition_widths=(first.shape[1], 2 * units),
    output_widths=(hidden_1.shape[1], hidden_2.shape[1], hidden_3.shape[1]),
    radius=math.sqrt(q) * radius,
  )
  dtype = planted.codes.dtype
  return RecurrentRetrieval(model, _as(params, dtype), network)


def _as(tree: Any, dtype: Any) -> Any:
  if isinstance(tree, dict):
    return {name: _as(value, dtype) for name, value in tree.items()}
  return jnp.asarray(tree, dtype)


def _sign(task: QSTR, planted: Planted) -> float:
  """s, what the signs of encoded codes are multiplied by."""
  c = math.sqrt(task.token_dim / task.sparsity) if task.encoding_prefactor else 1.0
  sizes = np.abs(np.asarray(c * planted.codes))
  takes = "codes whose coordinates are all s or -s"
  require(bool(np.all(sizes == sizes.flat[0])), "codes", task.codes, takes)
  require(bool(sizes.flat[0] > 0), "codes", float(sizes.flat[0]), takes)
  return float(sizes.flat[0])


class _Gates(NamedTuple):
  """Two layers that turn a token into (x 1[t_l = i])_l, as differences of ReLUs."""

  q: int
  d: int
  d_e: int
  s: float
  radius: float

  @property
  def offset(self) -> float:
    """The second layer's bias: 2 r (z - 1) is 2 r sum |a + b| / (s d_e) - 4 r."""
    return -4 * self.radius

  def first(self) -> np.ndarray:
    """[D, 2 q d_e + 2 d]: (a + b)_lk, their negatives, x, -x."""
    eye = np.eye(self.d_e)
    own = np.tile(eye, (1, self.q))
    named = np.kron(np.eye(self.q), eye)
    sums = np.concatenate([own, named])
    tokens = np.eye(self.d)
    both = scipy.linalg.block_diag(np.hstack([tokens, -tokens]), np.hstack([sums, -sums]))
    split = 2 * self.d
    return np.hstack([both[:, split:], both[:, :split]])

  def second(self) -> np.ndarray:
    """[2 q d_e + 2 d, 2 q d]: 2 r sum_k |a + b|_lk / (s d_e) + x_j, and with -x_j."""
    per_gate = np.ones((self.d_e, self.d)) * 2 * self.radius / (self.s * self.d_e)
    scores = np.kron(np.eye(self.q), per_gate)  # [q d_e, q d]
    x = np.tile(np.eye(self.d), (1, self.q))
    rows = [scores, scores, x, -x]
    return np.hstack([np.vstack(rows), np.vstack([scores, scores, -x, x])])


def _difference(size: int) -> np.ndarray:
  """[2 size, size]: relu(v), relu(-v) -> v."""
  return np.vstack([np.eye(size), -np.eye(size)])
