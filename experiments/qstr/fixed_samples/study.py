"""From which m on does training to the end on m prompts learn the task?

    sepfx fixed-samples --preset=fixed_samples

A learner may look at a fixed sample as often as it likes: this n is the one of the main
paper's theorems. Trains on m prompts of 1STR for all steps, a quarter of them held out to
choose the check by. A trial has succeeded when the test risk is below a share of uniform
attention's there. Beside the models, learners that are told a part of the answer, and
bounds.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from sepfx import models
from sepfx.commands import program
from sepfx.drawing import success_figures
from sepfx.errors import require
from sepfx.statistics.levels import Level
from sepfx.statistics.success_summary import summarise_success
from sepfx.studies import study, tables
from sepfx.studies.parts import made_from, model_from, one_of, optimizer_from
from sepfx.studies.searches import adaptive, check_search
from sepfx.studies.settings import Common, setting
from sepfx.tasks import QSTR, independent, shared
from sepfx.tasks.codes import KINDS
from sepfx.training import ERM, Trial

from . import planted

_TASKS = {"qstr": independent, "simple_qstr": shared}


@dataclasses.dataclass(frozen=True)
class Settings(Common):
  task: str = setting("qstr", f"What is learned: {', '.join(_TASKS)}.")
  model: str = setting(
    ("transformer",),
    f"Who learns: {', '.join(models.NAMES['regression'])}, with fields as in "
    "transformer:num_heads=2, or package.module:factory.",
    flag="models",
    kind="grid",
  )
  length: int = setting(
    (4, 8), "N, number of tokens in a prompt.", flag="lengths", kind="grid"
  )
  sample_size: int = setting(
    (50, 100, 200, 400, 800), "m, of prompts.", flag="sample_sizes", kind="grid"
  )
  search: str = setting(
    "adaptive", "An adaptive search, or all trials (grid).", kind="free"
  )
  num_trials: int = setting(
    40, "Trials of each model and length; on a grid of each cell.", kind="count"
  )
  uniform_fraction: float = setting(
    0.5, "Test risk to be below, as a fraction of uniform attention's (1 - 1/N)."
  )
  validation: float = setting(
    0.25, "Share of the m prompts by which the check is chosen.", kind="fixed"
  )
  steps: int = setting(4000, "Steps of a trial.", kind="fixed")
  batch_size: int = setting(
    64, "Prompts per step; all to train on where these are fewer."
  )
  weight_decay: float = setting(0.01, "AdamW's decoupled weight decay.")
  check_every: int = setting(100, "Steps between two evaluations.", kind="fixed")
  num_test: int = setting(2000, "Test prompts of a trial.", kind="fixed")
  codes: str = setting("distinct", f"Position codes: {', '.join(KINDS)}.")
  token_dim: int = setting(10, "d.")
  num_parameters: int | None = setting(
    None, "About how many parameters a model has, its widths scaled; none for its own."
  )


def build(settings: Settings) -> Trial:
  indices = _TASKS[one_of(settings, "task", _TASKS)]
  task = made_from(settings, QSTR, indices=indices)
  fraction = settings.uniform_fraction
  require(0 < fraction < 1, "uniform_fraction", fraction, "a number between 0 and 1")
  takes = "a share above 0: the test prompts choose no check here"
  require(settings.validation > 0, "validation", settings.validation, takes)
  risk = task.uniform_attention_risk()
  whole = made_from(
    settings,
    ERM,
    optimizer=optimizer_from(settings),
    threshold=Level(fraction, of_uniform=True).threshold(risk or 0.0),
    max_steps=settings.steps,
    batch_size=None,
  )
  batch = min(settings.batch_size, whole.num_training)
  protocol = dataclasses.replace(whole, batch_size=batch)
  return protocol.trial(task, task, model_from(settings, task), settings.model)


def summarise(run: study.Run) -> dict[str, Any]:
  """With what planted learners need, and bounds, by length; for 1STR alone."""
  trials = {cell.trial for cell in run.cells.values()}
  kinds = {(t.task.length, t.task.token_dim, t.protocol.threshold) for t in trials}
  lengths = [length for length, *_ in kinds]
  of_all = all(
    t.task.indices is independent
    and t.task.sparsity == 1
    and t.task.link.name == "linear"
    for t in trials
  )
  floors, known = {}, []
  for length, d, threshold in sorted(kinds):
    if not of_all or lengths.count(length) > 1:
      continue  # several tasks have this length: none is the floor of all
    own = planted.planted_size("knows_index", length, d, threshold)
    few = length**length <= planted.MOST_RULES
    rule = planted.planted_size("best_rule", length, d, threshold) if few else None
    floors[length] = own
    known.append(
      {
        "length": length,
        "threshold": threshold,
        "knows_index": own.size,
        "best_rule": rule.size if rule else None,
        "labels": planted.label_floor(length, d, threshold),
        "first_layer": planted.first_layer_floor(length, d, threshold),
      }
    )
  found = summarise_success(run.records, floors, "N", "knows the index")
  return {**found, "planted": known}


def table(summary: dict[str, Any]) -> list[Any]:
  lines = [
    f"N = {own['length']}: least squares that knows the index needs "
    f"m = {own['knows_index']}"
    + (f", the best of all rules {own['best_rule']}" if own["best_rule"] else "")
    + f"; no learner less than {own['labels']:.3g}, no stationary feedforward network "
    f"less than {own['first_layer']:.3g} (Theorem 6), on average over links."
    for own in summary["planted"]
  ]
  return [*tables.successes(summary), *lines]


STUDY = study.Study(
  settings=Settings,
  build=build,
  summarise=summarise,
  draw=lambda run, summary: success_figures.success(run.records, summary),
  table=table,
  output_dir="runs/fixed_samples",
  search=adaptive,
  check=check_search,
)

if __name__ == "__main__":
  program.main(STUDY)
