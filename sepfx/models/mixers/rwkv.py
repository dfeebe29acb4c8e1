"""RWKV-7: a memory that forgets at rates and along directions, which the input sets."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sepfx.errors import require, require_positive
from sepfx.models.layers.initializers import Initializer, orthogonal
from sepfx.models.layers.products import dot_general
from sepfx.models.mixers import memories
from sepfx.models.mixers.memories import Terms
from sepfx.models.mixers.memory_mixer import MemoryMixer
from sepfx.models.mixers.mixer import exact, state_dtype, unit

# The least log of a decay, -exp(-1/2).
_LEAST = -float(np.exp(-0.5))
# Parts of a token, and the power of a feature's place by which each is mixed with the
# token before.
_PARTS = {"query": 0.2, "decay": 0.9, "key": 0.7, "value": 0.7, "rate": 0.9, "gate": 0.2}


class RWKV7(MemoryMixer):
  """A memory of which the input sets what decays, what is removed and what is written.

  Peng et al., "RWKV-7 Goose with Expressive Dynamic State Evolution" (2025), as the first
  layer of fla/layers/rwkv7.py of fla-org/flash-linear-attention at bc3b101. With kappa a
  key of norm 1 and a rate a of each of its numbers, S <- diag(w) S - (a kappa)
  (S^T kappa)^T + k v^T. What differs: the output begins with the scheme's weights and not
  with zeros, all layers begin as the first of one layer does, later layers do not mix
  the values of the first into theirs, and ranks do not follow the width.

  Attributes:
    num_heads: H, which divides the width.
    rank: of the layers that make decays, rates and gates.
  """

  rank: int = 32

  def setup(self) -> None:
    require_positive(self, "rank")
    takes = "0: the token before is mixed in already"
    require(self.convolution == 0, "convolution", self.convolution, takes)
    D, (K, _), H = self.width, self.memory_shape(), self.num_heads
    place = np.arange(D)
    line = place / max(D - 1, 1) - 0.5
    half = max(K - 1, 1) / 2
    bent = (place % K - half) / half
    bent = bent * np.abs(bent)
    mixed = {name: 1 - (place / D) ** power for name, power in _PARTS.items()}
    self.mixed = {name: self._begin(f"mixed_{name}", own) for name, own in mixed.items()}
    self.query = self._orthogonal(1.0)
    self.key = self._orthogonal(0.1)
    self.value = self._orthogonal(1.0)
    self.decay_down, self.decay_up = self._low_rank()
    self.rate_down, self.rate_up = self._low_rank()
    self.gate_down, self.gate_up = self._low_rank()
    self.decay_bias = self._begin("decay_bias", -6 + 6 * (line + 0.5) + 0.5 + 2.5 * bent)
    self.rate_bias = self._begin("rate_bias", -0.19 + 0.3 * bent + 0.4 * line)
    self.removed = self._begin("removed", 0.71 - 0.1 * line)
    self.replaced = self._begin("replaced", np.full(D, 1.02))
    self.bonus = self._begin("bonus", np.full((H, K), -0.04))
    self.scale = self._begin("scale", np.ones((H, K)))
    self.bias = self._begin("bias", np.zeros((H, K)))
    self.output = self.output_layer(D, use_bias=False)

  def __call__(self, rows: Float[Array, "n N D"]) -> Float[Array, "n N D"]:
    rows = self.checked(rows)
    before = jnp.pad(rows, ((0, 0), (1, 0), (0, 0)))[:, :-1]
    parts, rest = self._shifted(rows, before)
    return self.out(self.read(parts, rest), parts, rest)

  def step(self, state: Any, row: Float[Array, "n D"]) -> tuple[Any, Array]:
    memory, before = state
    row = self.cast(row)
    parts, rest = self._shifted(row[:, None], before[:, None].astype(row.dtype))
    memory, read = memories.step(memory, self.terms(parts, rest))
    return (memory, row.astype(before.dtype)), self.out(read[:, None], parts, rest)[:, 0]

  def init_state(self, n: int, length: int) -> Any:
    """The memory, and the token before."""
    memory, _ = super().init_state(n, length)
    return memory, jnp.zeros((n, self.width), state_dtype(self))

  def memory_shape(self) -> tuple[int, int]:
    e = self.head_dim(self.num_heads)
    return e, e

  def terms(self, parts: tuple[Array, ...], rest: Any) -> Terms:
    query, value, key = self.heads(parts[0]), self.heads(parts[2]), self.heads(parts[1])
    rate, log_decay, _ = rest
    removed = unit(self.heads(exact(parts[1]) * self.removed), 1e-12)
    erased = removed, removed * self.heads(rate)
    log_decay = self.heads(log_decay)
    return Terms(query, self._written(key, rate), value, log_decay, erased=erased)

  def _written(self, key: Array, rate: Array) -> Array:
    """Keys as values are written with them, [n N H K]."""
    return exact(key) * self.heads(1 + (rate - 1) * self.replaced)

  def out(self, read: Array, parts: tuple[Array, ...], rest: Any) -> Array:
    query, key, value = (self.heads(exact(part)) for part in parts)
    rate, _, gate = rest
    mean = jnp.mean(read, axis=-1, keepdims=True)
    variance = jnp.var(read, axis=-1, keepdims=True)
    read = (read - mean) / jnp.sqrt(variance + read.shape[-1] * 1e-5)
    read = read * self.scale + self.bias
    own = query * self._written(key, rate) * self.bonus
    read = (read + jnp.sum(own, axis=-1, keepdims=True) * value) * self.heads(gate)
    return self.output(self.joined(read, parts[0]))

  def _shifted(self, rows: Array, before: Array) -> tuple[tuple[Array, ...], Any]:
    """Query, key and value; and rates, logs of decays and gates in single precision."""
    apart = before - rows
    own = {name: rows + apart * self.cast(mix) for name, mix in self.mixed.items()}
    parts = self.query(own["query"]), self.key(own["key"]), self.value(own["value"])
    decay = self.decay_up(jnp.tanh(self.decay_down(own["decay"])))
    rate = self.rate_up(self.rate_down(own["rate"]))
    gate = self.gate_up(nn.sigmoid(self.gate_down(own["gate"])))
    log_decay = _LEAST * nn.sigmoid(exact(decay) + self.decay_bias)
    return parts, (nn.sigmoid(exact(rate) + self.rate_bias), log_decay, exact(gate))

  def _begin(self, name: str, values: np.ndarray) -> Array:
    return self.param(name, lambda _: jnp.asarray(values, self.param_dtype))

  def _orthogonal(self, gain: float) -> nn.Dense:
    def init(key, shape, dtype=jnp.float32):
      return gain * orthogonal(key, shape, dtype)

    return self._dense(self.width, init)

  def _low_rank(self) -> tuple[nn.Dense, nn.Dense]:
    gain = 0.1 * max(1.0, self.rank / self.width) ** 0.5
    return self._dense(self.rank, nn.initializers.zeros), self._orthogonal(gain)

  def _dense(self, features: int, init: Initializer) -> nn.Dense:
    types = {"dot_general": dot_general, **self.types}
    return nn.Dense(features, use_bias=False, kernel_init=init, **types)
