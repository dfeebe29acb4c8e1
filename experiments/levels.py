"""Test losses whose first passage is timed: as they are, and as shares of another's."""

from __future__ import annotations

from typing import Any

from sepfx.errors import require
from sepfx.statistics.levels import Level
from sepfx.studies.settings import Chosen


def reference_risk(task: Any) -> float | None:
  """Uniform attention's, None for a task in which it is not known."""
  return getattr(task, "uniform_attention_risk", lambda: None)()


def levels_of(chosen: Chosen) -> list[Level]:
  """Those of a run."""
  fractions = chosen.one("uniform_fractions")
  return [
    *map(Level, chosen.one("thresholds")),
    *(Level(value, of_uniform=True) for value in fractions),
  ]


def thresholds(settings: Any, test_task: Any) -> tuple[float, ...]:
  """Those of a cell as test losses.

  Args:
    settings: of the cell, with `thresholds` and `uniform_fractions`.
    test_task: what the loss is of.

  Raises:
    InvalidSetting: if there is none, for a fraction that is none, or for a task in which
      uniform attention's risk is not known.
  """
  name, fractions = "uniform_fractions", settings.uniform_fractions
  for fraction in fractions:
    require(0 < fraction < 1, name, fraction, "numbers between 0 and 1")
  given = bool(settings.thresholds or fractions)
  require(given, "thresholds", "", "at least one, or --uniform_fractions")
  risk = reference_risk(test_task)
  takes = "nothing for a task in which uniform attention's risk is not known"
  require(not fractions or risk is not None, name, list(fractions), takes)
  relative = [Level(value, of_uniform=True).threshold(risk or 0.0) for value in fractions]
  return (*settings.thresholds, *relative)
