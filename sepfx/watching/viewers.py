"""Watchers that write what people look at: figures, profiles, TensorBoard's curves."""

from __future__ import annotations

import pathlib
import time
import warnings
from collections.abc import Callable, Sequence

import jax
import numpy as np

from sepfx.ensembles.cells import Cell
from sepfx.ensembles.results import Records, Result
from sepfx.ensembles.watchers import Watcher
from sepfx.errors import InvalidSetting
from sepfx.records.trial_files import TrialFiles

# The first drawing, so long after the start. Later ones wait so many times as long as
# the one before took: trials wait while one is made.
_FIRST_SECONDS = 60.0
_REST = 50.0

# Reports traced: more make files that no viewer opens quickly.
_TRACED = 5


class LiveFigure(Watcher):
  """Has a figure drawn of the trials that have ended, now and then while a run lasts."""

  def __init__(self, files: TrialFiles, draw: Callable[[Records], None]):
    """Draws nothing yet.

    Args:
      files: where finished trials are found; told of each before this watcher is.
      draw: draws records, and writes what it has drawn.
    """
    self._files, self._draw = files, draw
    self._due = time.monotonic() + _FIRST_SECONDS
    self._failed = False

  def ended(self, result: Result) -> None:
    start = time.monotonic()
    if start < self._due:
      return
    records = self._files.records
    try:
      with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of means of few trials, and the like
        self._draw(records)
    except Exception as error:  # a figure may need trials that have not ended yet
      if not self._failed:
        warnings.warn(f"no figure of {len(records.all_curves)} trials: {error}",
                      stacklevel=2)  # fmt: skip
      self._failed = True
    now = time.monotonic()
    self._due = now + max(_FIRST_SECONDS, _REST * (now - start))


class Profile(Watcher):
  """Traces a run's first dispatches, for TensorBoard or Perfetto.

  A context manager. The trace begins at the first report, so that compilation is not
  in it.
  """

  def __init__(self, path: pathlib.Path):
    """Traces nothing yet.

    Args:
      path: directory of the trace, made when it begins.
    """
    self._path = path
    self._reports = 0

  def __enter__(self) -> Profile:
    return self

  def __exit__(self, *_: object) -> None:
    if 0 < self._reports <= _TRACED:
      jax.profiler.stop_trace()

  def advanced(self, cells: Sequence[Cell | None], steps: np.ndarray) -> None:
    self._reports += 1
    if self._reports == 1:
      jax.profiler.start_trace(self._path, create_perfetto_trace=True)
    elif self._reports == _TRACED + 1:
      jax.profiler.stop_trace()


class TensorBoard(Watcher):
  """Writes each trial's curves, in a directory of its own.

  Also losses that are estimates on a part of the test set, as `exact` says of a curve.
  """

  def __init__(self, path: pathlib.Path, files: TrialFiles):
    """Writes the curves of trials that ended before and are not there yet.

    Args:
      path: TensorBoard's `--logdir`.
      files: where finished trials are found.

    Raises:
      InvalidSetting: if TensorBoard is not installed.
    """
    try:
      from tensorboard.summary import Writer
    except ImportError as error:
      raise InvalidSetting(
        "tensorboard", True, "an installation of sepfx[tensorboard]"
      ) from error
    self._writer, self._path = Writer, path
    for name in files.rows:
      if not (path / name).exists():
        self._write(name, files.curve(name))

  def ended(self, result: Result) -> None:
    self._write(result.name, result.curve)

  def _write(self, name: str, curve: np.ndarray) -> None:
    writer = self._writer(str(self._path / name))
    where, *measured = curve.dtype.names or ()
    if "exact" in measured:
      measured.remove("exact")
    for point in curve:
      for what in measured:
        writer.add_scalar(what, float(point[what]), int(point[where]))
    writer.close()
