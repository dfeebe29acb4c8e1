"""What people look at while a run lasts: its figure, TensorBoard's files, a profile."""

import gzip
import json

import jax.numpy as jnp
import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util

from sepfx.ensembles import Result
from sepfx.ensembles.cells import Cell
from sepfx.records.run_directory import RunDirectory
from sepfx.records.trial_files import TrialFiles
from sepfx.training import Passage
from sepfx.watching import viewers
from sepfx.watching.viewers import LiveFigure, Profile, TensorBoard
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


@pytest.fixture
def files(tmp_path):
  with RunDirectory(tmp_path / "run") as directory:
    files = TrialFiles(directory, [CELL])
    directory.begin({}, {})
    yield files


@pytest.fixture
def clock(monkeypatch):
  now = [0.0]
  monkeypatch.setattr(viewers.time, "monotonic", lambda: now[0])
  return now


def tell(watchers, trial):
  for watcher in watchers:
    watcher.ended(result(trial))


def test_a_figure_is_drawn_now_and_then(files, clock):
  drawn = []

  def draw(records):
    drawn.append((clock[0], records))
    clock[0] += 2.0  # which it takes

  watchers = [files, LiveFigure(files, draw)]
  for trial, now in enumerate([59.0, 61.0, 122.0, 162.0, 164.0]):
    clock[0] = now
    tell(watchers, trial)
  assert [now for now, _ in drawn] == [61.0, 164.0]  # the second rests 50 x 2 seconds
  counts = [len(records.all_curves) for _, records in drawn]
  assert counts == [2, 5]
  complete = files.complete()
  np.testing.assert_array_equal(drawn[-1][1].table, complete.table)
  assert drawn[-1][1].all_curves.keys() == complete.all_curves.keys()


def test_a_figure_that_cannot_be_drawn_yet_stops_nothing(files, clock):
  seen = []

  def draw(records):
    seen.append(len(records.all_curves))
    raise ValueError("no cell is complete")

  watchers = [files, LiveFigure(files, draw)]
  clock[0] = 100.0
  with pytest.warns(UserWarning, match="no figure of 1 trials: no cell is complete"):
    tell(watchers, 0)
  clock[0] = 200.0
  tell(watchers, 1)  # says it once: a second warning would be an error here
  assert seen == [1, 2]


@pytest.mark.slow
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
