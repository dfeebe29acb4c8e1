"""Gated convolutions, short or as long as the sequence."""

from __future__ import annotations

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sepfx.errors import require, require_positive
from sepfx.models.mixers.mixer import Mixer, ShortConvolution, state_dtype

# Of the features of a place, from which a long filter is made.
_FREQUENCY = 1e-4
# Shares of the longest sequence over which Hyena's slowest and fastest filters fade, and
# what is then left.
_SLOWEST, _FASTEST, _LEFT = 1.5, 0.3, 1e-2


class BaseConvolution(Mixer):
  """A convolution of each feature, times a linear map of the token, plus the token.

  As zoology/mixers/base_conv.py and convolution.py of HazyResearch/zoology at d88d6f5. A
  long filter is what a small network makes of a place, for `length` places at most; its
  state are all tokens so far.

  Attributes:
    size: tokens that a short convolution sees.
    length: tokens of the longest sequence, for a long filter in place of a short one;
      None for a short one.
    hidden: units of the network that makes a long filter.
  """

  size: int = 3
  length: int | None = None
  hidden: int = 16

  def setup(self) -> None:
    require_positive(self, "size", "length", "hidden")
    D = self.width
    self.projection = self.linear(D, D)
    if self.length is None:
      self.convolve = ShortConvolution(
        D, self.size, activated=False, use_bias=True, **self.types
      )
    else:
      self.widen, self.narrow = self.linear(3, self.hidden), self.linear(self.hidden, D)

  def __call__(self, rows: Float[Array, "n N D"]) -> Float[Array, "n N D"]:
    rows = self.checked(rows)
    N = rows.shape[1]
    if self.length is None:
      mixed = self.convolve(rows)
    else:
      mixed = _convolved(rows, self._filter(N)) + rows
    return mixed * self.projection(rows) + rows

  def step(self, state: Any, row: Float[Array, "n D"]) -> tuple[Any, Array]:
    row = self.cast(row)
    if self.length is None:
      state, mixed = self.convolve.step(state, row)
    else:
      state, mixed = _one_more(state, row, self._filter(state[0].shape[1]))
      mixed = mixed + row
    return state, mixed * self.projection(row) + row

  def init_state(self, n: int, length: int) -> Any:
    """The tokens that are seen; with a long filter also how many there were."""
    dtype = state_dtype(self)
    if self.length is None:
      return jnp.zeros((n, self.size - 1, self.width), dtype)
    return jnp.zeros((n, length, self.width), dtype), jnp.zeros((), jnp.int32)

  def _filter(self, N: int) -> Float[Array, "N D"]:
    """What a token has of those 0, ..., N - 1 before it."""
    found = self.narrow(nn.relu(self.widen(_features(N, self.length))))
    return found.astype(jnp.promote_types(found.dtype, jnp.float32))


