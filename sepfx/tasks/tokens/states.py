"""What a finite state, or a stack, is after each token."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, PRNGKeyArray

from sepfx import kinds
from sepfx.errors import require
from sepfx.tasks.tokens.task import Sequences, TokenTask, at_least


@functools.cache
def multiplication(group: str) -> np.ndarray:
  """The table of a group, [elements elements]: "Z7" adds modulo 7, "S5" permutes five.

  Entry (a, b) is a b, of permutations: first b, then a. Element 0 is the identity.

  Raises:
    InvalidSetting: for another group.
  """
  kind, number = group[:1], group[1:]
  takes = "Z with a number from 2 to 1000, or S with one from 2 to 5"
  largest = {"Z": 1000, "S": 5}.get(kind, 0)
  known = number.isascii() and number.isdigit() and 2 <= int(number) <= largest
  require(known, "group", group, takes)
  order = int(number)
  if kind == "Z":
    return np.add.outer(np.arange(order), np.arange(order)) % order
  elements = np.array(list(itertools.permutations(range(order))))
  place = {tuple(own): k for k, own in enumerate(elements.tolist())}
  products = elements[:, elements]  # [a b i]: a(b(i))
  return np.array([[place[tuple(own)] for own in row] for row in products.tolist()])


@dataclasses.dataclass(frozen=True)
class WordProblem(TokenTask):
  """Products of elements of a group, asked for after each of them.

  Z2 is the parity of all bits so far, Zm addition modulo m. The word problem of S5 is as
  hard as any of finite states (Barrington, 1989); Liu et al., "Transformers Learn
  Shortcuts to Automata" (2023), and Merrill et al., "The Illusion of State in State-Space
  Models" (2024), train on it.

  Attributes:
    length: N.
    group: "Z2", "Z7" and the like, or "S2" to "S5".
    last: whether the last product alone is asked for.

  Raises:
    InvalidSetting: for a setting outside its domain.
  """

  length: int = 32
  group: str = "S3"
  last: bool = False

  def __post_init__(self) -> None:
    kinds.settle(self)
    at_least(self, length=1)
    multiplication(self.group)

  @property
  def name(self) -> str:
    """By its group."""
    return f"word_problem_{self.group}"

  @property
  def vocabulary(self) -> int:
    """Elements of the group."""
    return len(multiplication(self.group))

  @property
  def num_answers(self) -> int:
    """Elements of the group."""
    return self.vocabulary

  def draw(self, key: PRNGKeyArray, num_samples: int) -> Sequences:
    """Draws n sequences."""
    n, N = num_samples, self.length
    tokens = jax.random.randint(key, (n, N), 0, self.vocabulary)
    table = jnp.asarray(multiplication(self.group))
    products = jax.lax.associative_scan(lambda a, b: table[b, a], tokens, axis=1)
    first = N - 1 if self.last else 0
    asked = jnp.broadcast_to(jnp.arange(first, N), (n, N - first))
    return Sequences(tokens, asked, products[:, first:])


@dataclasses.dataclass(frozen=True)
class Dyck(TokenTask):
  """Brackets of k types, nested at most so deep: which type closes next?

  After each bracket the type of the innermost open one is asked for, where one is open:
  after an opening bracket that is its own.
  Hewitt et al., "RNNs Can Generate Bounded Hierarchical Languages with Optimal Memory"
  (2020), have these languages. A bracket opens with a chance of one half, where the depth
  leaves both; all types are alike.

  Attributes:
    length: N.
    num_types: k; opening brackets are 0 to k - 1, closing ones k to 2 k - 1.
    depth: how many are open at most.

  Raises:
    InvalidSetting: for a setting outside its domain.
  """

  length: int = 64
  num_types: int = 4
  depth: int = 8

  name: ClassVar[str] = "dyck"

  def __post_init__(self) -> None:
    kinds.settle(self)
    at_least(self, length=2, num_types=2, depth=1)

  @property
  def vocabulary(self) -> int:
    """Opening and closing brackets."""
    return 2 * self.num_types

  @property
  def num_answers(self) -> int:
    """Types."""
    return self.num_types

  def draw(self, key: PRNGKeyArray, num_samples: int) -> Sequences:
    """Draws n sequences."""
    n, N, k, D = num_samples, self.length, self.num_types, self.depth
    of_turns, of_types = jax.random.split(key)
    turns = jax.random.bernoulli(of_turns, 0.5, (N, n))
    types = jax.random.randint(of_types, (N, n), 0, k)
    rows = jnp.arange(n)

    def bracket(carry, own):
      stack, height = carry
      turn, kind = own
      opens = (height == 0) | ((height < D) & turn)
      top = stack[rows, jnp.maximum(height - 1, 0)]
      token = jnp.where(opens, kind, k + top)
      place = jnp.where(opens, height, D)  # beyond the stack nothing is written
      stack = stack.at[rows, place].set(kind, mode="drop")
      height = jnp.where(opens, height + 1, height - 1)
      inner = jnp.where(height > 0, stack[rows, jnp.maximum(height - 1, 0)], -1)
      return (stack, height), (token, inner)

    start = jnp.zeros((n, D), int), jnp.zeros(n, int)
    tokens, labels = jax.lax.scan(bracket, start, (turns, types))[1]
    asked = jnp.broadcast_to(jnp.arange(N), (n, N))
    return Sequences(tokens.T, asked, labels.T)


@dataclasses.dataclass(frozen=True)
class KHop(TokenTask):
  """What followed the last time that a token stood there, k times over.

  Sanford et al., "Transformers, Parallel Computation, and Logarithmic Depth" (2024),
  Definition 4.1: find_1(i) is the last j <= i after a token that is that of i, find_k(i)
  is find_1 of find_(k-1)(i). The token at find_k(i) is asked for, where it exists.

  Attributes:
    length: N.
    hops: k.
    vocabulary: tokens that there are, uniform.

  Raises:
    InvalidSetting: for a setting outside its domain.
  """

  length: int = 64
  hops: int = 2
  vocabulary: int = 4

  name: ClassVar[str] = "k_hop"

  def __post_init__(self) -> None:
    kinds.settle(self)
    at_least(self, length=2, hops=1, vocabulary=2)

  @property
  def num_answers(self) -> int:
    """Tokens."""
    return self.vocabulary

  def draw(self, key: PRNGKeyArray, num_samples: int) -> Sequences:
    """Draws n sequences."""
    n, N = num_samples, self.length
    tokens = jax.random.randint(key, (n, N), 0, self.vocabulary)
    found = jnp.broadcast_to(jnp.arange(N), (n, N))
    once = _found(tokens)
    for _ in range(self.hops):
      next_one = jnp.take_along_axis(once, jnp.maximum(found, 0), axis=1)
      found = jnp.where(found >= 0, next_one, -1)
    there = jnp.take_along_axis(tokens, jnp.maximum(found, 0), axis=1)
    asked = jnp.broadcast_to(jnp.arange(N), (n, N))
    return Sequences(tokens, asked, jnp.where(found >= 0, there, -1))


def _found(tokens: Int[jax.Array, "n N"]) -> Int[jax.Array, "n N"]:
  """find_1 of each position; -1 where there is none."""
  N = tokens.shape[1]
  same = tokens[:, :, None] == tokens[:, None, :-1]  # of i and j - 1
  place = jnp.where(
    same & (jnp.arange(1, N) <= jnp.arange(N)[:, None]), jnp.arange(1, N), -1
  )
  return jnp.max(place, axis=-1, initial=-1)
