"""What studies of mixers have in common: tasks, models, the backbone around a mixer."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from sepfx import specifications
from sepfx.errors import InvalidSetting, one_line, require
from sepfx.models.mixers import MIXERS, Backbone, check_causal, taking_turns
from sepfx.models.mixers.backbone import Norm, Positions
from sepfx.studies.parts import made_from
from sepfx.studies.settings import Chosen, Common, setting
from sepfx.tasks.tokens import TASKS
from sepfx.training.checks import check_model

# Sequences of a task of somebody's own that are looked at.
_DRAWN = 100
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
      raise InvalidSetting("task", text, f"{takes} ({_said(error)})") from error
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


def check(chosen: Chosen) -> None:
  """Refuses what is no mixer, one of somebody's own that sees the future, and one task
  twice."""
  tasks = [named(text) for text in chosen.values["task"]]
  names = [task.name for task in tasks]
  takes = "tasks of different names: difficulties are an axis, as in --num_pairs=4,8"
  require(len(set(names)) == len(names), "task", ",".join(chosen.values["task"]), takes)
  for task, text in zip(tasks, chosen.values["task"], strict=True):
    if type(task) not in {type(known) for known in TASKS.values()}:
      _check_task(task, text)
  length = min(8, *(task.length for task in tasks))
  for name in chosen.values["model"]:
    for width in chosen.values["width"]:
      _check_mixers(name, width, length)


def _said(error: Exception) -> str:
  return f"it raised: {type(error).__name__}: {one_line(error)}"


def _check_task(task: Any, text: str) -> None:
  """Refuses one of somebody's own whose sequences are none, by drawing some."""

  @jax.jit
  def draw(key: PRNGKeyArray) -> tuple[Any, Any, Any]:
    planted = task.init(key)
    sample = task.sample(key, planted, _DRAWN)
    encoded = task.encode(planted, sample)
    tokens, asked = encoded if isinstance(encoded, tuple) else (encoded, None)
    return tokens, asked, sample.labels

  try:
    N, V, best = task.length, task.vocabulary, task.best_constant_error()
    tokens, asked, labels = map(np.asarray, draw(jax.random.key(0)))
  except Exception as error:
    takes = "a task of tokens, such as subclasses of sepfx.tasks.tokens.TokenTask "
    raise InvalidSetting("task", text, f"{takes}({_said(error)})") from error
  if asked.ndim == 0:  # None: all positions are
    asked = np.broadcast_to(np.arange(N), (_DRAWN, N))
  M = asked.shape[-1] if asked.ndim == 2 else 1
  drawn = {"tokens": (tokens, N, 0, V), "asked": (asked, M, 0, N)}
  for name, (own, width, first, end) in {**drawn, "labels": (labels, M, -1, V)}.items():
    takes = f"a task with integer {name} of shape {(_DRAWN, width)} (these are "
    takes += f"{own.dtype} of shape {own.shape})"
    proper = np.issubdtype(own.dtype, np.integer) and own.shape == (_DRAWN, width)
    require(proper, "task", text, takes)
    takes = f"a task with {name} from {first} to {end - 1} (these: {own.min()} to "
    takes += f"{own.max()})"
    require(bool(first <= own.min() and own.max() < end), "task", text, takes)
  asks = bool(np.any(labels >= 0))
  require(asks, "task", text, "a task that asks for something (all labels are -1)")
  takes = f"a task with a best_constant_error above 0, not {best:g}: where it is 1 - 1 / "
  takes += "num_answers, these are the tokens among which answers are"
  require(best > 0, "task", text, takes)


def _check_mixers(name: str, width: int, length: int) -> None:
  mixers = mixers_of(name)
  rows = jax.random.normal(jax.random.key(0), (2, length, width))
  try:
    model = Backbone(name, num_layers=len(mixers), width=width, mlp_width=0)
    jax.eval_shape(model.init, jax.random.key(0), rows)
    model.state_size(length)
    if not {*mixers} <= {*MIXERS}:
      check_model(model, name, rows, rows.shape[:2])
      check_causal(model, rows, name)
  except InvalidSetting as error:
    own = error.setting == "mixers"
    raise InvalidSetting("model" if own else error.setting, name, error.takes) from error
  except Exception as error:
    if {*mixers} <= {*MIXERS}:
      raise
    # A mixer of somebody's own may raise anything.
    takes = "mixers, flax.linen modules with a field width of [n N width] -> [n N width] "
    raise InvalidSetting("model", name, f"{takes}({_said(error)})") from error
