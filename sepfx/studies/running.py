"""How an experiment runs its trials: where, how visibly, and what it does when stopped.

None of the flags defined here changes a result.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import math
import os
import pathlib
import signal
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import rich.console
from absl import flags

from sepfx import outlets, probes
from sepfx.coordinator import hosts
from sepfx.ensembles import Records, Watcher, run
from sepfx.ensembles.programs import Programs, check_lanes
from sepfx.errors import require
from sepfx.records.checkpoints import Checkpoints
from sepfx.records.run_directory import CONFIG, SHARED, RunDirectory
from sepfx.records.trial_files import TrialFiles, begun
from sepfx.studies.requests import Request, Rows, Search, planned
from sepfx.watching.progress import Progress
from sepfx.watching.viewers import LiveFigure, Profile, TensorBoard

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
flags.DEFINE_bool(
  "distributed", False, "Run as one of several processes that share output_dir."
)
flags.DEFINE_string(
  "coordinator", None, "host:port of process 0, where JAX cannot find it by itself."
)
flags.DEFINE_integer("num_processes", None, "Processes, together with --coordinator.")
flags.DEFINE_integer("process_id", None, "This one, from 0, with --coordinator.")
flags.DEFINE_float(
  "start_timeout", 300.0, "Seconds that the processes of a run wait for one another."
)

FLAGS = flags.FLAGS

# Width of tables that are written to a file or a pipe.
_FILE_COLUMNS = 160
# A network's file system may show a new file to other hosts this much later.
_SEEN_SECONDS = 15.0


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


def start(card: Mapping[str, str]) -> Stop:
  """Joins the other processes, if any, and listens to signals.

  Before anything else of JAX; and signals after JAX, which takes SIGTERM for itself.

  Args:
    card: what has to be the same in all processes, each as text.

  Raises:
    InvalidSetting: for flags that do not go together, or differ between processes.
    ConnectionError: if another process does not come.
  """
  cluster = ("coordinator", "num_processes", "process_id")
  given = [name for name in cluster if getattr(FLAGS, name) is not None]
  if given:
    require(FLAGS.distributed, given[0], getattr(FLAGS, given[0]), "--distributed too")
    missing = [name for name in cluster if name not in given]
    require(
      not missing,
      given[0],
      getattr(FLAGS, given[0]),
      "--" + " and --".join(missing) + " too",
    )
    count, own = FLAGS.num_processes, FLAGS.process_id
    require(count >= 1, "num_processes", count, "an integer >= 1")
    require(0 <= own < count, "process_id", own, f"0 to {count - 1}")
  takes = "one process: not --distributed too"
  require(not (FLAGS.dry_run and FLAGS.distributed), "dry_run", True, takes)
  seconds = FLAGS.checkpoint_every_seconds
  require(seconds > 0, "checkpoint_every_seconds", seconds, "a positive number")
  minutes = FLAGS.max_minutes
  proper = minutes is None or 0 < minutes < math.inf
  require(proper, "max_minutes", minutes, "a positive number")
  check_lanes(FLAGS.lanes)
  timeout = FLAGS.start_timeout
  require(0 < timeout < 1e6, "start_timeout", timeout, "a number of seconds, up to 1e6")
  if FLAGS.distributed:
    # It would print the stacks of all threads where the others' loss is put in words.
    faulthandler.disable()
    hosts.join(
      FLAGS.coordinator, FLAGS.num_processes, FLAGS.process_id, card, FLAGS.start_timeout
    )
  return Stop(math.inf if minutes is None else 60 * minutes)


def console() -> rich.console.Console:
  """Where an experiment prints; the primary process alone, and not if --quiet."""
  quiet = FLAGS.quiet or not hosts.is_primary()
  own = rich.console.Console(highlight=False, quiet=quiet)
  if not own.is_terminal and "COLUMNS" not in os.environ:
    own.width = _FILE_COLUMNS  # a file has room where a terminal may not
  return own


@contextlib.contextmanager
def opened() -> Iterator[RunDirectory | None]:
  """Opens --output_dir; None in processes other than the primary.

  Also None under --dry_run where no run is there.

  Raises:
    InvalidSetting: if the directory cannot be used.
  """
  if FLAGS.dry_run and not (pathlib.Path(FLAGS.output_dir) / CONFIG).exists():
    yield None
    return
  if not hosts.is_primary():
    _check_shared()
    yield None
    return
  with RunDirectory(FLAGS.output_dir) as directory:
    _check_shared()
    yield directory


def _check_shared() -> None:
  """Raises `InvalidSetting` unless every process sees the primary's --output_dir.

  The primary leaves a hidden file there for the moment.
  """
  path = pathlib.Path(FLAGS.output_dir).absolute()
  name = hosts.text_from_primary(SHARED + uuid.uuid4().hex)
  try:
    if hosts.is_primary():
      (path / name).touch()
    hosts.wait_for_all()
    end = time.monotonic() + _SEEN_SECONDS
    while not (seen := (path / name).exists()) and time.monotonic() < end:
      time.sleep(0.5)
    blind = hosts.largest([0.0 if seen else 1.0 + jax.process_index()])[0]
  finally:
    if hosts.is_primary():
      (path / name).unlink(missing_ok=True)
  takes = "a directory that all processes share; process "
  takes += f"{blind - 1:.0f} does not see what the first one writes there"
  require(not blind, "output_dir", str(path), takes)


def stored_settings(directory: RunDirectory | None) -> str:
  """Returns, to all processes, the settings in the directory as JSON, null for none."""
  stored = directory.stored["settings"] if directory and directory.stored else None
  return hosts.text_from_primary(json.dumps(stored))


def recorded(
  request: Request,
  directory: RunDirectory | None,
  stop: Stop,
  draw: Callable[[Records, int | None], None],
  search: Search | None = None,
) -> Records | None:
  """Runs what is missing of what is asked for.

  Args:
    request: what is.
    directory: from `opened`.
    stop: from `start`.
    draw: draws what has been recorded so far, while the run lasts, and says of how many
      trials; None if that is not known yet.
    search: chooses among the trials round by round; None to run all of them.

  Returns:
    All that stands in the directory then; None in processes other than the primary.

  Raises:
    InvalidSetting: if the directory cannot be used, or a task cannot be drawn.
    Interrupted: if the run was asked to stop.
    OSError: if something could not be recorded.
  """
  path = pathlib.Path(FLAGS.output_dir)
  for cell in request.own:  # before the directory says that it is of this run
    cell.trial.task.check_draw(cell.seeds(request.seed, request.num_trials).task)
  files = None
  if directory is not None:
    files = begun(
      directory,
      request.settings,
      request.cells,
      added=request.added,
      probed=request.probed,
      keep_weights=request.keep_weights,
      probe=request.probe,
      notes=request.notes,
      asked=None if search else {c.name: request.num_trials for c in request.own},
    )
  outgrown = files.outgrown_trials if files else []
  outgrown = json.loads(hosts.text_from_primary(json.dumps(outgrown)))
  names, again, count, every = planned(request, outgrown, search)
  programs: Programs | None = {} if search else None
  widths = json.loads(hosts.text_from_primary(json.dumps(files and files.widths())))
  # All models at one length before the next: what is slow shows early.
  shortest_first = sorted(request.cells, key=lambda cell: cell.coordinates["length"])
  with contextlib.ExitStack() as while_running:
    watchers: list[Watcher] = []
    progress = None
    if files is not None:
      if FLAGS.tensorboard:
        watchers.append(TensorBoard(path / "tensorboard", files))
      if FLAGS.profile:
        watchers.append(while_running.enter_context(Profile(path / "profile")))
      number = len(again) + (search.num_trials if search else len(names))
      progress = Progress(number, request.cells, console())
      while_running.enter_context(progress)
      whole = None if search else len({*names, *again, *files.rows})
      live = LiveFigure(files, lambda records: draw(records, whole))
      watchers += [files, progress, live]

    def finish(chosen: Sequence[str]) -> dict[str, Rows]:
      """Runs those that are not recorded; returns the rows of all."""
      known = _recorded(files, chosen)
      missing = set(chosen) - set(known)
      if progress is not None:
        progress.recorded(len(known))
        progress.awaits(missing)
      if missing and directory is not None:
        directory.discard("summary.json")  # which says that a run is complete
      for _ in run(
        shortest_first,
        seed=request.seed,
        num_trials=count,
        lanes=FLAGS.lanes,
        finished=every - missing,
        watchers=watchers,
        keeper=Checkpoints(
          path / "checkpoints",
          FLAGS.checkpoint_every_seconds,
          run=request.identity,
          directory=directory,
        ),
        stopping=lambda: stop.requested,
        programs=programs,
        probe=request.probe,
        keep_weights=request.keep_weights,
        widths=widths,
      ):
        pass
      ended = _recorded(files, chosen)
      if lost := sorted(missing - set(ended)):
        raise RuntimeError(f"these trials ran and left no record: {', '.join(lost)}")
      return ended

    if search is None:
      finish([*names, *again])
    else:
      if again:
        finish(again)
      ended: dict[str, Rows] = {}
      expected = search.num_trials
      while True:
        chosen = search(ended)
        if progress is not None:
          progress.leave_out(expected - search.num_trials)
          expected = search.num_trials
        if not chosen:
          break
        ended.update(finish(chosen))
  return files.complete() if files else None


def _recorded(files: TrialFiles | None, names: Sequence[str]) -> dict[str, Rows]:
  """The rows of those of these trials of which nothing is missing, in all processes.

  Args:
    files: of the primary process; None in the others.
    names: of the trials.
  """
  rows = files.rows if files else {}
  text = json.dumps({name: rows[name] for name in names if name in rows})
  return json.loads(hosts.text_from_primary(text))
