"""Watchers that write what other programs show: profiles and TensorBoard's curves."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

import jax
import numpy as np

from sepfx.ensembles.cells import Cell
from sepfx.ensembles.records import Result
from sepfx.ensembles.trial_files import TrialFiles
from sepfx.ensembles.watchers import Watcher
from sepfx.errors import InvalidSetting

# Reports traced: more make files that no viewer opens quickly.
_TRACED = 5


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
