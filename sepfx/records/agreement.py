"""Whether the rows of a trial follow from its curve.

Both are written when a trial ends. A row that its curve contradicts was changed since.
"""

from __future__ import annotations

import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sepfx.ensembles.cells import Cell
from sepfx.ensembles.results import Records
from sepfx.records.reading import refused
from sepfx.training import Trial


def contradiction(
  trial: Trial, curve: np.ndarray, outcomes: Sequence[tuple]
) -> tuple[int, str]:
  """Holds what rows say that a trial came to against its curve.

  Args:
    trial: what it was.
    curve: its own.
    outcomes: of each of its rows, `trial.columns`.

  Returns:
    Which row is contradicted and what the curve says; -1 and "" if none is.
  """
  progress, between = trial.progress
  names = curve.dtype.names or ()
  places = between * np.arange(1, len(curve) + 1)
  if (
    not len(curve)
    or not {progress, trial.watched} < set(names)
    or not np.array_equal(curve[progress], places)
  ):
    return 0, "nothing of this trial: it is of another form"
  every = trial.protocol.check_every
  diverged_at = 0
  for *_, count, outcome in outcomes:
    # A curve shows the check after it, and nothing more exact.
    if outcome == "diverged" and places[-1] - between < count <= places[-1]:
      diverged_at = count * every // between
  kinds = trial.columns.values()
  for k, (row, says) in enumerate(
    zip(outcomes, trial.outcomes(trial.report_of(curve, diverged_at)), strict=True)
  ):
    wanted = [kind(value) for kind, value in zip(kinds, says, strict=True)]
    if not all(map(_same, row, wanted)):
      return k, ",".join(map(str, wanted))
  return -1, ""


def check_rows(records: Records, cells: Sequence[Cell], directory: str) -> None:
  """Refuses a run a row of which its trial's curve contradicts.

  Args:
    records: of the run.
    cells: its grid.
    directory: where it is.

  Raises:
    InvalidSetting: it names the line.
  """
  trials = {cell.name: cell.trial for cell in cells}
  lines: dict[str, list[int]] = {}
  for line, row in enumerate(records.table):
    lines.setdefault(records.name_of(row), []).append(line)
  path = pathlib.Path(directory) / "trials.csv"
  for name, own in lines.items():
    trial = trials.get(records.cell_of(records.table[own[0]]))
    fields = [str(value) for value in records.table[own[0]].tolist()]
    if trial is None or len(own) != len(trial.protocol.thresholds):
      takes = "all rows of a trial of this run's grid, and no others"
      raise refused(path, takes, own[0] + 2, fields)
    outcomes = records.table[own][list(trial.columns)].tolist()
    wrong, says = contradiction(trial, records.all_curves[name], outcomes)
    if wrong >= 0:
      fields = [str(value) for value in records.table[own[wrong]].tolist()]
      takes = f"what follows from the trial's curve, which says {says}"
      raise refused(path, takes, own[wrong] + 2, fields)


def contradiction_alone(curve: np.ndarray, row: Mapping[str, Any]) -> str:
  """Says how a trial's curve contradicts a row, without the trial's settings.

  Args:
    curve: the trial's.
    row: by column.

  Returns:
    What the curve says; "" if it does not contradict the row.
  """
  names = curve.dtype.names or ("",)
  progress = names[0]
  if progress not in row or not len(curve):
    return "nothing of this trial: it is of another form"
  places, outcome = curve[progress].tolist(), row["outcome"]
  last, between = places[-1], places[0]
  errors = [curve[name] for name in ("loss", "test_error") if name in names]
  where: Sequence[int] = places
  if outcome == "censored":
    where = [last]
  elif outcome == "diverged":
    where = range(last - between + 1, last + 1)
  if errors and "threshold" in row:
    # At the check after a number that was not finite nothing is reached.
    losses = errors[0][:-1] if outcome == "diverged" else errors[0]
    below = losses < losses.dtype.type(row["threshold"])
    if below.any():
      first = places[int(below.argmax())]
      if outcome != "reached" or row[progress] != first:
        return f"{first},reached"
    elif outcome == "reached":
      return f"that it was not reached by {last}"
  if row[progress] not in where:
    return f"{where[0]}" if len(where) == 1 else f"from {where[0]} to {where[-1]}"
  if "threshold" not in row and errors and "accuracy" in row:
    best = 1 - float(np.min(errors[0], initial=np.inf, where=np.isfinite(errors[0])))
    if math.isfinite(best) and not _same(row["accuracy"], best):
      return f"accuracy {best}"
  return ""


def _same(one: Any, other: Any) -> bool:
  return bool(one == other or (one != one and other != other))
