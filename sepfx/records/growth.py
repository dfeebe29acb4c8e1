"""What a call may change of a directory that an earlier one of `sepfx.measure` began."""

from __future__ import annotations

import hashlib
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from sepfx.ensembles import Cell
from sepfx.errors import InvalidSetting, require
from sepfx.provenance.fingerprints import without_code

# Settings in which a call may ask for more than what stands in its directory.
_GROWING = ("models", "lengths", "axes", "num_trials")
# Settings of a protocol that may be larger then: they change no trial but how long it may
# last.
_BUDGETS = ("max_samples", "max_steps")


def grown(
  there: dict[str, Any], here: dict[str, Any], path: pathlib.Path
) -> dict[str, Any]:
  """The settings of all that will stand in a directory.

  Raises:
    InvalidSetting: if another call has written it, or one with what is not asked for now.
  """
  here, there = json.loads(json.dumps(here)), without_code(there)
  takes = "an empty directory or one of sepfx.measure: a command of the shell wrote this "
  takes += "one, and goes on with it; sepfx.load reads it"
  require("axes" in there, "directory", str(path), takes)
  old = fixed(there)
  differing = [
    text
    for name, new in fixed(here).items()
    for text in _differences(name, old.get(name), new)
  ]
  takes = "an empty directory or one of the same call; this one differs in "
  require(not differing, "directory", str(path), takes + ", ".join(differing))
  lacking = [
    f"{name} (there {old!r}, here {new!r})"
    for name, old, new in (
      ("models", there["models"], here["models"]),
      ("axes", sorted(there["axes"]), sorted(here["axes"])),
      ("lengths", there["lengths"], here["lengths"]),
      *((axis, there["axes"][axis], here["axes"].get(axis)) for axis in there["axes"]),
    )
    if not _within(old, new) or (name == "axes" and old != new)
  ]
  takes = "all that stands in the directory, and more; it has other "
  require(not lacking, "directory", str(path), takes + ", ".join(lacking))
  return {**here, "num_trials": max(there["num_trials"], here["num_trials"])}


def fixed(settings: Mapping[str, Any]) -> dict[str, Any]:
  """Those of a call that another one on its directory cannot change."""
  fixed = {name: own for name, own in settings.items() if name not in _GROWING}
  own = settings.get("protocol")
  if isinstance(own, Mapping):
    kept = {name: own[name] for name in own if name not in _BUDGETS}
    # Earlier versions did not note it. It was this, if not of accelerators.
    fixed["protocol"] = {"matmul_precision": "float32", **kept}
  return fixed


def identity(settings: Mapping[str, Any]) -> str:
  """A digest of those, under which trials in progress are kept."""
  own = fixed(settings)
  protocol = own.get("protocol")
  if isinstance(protocol, dict) and protocol.get("matmul_precision") == "float32":
    # As in the digests of versions that had no other.
    own["protocol"] = {k: v for k, v in protocol.items() if k != "matmul_precision"}
  return hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()


def check_budget(there: Mapping, cells: Sequence[Cell], here: Mapping) -> None:
  """Refuses a smaller budget, and a larger one where trials use all of it."""
  old, new = there["protocol"], here["protocol"]
  to_end = any(cell.trial.run_to_end for cell in cells)
  for name in set(_BUDGETS).intersection(old, new):
    if new[name] < old[name] or (to_end and new[name] > old[name]):
      takes = f"{old[name]}, as in the directory"
      takes += ": its trials run to the end of it" if to_end else ", or more"
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


def _within(old: Any, new: Any) -> bool:
  """Whether everything that was asked for is asked for again."""
  if isinstance(old, dict):
    return all(name in new and new[name] == value for name, value in old.items())
  return new is not None and all(value in new for value in old)
