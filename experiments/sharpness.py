"""How flat are trained networks, beside the construction? Figure 2, and bounds.

Of *A Sharper Picture of Generalization in Transformers*.

    python -m experiments.sharpness --run=runs/fourier_quick

Reads the weights that a run of `experiments.fourier_generalisation` kept. Measures norm
and Hessian trace of each trial and of the flat construction of its function, their losses
under perturbations and PAC-Bayes bounds, and draws them beside the measured gaps.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

import rich.progress
from absl import flags

from experiments import (
  beside,
  command_line,
  fourier_generalisation,
  running,
  study,
  tables,
)
from sepfx.analysis import flatness_figures
from sepfx.analysis.flatness import compare, summarise_flatness
from sepfx.ensembles.run_directory import RunDirectory
from sepfx.errors import InvalidSetting, require

flags.DEFINE_string("run", "runs/fourier_quick", "Directory of the run that is read.")
FLAGS = flags.FLAGS


def measured(path: str, console: Any) -> list[dict[str, Any]]:
  """Returns a row for each trial of a run.

  Raises:
    InvalidSetting: if it is no complete run of that study with its weights.
  """
  own = fourier_generalisation.STUDY
  part = beside.read(path, own.settings, own.cells)
  records = part.records
  cells = {cell.name: cell for cell in part.cells}
  missing = len(set(map(records.name_of, records.table)) - set(records.models))
  require(not missing, "run", path, f"a run with all weights ({missing} are missing)")
  if records.probes is None:
    raise InvalidSetting("run", path, "a run with probes")
  gaps = {records.name_of(row): row["gap"].item() for row in records.probes}
  rows = []
  bar = rich.progress.track(
    records.table, "measuring", console=console, disable=not console.is_terminal
  )
  for row in bar:
    name = records.name_of(row)
    cell, params = cells[records.cell_of(row)], records.models[name].params
    task = cell.trial.task
    rows.append(
      {
        **{c: row[c].item() for c in (*records.coordinates, "trial", "outcome")},
        "degree": int(task.degree),
        "num_components": int(task.num_components),
        "gap": gaps[name],
        **compare(cell, part.chosen.one("seed"), row["trial"].item(), params),
      }
    )
  return rows


def main(_: Sequence[str]) -> None:
  """Measures all trials of --run, and leaves the results in --output_dir."""
  console = running.console()
  rows = measured(FLAGS.run, console)
  summary = summarise_flatness(rows)
  with RunDirectory(FLAGS.output_dir) as directory:
    directory.begin({"run": FLAGS.run}, {})
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    directory.write("sharpness.csv", text.getvalue())
    directory.write("summary.json", json.dumps(summary, indent=2) + "\n")
    study.write_figure(directory, flatness_figures.flatness(rows, summary))
    for part in tables.flatness(summary):
      console.print(part)
    console.print(f"figure: {directory.path / 'figure.png'}", soft_wrap=True)


if __name__ == "__main__":
  FLAGS.set_default("output_dir", "runs/sharpness")
  command_line.main(main)
