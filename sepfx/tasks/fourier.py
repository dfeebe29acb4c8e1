"""Functions of bits with few Fourier components: f(b) = sum_i c_i chi_i(b).

The task of *A Sharper Picture of Generalization in Transformers* (Lintilhac, Shaikh,
2026), its section 2.1 and appendix A: chi_i(b) = prod_{j in S_i} (1 - 2 b_j), the parity
of the bits in S_i as a sign.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from sepfx import kinds, precision
from sepfx.errors import require
from sepfx.lanewise import lanewise
from sepfx.tasks.boolean import boolean_function
from sepfx.tasks.objectives import REGRESSION_ON_BITS, Objective

# Above it, a function's 2^T values are not tabulated while trials run.
MAX_TABLE_LENGTH = 16

# chi_i = +-1, or the indicators (1 + chi_i) / 2.
Convention = Literal["signs", "indicators"]


class Spectrum(NamedTuple):
  """Components of a function of T bits; rows beyond the k-th have coefficient 0.

  Attributes:
    sets: S_i as masks, 0 or 1.
    coefficients: c_i.
  """

  sets: Float[Array, "K T"]
  coefficients: Float[Array, " K"]


class BitsAndValues(NamedTuple):
  """A sample of n inputs, 0 or 1, and f's values."""

  bits: Int[Array, "n T"]
  labels: Float[Array, " n"]


@precision.exact()
def parities(bits: Int[Array, "n T"], sets: Float[Array, "K T"]) -> Float[Array, "n K"]:
  """chi_S(b) of n inputs and K sets: 1 or -1."""
  return 1.0 - 2.0 * ((bits @ sets.T) % 2)


def all_bits(length: int) -> Int[Array, "2**{length} {length}"]:
  """All inputs in order; the first bit is the index's highest digit."""
  index = jnp.arange(2**length)
  return (index[:, None] >> jnp.arange(length)[::-1]) & 1


def index_of(bits: Int[Array, "n T"]) -> Int[Array, " n"]:
  """The place of inputs among `all_bits`, for T < 31."""
  return bits @ (1 << jnp.arange(bits.shape[1])[::-1])


def of_unseen(
  errors: Float[Array, " n"], bits: Int[Array, "n T"], training: Int[Array, "m T"]
) -> Float[Array, " n"]:
  """Errors whose mean is that over the inputs outside a training sample.

  Those of inputs in the sample become 0, and the others are multiplied by 2^T over the
  number of inputs outside.

  Args:
    errors: of n uniform inputs, or of all 2^T.
    bits: these inputs, T < 31.
    training: the sample's inputs, fewer different ones than 2^T.
  """
  seen = jnp.sort(index_of(training))
  different = 1 + jnp.sum(seen[1:] != seen[:-1])
  own = index_of(bits)
  place = jnp.minimum(jnp.searchsorted(seen, own), len(seen) - 1)
  outside = seen[place] != own
  return jnp.where(outside, errors / (1.0 - different / 2 ** bits.shape[1]), 0.0)


