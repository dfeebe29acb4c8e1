"""What mixers have in common whose state is a memory of keys and values."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from sepfx.errors import require
from sepfx.models.mixers import memories
from sepfx.models.mixers.memories import Terms
from sepfx.models.mixers.mixer import Mixer, ShortConvolution, state_dtype


class MemoryMixer(Mixer):
  """A mixer whose state is a memory of keys and values, `sepfx.models.mixers.memories`.

  Attributes:
    num_heads: H.
    convolution: tokens that a convolution of queries, keys and values sees; 0 for none.
  """

  num_heads: int = 1
  convolution: int = 0

  # Whether the convolutions have biases.
  convolution_bias = False

  def __call__(self, rows: Float[Array, "n N D"]) -> Float[Array, "n N D"]:
    rows = self.checked(rows)
    parts, rest = self.parts(rows)
    if self.convolution:
      own = zip(self.convolutions, parts, strict=True)
      parts = tuple(convolve(part) for convolve, part in own)
    else:
      parts = self.unconvolved(parts)
    return self.out(self.read(parts, rest), parts, rest)

  def step(self, state: Any, row: Float[Array, "n D"]) -> tuple[Any, Array]:
    memory, seen = state
    row = self.cast(row)[:, None]
    parts, rest = self.parts(row)
    if self.convolution:
      own = zip(self.convolutions, seen, parts, strict=True)
      stepped = [convolve.step(before, part[:, 0]) for convolve, before, part in own]
      seen = tuple(after for after, _ in stepped)
      parts = tuple(part[:, None] for _, part in stepped)
    else:
      parts = self.unconvolved(parts)
    memory, read = memories.step(memory, self.terms(parts, rest))
    return (memory, seen), self.out(read[:, None], parts, rest)[:, 0]

  def init_state(self, n: int, length: int) -> Any:
    """The memory, and what the convolutions have seen."""
    del length
    K, V = self.memory_shape()
    memory = jnp.zeros((n, self.num_heads, K, V), state_dtype(self))
    features = self.part_features() if self.convolution else ()
    before = max(self.convolution - 1, 0)
    seen = tuple(jnp.zeros((n, before, own), state_dtype(self)) for own in features)
    return memory, seen

  def without_caches(self, state: Any) -> Any:
    """The memory."""
    return state[0]

  def convolved(self) -> tuple[ShortConvolution, ...]:
    """The convolutions, to be set up."""
    require(self.convolution >= 0, "convolution", self.convolution, "an integer >= 0")
    made = (
      ShortConvolution(
        own, self.convolution, use_bias=self.convolution_bias, **self.types
      )
      for own in self.part_features()
    )
    return tuple(made) if self.convolution else ()

  def heads(self, part: Array) -> Array:
    """[n N F] -> [n N H F/H]."""
    return part.reshape(*part.shape[:2], self.num_heads, -1)

  def part_features(self) -> tuple[int, ...]:
    """Numbers of each part of a token that is convolved."""
    raise NotImplementedError

  def memory_shape(self) -> tuple[int, int]:
    """K and V."""
    raise NotImplementedError

  def parts(self, rows: Array) -> tuple[tuple[Array, ...], Any]:
    """What is convolved, [n N F] each, and what else comes of the tokens."""
    raise NotImplementedError

  def unconvolved(self, parts: tuple[Array, ...]) -> tuple[Array, ...]:
    """What stands for the convolved parts where there are no convolutions."""
    return parts

  def read(self, parts: tuple[Array, ...], rest: Any) -> Float[Array, "n N H V"]:
    """What each token reads, all tokens at once."""
    return memories.in_chunks(self.terms(parts, rest))

  def terms(self, parts: tuple[Array, ...], rest: Any) -> Terms:
    """What the tokens do to the memory."""
    raise NotImplementedError

  def out(self, read: Array, parts: tuple[Array, ...], rest: Any) -> Array:
    """What the tokens become, from what they read, [n N H V] in single precision."""
    raise NotImplementedError

  def joined(self, read: Array, like: Array) -> Array:
    """All heads as one, [n N H V], in the type of the computation."""
    return read.reshape(*read.shape[:2], -1).astype(like.dtype)
