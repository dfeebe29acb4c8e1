"""What a run would take, without running it: against the run itself."""

import dataclasses

import numpy as np
import pytest

from sepfx.ensembles import Cell, rehearsal, rehearse, run, trial_name
from sepfx.training import AdamW
from tests import small


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
  monkeypatch.setattr(rehearsal, "_TIMED_SECONDS", 0.0)


def at_rate(rate):
  trial = small.with_protocol(small.TRIAL, optimizer=AdamW(learning_rate=rate))
  return Cell(trial, {"learning_rate": rate})


def test_programs_of_a_run():
  """Two cells of one program, and one of another whose budget is one check."""
  one_check = small.with_protocol(small.TRIAL, max_samples=16 * 5, num_test=40)
  pair = [at_rate(1e-3), at_rate(2e-3)]
  cells = [*pair, Cell(dataclasses.replace(one_check, model_name="short"))]
  finished = {trial_name(pair[0], 0), trial_name(pair[0], 2)}
  before = list(run(cells[:1], seed=1, num_trials=1))
  both, short = rehearse(cells, seed=1, num_trials=3, finished=finished)
  assert [cell.name for cell in both.cells] == [cell.name for cell in pair]
  assert (both.trials, both.steps) == (4, 4 * 300)
  assert (short.trials, short.steps) == (3, 3 * 5)  # ends before a step could be timed
  for program in (both, short):
    assert program.bytes_per_lane > 0
    assert program.compile_seconds > 0
    assert program.most_seconds == pytest.approx(program.steps / program.steps_per_second)
  (after,) = run(cells[:1], seed=1, num_trials=1)
  assert after.rows == before[0].rows  # it leaves nothing behind
  np.testing.assert_array_equal(after.curve, before[0].curve)


def test_the_pace_is_that_of_all_lanes(monkeypatch):
  """On a clock that says how long each dispatch takes."""
  clock = [0.0]
  monkeypatch.setattr(rehearsal.time, "perf_counter", lambda: clock[0])
  monkeypatch.setattr(rehearsal, "_TIMED_SECONDS", 3.0)
  dispatch = rehearsal.OpenProgram.dispatch
  lasts = iter([10.0, 1.0, 1.0, 1.0])  # the first draws what trials begin with

  def slow(opened):
    clock[0] += next(lasts)
    dispatch(opened)

  monkeypatch.setattr(rehearsal.OpenProgram, "dispatch", slow)
  (found,) = rehearse([Cell(small.TRIAL)], seed=0, num_trials=9)
  assert found.steps_per_second == pytest.approx(5 * found.lanes)
  assert found.most_seconds == pytest.approx(9 * 300 / (5 * found.lanes))


def test_nothing_is_left_to_run():
  cell = at_rate(1e-3)
  names = {trial_name(cell, k) for k in range(2)}
  assert not list(rehearse([cell], seed=0, num_trials=2, finished=names))
