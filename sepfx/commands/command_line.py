"""How a study starts and ends as a program."""

from __future__ import annotations

import difflib
import os
import sys
import warnings
from collections.abc import Callable, Sequence

import jax
from absl import app, flags, logging

from sepfx import cores, outlets, precision
from sepfx.commands import catalogue, help, presets
from sepfx.drawing import looks
from sepfx.ensembles.compiling import ran_out
from sepfx.errors import Interrupted, InvalidSetting, OutOfMemory, UnknownSetting
from sepfx.records.trial_files import Contradiction
from sepfx.studies.settings import overriding

flags.DEFINE_enum(
  "figure_style", "screen", list(looks.LOOKS), "What figures are for: sizes of type."
)
flags.DEFINE_float(
  "figure_width", None, "Width of figures, in inches; by default the style's own."
)
FLAGS = flags.FLAGS

# Exit code of a run that was stopped and can be started again (as `sysexits.h` has it
# for temporary failures): what a scheduler requeues on.
STOPPED = os.EX_TEMPFAIL


def main(experiment: Callable[[Sequence[str]], None]) -> None:
  """Runs an experiment as a program: what stops it becomes a line on stderr.

  Exit codes: 0 done; 1 a trial that ran again contradicts its records; 2 bad settings;
  71 out of memory; 74 something could not be written; `STOPPED`.

  Args:
    experiment: gets the arguments that are no flags of it.
  """

  def run(argv: list[str]) -> None:
    if "" not in sys.path:
      sys.path.append(os.getcwd())  # a user's own models and tasks are found there
    logging.set_verbosity(logging.WARNING)
    prepare_jax()
    try:
      style, width = FLAGS.figure_style, FLAGS.figure_width
      with looks.look(style, width, prefix="figure_"), precision.single():
        experiment(argv[1:])
    except Interrupted:
      outlets.say("stopped; the same command goes on from here")
      sys.exit(STOPPED)
    except (Exception, KeyboardInterrupt) as error:
      code, words = _last_words(error, argv)
      if not words:
        raise
      outlets.say(words)
      sys.exit(code)

  outlets.install()
  warnings.showwarning = lambda message, *_, **__: outlets.say(f"warning: {message}")
  app.run(run, flags_parser=parsed)


def parsed(argv: list[str]) -> list[str]:
  """Parses the flags and returns what is none; ends the program where they are wrong.

  Also where help is asked for.
  """
  study = command()
  try:
    if not help.ASKED.isdisjoint(argv):
      print(help.of_study(study, argv))
      sys.exit(0)
    folder = presets.folder()
    expanded = presets.expanded(argv, study, folder)
    program, *further = flags.FLAGS(expanded, known_only=True)
    return [program, *overriding(further, argv[1:])]
  except InvalidSetting as error:
    outlets.say(f"error: --{error.setting}: {error.words}")
  except (flags.Error, ValueError) as error:  # also a flag file that cannot be opened
    outlets.say(f"error: {str(error).removeprefix('ERROR:: ')}")
  sys.exit(2)


def command() -> str:
  """The command of the study that is being run, such as "sample-complexity"."""
  spec = sys.modules["__main__"].__spec__
  return catalogue.command_of(spec.name if spec is not None else sys.argv[0])


def _last_words(error: BaseException, argv: Sequence[str]) -> tuple[int, str]:
  """The exit code for an error and what to say of it: "" for one to be raised on."""
  if isinstance(error, InvalidSetting):
    name = error.setting
    further = {argument.partition("=")[0] for argument in argv[1:]}
    is_flag = name in flags.FLAGS or f"--{name}" in further
    flag = f"--{name}" if is_flag else name
    return 2, f"error: {flag}: {error.words}{_guess(error)}"
  if isinstance(error, Contradiction):
    return 1, f"error: {error}"
  if isinstance(error, KeyboardInterrupt):
    return 130, "interrupted; the same command goes on from here"
  if isinstance(error, OutOfMemory) or ran_out(error):
    (first, *_) = str(error).splitlines() or [""]
    what = first if isinstance(error, OutOfMemory) else f"out of memory: {first}"
    return os.EX_OSERR, (
      f"error: {what}\nwhat was recorded is kept; the same command goes on from there "
      "with more memory, or fewer --lanes"
    )
  if isinstance(error, OSError):
    return os.EX_IOERR, (
      f"error: {error}\nwhat was recorded is kept; the same command goes on from there "
      "when the cause is gone"
    )
  return 1, ""


def _guess(error: InvalidSetting) -> str:
  """The flag that somebody may have meant who gave one that there is not."""
  if not isinstance(error, UnknownSetting):
    return ""
  given = error.setting
  if given == "argument":
    given = str(error.got).lstrip("-").partition("=")[0]
  near = difflib.get_close_matches(given, [*flags.FLAGS, "preset"], n=1, cutoff=0.8)
  return f"; did you mean --{near[0]}?" if near else ""


def prepare_jax() -> None:
  """Makes every core a device, and keeps compiled programs between processes.

  Cores are those that this process may use. It has no effect on accelerators' devices.
  `JAX_NUM_CPU_DEVICES` and `JAX_COMPILATION_CACHE_DIR` in the environment have their say
  first.
  """
  if "JAX_NUM_CPU_DEVICES" not in os.environ:
    jax.config.update("jax_num_cpu_devices", cores.available())
  if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    jax.config.update("jax_compilation_cache_dir", os.path.join(base, "sepfx", "jax"))
