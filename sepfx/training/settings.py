"""Fields of what a trial is made of, by name: what a grid's axes run over."""

from __future__ import annotations

import dataclasses
from typing import Any

from sepfx import kinds, specifications
from sepfx.errors import InvalidSetting, UnknownSetting, require
from sepfx.models import has_field, with_fields
from sepfx.training.trials import Trial

_PARTS = ("task", "model", "protocol", "optimizer")


def with_setting(trial: Trial, name: str, value: Any) -> Trial:
  """Returns a trial with another value of one field.

  A field of the task changes in the test task too, where both have the same value.

  Args:
    trial: any.
    name: a field of its task, model, protocol or optimizer; with one of these as a
      prefix ("model.units") where several have one of that name.
    value: the field's, or its text.

  Raises:
    InvalidSetting: if none of them has such a field or several have, or for a value
      that it does not take.
  """
  protocol = trial.protocol
  parts = {
    "task": trial.task,
    "model": trial.model,
    "protocol": protocol,
    "optimizer": protocol.optimizer,
  }
  prefix, dot, field = name.rpartition(".")
  require(not dot or prefix in parts, name, value, f"a prefix of {', '.join(_PARTS)}")
  owners = [
    part
    for part, own in parts.items()
    if part in ((prefix,) if prefix else _PARTS)
    and (has_field(own, field) if part == "model" else _has(own, field))
  ]
  if len(owners) != 1:
    among = ", ".join(f"{part}.{field}" for part in owners)
    if not owners:
      raise UnknownSetting(name, value, f"a field of {_described(trial, prefix)}")
    raise InvalidSetting(name, value, f"a prefix that says which is meant: {among}")
  (part,) = owners
  if part == "model":
    return dataclasses.replace(trial, model=with_fields(trial.model, {field: value}))
  changed = specifications.with_field(parts[part], field, value, name)
  if part == "optimizer":
    return dataclasses.replace(
      trial, protocol=dataclasses.replace(protocol, optimizer=changed)
    )
  if part == "protocol":
    return dataclasses.replace(trial, protocol=changed)
  test = trial.test_task
  if _has(test, field) and getattr(test, field) == getattr(trial.task, field):
    test = specifications.with_field(test, field, value, name)
  return dataclasses.replace(trial, task=changed, test_task=test)


def _has(own: Any, field: str) -> bool:
  return dataclasses.is_dataclass(own) and field in kinds.fields_of(type(own))


def _described(trial: Trial, prefix: str) -> str:
  """Which things were looked at, for a message."""
  names = {
    "task": f"the task {trial.task.name}",
    "model": f"the model {trial.coordinates['model']}",
    "protocol": f"the protocol {type(trial.protocol).__name__}",
    "optimizer": "its optimizer",
  }
  return names[prefix] if prefix else ", ".join(names.values())
