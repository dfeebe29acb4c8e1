"""How a study starts and ends as a program."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

import jax
from absl import app, flags, logging

from sepfx.ensembles.trial_files import Contradiction
from sepfx.errors import Interrupted, InvalidSetting

# Exit code of a run that was stopped and can be started again (as `sysexits.h` has it
# for temporary failures): what a scheduler requeues on.
STOPPED = os.EX_TEMPFAIL


def main(experiment: Callable[[Sequence[str]], None]) -> None:
  """Runs an experiment as a program: what stops it becomes a line on stderr.

  Exit codes: 0 done; 1 a trial that ran again contradicts its records; 2 bad settings;
  74 something could not be written; `STOPPED`.

  Args:
    experiment: gets the arguments that are no flags of it.
  """

  def run(argv: list[str]) -> None:
    if "" not in sys.path:
      sys.path.append(os.getcwd())  # a user's own models and tasks are found there
    logging.set_verbosity(logging.WARNING)
    prepare_jax()
    alone = True  # of several processes, the others do not know
    try:
      experiment(argv[1:])
      return
    except InvalidSetting as error:
      name = error.setting
      further = {argument.partition("=")[0] for argument in argv[1:]}
      is_flag = name in flags.FLAGS or f"--{name}" in further
      flag = f"--{name}" if is_flag else name
      code, message = 2, f"error: {flag}: got {error.got!r}, takes {error.takes}"
    except Contradiction as error:
      code, message = 1, f"error: {error}"
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

  app.run(run, flags_parser=lambda argv: flags.FLAGS(argv, known_only=True))


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