@lanewise("degree", "num_components")
@dataclasses.dataclass(frozen=True)
class FourierSparse:
  """y = f(b) of T uniform bits, f a random function of k components of one degree.

  Pure: every method's randomness comes from its key. The i-th set and coefficient follow
  from the key and i, but for the common factor that gives f variance 1 (1/4 with
  indicators).

  Attributes:
    length: T, number of bits.
    degree: d, size of each set.
    num_components: k, number of different sets.
    signed: whether coefficients are normal; otherwise their absolute values.
    mixed: whether each set's size is uniform on 1, ..., d instead.
    convention: "signs" for chi_i = +-1; "indicators" for (1 + chi_i) / 2, which is 1
      where an even number of the bits in S_i are.
    max_components: rows in which components are held, at least k; None for T.
    function: "random"; or a given function of T bits, whose spectrum is taken instead:
      "tiling" (T/d parities of d bits each, side by side, equal coefficients),
      "majority", or "table:0110..." with 2^T values. The last two have values -1 where
      the table has 1, T <= 16.

  Raises:
    InvalidSetting: for a setting outside its domain.
  """

  length: int = 20
  degree: int = 2
  num_components: int = 4
  signed: bool = False
  mixed: bool = False
  convention: Convention = "signs"
  max_components: int | None = None
  function: str = "random"

  objective: ClassVar[Objective] = REGRESSION_ON_BITS

  def __post_init__(self):
    kinds.settle(self)
    T, d, k = self.length, self.degree, self.num_components
    require(1 <= T <= 30, "length", T, "an integer from 1 to 30")
    require(1 <= d <= T, "degree", d, f"an integer from 1 to the number of bits, {T}")
    conventions = typing.get_args(Convention)
    takes = " or ".join(conventions)
    require(self.convention in conventions, "convention", self.convention, takes)
    most = sum(math.comb(T, size) for size in range(1 if self.mixed else d, d + 1))
    most = min(most, self._rows)
    takes = f"an integer from 1 to {most}, here: there are C(T, degree) sets and "
    takes += f"{self._rows} rows (max_components)"
    require(1 <= k <= most or self.function != "random", "num_components", k, takes)
    if self.function == "tiling":
      require(T % d == 0, "degree", d, f"a divisor of the number of bits, {T}")
    elif self.function != "random":
      takes = f"at most {MAX_TABLE_LENGTH} with the function {self.function}"
      require(T <= MAX_TABLE_LENGTH, "length", T, takes)
      known = self.function == "majority" or self.function.startswith("table:")
      takes = "random, tiling, majority or table:01..."
      require(known, "function", self.function, takes)
      self._table()

  @property
  def _rows(self) -> int:
    return self.length if self.max_components is None else self.max_components

  @property
  def name(self) -> str:
    """ "fourier", with the function's where that is given."""
    own = self.function.replace(":", "_")
    return "fourier" if own == "random" else f"fourier_{own}"

  def init(self, key: PRNGKeyArray) -> Spectrum:
    """Draws sets and coefficients."""
    if self.function == "tiling":
      # Held in T rows: the degree, data of the lanes, must not be part of a shape.
      places = jnp.arange(self.length)
      tiles = (places // self.degree == places[:, None]).astype(float)
      used = places < self.length // self.degree
      return Spectrum(tiles, used / jnp.sqrt(jnp.sum(used)))
    if self.function != "random":
      # Not the components themselves, of which there may be 2^T: labels are read off
      # the table.
      return Spectrum(jnp.zeros((0, self.length)), jnp.zeros(0))
    sets_key, own_key = jax.random.split(key)
    sets = self._sets(sets_key)
    row_keys = jax.vmap(jax.random.fold_in, (None, 0))(own_key, jnp.arange(self._rows))
    normals = jax.vmap(jax.random.normal)(row_keys)
    used = jnp.arange(self._rows) < self.num_components
    own = jnp.where(used, normals if self.signed else jnp.abs(normals), 0.0)
    return Spectrum(sets, own / jnp.linalg.norm(own))

  def _sets(self, key: PRNGKeyArray) -> Float[Array, "K T"]:
    """Masks of different sets, row by row: a row is drawn again while it is there."""

    def draw(own_key):
      size_key, order_key = jax.random.split(own_key)
      size = jnp.asarray(self.degree)
      if self.mixed:
        size = jax.random.randint(size_key, (), 1, size + 1)
      place = jax.random.permutation(order_key, self.length)
      return (place < size).astype(float)

    def add(i, sets):
      row_key = jax.random.fold_in(key, i)

      def there(carry):
        _, own = carry
        before = jnp.arange(self._rows) < i
        twice = jnp.any(before & jnp.all(sets == own, axis=1))
        return twice & (i < self.num_components)

      def again(carry):
        attempt, _ = carry
        return attempt + 1, draw(jax.random.fold_in(row_key, attempt + 1))

      start = (0, draw(jax.random.fold_in(row_key, 0)))
      _, own = jax.lax.while_loop(there, again, start)
      return sets.at[i].set(own)

    return jax.lax.fori_loop(0, self._rows, add, jnp.zeros((self._rows, self.length)))

  def sample(self, key: PRNGKeyArray, planted: Spectrum, num_samples: int):
    """Draws n uniform inputs, with replacement, and their values."""
    bits = jax.random.bernoulli(key, 0.5, (num_samples, self.length)).astype(int)
    return BitsAndValues(bits, self.labels(planted, bits))

  @precision.exact()
  def labels(self, planted: Spectrum, bits: Int[Array, "n T"]) -> Float[Array, " n"]:
    """Returns f."""
    if self.function not in ("random", "tiling"):
      signs = 1.0 - 2.0 * jnp.asarray(self._table(), float)[index_of(bits)]
      return signs if self.convention == "signs" else (1.0 + signs) / 2
    own = parities(bits, planted.sets)
    if self.convention == "indicators":
      own = (1.0 + own) / 2
    return own @ planted.coefficients

  def _table(self) -> np.ndarray:
    """Values of a given function, 0 or 1, on all inputs."""
    table = boolean_function(self.function).table(self.length)
    if len(table) == 2**self.length:
      return table
    return table[[index.bit_count() for index in range(2**self.length)]]

  def encode(self, planted: Spectrum, sample: BitsAndValues) -> Int[Array, "n T"]:
    """Returns the bits: models over tokens embed them themselves."""
    del planted
    return sample.bits

  def best_constant_error(self) -> float:
    """The variance of f."""
    scale = 1.0 if self.convention == "signs" else 0.25
    if self.function in ("random", "tiling"):
      return scale
    mean = float(np.mean(1.0 - 2.0 * self._table()))
    return scale * (1.0 - mean**2)

  def check_draw(self, keys: Key[Array, " k"]) -> None:
    """Any sets can be drawn."""


@lanewise("degree", "num_components")
@dataclasses.dataclass(frozen=True)
class UnseenStrings(FourierSparse):
  """The same function on inputs that the training sample does not hold.

  Its sample is all 2^T inputs in order where that many are asked for, and uniform
  otherwise. Those in the training sample have error 0, and the others a factor: the
  mean is then that over the inputs outside.
  """

  def sample(self, key: PRNGKeyArray, planted: Spectrum, num_samples: int):
    """Returns all inputs, or draws n of them, with f's values."""
    if num_samples != 2**self.length:
      return super().sample(key, planted, num_samples)
    bits = all_bits(self.length)
    return BitsAndValues(bits, self.labels(planted, bits))

  def score(
    self,
    apply: Callable[[Any], Array],
    planted: Spectrum,
    sample: BitsAndValues,
    training: BitsAndValues | None,
  ) -> Float[Array, " n"]:
    """Squared errors whose mean is that over the inputs outside `training`.

    Args:
      apply: inputs -> outputs.
      planted: the components.
      sample: n inputs.
      training: the training sample; None where every batch is fresh.
    """
    errors = self.objective.error(apply(self.encode(planted, sample)), sample.labels)
    if training is None:
      return errors
    return of_unseen(errors, sample.bits, training.bits)
