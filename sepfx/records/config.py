"""The config.json of a run directory: its form, and how the starts in it differ."""

from __future__ import annotations

import json
import pathlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from sepfx.ensembles.results import TYPES
from sepfx.errors import InvalidSetting

CONFIG = "config.json"
# 1 had no types of columns; lists stood for the settings that a grid runs over, only.
LAYOUT = 2
# Entries of config.json that are numbers by the cell's name.
_OF_CELLS = ("parameters", "trials", "budgets")
# The entry of lanes per device, by kind of device and the cell's name.
LANES = "lanes"
# Kinds of devices that multiply matrices of float32 as such, whatever JAX says; "" is not
# known.
_CPUS = {"", "cpu:cpu"}


def read_config(path: pathlib.Path) -> dict[str, Any]:
  """Returns the content of a config.json.

  Raises:
    InvalidSetting: if it is none, or of a later layout than this version's.
  """
  try:
    stored = json.loads(path.read_bytes())
    if wrong := _wrong_part(stored):
      raise ValueError(f"{wrong}: of another form")
  except (ValueError, RecursionError) as error:
    takes = f"a config.json that sepfx wrote ({error})"
    raise InvalidSetting("output_dir", str(path), takes) from error
  if stored.get("layout", 1) > LAYOUT:
    takes = f"a config.json of layout {LAYOUT} or earlier: a later version wrote it"
    raise InvalidSetting("output_dir", str(path), takes)
  return stored


def _wrong_part(stored: Any) -> str:
  """Which part of a config.json is not of the form that `begin` gives it; "" if none."""
  if not isinstance(stored, dict):
    return "whole"
  starts, columns = stored.get("starts"), stored.get("columns", {})
  proper = {
    "settings": isinstance(stored.get("settings"), dict),
    "starts": isinstance(starts, list)
    and all(
      isinstance(start, dict) and isinstance(start.get("versions", {}), dict)
      for start in starts
    ),
    "columns": isinstance(columns, dict)
    and all(kind in list(TYPES) for kind in columns.values()),
    "modes": isinstance(stored.get("modes", {}), dict),
    "layout": type(stored.get("layout", 1)) is int,
    "code": _is_of_code(stored.get("code")),
    LANES: _are_lanes(stored.get(LANES, {})),
    **{name: _is_of_cells(stored.get(name, {})) for name in _OF_CELLS},
    "notes": isinstance(notes := stored.get("notes", {}), dict)
    and all(map(_are_notes, notes.values())),
  }
  return next((name for name, is_proper in proper.items() if not is_proper), "")


def _is_of_code(stored: Any) -> bool:
  """Whether an entry is one that `own_code.checked` made, or is not there."""
  if stored is None:
    return True
  if not isinstance(stored, dict) or type(stored.get("scheme")) is not int:
    return False
  entries: list[Any] = [stored.get(name) for name in ("wholes", "parts", "packages")]
  if not all(isinstance(own, dict) for own in entries):
    return False
  *of_names, packages = entries
  lists = [own for entry in of_names for own in entry.values()]
  proper = all(isinstance(own, list) and all(map(_is_text, own)) for own in lists)
  return proper and all(map(_is_text, packages.values()))


def _is_text(value: Any) -> bool:
  return isinstance(value, str)


def _are_notes(notes: Any) -> bool:
  """Whether it is numbers or words by names."""
  return isinstance(notes, dict) and all(
    isinstance(value, int | float | str) for value in notes.values()
  )


def _are_lanes(stored: Any) -> bool:
  """Whether it is lists of numbers of lanes, by kind of device and the cell's name."""
  return isinstance(stored, dict) and all(
    isinstance(own, dict) and all(map(_are_widths, own.values()))
    for own in stored.values()
  )


def _are_widths(stored: Any) -> bool:
  proper = isinstance(stored, list) and bool(stored)
  return proper and all(type(own) is int and own > 0 for own in stored)


def _is_of_cells(numbers: Any) -> bool:
  """Whether it is numbers by names."""
  return isinstance(numbers, dict) and all(
    isinstance(value, int | float) for value in numbers.values()
  )


def warn_of_changes(path: pathlib.Path, before: dict, here: dict) -> None:
  """Warns of what is not as it was when the run was last started.

  Args:
    path: the run's directory.
    before: what its last start noted.
    here: what this start notes.
  """
  old = {**before.get("versions", {}), "source revision": before.get("revision")}
  new = {**here["versions"], "source revision": here["revision"]}
  changed = [
    f"{name} {old.get(name)} (now {new.get(name)})"
    for name in dict.fromkeys([*old, *new])
    if old.get(name) != new.get(name)
  ]
  if changed:
    warnings.warn(
      f"{path} was begun with {', '.join(changed)}: its trials may differ in "
      "their last digits, and so in their counts",
      stacklevel=4,
    )


def warn_of_other_devices(path: pathlib.Path, starts: Sequence[dict], here: dict) -> None:
  """Warns if some trials here may have been run on devices that round otherwise.

  All starts count, since all may have left trials. Devices of one kind round alike,
  however many there are.

  Args:
    path: the run's directory.
    starts: what each of its starts noted.
    here: what this start notes.
  """
  there = dict.fromkeys(own for own in map(_kind, starts) if own)
  now = _kind(here)
  if set(there) - {now}:
    warnings.warn(
      f"{path} was begun with devices of kind {', then '.join(there)} (now {now})"
      ": its trials round differently, and so differ in their counts",
      stacklevel=4,
    )


def check_rounding(path: pathlib.Path, starts: Sequence[dict]) -> None:
  """Refuses trials that were not computed as today's settings say.

  Versions without `matmul_precision` left that to JAX, and noted the setting of it.

  Args:
    path: the run's directory.
    starts: what each of its starts noted.

  Raises:
    InvalidSetting: if a start noted another precision, on other devices than CPUs.
  """
  for start in starts:
    noted = start.get("matmul_precision", "float32")
    if noted not in ("float32", "highest") and set(_kind(start).split(" and ")) - _CPUS:
      takes = f"an empty directory: JAX's own matmul precision ({noted}) was used for "
      takes += f"trials here, on {_kind(start)}; sepfx.load reads them"
      raise InvalidSetting("output_dir", str(path), takes)


def _kind(start: Mapping[str, Any]) -> str:
  """The kind of the devices that a run was started on; "" where that is not known."""
  devices = start.get("devices")
  return " and ".join(sorted(set(map(str, devices)))) if isinstance(devices, list) else ""
