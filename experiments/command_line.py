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

from sepfx import InvalidSetting, training
from sepfx.ensembles.run_directory import RunDirectory
from sepfx.errors import Interrupted, require

# Exit code of a run that was stopped and can be started again (as `sysexits.h` has it
# for temporary failures): what a scheduler requeues on.
STOPPED = os.EX_TEMPFAIL


def main(experiment: Callable[[], None]) -> None:
  """Runs an experiment as a program: what stops it becomes a line on stderr.

  Exit codes: 0 done; 2 bad settings; 74 something could not be written; `STOPPED`.
  """

  def run(argv: list[str]) -> None:
    if len(argv) > 1:
      raise app.UsageError(f"unexpected argument {argv[1]!r}: settings are flags")
    logging.set_verbosity(logging.WARNING)
    prepare_jax()
    alone = True  # of several processes, the others do not know
    try:
      experiment()
      return
    except InvalidSetting as error:
      name = error.setting
      flag = f"--{name}" if name in flags.FLAGS else name
      code, message = 2, f"error: {flag}: got {error.got!r}, takes {error.takes}"
    except Interrupted:
      code, alone = STOPPED, False
      message = "stopped; the same command goes on from here"
    except ConnectionError as error:
      code = STOPPED
      message = f"error: {error}\nthe same command goes on from the last checkpoint"
    except OSError as error:
      code = os.EX_IOERR
      message = (
        f"error: {error}\nwhat was recorded is kept; the same command goes on from "
        "there when the cause is gone"
      )
    except KeyboardInterrupt:
      code, message = 130, "interrupted; the same command goes on from here"
    sys.stderr.write(message + "\n")  # in one piece: other threads write there, too
    sys.stderr.flush()
    if alone and jax.distributed.is_initialized():
      os._exit(code)  # the usual way out waits for the other processes
    sys.exit(code)

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


def numbers(name: str, kind: type, takes: str) -> list:
  """Parses a list flag; sorted, each value once.

  Args:
    name: of the flag.
    kind: int or float.
    takes: what it takes, for the message.
  """
  texts = getattr(flags.FLAGS, name)
  try:
    return sorted({kind(text) for text in texts})
  except ValueError as error:
    raise InvalidSetting(name, ",".join(texts), takes) from error


def adamw(settings: dict[str, Any]) -> optax.GradientTransformation:
  """AdamW from `learning_rate` and `weight_decay`; weight decay on every parameter."""
  rate, decay = _rates(settings)
  return optax.adamw(rate, weight_decay=decay)


def adam_with_kernel_decay(settings: dict[str, Any]) -> optax.GradientTransformation:
  """`sepfx.training.adam_with_kernel_decay` from the two and `clip_norm`."""
  clip = settings["clip_norm"]
  require(math.isfinite(clip) and clip >= 0, "clip_norm", clip, "a number >= 0")
  return training.adam_with_kernel_decay(*_rates(settings), clip)


def _rates(settings: dict[str, Any]) -> tuple[float, float]:
  rate, decay = settings["learning_rate"], settings["weight_decay"]
  require(math.isfinite(rate) and rate > 0, "learning_rate", rate, "a positive number")
  require(math.isfinite(decay) and decay >= 0, "weight_decay", decay, "a number >= 0")
  return rate, decay


def write_figure(directory: RunDirectory, figure: matplotlib.figure.Figure) -> None:
  """Writes figure.png and figure.pdf."""
  for kind in ("png", "pdf"):
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=150)
    directory.write(f"figure.{kind}", buffer.getvalue())
