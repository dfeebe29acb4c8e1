"""What a trial is while it runs: its seeds, its state, and what stays fixed."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray

Outcome = Literal["reached", "censored", "diverged"]


class Seeds(NamedTuple):
  """All randomness of a trial: `task` draws what is planted, `trial` the rest."""

  trial: PRNGKeyArray
  task: PRNGKeyArray


class State(NamedTuple):
  """A trial in progress (K thresholds). Its seeds stay with who runs it."""

  params: Any
  opt_state: Any
  step: Int[Array, ""]
  checks: Int[Array, ""]
  curve: Any  # what the protocol measures at each of C checks, arrays [C]
  crossings: Int[Array, " K"]  # step of first passage; 0 where not yet
  diverged_at: Int[Array, ""]  # step of the first loss not finite; 0 if none
  memory: Any  # what the protocol's evaluation remembers from check to check
  active: Bool[Array, ""]


class Report(NamedTuple):
  """What the host learns of a state: all but weights and memory; fields as there.

  Of lanes, each field has a leading lane axis.
  """

  step: Int[Array, ""]
  checks: Int[Array, ""]
  curve: Any
  crossings: Int[Array, " K"]
  diverged_at: Int[Array, ""]
  active: Bool[Array, ""]


class Keys(NamedTuple):
  """What every step's randomness is folded from."""

  data: PRNGKeyArray
  dropout: PRNGKeyArray


class World(NamedTuple):
  """What a trial's seeds fix for its whole length; in no checkpoint."""

  planted: Any
  sample: Any  # the fixed training sample; None where every batch is fresh
  test: Any
  keys: Keys
  validation: Any = None  # what of the sample no gradient is taken on; None for nothing


def select(condition: Bool[Array, ""], new: Any, old: Any) -> Any:
  """Returns `new` where the condition holds, else `old`.

  Leaves that are the same object in both are kept as they are.
  """
  return jax.tree.map(lambda a, b: a if a is b else jnp.where(condition, a, b), new, old)
