"""How many samples does each architecture need at its own best learning rate?

    sepfx best-rate --preset=best_rate

Trains every model at every rate: two pilot trials of each, then more of those rates that
come near the best. `--choose=learning_rate,batch_size` chooses both together, and
`--choose` takes other axes as well. The rest is as in `sepfx sample-complexity`.
"""

from __future__ import annotations

import dataclasses
import math

from sepfx.commands import program
from sepfx.drawing import best_figures
from sepfx.errors import require
from sepfx.statistics.best import PILOTS
from sepfx.statistics.best_summary import summarise_best
from sepfx.studies import study
from sepfx.studies.searches import MOST_PILOTS, Pilots
from sepfx.studies.settings import Chosen, fields, setting
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
  choose: tuple[str, ...] = setting(
    ("learning_rate",), "Axes of whose values the best are chosen.", kind="list"
  )
  check_every: int = setting(
    1,
    "Steps between two evaluations; at batches of 64 where batch sizes are chosen from.",
    kind="fixed",
  )


def build(settings: Settings) -> Trial:
  if "batch_size" in settings.choose:
    own = check_steps(settings.check_every, settings.batch_size)
    settings = dataclasses.replace(settings, check_every=own)
  return sample_complexity.build(settings)


def check_steps(at_64: int, batch_size: int) -> int:
  """Steps between two checks at a batch size.

  The best n is expected to grow like the square root of the batch size up to 64
  (`sepfx.studies.searches.next_pilots`): there it is as many checks at all sizes. Above,
  checks are as many samples apart as at 64.

  Args:
    at_64: those at batches of 64.
    batch_size: at which.
  """
  if at_64 < 1 or batch_size < 1:  # refused where the trial is made
    return at_64
  ratio = 64 / batch_size
  return max(1, round(at_64 * (math.sqrt(ratio) if ratio > 1 else ratio)))


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
  axes = run.chosen.one("choose")
  return summarise_best(run.records, own, run.checks(), risk, run.against, known, axes)


def check(chosen: Chosen) -> None:
  sample_complexity.check(chosen)
  axes, taken = chosen.axes, chosen.one("choose")
  able = [name for name in axes if name not in ("task", "model", "length")]
  takes = f"axes with several values here: {', '.join(able)}"
  require(taken and set(taken) <= set(able), "choose", ",".join(taken), takes)
  if "batch_size" in taken:
    others = math.prod(len(axes[name]) for name in taken if name != "batch_size")
    takes = f"fewer than {MOST_PILOTS // PILOTS} settings at one batch size: each has "
    takes += f"{PILOTS} pilot trials, of {MOST_PILOTS} in all"
    require(others * PILOTS < MOST_PILOTS, "choose", ",".join(taken), takes)


STUDY = study.Study(
  settings=Settings,
  build=build,
  summarise=summarise_run,
  draw=lambda _, summary: best_figures.best_rates(summary),
  table=best_tables.best_rates,
  output_dir="runs/best_rate",
  along_any_axis=True,
  chosen_from=lambda chosen: chosen.one("choose"),
  check=check,
  search=lambda cells, chosen: Pilots(
    cells, chosen.one("num_trials"), chosen.one("choose")
  ),
)

if __name__ == "__main__":
  program.main(STUDY)
