"""What a finished trial came to, read off its state on the host."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from sepfx.training.online import Online

Outcome = Literal["reached", "censored", "diverged"]


class Passage(NamedTuple):
  """First passage of one threshold.

  Attributes:
    threshold: tau.
    samples: training prompts consumed at first passage ("reached"), when the budget
      was spent ("censored"), or at the first loss or weight that was not finite
      ("diverged").
    outcome: which of the three.
  """

  threshold: float
  samples: int
  outcome: Outcome


class Curve(NamedTuple):
  """Test loss against samples (C checks).

  Attributes:
    samples: training prompts consumed, [C].
    loss: test loss, [C].
    exact: whether it was evaluated on all test prompts, [C]; else it is an estimate
      that was clear of every threshold still open.
  """

  samples: np.ndarray
  loss: np.ndarray
  exact: np.ndarray


def passages(state: Any, protocol: Online) -> list[Passage]:
  """Returns one `Passage` a threshold, in the protocol's order.

  Args:
    state: fields of an ended `sepfx.training.online.State`, as NumPy arrays.
    protocol: what it ran under.
  """
  diverged_at = int(state.diverged_at)
  unreached: Outcome = "diverged" if diverged_at else "censored"
  last = (diverged_at or int(state.step)) * protocol.batch_size
  return [
    Passage(threshold, int(step) * protocol.batch_size, "reached")
    if step
    else Passage(threshold, last, unreached)
    for threshold, step in zip(protocol.thresholds, state.crossings, strict=True)
  ]


def curve(state: Any, protocol: Online) -> Curve:
  """Returns the test-loss curve of a state whose fields are NumPy arrays."""
  checks = int(state.checks)
  per_check = protocol.batch_size * protocol.check_every
  return Curve(
    samples=per_check * np.arange(1, checks + 1),
    loss=np.asarray(state.curve[:checks]),
    exact=np.asarray(state.exact[:checks]),
  )
