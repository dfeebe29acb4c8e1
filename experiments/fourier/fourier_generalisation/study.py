"""How does the generalisation gap grow with degree and sparsity? Figure 1.

Of *A Sharper Picture of Generalization in Transformers*.

    sepfx fourier-generalisation --degrees=1,2 --components=2,4

Trains on fixed samples of a function with few Fourier components until the training loss
is small, and draws how much larger the loss is on other inputs. Started again on its own
output directory, a run goes on where it stopped.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from sepfx import models
from sepfx.commands import options, program
from sepfx.ensembles import Cell
from sepfx.errors import InvalidSetting, require
from sepfx.studies import beside, study
from sepfx.studies.parts import made_from, optimizer_from
from sepfx.studies.settings import Common, setting
from sepfx.tasks import FourierSparse, UnseenStrings
from sepfx.training import ERM, Trial

from .. import tables as fourier_tables
from . import figure as gap_figures
from .summary import summarise_gaps

_AXES = ("degree", "num_components")
# Up to this T all inputs are tested on.
_ALL_INPUTS = 16


@dataclasses.dataclass(frozen=True)
class Settings(Common):
  model: str = setting(
    ("transformer",),
    f"Who learns: {', '.join(models.NAMES['regression_on_bits'])}, with fields as in "
    "transformer:num_layers=3, or package.module:factory.",
    flag="models",
    kind="grid",
  )
  length: int = setting((12,), "T, number of bits.", flag="lengths", kind="grid")
  degree: int = setting(
    (1, 2, 3, 4), "d, bits in each parity.", flag="degrees", kind="grid"
  )
  num_components: int = setting(
    (2, 4, 8, 12), "k, number of parities.", flag="components", kind="grid"
  )
  sample_size: int = setting(512, "n, training inputs, drawn with replacement.")
  num_trials: int = setting(5, "Functions of each cell.", kind="count")
  function: str = setting(
    "random", "random, tiling, majority or table:01... (the last two: T <= 16)."
  )
  signed: bool = setting(False, "Coefficients of either sign.")
  mixed: bool = setting(False, "Sizes of sets uniform on 1, ..., d.")
  convention: str = setting("signs", "Parities as signs, or as indicators.")
  max_components: int | None = setting(None, "Rows for components; none for T.")
  stop_loss: float = setting(0.02, "Training loss that ends a trial.", kind="fixed")
  max_steps: int = setting(
    20_000, "Steps of a trial that does not get there.", kind="budget"
  )
  check_every: int = setting(40, "Steps between two evaluations.", kind="fixed")
  num_test: int = setting(
    10_000, "Test inputs of a trial above T = 16; up to there all 2^T.", kind="fixed"
  )
  batch_size: int = setting(64, "Inputs per step, at most n.")
  learning_rate: float = setting(2e-3, "The optimizer's.")
  weight_decay: float = setting(1e-4, "AdamW's decoupled weight decay.")


def build(settings: Settings) -> Trial:
  n, T, stop = settings.sample_size, settings.length, settings.stop_loss
  task = made_from(settings, FourierSparse)
  require(1 <= n <= 2**T, "sample_size", n, f"an integer from 1 to 2^T = {2**T}")
  require(stop > 0, "stop_loss", stop, "a positive number")
  protocol = made_from(
    settings,
    ERM,
    threshold=stop,
    watched="train_loss",
    num_test=2**T if T <= _ALL_INPUTS else settings.num_test,
    optimizer=optimizer_from(settings),
  )
  model = models.build(settings.model, task)
  return protocol.trial(task, made_from(settings, UnseenStrings), model, settings.model)


STUDY = study.Study(
  settings=Settings,
  build=build,
  summarise=lambda run: summarise_gaps(run.records, _AXES),
  draw=lambda run, summary: gap_figures.gaps(run.records, summary, *_AXES),
  table=fourier_tables.gaps,
  output_dir="runs/fourier_generalisation",
  keep_weights=True,
  probes=("generalisation",),
)


def trained(
  path: str, flag: str = "run"
) -> tuple[beside.Part, list[tuple[np.void, Cell, Any]]]:
  """Reads a complete run with the weights of all its trials.

  Args:
    path: its directory.
    flag: where it was given.

  Returns:
    The run, and of each trial its row of the table, its cell and its weights.

  Raises:
    InvalidSetting: if it is no complete run of this study, or weights are missing.
  """
  try:
    part = beside.read(path, STUDY.settings, STUDY.cells, options.trusted())
  except InvalidSetting as error:
    raise InvalidSetting(flag, path, error.takes) from error
  records = part.records
  missing = len(set(map(records.name_of, records.table)) - set(records.models))
  require(not missing, flag, path, f"a run with all weights ({missing} are missing)")
  cells = {cell.name: cell for cell in part.cells}
  return part, [
    (row, cells[records.cell_of(row)], records.models[records.name_of(row)].params)
    for row in records.table
  ]


if __name__ == "__main__":
  program.main(STUDY)
