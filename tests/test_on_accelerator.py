"""What `benchmarks.on_accelerator` leaves, however soon its time is over."""

import dataclasses
import functools
import json
import math
import signal
import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver

import benchmarks
from benchmarks import cells, on_accelerator
from benchmarks import measurements as ms
from benchmarks.cells import figure_1a
from benchmarks.findings import Findings
from benchmarks.on_accelerator import SHARES, Limit, Sizes
from sepfx.commands import command_line
from sepfx.ensembles import widths
from sepfx.errors import InvalidSetting, OutOfMemory
from sepfx.provenance.environment import kind_of
from sepfx.training import Passage

LINEAR, FFN = "tests.small:Linear", "tests.small:ffn"
TINY = Sizes(
  models=(LINEAR,),
  length=2,
  trials=2,
  precisions=("float32",),
  baseline_seconds=0.0,
  growth_models=(LINEAR,),
  growth_lanes=(1, 2),
  growth_checks=3,
  long=(LINEAR, (2,)),
  boolean=((12, 10), (8, 5)),
  boolean_trials=1,
  compiled=(LINEAR, 2),
  compiled_by_one=1,
  seldom=50,
  parity_lengths=(6,),
  parity_trials=2,
  parity_steps=20,
  repeated=(
    f"--models={LINEAR}", "--lengths=2", "--num_trials=3", "--thresholds=0.9",
  ),
)  # fmt: skip
PARTS = list(SHARES)
MEASURING = (
  "beside_pytorch", "growth", "at_best_width", "speed", "boolean_cell", "compilation",
  "training_alone", "evaluations", "parities", "repeats",
)  # fmt: skip
TIMING = {
  "lanes_per_device": 2, "ms_per_trial_step": 0.5, "compile_seconds": 3.0,
  "MiB_per_lane": 0.25,
}  # fmt: skip


def left(directory):
  """Both files: the parts of the one and the other's sections by heading."""
  results = json.loads((directory / "results.json").read_text())
  _, *sections = (directory / "results.md").read_text().split("\n## ")
  assert results["num_devices"] == len(results["devices"]) == 2
  assert results["versions"]["jax"] == jax.__version__
  return results["parts"], dict(section.split("\n", 1) for section in sections)


def test_without_time_everything_is_not_reached(tmp_path):
  """What takes no time apart."""
  on_accelerator.measure(tmp_path, TINY, Limit(0))
  parts, sections = left(tmp_path)
  assert list(parts) == list(sections) == PARTS
  for part in set(PARTS) - {"memory"}:
    assert parts[part]["reached"] == "not reached"
    assert not parts[part]["rows"]
    assert sections[part].strip() == "not reached"
  assert parts["memory"]["rows"][0]["failed"] == "this kind of device does not tell"


def test_what_was_reached_is_kept(tmp_path, monkeypatch):
  class UntilOneIsThere(Limit):
    def left(self, part):
      path = tmp_path / "results.json"
      return -1 if path.exists() and left(tmp_path)[0]["pytorch"]["rows"] else 1

  sizes = dataclasses.replace(TINY, models=(LINEAR, FFN))
  found = {"ms_per_trial_step": 1234.5, "trials_per_hour": None, "trials": 2}
  monkeypatch.setattr(ms, "beside_pytorch", lambda *_: found)
  on_accelerator.measure(tmp_path, sizes, UntilOneIsThere(10, ["pytorch", "long"]))
  parts, sections = left(tmp_path)
  first, second = (
    {"model": model, "N": 2, "precision": "float32"} for model in sizes.models
  )
  assert {part: own["reached"] for part, own in parts.items()} == {
    "pytorch": "in part", "long": "not reached",
  }  # fmt: skip
  assert parts["pytorch"]["rows"] == [{**first, **found}]
  assert parts["pytorch"]["not_reached"] == [second]
  assert f"| {LINEAR} | 2 | float32 | 1,234 |  | 2 |" in sections["pytorch"]
  words = f"not reached: model = {FFN}, N = 2, precision = float32"
  assert words in sections["pytorch"]


def test_what_time_did_not_suffice_for_is_not_reached(tmp_path, monkeypatch):
  """A measurement that was begun and came to nothing."""
  for name in MEASURING:
    monkeypatch.setattr(ms, name, lambda *_: None)
  on_accelerator.measure(tmp_path, TINY, Limit(1e9))
  parts, _ = left(tmp_path)
  del parts["memory"]
  assert {part["reached"] for part in parts.values()} == {"not reached"}


