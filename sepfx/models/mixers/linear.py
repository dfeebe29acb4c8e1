"""Mixers that add keys and values to a memory: linear, Taylor and gated attention, and
state-space duality."""

from __future__ import annotations

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sepfx.errors import require, require_positive
from sepfx.models.linear_attention import positive_feature
from sepfx.models.mixers import memories
from sepfx.models.mixers.memories import Terms
from sepfx.models.mixers.memory_mixer import MemoryMixer
from sepfx.models.mixers.mixer import exact, rms_normalised

# Of the times over which Mamba-2 and gated delta rules forget, at the beginning.
_SHORTEST, _LONGEST = 1e-3, 1e-1


class _Normalised(MemoryMixer):
  """Linear attention with some features, over the sum of its weights.

  The memory has one more column, of ones, whose reading is that sum.
  """

  use_bias: bool = False

  def setup(self) -> None:
    D, e = self.width, self.head_dim(self.num_heads)
    queried = self.num_heads * self.query_dim()
    self.query = self.linear(D, queried, use_bias=self.use_bias)
    self.key = self.linear(D, queried, use_bias=self.use_bias)
    self.value = self.linear(D, self.num_heads * e, use_bias=self.use_bias)
    self.output = self.output_layer(D, use_bias=self.use_bias)
    self.convolutions = self.convolved()

  def query_dim(self) -> int:
    """Numbers of a head's queries, before their features."""
    raise NotImplementedError

  def features(self, heads: Array) -> Array:
    """Of queries or keys."""
    raise NotImplementedError

  def part_features(self) -> tuple[int, ...]:
    own = self.num_heads * self.query_dim()
    return own, own, self.width

  def parts(self, rows: Array) -> tuple[tuple[Array, ...], Any]:
    return (self.query(rows), self.key(rows), self.value(rows)), None

  def terms(self, parts: tuple[Array, ...], rest: Any) -> Terms:
    del rest
    query, key, value = self.with_ones(parts)
    return Terms(self.features(query), self.features(key), value)

  def with_ones(self, parts: tuple[Array, ...]) -> tuple[Array, Array, Array]:
    """Queries and keys before their features, and values with a column of ones."""
    query, key, value = (self.heads(part) for part in parts)
    ones = jnp.ones((*value.shape[:-1], 1), value.dtype)
    return query, key, jnp.concatenate([value, ones], axis=-1)

  def out(self, read: Array, parts: tuple[Array, ...], rest: Any) -> Array:
    del rest
    # Weights are positive, and may be too small for their sum to be more than 0.
    total = jnp.maximum(read[..., -1:], jnp.finfo(read.dtype).tiny)
    mean = read[..., :-1] / total
    return self.output(self.joined(mean, parts[0]))


class LinearAttention(_Normalised):
  """Linear attention with features elu + 1 and a causal mask.

  Katharopoulos et al., "Transformers are RNNs" (2020), Equation 9.

  Attributes:
    num_heads: H, which divides the width.
    convolution: tokens that a convolution of queries, keys and values sees; 0 for none.
    use_bias: whether the layers have biases.
  """

  def query_dim(self) -> int:
    return self.head_dim(self.num_heads)

  def memory_shape(self) -> tuple[int, int]:
    e = self.head_dim(self.num_heads)
    return e, e + 1

  def features(self, heads: Array) -> Array:
    return positive_feature(heads)


