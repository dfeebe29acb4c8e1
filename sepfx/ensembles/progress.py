"""What a person sees while trials run."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import rich.console
import rich.progress

from sepfx.ensembles.cells import Cell
from sepfx.ensembles.records import Result
from sepfx.ensembles.watchers import Watcher

_PLAIN_SECONDS = 10.0  # between two lines where there is no terminal


class Progress(Watcher):
  """A progress bar on a terminal, a line now and then elsewhere.

  A context manager.
  """

  def __init__(self, num_trials: int, console: rich.console.Console | None = None):
    """Starts.

    Args:
      num_trials: trials that are to run, over all cells.
      console: where to write; None for standard output.
    """
    self._console = console or rich.console.Console()
    self._bar = rich.progress.Progress(
      rich.progress.TextColumn("{task.description}"),
      rich.progress.BarColumn(),
      rich.progress.MofNCompleteColumn(),
      rich.progress.TextColumn("trials"),
      rich.progress.TextColumn("{task.fields[rate]}"),
      rich.progress.TimeElapsedColumn(),
      rich.progress.TextColumn("{task.fields[left]}"),
      console=self._console,
      disable=not self._console.is_terminal,
    )
    self._total, self._recorded, self._done, self._samples = num_trials, 0, 0, 0
    self._task = self._bar.add_task("", total=num_trials, rate="", left="")
    self._start = self._last_line = time.monotonic()
    self._what = ""

  def __enter__(self) -> Progress:
    self._bar.start()
    return self

  def __exit__(self, *_: object) -> None:
    self._bar.stop()
    if not self._console.is_terminal:
      self._print_line()

  def recorded(self, number: int) -> None:
    """So many of the trials need not run: they are recorded already."""
    self._recorded += number
    self._bar.update(self._task, completed=self._recorded + self._done)

  def leave_out(self, number: int) -> None:
    """So many of the trials are not to be run."""
    self._total -= number
    self._bar.update(self._task, total=self._total)

  def compiling(self, cell: Cell) -> None:
    self._show(f"compiling {cell.words}")

  def advanced(self, cells: Sequence[Cell | None], steps: np.ndarray) -> None:
    for cell, taken in zip(cells, steps.tolist(), strict=True):
      if cell is not None:
        self._samples += taken * cell.trial.samples_a_step
        self._what = cell.words
    self._show(self._what)

  def ended(self, result: Result) -> None:
    self._done += 1
    self._show(self._what)

  def _show(self, what: str) -> None:
    self._what = what
    rate, left = self._rate()
    done = self._recorded + self._done
    self._bar.update(self._task, description=what, completed=done, rate=rate, left=left)
    now = time.monotonic()
    if not self._console.is_terminal and now - self._last_line >= _PLAIN_SECONDS:
      self._last_line = now
      self._print_line()

  def _rate(self) -> tuple[str, str]:
    """How many samples a second, and how long it will take."""
    elapsed = time.monotonic() - self._start
    rate = f"{self._samples / max(elapsed, 1e-9):,.0f} samples/s"
    waiting = self._total - self._recorded - self._done
    if not self._done or not waiting:
      return rate, ""
    # Later cells are usually slower, so this is on the hopeful side.
    seconds = elapsed / self._done * waiting
    return rate, f"about {seconds / 60:.0f} min left" if seconds > 90 else "nearly done"

  def _print_line(self) -> None:
    done = f"{self._recorded + self._done}/{self._total} trials"
    parts = [done, *self._rate(), self._what]
    self._console.print(", ".join(part for part in parts if part), highlight=False)
