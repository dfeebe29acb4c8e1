"""The parity of all T bits, told step by step or asked for at once.

The task of *A Sharper Picture of Generalization in Transformers* (Lintilhac, Shaikh,
2026), Theorems 7, 8 and 16.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from sepfx import kinds
from sepfx.errors import require
from sepfx.tasks.fourier import of_unseen
from sepfx.tasks.objectives import STEPS, Objective

Mode = Literal["chain", "one_pass"]


class BitsAndSteps(NamedTuple):
  """A sample of n inputs and of what follows c_1 = b_1, all 0 or 1.

  Attributes:
    bits: b_1, ..., b_T.
    labels: c_2, ..., c_T, or c_T alone in one pass.
  """

  bits: Int[Array, "n T"]
  labels: Int[Array, "n L"]


@dataclasses.dataclass(frozen=True)
class ParityChain:
  """Parities c_i = c_(i-1) xor b_i of T uniform bits, c_1 = b_1; c_T is the answer.

  A model reads tokens: the bits, then the chain as far as it is told. After c_(i-1) it
  gives c_i, a function of degree 2; in one pass it gives c_T after c_1, one of degree T.
  Training tells the true chain. There is nothing to plant.

  Attributes:
    length: T, number of bits, from 2 to 30.
    mode: "chain" for L = T - 1 labels per input, "one_pass" for L = 1.

  Raises:
    InvalidSetting: for a setting outside its domain.
  """

  length: int = 10
  mode: Mode = "chain"

  name: ClassVar[str] = "parity_chain"
  objective: ClassVar[Objective] = STEPS

  def __post_init__(self):
    kinds.settle(self)
    require(2 <= self.length <= 30, "length", self.length, "an integer from 2 to 30")
    require(self.mode in get_args(Mode), "mode", self.mode, " or ".join(get_args(Mode)))

  @property
  def num_steps(self) -> int:
    """L, labels per input."""
    return self.length - 1 if self.mode == "chain" else 1

  def init(self, key: PRNGKeyArray) -> tuple[()]:
    """Plants nothing."""
    del key
    return ()

  def sample(self, key: PRNGKeyArray, planted: tuple[()], num_samples: int):
    """Draws n uniform inputs, with replacement, and their labels."""
    del planted
    bits = jax.random.bernoulli(key, 0.5, (num_samples, self.length)).astype(int)
    return BitsAndSteps(bits, jnp.cumsum(bits, axis=1)[:, -self.num_steps :] % 2)

  def encode(
    self, planted: tuple[()], sample: BitsAndSteps
  ) -> Int[Array, "n {self.length}+{self.num_steps}"]:
    """The tokens b_1, ..., b_T, c_1 and all labels but the last."""
    del planted
    bits, labels = sample
    return jnp.concatenate([bits, bits[:, :1], labels[:, :-1]], axis=1)

  def decoded(
    self, apply: Callable[[Any], Array], sample: BitsAndSteps
  ) -> Int[Array, "n L"]:
    """The model's own chains: each token the likelier one after those before it.

    All tokens are read off at once, and again after what was read, until none changes.
    A causal model's first k tokens are right after k passes, whatever they start from, so
    L passes are enough. A model that errs seldom needs few.

    Args:
      apply: tokens -> logits [n L 2]; those of a row follow from the tokens up to it.
      sample: n inputs; their labels are what the passes start from.
    """

    def again(carry):
      passes, labels, _ = carry
      logits = apply(self.encode((), sample._replace(labels=labels)))
      new = jnp.argmax(logits, axis=-1).astype(labels.dtype)
      return passes + 1, new, jnp.any(new != labels)

    def unfinished(carry):
      passes, _, changed = carry
      return changed & (passes < self.num_steps)

    start = (0, sample.labels, jnp.array(True))
    _, labels, _ = jax.lax.while_loop(unfinished, again, start)
    return labels

  def best_constant_error(self) -> float:
    """Of a coin."""
    return 0.5

  def check_draw(self, keys: Key[Array, " k"]) -> None:
    """There is nothing to draw."""


@dataclasses.dataclass(frozen=True)
class UnseenChains(ParityChain):
  """The same on inputs that the training sample does not hold, by the model's own chain.

  An input's error is 1 where the last token of the decoded chain is wrong.
  """

  def score(
    self,
    apply: Callable[[Any], Array],
    planted: tuple[()],
    sample: BitsAndSteps,
    training: BitsAndSteps | None,
  ) -> Float[Array, " n"]:
    """Errors of the answers, whose mean is that over the inputs outside `training`.

    Args:
      apply: tokens -> logits [n L 2].
      planted: nothing.
      sample: n inputs.
      training: the training sample; None where every batch is fresh.
    """
    del planted
    answers = self.decoded(apply, sample)[:, -1]
    errors = (answers != sample.labels[:, -1]).astype(float)
    if training is None:
      return errors
    return of_unseen(errors, sample.bits, training.bits)
