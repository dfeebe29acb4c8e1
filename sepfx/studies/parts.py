"""What trials are made of, from the settings of one cell."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeVar

import flax.linen as nn

from sepfx import kinds, models, specifications
from sepfx.errors import require
from sepfx.training import AdamW, FromOptax, optimizer

_T = TypeVar("_T")


def made_from(settings: Any, cls: type[_T], **others: Any) -> _T:
  """Makes a dataclass whose fields are settings of the same name.

  Args:
    settings: of one cell.
    cls: the dataclass, such as a protocol or a task.
    others: fields that are not, or are not those settings.
  """
  own = {
    field.name: getattr(settings, field.name)
    for field in dataclasses.fields(cls)  # type: ignore[arg-type]
    if hasattr(settings, field.name)
  }
  return cls(**{**own, **others})


def optimizer_from(settings: Any, **others: Any) -> AdamW | FromOptax:
  """Makes the optimizer of some settings.

  Args:
    settings: of one cell.
    others: fields of `AdamW` that are not settings.

  Raises:
    InvalidSetting: for a specification that cannot be used, or a setting that the
      optimizer does not have.
  """
  twice = "learning_rate" in specifications.parse(settings.optimizer, "optimizer").fields
  takes = "no learning_rate, which is a setting of its own"
  require(not twice, "optimizer", settings.optimizer, takes)
  made = optimizer(settings.optimizer, made_from(settings, AdamW, **others))
  defaults = {field.name: field.default for field in dataclasses.fields(settings)}
  for name in ("weight_decay", "clip_norm"):
    value = getattr(settings, name, None)
    same = isinstance(made, AdamW) or value == defaults.get(name)
    takes = f"its default with {settings.optimizer}: give it as a field of that"
    require(same, name, value, takes)
  return made


def model_from(settings: Any, task: Any) -> nn.Module:
  """Makes the model of some settings, of the size that they ask for.

  Args:
    settings: of one cell, with fields `model` and `num_parameters`.
    task: what it is to learn.

  Raises:
    InvalidSetting: for a model that cannot be made, or a size that no width gives it.
  """
  number = settings.num_parameters
  sizes = {} if number is None else models.sized(settings.model, task, number)
  return models.build(settings.model, task, sizes)


def named_task(settings: Any, names: Iterable[str], without: Sequence[str]) -> Any:
  """Makes a user's own task from its specification.

  Args:
    settings: of one cell, with a field `task`: "package.module:factory:field=value".
    names: of the tasks that the study has itself, for messages.
    without: settings of those tasks; an own task has them where it has such a field.

  Raises:
    InvalidSetting: if there is no such factory, or for a value of one of those settings
      that the task has no field for.
  """
  takes = ", ".join([*names, "package.module:factory"])
  specification = specifications.parse(settings.task, "task")
  factory = specifications.imported(specification.name, "task", takes)
  require(callable(factory), "task", settings.task, takes)
  task = factory(**specifications.typed(specification, factory, "task"))
  is_task = dataclasses.is_dataclass(task) and hasattr(task, "length")
  takes = f"a factory of a dataclass with a length, not {type(task).__name__}"
  require(is_task, "task", settings.task, takes)
  known = kinds.fields_of(type(task))
  defaults = {field.name: field.default for field in dataclasses.fields(settings)}
  changes = {"length": settings.length}
  for name in without:
    value = getattr(settings, name)
    if value != defaults[name]:
      takes = f"its default with the task {settings.task}, which has no such field"
      require(name in known, name, value, takes)
      changes[name] = value
  return dataclasses.replace(task, **changes)


def one_of(settings: Any, name: str, known: Collection[str]) -> str:
  """Returns a setting that is a name; raises `InvalidSetting` for an unknown one."""
  value = getattr(settings, name)
  require(value in known, name, value, f"one of {', '.join(known)}")
  return value
