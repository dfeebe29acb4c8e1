"""Planted s-sparse Boolean functions: the label depends on s hidden bits among T.

The tasks of *Inductive Biases and Variable Creation in Self-Attention Mechanisms*
(Edelman, Goel, Kakade, Zhang, 2022), section 5 and appendix C.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key, PRNGKeyArray

from sepfx import kinds
from sepfx.errors import require
from sepfx.lanewise import lanewise
from sepfx.tasks.indices import MAX_LENGTH, MAX_SPARSITY, subsets
from sepfx.tasks.objectives import CLASSIFICATION, Objective


class BooleanFunction(Protocol):
  """A function of s bits.

  Attributes:
    name: what records call it.
  """

  @property
  def name(self) -> str: ...

  def table(self, sparsity: int) -> np.ndarray:
    """Returns its values, 0 or 1, on all inputs.

    Either 2^s of them, the first hidden bit being the highest digit of the index; or
    s + 1, by the number of ones (s > 1: for s = 1 the two are the same).

    Raises:
      InvalidSetting: if it is not a function of s bits.
    """


@dataclasses.dataclass(frozen=True)
class Symmetric:
  """A function of the number r of ones among s bits.

  Attributes:
    name: what records call it.
    value: (r, s) -> whether the label is 1.
  """

  name: str
  value: Callable[[int, int], bool]

  def table(self, sparsity: int) -> np.ndarray:
    return np.array([self.value(r, sparsity) for r in range(sparsity + 1)], np.int32)


@dataclasses.dataclass(frozen=True)
class ByCount:
  """The symmetric function with these values.

  Attributes:
    values: for 0, 1, ..., s ones.
  """

  values: tuple[int, ...]

  @property
  def name(self) -> str:
    return "symmetric_" + "".join(map(str, self.values))

  def table(self, sparsity: int) -> np.ndarray:
    return _checked(self.values, sparsity + 1, "sparsity + 1")


@dataclasses.dataclass(frozen=True)
class TruthTable:
  """Any function.

  Attributes:
    values: 2^s of them; the first hidden bit is the highest digit of the index.
  """

  values: tuple[int, ...]

  @property
  def name(self) -> str:
    return "table_" + "".join(map(str, self.values))

  def table(self, sparsity: int) -> np.ndarray:
    return _checked(self.values, 2**sparsity, "2^sparsity")


def _checked(values: tuple[int, ...], length: int, formula: str) -> np.ndarray:
  takes = f"{formula} = {length} values, each 0 or 1"
  require(len(values) == length and set(values) <= {0, 1}, "function", values, takes)
  return np.array(values, np.int32)


def threshold(k: int) -> Symmetric:
  """The function that is 1 where at least k of the bits are."""
  return Symmetric(f"threshold_{k}", lambda r, s: r >= k)


FUNCTIONS: dict[str, BooleanFunction] = {
  "and": Symmetric("and", lambda r, s: r == s),
  "or": Symmetric("or", lambda r, s: r > 0),
  "majority": Symmetric("majority", lambda r, s: 2 * r > s),
  "parity": Symmetric("parity", lambda r, s: r % 2 == 1),
}


def boolean_function(text: str) -> BooleanFunction:
  """Returns a function by its name.

  Args:
    text: one of `FUNCTIONS`, "threshold:2" (at least two of the bits are 1),
      "symmetric:0110" (by the number of ones) or "table:01101001" (any).

  Raises:
    InvalidSetting: for any other text.
  """
  if text in FUNCTIONS:
    return FUNCTIONS[text]
  kind, _, argument = text.partition(":")
  takes = f"{', '.join(FUNCTIONS)}, threshold:K, symmetric:01... or table:01..."
  require(kind in ("threshold", "symmetric", "table"), "function", text, takes)
  require(argument.isascii() and argument.isdecimal(), "function", text, takes)
  if kind == "threshold":
    require(len(argument) <= 9, "function", text, "threshold:K with at most nine digits")
    return threshold(int(argument))
  values = tuple(map(int, argument))
  return ByCount(values) if kind == "symmetric" else TruthTable(values)


class Hidden(NamedTuple):
  """What the task hides: the positions of the bits that matter, ascending."""

  subset: Int[Array, " s"]


class LabelledBits(NamedTuple):
  """A sample of n inputs and labels, all 0 or 1."""

  bits: Int[Array, "n T"]
  labels: Int[Array, " n"]


@lanewise("noise")
@dataclasses.dataclass(frozen=True)
class SparseBoolean:
  """y = f(b_i for i in I), I a hidden s-subset of T independent bits.

  Pure: every method's randomness comes from its key. Two tasks that differ in
  `noise` or `bit_probability` alone share their planted parameters.

  Attributes:
    length: T, number of bits.
    sparsity: s, number of hidden bits, 1 <= s <= T.
    function: f, or its name as `boolean_function` takes it.
    noise: probability that a label is flipped, in [0, 1/2).
    bit_probability: of a one, in (0, 1).
    subset: I, counted from 0; None to draw it, uniformly over all C(T, s).

  Raises:
    InvalidSetting: for a setting outside its domain.
  """

  length: int = 100
  sparsity: int = 3
  function: BooleanFunction = FUNCTIONS["and"]
  noise: float = 0.0
  bit_probability: float = 0.5
  subset: tuple[int, ...] | None = None

  def __post_init__(self):
    kinds.settle(self)
    inside = 1 <= self.length <= MAX_LENGTH
    require(inside, "length", self.length, f"an integer from 1 to {MAX_LENGTH}")
    takes = f"an integer from 1 to the number of bits, here {self.length}"
    require(1 <= self.sparsity <= self.length, "sparsity", self.sparsity, takes)
    takes = f"an integer from 1 to {MAX_SPARSITY}"
    require(self.sparsity <= MAX_SPARSITY, "sparsity", self.sparsity, takes)
    if isinstance(self.function, str):
      object.__setattr__(self, "function", boolean_function(self.function))
    self.function.table(self.sparsity)
    require(0 <= self.noise < 0.5, "noise", self.noise, "a number in [0, 1/2)")
    require(
      0 < self.bit_probability < 1,
      "bit_probability",
      self.bit_probability,
      "a number between 0 and 1",
    )
    if self.subset is not None:
      distinct = len(set(self.subset)) == len(self.subset) == self.sparsity
      inside = all(0 <= i < self.length for i in self.subset)
      takes = f"{self.sparsity} different positions from 0 to {self.length - 1}"
      require(distinct and inside, "subset", self.subset, takes)

  objective: ClassVar[Objective] = CLASSIFICATION

  @property
  def name(self) -> str:
    """The function's."""
    return self.function.name

  def init(self, key: PRNGKeyArray) -> Hidden:
    """Hides I."""
    if self.subset is not None:
      return Hidden(jnp.sort(jnp.array(self.subset)))
    return Hidden(jnp.sort(subsets(key, (), self.length, self.sparsity)))

  def sample(self, key: PRNGKeyArray, planted: Hidden, num_samples: int) -> LabelledBits:
    """Draws n inputs and their labels; `num_samples` is n."""
    bits_key, noise_key = jax.random.split(key)
    shape = (num_samples, self.length)
    bits = jax.random.bernoulli(bits_key, self.bit_probability, shape).astype(int)
    noise = jnp.asarray(self.noise, float)  # 0 is one, too
    flipped = jax.random.bernoulli(noise_key, noise, (num_samples,))
    labels = self.labels(planted, bits) ^ flipped.astype(int)
    return LabelledBits(bits, labels)

  def labels(self, planted: Hidden, bits: Int[Array, "n T"]) -> Int[Array, " n"]:
    """Returns f of the hidden bits, without noise."""
    hidden = bits[:, planted.subset]
    table = self.function.table(self.sparsity)
    if len(table) == self.sparsity + 1:
      return jnp.asarray(table, int)[jnp.sum(hidden, axis=1)]
    digits = 2 ** np.arange(self.sparsity)[::-1]
    return jnp.asarray(table, int)[hidden @ digits]

  def truth_table(self) -> Int[np.ndarray, "2**{self.sparsity}"]:
    """f on all inputs of its s bits, of which the first is the index's highest digit."""
    table = self.function.table(self.sparsity)
    if len(table) == 2**self.sparsity:
      return table
    return table[[index.bit_count() for index in range(2**self.sparsity)]]

  def encode(self, planted: Hidden, sample: LabelledBits) -> Int[Array, "n T"]:
    """Returns the bits: models over tokens embed them themselves."""
    del planted
    return sample.bits

  def best_constant_error(self) -> float:
    """Error of the better constant on labels without noise: min(P(f = 0), P(f = 1))."""
    s, p = self.sparsity, self.bit_probability
    table = self.function.table(s)
    if len(table) == s + 1:
      ones, times = np.arange(s + 1), [math.comb(s, r) for r in range(s + 1)]
    else:
      ones, times = np.array([i.bit_count() for i in range(2**s)]), [1] * 2**s
    mean = float(np.sum(table * times * p**ones * (1 - p) ** (s - ones)))
    return min(mean, 1 - mean)

  def check_draw(self, keys: Key[Array, " k"]) -> None:
    """Any subset can be drawn."""
