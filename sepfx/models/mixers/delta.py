"""Mixers that correct what stands in their memory: delta rules."""

from __future__ import annotations

import math
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array

from sepfx.errors import require_positive
from sepfx.models.mixers.linear import logs_of_rates, step_biases
from sepfx.models.mixers.memories import Terms
from sepfx.models.mixers.memory_mixer import MemoryMixer
from sepfx.models.mixers.mixer import exact, rms_normalised, unit


class DeltaNet(MemoryMixer):
  """A memory in which a key's value is replaced by a share beta, which the input sets.

  Yang et al., "Parallelizing Linear Transformers with the Delta Rule over Sequence
  Length" (2024), as fla/layers/delta_net.py of fla-org/flash-linear-attention at bc3b101:
  queries, keys and values through convolutions and SiLU, queries and keys of norm 1, what
  is read normalised per head.

  Attributes:
    num_heads: H, which divides the width.
    negative: whether beta goes up to 2 and not to 1, so that what stands for a key may
      change its sign.
    convolution: tokens that a convolution of queries, keys and values sees; 0 for none.
  """

  num_heads: int = 1
  convolution: int = 4
  negative: bool = False

  def setup(self) -> None:
    D, (K, V), H = self.width, self.memory_shape(), self.num_heads
    self.query = self.linear(D, H * K, use_bias=False)
    self.key = self.linear(D, H * K, use_bias=False)
    self.value = self.linear(D, H * V, use_bias=False)
    self.beta = self.linear(D, H, use_bias=False)
    self.scale = self.param("scale", nn.initializers.ones, (V,), self.param_dtype)
    self.output = self.output_layer(H * V, use_bias=False)
    self.convolutions = self.convolved()
    self.setup_gates()

  def setup_gates(self) -> None:
    """Further layers."""

  def part_features(self) -> tuple[int, ...]:
    (K, V), H = self.memory_shape(), self.num_heads
    return H * K, H * K, H * V

  def memory_shape(self) -> tuple[int, int]:
    e = self.head_dim(self.num_heads)
    return e, e

  def parts(self, rows: Array) -> tuple[tuple[Array, ...], Any]:
    own = self.query(rows), self.key(rows), self.value(rows)
    return own, (self.beta(rows), *self.gates(rows))

  def gates(self, rows: Array) -> tuple[Array, ...]:
    """What further layers make of the tokens."""
    del rows
    return ()

  def unconvolved(self, parts: tuple[Array, ...]) -> tuple[Array, ...]:
    return tuple(nn.silu(part) for part in parts)

  def terms(self, parts: tuple[Array, ...], rest: Any) -> Terms:
    query, key, value = (self.heads(part) for part in parts)
    beta = nn.sigmoid(exact(rest[0])) * (2.0 if self.negative else 1.0)
    query = unit(query) / math.sqrt(query.shape[-1])
    return Terms(query, unit(key), value, self.log_decay(rest), beta)

  def log_decay(self, rest: Any) -> Array | None:
    """None: it forgets nothing."""
    del rest
    return None

  def out(self, read: Array, parts: tuple[Array, ...], rest: Any) -> Array:
    normalised = self.gated(rms_normalised(read) * self.scale, rest)
    return self.output(self.joined(normalised, parts[0]))

  def gated(self, read: Array, rest: Any) -> Array:
    """What is read, as it is."""
    del rest
    return read


class GatedDeltaNet(DeltaNet):
  """A delta rule whose memory a head also forgets at one rate, which the input sets.

  Yang et al., "Gated Delta Networks: Improving Mamba2 with Delta Rule" (2025), as
  fla/layers/gated_deltanet.py of fla-org/flash-linear-attention at bc3b101, but for the
  sizes of heads: there keys have three quarters of the width and values twice the keys.

  Attributes:
    num_heads: H, which divides the width.
    negative: whether beta goes up to 2 and not to 1.
    expand: numbers of a value over those of a key.
    convolution: tokens that a convolution of queries, keys and values sees; 0 for none.
  """

  expand: int = 1

  def setup_gates(self) -> None:
    require_positive(self, "expand")
    D, H = self.width, self.num_heads
    self.steps = self.linear(D, H, use_bias=False)
    self.log_rate = self.param("log_rate", logs_of_rates(0.0), (H,), self.param_dtype)
    self.step_bias = self.param("step_bias", step_biases, (H,), self.param_dtype)
    self.gate = self.linear(D, self.expand * D, use_bias=False)

  def memory_shape(self) -> tuple[int, int]:
    e = self.head_dim(self.num_heads)
    return e, self.expand * e

  def gates(self, rows: Array) -> tuple[Array, ...]:
    return self.steps(rows), self.gate(rows)

  def log_decay(self, rest: Any) -> Array:
    steps = nn.softplus(exact(rest[1]) + self.step_bias)
    return (-jnp.exp(self.log_rate) * steps)[..., None]

  def gated(self, read: Array, rest: Any) -> Array:
    return read * nn.silu(self.heads(exact(rest[2])))
