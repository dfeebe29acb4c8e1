"""The flags that say how trials run, where, and how visibly: read here alone.

None of them changes a result.
"""

from __future__ import annotations

import math
import os
import pathlib
import signal
import time
from collections.abc import Sequence
from typing import Any

import rich.console
from absl import flags

from sepfx import outlets, probes
from sepfx.ensembles.compiling import check_lanes
from sepfx.errors import InvalidSetting, require
from sepfx.studies.missing import Options
from sepfx.studies.sharing import share_of

flags.DEFINE_string("output_dir", "runs/run", "Where results are kept.")
flags.DEFINE_integer("lanes", 0, "Trials that a device advances at once; 0 to choose.")
flags.DEFINE_float(
  "checkpoint_every_seconds", 300.0, "Time between two checkpoints of running trials."
)
flags.DEFINE_float(
  "max_minutes",
  None,
  "Minutes after which the run stops, as SIGTERM stops it; the same command goes on.",
)
flags.DEFINE_list(
  "probes",
  [],
  f"What is measured of each trial when it has ended: {', '.join(probes.NAMES)}, "
  "risk:length=16 and the like, or package.module:function.",
)
flags.DEFINE_bool("keep_weights", False, "Keep each trial's weights, at its end.")
flags.DEFINE_bool(
  "dry_run", False, "Compile, time a few steps, say what a run would take; run nothing."
)
flags.DEFINE_bool("quiet", False, "Print nothing but errors.")
flags.DEFINE_bool("profile", False, "Trace the first dispatches into output_dir/profile.")
flags.DEFINE_bool("tensorboard", False, "Write loss curves to output_dir/tensorboard.")
flags.DEFINE_string(
  "share",
  None,
  "Run one of n shares of the trials: 3/64, from 0; auto where a scheduler says it; "
  "auto/64 where that knows no number.",
)
flags.DEFINE_bool(
  "merge", False, "Take up what shares have recorded so far, and run nothing."
)
flags.DEFINE_list(
  "beside",
  [],
  "Directories of complete runs to summarise and draw together with this one, or a name "
  "of runs that come with the study, as published:suite of sepfx suite. Of these the "
  "runs of the tasks in this run's directory are shown.",
)
flags.DEFINE_string(
  "against",
  "length",
  "The numeric axis that figures are drawn along, where a study leaves the choice.",
)
flags.DEFINE_list(
  "classes",
  [],
  "Own classes, or factories, that directories may name: package.module:Mixer. What "
  "stands in a directory alone is not imported.",
)

FLAGS = flags.FLAGS

# Width of tables that are written to a file or a pipe.
_FILE_COLUMNS = 160


class Stop:
  """Whether SIGTERM, SIGINT or the time that a run may take has asked it to stop."""

  def __init__(self, seconds: float = math.inf) -> None:
    """Listens from now on.

    Args:
      seconds: after which it is as if a signal had come.
    """
    self._signalled = self._asked = False
    self._end = time.monotonic() + seconds
    for number in (signal.SIGTERM, signal.SIGINT):
      signal.signal(number, self._on_signal)

  @property
  def requested(self) -> bool:
    """Whether to stop."""
    if not self._asked and time.monotonic() >= self._end:
      self._asked = True
      outlets.say(f"the time is up, stopping{_keeping()}")
    return self._asked

  def _on_signal(self, number: int, _: Any) -> None:
    if self._signalled and number == signal.SIGINT:
      outlets.say("\x1b[?25h")  # a progress bar hides the cursor
      os._exit(128 + number)
    self._signalled = self._asked = True
    outlets.say(f"stopping{_keeping()} (Ctrl-C again ends at once)")


def _keeping() -> str:
  return "" if FLAGS.dry_run else ": keeping what is in progress"


def start() -> Stop:
  """Checks these flags, and listens to signals.

  Raises:
    InvalidSetting: for flags that cannot be used, or do not go together.
  """
  names = ("dry_run", "merge", "share")
  modes = [name for name in names if getattr(FLAGS, name) not in (None, False)]
  if len(modes) > 1:
    one, other = modes[:2]
    raise InvalidSetting(one, getattr(FLAGS, one), f"a call without --{other}")
  seconds = FLAGS.checkpoint_every_seconds
  require(seconds > 0, "checkpoint_every_seconds", seconds, "a positive number")
  minutes = FLAGS.max_minutes
  proper = minutes is None or 0 < minutes < math.inf
  require(proper, "max_minutes", minutes, "a positive number")
  check_lanes(FLAGS.lanes)
  return Stop(math.inf if minutes is None else 60 * minutes)


def console() -> rich.console.Console:
  """Where an experiment prints; nothing if --quiet."""
  own = outlets.console(quiet=FLAGS.quiet)
  if not own.is_terminal and "COLUMNS" not in os.environ:
    own.width = _FILE_COLUMNS  # a file has room where a terminal may not
  return own


def trusted() -> Sequence[str]:
  """What of a user's own directories may name."""
  return FLAGS["classes"].value or ()  # also where flags have not been parsed


def options(stop: Stop) -> Options:
  """How trials are to run.

  Raises:
    InvalidSetting: for a share that there is not.
  """
  share = None
  if FLAGS.share is not None:
    share, words = share_of(FLAGS.share, pathlib.Path(FLAGS.output_dir))
    console().print(words)
  return Options(
    lanes=FLAGS.lanes,
    checkpoint_seconds=FLAGS.checkpoint_every_seconds,
    stopping=lambda: stop.requested,
    console=console(),
    tensorboard=FLAGS.tensorboard,
    profile=FLAGS.profile,
    share=share,
    merge=FLAGS.merge,
  )
