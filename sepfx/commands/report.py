"""What programs leave that read runs, or measure what is not trained."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib.figure
import numpy as np

from sepfx import plotting
from sepfx.commands import options
from sepfx.errors import UnknownSetting, require
from sepfx.records.run_directory import RunDirectory

FLAGS = options.FLAGS


class Report(NamedTuple):
  """What a program found.

  Attributes:
    rows: of a table.
    summary: JSON values.
    figures: by their names, of which one is "figure".
    printed: what is printed.
    arrays: written as NumPy's archives, by name; those of the outer mapping are files.
  """

  rows: Sequence[Mapping[str, Any]]
  summary: Any
  figures: Mapping[str, matplotlib.figure.Figure]
  printed: Sequence[Any]
  arrays: Mapping[str, Mapping[str, Any]] = {}


def given(*names: str) -> dict[str, Any]:
  """Values of these flags."""
  return {name: FLAGS[name].value for name in names}


def leave(
  name: str,
  settings: Callable[[], Mapping[str, Any]],
  find: Callable[[], Report],
  unknown: Sequence[str],
) -> None:
  """Leaves a report in --output_dir, the table as NAME.csv, and prints its end.

  Args:
    name: of the table.
    settings: returns what is asked for, for config.json.
    find: makes the report, once the directory is there.
    unknown: arguments that are no flag of the program.

  Raises:
    InvalidSetting: for an argument that is no flag; for a directory that holds a run or
      a report of other settings, which would be written over.
  """
  for argument in unknown:
    raise UnknownSetting("argument", argument, "a flag (see --help)")
  takes = "nothing: this program trains nothing"
  require(not FLAGS.dry_run, "dry_run", True, takes)
  console = options.console()
  with RunDirectory(FLAGS.output_dir) as directory:
    holds_run = bool(directory.stored and directory.stored.get("columns"))
    takes = "a directory of its own, not that of a run"
    require(not holds_run, "output_dir", FLAGS.output_dir, takes)
    asked = json.loads(json.dumps(settings()))
    old = directory.stored["settings"] if directory.stored else asked
    differing = [
      f"{own} (there {old.get(own)!r}, here {value!r})"
      for own, value in asked.items()
      if old.get(own) != value
    ]
    takes = "a directory of its own; this one differs in " + ", ".join(differing)
    require(not differing, "output_dir", FLAGS.output_dir, takes)
    report = find()
    directory.begin(asked, {})
    _write_csv(directory, f"{name}.csv", report.rows)
    for file, arrays in report.arrays.items():
      archive = io.BytesIO()
      np.savez(archive, **arrays)
      directory.write(f"{file}.npz", archive.getvalue())
    directory.write("summary.json", json.dumps(report.summary, indent=2) + "\n")
    for own, figure in report.figures.items():
      plotting.write_figure(directory, figure, own)
    for part in report.printed:
      console.print(part)
    console.print(f"figure: {directory.path / 'figure.png'}", soft_wrap=True)


def _write_csv(directory: RunDirectory, name: str, rows: Sequence[Mapping]) -> None:
  """Writes rows; what is None, or what a row does not have, is left empty."""
  text = io.StringIO(newline="")
  names = list(dict.fromkeys(name for row in rows for name in row))
  writer = csv.DictWriter(text, names, lineterminator="\n")
  writer.writeheader()
  writer.writerows(rows)
  directory.write(name, text.getvalue())
