"""What all experiments share between their flags and their runs."""

from __future__ import annotations

import io
import math
import os
import sys
from collections.abc import Callable, Collection
from typing import Any

import jax
import matplotlib.figure
import optax
from absl import app, flags, logging

from sepfx import InvalidSetting
from sepfx.ensembles.run_directory import RunDirectory
from sepfx.errors import require


def main(experiment: Callable[[], None]) -> None:
  """Runs an experiment as a program: bad settings become one line on stderr."""

  def run(argv: list[str]) -> None:
    if len(argv) > 1:
      raise app.UsageError(f"unexpected argument {argv[1]!r}: settings are flags")
    logging.set_verbosity(logging.WARNING)
    prepare_jax()
    try:
      experiment()
    except InvalidSetting as error:
      name = error.setting
      flag = f"--{name}" if name in flags.FLAGS else name
      print(f"error: {flag}: got {error.got!r}, takes {error.takes}", file=sys.stderr)
      sys.exit(2)
    except KeyboardInterrupt:
      print("interrupted; the same command goes on from here", file=sys.stderr)
      sys.exit(130)

  app.run(run)


def prepare_jax() -> None:
  """Makes every CPU core a device, and keeps compiled programs between processes.

  Has no effect on accelerators' devices. `JAX_NUM_CPU_DEVICES` and
  `JAX_COMPILATION_CACHE_DIR` in the environment have their say first.
  """
  if "JAX_NUM_CPU_DEVICES" not in os.environ:
    jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)
  if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    jax.config.update("jax_compilation_cache_dir", os.path.join(base, "sepfx", "jax"))


def settings_of(a_flag: str, free: Collection[str]) -> dict[str, Any]:
  """Returns the flags of the module that defines `a_flag`, without the free ones."""
  by_module = flags.FLAGS.flags_by_module_dict()
  own = by_module[str(flags.FLAGS.find_module_defining_flag(a_flag))]
  return {flag.name: flag.value for flag in own if flag.name not in free}


def adamw(settings: dict[str, Any]) -> optax.GradientTransformation:
  """AdamW from `learning_rate` and `weight_decay`; weight decay on every parameter."""
  rate, decay = settings["learning_rate"], settings["weight_decay"]
  require(math.isfinite(rate) and rate > 0, "learning_rate", rate, "a positive number")
  require(math.isfinite(decay) and decay >= 0, "weight_decay", decay, "a number >= 0")
  return optax.adamw(rate, weight_decay=decay)


def write_figure(directory: RunDirectory, figure: matplotlib.figure.Figure) -> None:
  """Writes figure.png and figure.pdf."""
  for kind in ("png", "pdf"):
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=150)
    directory.write(f"figure.{kind}", buffer.getvalue())
