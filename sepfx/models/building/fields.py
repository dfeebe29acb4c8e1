"""A module's fields: what records call it after, and what an axis changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import flax.linen as nn

from sepfx import kinds, specifications
from sepfx.errors import InvalidSetting, require
from sepfx.models.building import nnx_modules


def record_name(module: nn.Module) -> str:
  """How records call a module: its linen `name`, or its class.

  With the class stand those of its fields that are not at their defaults, so that two
  modules of a class differ: "Transformer:num_heads=2". A wrapper of `flax.nnx` is called
  like what it wraps.

  Raises:
    InvalidSetting: for a module without a name that has an array in a field.
  """
  if module.name is not None:
    return module.name
  if nnx_modules.is_wrapped(module):
    return specifications.with_fields(*nnx_modules.given(module))
  given = {}
  for field in sorted(dataclasses.fields(module), key=lambda own: bool(own.kw_only)):
    value = getattr(module, field.name)
    if getattr(value, "shape", ()):
      own = type(module).__name__
      takes = f"a module with a name, as in {own}(..., name='mine'): its field "
      raise InvalidSetting("model", own, f"{takes}{field.name} is an array")
    if field.name not in ("parent", "name") and value != field.default:
      inner = isinstance(value, nn.Module)
      given[field.name] = f"({record_name(value)})" if inner else value
  return specifications.with_fields(type(module).__name__, given)


def has_field(module: nn.Module, name: str) -> bool:
  """Whether a module, or the one that it wraps, has a field of this name."""
  if nnx_modules.is_wrapped(module):
    return name in nnx_modules.names(module)
  if name in kinds.fields_of(type(module)):
    return True
  inner = getattr(module, "model", None)
  return isinstance(inner, nn.Module) and has_field(inner, name)


def with_fields(module: nn.Module, fields: Mapping[str, Any]) -> nn.Module:
  """Returns a module with other values of some fields, those of what is inside it too.

  Raises:
    InvalidSetting: for a field that neither it nor the module that it wraps has.
  """
  for name, value in fields.items():
    if nnx_modules.is_wrapped(module) and has_field(module, name):
      module = nnx_modules.with_field(module, name, value)
    elif name in kinds.fields_of(type(module)):
      module = specifications.with_field(module, name, value, name)
    else:
      takes = f"no value: {record_name(module)} has no such field"
      require(has_field(module, name), name, value, takes)
      inner = with_fields(getattr(module, "model"), {name: value})  # noqa: B009
      module = specifications.with_field(module, "model", inner, name)
  return module
