"""What `benchmarks.on_accelerator` leaves, however soon its time is over."""

import dataclasses
import json
import math
import signal
from types import SimpleNamespace

import jax
import pytest
from absl import flags
from absl.testing import flagsaver

from benchmarks import measurements as ms
from benchmarks import on_accelerator
from benchmarks.on_accelerator import Limit, Sizes
from sepfx.training import Passage

TINY = Sizes(
  lanes=1,
  waves=1,
  models=("tests.small:Linear", "tests.small:ffn"),
  length=2,
  boolean=((12, 10), (8, 5)),
  boolean_lanes=1,
  parity_lengths=(6,),
  parity_trials=2,
  parity_steps=20,
  repeated=(
    "--models=tests.small:Linear", "--lengths=2", "--num_trials=3", "--thresholds=0.9",
  ),
  growth_lanes=(1, 2),
  growth_models=("tests.small:Linear",),
  growth_checks=3,
)  # fmt: skip
PARTS = ["speed", "boolean", "parity", "repeats", "lanes"]


def left(directory):
  """Both files: the parts of the one and the other's sections by heading."""
  results = json.loads((directory / "results.json").read_text())
  _, *sections = (directory / "results.md").read_text().split("\n## ")
  assert results["num_devices"] == len(results["devices"]) == 2
  assert results["versions"]["jax"] == jax.__version__
  return results["parts"], dict(section.split("\n", 1) for section in sections)


def test_without_time_everything_is_not_reached(tmp_path):
  on_accelerator.measure(tmp_path, TINY, Limit(0))
  parts, sections = left(tmp_path)
  assert list(parts) == list(sections) == PARTS
  for part in PARTS:
    assert parts[part]["reached"] == "not reached"
    assert not parts[part]["rows"]
    assert sections[part].strip() == "not reached"


def test_what_was_reached_is_kept(tmp_path, monkeypatch):
  class UntilOneIsThere(Limit):
    def over(self):
      path = tmp_path / "results.json"
      return path.exists() and bool(left(tmp_path)[0]["speed"]["rows"])

  found = {"ms_a_trial_step": 1234.5, "trials_an_hour": None, "trials": 2}
  monkeypatch.setattr(ms, "speed", lambda *_: found)
  on_accelerator.measure(tmp_path, TINY, UntilOneIsThere(10))
  parts, sections = left(tmp_path)
  first, second = ({"model": model, "N": 2} for model in TINY.models)
  assert [parts[part]["reached"] for part in PARTS] == ["in part", *4 * ["not reached"]]
  assert parts["speed"]["rows"] == [{**first, **found}]
  assert parts["speed"]["not_reached"] == [second]
  assert f"| {first['model']} | 2 | 1,234 |  | 2 |" in sections["speed"]
  assert f"not reached: model = {second['model']}, N = 2" in sections["speed"]


def test_what_time_did_not_suffice_for_is_not_reached(tmp_path, monkeypatch):
  """A measurement that was begun and came to nothing."""
  for name in ("speed", "boolean_cell", "parities", "repeats", "growth"):
    monkeypatch.setattr(ms, name, lambda *_: None)
  on_accelerator.measure(tmp_path, TINY, Limit(1e9))
  parts, _ = left(tmp_path)
  assert {part["reached"] for part in parts.values()} == {"not reached"}


def test_trials_an_hour_are_of_those_begun_first(monkeypatch):
  """Ten steps, thirty, and a later one that happened to end."""
  results = [
    SimpleNamespace(trial=trial, outcomes=[Passage(0.7, 64 * steps, "reached")])
    for trial, steps in ((0, 10), (1, 30), (3, 5))
  ]
  clock = SimpleNamespace(lanes=1, seconds=2.0, steps=400, compiled=7.0, results=results)
  monkeypatch.setattr(ms, "timed", lambda *_, **__: clock)
  row = ms.speed("ffn", 2, 1, 2, lambda _: False)
  assert (row["ms_a_trial_step"], row["steps_a_trial"]) == (5.0, 20.0)
  assert math.isclose(row["trials_an_hour"], 3600 / (5e-3 * 20))
  assert (row["trials_ended"], row["trials"]) == (3, 4)
  del results[1]
  assert ms.speed("ffn", 2, 1, 2, lambda _: False)["trials_an_hour"] is None


