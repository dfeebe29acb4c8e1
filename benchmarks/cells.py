"""Cells of the studies, as their command lines make them."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any

from experiments import sample_complexity
from sepfx import specifications
from sepfx.ensembles import Cell
from sepfx.studies.settings import Chosen
from sepfx.studies.study import Study

PRESETS = pathlib.Path(sample_complexity.__file__).parent / "flags"


def chosen(study: Study, preset: str = "", **flags: Any) -> Chosen:
  """Returns the settings of a command line.

  Args:
    study: whose.
    preset: name of a file in `PRESETS` that the flags change; "" for none.
    flags: by name; a sequence has several values.

  Raises:
    InvalidSetting: for a flag that cannot be used.
  """
  arguments = [f"--flagfile={PRESETS / preset}.cfg"] if preset else []
  arguments += [f"--{name}={_text(value)}" for name, value in flags.items()]
  return study.chosen(arguments)


def cells(study: Study, preset: str = "", **flags: Any) -> list[Cell]:
  """Returns the grid of a command line; see `chosen`."""
  return study.cells(chosen(study, preset, **flags))


def cell(study: Study, preset: str = "", **flags: Any) -> Cell:
  """Returns the only cell of a command line."""
  (only,) = cells(study, preset, **flags)
  return only


def figure_1a(model: str, length: int, **flags: Any) -> Cell:
  """Returns a cell of Figure 1(a) of the main paper."""
  study = sample_complexity.STUDY
  return cell(study, "fig1a", models=model, lengths=length, **flags)


def first_checks(model: str, length: int, num_checks: int) -> Cell:
  """Returns the same with trials that end after their first checks, all of them."""
  _, samples_a_check = figure_1a(model, length).trial.progress
  budget = num_checks * samples_a_check
  return figure_1a(model, length, thresholds=1e-6, max_samples=budget)


def _text(value: Any) -> str:
  if isinstance(value, Sequence) and not isinstance(value, str):
    return ",".join(map(specifications.canonical, value))
  return specifications.canonical(value)