@pytest.fixture
def now(monkeypatch):
  """Sets the time that `Limit` goes by."""
  seconds = [0.0]
  clock = SimpleNamespace(perf_counter=lambda: seconds[0])
  monkeypatch.setattr(on_accelerator, "time", clock)
  return functools.partial(seconds.__setitem__, 0)


def test_what_a_part_leaves_goes_to_those_after_it(now):
  assert math.isclose(sum(SHARES.values()), 1)
  limit = Limit(100)
  assert math.isclose(limit.left("pytorch"), 25)
  assert math.isclose(limit.left("lanes"), 48)
  now(20)
  assert math.isclose(limit.left("lanes"), 28)
  now(50)
  assert limit.left("lanes") < 0 < limit.left("long")
  assert not limit.over()
  now(100)
  assert limit.over()
  few = Limit(90, ["pytorch", "parity"])  # 25 to 5
  assert math.isclose(few.left("pytorch"), 75)
  assert math.isclose(few.left("parity"), 90)


def test_a_part_has_no_more_than_its_share(tmp_path, monkeypatch, now):
  """Its measurements share what is left; the rest of it is not reached."""
  given = []

  def slow(model, length, lanes, checks, enough):
    clock = SimpleNamespace(seconds=1.0)
    assert not enough(clock)
    seconds = next(s for s in range(1, 100) if now(s + 1e-9) or enough(clock))
    given.append(seconds)
    now(30)
    return TIMING

  monkeypatch.setattr(ms, "growth", slow)
  monkeypatch.setattr(ms, "speed", lambda *_: TIMING)
  sizes = dataclasses.replace(TINY, growth_lanes=(1, 2, 4, 8))
  on_accelerator.measure(tmp_path, sizes, Limit(31, ["lanes", "long"]))
  parts, _ = left(tmp_path)
  assert given == [5]  # of 23, for five of them
  assert (len(parts["lanes"]["rows"]), len(parts["lanes"]["not_reached"])) == (1, 4)
  assert parts["long"]["reached"] == "whole"


def test_a_measurement_has_a_second_if_there_is_time_at_all(now):
  enough = Limit(100).enough(5)
  now(6)
  assert enough(SimpleNamespace(seconds=1.0))
  assert not enough(SimpleNamespace(seconds=0.9))
  now(100)
  assert enough(SimpleNamespace(seconds=0.0))


@pytest.mark.parametrize("minutes", [0, -1, float("nan"), float("inf")])
def test_time_has_to_be_a_positive_number(tmp_path, minutes):
  with pytest.raises(InvalidSetting, match=r"minutes: got .*, takes a positive number"):
    on_accelerator.checked(minutes, [], tmp_path)


def test_results_of_another_call_are_kept(tmp_path):
  assert on_accelerator.checked(9, ["memory"], tmp_path) == ["memory"]
  told = []
  on_accelerator.measure(tmp_path, TINY, Limit(1e9, ["memory"]), told.append)
  assert told == ["memory: device = 0"]
  with pytest.raises(InvalidSetting, match=r"output_dir: got .*, takes a directory with"):
    on_accelerator.checked(9, ["compile"], tmp_path)


def test_parts_are_in_the_order_of_their_worth():
  assert on_accelerator.parts_of(["memory", "lanes", "memory"]) == ["lanes", "memory"]
  assert on_accelerator.parts_of([]) == PARTS
  with pytest.raises(InvalidSetting, match="got 'speed', takes some of pytorch, lanes"):
    on_accelerator.parts_of(["lanes", "speed"])


def test_an_unknown_part_ends_the_command(monkeypatch, capsys):
  monkeypatch.setattr(command_line, "prepare_jax", lambda: pytest.fail("too late"))
  with flagsaver.flagsaver():
    flags.FLAGS(["test", "--parts=lanes,speed"])
    with pytest.raises(SystemExit) as ended:
      on_accelerator.main([])
  assert ended.value.code == 2
  assert capsys.readouterr().err.startswith("error: --parts: got 'speed', takes some of")


def test_numbers_have_four_digits(tmp_path):
  findings = Findings(tmp_path, [("a", {"T": 1})])
  values = [0.0134567, 1.23456, 99.996, 1234.56, 5177070.0, 0.5, 4096, 1234567]
  findings.add("a", {"T": 1}, {str(k): value for k, value in enumerate(values)})
  text = (tmp_path / "results.md").read_text()
  shown = "0.01346 | 1.235 | 100 | 1,235 | 5,177,000 | 0.5 | 4,096 | 1,234,567"
  assert f"| 1 | {shown} |" in text


