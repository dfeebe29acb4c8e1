"""The settings of a study: fields that are flags, any of which may be an axis."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from absl import flags

from sepfx import kinds, specifications
from sepfx.errors import InvalidSetting, UnknownSetting, require

flags.disclaim_key_flags()

# Settings of the first layout that are gone: heads are fields of a model's
# specification now.
_FORMER = ("num_heads",)
_32_BITS = "an integer between -2^31 and 2^31"

# What a setting may do:
# "axis": take several values, which become an axis of the grid.
# "grid": the same, and a run that is there already takes any others beside its own.
# "list": take several values that belong together and are one.
# "budget": be larger when a run is started again; so may
# "count": the number of trials.
# "fixed": nothing: a run has one value for ever.
# "free": be anything, since no result depends on it.
Kind = Literal["axis", "grid", "list", "budget", "count", "fixed", "free"]


def setting(default: Any, help: str, *, flag: str = "", kind: Kind = "axis") -> Any:
  """A field of a study's settings.

  Args:
    default: its value, or a tuple of several for the kinds that take them.
    help: shown by `--help`.
    flag: name on the command line; "" for the field's.
    kind: what it may do.
  """
  metadata = {"help": help, "flag": flag, "kind": kind}
  return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Common:
  """What every study has."""

  learning_rate: float = setting(1e-3, "The optimizer's.")
  optimizer: str = setting(
    "adamw",
    "adamw, or an optimizer of optax or optax.contrib by its name; with fields, as in "
    "adamw:decay_steps=5000 or sgd:momentum=0.9.",
  )
  l2: float | None = setting(None, "Penalty on all squared parameters; none for none.")
  init_scale: float | None = setting(
    None, "Factor of all initial parameters; none for none."
  )
  matmul_precision: str = setting(
    "float32",
    "In which accelerators multiply matrices: float32 as PyTorch and CPUs do, "
    "tensorfloat32 (on TPUs three products of bfloat16) or bfloat16 (on GPUs TF32).",
  )
  seed: int = setting(0, "Seed of everything random.", kind="fixed")


def fields(cls: type) -> dict[str, dataclasses.Field]:
  """The fields of a class of settings by the name of their flag."""
  return {
    field.metadata["flag"] or field.name: field for field in dataclasses.fields(cls)
  }


@dataclasses.dataclass(frozen=True)
class Chosen:
  """What a run was asked for, or what stands in its directory.

  Attributes:
    cls: the class of settings.
    values: all values of each field by its name.
    further: likewise of fields of the task, the model, the protocol or the optimizer that
      are no settings of the study.
  """

  cls: type
  values: Mapping[str, tuple]
  further: Mapping[str, tuple]

  @property
  def axes(self) -> dict[str, tuple]:
    """What the grid runs over: the grid's own settings and all with several values."""
    kinds = {field.name: field.metadata["kind"] for field in fields(self.cls).values()}
    own = {
      name: values
      for name, values in self.values.items()
      if kinds[name] == "grid" or len(values) > 1
    }
    grid = {name: own[name] for name in own if kinds[name] == "grid"}
    return {**grid, **own, **{k: v for k, v in self.further.items() if len(v) > 1}}

  def at(self, point: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Returns the settings of one cell and its further fields.

    Args:
      point: a value of each axis.
    """
    one = {name: point.get(name, values[0]) for name, values in self.values.items()}
    further = {name: point.get(name, values[0]) for name, values in self.further.items()}
    return self.cls(**one), further

  def one(self, name: str) -> Any:
    """The value of a setting that has only one."""
    (value,) = self.values[name]
    return value

  def stored(self) -> dict[str, Any]:
    """As config.json has them, by flag: a list where there is or may be an axis."""
    found: dict[str, Any] = {}
    for flag, field in fields(self.cls).items():
      values = self.values[field.name]
      if field.metadata["kind"] == "free":
        continue
      several = field.metadata["kind"] == "grid" or len(values) > 1
      found[flag] = list(values) if several else values[0]
      if field.metadata["kind"] == "list":
        found[flag] = list(values[0])
    for name, values in self.further.items():
      found[name] = list(values) if len(values) > 1 else values[0]
    return found

  def flag_of(self, name: str) -> str:
    """The flag that a setting stands under."""
    for flag, field in fields(self.cls).items():
      if field.name == name:
        return flag
    return name


def define(cls: type, values: flags.FlagValues) -> None:
  """Defines the flags of a class of settings."""
  for flag, field in fields(cls).items():
    is_list = field.metadata["kind"] == "list"
    default = field.default if is_list or field.metadata["kind"] == "grid" else None
    several = default if isinstance(default, tuple) else (field.default,)
    text = ",".join(map(specifications.canonical, several))
    hints = typing.get_type_hints(cls)
    switch = hints[field.name] is bool
    help = field.metadata["help"]
    if field.metadata["kind"] in ("axis", "grid"):
      help = f"{help} [several]"
    own: flags.Flag = flags.Flag(
      flags.ArgumentParser(), None, flag, text, help, boolean=switch
    )
    own.default_as_str = repr(text)  # absl's own says 'true' of any text
    flags.DEFINE_flag(own, values)


def overriding(further: Sequence[str], given: Sequence[str]) -> list[str]:
  """Arguments of further fields, where those of the command line hold before a file's.

  As a flag's last value holds, while two on the line are refused.

  Args:
    further: "--name=value", those that stand in flag files among them.
    given: what stands on the command line.
  """
  names = {argument.partition("=")[0] for argument in given}
  of_files = [own for own in further if own.partition("=")[0] not in names]
  return [*of_files, *(a for a in given if a in further)]


def from_flags(
  cls: type, values: flags.FlagValues, unknown: Sequence[str] = ()
) -> Chosen:
  """Reads the flags.

  Args:
    cls: the class of settings.
    values: the parsed flags.
    unknown: arguments that are no flag: "--name=value" of further fields.

  Raises:
    InvalidSetting: for a value of another type, an empty list, one value twice, several
      values of a setting that cannot be an axis, or an argument that is no flag.
  """
  further = {}
  for argument in unknown:
    name, separator, text = argument.removeprefix("--").partition("=")
    takes = "a flag (see --help) or --FIELD=VALUE with a field of task or model"
    if not (argument.startswith("--") and separator and name):
      raise UnknownSetting("argument", argument, takes)
    require(name not in further, name, text, "its values in one flag, with commas")
    further[name] = text
  texts = {flag: str(values[flag].value) for flag in fields(cls)}
  return _chosen(cls, texts, further)


def from_values(cls: type, values: Mapping[str, Any]) -> Chosen:
  """Reads values of Python by the names of flags; those left out have their defaults.

  Args:
    cls: the class of settings.
    values: one, or a sequence of several; also of further fields.

  Raises:
    InvalidSetting: as `from_flags`.
  """
  known = fields(cls)
  texts = {flag: _text(field.default) for flag, field in known.items()}
  own = {name: _text(value) for name, value in values.items()}
  further = {name: text for name, text in own.items() if name not in known}
  return _chosen(cls, {**texts, **{k: own[k] for k in own if k in known}}, further)


def _text(value: Any) -> str:
  """A value of Python, or several, as a flag has it."""
  if isinstance(value, np.ndarray | np.generic):
    value = value.tolist()
  several = isinstance(value, Iterable) and not isinstance(value, str)
  return ",".join(map(specifications.canonical, value if several else (value,)))


def _chosen(cls: type, texts: Mapping[str, str], others: Mapping[str, str]) -> Chosen:
  """Settings from the texts of flags, and of further fields."""
  hints = typing.get_type_hints(cls)
  chosen = {}
  for flag, field in fields(cls).items():
    kind, text = field.metadata["kind"], texts[flag]
    annotation = hints[field.name]
    if kind == "list":
      (element, *_) = typing.get_args(annotation)
      parts = [part for part in text.split(",") if part]
      members = {kinds.value_of(part, element, flag) for part in parts}
      chosen[field.name] = (tuple(sorted(members, reverse=element is float)),)
      continue
    parts = [text] if kind == "free" else _parts(text, flag)
    found = [kinds.value_of(part, annotation, flag) for part in parts]
    if not _has_own_limits(field):
      found = _within(found, flag)
    chosen[field.name] = _axis(found, flag, several=kind in ("axis", "grid"))
  further = {}
  named = {field.name: flag for flag, field in fields(cls).items()}
  for name, text in others.items():
    require(name not in named, name, text, f"nothing: its flag is --{named.get(name)}")
    guessed = [_guessed(part) for part in _parts(text, name)]
    further[name] = _axis(_within(guessed, name), name)
  return Chosen(cls, chosen, further)


def from_stored(cls: type, stored: Mapping[str, Any]) -> Chosen:
  """Reads the settings of a config.json; what it lacks takes its default.

  Raises:
    InvalidSetting: for a value that the setting does not take.
  """
  known, hints = fields(cls), typing.get_type_hints(cls)
  chosen: dict[str, tuple] = {}
  # In the order that they are stored in: it is that of axes, and so of columns.
  for flag in sorted(known, key=[*stored, *known].index):
    field, value = known[flag], stored.get(flag, known[flag].default)
    kind, annotation = field.metadata["kind"], hints[field.name]
    several = isinstance(value, list | tuple)
    own = tuple(value) if several else (value,)
    if kind == "list":
      (element, *_) = typing.get_args(annotation)
      proper = several and all(_is_of(member, element, flag) for member in own)
    else:
      one = len(own) == 1 or (kind in ("axis", "grid") and len(own) > 1)
      proper = one and all(_is_of(member, annotation, flag) for member in own)
    shown = f"a config.json with {flag} = {value!r}"
    require(proper, "output_dir", shown, f"one with values that {flag} takes")
    chosen[field.name] = (own,) if kind == "list" else own
  for name, value in stored.items():
    members = value if isinstance(value, list) else [value]
    proper = bool(members) and all(isinstance(m, int | float | str) for m in members)
    shown = f"a config.json with {name} = {value!r}"
    free = name in known and _has_own_limits(known[name])
    takes = f"one with {_32_BITS} as {name}"
    require(free or all(map(_has_room, members)), "output_dir", shown, takes)
    takes = f"one with numbers or texts as {name}"
    require(name in known or proper, "output_dir", shown, takes)
  first_layout = "optimizer" not in stored
  further = {
    name: tuple(value) if isinstance(value, list) else (value,)
    for name, value in stored.items()
    if name not in known and not (name in _FORMER and first_layout)
  }
  return Chosen(cls, chosen, further)


def _is_of(value: Any, annotation: Any, flag: str) -> bool:
  """Whether a value of a config.json is one that a flag could have given."""
  if value is not None and not isinstance(value, int | float | str):
    return False
  try:
    text = specifications.canonical(value)
    return bool(kinds.value_of(text, annotation, flag) == value)
  except InvalidSetting:
    return False


def ordered(values: Sequence) -> tuple:
  """Each value once: numbers ascending, others as they come."""
  once = list(dict.fromkeys(values))
  numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in once)
  return tuple(sorted(once)) if numbers else tuple(once)


def _axis(values: Sequence, flag: str, several: bool = True) -> tuple:
  once = ordered(values)
  takes = "one value: it cannot be an axis"
  require(several or len(once) == 1, flag, ",".join(map(str, values)), takes)
  return once


def _parts(text: str, flag: str) -> list[str]:
  parts = text.split(",") if text else []
  require(len(parts) > 0 and all(parts), flag, text, "at least one value")
  return parts


def _has_own_limits(field: dataclasses.Field) -> bool:
  """Whether a setting may be beyond 32 bits."""
  return field.metadata["kind"] == "budget" or field.name == "seed"


def _has_room(value: Any) -> bool:
  """Whether arrays and counters of 32 bits have room for it, if it is an integer."""
  return not isinstance(value, int) or abs(value) < 2**31


def _within(values: list, flag: str) -> list:
  """Refuses integers of a flag that 32 bits have no room for."""
  for value in values:
    require(_has_room(value), flag, value, _32_BITS)
  return values


def _guessed(text: str) -> Any:
  """A number if it is one."""
  return kinds.value_of(text, int | float | str, "")
