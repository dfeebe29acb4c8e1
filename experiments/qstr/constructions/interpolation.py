"""Two-layer ReLU networks that fit n samples exactly: Lemmas 36 to 38, Theorem 9.

In NumPy and in double precision: in single precision the error is 1e-5 with 16 samples
and 5e-3 with 200.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from sepfx.errors import require
from sepfx.models import ResidualRNN
from sepfx.tasks import TwoLayer

from ..bounds.representation import in_more_layers


class Separation(NamedTuple):
  """How one direction v separates n points x (Lemma 37).

  Attributes:
    gap: min over i != j of |v^T x_i - v^T x_j|.
    squares: sum_i (v^T x_i)^2.
    holds: whether the gap is at least sqrt(pi) / (3 n^2), and the squares at most 3 n:
      the event of the lemma's proof.
  """

  gap: np.ndarray
  squares: np.ndarray
  holds: np.ndarray


class Interpolation(NamedTuple):
  """A two-layer network with f(x_i) = y_i for all i.

  Attributes:
    network: a and b [n], W [n d].
    direction: v, that all rows of W are multiples of.
    separation: of the samples by it.
  """

  network: TwoLayer
  direction: Float[np.ndarray, " d"]
  separation: Separation

  @property
  def squared_norm(self) -> float:
    """||a||^2 + ||W||_F^2 + ||b||^2; at most 115 n^3 where ||y||^2 <= 6 n (Lemma 36)."""
    return sum(float(np.sum(np.square(leaf))) for leaf in self.network)


def separation(
  x: Float[np.ndarray, "n d"], directions: Float[np.ndarray, "*batch d"]
) -> Separation:
  """How each of some unit vectors separates n >= 2 points."""
  n = len(x)
  z = np.sort(directions @ x.T, axis=-1)
  gap = np.min(np.diff(z, axis=-1), axis=-1)
  squares = np.sum(z**2, axis=-1)
  holds = (gap >= math.sqrt(math.pi) / (3 * n**2)) & (squares <= 3 * n)
  return Separation(gap, squares, holds)


def fit_line(
  z: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Lemma 38: g(t) = sum_j a_j relu(w_j t + b_j) with g(z_i) = y_i.

  g is linear between neighbouring z. ||a||^2 and ||w||^2 + ||b||^2 are made equal, which
  is their least sum over the scale that a ReLU leaves free. It is at most 8 sqrt(3) ||y||
  sqrt(n + ||z||^2) / eps if no two z are closer than eps <= 1.

  Args:
    z: n >= 2 numbers, no two the same.
    y: the values there.

  Returns:
    a, w and b, [n] each.

  Raises:
    InvalidSetting: if two z are the same.
  """
  order = np.argsort(z)
  z, y = np.asarray(z, np.float64)[order], np.asarray(y, np.float64)[order]
  gaps = np.diff(z)
  require(bool(np.all(gaps > 0)), "z", z.tolist(), "numbers no two of which are the same")
  slopes = np.diff(y) / gaps
  # From z_1 - 1, where it is zero, to y_1 at z_1; then from each point to the next.
  a = np.diff(np.concatenate([[0.0, y[0]], slopes]))
  b = -np.concatenate([[z[0] - 1], z[:-1]])
  w = np.ones_like(b)
  ours, theirs = np.linalg.norm(a), math.hypot(np.linalg.norm(w), np.linalg.norm(b))
  alpha = math.sqrt(theirs / ours) if ours > 0 else 1.0
  return alpha * a, w / alpha, b / alpha


def interpolator(
  x: Float[np.ndarray, "n d"],
  y: Float[np.ndarray, " n"],
  rng: np.random.Generator,
  tries: int = 100,
) -> Interpolation:
  """Lemma 36: fits n samples with n units, along one random direction.

  Args:
    x: n >= 2 different points.
    y: their labels.
    rng: where directions come from.
    tries: how many are drawn. The first of which the event of Lemma 37 holds is taken, or
      the one with the largest gap if there is none.

  Raises:
    InvalidSetting: if two points are the same.
  """
  directions = rng.normal(size=(tries, x.shape[1]))
  directions /= np.linalg.norm(directions, axis=1, keepdims=True)
  found = separation(x, directions)
  k = int(np.argmax(found.holds) if np.any(found.holds) else np.argmax(found.gap))
  v = directions[k]
  takes = "points no two of which are the same"
  require(bool(found.gap[k] > 0), "x", f"{len(x)} points", takes)
  a, w, b = fit_line(x @ v, y)
  network = TwoLayer(a, w[:, None] * v, b)  # type: ignore[arg-type]
  return Interpolation(network, v, Separation(*(own[k] for own in found)))


def memory_norms(
  num_samples: int, token_dim: int, draws: int, seed: int, depth: int = 2
) -> Float[np.ndarray, " draws"]:
  """Squared norms of interpolators of labels of which the points tell nothing.

  Points are standard normal, labels of another standard normal token along a hidden unit
  vector, as they are for a network that does not know which token a prompt names.

  Args:
    num_samples: n.
    token_dim: d.
    draws: samples.
    seed: of all that is random; sample k of n is the same for any number of draws.
    depth: L_y, layers that they are put in (`experiments.qstr.bounds.representation`).
  """
  norms = []
  for draw in range(draws):
    rng = np.random.default_rng((seed, num_samples, draw))
    x = rng.normal(size=(num_samples, token_dim))
    u = rng.normal(size=token_dim)
    y = rng.normal(size=(num_samples, token_dim)) @ u / np.linalg.norm(u)
    norms.append(in_more_layers(interpolator(x, y, rng).squared_norm, depth))
  return np.array(norms)


def memorising_rnn(network: TwoLayer, input_dim: int) -> tuple[ResidualRNN, Any]:
  """The recurrent network of Theorem 9's proof: it fits, and remembers nothing.

  Its transitions and U are zero. The read-out has the network of a position's own
  token, x_i, and nothing of t_i or of other tokens.

  Args:
    network: of tokens [d], with m units.
    input_dim: D, of encoded tokens, whose first d numbers are x_i.

  Returns:
    The model, with one number as its state, and its "params" collection. Their squared
    norm is that of the network.
  """
  a, w, b = (np.asarray(leaf, np.float64) for leaf in network)
  m, d = w.shape
  zero = {
    "W_1": np.zeros((1 + input_dim, 1)), "b_1": np.zeros(1), "W_2": np.zeros((1, 1))
  }  # fmt: skip
  kernel = np.zeros((2 + input_dim, m))
  kernel[2 : 2 + d] = w.T
  params = {
    "forward": zero,
    "backward": zero,
    "hidden_1": {"kernel": kernel, "bias": b},
    "output": {"kernel": a[:, None]},
  }
  return ResidualRNN(1, transition_widths=(1,), output_widths=(m,), radius=1.0), params