def results(*steps):
  """Trials that ended: index, steps, and whether each check read all."""
  return [
    SimpleNamespace(
      trial=trial,
      outcomes=[Passage(0.7, 64 * own, "reached")],
      curve=np.array([(full,) for full in read], [("exact", bool)]),
    )
    for trial, own, read in steps
  ]


def test_trials_per_hour_are_of_those_begun_first(monkeypatch):
  """Ten steps, thirty, and a later one that happened to end."""
  ended = results((0, 10, [1]), (1, 30, [1, 0, 0]), (3, 5, [0, 0, 1]))
  clock = SimpleNamespace(
    lanes=1, seconds=2.0, steps=400, compiled=7.0, results=ended, bytes_per_lane=2**19
  )
  monkeypatch.setattr(ms, "timed", lambda *_, **__: clock)
  own = figure_1a("ffn", 2)
  row = ms.speed(own, 2, lambda _: False)
  assert (row["ms_per_trial_step"], row["steps_per_trial"]) == (5.0, 20.0)
  assert row["MiB_per_lane"] == 0.5
  assert math.isclose(row["trials_per_hour"], 3600 / (5e-3 * 20))
  assert math.isclose(row["checks_read_in_full"], 3 / 7)
  assert row["trials_ended"] == 3
  del ended[1]
  assert ms.speed(own, 2, lambda _: False)["trials_per_hour"] is None
  ended.clear()
  assert ms.speed(own, 2, lambda _: False)["checks_read_in_full"] is None


@pytest.mark.parametrize("error", [jax.errors.JaxRuntimeError, OutOfMemory])
def test_one_that_fails_does_not_end_the_others(tmp_path, monkeypatch, error):
  def fail(*_):
    raise error("RESOURCE_EXHAUSTED: too much\nof everything")

  for name in MEASURING:
    monkeypatch.setattr(ms, name, fail)
  monkeypatch.setattr(ms, "speed", lambda *_: TIMING)
  on_accelerator.measure(tmp_path, TINY, Limit(1e9))
  parts, sections = left(tmp_path)
  for part in set(PARTS) - {"long", "memory"}:
    for row in parts[part]["rows"]:
      assert row["failed"] == "RESOURCE_EXHAUSTED: too much"
  assert parts["boolean"]["reached"] == "in part"  # nothing to project from
  assert parts["long"]["reached"] == "whole"
  assert "| 2 | 0.5 | 3 | 0.25 |" in sections["long"]


def stand_in(monkeypatch, milliseconds):
  """Puts something in the place of the program in PyTorch; returns what it was told."""
  told = []
  baseline = SimpleNamespace(
    allow_tf32=told.append,
    seconds_per_step=lambda *asked: told.append(asked) or milliseconds / 1e3,
    described=lambda: "a stand-in",
  )
  monkeypatch.setitem(sys.modules, "benchmarks.baseline", baseline)
  monkeypatch.setattr(benchmarks, "baseline", baseline, raising=False)
  return told


def test_pytorch_is_told_what_it_may_multiply_in(monkeypatch):
  told, precisions = stand_in(monkeypatch, 3.0), []

  def speed(own, *_):
    precisions.append(own.trial.protocol.matmul_precision)
    return TIMING

  monkeypatch.setattr(ms, "speed", speed)
  for precision in ("float32", "tensorfloat32"):
    row = ms.beside_pytorch("ffn", 12, precision, 2, 4.0, None)
    assert (row["PyTorch"], row["PyTorch_ms_per_trial_step"]) == ("a stand-in", 3.0)
    assert math.isclose(row["times_PyTorch"], 6)
  assert precisions == ["float32", "tensorfloat32"]
  assert told == [False, ("ffn", 12, 4.0), True, ("ffn", 12, 4.0)]


def test_without_pytorch_there_are_our_times(monkeypatch):
  monkeypatch.setitem(sys.modules, "torch", None)
  monkeypatch.delitem(sys.modules, "benchmarks.baseline", raising=False)
  monkeypatch.delattr(benchmarks, "baseline", raising=False)
  monkeypatch.setattr(ms, "speed", lambda *_: TIMING)
  row = ms.beside_pytorch("ffn", 12, "float32", 2, 4.0, None)
  assert row.pop("failed").startswith("no PyTorch (")
  assert row == TIMING


def test_the_best_width_is_the_narrowest_within_a_tenth():
  assert widths.best({32: 0.01, 256: 0.0055, 1024: 0.005, 4096: 0.0051}) == 256
  assert widths.best({32: 0.01, 256: 0.0056, 1024: 0.005}) == 1024
  assert widths.best({32: 1.0}) == 32


