"""A flat Transformer that computes a function with few Fourier components.

Of *A Sharper Picture of Generalization in Transformers*, appendix B. Where the printed
proofs leave something open, docs/differences.md says what is done here.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Real

from sepfx import precision
from sepfx.errors import require
from sepfx.tasks.fourier import Convention

from ..flat_transformer import FlatTransformer

# Where the ReLUs of a trapezoid bend, in units of 1/d from its middle, and the signs of
# their slopes 4 d: it is 1 on half of its width, and 0 at its neighbours' middles.
_BENDS = np.array([-1 / 2, -1 / 4, 1 / 4, 1 / 2])
_SLOPES = np.array([1.0, -1.0, -1.0, 1.0])
# The leak that the first attention is given, as a share of the one at which a count
# leaves the flat part of its trapezoid.
_LEAK_SHARE = 0.5


@dataclasses.dataclass(frozen=True)
class FlatConstruction:
  """A model, its weights, and the positions' vectors; a function of bits, 0 or 1.

  Attributes:
    model: tokens -> outputs.
    params: its parameters, in NumPy and float64.
    positions: p_j, beside which a token has its bit; one-hot unless they were projected.
    beta: the first attention's logits are beta log T where they are not 0.
    leak: share of the first attention that is not on its set, of the row where that is
      largest.
  """

  model: FlatTransformer
  params: Any
  positions: Float[np.ndarray, "S P"]
  beta: float
  leak: float

  def tokens(self, bits: Int[Array, "n T"]) -> Float[Array, "n S D"]:
    """Returns x_j = (p_j, b_j), of which the last has bit 0."""
    n = len(bits)
    own = jnp.concatenate([bits, jnp.zeros((n, 1), bits.dtype)], axis=1)
    positions = jnp.broadcast_to(self.positions, (n, *self.positions.shape))
    return jnp.concatenate([positions, own[..., None].astype(positions.dtype)], axis=-1)

  @precision.exact()
  def __call__(self, bits: Int[Array, "n T"]) -> Float[Array, " n"]:
    """Returns the outputs."""
    return jnp.asarray(self.model.apply({"params": self.params}, self.tokens(bits)))


def flat_transformer(
  sets: Real[np.ndarray, "k T"],
  coefficients: Float[np.ndarray, " k"],
  *,
  convention: Convention = "signs",
  beta: float | None = None,
  tolerance: float = 1e-10,
) -> FlatConstruction:
  """Builds weights that compute f(b) = sum_i c_i chi_i(b); call the result on bits.

  Row i of the first attention is uniform on S_i, and so reads the number of its ones over
  d. The MLP has a trapezoid for each such number. The second attention weighs the rows
  with c_i / sum |c|. Sets smaller than the largest attend to the last token, whose bit is
  0, in place of what they lack; coefficients of either sign take a head for each sign.

  Args:
    sets: S_i as masks, 0 or 1, none empty; k at most T.
    coefficients: c_i, none 0.
    convention: chi_i = +-1, or the indicators (1 + chi_i) / 2.
    beta: scale of the first attention; None for the smallest at which its leak is half
      of what a trapezoid bears.
    tolerance: of the second attention's leak, in |f_theta - f|.

  Raises:
    InvalidSetting: for sets, coefficients or a convention that are none, k > T, or a
      beta whose leak is too large.
  """
  sets, c = np.asarray(sets, float), np.asarray(coefficients, float)
  k, T = sets.shape
  takes = f"from 1 to T = {T} sets, as masks of 0 and 1, none of them empty"
  masks = bool(np.all((sets == 0) | (sets == 1)) and np.all(sets.sum(axis=1) >= 1))
  require(1 <= k <= T and masks, "sets", list(sets.shape), takes)
  takes = f"{k} finite numbers, one for each set, none of them 0"
  proper = c.shape == (k,) and bool(np.all(np.isfinite(c) & (c != 0)))
  require(proper, "coefficients", c.tolist(), takes)
  require(tolerance > 0, "tolerance", tolerance, "a positive number")
  kinds = typing.get_args(Convention)
  require(convention in kinds, "convention", convention, " or ".join(kinds))
  d = int(sets.sum(axis=1).max())
  positions, D = np.eye(T + 1), T + 2
  bound = 1 / (4 * d)
  if beta is None:
    # leak = (T + 1 - d) / (d T^beta + T + 1 - d) for a set of size d.
    beta = math.log((T + 1) * (1 / (_LEAK_SHARE * bound) - 1) / d) / math.log(max(T, 2))
  weight = max(T, 2) ** beta
  logits = beta * math.log(max(T, 2)) * sets
  lacking = d - sets.sum(axis=1)
  # The last token stands for `lacking` positions without a one.
  last = np.where(lacking > 0, np.log(np.maximum(lacking, 1)) + math.log(weight), 0.0)
  others = T + 1 - sets.sum(axis=1) - (lacking > 0)
  leak = float(np.max(others / (d * weight + others)))
  takes = f"a larger one: the leak, here {leak:.3g}, must be below 1/(4 d) = {bound:.3g}"
  require(leak < bound, "beta", beta, takes)

  W_QK1 = np.zeros((D, D))
  W_QK1[:k, :T], W_QK1[:k, T] = logits, last
  W_V1 = np.zeros((D, D))
  W_V1[-1, -1] = 1.0
  bias, heights = trapezoids(d, convention)
  M = len(bias)
  F, G = np.zeros((D, M)), np.zeros((M, D))
  F[-1], G[:, -1] = 1.0, heights

  signs = [sign for sign in (1.0, -1.0) if np.any(np.sign(c) == sign)]
  W_QK2, W_V2 = np.zeros((len(signs), D, D)), np.zeros((len(signs), D, D))
  for head, sign in enumerate(signs):
    own = np.sign(c) == sign
    total = float(np.sum(np.abs(c[own])))
    scores = np.zeros(T + 1)
    # What other rows get of the attention, T + 1 - k of them e^0 each against a total of
    # e^r, moves the output by less than 2 total (T + 1 - k) e^-r.
    shift = math.log(2 * len(signs) * total * (T + 1 - np.sum(own)) / tolerance)
    scores[:k][own] = np.log(np.abs(c[own]) / total) + shift
    # Softmax does not change when a number is added to all; the mean is what is not
    # needed of the norm.
    W_QK2[head, T, : T + 1] = scores - scores.mean()
    W_V2[head, -1, -1] = sign * total
  w = np.zeros(D)
  w[-1] = 1.0
  params = {
    "W_QK1": W_QK1, "W_V1": W_V1, "F": F, "b": bias, "G": G,
    "W_QK2": W_QK2, "W_V2": W_V2, "w": w,
  }  # fmt: skip
  model = FlatTransformer(mlp_width=M, num_heads=len(signs))
  return FlatConstruction(model, params, positions, beta, leak)


def trapezoids(
  degree: int, convention: Convention = "signs"
) -> tuple[Float[np.ndarray, " M"], Float[np.ndarray, " M"]]:
  """Returns b and g with sum_m g_m [x + b_m]_+ the parity of the integer x d.

  Args:
    degree: d; x d may be 0, ..., d, and off by less than 1/4.
    convention: +-1, or the indicator of an even number.
  """
  counts = np.arange(degree + 1)
  heights = (-1.0) ** counts
  if convention == "indicators":
    counts, heights = counts[::2], np.ones(len(counts[::2]))
  bias = -((counts[:, None] + _BENDS) / degree).reshape(-1)
  return bias, (4 * degree * heights[:, None] * _SLOPES).reshape(-1)


def squared_norms(construction: FlatConstruction) -> dict[str, float]:
  """Squared Euclidean norms of the weights, by name, and their `total`."""
  own = {name: float(np.sum(a**2)) for name, a in construction.params.items()}
  return {**own, "total": sum(own.values())}


def theorem_10(
  coefficients: Float[np.ndarray, " k"], degree: int, length: int, beta: float
) -> dict[str, float]:
  """Squared norms of the weights in the form of Theorem 10, by name, and their `total`.

  Of positive coefficients and sets of one degree, with signs. The printed formulas are
  lost in our copy: what stands here follows the prose of the proof. It bounds every
  entry of b by 1; the largest is 1 + 1/(2 d), which is used here.

  Args:
    coefficients: c_i.
    degree: d.
    length: T.
    beta: of the first attention.
  """
  c, d = np.asarray(coefficients, float), degree
  own = {
    "W_QK1": len(c) * d * (beta * math.log(length)) ** 2,
    "W_V1": 1.0,
    "F": 4.0 * (d + 1),
    "b": 4 * (d + 1) * (1 + 1 / (2 * d)) ** 2,
    "G": 64.0 * d**2 * (d + 1),
    "W_QK2": len(c) * float(np.max(np.log(c) ** 2)),
    "W_V2": float(np.sum(c)) ** 2,
    "w": 1.0,
  }
  return {**own, "total": sum(own.values())}


def projected(construction: FlatConstruction, dim: int, seed: int) -> FlatConstruction:
  """The construction with positions projected at random onto `dim` numbers.

  Of appendix B.2. Scores are then the former ones but for errors of order 1/sqrt(dim).

  Args:
    construction: with one-hot positions.
    dim: p, of the projection P [T+1 p], whose entries are normal with variance 1/p.
    seed: of P.

  Raises:
    InvalidSetting: for a dimension below 1.
  """
  require(dim >= 1, "dim", dim, "an integer >= 1")
  number = len(construction.positions)
  P = np.random.default_rng(seed).normal(0, dim**-0.5, (number, dim))
  Q = np.zeros((number + 1, dim + 1))
  Q[:number, :dim], Q[-1, -1] = P, 1.0
  own = construction.params
  params = {
    **{name: Q.T @ own[name] @ Q for name in ("W_QK1", "W_V1", "W_QK2", "W_V2")},
    "F": Q.T @ own["F"], "b": own["b"], "G": own["G"] @ Q, "w": Q.T @ own["w"],
  }  # fmt: skip
  return dataclasses.replace(construction, params=params, positions=P)


def rescaled(construction: FlatConstruction) -> FlatConstruction:
  """The same function with the norms of the MLP's layers balanced (appendix D, 1).

  [alpha (A F + b)]_+ G / alpha does not depend on alpha > 0; the one that is taken makes
  the layers' norms equal, where the sum of their squares is least.
  """
  own = construction.params
  first = math.sqrt(np.sum(own["F"] ** 2) + np.sum(own["b"] ** 2))
  alpha = math.sqrt(float(np.linalg.norm(own["G"])) / first)
  params = {**own, "F": alpha * own["F"], "b": alpha * own["b"], "G": own["G"] / alpha}
  return dataclasses.replace(construction, params=params)


@precision.exact()
def attenuated(
  construction: FlatConstruction, bits: Int[np.ndarray, "n T"]
) -> FlatConstruction:
  """The same on a training sample, without the trapezoids that no input of it meets.

  Appendix D, 2: counts that no row of the second attention reads are not needed.

  Args:
    construction: with one-hot positions.
    bits: the training inputs.
  """
  own = construction.params
  tokens = construction.tokens(jnp.asarray(bits))
  read = jax.nn.softmax(tokens @ own["W_QK1"] @ tokens.swapaxes(-1, -2))
  rows = np.asarray((read @ tokens)[..., -1])
  used = np.any(own["W_QK1"][: rows.shape[1]] != 0, axis=1)
  hidden = np.maximum(rows[:, used, None] * own["F"][-1] + own["b"], 0.0)
  value = (hidden * own["G"][:, -1]).reshape(*hidden.shape[:-1], -1, 4).sum(axis=-1)
  met = np.repeat(np.any(np.abs(value) > 0.5, axis=(0, 1)), 4)
  params = {**own, "F": own["F"][:, met], "b": own["b"][met], "G": own["G"][met]}
  model = dataclasses.replace(construction.model, mlp_width=int(met.sum()))
  return dataclasses.replace(construction, model=model, params=params)
