"""How many samples does each architecture need at its own best learning rate?

    sepfx best-rate --preset=best_rate

Trains every model at every rate: two pilot trials of each, then more of those rates that
come near the best. The rest is as in `sepfx sample-complexity`.
"""

from __future__ import annotations

import dataclasses

from sepfx.commands import program
from sepfx.drawing import best_figures
from sepfx.statistics.best_summary import summarise_best
from sepfx.studies import study
from sepfx.studies.searches import Pilots
from sepfx.studies.settings import fields, setting
from sepfx.tasks import QSTR
from sepfx.training import Trial

from . import best_tables, levels, sample_complexity


@dataclasses.dataclass(frozen=True)
class Settings(sample_complexity.Settings):
  model: str = setting(
    ("transformer", "linear_attention", "ffn", "relu_rnn", "lru", "min_gru"),
    fields(sample_complexity.Settings)["models"].metadata["help"],
    flag="models",
    kind="grid",
  )
  length: int = setting(
    (4, 8, 16), "N, number of tokens in a prompt.", flag="lengths", kind="grid"
  )
  learning_rate: float = setting(
    (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1),
    "The optimizer's; those to choose from.",
    flag="learning_rates",
    kind="grid",
  )
  num_trials: int = setting(6, "Trials of each cell that is not given up.", kind="count")
  thresholds: tuple[float, ...] = setting(
    (), "Test losses whose first passage is timed.", kind="list"
  )
  uniform_fractions: tuple[float, ...] = setting(
    (0.5,), "Further ones, as fractions of uniform attention's (1 - 1/N).", kind="list"
  )
  check_every: int = setting(1, "Steps between two evaluations.", kind="fixed")


def unknowns(trial: Trial) -> float | None:
  """q d over the labels of a training prompt, for the linear link."""
  task = trial.task
  if not isinstance(task, QSTR) or task.link.name != "linear":
    return None
  labels = {"qstr": task.length, "simple_qstr": 1}.get(task.name)
  return None if labels is None else task.sparsity * task.token_dim / labels


def summarise_run(run: study.Run) -> dict:
  risk = run.per_row(lambda trial: levels.reference_risk(trial.test_task))
  own, known = levels.levels_of(run.chosen), run.per_row(unknowns)
  return summarise_best(run.records, own, run.checks(), risk, run.against, known)


STUDY = study.Study(
  settings=Settings,
  build=sample_complexity.build,
  summarise=summarise_run,
  draw=lambda _, summary: best_figures.best_rates(summary),
  table=best_tables.best_rates,
  output_dir="runs/best_rate",
  along_any_axis=True,
  chosen_from="learning_rate",
  check=sample_complexity.check,
  search=lambda cells, chosen: Pilots(cells, chosen.one("num_trials")),
)

if __name__ == "__main__":
  program.main(STUDY)
