"""Linear regression in context: another function in each sequence, told by examples."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PRNGKeyArray

from sepfx import kinds
from sepfx.errors import require
from sepfx.tasks.asked import Asked
from sepfx.tasks.normal import normal
from sepfx.tasks.objectives import REGRESSION, Objective


class Examples(NamedTuple):
  """A sample of n sequences of k examples.

  Attributes:
    points: x_1, ..., x_k.
    labels: y_1, ..., y_k.
  """

  points: Float[Array, "n k d"]
  labels: Float[Array, "n k"]


@dataclasses.dataclass(frozen=True)
class LinearInContext:
  """y_i = <w, x_i> + noise, with a w of its own in each sequence.

  Garg et al., "What Can Transformers Learn In-Context?" (2022): the rows are x_1, y_1,
  x_2, ..., and after each x_i its y_i is asked for. x_i and w are normal. Labels have a
  variance of 1 without noise here, and d there: w is divided by sqrt(d). A row is x_i and
  a 0, or zeros and y_i.

  Attributes:
    length: k, number of examples.
    token_dim: d.
    noise: standard deviation of what is added to the labels.

  Raises:
    InvalidSetting: for a setting outside its domain.
  """

  length: int = 16
  token_dim: int = 5
  noise: float = 0.0

  name: ClassVar[str] = "linear_in_context"
  objective: ClassVar[Objective] = REGRESSION

  def __post_init__(self) -> None:
    kinds.settle(self)
    for name in ("length", "token_dim"):
      value = getattr(self, name)
      require(value >= 1, name, value, "an integer >= 1")
    proper = math.isfinite(self.noise) and self.noise >= 0
    require(proper, "noise", self.noise, "a number >= 0")

  def init(self, key: PRNGKeyArray) -> tuple[()]:
    """Plants nothing."""
    del key
    return ()

  def sample(self, key: PRNGKeyArray, planted: Any, num_samples: int) -> Examples:
    """Draws n sequences."""
    del planted
    n, k, d = num_samples, self.length, self.token_dim
    of_points, of_functions, of_noise = jax.random.split(key, 3)
    points = normal(of_points, (n, k, d))
    functions = normal(of_functions, (n, d)) / math.sqrt(d)
    labels = jnp.einsum("nkd,nd->nk", points, functions)
    return Examples(points, labels + self.noise * normal(of_noise, (n, k)))

  def encode(self, planted: Any, sample: Examples) -> Asked:
    """2 k rows of d + 1 numbers, and the places of the points."""
    del planted
    n, k, d = sample.points.shape
    of_points = jnp.pad(sample.points, ((0, 0), (0, 0), (0, 1)))
    of_labels = jnp.pad(sample.labels[..., None], ((0, 0), (0, 0), (d, 0)))
    rows = jnp.stack([of_points, of_labels], axis=2).reshape(n, 2 * k, d + 1)
    return Asked(rows, jnp.broadcast_to(2 * jnp.arange(k), (n, k)))

  def best_constant_error(self) -> float:
    """The variance of a label."""
    return 1 + self.noise**2

  def check_draw(self, keys: Key[Array, " k"]) -> None:
    """There is nothing to draw."""
