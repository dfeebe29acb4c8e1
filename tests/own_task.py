"""A user's own classification of vectors, and models for it."""

import dataclasses
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from sepfx.tasks import CLASSIFICATION


class Sample(NamedTuple):
  vectors: jax.Array  # [n N]
  labels: jax.Array  # [n]


@dataclasses.dataclass(frozen=True)
class Side:
  """On which side of a hidden plane a vector lies."""

  length: int = 4
  copies: int = 0  # inputs [n N copies] where it is not 0

  objective = CLASSIFICATION
  name = "side"

  def init(self, key):
    return jax.random.normal(key, (self.length,))

  def sample(self, key, planted, n):
    vectors = jax.random.normal(key, (n, self.length))
    return Sample(vectors, (vectors @ planted > 0).astype(jnp.int32))

  def encode(self, planted, sample):
    if not self.copies:
      return sample.vectors
    return jnp.repeat(sample.vectors[..., None], self.copies, axis=-1)

  def best_constant_error(self):
    return 0.5

  def check_draw(self, keys):
    pass


class Dense(nn.Module):
  width: int = 8

  @nn.compact
  def __call__(self, vectors):  # [n N] -> [n 2]
    return nn.Dense(2)(nn.relu(nn.Dense(self.width)(vectors)))
