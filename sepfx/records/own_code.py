"""Whether a directory's trials ran the code of a user's own that runs today."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sepfx.ensembles.cells import Cell
from sepfx.errors import InvalidSetting
from sepfx.provenance import origins, sources
from sepfx.provenance.environment import PACKAGES
from sepfx.records.run_directory import RunDirectory
from sepfx.training import Probe, Probes

# Parts of code that a message names.
_NAMED = 5


def checked(
  directory: RunDirectory,
  settings: Mapping[str, Any],
  cells: Sequence[Cell],
  probe: Probe | None,
) -> dict[str, Any]:
  """Returns the entry "code" of a config.json, for what stands there and what will.

  It has the number of the digests' scheme, digests of all that trials, probes and
  factories run (`wholes`) and of each part of it (`parts`), and the versions of the
  packages that it is from, but for those that each start notes.

  Args:
    directory: open.
    settings: of all that will stand there; texts in them may name a factory.
    cells: that will stand there.
    probe: what is measured of their trials.

  Raises:
    InvalidSetting: if what stands there ran other code; it says which part differs.

  Warns if that cannot be told: another version of this project or of Python began the
  directory, or a package has another version.
  """
  code = sources.code_of(_named_values(settings, cells, probe))
  here = _stored(code, origins.versions(frozenset(code.packages) - {*PACKAGES}))
  if directory.stored is None:
    return here
  there = directory.stored.get("code", {})
  if there.get("scheme") != sources.SCHEME:
    if code.wholes:
      _warn(f"{directory.path} does not say what code it was begun with", code.parts)
    return here
  before = sources.Code(there["wholes"], there["parts"], list(there["packages"]))
  changed, unknown = sources.changes(before, code)
  if changed:
    takes = "an empty directory, or one begun with the code that runs now: it was begun "
    takes += f"with another {_listed(changed)}"
    raise InvalidSetting("output_dir", str(directory.path), takes)
  if unknown:
    _warn(
      f"{directory.path} was begun where other source was at hand, or another Python",
      unknown,
    )
  _warn_of_packages(directory, there["packages"], here["packages"])
  packages = {**there["packages"], **here["packages"]}
  return _stored(sources.both(before, code), packages)


def _named_values(
  settings: Mapping[str, Any], cells: Sequence[Cell], probe: Probe | None
) -> Iterator[tuple[str, Any]]:
  """What runs, by names that stay when a directory grows."""
  for cell in cells:
    yield cell.trial.key_name, cell.trial
  # Each by itself: a call may ask for others than the one before.
  each = probe.each if isinstance(probe, Probes) else {"": probe} if probe else {}
  for name, own in each.items():
    yield f"probes/{name}", own
  for text in _texts(settings):
    module, _, rest = text.partition(":")
    made_by = getattr(sys.modules.get(module), rest.partition(":")[0], None)
    if made_by is not None:
      yield text, made_by


def _stored(code: sources.Code, packages: Mapping[str, str]) -> dict[str, Any]:
  return {
    "scheme": sources.SCHEME,
    "wholes": code.wholes,
    "parts": code.parts,
    "packages": dict(packages),
  }


def _texts(settings: Any) -> Iterator[str]:
  """All texts in settings."""
  if isinstance(settings, str):
    yield settings
  elif isinstance(settings, Mapping):
    for value in settings.values():
      yield from _texts(value)
  elif isinstance(settings, list | tuple):
    for value in settings:
      yield from _texts(value)


def _warn(says: str, names: Sequence[str] | Mapping) -> None:
  takes = f"nothing tells whether these are as they were: {_listed(list(names))}"
  warnings.warn(f"{says}; {takes}", stacklevel=4)


def _warn_of_packages(directory: RunDirectory, there: Mapping, here: Mapping) -> None:
  changed = [
    f"{name} {there[name]} (now {version})"
    for name, version in here.items()
    if there.get(name, version) != version
  ]
  if changed:
    warnings.warn(
      f"{directory.path} was begun with {', '.join(changed)}: its trials may differ",
      stacklevel=4,
    )


def _listed(names: Sequence[str]) -> str:
  more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
  return ", ".join(names[:_NAMED]) + more