class Based(_Normalised):
  """Based's linear attention: the exponential's Taylor series to the second order.

  As zoology/mixers/based.py and feature_maps/taylor.py of HazyResearch/zoology at
  d88d6f5, but for the features: a product of two numbers stands once and not twice, which
  leaves all scores as they are and makes the state half as large.

  Attributes:
    num_heads: H, which divides the width.
    feature_dim: numbers of a head's queries and keys, F. Their features are
      1 + F + F (F + 1) / 2.
    convolution: tokens that a convolution of queries, keys and values sees; 0 for none.
    use_bias: whether the layers have biases.
  """

  feature_dim: int = 16

  def query_dim(self) -> int:
    require_positive(self, "feature_dim")
    return self.feature_dim

  def memory_shape(self) -> tuple[int, int]:
    F = self.feature_dim
    return 1 + F + F * (F + 1) // 2, self.head_dim(self.num_heads) + 1

  def features(self, heads: Array) -> Array:
    F = self.feature_dim
    first, second = np.triu_indices(F)
    # Of the series' half of s^2 a square has a weight of 1/2, and a product of two
    # numbers, which stands for two, one of 1. Both features have the root of it.
    weights = np.where(first == second, math.sqrt(0.5), 1.0) / math.sqrt(F)
    squares = heads[..., first] * heads[..., second] * jnp.asarray(weights, heads.dtype)
    ones = jnp.ones((*heads.shape[:-1], 1), heads.dtype)
    return jnp.concatenate([ones, heads / F**0.25, squares], axis=-1)

  def read(self, parts: tuple[Array, ...], rest: Any) -> Float[Array, "n N H V"]:
    """The same without features where tokens are few: their products are polynomials."""
    N = parts[0].shape[1]
    if N > memories.CHUNK:
      return super().read(parts, rest)
    query, key, value = (exact(own) for own in self.with_ones(parts))
    s = jnp.einsum("nihf,njhf->nhij", query, key) / math.sqrt(self.feature_dim)
    scores = jnp.tril(1 + s + jnp.square(s) / 2)
    return jnp.einsum("nhij,njhv->nihv", scores, value)


class GatedLinearAttention(MemoryMixer):
  """Linear attention that forgets each key dimension at a rate which its input sets.

  Yang et al., "Gated Linear Attention Transformers with Hardware-Efficient Training"
  (2024), as fla/layers/gla.py of fla-org/flash-linear-attention at bc3b101: keys of half
  the width, decays sigmoid(.)^(1/16) through 16 numbers, what is read is normalised per
  head and gated by SiLU.

  Attributes:
    num_heads: H, which divides the width and the numbers of all keys.
    expand_keys: numbers of all keys of a token over the width.
    gate_rank: numbers that a decay goes through.
    gate_temperature: root that the decays are.
    convolution: tokens that a convolution of queries, keys and values sees; 0 for none.
  """

  expand_keys: float = 0.5
  gate_rank: int = 16
  gate_temperature: float = 16.0

  def setup(self) -> None:
    require_positive(self, "gate_rank")
    D, keys = self.width, self._keys
    self.query = self.linear(D, keys, use_bias=False)
    self.key = self.linear(D, keys, use_bias=False)
    self.value = self.linear(D, D, use_bias=False)
    self.decay_down = self.linear(D, self.gate_rank, use_bias=False)
    self.decay_up = self.linear(self.gate_rank, keys)
    self.gate = self.linear(D, D, use_bias=False)
    self.scale = self.param(
      "scale", nn.initializers.ones, (self.head_dim(self.num_heads),), self.param_dtype
    )
    self.output = self.output_layer(D, use_bias=False)
    self.convolutions = self.convolved()

  @property
  def _keys(self) -> int:
    keys, H = round(self.width * self.expand_keys), self.num_heads
    takes = f"what gives each of {H} heads the same number of keys"
    proper = keys >= 1 and keys % H == 0
    require(proper, "expand_keys", self.expand_keys, takes)
    return keys

  def part_features(self) -> tuple[int, ...]:
    return self._keys, self._keys, self.width

  def memory_shape(self) -> tuple[int, int]:
    return self._keys // self.num_heads, self.head_dim(self.num_heads)

  def parts(self, rows: Array) -> tuple[tuple[Array, ...], Any]:
    own = self.query(rows), self.key(rows), self.value(rows)
    return own, (self.decay_up(self.decay_down(rows)), self.gate(rows))

  def terms(self, parts: tuple[Array, ...], rest: Any) -> Terms:
    query, key, value = (self.heads(part) for part in parts)
    logits = exact(rest[0])
    decay = self.heads(nn.log_sigmoid(logits) / self.gate_temperature)
    return Terms(query / math.sqrt(query.shape[-1]), key, value, decay)

  def out(self, read: Array, parts: tuple[Array, ...], rest: Any) -> Array:
    gate = nn.silu(self.heads(rest[1]))
    normalised = rms_normalised(read) * self.scale * gate
    return self.output(self.joined(normalised, parts[0]))


