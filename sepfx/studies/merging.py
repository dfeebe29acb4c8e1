"""Settings of several runs: those of a directory that grows, those of runs together."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from sepfx.errors import require
from sepfx.studies.settings import Chosen, Kind, fields, ordered

# What settings were before there was another value: digests of then are without them.
_FORMERLY_ONLY = {
  "matmul_precision": ("float32",),
  "choose": (("learning_rate",),),
}


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
  known = {field.name: (flag, field) for flag, field in fields(here.cls).items()}
  for name, old in there.values.items():
    (flag, field), new = known[name], here.values[name]
    values[name] = _merged(old, new, field.metadata["kind"])
    if not values[name]:
      larger = ", a larger one may be asked for" * (field.metadata["kind"] == "budget")
      differing.append(f"{flag} (there {_shown(old)}, here {_shown(new)}{larger})")
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


def identity(whole: Chosen) -> str:
  """A digest of what a run that grows cannot change, in which no two trials differ.

  The rest is in the names of cells, or changes no trial but how long it lasts.
  """
  kinds = {field.name: field.metadata["kind"] for field in fields(whole.cls).values()}
  fixed = {
    name: repr(values)
    for name, values in {**whole.values, **whole.further}.items()
    if name not in whole.axes and kinds.get(name) not in ("budget", "count", "free")
  }
  for name, only in _FORMERLY_ONLY.items():
    if whole.values.get(name) == only:
      fixed.pop(name, None)
  text = json.dumps([fixed, sorted(whole.axes)], sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()


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
  found: list[str] = []
  fixed: dict[str, str] = {}
  for flag, field in fields(first.cls).items():
    kind, name = field.metadata["kind"], field.name
    several = [run for run in others if set(run.values[name]) != set(first.values[name])]
    if kind in ("list", "fixed") and name != "check_every":
      if several:
        old, new = _shown(several[0].values[name]), _shown(first.values[name])
        fixed[flag] = f"{flag} (there {old}, here {new})"
    elif several and kind not in ("grid", "count", "free"):
      found.append(name)
  for name in dict.fromkeys(name for run in runs for name in run.further):
    if not all(name in run.further for run in runs):
      fixed[name] = f"{name} (a further field that all have to have, or none)"
    elif len({run.further[name] for run in runs}) > 1:
      found.append(name)
  takes = "runs that differ in axes, budget or check_every alone; these differ in "
  require(not fixed, "beside", ", ".join(fixed), takes + ", ".join(fixed.values()))
  return found


def _shown(values: tuple) -> str:
  if not values:
    return "nothing"
  return repr(values[0]) if len(values) == 1 else repr(list(values))
