"""What a run ran on: versions, devices, source."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import pathlib
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import jax

# Whose versions each start notes.
PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "sepfx")


def environment(devices: Sequence[jax.Device] | None = None) -> dict[str, Any]:
  """What a run ran on: versions, devices, source revision, time.

  Args:
    devices: where it runs; None for all of the default platform.
  """
  used = jax.local_devices() if devices is None else devices
  versions = {"python": platform.python_version()}
  for package in PACKAGES:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
      versions[package] = importlib.metadata.version(package)
  return {
    "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    "arguments": sys.argv[1:],
    "versions": versions,
    "devices": [kind_of(device) for device in used],
    "revision": _source_revision(),
  }


def kind_of(device: jax.Device) -> str:
  """The kind of a device: those of one kind round alike."""
  return f"{device.platform}:{device.device_kind}"


def _source_revision() -> str | None:
  """The git revision of this source; None outside git.

  With "-dirty-" and a digest of the source where that is not what was committed.
  """
  packages = _packages()

  def git(*arguments: str) -> str:
    return subprocess.run(
      ("git", *arguments),
      cwd=packages[0],
      check=True,
      capture_output=True,
      text=True,
    ).stdout.strip()

  try:
    changed = git("status", "--porcelain", "--", *map(str, packages))
    mark = f"-dirty-{source_digest(packages)}" if changed else ""
    return git("rev-parse", "HEAD") + mark
  except (OSError, subprocess.CalledProcessError):
    return None


def _packages() -> list[pathlib.Path]:
  """The directories of this project's modules: in a clone, studies have their own."""
  own = pathlib.Path(__file__).parents[1]
  studies = own.parent / "experiments"
  return [own, studies] if (studies / "__main__.py").exists() else [own]


def source_digest(packages: Sequence[pathlib.Path] = ()) -> str:
  """A digest of all modules in these directories, and of tables that decide how they run.

  By default of this project's own.
  """
  digest = hashlib.sha256()
  for package in packages or _packages():
    for file in sorted([*package.rglob("*.py"), *package.rglob("*.json")]):
      digest.update(f"{file.relative_to(package)}\0".encode() + file.read_bytes())
  return digest.hexdigest()[:16]
