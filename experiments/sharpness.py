"""How flat are trained networks, beside the construction? Figures 2 to 4, and bounds.

Of *A Sharper Picture of Generalization in Transformers*.

    python -m experiments.sharpness --runs=runs/fourier_quick

Reads the weights that runs of `experiments.fourier_generalisation` kept. Measures norm,
Hessian trace and spectrum of each trial and of the flat construction of its function, and
bounds, also under perturbations, and draws them beside the measured gaps.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
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
from sepfx.analysis.flatness import compare
from sepfx.analysis.flatness_summary import summarise_flatness
from sepfx.ensembles.run_directory import RunDirectory
from sepfx.errors import InvalidSetting, require

flags.DEFINE_list("runs", ["runs/fourier_quick"], "Directories of runs that are read.")
FLAGS = flags.FLAGS


def measured(
  path: str, console: Any
) -> tuple[list[dict[str, Any]], list[dict[str, np.ndarray]]]:
  """Returns a row, and spectral densities, of each trial of a run.

  Raises:
    InvalidSetting: if it is no complete run of that study with its weights.
  """
  own = fourier_generalisation.STUDY
  part = beside.read(path, own.settings, own.cells)
  records = part.records
  cells = {cell.name: cell for cell in part.cells}
  missing = len(set(map(records.name_of, records.table)) - set(records.models))
  require(not missing, "runs", path, f"a run with all weights ({missing} are missing)")
  if records.probes is None:
    raise InvalidSetting("runs", path, "a run with probes")
  gaps = {records.name_of(row): row["gap"].item() for row in records.probes}
  rows, spectra = [], []
  bar = rich.progress.track(
    records.table, "measuring", console=console, disable=not console.is_terminal
  )
  for row in bar:
    name = records.name_of(row)
    cell, params = cells[records.cell_of(row)], records.models[name].params
    task = cell.trial.task
    found, densities = compare(cell, part.chosen.one("seed"), row["trial"].item(), params)
    place = {c: row[c].item() for c in (*records.coordinates, "trial", "outcome")}
    rows.append(
      {
        "run": path,
        **place,
        "length": int(task.length),
        "degree": int(task.degree),
        "num_components": int(task.num_components),
        "gap": gaps[name],
        **found,
      }
    )
    spectra.append(densities)
  return rows, spectra


def main(_: Sequence[str]) -> None:
  """Measures all trials of --runs, and leaves the results in --output_dir."""
  console = running.console()
  rows: list[dict[str, Any]] = []
  spectra: list[dict[str, np.ndarray]] = []
  for path in FLAGS.runs:
    own_rows, own_spectra = measured(path, console)
    rows += own_rows
    spectra += own_spectra
  summary = summarise_flatness(rows)
  densities: dict[str, Any] = {
    name: np.stack([own[name] for own in spectra]) for name in spectra[0]
  }
  with RunDirectory(FLAGS.output_dir) as directory:
    directory.begin({"runs": FLAGS.runs}, {})
    text = io.StringIO(newline="")
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    directory.write("sharpness.csv", text.getvalue())
    archive = io.BytesIO()
    np.savez(archive, **densities)
    directory.write("spectra.npz", archive.getvalue())
    directory.write("summary.json", json.dumps(summary, indent=2) + "\n")
    study.write_figure(directory, flatness_figures.flatness(rows, summary))
    drawn = flatness_figures.spectra(rows, densities)
    study.write_figure(directory, drawn, "spectra")
    for part in tables.flatness(summary):
      console.print(part)
    console.print(f"figure: {directory.path / 'figure.png'}", soft_wrap=True)


if __name__ == "__main__":
  FLAGS.set_default("output_dir", "runs/sharpness")
  command_line.main(main)
