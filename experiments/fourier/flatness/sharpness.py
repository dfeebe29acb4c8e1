"""How flat are trained networks, beside the construction? Figures 2 to 4, and bounds.

Of *A Sharper Picture of Generalization in Transformers*.

    sepfx sharpness --runs=runs/fourier_quick

Reads the weights that runs of `sepfx fourier-generalisation` kept. Measures norm,
Hessian trace and spectrum of each trial and of the flat construction of its function, and
bounds, also under perturbations, and draws them beside the measured gaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import rich.progress
from absl import flags

from sepfx.commands import command_line, options
from sepfx.commands.report import Report, given, leave
from sepfx.errors import InvalidSetting, require

from .. import tables as fourier_tables
from ..fourier_generalisation import study as fourier_generalisation
from . import figures as flatness_figures
from .flatness import compare
from .summary import summarise_flatness

flags.DEFINE_list("runs", ["runs/fourier_quick"], "Directories of runs that are read.")
FLAGS = flags.FLAGS


def measured(
  path: str, console: Any
) -> tuple[list[dict[str, Any]], list[dict[str, np.ndarray]]]:
  """Returns a row, and spectral densities, of each trial that did not diverge.

  Raises:
    InvalidSetting: if it is no complete run of that study with its weights.
  """
  part, trials = fourier_generalisation.trained(path, "runs")
  records = part.records
  if records.probes is None:
    raise InvalidSetting("runs", path, "a run with probes")
  gaps = {records.name_of(row): row["gap"].item() for row in records.probes}
  rows, spectra = [], []
  bar = rich.progress.track(
    trials, "measuring", console=console, disable=not console.is_terminal
  )
  for row, cell, params in bar:
    if row["outcome"] == "diverged":
      continue
    task = cell.trial.task
    found, densities = compare(cell, part.chosen.one("seed"), row["trial"].item(), params)
    place = {c: row[c].item() for c in (*records.coordinates, "trial", "outcome")}
    rows.append(
      {
        "run": path,
        **place,
        "length": int(task.length),
        "degree": int(task.degree),
        "gap": gaps[records.name_of(row)],
        **found,
      }
    )
    spectra.append(densities)
  return rows, spectra


def report() -> Report:
  """Measures all trials of --runs."""
  console = options.console()
  rows: list[dict[str, Any]] = []
  spectra: list[dict[str, np.ndarray]] = []
  for path in FLAGS.runs:
    own_rows, own_spectra = measured(path, console)
    rows += own_rows
    spectra += own_spectra
  takes = "runs with a trial that did not diverge"
  require(len(rows) > 0, "runs", ",".join(FLAGS.runs), takes)
  summary = summarise_flatness(rows)
  densities: dict[str, Any] = {
    name: np.stack([own[name] for own in spectra]) for name in spectra[0]
  }
  return Report(
    rows=rows,
    summary=summary,
    figures={
      "figure": flatness_figures.flatness(rows, summary),
      "spectra": flatness_figures.spectra(rows, densities),
    },
    printed=fourier_tables.flatness(summary),
    arrays={"spectra": densities},
  )


def main(unknown: Sequence[str]) -> None:
  """Leaves the results in --output_dir."""
  leave("sharpness", lambda: given("runs"), report, unknown)


if __name__ == "__main__":
  FLAGS.set_default("output_dir", "runs/sharpness")
  command_line.main(main)
