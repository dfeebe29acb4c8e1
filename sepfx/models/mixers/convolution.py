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
      exact = rows.astype(jnp.promote_types(rows.dtype, jnp.float32))
      # Twice as long, so that the end does not come round to the beginning.
      spectra = (jnp.fft.rfft(own, 2 * N, axis=-2) for own in (exact, self._filter(N)))
      mixed = jnp.fft.irfft(math.prod(spectra), 2 * N, axis=-2)[:, :N]
      mixed = mixed.astype(rows.dtype) + rows
    return mixed * self.projection(rows) + rows

  def step(self, state: Any, row: Float[Array, "n D"]) -> tuple[Any, Array]:
    row = self.cast(row)
    if self.length is None:
      state, mixed = self.convolve.step(state, row)
    else:
      seen, count = state
      own = row.astype(seen.dtype)
      seen = jax.lax.dynamic_update_index_in_dim(seen, own, count, 1)
      places = count - jnp.arange(seen.shape[1])
      weights = jnp.where(places[:, None] >= 0, self._filter(seen.shape[1])[places], 0.0)
      mixed = jnp.sum(weights * seen, axis=1).astype(row.dtype) + row
      state = seen, count + 1
    return state, mixed * self.projection(row) + row

  def init_state(self, n: int, length: int) -> Any:
    """The tokens that are seen; with a long filter also how many there were."""
    dtype = state_dtype(self)
    if self.length is None:
      return jnp.zeros((n, self.size - 1, self.width), dtype)
    return jnp.zeros((n, length, self.width), dtype), jnp.zeros((), jnp.int32)

  def _filter(self, N: int) -> Float[Array, "N D"]:
    """What a token has of those 0, ..., N - 1 before it."""
    most = self.length or N
    takes = f"sequences of at most {most} tokens"
    require(most >= N, "length", self.length, f"{takes}: this one has {N}")
    place = np.arange(N)
    angles = _FREQUENCY * 2 * np.pi * place / most
    features = [place / max(most - 1, 1), np.cos(angles), -np.sin(angles)]
    found = self.narrow(nn.relu(self.widen(jnp.asarray(np.stack(features, -1)))))
    return found.astype(jnp.promote_types(found.dtype, jnp.float32))
