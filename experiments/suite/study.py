"""Which mixer needs how many samples for what? Tasks of tokens at each mixer's best rate.

    sepfx suite --preset=suite_quick

Trains every mixer, in a backbone, on every task: a pilot trial at every other rate, and
then at the rates next to the best. Those that come near it get more trials. n is the
number of sequences after which the share of wrong answers is first below the threshold.
"""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import numpy as np

from sepfx.commands import program
from sepfx.statistics.best_summary import summarise_best
from sepfx.statistics.levels import Level
from sepfx.studies import study
from sepfx.studies.parts import made_from, optimizer_from
from sepfx.studies.searches import Pilots
from sepfx.studies.settings import setting
from sepfx.training import Online, Trial

from . import matrix, pictures
from .checks import check
from .parts import Mixed, backbone, named


@dataclasses.dataclass(frozen=True)
class Settings(Mixed):
  learning_rate: float = setting(
    (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1),
    "The optimizer's; those to choose from. Every other one comes first, then those next "
    "to the best.",
    flag="learning_rates",
    kind="grid",
  )
  num_trials: int = setting(3, "Trials of each cell that is not given up.", kind="count")
  threshold: float = setting(0.1, "Share of wrong answers to be below.", kind="fixed")
  batch_size: int = setting(64, "Fresh sequences per step.")
  check_every: int = setting(5, "Steps between two evaluations.", kind="fixed")
  max_samples: int = setting(100_000, "Sequences that a trial has.", kind="budget")


def build(settings: Settings) -> Trial:
  task = named(settings.task)
  protocol = made_from(
    settings,
    Online,
    optimizer=optimizer_from(settings),
    thresholds=(settings.threshold,),
  )
  return protocol.trial(task, task, backbone(settings, task), settings.model)


def summarise(run: study.Run) -> dict[str, Any]:
  levels = [Level(run.chosen.one("threshold"))]
  nothing = np.full(len(run.records.table), np.nan)
  axes = ("learning_rate",)
  found = summarise_best(run.records, levels, run.checks(), nothing, axes=axes)
  return {**found, "matrix": matrix.entries(found, run)}


STUDY = study.Study(
  settings=Settings,
  build=build,
  summarise=summarise,
  draw=lambda _, summary: pictures.draw(summary),
  table=matrix.table,
  output_dir="runs/suite",
  chosen_from=lambda _: ("learning_rate",),
  check=check,
  search=lambda cells, chosen: Pilots(
    cells, chosen.one("num_trials"), ("learning_rate",), every_other=True
  ),
  recorded={"published:suite": pathlib.Path(__file__).parent / "recorded"},
)

if __name__ == "__main__":
  program.main(STUDY)
