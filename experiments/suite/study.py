"""Which mixer needs how many samples for what? Tasks of tokens at each mixer's best rate.

    sepfx suite --preset=suite_quick

Trains every mixer, in a backbone, on every task: a pilot trial at every other rate, and
then at the rates next to the best. Those that come near it get more trials. n is the
number of sequences after which the share of wrong answers is first below the threshold.
"""

from __future__ import annotations

import dataclasses
from typing import Any, get_args

import jax
import numpy as np

from sepfx import specifications
from sepfx.commands import program
from sepfx.errors import InvalidSetting, require
from sepfx.models.mixers import MIXERS, Backbone, check_causal
from sepfx.models.mixers.backbone import Norm, Positions
from sepfx.statistics.best_summary import summarise_best
from sepfx.statistics.levels import Level
from sepfx.studies import study
from sepfx.studies.parts import made_from, optimizer_from
from sepfx.studies.searches import Pilots
from sepfx.studies.settings import Chosen, Common, setting
from sepfx.tasks.tokens import TASKS
from sepfx.training import Online, Trial

from . import matrix, pictures

# What tasks of tokens have: see `sepfx.tasks.tokens.TokenTask`.
_OF_TASKS = ("name", "length", "vocabulary", "objective", "init", "sample", "encode")


@dataclasses.dataclass(frozen=True)
class Settings(Common):
  task: str = setting(
    ("mqar", "induction_heads"),
    f"What is learned: {', '.join(TASKS)}, with fields as in mqar:num_pairs=8, or "
    "package.module:factory.",
    flag="tasks",
    kind="grid",
  )
  model: str = setting(
    ("attention", "delta"),
    f"Who mixes: {', '.join(MIXERS)}, with fields as in attention:num_heads=2, or "
    "package.module:factory of a causal mixer; base_convolution+based for one of each, "
    "layer by layer.",
    flag="models",
    kind="grid",
  )
  learning_rate: float = setting(
    (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1),
    "The optimizer's; those to choose from. Every other one comes first, then those next "
    "to the best.",
    flag="learning_rates",
    kind="grid",
  )
  num_trials: int = setting(3, "Trials of each cell that is not given up.", kind="count")
  threshold: float = setting(0.1, "Share of wrong answers to be below.", kind="fixed")
  num_layers: int = setting(2, "Layers of the backbone.")
  width: int = setting(64, "Of the residual stream.")
  mlp_width: int | None = setting(0, "Hidden units of an MLP; none for 4 widths.")
  positions: str = setting(
    "attention",
    f"Added first: {', '.join(get_args(Positions))}; or attention, which is learned ones "
    "for models of which a mixer is called attention and none for others.",
  )
  norm: str = setting("layer", f"Before each part: {', '.join(get_args(Norm))}.")
  convolution: int = setting(4, "Tokens of a convolution before a mixer; 0 for none.")
  batch_size: int = setting(64, "Fresh sequences per step.")
  weight_decay: float = setting(0.1, "AdamW's decoupled weight decay.")
  check_every: int = setting(5, "Steps between two evaluations.", kind="fixed")
  num_test: int = setting(1000, "Test sequences of a trial.", kind="fixed")
  max_samples: int = setting(100_000, "Sequences that a trial has.", kind="budget")


def build(settings: Settings) -> Trial:
  task = named(settings.task)
  positions = settings.positions
  if positions == "attention":
    positions = "learned" if "attention" in matrix.mixers_of(settings.model) else "none"
  model = made_from(
    settings,
    Backbone,
    mixers=settings.model,
    vocabulary=task.vocabulary,
    positions=positions,
  )
  optimizer = optimizer_from(settings)
  protocol = made_from(
    settings, Online, optimizer=optimizer, thresholds=(settings.threshold,)
  )
  return protocol.trial(task, task, model, settings.model)


def named(text: str) -> Any:
  """The task of a specification.

  Raises:
    InvalidSetting: if there is none, or for a field that it does not have.
  """
  specification = specifications.parse(text, "task")
  known = TASKS.get(specification.name)
  takes = f"{', '.join(TASKS)} or package.module:factory"
  if known is None:
    factory = specifications.imported(specification.name, "task", takes)
    made = factory(**specifications.typed(specification, factory, "task"))
    has = all(hasattr(made, name) for name in _OF_TASKS)
    require(has, "task", text, f"a task of tokens, which has {', '.join(_OF_TASKS)}")
    return made
  return dataclasses.replace(
    known, **specifications.typed(specification, type(known), "task")
  )


def summarise(run: study.Run) -> dict[str, Any]:
  levels = [Level(run.chosen.one("threshold"))]
  nothing = np.full(len(run.records.table), np.nan)
  axes = ("learning_rate",)
  found = summarise_best(run.records, levels, run.checks(), nothing, axes=axes)
  return {**found, "matrix": matrix.entries(found, run)}


def check(chosen: Chosen) -> None:
  """Refuses what is no mixer, one of somebody's own that sees the future, and one task
  twice."""
  tasks = [named(text) for text in chosen.values["task"]]
  names = [task.name for task in tasks]
  takes = "tasks of different names: difficulties are an axis, as in --num_pairs=4,8"
  require(len(set(names)) == len(names), "task", ",".join(chosen.values["task"]), takes)
  width, length = chosen.values["width"][0], min(8, *(task.length for task in tasks))
  rows = jax.random.normal(jax.random.key(0), (2, length, width))
  for name in chosen.values["model"]:
    mixers = matrix.mixers_of(name)
    try:
      model = Backbone(name, num_layers=len(mixers), width=width, mlp_width=0)
      jax.eval_shape(model.init, jax.random.key(0), rows)
      model.state_size(length)
      if not {*mixers} <= {*MIXERS}:
        check_causal(model, rows, name)
    except InvalidSetting as error:
      own = error.setting == "mixers"
      raise InvalidSetting(
        "model" if own else error.setting, name, error.takes
      ) from error


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
)

if __name__ == "__main__":
  program.main(STUDY)
