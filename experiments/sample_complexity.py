"""How many samples does each architecture need? Figure 1 of the main paper.

    sepfx sample-complexity --preset=fig1a

Measures, for each model and length, the training prompts after which the test loss is
first below each threshold. On its own output directory a run goes on where it stopped.
"""

from __future__ import annotations

import dataclasses

from sepfx import models
from sepfx.commands import program
from sepfx.drawing import figures
from sepfx.ensembles import TASK_DRAWS
from sepfx.errors import require
from sepfx.statistics.summary import summarise
from sepfx.studies import study, tables
from sepfx.studies.parts import made_from, model_from, named_task, one_of, optimizer_from
from sepfx.studies.settings import Chosen, Common, setting
from sepfx.tasks import LINKS, QSTR, independent, shared
from sepfx.tasks.codes import KINDS
from sepfx.tasks.links import Link, ReLUTeacher
from sepfx.training import Online, Trial

from . import levels, published

_TASKS = {"qstr": independent, "simple_qstr": shared}
# Settings of those that a task of one's own need not have.
_OF_QSTR = (
  "token_dim", "sparsity", "link", "link_width", "codes", "code_dim", "max_length",
  "places", "encoding_prefactor",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Settings(Common):
  task: str = setting(
    "qstr", f"What is learned: {', '.join(_TASKS)}, or package.module:factory."
  )
  model: str = setting(
    ("transformer", "ffn", "gru"),
    f"Who learns: {', '.join(models.NAMES['regression'])}, with fields as in "
    "transformer:num_heads=2, or package.module:factory.",
    flag="models",
    kind="grid",
  )
  length: int = setting(
    (4, 8, 12), "N, number of tokens in a prompt.", flag="lengths", kind="grid"
  )
  num_trials: int = setting(5, "Trials of each cell.", kind="count")
  thresholds: tuple[float, ...] = setting(
    (0.7,), "Test losses whose first passage is timed.", kind="list"
  )
  uniform_fractions: tuple[float, ...] = setting(
    (), "Further thresholds, as fractions of uniform attention's (1 - 1/N).", kind="list"
  )
  check_every: int = setting(10, "Steps between two evaluations.", kind="fixed")
  num_test: int = setting(5000, "Test prompts of a trial.", kind="fixed")
  test_distribution: str = setting(
    "matched", "Test prompts: matched, or simple (all positions name the same tokens)."
  )
  task_draw: str = setting(
    "per_trial", f"Planted parameters: {' or '.join(TASK_DRAWS)}.", kind="fixed"
  )
  codes: str = setting("rademacher", f"Position codes: {', '.join(KINDS)}.")
  code_dim: int | None = setting(None, "d_e; none for floor(5 ln N).")
  max_length: int | None = setting(None, "N_max, number of codes; none for N.")
  places: str = setting("first", "Which N of N_max codes a prompt has: first or random.")
  encoding_prefactor: bool = setting(False, "Multiply codes by sqrt(d/q).")
  batch_size: int = setting(64, "Fresh prompts per step.")
  weight_decay: float = setting(0.01, "AdamW's decoupled weight decay.")
  max_samples: int = setting(1_000_000, "Prompts that a trial has.", kind="budget")
  token_dim: int = setting(10, "d.")
  sparsity: int = setting(1, "q, number of tokens a label depends on.")
  link: str = setting("linear", f"g of those tokens: {', '.join(LINKS)}.")
  link_width: int | None = setting(None, "m_g, units of relu_teacher; none for its own.")
  num_parameters: int | None = setting(
    None, "About how many parameters a model has, its widths scaled; none for its own."
  )
  screen: bool = setting(True, "Estimate the loss before evaluating it.", kind="fixed")
  published: str = setting(
    "", "Published means to draw beside: a name in experiments/published.", kind="free"
  )


def build(settings: Settings) -> Trial:
  if settings.task in _TASKS:
    link = _link(settings)
    task = made_from(settings, QSTR, link=link, indices=_TASKS[settings.task])
  else:
    task = named_task(settings, _TASKS, _OF_QSTR)
  test_task = task
  if one_of(settings, "test_distribution", ("matched", "simple")) == "simple":
    test_task = dataclasses.replace(task, indices=shared)
  protocol = made_from(
    settings,
    Online,
    optimizer=optimizer_from(settings),
    thresholds=levels.thresholds(settings, test_task),
  )
  return protocol.trial(task, test_task, model_from(settings, task), settings.model)


def _link(settings: Settings) -> Link:
  link, width = LINKS[one_of(settings, "link", LINKS)], settings.link_width
  if width is None:
    return link
  takes = f"none with the link {link.name}, which has no units"
  require(isinstance(link, ReLUTeacher), "link_width", width, takes)
  require(width >= 1, "link_width", width, "an integer >= 1")
  return ReLUTeacher(width)


def summarise_run(run: study.Run) -> dict:
  risk = run.per_row(lambda trial: levels.reference_risk(trial.test_task))
  own = levels.levels_of(run.chosen)
  return summarise(run.records, own, run.checks(), risk, run.keys(), run.against)


def draw(run: study.Run, summary: dict):
  risk = run.per_row(lambda trial: levels.reference_risk(trial.test_task))
  means = published.read(run.chosen.one("published"))
  own = levels.levels_of(run.chosen)
  return figures.sample_complexity(run.records, own, summary, risk, means, run.against)


def check(chosen: Chosen) -> None:
  published.read(chosen.one("published"))
  given = {name.rpartition(".")[2] for name in chosen.further}
  if any(chosen.values["num_parameters"]):
    for name in chosen.values["model"]:
      models.check_sized(name, QSTR(), given)


STUDY = study.Study(
  settings=Settings,
  build=build,
  summarise=summarise_run,
  draw=draw,
  table=tables.means,
  along_any_axis=True,
  output_dir="runs/sample_complexity",
  check=check,
)

if __name__ == "__main__":
  program.main(STUDY)
