"""The distribution on which few heads of attention fail: Propositions 3 and 21."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from sepfx.tasks.indices import HalfFixed, IndexDistribution
from sepfx.tasks.links import Link, SquaredNorm
from sepfx.tasks.objectives import REGRESSION, Objective
from sepfx.tasks.qstr import QSTR, first_half_scales

_INDICES, _LINK = HalfFixed(), SquaredNorm()


def second_half_errors(
  predictions: Float[Array, "n N"], labels: Float[Array, "n N"]
) -> Float[Array, " n"]:
  """Squared error of each prompt, averaged over the positions i >= N/2, from 1."""
  N = labels.shape[1]
  first = -(-N // 2) - 1
  return jnp.mean((predictions[:, first:] - labels[:, first:]) ** 2, axis=1)


@dataclasses.dataclass(frozen=True)
class FewHeads(QSTR):
  """qSTR whose positions i >= N/2 all name the first q tokens, and are empty themselves.

  Propositions 3 and 21 of the main paper: y_i = (q d)^(-1/2) sum_l (||x_l||^2 - d) there,
  tokens of that half are zero, those before are standard normal. What is minimised and
  measured is the error at these positions, where nothing depends on N: the best constant
  has 2. Positions before them have labels, too, of which no statement is made.

  Attributes:
    sparsity: q, below N/2.
    See `QSTR` for all others.
  """

  length: int = 10
  token_dim: int = 20
  sparsity: int = 4
  indices: IndexDistribution = _INDICES
  link: Link = _LINK
  token_scales: Callable[[int], Any] | None = first_half_scales

  objective: ClassVar[Objective] = REGRESSION._replace(
    loss=second_half_errors, error=second_half_errors
  )
  name: ClassVar[str] = "few_heads"

  def best_constant_error(self) -> float:
    """2, the variance of the labels at these positions."""
    return 2.0