class Hyena(Mixer):
  """Hyena of order two: a long convolution between two gates.

  Poli et al., "Hyena Hierarchy: Towards Larger Convolutional Language Models" (2023), as
  zoology/mixers/hyena.py of HazyResearch/zoology at d88d6f5, but for the features of a
  place, which are weights there. What it carries grows with the sequence.

  Attributes:
    length: tokens of the longest sequence, over which filters fade; None for the length
      of the sequence at hand, so that a part of a sequence has other filters than all of
      it.
    hidden: units of the network that makes the filters.
    size: tokens that the short convolution of gates and values sees.
  """

  length: int | None = None
  hidden: int = 64
  size: int = 3

  def setup(self) -> None:
    require_positive(self, "length", "hidden", "size")
    D, hidden = self.width, self.hidden
    self.input = self.linear(D, 3 * D)
    self.convolve = ShortConvolution(
      3 * D, self.size, activated=False, use_bias=True, **self.types
    )
    self.layers = [self.linear(own, hidden) for own in (3, hidden, hidden)]
    self.last = self.linear(hidden, D, use_bias=False)
    ones, normal = nn.initializers.ones, nn.initializers.normal(1.0)
    self.frequency = self.param("frequency", ones, (hidden,), self.param_dtype)
    self.skip = self.param("skip", normal, (D,), self.param_dtype)
    self.output = self.output_layer(D)

  def __call__(self, rows: Float[Array, "n N D"]) -> Float[Array, "n N D"]:
    rows = self.checked(rows)
    first, second, value = jnp.split(self.convolve(self.input(rows)), 3, axis=-1)
    value = value * first
    mixed = _convolved(value, self._filter(rows.shape[1]))
    return self.output((mixed + value * self.skip) * second)

  def step(self, state: Any, row: Float[Array, "n D"]) -> tuple[Any, Array]:
    history, seen = state
    seen, own = self.convolve.step(seen, self.input(self.cast(row)))
    first, second, value = jnp.split(own, 3, axis=-1)
    value = value * first
    history, mixed = _one_more(history, value, self._filter(history[0].shape[1]))
    return (history, seen), self.output((mixed + value * self.skip) * second)

  def init_state(self, n: int, length: int) -> Any:
    """Gated values, how many there were, and what the short convolution has seen."""
    dtype = state_dtype(self)
    history = jnp.zeros((n, length, self.width), dtype), jnp.zeros((), jnp.int32)
    return history, jnp.zeros((n, self.size - 1, 3 * self.width), dtype)

  def without_caches(self, state: Any) -> Any:
    """Gated values."""
    return state[0]

  def _filter(self, N: int) -> Float[Array, "N D"]:
    """What a token has of those 0, ..., N - 1 before it, which fade at rates of each
    feature."""
    features = own = _features(N, self.length)
    for layer in self.layers:
      own = jnp.sin(self.frequency * layer(own))
    slowest, fastest = -math.log(_LEFT) / np.array([_SLOWEST, _FASTEST])
    rates = np.linspace(slowest, fastest, self.width)
    found = self.last(own) * jnp.exp(-features[:, :1] * jnp.asarray(rates))
    return found.astype(jnp.promote_types(found.dtype, jnp.float32))


def _features(N: int, most: int | None) -> Float[Array, "N 3"]:
  """Of places, from which filters are made.

  Args:
    N: how many places.
    most: of the longest sequence; None for N.

  Raises:
    InvalidSetting: for more places than that.
  """
  longest = most or N
  takes = f"sequences of at most {longest} tokens: this one has {N}"
  require(longest >= N, "length", most, takes)
  place = np.arange(N)
  angles = _FREQUENCY * 2 * np.pi * place / longest
  features = [place / max(longest - 1, 1), np.cos(angles), -np.sin(angles)]
  return jnp.asarray(np.stack(features, -1))


def _convolved(
  rows: Float[Array, "n N D"], weights: Float[Array, "N D"]
) -> Float[Array, "n N D"]:
  """Sums of the rows so far, each by the weight of its distance."""
  N = rows.shape[1]
  exact = rows.astype(jnp.promote_types(rows.dtype, jnp.float32))
  # Twice as long, so that the end does not come round to the beginning.
  spectra = (jnp.fft.rfft(own, 2 * N, axis=-2) for own in (exact, weights))
  mixed = jnp.fft.irfft(math.prod(spectra), 2 * N, axis=-2)[:, :N]
  return mixed.astype(rows.dtype)


def _one_more(
  history: tuple[Float[Array, "n N D"], Array],
  row: Float[Array, "n D"],
  weights: Float[Array, "N D"],
) -> tuple[Any, Float[Array, "n D"]]:
  """Rows so far, and how many, with one more; and its sum as `_convolved` has it."""
  seen, count = history
  own = row.astype(seen.dtype)
  seen = jax.lax.dynamic_update_index_in_dim(seen, own, count, 1)
  places = count - jnp.arange(seen.shape[1])
  weights = jnp.where(places[:, None] >= 0, weights[places], 0.0)
  return (seen, count + 1), jnp.sum(weights * seen, axis=1).astype(row.dtype)
