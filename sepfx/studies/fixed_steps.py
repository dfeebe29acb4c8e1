"""Protocols of trials that all take the same number of steps."""

from __future__ import annotations

from typing import Any

from sepfx.errors import require
from sepfx.studies.parts import made_from
from sepfx.training import ERM, Online

# A test loss that is never reached.
_NEVER = 1e-9


def online(settings: Any, optimizer: Any) -> Online:
  """Makes the online protocol of trials that all take `steps` steps.

  Args:
    settings: of one cell, with fields `steps`, `batch_size` and `check_every`.
    optimizer: theirs.

  Raises:
    InvalidSetting: for steps that `check_every` does not divide: those after the last
      evaluation would be left out, and the rate would not come to its end.
  """
  return made_from(
    settings,
    Online,
    optimizer=optimizer,
    thresholds=(_NEVER,),
    max_samples=_checked_steps(settings) * settings.batch_size,
    screen=False,
  )


def erm(settings: Any, optimizer: Any) -> ERM:
  """Makes the protocol on fixed samples of trials that all take `steps` steps.

  Batches are the whole sample where that is smaller.

  Args:
    settings: of one cell, with a field `sample_size` further.
    optimizer: theirs.

  Raises:
    InvalidSetting: for steps that `check_every` does not divide.
  """
  return made_from(
    settings,
    ERM,
    optimizer=optimizer,
    threshold=_NEVER,
    run_to_end=True,
    max_steps=_checked_steps(settings),
    batch_size=min(settings.batch_size, settings.sample_size),
  )


def _checked_steps(settings: Any) -> int:
  steps, every = settings.steps, settings.check_every
  proper = steps >= 1 and steps % max(every, 1) == 0
  require(proper, "steps", steps, f"a multiple of check_every = {every}")
  return steps
