"""What a person sees while trials run."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import rich.console
import rich.progress

from sepfx import outlets
from sepfx.ensembles.cells import Cell
from sepfx.ensembles.forecast import Forecast, makespan
from sepfx.ensembles.results import Result, trial_name
from sepfx.ensembles.watchers import Watcher

_PLAIN_SECONDS = 10.0  # between two lines where there is no terminal
_RECENT_SECONDS = 30.0  # that the rate is of
_FORECAST_SECONDS = 1.0  # between two forecasts
# Its own pace counts when a cell has taken this share of a trial's steps: the first
# dispatches are short, and wait for those of other programs.
_SEEN_SHARE = 0.25
# A trial that has taken more steps than expected takes this share of them yet, at least.
_OVERDUE_SHARE = 0.25


class Progress(Watcher):
  """A progress bar on a terminal or in a notebook, a line now and then elsewhere.

  A context manager.
  """

  def __init__(
    self,
    num_trials: int,
    cells: Sequence[Cell],
    console: rich.console.Console | None = None,
  ):
    """Starts.

    Args:
      num_trials: trials that are to run, over all cells.
      cells: theirs.
      console: where to write; None for standard output.
    """
    self._console = console or outlets.console()
    # A notebook shows a bar with the help of ipywidgets alone.
    widgets = importlib.util.find_spec("ipywidgets") is not None
    self._live = not self._console.quiet and (
      self._console.is_terminal or (self._console.is_jupyter and widgets)
    )
    self._bar = rich.progress.Progress(
      rich.progress.TextColumn("{task.description}", markup=False),
      rich.progress.BarColumn(),
      rich.progress.TextColumn("{task.fields[done]}"),
      rich.progress.TextColumn("{task.fields[rate]}"),
      rich.progress.TimeElapsedColumn(),
      rich.progress.TextColumn("{task.fields[left]}"),
      console=self._console,
      disable=not self._live,
      redirect_stdout=sys.stdout.isatty(),  # else it would end in the terminal
    )
    self._total, self._recorded, self._done, self._samples = num_trials, 0, 0, 0
    self._at_most = False
    self._task = self._bar.add_task(
      "", total=num_trials, done=self._words, rate="", left=""
    )
    self._start = self._last_line = time.monotonic()
    self._what = ""
    self._recent: deque[tuple[float, int]] = deque([(self._start, 0)])
    coordinates = {cell.name: cell.coordinates for cell in cells}
    self._steps = Forecast(coordinates)
    # Attention's steps cost N^2, an optimizer's nothing of N.
    self._pace = Forecast(coordinates, of_length=0.5)
    self._most_steps = {cell.name: cell.trial.most_steps for cell in cells}
    self._to_end = {cell.name for cell in cells if cell.trial.run_to_end}
    # By cell: steps that its running trials have taken, and all; when lanes reported, and
    # what they did of late, as (when, seconds of lanes, steps).
    self._underway: Counter[str] = Counter()
    self._taken: Counter[str] = Counter()
    self._reported: dict[str, float] = {}
    self._lately: dict[str, deque[tuple[float, float, int]]] = {}
    self._spent = 0.0  # seconds in lanes, of ended trials
    self._programs = {cell.name: jax.tree.structure(cell.trial) for cell in cells}
    self._waiting: Counter[str] = Counter()
    self._running: dict[str, tuple[str, float]] = {}
    self._most_running = 1
    self._compiled: set[Any] = set()
    self._compiling_since: float | None = None
    self._waited = 0.0  # for programs
    self._left, self._left_at = "", 0.0

  def __enter__(self) -> Progress:
    self._bar.start()
    return self

  def __exit__(self, *_: object) -> None:
    self._bar.update(self._task, left="", refresh=True)  # a notebook's bar stops there
    self._bar.stop()
    if not self._live:
      self._print_line()

  def recorded(self, number: int) -> None:
    """So many of the trials need not run: they are recorded already."""
    self._recorded += number
    done = self._recorded + self._done
    self._bar.update(self._task, completed=done, done=self._words)

  def expects(self, number: int, *, at_most: bool = False) -> None:
    """So many trials are to run in all, or at most."""
    self._total, self._at_most = number, at_most
    self._bar.update(self._task, total=number, done=self._words)

  @property
  def _words(self) -> str:
    """How many trials have ended, of how many."""
    of = " of at most " if self._at_most else "/"
    return f"{self._recorded + self._done}{of}{self._total} trials"

  def awaits(self, trials: Iterable[str]) -> None:
    """These trials run next, in any order; each by its `trial_name`."""
    self._waiting.update(name.rpartition("/")[0] for name in trials)

  def compiling(self, cell: Cell) -> None:
    self._compiling_since = time.monotonic()
    self._show(f"compiling {cell.words}")
    if self._live:
      self._bar.refresh()
    else:  # at once: nothing else happens until it is compiled
      self._console.print(f"compiling {cell.words}")

  def started(self, cell: Cell, trial: int, step: int) -> None:
    now = time.monotonic()
    if self._compiling_since is not None:
      self._waited += now - self._compiling_since
      self._compiling_since = None
    self._compiled.add(self._programs[cell.name])
    self._waiting[cell.name] -= 1
    self._running[trial_name(cell, trial)] = (cell.name, now)
    self._reported[cell.name] = now
    self._most_running = max(self._most_running, len(self._running))

  def advanced(self, cells: Sequence[Cell | None], steps: np.ndarray) -> None:
    now = time.monotonic()
    lanes: Counter[str] = Counter()
    taken: Counter[str] = Counter()
    for cell, own in zip(cells, steps.tolist(), strict=True):
      if cell is not None:
        lanes[cell.name] += 1
        taken[cell.name] += own
        self._samples += own * cell.trial.samples_a_step
        self._what = cell.words
    self._underway.update(taken)
    self._taken.update(taken)
    for name, number in lanes.items():
      seconds = number * (now - self._reported[name])
      self._reported[name] = now
      recent = self._lately.setdefault(name, deque())
      recent.append((now, seconds, taken[name]))
      while now - recent[0][0] > _RECENT_SECONDS:
        recent.popleft()
    self._show(self._what)

  def ended(self, result: Result) -> None:
    self._done += 1
    cell, since = self._running.pop(result.name)
    self._spent += time.monotonic() - since
    # One that goes on from a checkpoint took some of its steps before.
    self._underway[cell] = max(0, self._underway[cell] - result.steps)
    self._steps.ended(cell, result.steps)
    pace = self._recent_pace(cell)
    if pace is not None:
      self._pace.ended(cell, pace)
    self._show(self._what)

  def held_up(self, cells: Sequence[Cell]) -> None:
    what = ", ".join(cell.words for cell in cells)
    self._console.print(f"waiting until this is compiled: {what}")

  def _show(self, what: str) -> None:
    self._what = what
    now = time.monotonic()
    if now - self._recent[-1][0] >= 1.0:
      self._recent.append((now, self._samples))
      while now - self._recent[0][0] > _RECENT_SECONDS:
        self._recent.popleft()
    if now - self._left_at >= _FORECAST_SECONDS:
      self._left, self._left_at = self._time_left(now), now
    done, rate = self._recorded + self._done, self._rate(now)
    self._bar.update(
      self._task,
      description=what,
      completed=done,
      done=self._words,
      rate=rate,
      left=self._left,
    )
    if not self._live and now - self._last_line >= _PLAIN_SECONDS:
      self._last_line = now
      self._print_line()

  def _rate(self, now: float) -> str:
    """Samples per second, lately."""
    since, samples = self._recent[0]
    return f"{(self._samples - samples) / max(now - since, 1e-9):,.0f} samples/s"

  def _time_left(self, now: float) -> str:
    """How long it will take, or what is known of that."""
    waiting = +self._waiting
    running = Counter(cell for cell, _ in self._running.values())
    cells = {*running, *waiting}
    steps = self._steps_of(cells)
    pace = self._pace_of(cells, steps)
    known = {c for c in cells if steps[c] is not None and pace[c] is not None}
    if not known:
      return "time left not known yet" if cells else ""
    ages: Counter[str] = Counter()
    for cell, since in self._running.values():
      ages[cell] += now - since  # type: ignore[assignment]
    seconds = []
    for cell, since in self._running.values():
      share = (now - since) / ages[cell] if ages[cell] else 0.0
      taken = share * self._underway[cell]
      left = max((steps[cell] or 0.0) - taken, _OVERDUE_SHARE * taken)
      seconds.append(left * (pace[cell] or 0.0))
    for cell, number in waiting.items():
      seconds += [(steps[cell] or 0.0) * (pace[cell] or 0.0)] * number
    # An adaptive search has not said yet which trials these will be. Of one that may end
    # before, only the round at hand is known.
    unnamed = self._total - self._recorded - self._done - len(seconds)
    if self._done and not self._at_most:
      seconds += [self._spent / self._done] * max(unnamed, 0)
    programs = {self._programs[cell] for cell in waiting} - self._compiled
    compiling = len(programs) * self._waited / max(len(self._compiled), 1)
    left = makespan(seconds, self._most_running) + compiling
    every = len(known) == len(cells) and not self._at_most
    return f"{'about' if every else 'more than'} {time_words(left)} left"

  def _steps_of(self, cells: Collection[str]) -> dict[str, float | None]:
    """Expected steps of a trial of each of these cells; None where it is not known."""
    expected = self._steps.predictions(cells)
    for cell in cells:
      own, most = expected[cell], self._most_steps[cell]
      expected[cell] = most if cell in self._to_end else own and min(own, most)
    return expected

  def _pace_of(
    self, cells: Collection[str], steps: Mapping[str, float | None]
  ) -> dict[str, float | None]:
    """Seconds of a lane per step in each of these cells; None where it is not known.

    Of late, of cells that have run long enough: a pace is another while programs are
    compiled.
    """
    pace = self._pace.predictions(cells)
    for cell in cells:
      seen = self._taken[cell] > _SEEN_SHARE * (steps[cell] or np.inf)
      if seen or pace[cell] is None:
        pace[cell] = self._recent_pace(cell)
    return pace

  def _recent_pace(self, cell: str) -> float | None:
    """The one at which or faster half of the steps of late were taken.

    A lane that waits for a slower program's dispatch takes few: they count for little.
    """
    reports = [
      (own / steps, steps) for _, own, steps in self._lately.get(cell, ()) if steps
    ]
    if not reports:
      return None
    paces, steps = np.array(sorted(reports)).T
    return float(paces[np.searchsorted(np.cumsum(steps), np.sum(steps) / 2)])

  def _print_line(self) -> None:
    now = time.monotonic()
    minutes, seconds = divmod(int(now - self._start), 60)
    ended = self._recorded + self._done >= self._total
    left = "" if ended else self._left
    parts = [self._words, f"{minutes}:{seconds:02}", self._rate(now), left, self._what]
    self._console.print(", ".join(part for part in parts if part))


def time_words(seconds: float) -> str:
  """A time as a person says it."""
  if seconds < 90:
    return f"{max(10 * round(seconds / 10), 5)} s"
  if seconds < 600:
    return f"{0.5 * round(seconds / 30):g} min"
  return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
