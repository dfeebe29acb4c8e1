"""Proves that the files of a complete run are as the run wrote them.

digests.json is written last, when all else of a run is there, and removed before any file
of the directory is changed. So where it stands each file has to be what it says.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from sepfx.records import weights
from sepfx.records.config import CONFIG
from sepfx.records.reading import refused
from sepfx.records.run_directory import (
  CURVES,
  DIGESTS,
  PROBES,
  SUMMARY,
  TRIALS,
  RunDirectory,
)

# But for config.json and weights, which have digests, too.
_FILES = (TRIALS, CURVES, PROBES, "probes.json", SUMMARY)


def seal(directory: RunDirectory) -> None:
  """Writes the digests of a run that is complete: the last thing that it does.

  Raises:
    OSError: if a file cannot be read or written.
  """
  assert directory.stored is not None
  found = {CONFIG: _of_config(directory.stored)}
  for name in _there(directory.path):
    with open(directory.path / name, "rb") as file:
      found[name] = hashlib.file_digest(file, "sha256").hexdigest()
  directory.write(DIGESTS, json.dumps(found, indent=2) + "\n")


def check(
  path: pathlib.Path, config: Mapping[str, Any], *, may_lack: bool = False
) -> bool:
  """Holds the files of a directory against their digests, if there are any.

  Args:
    path: of the directory.
    config: the content of its config.json.
    may_lack: whether files may be gone: a run makes them again.

  Returns:
    Whether there are digests: then the run is complete, and its files are its own.

  Raises:
    InvalidSetting: for a file that is not as the run wrote it, or is gone.
    OSError: if one cannot be read.
  """
  file = path / DIGESTS
  if not file.exists():
    return False
  wanted = _read(file)
  if _of_config(config) != wanted.pop(CONFIG):
    raise _changed(path / CONFIG)
  there = set(_there(path))
  for name in sorted({*wanted, *there}):
    if name not in there:
      if not may_lack:
        raise _changed(path / name, "it is missing")
    elif name not in wanted:
      raise _changed(path / name, "the run did not write it")
    else:
      with open(path / name, "rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
      if digest != wanted[name]:
        raise _changed(path / name)
  return True


def _there(path: pathlib.Path) -> Iterator[str]:
  """Names of the files that are there."""
  yield from (name for name in _FILES if (path / name).is_file())
  found = sorted((path / weights.DIRECTORY).glob("**/*.safetensors"))
  yield from (str(file.relative_to(path)) for file in found)


def _of_config(config: Mapping[str, Any]) -> str:
  """Of all but the list of starts, to which a start adds one."""
  own = {name: value for name, value in config.items() if name != "starts"}
  return hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()


def _read(file: pathlib.Path) -> dict[str, str]:
  try:
    found = json.loads(file.read_bytes())
    if not (isinstance(found, dict) and CONFIG in found):
      raise ValueError("it holds something else")
  except (ValueError, RecursionError) as error:
    takes = f"digests as a run wrote them: it is damaged ({error}). Without it files are "
    raise refused(file, takes + "held against one another alone") from error
  return found


def _changed(file: pathlib.Path, why: str = "it differs") -> Exception:
  takes = f"what {DIGESTS} says of a complete run: {why}. Put a copy of the run's own in "
  takes += (
    f"its place; or, if the change is meant, remove {DIGESTS}: then files are held "
  )
  return refused(file, takes + "against one another alone")
