"""How many strings until the parity of all bits is learned, told step by step or not?

Theorems 7 and 8 of *A Sharper Picture of Generalization in Transformers*.

    sepfx chain-of-thought --lengths=10,12

Trains on fixed samples of n strings of T bits, with the T - 1 steps of each or with its
parity alone, and tests the answers on other strings, at the end of the model's own
chains. Draws the sample size at which half of the trials learn against T. Started again
on its own output directory, a run goes on where it stopped.
"""

from __future__ import annotations

import dataclasses
from typing import get_args

from sepfx import models
from sepfx.commands import program
from sepfx.errors import require
from sepfx.studies import study
from sepfx.studies.parts import made_from, optimizer_from
from sepfx.studies.searches import Adaptive
from sepfx.studies.settings import Chosen, Common, setting
from sepfx.tasks import ParityChain, UnseenChains
from sepfx.tasks.parity_chain import Mode
from sepfx.training import ERM, Trial

from .. import tables as fourier_tables
from . import figure as chain_figures
from .summary import summarise_chains


@dataclasses.dataclass(frozen=True)
class Settings(Common):
  model: str = setting(
    ("transformer",),
    f"Who learns: {', '.join(models.NAMES['steps'])}, with fields as in "
    "transformer:num_layers=3, or package.module:factory.",
    flag="models",
    kind="grid",
  )
  mode: str = setting(
    get_args(Mode),
    "chain: T - 1 steps of two bits; one_pass: all bits at once.",
    flag="modes",
    kind="grid",
  )
  length: int = setting((10, 12), "T, number of bits.", flag="lengths", kind="grid")
  sample_size: int = setting(
    (16, 32, 64, 128, 256, 512, 1024),
    "n, strings that the search chooses from; at each T those up to 2^T / 4.",
    flag="sample_sizes",
    kind="grid",
  )
  num_trials: int = setting(16, "Trials of each mode and length.", kind="count")
  accuracy_level: float = setting(
    0.9, "Share of right answers above which a trial has learned.", kind="fixed"
  )
  max_steps: int = setting(3000, "Steps of a trial that fails.", kind="budget")
  check_every: int = setting(100, "Steps between two evaluations.", kind="fixed")
  num_test: int = setting(1000, "Test strings of a trial.", kind="fixed")
  batch_size: int = setting(64, "Strings per step; all n where these are fewer.")
  weight_decay: float = setting(1e-4, "AdamW's decoupled weight decay.")
  run_to_end: bool = setting(False, "Train on after success.", kind="fixed")


def build(settings: Settings) -> Trial:
  level, batch = settings.accuracy_level, settings.batch_size
  require(0.5 < level < 1, "accuracy_level", level, "a number between 1/2 and 1")
  require(batch >= 1, "batch_size", batch, "an integer >= 1")
  task = made_from(settings, ParityChain)
  protocol = made_from(
    settings,
    ERM,
    threshold=1 - level,
    batch_size=min(batch, settings.sample_size),
    optimizer=optimizer_from(settings),
  )
  model = models.build(settings.model, task)
  return protocol.trial(task, made_from(settings, UnseenChains), model, settings.model)


def largest(length: int) -> int:
  """The largest sample size at T: three of four strings remain to be tested on."""
  return 2**length // 4


def check(chosen: Chosen) -> None:
  """Every T has a sample size, and every sample size a T."""
  lengths, sizes = chosen.values["length"], chosen.values["sample_size"]
  for length in lengths:
    takes = f"one of at most 2^T / 4 = {largest(length)}, for T = {length}"
    require(min(sizes) <= largest(length), "sample_size", min(sizes), takes)
  most = largest(max(lengths))
  takes = f"integers of at most 2^T / 4 = {most}, for T = {max(lengths)}"
  require(max(sizes) <= most, "sample_size", max(sizes), takes)


STUDY = study.Study(
  settings=Settings,
  build=build,
  summarise=lambda run: summarise_chains(
    run.records, run.per_row(lambda trial: trial.task.num_steps)
  ),
  draw=lambda run, summary: chain_figures.chains(run.records, summary),
  table=fourier_tables.chains,
  output_dir="runs/chain_of_thought",
  search=lambda cells, chosen: Adaptive(
    [c for c in cells if c.coordinates["sample_size"] <= largest(c.trial.task.length)],
    chosen.one("num_trials"),
  ),
  probes=("chain",),
  check=check,
)

if __name__ == "__main__":
  program.main(STUDY)
