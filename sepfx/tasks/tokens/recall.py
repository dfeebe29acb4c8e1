"""Recall: what stood beside a token when it was there before."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from sepfx import kinds
from sepfx.errors import require
from sepfx.tasks.tokens.task import Sequences, TokenTask, at_least


@dataclasses.dataclass(frozen=True)
class MQAR(TokenTask):
  """Multi-query associative recall: P pairs of keys and values, then each key again.

  Arora et al., "Zoology: Measuring and Improving Recall in Efficient Language Models"
  (2024), as zoology/data/multiquery_ar.py of HazyResearch/zoology at d88d6f5 draws it.
  The pairs stand first. Each key comes again at an even distance from their end. Of these
  the k-th is drawn with a weight of k^(a - 1), no two keys at one. There its value is
  asked for. Keys and values are of either half of the vocabulary, and 0 stands where
  nothing else does.

  Attributes:
    length: N, even.
    num_pairs: P, at most N / 4.
    vocabulary: tokens that there are, more than N.
    power: a; 1 for distances that are uniform.
    random_rest: whether random tokens stand where else 0 does, as in the published
      generator's default.
    mixed: lengths and numbers of pairs, as in 32x4+32x4+64x8, the largest N and P. One is
      drawn for each sequence, and shorter ones end with 0s. Empty for N and P alone.

  Raises:
    InvalidSetting: for a setting outside its domain.
  """

  length: int = 64
  num_pairs: int = 4
  vocabulary: int = 8192
  power: float = 0.01
  random_rest: bool = False
  mixed: str = ""

  name: ClassVar[str] = "mqar"

  def __post_init__(self) -> None:
    kinds.settle(self)
    N, P, V = self.length, self.num_pairs, self.vocabulary
    require(N >= 4 and N % 2 == 0, "length", N, "an even number >= 4")
    require(1 <= P <= N // 4, "num_pairs", P, f"an integer from 1 to {N // 4}, N / 4")
    require(V > N and V % 2 == 0, "vocabulary", V, f"an even number > {N}, the length")
    require(0 < self.power < math.inf, "power", self.power, "a positive number")
    proper = re.fullmatch(r"([0-9]+x[0-9]+(\+(?=.)|$))*", self.mixed) is not None
    proper = proper and tuple(map(max, zip(*self._kinds, strict=True))) == (N, P)
    takes = f"lengths and pairs as in 32x4+64x8, the largest of them {N} and {P}"
    require(proper, "mixed", self.mixed, takes)
    for M, Q in self._kinds if self.mixed else ():
      dataclasses.replace(self, length=M, num_pairs=Q, mixed="")

  @property
  def _kinds(self) -> list[tuple[int, ...]]:
    texts = (self.mixed or f"{self.length}x{self.num_pairs}").split("+")
    return [tuple(map(int, text.split("x"))) for text in texts]

  @property
  def num_answers(self) -> int:
    """Values."""
    return self.vocabulary // 2

  def draw(self, key: PRNGKeyArray, num_samples: int) -> Sequences:
    """Draws n sequences."""
    N, P, half, kinds = self.length, self.num_pairs, self.vocabulary // 2, self._kinds
    (length, pairs), *_ = kinds
    if self.mixed:
      key, of_kinds = jax.random.split(key)
      kind = jax.random.randint(of_kinds, (num_samples, 1), 0, len(kinds))
      length, pairs = jnp.moveaxis(jnp.array(kinds)[kind], -1, 0)  # [n 1]
    of_keys, of_values, of_places, of_rest = jax.random.split(key, 4)
    keys = 1 + distinct(of_keys, (num_samples, P), half - 1)
    values = half + distinct(of_values, (num_samples, P), half)
    # Largest first of log-weights with Gumbel noise: drawn one by one, none twice.
    places = jnp.arange(max(M // 2 - Q for M, Q in kinds))
    weights = (self.power - 1) * jnp.log(places + 1)
    noise = jax.random.gumbel(of_places, (num_samples, len(places)))
    noise = jnp.where(places < length // 2 - pairs, noise, -jnp.inf)
    there = jnp.arange(P) < pairs
    asked = jnp.where(there, 2 * pairs + 2 * jax.lax.top_k(weights + noise, P)[1], 0)
    tokens = jnp.zeros((num_samples, N), int)
    if self.random_rest:
      tokens = jax.random.randint(of_rest, (num_samples, N), 0, self.vocabulary)
      tokens = jnp.where(jnp.arange(N) < length, tokens, 0)
    own = jnp.stack([keys, values], axis=-1).reshape(num_samples, 2 * P)
    own = jnp.where(jnp.arange(2 * P) < 2 * pairs, own, tokens[:, : 2 * P])
    tokens = tokens.at[:, : 2 * P].set(own)
    again = jnp.where(there, keys, keys[:, :1])  # the first key, where it stands already
    tokens = jnp.put_along_axis(tokens, asked, again, axis=1, inplace=False)
    return Sequences(tokens, asked, jnp.where(there, values, -1))


@dataclasses.dataclass(frozen=True)
class InContextRecall(TokenTask):
  """Pairs of keys and values, some of them again and again, with noise between them.

  Poli et al., "Mechanistic Design and Scaling of Hybrid Architectures" (2024), as
  mad/data/instances.py of athms/mad-lab at 0f49a45 draws it with several queries. Each
  pair is noise or a key with its value in this sequence. At each key that was there
  before its value is asked for. The last key is one of those that were there. There a
  model trains on all next tokens, here on those that are asked for.

  Attributes:
    length: N, even.
    vocabulary: tokens that there are: keys, values, noise.
    noise_vocabulary: those of noise among them.
    noise: share of pairs that are noise.

  Raises:
    InvalidSetting: for a setting outside its domain.
  """

  length: int = 128
  vocabulary: int = 16
  noise_vocabulary: int = 0
  noise: float = 0.0

  def __post_init__(self) -> None:
    kinds.settle(self)
    N, left = self.length, self.vocabulary - self.noise_vocabulary
    require(N >= 4 and N % 2 == 0, "length", N, "an even number >= 4")
    require(self.noise_vocabulary >= 0, "noise_vocabulary", self.noise_vocabulary,
            "an integer >= 0")  # fmt: skip
    takes = "at least two keys and two values beside the noise"
    require(left >= 4, "vocabulary", self.vocabulary, takes)
    proper = 0 <= self.noise < 1 and (self.noise == 0 or self.noise_vocabulary > 0)
    takes = "a share from 0 to below 1, 0 without tokens for noise"
    require(proper, "noise", self.noise, takes)

  @property
  def name(self) -> str:
    """By whether there is noise."""
    return "noisy_recall" if self.noise else "in_context_recall"

  @property
  def num_keys(self) -> int:
    """Keys that there are."""
    return (self.vocabulary - self.noise_vocabulary) // 2

  @property
  def num_answers(self) -> int:
    """Values."""
    return self.vocabulary - self.noise_vocabulary - self.num_keys

  def draw(self, key: PRNGKeyArray, num_samples: int) -> Sequences:
    """Draws n sequences."""
    n, pairs, K = num_samples, self.length // 2, self.num_keys
    of_keys, of_values, of_noise, is_noise, of_sure, of_last = jax.random.split(key, 6)
    keys = jax.random.randint(of_keys, (n, pairs), 0, K)
    table = jax.random.randint(of_values, (n, K), K, K + self.num_answers)
    sure = jax.random.randint(of_sure, (n, 1), 0, pairs - 1)
    noisy = jax.random.bernoulli(is_noise, self.noise, (n, pairs))
    noisy = noisy & (jnp.arange(pairs) != sure) & (jnp.arange(pairs) < pairs - 1)
    # Whether each key stood before each pair.
    here = jax.nn.one_hot(keys, K, dtype=bool) & ~noisy[..., None]
    before = jnp.cumsum(here, axis=1) - here > 0
    last = jax.random.categorical(of_last, jnp.where(before[:, -1], 0.0, -jnp.inf))
    keys = keys.at[:, -1].set(last)
    values = jnp.take_along_axis(table, keys, axis=1)
    known = jnp.take_along_axis(before, keys[..., None], axis=2)[..., 0] & ~noisy
    tokens = jnp.stack([keys, values], axis=-1)
    first = self.vocabulary - self.noise_vocabulary
    other = jax.random.randint(of_noise, tokens.shape, first, self.vocabulary)
    tokens = jnp.where(noisy[..., None], other, tokens).reshape(n, 2 * pairs)
    asked = jnp.broadcast_to(2 * jnp.arange(pairs), (n, pairs))
    return Sequences(tokens, asked, jnp.where(known, values, -1))


@dataclasses.dataclass(frozen=True)
class InductionHeads(TokenTask):
  """What followed a special token, when it comes again at the end.

  The task that Fu et al., "Hungry Hungry Hippos" (2023), and Gu and Dao, "Mamba" (2023),
  describe: random tokens, among them once the special one; it is the last one, too.

  Attributes:
    length: N.
    vocabulary: tokens that there are, the last one is special.

  Raises:
    InvalidSetting: for a setting outside its domain.
  """

  length: int = 64
  vocabulary: int = 16

  name: ClassVar[str] = "induction_heads"

  def __post_init__(self) -> None:
    kinds.settle(self)
    at_least(self, length=3, vocabulary=3)

  @property
  def num_answers(self) -> int:
    """Tokens that are not special."""
    return self.vocabulary - 1

  def draw(self, key: PRNGKeyArray, num_samples: int) -> Sequences:
    """Draws n sequences."""
    n, N, special = num_samples, self.length, self.vocabulary - 1
    of_tokens, of_places = jax.random.split(key)
    tokens = jax.random.randint(of_tokens, (n, N), 0, special)
    place = jax.random.randint(of_places, (n, 1), 0, N - 2)
    there = jnp.arange(N)
    tokens = jnp.where((there == place) | (there == N - 1), special, tokens)
    labels = jnp.take_along_axis(tokens, place + 1, axis=1)
    return Sequences(tokens, jnp.full((n, 1), N - 1), labels)


@dataclasses.dataclass(frozen=True)
class Memorisation(TokenTask):
  """Values that belong to keys in all sequences: they are planted, once per trial.

  As MAD's memorization of Poli et al. (2024), `generate_memorization_instance` in
  mad/data/instances.py of athms/mad-lab at 0f49a45: after each key stands one token that
  asks for its value, which never stands in a sequence. There the table is one for all.

  Attributes:
    length: N, even.
    vocabulary: tokens that there are: keys, values, and the one that asks.

  Raises:
    InvalidSetting: for a setting outside its domain.
  """

  length: int = 32
  vocabulary: int = 256

  name: ClassVar[str] = "memorisation"

  def __post_init__(self) -> None:
    kinds.settle(self)
    proper = self.length >= 2 and self.length % 2 == 0
    require(proper, "length", self.length, "an even number >= 2")
    at_least(self, vocabulary=5)

  @property
  def num_keys(self) -> int:
    """Keys that there are."""
    return (self.vocabulary - 1) // 2

  @property
  def num_answers(self) -> int:
    """Values that belong to a key."""
    return self.num_keys

  def init(self, key: PRNGKeyArray) -> Int[Array, "K"]:
    """Plants the value of each key, no two the same."""
    K = self.num_keys
    return K + jax.random.permutation(key, self.vocabulary - 1 - K)[:K]

  def sample(
    self, key: PRNGKeyArray, planted: Int[Array, "K"], num_samples: int
  ) -> Sequences:
    """Draws n sequences."""
    n, pairs = num_samples, self.length // 2
    keys = jax.random.randint(key, (n, pairs), 0, self.num_keys)
    ask = jnp.full_like(keys, self.vocabulary - 1)
    tokens = jnp.stack([keys, ask], axis=-1).reshape(n, 2 * pairs)
    asked = jnp.broadcast_to(1 + 2 * jnp.arange(pairs), (n, pairs))
    return Sequences(tokens, asked, planted[keys])


def distinct(key: PRNGKeyArray, shape: tuple[int, int], number: int) -> Int[Array, "n k"]:
  """k numbers below `number` in each row, no two the same, in random order.

  The i-th is drawn among those that are left, and counted past those that are not.
  """
  n, k = shape
  places = jnp.arange(k)

  def one(taken, own):  # sorted, and beyond all numbers where nothing is taken yet
    i, key = own
    x = jax.random.randint(key, (n,), 0, number - i)
    x = x + jnp.sum(taken - places <= x[:, None], axis=1)
    return jnp.sort(taken.at[:, -1].set(x), axis=1), x

  start = jnp.full((n, k), 2 * number + k)
  drawn = jax.lax.scan(one, start, (places, jax.random.split(key, k)))[1]
  return drawn.T