class Mamba2(MemoryMixer):
  """Mamba-2: a memory that a head forgets at one rate, which its input sets.

  Dao and Gu, "Transformers are SSMs" (2024), as mamba_ssm/modules/mamba2_simple.py of
  state-spaces/mamba at e9594ce: keys (B) and queries (C) that all heads share, steps
  softplus(.) by which values (x) are multiplied and decays raised, convolutions with
  biases, x added to what is read, a norm over all heads after a gate by SiLU. The heads
  have a number of their own here in place of a size.

  Attributes:
    num_heads: H, which divides `expand` times the width.
    state_dim: numbers of a key.
    expand: numbers of all values of a token over the width.
    convolution: tokens that the convolutions see; 0 for none.
  """

  num_heads: int = 4
  state_dim: int = 64
  expand: int = 2
  convolution: int = 4

  convolution_bias = True

  def setup(self) -> None:
    require_positive(self, "state_dim", "expand")
    D, H, inner = self.width, self.num_heads, self._inner
    joint = 2 * inner + 2 * self.state_dim + H
    self.input = self.linear(D, joint, use_bias=False)
    self.log_rate = self.param("log_rate", logs_of_rates(1.0), (H,), self.param_dtype)
    self.step_bias = self.param("step_bias", step_biases, (H,), self.param_dtype)
    self.skip = self.param("skip", nn.initializers.ones, (H,), self.param_dtype)
    self.scale = self.param("scale", nn.initializers.ones, (inner,), self.param_dtype)
    self.output = self.output_layer(inner, use_bias=False)
    self.convolutions = self.convolved()

  @property
  def _inner(self) -> int:
    inner, H = self.expand * self.width, self.num_heads
    takes = f"a divisor of the {inner} values of a token"
    require(H >= 1 and inner % H == 0, "num_heads", H, takes)
    return inner

  def part_features(self) -> tuple[int, ...]:
    return self._inner, self.state_dim, self.state_dim

  def memory_shape(self) -> tuple[int, int]:
    return self.state_dim, self._inner // self.num_heads

  def parts(self, rows: Array) -> tuple[tuple[Array, ...], Any]:
    ends = np.cumsum([self._inner, *self.part_features()]).tolist()
    gate, *own, steps = jnp.split(self.input(rows), ends, axis=-1)
    return tuple(own), (gate, steps)

  def unconvolved(self, parts: tuple[Array, ...]) -> tuple[Array, ...]:
    return tuple(nn.silu(part) for part in parts)

  def terms(self, parts: tuple[Array, ...], rest: Any) -> Terms:
    x, key, query = parts
    steps = nn.softplus(exact(rest[1]) + self.step_bias)
    decay = -jnp.exp(self.log_rate) * steps
    value = exact(self.heads(x)) * steps[..., None]
    return Terms(query[:, :, None], key[:, :, None], value, decay[..., None])

  def out(self, read: Array, parts: tuple[Array, ...], rest: Any) -> Array:
    read = read + self.skip[:, None] * self.heads(parts[0])
    gated = read.reshape(*read.shape[:2], -1) * nn.silu(exact(rest[0]))
    normalised = rms_normalised(gated) * self.scale
    return self.output(normalised.astype(parts[0].dtype))


def logs_of_rates(least: float):
  """Logarithms of rates that are uniform from `least` to 16."""

  def init(key, shape, dtype):
    # Not 0, whose logarithm is not finite.
    return jnp.log(jax.random.uniform(key, shape, dtype, max(least, 1e-4), 16.0))

  return init


def step_biases(key, shape, dtype):
  """Of softplus, so that steps are log-uniform from 0.001 to 0.1."""
  low, high = math.log(_SHORTEST), math.log(_LONGEST)
  steps = jnp.exp(jax.random.uniform(key, shape, dtype, low, high))
  return steps + jnp.log(-jnp.expm1(-steps))
