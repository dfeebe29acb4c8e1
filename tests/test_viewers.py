"""What other programs open: TensorBoard's files and the profiler's."""

import gzip
import json

import jax.numpy as jnp
import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util

from sepfx.ensembles import Result
from sepfx.ensembles.cells import Cell
from sepfx.ensembles.run_directory import RunDirectory
from sepfx.ensembles.trial_files import TrialFiles
from sepfx.ensembles.viewers import Profile, TensorBoard
from sepfx.training import Passage
from tests import small

CELL = Cell(small.TRIAL)
STEPS = np.array([5, 5])
LOSSES = [(80, 1.5), (160, pytest.approx(0.95)), (240, 0.5)]  # the middle one an estimate


def result(trial):
  curve = small.losses([80, 160, 240], [1.5, 0.95, 0.5], [True, False, True])
  return Result(CELL, trial, [Passage(tau, 240, "reached") for tau in (0.9, 0.7)], curve)


def points(path):
  """What TensorBoard reads: (samples, loss) of one trial."""
  events = EventAccumulator(str(path))
  events.Reload()
  return [
    (event.step, float(tensor_util.make_ndarray(event.tensor_proto)))
    for event in events.Tensors("loss")
  ]


def test_tensorboard_reads_each_trials_losses(tmp_path):
  with RunDirectory(tmp_path / "run") as directory:
    files = TrialFiles(directory, [CELL])
    directory.begin({}, {})
    viewer = TensorBoard(tmp_path / "tb", files)
    for watcher in (files, viewer):
      watcher.ended(result(0))
    files.ended(result(1))  # as before --tensorboard was asked for
  assert points(tmp_path / "tb" / result(0).name) == LOSSES
  with RunDirectory(tmp_path / "run") as directory:
    again = TrialFiles(directory, [CELL])
    TensorBoard(tmp_path / "tb", again)
  for k in range(2):
    assert points(tmp_path / "tb" / result(k).name) == LOSSES


def test_a_profile_holds_the_first_dispatches(tmp_path):
  for num_reports in (2, 9):  # fewer and more than are traced
    path = tmp_path / str(num_reports)
    with Profile(path) as profile:
      for _ in range(num_reports):
        profile.advanced([CELL, None], STEPS)
        jnp.sin(jnp.ones(3)).block_until_ready()
    (trace,) = path.rglob("perfetto_trace.json.gz")
    with gzip.open(trace) as file:
      assert json.load(file)["traceEvents"]
    assert list(path.rglob("*.xplane.pb"))
