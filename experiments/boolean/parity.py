"""When does a Transformer learn a sparse parity? Figure 3.

Of *Inductive Biases and Variable Creation in Self-Attention Mechanisms*.

    sepfx parity

Trains on fresh batches of bits labelled by the parity of s hidden ones, and draws the
held-out error of each trial against steps: it falls from chance to nothing at once.
Started again on its own output directory, a run goes on where it stopped.
"""

from __future__ import annotations

import dataclasses

from sepfx.commands import program
from sepfx.errors import require
from sepfx.statistics.passages import Checks
from sepfx.studies import study
from sepfx.studies.parts import made_from
from sepfx.studies.settings import setting
from sepfx.tasks import FUNCTIONS, SparseBoolean
from sepfx.training import Online, Trial

from . import bits
from .transitions import draw_transitions, table_of_transitions, transitions


@dataclasses.dataclass(frozen=True)
class Settings(bits.Bits):
  model: str = setting(
    ("transformer",), "Who learns, as in other studies.", flag="models", kind="grid"
  )
  length: int = setting((10, 15, 20), "T, number of bits.", flag="contexts", kind="grid")
  num_trials: int = setting(10, "Trials at each context and noise rate.", kind="count")
  max_steps: int = setting(10_000, "Steps of a censored trial.", kind="budget")
  num_test: int = setting(2000, "Held-out inputs of a trial.", kind="fixed")
  batch_size: int = setting(2048, "Fresh inputs per step.")


def build(settings: Settings) -> Trial:
  level, steps, every = settings.accuracy_level, settings.max_steps, settings.check_every
  require(0.5 < level < 1, "accuracy_level", level, "a number between 1/2 and 1")
  require(steps >= every, "max_steps", steps, f"at least check_every = {every}")
  require(steps < 2**31, "max_steps", steps, f"an integer below 2^31 = {2**31}")
  return bits.trial(
    settings,
    made_from(settings, SparseBoolean, function=FUNCTIONS["parity"]),
    Online,
    thresholds=(round(1 - level, 12),),  # 0.01, not 0.010000000000000009
    max_samples=steps * settings.batch_size,
  )


def summarise(run: study.Run) -> dict:
  checks = run.checks()
  in_steps = Checks(*(own / checks.step for own in checks))
  return transitions(run.records, checks.step, in_steps)


STUDY = study.Study(
  settings=Settings,
  build=build,
  summarise=summarise,
  draw=lambda run, summary: draw_transitions(run.records, summary),
  table=table_of_transitions,
  output_dir="runs/parity",
)

if __name__ == "__main__":
  program.main(STUDY)
