"""Tasks by their names, at sizes that a CPU trains in minutes."""

from __future__ import annotations

from typing import Any

from sepfx.tasks.tokens.copying import Copying, SelectiveCopying
from sepfx.tasks.tokens.fuzzy import FuzzyRecall
from sepfx.tasks.tokens.recall import (
  MQAR,
  InContextRecall,
  InductionHeads,
  Memorisation,
)
from sepfx.tasks.tokens.states import Dyck, KHop, WordProblem

_TASKS: tuple[Any, ...] = (
  MQAR(length=32, num_pairs=4, vocabulary=64),
  InContextRecall(length=32, vocabulary=16),
  InContextRecall(length=32, vocabulary=24, noise_vocabulary=8, noise=0.2),
  FuzzyRecall(length=32, vocabulary=12, key_size=2, value_size=2),
  InductionHeads(length=32, vocabulary=16),
  Copying(length=24, num_copied=8, vocabulary=16),
  SelectiveCopying(length=32, num_copied=8, vocabulary=16),
  Memorisation(length=16, vocabulary=64),
  WordProblem(length=16, group="Z2"),
  WordProblem(length=16, group="S3"),
  WordProblem(length=16, group="S5"),
  Dyck(length=32, num_types=4, depth=4),
  KHop(length=32, hops=2, vocabulary=4),
)

TASKS: dict[str, Any] = {task.name: task for task in _TASKS}
