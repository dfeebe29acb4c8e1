"""How many samples until a hidden Boolean function is learned? Figures 2 and 4.

Of *Inductive Biases and Variable Creation in Self-Attention Mechanisms*.

    sepfx boolean-sample-complexity --contexts=50,100

Trains each model on fixed samples of m inputs whose label is a function of s hidden bits
among T, and draws the fraction of trials that learn it against m, and the critical sample
size against T. Started again on its own output directory, a run goes on where it stopped.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from sepfx import models
from sepfx.commands import program
from sepfx.drawing import success_figures
from sepfx.errors import require
from sepfx.statistics.success_summary import summarise_success
from sepfx.studies import study, tables
from sepfx.studies.parts import made_from
from sepfx.studies.searches import adaptive, check_search
from sepfx.studies.settings import setting
from sepfx.tasks import FUNCTIONS, SparseBoolean, boolean_function
from sepfx.training import ERM, Trial

from . import bits
from .exhaustive import Floor, stored_floor


@dataclasses.dataclass(frozen=True)
class Settings(bits.Bits):
  function: str = setting(
    "and",
    f"What is learned: {', '.join(FUNCTIONS)}, threshold:2 (at least two of the hidden "
    "bits are 1), symmetric:0110 (by the number of ones) or table:01101001 (any).",
  )
  model: str = setting(
    ("transformer",),
    f"Who learns: {', '.join(models.NAMES['classification'])}, with fields as in "
    "transformer:num_heads=8, or package.module:factory.",
    flag="models",
    kind="grid",
  )
  length: int = setting(
    (50, 100, 200), "T, number of bits.", flag="contexts", kind="grid"
  )
  sample_size: int = setting(
    (20, 40, 60, 80, 100), "m.", flag="sample_sizes", kind="grid"
  )
  search: str = setting(
    "grid", "Run all trials (grid), or an adaptive search.", kind="free"
  )
  num_trials: int = setting(
    10, "Trials of each cell; in a search of each model and context.", kind="count"
  )
  bit_probability: float = setting(0.5, "Probability that a bit is 1.")
  subset: tuple[int, ...] = setting(
    (), "The hidden positions, from 0; drawn if not given.", kind="list"
  )
  max_steps: int = setting(1000, "Steps of a trial that fails.", kind="budget")
  num_test: int = setting(10_000, "Held-out inputs of a trial.", kind="fixed")
  batch_size: int = setting(0, "Samples per step; 0 for all m.")
  run_to_end: bool = setting(False, "Train on after success.", kind="fixed")


def build(settings: Settings) -> Trial:
  level, num_test = settings.accuracy_level, settings.num_test
  require(0.5 < level <= 1, "accuracy_level", level, "a number above 1/2, at most 1")
  require(num_test >= 1, "num_test", num_test, "an integer >= 1")
  batch = settings.batch_size
  require(batch >= 0, "batch_size", batch, "an integer >= 1, or 0 for all m")
  function, subset = boolean_function(settings.function), settings.subset or None
  noisy = made_from(settings, SparseBoolean, function=function, subset=subset)
  constant = 1 - noisy.best_constant_error()
  takes = "a function that is not the same on all inputs"
  require(constant < 1, "function", settings.function, takes)
  takes = f"a number above {constant:.6g}, the accuracy of the best constant"
  require(level > constant, "accuracy_level", level, takes)
  return bits.trial(
    settings,
    noisy,
    ERM,
    # Where all of them have to be right, fewer than one must be wrong.
    threshold=max(1 - level, 0.5 / num_test),
    batch_size=batch or None,
  )


def summarise(run: study.Run) -> dict:
  """With the sizes that the learner that tries all subsets needs, by T.

  They are stored (`experiments.boolean.exhaustive`), for some tasks. There is none where
  labels have noise, the subset is given or cells are of several tasks.
  """
  floors: dict[int, Floor | None] = {}
  for length in np.unique(run.records.table["length"]).tolist():
    every = [cell.trial.task for cell in run.cells.values()]
    (task, *others) = dict.fromkeys(own for own in every if own.length == length)
    if others or task.noise or task.subset:
      continue
    floors[length] = stored_floor(task)
  return summarise_success(run.records, floors)


STUDY = study.Study(
  settings=Settings,
  build=build,
  summarise=summarise,
  draw=lambda run, summary: success_figures.success(run.records, summary),
  table=tables.successes,
  output_dir="runs/boolean_sample_complexity",
  search=adaptive,
  check=check_search,
)

if __name__ == "__main__":
  program.main(STUDY)
