"""What a run would take, without running it: against the run itself."""

import dataclasses

import jax
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


@pytest.mark.slow
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
    assert program.most_seconds > 0
  (after,) = run(cells[:1], seed=1, num_trials=1)
  assert after.rows == before[0].rows  # it leaves nothing behind
  np.testing.assert_array_equal(after.curve, before[0].curve)


@pytest.mark.parametrize(
  "trials", [*(pytest.param(k, marks=pytest.mark.slow) for k in (1, 2)), 3]
)
def test_most_seconds_are_of_whole_rounds(monkeypatch, trials):
  """On a clock that says how long each dispatch takes; two lanes."""
  clock = [0.0]
  monkeypatch.setattr(rehearsal.time, "perf_counter", lambda: clock[0])
  monkeypatch.setattr(rehearsal, "_TIMED_SECONDS", 3.0)
  dispatch = rehearsal.OpenProgram.dispatch
  lasts = iter([10.0, 1.0, 1.0, 1.0])  # the first draws what trials begin with

  def slow(opened):
    clock[0] += next(lasts)
    dispatch(opened)

  monkeypatch.setattr(rehearsal.OpenProgram, "dispatch", slow)
  one = jax.devices()[:1]
  (found,) = rehearse(
    [Cell(small.TRIAL)], seed=0, num_trials=trials, lanes=2, devices=one
  )
  assert found.lanes == min(trials, 2)
  assert found.seconds_per_step == pytest.approx(1 / 5)  # of a trial, a check a second
  assert found.most_seconds == pytest.approx((1 if trials <= 2 else 2) * 300 / 5)


@pytest.mark.slow
def test_fewer_lanes_where_memory_runs_out(monkeypatch):
  dispatch = rehearsal.OpenProgram.dispatch

  def narrow(opened):
    if opened.lanes.lanes_per_device > 2:
      raise MemoryError
    dispatch(opened)

  monkeypatch.setattr(rehearsal.OpenProgram, "dispatch", narrow)
  options = {"seed": 0, "num_trials": 9, "devices": jax.devices()[:1]}
  with pytest.warns(UserWarning, match="going on with 2"):
    (found,) = rehearse([Cell(small.TRIAL)], lanes=4, **options)
  assert found.lanes == 2
  monkeypatch.setattr(rehearsal.OpenProgram, "dispatch", lambda _: 1 / 0)
  with pytest.raises(ZeroDivisionError):
    list(rehearse([Cell(small.TRIAL)], lanes=4, **options))


def test_nothing_is_left_to_run():
  cell = at_rate(1e-3)
  names = {trial_name(cell, k) for k in range(2)}
  assert not list(rehearse([cell], seed=0, num_trials=2, finished=names))
