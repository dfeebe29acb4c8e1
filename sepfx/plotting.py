"""The figure and the summary of any records: of `sepfx.measure`, or `sepfx.load`."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.figure
import numpy as np

from sepfx import specifications
from sepfx.drawing import figures, looks, success_figures
from sepfx.ensembles import Cell, Records
from sepfx.errors import require
from sepfx.records.run_directory import RunDirectory
from sepfx.statistics import error_names
from sepfx.statistics.levels import Level
from sepfx.statistics.passages import Checks
from sepfx.statistics.success_summary import summarise_success
from sepfx.statistics.summary import summarise as summarise_passages

# A note of records, and a method of tasks.
_REFERENCE = "uniform_attention_risk"


def plot(
  records: Records,
  *,
  against: str = "length",
  style: str = "screen",
  width: float | None = None,
  panels: Sequence[int] | int | None = None,
) -> matplotlib.figure.Figure:
  """Draws what records say, as the studies draw it.

  Of the online protocol: samples until the test loss is first below each threshold, along
  an axis, with trials, means, 95% intervals and exponents; and the test loss itself. Of
  fixed samples: the share of trials that succeed against the sample size, critical
  sizes against length, and the course of training. A title says of a run that has not
  ended how many trials have.

  Args:
    records: from `sepfx.measure` or `sepfx.load`.
    against: the numeric column of `records.table` to draw samples along.
    style: sizes of type and lines: "screen", "paper" or "slides".
    width: of the figure, in inches; None for the style's own. A narrow figure has its
      panels below one another.
    panels: places of the panels to draw, from 0 as the whole figure has them, such as
      [0]; None for all. One alone is no taller than a `width` that is given.

  Returns:
    The figure: `.savefig("figure.pdf")` writes it, a notebook shows it.

  Raises:
    InvalidSetting: for records of something else, a column that they do not have, or a
      panel that the figure does not have.
  """
  summary = summary_of(records, against=against)
  with looks.look(style, width):
    return _drawn(records, summary, against, panels)


def _drawn(
  records: Records,
  summary: dict[str, Any],
  against: str = "length",
  panels: Sequence[int] | int | None = None,
) -> matplotlib.figure.Figure:
  """The figure of `plot`, in today's look."""
  if "samples" not in _names(records):
    figure = success_figures.success(records, summary, panels)
  else:
    levels, risk = _levels(records), _reference_risk(records)
    figure = figures.sample_complexity(
      records, levels, summary, risk, {}, against, panels
    )
  if not records.complete:
    ended, missing = len(records.all_curves), records.missing
    _mark_unfinished(figure, ended, None if missing is None else ended + missing)
  return figure


def summary_of(records: Records, *, against: str = "length") -> dict[str, Any]:
  """Returns means, exponents and the like with 95% intervals, as JSON values.

  Of the online protocol what `sepfx.statistics.summarise` returns, of fixed samples what
  `sepfx.statistics.summarise_success` does.

  Args:
    records: from `sepfx.measure` or `sepfx.load`.
    against: the numeric column of `records.table` that exponents are of.

  Raises:
    InvalidSetting: as `plot`.
  """
  takes = "Records, such as sepfx.load of a directory"
  require(isinstance(records, Records), "records", records, takes)
  names = _names(records)
  require(len(records.table) > 0, "records", "no rows", "records of at least one trial")
  if "samples" in names:
    numeric = [c for c in names if records.table[c].dtype.kind in "if"]
    axes = [c for c in records.coordinates if c in numeric]
    require(against in axes, "against", against, f"a numeric axis: {', '.join(axes)}")
    return summarise_passages(
      records,
      _levels(records),
      _checks(records),
      _reference_risk(records),
      _keys(records),
      against,
    )
  takes = "records with first passages (samples) or of fixed samples (sample_size)"
  require("sample_size" in names, "records", ", ".join(names), takes)
  takes = "length: the figure of fixed samples is along that alone"
  require(against == "length", "against", against, takes)
  return summarise_success(records, {})


