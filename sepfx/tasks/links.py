"""Link functions g: R^{qd} -> R of q-sparse token regression (Definition 2).

A link has planted parameters and is called on the q tokens that a position
names. `scales` are the standard deviations of those tokens' coordinates, which
a link that centres its output needs and every other one ignores.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from sepfx import kinds, precision
from sepfx.errors import require


class TwoLayer(NamedTuple):
  """A two-layer ReLU network h -> a^T relu(W h + b) (Assumption 2)."""

  a: Float[Array, " m"]
  W: Float[Array, "m q*d"]
  b: Float[Array, " m"]

  @precision.exact()
  def __call__(self, tokens: Float[Array, "*batch q d"]) -> Float[Array, "*batch"]:
    flat = tokens.reshape(*tokens.shape[:-2], -1)
    return jax.nn.relu(flat @ self.W.T + self.b) @ self.a


class Link:
  """Base of all links; subclasses are frozen dataclasses."""

  name: str

  def init(self, key: PRNGKeyArray, sparsity: int, token_dim: int) -> Any:
    """Draws the planted parameters, a pytree. Consumes `key`."""
    return ()

  def __call__(
    self,
    params: Any,
    tokens: Float[Array, "*batch q d"],
    scales: Float[Array, "*batch q"],
  ) -> Float[Array, "*batch"]:
    """Returns the labels."""
    raise TypeError(f"{type(self).__name__} does not define its value")

  def variance(self, sparsity: int, token_dim: int) -> float | None:
    """Var(y) for distinct tokens of identity covariance; None if not closed."""
    return None

  def two_layer(self, params: Any, sparsity: int, token_dim: int) -> TwoLayer | None:
    """The link as a two-layer ReLU network, exactly; None if it is not one."""
    return None


def _through_relu(direction: Float[Array, " qd"]) -> TwoLayer:
  """h -> <direction, h> as a two-layer network: u = relu(u) - relu(-u)."""
  return TwoLayer(
    jnp.array([1.0, -1.0]), jnp.stack([direction, -direction]), jnp.zeros(2)
  )


@dataclasses.dataclass(frozen=True)
class Linear(Link):
  """y = <u, (x_{t_1}, ..., x_{t_q})> with u uniform on the unit sphere of R^{qd}."""

  name = "linear"

  def init(self, key, sparsity, token_dim):
    u = jax.random.normal(key, (sparsity, token_dim))
    return u / jnp.linalg.norm(u)

  def __call__(self, params, tokens, scales):
    return jnp.sum(params * tokens, axis=(-2, -1))

  def variance(self, sparsity, token_dim):
    return 1.0

  def two_layer(self, params, sparsity, token_dim):
    return _through_relu(params.reshape(-1))


@dataclasses.dataclass(frozen=True)
class Mean(Link):
  """Sparse averaging: the mean of the q tokens, read along 1_d / sqrt(d).

  Reading it along a fixed direction makes the label a scalar, as Definition 2
  asks, without planting a parameter.
  """

  name = "mean"

  def __call__(self, params, tokens, scales):
    return jnp.mean(jnp.sum(tokens, axis=-1), axis=-1) / math.sqrt(tokens.shape[-1])

  def variance(self, sparsity, token_dim):
    return 1.0 / sparsity

  def two_layer(self, params, sparsity, token_dim):
    size = sparsity * token_dim
    return _through_relu(jnp.full(size, 1 / (sparsity * math.sqrt(token_dim))))


@dataclasses.dataclass(frozen=True)
class SquaredNorm(Link):
  """y = (qd)^{-1/2} sum_j (||x_{t_j}||^2 - E||x_{t_j}||^2) (Proposition 3)."""

  name = "squared_norm"

  def __call__(self, params, tokens, scales):
    q, d = tokens.shape[-2:]
    centred = jnp.sum(tokens**2, axis=-1) - d * scales**2
    return jnp.sum(centred, axis=-1) / math.sqrt(q * d)

  def variance(self, sparsity, token_dim):
    return 2.0


@dataclasses.dataclass(frozen=True)
class ReLUTeacher(Link):
  """A planted two-layer ReLU network (Assumption 2 with epsilon_2NN = 0).

  a is uniform on the unit sphere of R^m and each (W_i, b_i) on that of
  R^{qd + 1}, so r_a = sqrt(m) and r_w = 1.

  Attributes:
    width: m_g.
  """

  width: int = 16
  name = "relu_teacher"

  def __post_init__(self):
    kinds.settle(self)
    require(self.width >= 1, "link width", self.width, "an integer >= 1")

  def init(self, key, sparsity, token_dim):
    key_a, key_w = jax.random.split(key)
    a = jax.random.normal(key_a, (self.width,))
    w = jax.random.normal(key_w, (self.width, sparsity * token_dim + 1))
    w = w / jnp.linalg.norm(w, axis=1, keepdims=True)
    return TwoLayer(a / jnp.linalg.norm(a), w[:, :-1], w[:, -1])

  def __call__(self, params, tokens, scales):
    return params(tokens)

  def two_layer(self, params, sparsity, token_dim):
    return params


@dataclasses.dataclass(frozen=True)
class Custom(Link):
  """Any function of the tokens: `Custom(g)` with g: [*batch q d] -> [*batch]."""

  function: Callable[[jax.Array], jax.Array]

  @property
  def name(self):  # type: ignore[override]
    return getattr(self.function, "__qualname__", repr(self.function))

  def __call__(self, params, tokens, scales):
    return self.function(tokens)


LINKS: dict[str, Link] = {
  link.name: link for link in (Linear(), Mean(), SquaredNorm(), ReLUTeacher())
}
