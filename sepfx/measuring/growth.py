"""What a call may change of a directory that an earlier one of `sepfx.measure` began."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from sepfx.ensembles import Cell
from sepfx.errors import InvalidSetting, require
from sepfx.provenance.fingerprints import without_code
from sepfx.specifications import canonical

# Settings in which a call may ask for more than what stands in its directory.
_GROWING = ("models", "lengths", "axes", "num_trials")
# Settings of a protocol that may be larger then: they change no trial but how long it may
# last.
_BUDGETS = ("max_samples", "max_steps")
# Settings of a protocol that earlier versions did not note, and what they were then.
_FORMERLY: Mapping[str, Any] = {"matmul_precision": "float32", "validation": 0.0}


def grown(
  stored: Mapping[str, Any], here: Mapping[str, Any], cells: Sequence[Cell]
) -> tuple[dict[str, Any], list[Cell], list[str]]:
  """Returns what will stand in a directory in which a call takes up what is there.

  A call may leave out what stands there, which stays.

  Args:
    stored: the directory's config.json.
    here: the settings of the call.
    cells: of the call.

  Returns:
    The settings of both together; the call's cells; and the names of all cells, in the
    order of the records, or nothing where the call asks for all of them.

  Raises:
    InvalidSetting: if another call has written it, or one with a smaller budget.
  """
  here, there = json.loads(json.dumps(here)), without_code(stored["settings"])
  takes = "an empty directory or one of sepfx.measure: a command of the shell wrote this "
  takes += "one, and goes on with it; sepfx.load reads it"
  require("axes" in there, "output_dir", "", takes)
  old = fixed(there)
  differing = [
    text
    for name, new in fixed(here).items()
    for text in _differences(name, old.get(name), new)
  ]
  for name, own in here["models"].items():
    differing += _differences(f"models.{name}", there["models"].get(name, own), own)
  if sorted(there["axes"]) != sorted(here["axes"]):
    axes = sorted(there["axes"]), sorted(here["axes"])
    differing += _differences("the names of axes", *axes)
  takes = "an empty directory or one of the same call; this one differs in "
  require(not differing, "output_dir", "", takes + ", ".join(differing))
  whole = {
    **here,
    "models": {**there["models"], **here["models"]},
    "lengths": sorted({*there["lengths"], *here["lengths"]}),
    "axes": {
      name: there["axes"][name] + [v for v in own if v not in there["axes"][name]]
      for name, own in here["axes"].items()
    },
    "num_trials": max(there["num_trials"], here["num_trials"]),
  }
  asked = {**here["axes"], "models": list(here["models"]), "lengths": here["lengths"]}
  stands = {**there["axes"], "models": there["models"], "lengths": there["lengths"]}
  left_out = [
    name for name, own in asked.items() if any(v not in own for v in stands[name])
  ]
  _check_budget(there, here, cells, left_out)
  if not left_out:
    return {**here, "num_trials": whole["num_trials"]}, list(cells), []
  names = [*stored.get("parameters", {}), *(cell.name for cell in cells)]
  return whole, _as_there(cells, stored), _ordered(names, whole)


def _ordered(names: Sequence[str], settings: Mapping[str, Any]) -> list[str]:
  """Names of cells, each once, in the order of a grid of these settings."""
  parsed = {name: dict(part.split("=", 1) for part in name.split("/")) for name in names}
  places: dict[str, list[str]] = {
    "model": list(settings["models"]),
    "length": list(map(str, settings["lengths"])),
  }
  for axis in settings["axes"]:
    places[axis] = list(dict.fromkeys(own[axis] for own in parsed.values()))
  return sorted(
    parsed,
    key=lambda name: [texts.index(parsed[name][axis]) for axis, texts in places.items()],
  )


def _as_there(cells: Sequence[Cell], stored: Mapping[str, Any]) -> list[Cell]:
  """The cells with values of the types that the directory has on their axes."""
  types = stored.get("columns", {})

  def typed(name: str, value: Any) -> Any:
    if types.get(name) == "str":
      return canonical(value)
    return float(value) if types.get(name) == "float" and type(value) is int else value

  return [
    dataclasses.replace(cell, axes={k: typed(k, v) for k, v in cell.axes.items()})
    for cell in cells
  ]


def fixed(settings: Mapping[str, Any]) -> dict[str, Any]:
  """Those of a call that another one on its directory cannot change."""
  fixed = {name: own for name, own in settings.items() if name not in _GROWING}
  own = settings.get("protocol")
  if isinstance(own, Mapping):
    kept = {name: own[name] for name in own if name not in _BUDGETS}
    fixed["protocol"] = {**_FORMERLY, **kept}
  return fixed


def identity(settings: Mapping[str, Any]) -> str:
  """A digest of those, under which trials in progress are kept."""
  own = fixed(settings)
  protocol = own.get("protocol")
  if isinstance(protocol, dict):  # as in the digests of versions that had no other
    formerly = _FORMERLY.items()
    own["protocol"] = {k: v for k, v in protocol.items() if (k, v) not in formerly}
  return hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()


def _check_budget(
  there: Mapping, here: Mapping, cells: Sequence[Cell], left_out: Sequence[str]
) -> None:
  """Refuses a smaller budget, and a larger one that not all that stands there can use."""
  old, new = there["protocol"], here["protocol"]
  to_end = any(cell.trial.run_to_end for cell in cells)
  for name in set(_BUDGETS).intersection(old, new):
    larger = new[name] > old[name]
    if new[name] < old[name] or (larger and (to_end or left_out)):
      takes = f"{old[name]}, as in the directory"
      if to_end:
        takes += ": its trials run to the end of it"
      elif larger:
        takes += f", in a call without all of its {' and '.join(left_out)}"
      else:
        takes += ", or more"
      raise InvalidSetting(name, new[name], takes)


def _differences(name: str, old: Any, new: Any) -> list[str]:
  """Where two descriptions differ, in words: only the parts that do."""
  if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
    parts = [_differences(f"{name}.{key}", old[key], new[key]) for key in old]
    return [text for part in parts for text in part]
  if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
    parts = [
      _differences(f"{name}[{k}]", *both)
      for k, both in enumerate(zip(old, new, strict=True))
    ]
    return [text for part in parts for text in part]
  return [] if old == new else [f"{name} (there {old!r}, here {new!r})"]
