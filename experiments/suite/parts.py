"""What studies of mixers have in common: tasks, models, the backbone around a mixer."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args

from sepfx import specifications
from sepfx.errors import InvalidSetting, require, said
from sepfx.models.mixers import MIXERS, Backbone, taking_turns
from sepfx.models.mixers.backbone import Norm, Positions
from sepfx.studies.parts import made_from
from sepfx.studies.settings import Common, setting
from sepfx.tasks.tokens import TASKS

# What tasks of tokens have: see `sepfx.tasks.tokens.TokenTask`.
_OF_TASKS = (
  "name", "length", "vocabulary", "objective", "init", "sample", "encode",
  "best_constant_error", "check_draw",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Mixed(Common):
  """Settings of every study of mixers."""

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
  weight_decay: float = setting(0.1, "AdamW's decoupled weight decay.")
  num_test: int = setting(1000, "Test sequences of a trial.", kind="fixed")


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
    require(callable(factory), "task", text, takes)
    try:
      made = factory(**specifications.typed(specification, factory, "task"))
      has = all(hasattr(made, name) for name in _OF_TASKS)
    except InvalidSetting:
      raise
    except Exception as error:  # a factory of somebody's own may raise anything
      raise InvalidSetting("task", text, f"{takes} ({said(error)})") from error
    takes = f"a task of tokens, which has {', '.join(_OF_TASKS)}"
    require(has, "task", text, takes)
    return made
  fields = specifications.typed(specification, type(known), "task")
  try:
    return dataclasses.replace(known, **fields)
  except InvalidSetting as error:
    if error.setting in fields:
      raise
    takes = (
      f"a task with a {error.setting} of its own, {error.takes} (not the {error.got} "
    )
    raise InvalidSetting("task", text, f"{takes}that {known.name} has)") from error


def mixers_of(model: str) -> list[str]:
  """Those that take turns layer by layer, without their fields."""
  return [specifications.base(each) for each in taking_turns(model)]


def backbone(settings: Mixed, task: Any) -> Backbone:
  """The mixers of some settings in a backbone for a task's tokens."""
  positions = settings.positions
  if positions == "attention":
    positions = "learned" if "attention" in mixers_of(settings.model) else "none"
  return made_from(
    settings,
    Backbone,
    mixers=settings.model,
    vocabulary=task.vocabulary,
    positions=positions,
  )