def test_what_is_measured_replaces_what_the_table_has():
  def row(what, operations, parameters, lanes):
    return {
      "what": what, "operations": operations, "parameters": parameters, "lanes": lanes,
    }  # fmt: skip

  table = {
    "gpu:a": [row("x", 1, 2, 32), row("y", 1, 3, 32)],
    "gpu:b": [row("z", 1, 2, 8)],
  }
  kept, new, other = row("y", 1, 3, 32), row("x again", 1, 2, 64), row("w", 2, 2, 16)
  assert widths.merged(table, "gpu:a", [new, other]) == {
    "gpu:a": [kept, new, other], "gpu:b": table["gpu:b"],
  }  # fmt: skip
  assert widths.merged({}, "gpu:a", [new]) == {"gpu:a": [new]}


def test_the_table_of_widths_is_left(tmp_path, monkeypatch):
  """It chooses for the same structure and kind of device, and names it."""
  times = {1: 1.0, 2: 0.4, 4: 0.41, 8: 0.39}
  monkeypatch.setattr(
    ms,
    "growth",
    lambda model, length, lanes, *_: {
      "lanes_per_device": lanes, "ms_per_trial_step": times[lanes],
    },
  )  # fmt: skip
  monkeypatch.setattr(ms, "speed", lambda *_, lanes: {**TIMING, "lanes": lanes})
  sizes = dataclasses.replace(TINY, growth_lanes=tuple(times))
  on_accelerator.measure(tmp_path, sizes, Limit(1e9, ["lanes"]))
  *_, best = left(tmp_path)[0]["lanes"]["rows"]
  assert best["lanes"] == 2
  assert best["times_PyTorch"] is None
  kind, trial = kind_of(jax.devices()[0]), figure_1a(LINEAR, 2).trial
  (row,) = json.loads((tmp_path / "widths.json").read_text())[kind]
  assert (row["what"], row["lanes"]) == (f"{LINEAR} N = 2", 2)
  assert row["parameters"] == trial.num_parameters
  monkeypatch.setattr(widths, "TABLE", tmp_path / "widths.json")
  assert widths.width(trial, kind) == 2
  assert widths.width(trial, "another kind") == 1024


def test_the_best_width_is_held_against_pytorch(monkeypatch):
  monkeypatch.setattr(ms, "speed", lambda *_, lanes: {**TIMING, "lanes": lanes})
  grown = [
    {"model": "ffn", "trials": "first checks", **TIMING, "lanes_per_device": lanes}
    for lanes in (32, 64)
  ]
  beside = [
    {
      "model": "ffn", "N": 12, "precision": precision, "PyTorch_ms_per_trial_step": own,
    }
    for precision, own in (("tensorfloat32", 9.0), ("float32", 2.0))
  ]  # fmt: skip
  row = ms.at_best_width("ffn", 12, 2, grown, beside, None)
  assert (row["lanes"], row["times_PyTorch"]) == (32, 4.0)
  assert ms.at_best_width("ffn", 12, 2, grown[:1], beside, None) is None
  grown = [{"model": "ffn", "trials": "first checks", "failed": "too wide"}, grown[0]]
  assert ms.at_best_width("ffn", 12, 2, grown, beside, None) is None


def test_the_grid_is_projected_from_two_cells():
  """By hand, for a cost that is the same for all cells and one in proportion to m T."""

  def hours(minutes, compiled=()):
    rows = [
      {"T": T, "m": m, "minutes_at_most": minutes(T, m), "compile_seconds": 9.0}
      for T, m in ((800, 200), (100, 50))
    ]
    return ms.boolean_grid([{"failed": "one more"}, *rows], compiled)

  lengths = (100, 150, 200, 250, 300, 350, 400, 500, 600, 700, 800)
  constant = hours(lambda T, m: 2.0)
  assert math.isclose(constant["training_hours_at_most"], 176 * 2 / 2 / 60)
  assert math.isclose(constant["compile_hours_with_one_worker"], 176 * 9 / 3600)
  assert constant["compile_hours_with_all"] is None
  growing = hours(lambda T, m: 1e-3 * m * (T + 1))
  tokens = sum(m * (T + 1) for T in lengths for m in range(50, 201, 10))
  assert math.isclose(growing["training_hours_at_most"], tokens * 1e-3 / 2 / 60)
  compiled = [
    {"workers": workers, "seconds_per_program": seconds}
    for workers, seconds in ((7, 2.0), (1, 8.0))
  ]
  faster = hours(lambda T, m: 2.0, compiled)
  assert math.isclose(faster["compile_hours_with_all"], 176 * 9 / 3600 / 4)
  assert hours(lambda T, m: 2.0, compiled[:1])["compile_hours_with_all"] is None
  assert ms.boolean_grid([{"failed": "both"}], compiled) is None


