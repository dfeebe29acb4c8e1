"""What the studies of hidden Boolean functions share: settings, and trials of them."""

from __future__ import annotations

import dataclasses
from typing import Any

from sepfx import models
from sepfx.studies.parts import made_from, optimizer_from
from sepfx.studies.settings import Common, setting
from sepfx.tasks import SparseBoolean
from sepfx.training import Trial


@dataclasses.dataclass(frozen=True)
class Bits(Common):
  """Settings of the task on noisy bits, its optimizer and its checks."""

  sparsity: int = setting(3, "s, number of hidden bits.")
  noise: float = setting(0.0, "Probability that a training label is flipped.")
  accuracy_level: float = setting(
    0.99, "Held-out accuracy above which a trial has learned.", kind="fixed"
  )
  check_every: int = setting(10, "Steps between two evaluations.", kind="fixed")
  weight_decay: float = setting(1e-4, "Decoupled, on linear weight matrices alone.")
  clip_norm: float = setting(1.0, "Of the global gradient norm; 0 for none.")


def trial(settings: Any, task: SparseBoolean, protocol: type, **others: Any) -> Trial:
  """Makes the trial of one cell; its test labels have no noise.

  Args:
    settings: of one cell.
    task: what is learned.
    protocol: its class.
    others: the protocol's fields that are no settings.
  """
  optimizer = optimizer_from(settings, decay="kernels")
  own: Any = made_from(settings, protocol, optimizer=optimizer, **others)
  clean = dataclasses.replace(task, noise=0.0)
  model = models.build(settings.model, task)
  return own.trial(task, clean, model, settings.model)
