"""How accurate is which mixer after some passes over a fixed sample, as others report it?

    sepfx mixer-accuracies --preset=mad

Published suites train each mixer on a fixed number of sequences, at each of a few
learning rates, and report the best accuracy. This study does the same, so that mixers
here can be held against what is published. How many sequences a mixer needs is asked by
`sepfx suite`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import matplotlib.figure
import numpy as np
import rich.table

from sepfx.commands import program
from sepfx.drawing.looks import fit_labels
from sepfx.errors import require
from sepfx.statistics.intervals import student_interval
from sepfx.studies import study
from sepfx.studies.parts import made_from, optimizer_from
from sepfx.studies.settings import setting
from sepfx.training import ERM, Trial

from . import matrix, pictures
from .checks import check
from .parts import Mixed, backbone, named


@dataclasses.dataclass(frozen=True)
class Settings(Mixed):
  learning_rate: float = setting(
    (1e-4, 4.6e-4, 2.2e-3, 1e-2),
    "The optimizer's at first; those to choose from. It falls to 0 like a cosine.",
    flag="learning_rates",
    kind="grid",
  )
  sample_size: int = setting(100_000, "m, training sequences of a trial.")
  epochs: int = setting(64, "Passes over them.", kind="fixed")
  batch_size: int = setting(512, "Sequences per step.")
  stop_error: float = setting(
    0.01, "Share of wrong answers below which a trial ends.", kind="fixed"
  )
  num_trials: int = setting(1, "Trials of each mixer, task and rate.", kind="count")


def build(settings: Settings) -> Trial:
  task, size = named(settings.task), settings.sample_size
  takes = f"an integer from 1 to the sample size {size}"
  require(1 <= settings.batch_size <= size, "batch_size", settings.batch_size, takes)
  require(settings.epochs >= 1, "epochs", settings.epochs, "an integer >= 1")
  takes = "a share above 0 and below 1"
  require(0 < settings.stop_error < 1, "stop_error", settings.stop_error, takes)
  per_epoch = size // settings.batch_size
  steps = settings.epochs * per_epoch
  protocol = made_from(
    settings,
    ERM,
    optimizer=optimizer_from(settings, decay_steps=steps),
    threshold=settings.stop_error,
    check_every=per_epoch,
    max_steps=steps,
  )
  return protocol.trial(task, task, backbone(settings, task), settings.model)


def summarise(run: study.Run) -> dict[str, Any]:
  """Accuracies at the last check, on average over trials, at the rate where it is most.

  A trial that diverged has none right.
  """
  records = run.records
  at: dict[tuple[str, str], dict[float, list[float]]] = {}
  every = [(cell.coordinates, cell.trial.task) for cell in run.cells.values()]
  known: dict[tuple[str, str], dict[str, Any]] = {}
  for row in records.table:
    own = run.cells[records.cell_of(row)]
    labels = matrix.labels(own.coordinates, own.trial.task, every)
    place = labels["task"], labels["model"]
    known[place] = {**labels, **matrix.sizes(own.trial)}
    # The share of wrong answers is finite where outputs are not.
    ended = row["outcome"] != "diverged"
    curve = records.all_curves[records.name_of(row)]
    right = 1 - float(curve["test_error"][-1]) if ended else 0.0
    rates = at.setdefault(place, {})
    rates.setdefault(own.coordinates["learning_rate"], []).append(right)
  return {"matrix": [{**known[place], **_best(rates)} for place, rates in at.items()]}


def _best(rates: dict[float, list[float]]) -> dict[str, Any]:
  means = {rate: float(np.mean(values)) for rate, values in sorted(rates.items())}
  best = max(means, key=means.__getitem__)
  mean, low, high = student_interval(np.array(rates[best]))
  known = np.isfinite(low)
  return {
    "accuracy": mean,
    "low": max(low, 0.0) if known else None,
    "high": min(high, 1.0) if known else None,
    "rate": best,
    "edge": len(means) > 1 and best in (min(means), max(means)),
    "rates": means,
    "trials": len(rates[best]),
  }


def draw(summary: dict[str, Any]) -> matplotlib.figure.Figure:
  """Colours and numbers say accuracies."""
  cells = summary["matrix"]
  values = [cell["accuracy"] for cell in cells]
  colours = pictures.Colours(values, "PiYG", 0, 1, "accuracy")
  figure, _ = pictures.coloured(cells, [f"{value:.3f}" for value in values], colours)
  figure.suptitle("accuracy after training on a fixed sample")
  fit_labels(figure)
  return figure


def table(summary: dict[str, Any]) -> Sequence[Any]:
  found = rich.table.Table("task", "mixer", "state", "accuracy", "best rate")
  for cell in summary["matrix"]:
    accuracy = f"{cell['accuracy']:.3f}"
    if cell["low"] is not None:
      accuracy += f" [{cell['low']:.3f}, {cell['high']:.3f}]"
    state = "" if cell["state"] is None else f"{cell['state']:,}"
    rate = f"{cell['rate']:g}" + (", edge" if cell["edge"] else "")
    found.add_row(cell["task"], cell["model"], state, accuracy, rate)
  return [
    found,
    "Accuracy: share of right answers to test sequences at the last check, on average "
    "over trials, at the rate where it is most. Edge: the least or the largest rate. The "
    "rate is chosen on the same test sequences, as published suites choose it. "
    "Intervals do not allow for this choice.",
  ]


STUDY = study.Study(
  settings=Settings,
  build=build,
  summarise=summarise,
  draw=lambda _, summary: draw(summary),
  table=table,
  output_dir="runs/mixer_accuracies",
  check=check,
)

if __name__ == "__main__":
  program.main(STUDY)
