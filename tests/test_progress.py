"""What a person sees while trials run, and how long the rest is expected to take."""

import dataclasses
import io
import itertools

import numpy as np
import pytest
import rich.console

from sepfx.ensembles import Cell, Result
from sepfx.ensembles.forecast import Forecast, makespan
from sepfx.watching import progress
from tests import small

CELL = Cell(small.TRIAL)


def test_recorded_trials_are_not_waited_for(monkeypatch):
  monkeypatch.setattr(progress, "_PLAIN_SECONDS", 0.0)
  monkeypatch.setattr(progress, "_FORECAST_SECONDS", 0.0)
  file = io.StringIO()
  console = rich.console.Console(file=file, width=200)
  with progress.Progress(5, [CELL], console) as shown:
    shown.awaits([f"{CELL.name}/trial={k}" for k in range(3)])
    shown.started(CELL, 0, 0)
    shown.advanced([CELL, None], np.array([10, 0]))
    shown.recorded(2)
    shown.ended(Result(CELL, 0, (), np.zeros(0), steps=10))
    shown.expects(3)
  before, after, end = file.getvalue().splitlines()
  assert before.startswith("0/5 trials, 0:00, ")
  assert "time left not known yet" in before
  assert after.startswith("3/5 trials")
  assert "about 5 s left" in after
  assert end.startswith("3/3 trials")
  assert "left" not in end


def test_of_a_search_that_may_end_before_the_round_at_hand_is_known(monkeypatch):
  monkeypatch.setattr(progress, "_PLAIN_SECONDS", 0.0)
  monkeypatch.setattr(progress, "_FORECAST_SECONDS", 0.0)
  file = io.StringIO()
  console = rich.console.Console(file=file, width=200)
  with progress.Progress(150, [CELL], console) as shown:
    shown.expects(150, at_most=True)
    shown.awaits([f"{CELL.name}/trial={k}" for k in range(2)])
    shown.started(CELL, 0, 0)
    shown.ended(Result(CELL, 0, (), np.zeros(0), steps=10))
    shown.started(CELL, 1, 0)
    shown.advanced([CELL, None], np.array([10, 0]))
    shown.ended(Result(CELL, 1, (), np.zeros(0), steps=10))
    shown.expects(2)
  *_, underway, _, end = file.getvalue().splitlines()
  assert underway.startswith("1 of at most 150 trials")
  assert "more than 5 s left" in underway
  assert end.startswith("2/2 trials")


def cells_of(*models, lengths=(4, 8, 16)):
  """Coordinates of cells, by name."""
  return {
    f"{name}{length}": {"task": "t", "model": name, "length": length, "noise": 0.0}
    for name, length in itertools.product(models, lengths)
  }


def test_a_model_that_has_not_run_is_not_guessed_at():
  forecast = Forecast(cells_of("fast", "slow"))
  forecast.ended("fast4", 2.0)
  predicted = forecast.predictions(["fast4", "fast8", "slow4"])
  assert predicted["fast4"] == 2.0
  assert predicted["fast8"] == pytest.approx(2.0 * 2, rel=0.01)  # expected of all
  assert predicted["slow4"] is None


def test_powers_of_the_length_are_learned():
  power, rng = 2.6, np.random.default_rng(0)
  forecast = Forecast(cells_of("fast", "slow", lengths=(4, 8, 12, 16, 32)))
  for name, seconds in (("fast", 1.0), ("slow", 30.0)):
    for length in (4, 8, 12):
      for factor in np.exp(rng.normal(0, 0.1, 20)):
        forecast.ended(f"{name}{length}", factor * seconds * (length / 4) ** power)
  predicted = forecast.predictions(["fast32", "slow32"])
  assert predicted["fast32"] == pytest.approx(8**power, rel=0.2)
  assert predicted["slow32"] == pytest.approx(30 * 8**power, rel=0.2)


@pytest.mark.parametrize(
  ("seconds", "lanes", "total"),
  [
    ([], 2, 0.0),
    ([3.0, 3.0, 3.0], 2, 6.0),
    ([5.0, 1.0, 1.0, 1.0], 2, 5.0),
    ([1.0, 1.0], 8, 1.0),
    ([0.5] * 1000, 2, 250.0),
  ],
)
def test_makespan(seconds, lanes, total):
  assert makespan(seconds, lanes) == pytest.approx(total)


def test_time_left_of_a_simulated_run(monkeypatch):
  """Two models, one of them 20 times as slow; on two lanes, a clock of our own."""
  clock = [0.0]
  monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
  cells = [
    Cell(dataclasses.replace(small.TRIAL, model_name=model), {"size": size})
    for size in (4, 8)
    for model in ("fast", "slow")
  ]
  speed = {"fast": 1.0, "slow": 20.0}
  jobs = [(cell, k) for cell in cells for k in range(4)]
  shown = progress.Progress(16, cells, rich.console.Console(file=io.StringIO()))
  shown.awaits([f"{cell.name}/trial={k}" for cell, k in jobs])

  def lasts(cell):
    own = cell.coordinates
    return speed[own["model"]] * own["size"]

  total = sum(lasts(cell) for cell, _ in jobs) / 2
  texts = {}
  for first, second in zip(jobs[::2], jobs[1::2], strict=True):
    for cell, k in (first, second):
      shown.started(cell, k, 0)
    for _ in range(4):
      clock[0] += lasts(first[0]) / 4
      shown.advanced([first[0], second[0]], np.array([25, 25]))
      texts[clock[0]] = shown._time_left(clock[0])
    for cell, k in (first, second):
      shown.ended(Result(cell, k, (), np.zeros(0), steps=100))
  assert texts[1.0] == "time left not known yet"
  assert texts[8.0 + 20].startswith("more than ")  # the slow ones have not ended yet
  for now, text in texts.items():
    if 8.0 + 80 < now < total:
      assert text.startswith("about ")
      number, unit = text.split()[1:3]
      seconds = float(number) * (60 if unit == "min" else 1)
      assert total - now == pytest.approx(seconds, rel=0.5, abs=10), now