def test_one_that_fails_does_not_end_the_others(tmp_path, monkeypatch):
  def fail(*_):
    raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: too much\nof everything")

  found = {"lanes_a_device": 2, "ms_a_trial_step": 0.5, "compile_seconds": 3.0}
  for name in ("speed", "boolean_cell", "parities", "repeats"):
    monkeypatch.setattr(ms, name, fail)
  monkeypatch.setattr(ms, "growth", lambda *_: found)
  on_accelerator.measure(tmp_path, TINY, Limit(1e9))
  parts, sections = left(tmp_path)
  for part in PARTS[:4]:
    for row in parts[part]["rows"]:
      assert row["failed"] == "RESOURCE_EXHAUSTED: too much"
  assert parts["boolean"]["reached"] == "in part"  # nothing to project from
  assert parts["lanes"]["reached"] == "whole"
  assert "| 2 | 0.5 | 3 |" in sections["lanes"]


@pytest.mark.parametrize("lanes", [1, 32])
def test_the_grid_is_projected_from_two_cells(lanes):
  """By hand, for a cost that is the same for all cells and one in proportion to m T."""
  points = ((800, 200), (100, 50))

  def hours(cost):
    rows = [
      {
        "T": T, "m": m, "ms_a_trial_step": cost(T, m), "lanes_a_device": lanes,
        "compile_seconds": 9.0,
      }
      for T, m in points
    ]  # fmt: skip
    return ms.boolean_grid([{"failed": "one more"}, *rows])

  lengths = (100, 150, 200, 250, 300, 350, 400, 500, 600, 700, 800)
  trials = 50 if lanes == 1 else 64  # all lanes are advanced
  constant = hours(lambda T, m: 2.0)
  assert math.isclose(constant["hours_at_most"], 176 * trials * 1000 * 2e-3 / 3600)
  assert math.isclose(constant["compile_hours"], 176 * 9 / 2 / 3600)
  growing = hours(lambda T, m: 1e-3 * m * (T + 1))
  tokens = sum(m * (T + 1) for T in lengths for m in range(50, 201, 10))
  assert math.isclose(growing["hours_at_most"], tokens * trials * 1000 * 1e-6 / 3600)
  assert ms.boolean_grid([{"failed": "both"}]) is None


@pytest.mark.slow
def test_every_part_is_measured(tmp_path):
  class NeverOver(Limit):
    def over(self):
      return False

  sizes = dataclasses.replace(
    TINY, models=TINY.models[:1], boolean=TINY.boolean[:1], growth_lanes=(2,)
  )
  handler = signal.getsignal(signal.SIGTERM)
  with flagsaver.flagsaver():
    flags.FLAGS(["test"])
    on_accelerator.measure(tmp_path, sizes, NeverOver(10))
  assert signal.getsignal(signal.SIGTERM) is handler
  parts, _ = left(tmp_path)
  reached = [parts[part]["reached"] for part in PARTS]
  assert reached == ["whole", "in part", "whole", "whole", "whole"]
  assert parts["boolean"]["not_reached"] == [{"cells": "all"}]  # which takes two
  for part in ("speed", "boolean", "parity"):
    (row,) = parts[part]["rows"]
    assert row["lanes_a_device"] == 1
    assert row["ms_a_trial_step"] > 0
    assert row["compile_seconds"] > 0
  (parity,) = parts["parity"]["rows"]
  assert 0 < parity["steps_of_the_others"] <= 20
  assert parity["samples_a_second"] > 0
  (repeats,) = parts["repeats"]["rows"]
  assert repeats["trials_csv"] == "same bytes"
  assert (repeats["rows_that_differ"], repeats["curves_that_differ"]) == (0, 0)
  assert repeats["trials"] == 3
  assert [row["lanes_a_device"] for row in parts["lanes"]["rows"]] == [2]


@pytest.mark.slow
def test_runs_that_differ_are_told(monkeypatch):
  runs = iter(("--num_trials=2", "--num_trials=2 --seed=1"))
  run_study = ms._run_study
  monkeypatch.setattr(
    ms, "_run_study", lambda path, own: run_study(path, [*own, *next(runs).split()])
  )
  with flagsaver.flagsaver():
    flags.FLAGS(["test"])
    found = ms.repeats(TINY.repeated, lambda: False)
  assert found["trials_csv"] == "different"
  assert found["rows_that_differ"] > 0
  assert found["curves_that_differ"] == found["trials"] == 2
