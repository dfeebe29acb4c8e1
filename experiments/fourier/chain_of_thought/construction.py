"""A flat Transformer that computes parity by a chain of thought, with cyclic positions.

Of *A Sharper Picture of Generalization in Transformers*, appendix G (Theorem 16). The
chain is c_i = c_(i-1) xor b_i from c_0 = 0. Token T + i holds c_(i-1) and has the same
position's vector as token i, which holds b_i: attention to one's own position then reads
just these two, with the same weights at every step. The rest is the flat construction
for sets of two bits.

The paper's positions are one-hot with period T. What is ours: positions on circles,
whose number of coordinates does not grow with T; and the second attention, which the
paper leaves as it is. There it would name one row, while here the row that is read
changes with the step, so that it attends to its own position, too. Both rows there have
read the same.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from sepfx import precision
from sepfx.errors import require

from ..flat_transformer import FlatTransformer
from ..flatness.construction import trapezoids

# What the MLP is given of the deviation that it bears, 1/4 of a count of 2.
_LEAK = 1 / 16
# Outputs are +-1, and only their sign is written: how far off they may be.
_OFF = 0.1


@dataclasses.dataclass(frozen=True)
class ChainConstruction:
  """A model of one step, its weights, and the positions' vectors.

  Attributes:
    model: tokens -> outputs, +1 for a chain token 0 and -1 for 1.
    params: its parameters, in NumPy and float64.
    positions: p_1, ..., p_T, after which they begin again; of length 1.
    leak: share of the first attention that is on other positions, at most.
  """

  model: FlatTransformer
  params: Any
  positions: Float[np.ndarray, "T P"]
  leak: float

  def tokens(self, written: Int[Array, "n S"]) -> Float[Array, "n S D"]:
    """Returns x_j = (p_j, what is written at j), with D = P + 1."""
    n, S = written.shape
    own = jnp.asarray(self.positions)[jnp.arange(S) % len(self.positions)]
    places = jnp.broadcast_to(own, (n, *own.shape))
    return jnp.concatenate([places, written[..., None].astype(own.dtype)], axis=-1)

  @precision.exact()
  def step(self, written: Int[Array, "n S"]) -> Float[Array, " n"]:
    """Returns the output at the last token."""
    return jnp.asarray(self.model.apply({"params": self.params}, self.tokens(written)))

  def __call__(self, bits: Int[Array, "n T"]) -> Int[Array, "n T"]:
    """Returns the chain c_1, ..., c_T that the model writes: c_T is the parity."""
    n, T = bits.shape
    written = jnp.concatenate([bits, jnp.zeros((n, 1), bits.dtype)], axis=1)
    for _ in range(T):
      new = (self.step(written) < 0).astype(bits.dtype)
      written = jnp.concatenate([written, new[:, None]], axis=1)
    return written[:, T + 1 :]


def cyclic_chain(length: int, circles: int | None = None) -> ChainConstruction:
  """Builds weights that compute the parity of T bits in T steps.

  The scales of scores are the smallest at which the MLP is given values in the middle of
  its flat parts, and outputs are within 0.1 of +-1. Near positions are the harder to
  tell apart the fewer coordinates there are: the squared norm of W_QK1 grows like
  T log^2 T with one-hot positions and like T^(4/m) with m circles.

  Args:
    length: T.
    circles: m, for positions of P = 2 m coordinates whatever T: the angles 2 pi f j / T
      with m frequencies f from 1 to about T^(1 - 1/m). None for one-hot ones, P = T.

  Raises:
    InvalidSetting: for a length or a number of circles below 1.
  """
  T = length
  require(T >= 1, "length", T, "an integer >= 1")
  if circles is None:
    positions = np.eye(T)
  else:
    require(circles >= 1, "circles", circles, "an integer >= 1, or None")
    frequencies = np.round(T ** (np.arange(circles) / circles))
    angles = 2 * np.pi * np.arange(T)[:, None] * frequencies / T
    positions = np.concatenate([np.cos(angles), np.sin(angles)], axis=1) / circles**0.5
  P = positions.shape[1]
  # Of two rows for each position; at the first steps there are fewer.
  similar = positions @ positions[0]
  first, second = _scale(similar, _LEAK), _scale(similar, _OFF / 2)
  bias, heights = trapezoids(2)
  M, D = len(bias), P + 1
  own_position = np.zeros((D, D))
  own_position[:P, :P] = np.eye(P)
  bit = np.zeros((D, D))
  bit[-1, -1] = 1.0
  params = {
    "W_QK1": first * own_position, "W_V1": bit,
    "F": np.outer(bit[-1], np.ones(M)), "b": bias, "G": np.outer(heights, bit[-1]),
    "W_QK2": second * own_position[None], "W_V2": bit[None], "w": bit[-1],
  }  # fmt: skip
  return ChainConstruction(
    FlatTransformer(mlp_width=M), params, positions, _leak(similar, first)
  )


def _leak(similar: Float[np.ndarray, " T"], scale: float) -> float:
  """Share of attention on other positions, p_i . p_1 being `similar`.

  Two rows there each, against two here: what rows that are not there yet could take is
  more than what they leave.
  """
  weights = np.exp(scale * (similar[1:] - similar[0]))
  return float(np.sum(weights) / (1 + np.sum(weights)))


def _scale(similar: Float[np.ndarray, " T"], leak: float) -> float:
  """The smallest scale of scores at which the leak is no larger, by bisection."""
  low, high = 0.0, 1.0
  if len(similar) == 1:
    return low
  while _leak(similar, high) > leak:
    low, high = high, 2 * high
  while high - low > 1e-9 * high:
    middle = (low + high) / 2
    low, high = (middle, high) if _leak(similar, middle) > leak else (low, middle)
  return high