@pytest.mark.parametrize(("lanes", "filled"), [(1, 50), (32, 64), (256, 256)])
def test_a_cell_advances_all_its_lanes(monkeypatch, lanes, filled):
  clock = SimpleNamespace(
    lanes=lanes, seconds=6.0, steps=500, lane_steps=3000, compiled=1.0, bytes_per_lane=1.0
  )
  monkeypatch.setattr(ms, "timed", lambda *_, **__: clock)
  row = ms.boolean_cell(100, 50, 2, None)
  assert math.isclose(row["minutes_at_most"], 2e-3 * filled * 1000 / 60)


def test_a_check_costs_what_training_alone_does_not(monkeypatch):
  monkeypatch.setattr(ms, "speed", lambda *_: TIMING)
  alone = [
    {"model": "gru", "ms_per_trial_step": 9.0}, {"model": "ffn", "failed": "once"},
    {"model": "ffn", "ms_per_trial_step": 0.3},
  ]  # fmt: skip
  row = ms.evaluations("ffn", 12, 2, alone, None)
  assert math.isclose(row["ms_per_check"], 10 * 0.2)
  assert ms.evaluations("ffn", 12, 2, alone[:2], None) == TIMING


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_each_part_alone(tmp_path, monkeypatch, part):
  class NeverOver(Limit):
    def over(self):
      return False

    def left(self, part):
      return 600

  stand_in(monkeypatch, 3.0)
  small = functools.partial(cells.cell, models="ffn")  # instead of Transformers on bits
  monkeypatch.setattr(ms, "cell", small)
  handler = signal.getsignal(signal.SIGTERM)
  with flagsaver.flagsaver():
    flags.FLAGS(["test"])
    on_accelerator.measure(tmp_path, TINY, NeverOver(600, [part]))
  assert signal.getsignal(signal.SIGTERM) is handler
  parts, _ = left(tmp_path)
  assert list(parts) == [part]
  assert parts[part]["reached"] == "whole"
  rows = parts[part]["rows"]
  for row in rows:
    if "ms_per_trial_step" in row:
      assert row["ms_per_trial_step"] > 0
      assert row["compile_seconds"] > 0
      assert row["MiB_per_lane"] > 0
  CHECKS[part](rows)


def pytorch_part(rows):
  (row,) = rows
  assert math.isclose(row["times_PyTorch"] * row["ms_per_trial_step"], 3.0)
  assert row["trials_ended"] == 4
  assert 0 < row["checks_read_in_full"] <= 1


def lanes_part(rows):
  *first, best = rows
  assert [row["lanes_per_device"] for row in first] == [1, 2]
  assert best["trials_ended"] == 4


def long_part(rows):
  assert [row["N"] for row in rows] == [2]


def boolean_part(rows):
  *both, grid = rows
  assert all(row["minutes_at_most"] > 0 for row in both)
  assert math.isfinite(grid["training_hours_at_most"])
  assert grid["compile_hours_with_all"] is None  # the other part was not asked for


def compile_part(rows):
  assert [(row["workers"], row["programs"]) for row in rows] == [(2, 2), (1, 1)]
  for row in rows:
    assert math.isclose(row["seconds"], row["seconds_per_program"] * row["programs"])


def evaluations_part(rows):
  alone, whole = rows
  assert alone["check_every"] == 50
  difference = whole["ms_per_trial_step"] - alone["ms_per_trial_step"]
  assert math.isclose(whole["ms_per_check"], 10 * difference)


def memory_part(rows):
  assert [row["failed"] for row in rows] == ["this kind of device does not tell"]


def parity_part(rows):
  (row,) = rows
  assert 0 < row["steps_of_the_others"] <= 20
  assert row["samples_per_second"] > 0


def repeats_part(rows):
  (row,) = rows
  assert row["trials_csv"] == "same bytes"
  assert (row["rows_that_differ"], row["curves_that_differ"]) == (0, 0)
  assert row["trials"] == 3


CHECKS = {part: globals()[f"{part}_part"] for part in PARTS}


def test_memory_is_that_of_the_first_device(monkeypatch):
  known = {"bytes_limit": 2**30, "peak_bytes_in_use": 2**29, "num_allocs": 1}
  device = SimpleNamespace(memory_stats=lambda: known)
  monkeypatch.setattr(ms.jax, "devices", lambda: [device])
  assert ms.memory() == {"MiB_limit": 1024, "MiB_in_use_at_most": 512}


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
