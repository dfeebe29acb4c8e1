"""What calls of Python share: signals, progress, and how trials are recorded."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import rich.console

from sepfx import cores, kinds, outlets
from sepfx.ensembles import Watcher
from sepfx.ensembles.compiling import check_lanes
from sepfx.errors import Interrupted, InvalidSetting, require
from sepfx.interrupts import Interrupts
from sepfx.studies import running
from sepfx.studies.missing import Options
from sepfx.studies.requests import Asked
from sepfx.studies.share_runs import Part
from sepfx.studies.sharing import share_of

# Width of lines that are written to a file or a pipe.
_FILE_COLUMNS = 160


def options_of(
  lanes: int,
  devices: Sequence[jax.Device] | None,
  watchers: Sequence[Watcher] | None,
  progress: bool,
  share: Any = None,
  directory: str | os.PathLike | None = None,
) -> Options:
  """Returns how trials of a call run.

  On CPUs each core that the process may use is a device, if JAX has not been used before.

  Raises:
    InvalidSetting: for what cannot be used.
  """
  lanes = kinds.taken(lanes, int, "lanes")
  check_lanes(lanes)
  progress = kinds.taken(progress, bool, "progress")
  for name, several in (("devices", devices), ("watchers", watchers)):
    is_several = several is None or isinstance(several, Iterable)
    require(is_several, name, several, "several, such as a list, or None")
  console = outlets.console(stderr=True, quiet=not progress)
  if not console.is_terminal:
    console.width = _FILE_COLUMNS
  if devices is None:
    use_all_cores(console)
  own = None
  if share is not None:
    takes = "a call with a directory: shares meet there"
    require(directory is not None, "share", share, takes)
    assert directory is not None
    own, words = share_of(share, pathlib.Path(directory))
    console.print(words)
  watchers = tuple(watchers or ())
  return Options(lanes, devices, console=console, watchers=watchers, share=own)


def check_directory(directory: Any) -> None:
  """Raises `InvalidSetting` for what is no path."""
  is_path = isinstance(directory, str | os.PathLike)
  require(is_path, "directory", directory, "the path of a directory, or None")


def recorded(asked: Asked, directory: str | os.PathLike, options: Options) -> Any:
  """Runs what is missing in a directory; returns what `asked.leave` does.

  Raises:
    InvalidSetting: as `running.run`, with `directory` for `output_dir`.
    KeyboardInterrupt: after Ctrl-C, when what is in progress has been kept.
  """
  console = options.console
  assert console is not None
  with Interrupts(console) as interrupts:
    options = options._replace(stopping=lambda: interrupts.requested)
    try:
      left = running.run(asked, directory, options)
      if isinstance(left, Part):
        console.print(left.words)
    except Interrupted:
      raise KeyboardInterrupt("stopped; the same call goes on from here") from None
    except InvalidSetting as error:
      name = "directory" if error.setting == "output_dir" else error.setting
      raise InvalidSetting(name, error.got, error.takes) from error
    if interrupts.requested:
      # Too late for what was to be stopped, not for a loop of calls.
      raise KeyboardInterrupt("stopped when all trials were recorded")
  return left


def use_all_cores(console: rich.console.Console) -> None:
  """Makes each CPU core a device; where that is too late, says how it would be done."""
  number = cores.available()
  chosen = jax.config.jax_num_cpu_devices > 0  # type: ignore[attr-defined]
  if chosen or "JAX_NUM_CPU_DEVICES" in os.environ:
    return
  try:
    jax.config.update("jax_num_cpu_devices", number)
  except RuntimeError:  # JAX has been used
    if jax.default_backend() == "cpu" and jax.local_device_count() < number:
      console.print(
        f"runs on {jax.local_device_count()} of {number} cores: for all of them, set "
        f"JAX_NUM_CPU_DEVICES={number} before Python starts"
      )