def write(directory: RunDirectory, records: Records) -> None:
  """Writes figure.png, figure.pdf and, last, summary.json."""
  summary = summary_of(records)
  with looks.look():
    write_figure(directory, _drawn(records, summary))
  directory.write("summary.json", json.dumps(summary, indent=2) + "\n")


def write_unfinished(
  directory: RunDirectory,
  figure: matplotlib.figure.Figure,
  trials: int,
  of: int | None = None,
) -> None:
  """Writes the figure of a run that lasts, and on it how many trials have ended.

  Args:
    directory: where.
    figure: what is drawn of them.
    trials: how many.
    of: how many there will be; None if that is not known yet.
  """
  _mark_unfinished(figure, trials, of)
  write_figure(directory, figure)


def _mark_unfinished(
  figure: matplotlib.figure.Figure, trials: int, of: int | None
) -> None:
  """Quick trials end first, so that means of some of them are too small."""
  count = f"{trials} trials" if of is None else f"{trials} of {of} trials"
  figure.suptitle(f"not complete: {count} so far", color="#b3262b")


def write_figure(
  directory: RunDirectory, figure: matplotlib.figure.Figure, name: str = "figure"
) -> None:
  """Writes figure.png and figure.pdf, or those of another name, in today's look."""
  for kind in ("png", "pdf"):
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind)
    figure.set_layout_engine("none")  # both have that of the first
    directory.write(f"{name}.{kind}", buffer.getvalue())


def _names(records: Records) -> tuple[str, ...]:
  return records.table.dtype.names or ()


def _levels(records: Records) -> list[Level]:
  """The thresholds, as they were given where that is known."""
  fractions = records.settings.get("uniform_fractions") or ()
  if fractions and not np.all(np.isnan(_reference_risk(records))):
    levels = list(records.settings["thresholds"])
  else:
    levels, fractions = np.unique(records.table["threshold"])[::-1].tolist(), ()
  return [*map(Level, levels), *(Level(value, of_uniform=True) for value in fractions)]


def _checks(records: Records) -> Checks:
  """How first passages were looked for, of each row."""
  batch, every = (_numbers(records, name) for name in ("batch_size", "check_every"))
  step = batch * every
  return Checks(batch, step, _numbers(records, "max_samples") // step * step)


def _numbers(records: Records, name: str) -> np.ndarray:
  """A setting of the protocol, of each row."""
  for column in (name, f"protocol.{name}"):
    if column in _names(records):
      return records.table[column].astype(float)
  settings = records.settings.get("protocol", records.settings)
  known = isinstance(settings, Mapping) and name in settings
  require(known, "records", f"no {name}", "records that know the settings of their run")
  return np.full(len(records.table), float(settings[name]))


def notes_of(cells: Sequence[Cell]) -> dict[str, dict[str, Any]]:
  """What records need beside them to be drawn, by the cell's name.

  Uniform attention's risk on test prompts, of the cells that have one; and what the error
  is called.
  """
  return notes_by_name({cell.name: cell for cell in cells})


def notes_by_name(cells: Mapping[str, Cell]) -> dict[str, dict[str, Any]]:
  """`notes_of` cells, under the names that they have among those of several runs."""
  risks = {
    name: getattr(cell.trial.test_task, _REFERENCE, lambda: None)()
    for name, cell in cells.items()
  }
  return {
    _REFERENCE: {name: risk for name, risk in risks.items() if risk is not None},
    error_names.NOTE: {n: cell.trial.objective.error_name for n, cell in cells.items()},
  }


def _reference_risk(records: Records) -> np.ndarray:
  """Uniform attention's risk, of each row; NaN where there is none."""
  risks = records.notes.get(_REFERENCE, {})
  return np.array([risks.get(records.cell_of(row), np.nan) for row in records.table])


def _keys(records: Records) -> np.ndarray:
  """Numbers what the keys of each row's trial come from, but for its index."""
  own = [
    (row["task"], specifications.base(str(row["model"])), row["length"])
    for row in records.table
  ]
  numbers = {name: k for k, name in enumerate(dict.fromkeys(own))}
  return np.array([numbers[name] for name in own], int)
