"""The settings of a study: fields that are flags, any of which may be an axis."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from absl import flags

from sepfx import specifications
from sepfx.errors import InvalidSetting, require
from sepfx.training import AdamW, FromOptax, optimizer

flags.disclaim_key_flags()

_T = TypeVar("_T")

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
    boolean = hints[field.name] is bool
    own: flags.Flag = flags.Flag(
      flags.ArgumentParser(), None, flag, text, field.metadata["help"], boolean=boolean
    )
    flags.DEFINE_flag(own, values)


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
  hints = typing.get_type_hints(cls)
  chosen = {}
  for flag, field in fields(cls).items():
    kind, text = field.metadata["kind"], str(values[flag].value)
    annotation = hints[field.name]
    if kind == "list":
      (element, *_) = typing.get_args(annotation)
      parts = [part for part in text.split(",") if part]
      members = {specifications.value_of(part, element, flag) for part in parts}
      chosen[field.name] = (tuple(sorted(members, reverse=element is float)),)
      continue
    parts = [text] if kind == "free" else _parts(text, flag)
    found = [specifications.value_of(part, annotation, flag) for part in parts]
    chosen[field.name] = _axis(found, flag, several=kind in ("axis", "grid"))
  further = {}
  for argument in unknown:
    name, separator, text = argument.removeprefix("--").partition("=")
    takes = "a flag (see --helpfull) or --FIELD=VALUE with a field of task or model"
    proper = argument.startswith("--") and separator and name
    require(bool(proper), "argument", argument, takes)
    named = {field.name: flag for flag, field in fields(cls).items()}
    require(name not in named, name, text, f"nothing: its flag is --{named.get(name)}")
    require(name not in further, name, text, "its values in one flag, with commas")
    further[name] = _axis([_guessed(part) for part in _parts(text, name)], name)
  return Chosen(cls, chosen, further)


def from_stored(cls: type, stored: Mapping[str, Any]) -> Chosen:
  """Reads the settings of a config.json; what it lacks takes its default."""
  known = fields(cls)
  chosen: dict[str, tuple] = {}
  for flag, field in known.items():
    value = stored.get(flag, field.default)
    kind = field.metadata["kind"]
    if kind == "list":
      chosen[field.name] = (tuple(value),)
    else:
      several = isinstance(value, list | tuple)
      chosen[field.name] = tuple(value) if several else (value,)
  further = {
    name: tuple(value) if isinstance(value, list) else (value,)
    for name, value in stored.items()
    if name not in known and name not in _FORMER
  }
  return Chosen(cls, chosen, further)


# Settings of the first layout that are gone: heads are fields of a model's
# specification now.
_FORMER = ("num_heads",)


def merged(there: Chosen, here: Chosen) -> tuple[Chosen, dict[str, Any]]:
  """Returns the settings of a directory in which a run takes up what is there.

  Args:
    there: of the directory.
    here: what is asked for now.

  Returns:
    All values of both, and the axes that what is there does not have yet, each with the
    value that all of it was run with.

  Raises:
    InvalidSetting: if they differ in a setting that changes a trial.
  """
  differing: list[str] = []
  values: dict[str, tuple] = {}
  for flag, field in fields(here.cls).items():
    name = field.name
    old, new = there.values[name], here.values[name]
    values[name] = _merged(old, new, field.metadata["kind"])
    if not values[name]:
      differing.append(f"{flag} (there {_shown(old)}, here {_shown(new)})")
  further: dict[str, tuple] = {}
  for name in [*there.further, *(n for n in here.further if n not in there.further)]:
    one, two = there.further.get(name, ()), here.further.get(name, ())
    further[name] = _merged(one, two, "axis") if one and two else ()
    if not further[name]:
      differing.append(f"{name} (there {_shown(one)}, here {_shown(two)})")
  takes = "an empty directory or one of the same config; this one differs in "
  require(not differing, "output_dir", "", takes + ", ".join(differing))
  whole = Chosen(here.cls, values, further)
  before = {**there.values, **there.further}
  added = {k: before[k][0] for k in whole.axes if k not in there.axes}
  return whole, added


def _merged(there: tuple, here: tuple, kind: Kind) -> tuple:
  """The values of both; none if they cannot stand in one directory."""
  if kind == "free" or set(there) == set(here):
    return here
  if kind in ("budget", "count"):
    larger = kind == "count" or here[0] > there[0]
    return (max(there[0], here[0]),) if larger else ()
  if kind not in ("axis", "grid"):
    return ()
  if kind == "axis" and len(there) == 1 and there[0] not in here:
    return ()
  return ordered([*there, *here])


def differing_axes(runs: Sequence[Chosen]) -> list[str]:
  """Settings that may be axes and in which runs differ, or have several values.

  Raises:
    InvalidSetting: if runs differ in a setting that could not be an axis.
  """
  first, *others = runs
  found = []
  for flag, field in fields(first.cls).items():
    kind, name = field.metadata["kind"], field.name
    several = [run for run in others if set(run.values[name]) != set(first.values[name])]
    if kind in ("list", "fixed") and name != "check_every":
      for run in several:
        old, new = _shown(run.values[name]), _shown(first.values[name])
        takes = "runs that differ in axes, budget or check_every alone; this one differs "
        raise InvalidSetting(
          "beside", flag, f"{takes}in {flag} (there {old}, here {new})"
        )
    elif several and kind not in ("grid", "count", "free"):
      found.append(name)
  for name in dict.fromkeys(name for run in runs for name in run.further):
    takes = "runs that all have this further field, or none of them"
    require(all(name in run.further for run in runs), "beside", name, takes)
    if len({run.further[name] for run in runs}) > 1:
      found.append(name)
  return found


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


def _guessed(text: str) -> Any:
  """A number if it is one."""
  return specifications.value_of(text, int | float | str, "")


def _shown(values: tuple) -> str:
  if not values:
    return "nothing"
  return repr(values[0]) if len(values) == 1 else repr(list(values))


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
  made = optimizer(settings.optimizer, made_from(settings, AdamW, **others))
  defaults = {field.name: field.default for field in dataclasses.fields(settings)}
  for name in ("weight_decay", "clip_norm"):
    value = getattr(settings, name, None)
    same = isinstance(made, AdamW) or value == defaults.get(name)
    takes = f"its default with {settings.optimizer}: give it as a field of that"
    require(same, name, value, takes)
  return made


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
  known = specifications.fields_of(type(task))
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
