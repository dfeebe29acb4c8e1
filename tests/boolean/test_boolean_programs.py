"""The programs for Boolean functions: what they refuse and what they leave."""

import csv
import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest

from experiments.boolean import boolean_sample_complexity as boolean
from experiments.boolean import exhaustive, parity
from experiments.boolean.exhaustive import stored_floor
from sepfx import InvalidSetting
from sepfx.ensembles import Records, columns, table
from sepfx.studies import tables
from sepfx.studies.searches import Adaptive
from sepfx.studies.study import Run
from sepfx.tasks import SparseBoolean
from tests.programs import check_preset_says_what_it_is

ROOT = pathlib.Path(__file__).parents[2]

BAD = {
  "boolean_sample_complexity": [
    (["--contexts=2"], "sparsity: got 3, takes an integer from 1 to the number of bits"),
    (["--contexts=ten"], "contexts: got 'ten', takes an integer"),
    (["--contexts="], "contexts: got '', takes at least one"),
    (["--sample_sizes=0,10"], "sample_sizes: got 0, takes an integer >= 1"),
    (["--function=nand"], "function: got 'nand', takes and, or, majority, parity"),
    (["--function=table:011"], "function: got (0, 1, 1), takes 2^sparsity = 8 values"),
    (["--function=symmetric:01x0"], "function: got 'symmetric:01x0', takes and"),
    (["--function=symmetric:01101"], "function: got (0, 1, 1, 0, 1), takes sparsity + 1"),
    (["--noise=0.5"], "noise: got 0.5, takes a number in [0, 1/2)"),
    (["--subset=0,1,60"], "subset: got (0, 1, 60), takes 3 different positions"),
    (["--num_heads=5"], "it raised: num_heads: got 5, takes a divisor"),
    (["--models=transformer:num_heads=5"], "num_heads: got 5, takes a divisor"),
    (["--accuracy_level=0.5"], "accuracy_level: got 0.5, takes a number above 1/2"),
    (["--accuracy_level=1.01"], "accuracy_level: got 1.01, takes a number above 1/2"),
    (["--accuracy_level=0.87"], "accuracy_level: got 0.87, takes a number above 0.875"),
    (["--models=mlp"], "models: got 'mlp', takes transformer, ffn, gru, lstm or"),
    (
      ["--batch_size=30"],
      "batch_size: got 30, takes an integer from 1 to the sample size 20",
    ),
    (["--clip_norm=-1"], "clip_norm: got -1.0, takes a number >= 0"),
    (["--learning_rate=0"], "learning_rate: got 0.0"),
    (["--num_test=0"], "num_test: got 0"),
    (["--max_steps=9"], "max_steps: got 9"),
    (["--check_every=0"], "check_every: got 0"),
    (
      ["--function=threshold:" + "1" * 5000],
      "... (5012 characters), takes threshold:K with at most nine digits",
    ),
    (["--function=symmetric:" + "01" * 2500], "... (15000 characters), takes sparsity"),
    (["--function=table:" + "01" * 2500], "... (15000 characters), takes 2^sparsity = 8"),
    (["--function=threshold:\u0663"], "function: got 'threshold:\u0663', takes and, or"),
    (
      ["--function=threshold:9"],
      "function: got 'threshold:9', takes a function that is not the same on all inputs",
    ),
    (["--contexts=99999999999"], "contexts: got 99999999999, takes an integer between"),
    (["--contexts=2000000"], "contexts: got 2000000, takes an integer from 1 to 1048576"),
    (["--contexts=" + "1" * 5000], "... (5002 characters), takes an integer"),
    (["--sample_sizes=2147483648"], "sample_sizes: got 2147483648, takes an integer bet"),
    (["--num_test=1.5"], "num_test: got '1.5', takes an integer"),
    (
      ["--max_steps=2147483648"],
      "max_steps: got 2147483648, takes an integer below",
    ),
    (["--learning_rate=1e-320"], "learning_rate: got 1e-320, takes a positive number"),
    (["--noise=nan"], "noise: got nan"),
    (["--dropout=nan"], "dropout: got nan, takes a number in [0, 1)"),
    (["--num_layers=100000000"], "num_layers: got 100000000, takes an integer from 1"),
    (["--width=99999999999"], "width: got 99999999999, takes an integer between"),
  ],
  "parity": [
    (["--contexts=2"], "sparsity: got 3"),
    (["--noise=0,0.5"], "noise: got 0.5"),
    (["--noise="], "noise: got '', takes at least one value"),
    (["--accuracy_level=1"], "accuracy_level: got 1.0, takes a number between"),
    (["--max_steps=5"], "max_steps: got 5, takes at least check_every = 10"),
    (["--batch_size=0"], "batch_size: got 0"),
    (
      ["--sparsity=2000", "--contexts=3000"],
      "sparsity: got 2000, takes an integer from 1 to 100",
    ),
    (
      ["--max_steps=2147483648"],
      "max_steps: got 2147483648, takes an integer below",
    ),
    (["--num_trials=2147483648"], "num_trials: got 2147483648"),
    (["--num_trials=many"], "num_trials: got 'many', takes an integer"),
  ],
}

STUDIES = {"boolean_sample_complexity": boolean.STUDY, "parity": parity.STUDY}


@pytest.mark.parametrize(
  ("module", "arguments", "expected"),
  [(module, *case) for module, cases in BAD.items() for case in cases],
)
def test_bad_flags_are_refused(module, arguments, expected):
  study = STUDIES[module]
  with pytest.raises(InvalidSetting) as error:
    study.cells(study.chosen(arguments))
  assert expected in str(error.value)


@pytest.mark.parametrize(
  "function", ["or", "threshold:2", "symmetric:0110", "table:01101001"]
)
def test_functions_are_accepted(function):
  chosen = boolean.STUDY.chosen([f"--function={function}", "--contexts=9"])
  assert len(boolean.STUDY.cells(chosen)) == 5


def test_presets_say_what_they_are():
  presets = sorted((ROOT / "experiments/flags").glob("boolean_*.cfg"))
  numbers = []
  for preset in presets:
    check_preset_says_what_it_is(preset)
    chosen = boolean.STUDY.chosen([f"--flagfile={preset}"])
    axes = chosen.axes
    numbers.append(len(axes["length"]) * len(axes["sample_size"]))
    first = {name: values[:1] for name, values in axes.items()}
    small = dataclasses.replace(chosen, values={**chosen.values, **first})
    assert len(boolean.STUDY.cells(small)) == 1
  assert numbers == [176, 21]  # 11 x 16, as published


def test_noise_is_an_axis():
  cells = parity.STUDY.cells(parity.STUDY.chosen(["--contexts=8", "--noise=0,0.1"]))
  assert [cell.coordinates["noise"] for cell in cells] == [0.0, 0.1]
  assert [cell.trial.task.noise for cell in cells] == [0.0, 0.1]
  assert [cell.trial.test_task.noise for cell in cells] == [0.0, 0.0]
  assert len({jax.tree.structure(cell.trial) for cell in cells}) == 1
  one, two = (jax.random.key_data(cell.seeds(0, 2).task) for cell in cells)
  np.testing.assert_array_equal(one, two)


def test_a_cell_has_one_name_alone_and_among_others():
  study = parity.STUDY
  arguments = ["--contexts=4", "--sparsity=1"]
  whole = study.chosen([*arguments, "--dropout=0,0.5", "--noise=0,0.1"])
  own = study.chosen([*arguments, "--dropout=0", "--noise=0"])
  (cell,) = study.cells(own, whole)
  assert cell.name in {each.name for each in study.cells(whole)}


def test_a_search_is_of_cells_that_differ_in_their_sample_size_alone():
  study = boolean.STUDY
  arguments = ["--contexts=9", "--sample_sizes=20,40,80", "--noise=0,0.1"]
  cells = study.cells(study.chosen(arguments))
  assert len(cells) == 2 * 3
  search = Adaptive(cells, num_trials=32)
  assert search.num_trials == 2 * 32
  by_name = {f"{cell.name}/trial={k}": cell for cell in cells for k in range(32)}
  ended = {}
  while chosen := search(ended):
    assert len(set(chosen)) == len(chosen)
    assert not ended.keys() & set(chosen)
    # Without noise all trials succeed, with it none does.
    for name in chosen:
      reached = by_name[name].coordinates["noise"] == 0
      ended[name] = [{"outcome": "reached" if reached else "censored"}]
  sizes = {0.0: [], 0.1: []}
  for name in ended:
    own = by_name[name].coordinates
    sizes[own["noise"]].append(own["sample_size"])
  clean, noisy = sizes.values()
  assert len(clean) == len(noisy) == 32
  assert clean.count(20) > 24
  assert noisy.count(80) > 24


def summary_of(*arguments):
  """The summary of a run whose trials all failed."""
  small = ("--contexts=25", "--sample_sizes=10,20")
  chosen = boolean.STUDY.chosen([*small, *arguments])
  cells = boolean.STUDY.cells(chosen)
  rows = [(*cell.coordinates.values(), 0, 0.9, 10, "censored") for cell in cells]
  records = Records(table(rows, columns(cells)), tuple(cells[0].coordinates), {})
  by_name = {cell.name: cell for cell in cells}
  own = Run(records, by_name, chosen, "length")
  return boolean.summarise(own)


@pytest.mark.slow
def test_a_floor_is_of_one_task_without_noise():
  stored = stored_floor(SparseBoolean(length=25))
  known = [[25, stored.size, stored.error]]
  assert summary_of()["floor"] == known
  assert summary_of("--learning_rate=1e-3,3e-3")["floor"] == known
  for several in ("--noise=0,0.1", "--sparsity=2,3", "--function=and,or"):
    assert summary_of(several)["floor"] == []
  assert stored_floor(SparseBoolean(length=25, noise=0.1)) is None
  assert stored_floor(SparseBoolean(length=25, subset=(0, 3, 4))) is None
  other = SparseBoolean(length=25, bit_probability=0.4)
  assert stored_floor(other) is None


def test_a_floor_that_is_not_stored_is_said_to_be_missing():
  summary = summary_of("--contexts=25,26", "--sparsity=3")
  assert [length for length, *_ in summary["floor"]] == [25]
  assert summary["no_floor"] == [26]
  said = [part for part in tables.successes(summary) if isinstance(part, str)]
  assert any("No floor is drawn for T = 26" in part for part in said)
  assert any("26 (T = 25)" in part for part in said)


def test_no_run_simulates_its_floor(monkeypatch):
  monkeypatch.setattr(exhaustive, "_count_agreeing", None)
  assert summary_of("--contexts=800")["floor"][0][0] == 800


def run(module, directory, *arguments):
  command = [sys.executable, "-m", f"experiments.{module}", *arguments]
  command.append(f"--output_dir={directory}")
  environment = {**os.environ, "PYTHONPATH": str(ROOT)}
  done = subprocess.run(
    command, cwd=ROOT, capture_output=True, text=True, env=environment
  )
  assert done.returncode == 0, done.stderr
  with open(directory / "trials.csv") as file:
    return done.stdout, list(csv.DictReader(file))


LOGISTIC = (
  "--models=tests.test_erm:Logistic", "--contexts=6", "--sparsity=2", "--num_test=500",
  "--learning_rate=0.05", "--max_steps=200", "--accuracy_level=0.98",
)  # fmt: skip


@pytest.mark.faults
def test_a_search_ends_where_the_grid_does_and_goes_on_where_it_stopped(tmp_path):
  sizes = "--sample_sizes=5,10,15,20,30,40"
  program = "boolean_sample_complexity"
  _, grid = run(program, tmp_path / "grid", *LOGISTIC, sizes, "--num_trials=20")
  search = (*LOGISTIC, sizes, "--search=adaptive", "--num_trials=20")
  _, rows = run(program, tmp_path / "search", *search)
  assert len(rows) == 20
  assert all(row in grid for row in rows)  # trials of the same index are the same
  tried = [int(row["sample_size"]) for row in rows]
  assert len(set(tried)) > 2
  found = [
    json.loads((tmp_path / name / "summary.json").read_text())["critical"][0]
    for name in ("grid", "search")
  ]
  assert found[1]["low"] < found[0]["size"] < found[1]["high"]
  trials = tmp_path / "search/trials.csv"
  whole = trials.read_bytes()
  trials.write_bytes(b"".join(whole.splitlines(keepends=True)[::2]))  # with the header
  (tmp_path / "search/digests.json").unlink()  # else the file is refused
  run(program, tmp_path / "search", *search)
  assert trials.read_bytes() == whole


@pytest.mark.faults
def test_sample_sizes_end_to_end(tmp_path):
  arguments = (*LOGISTIC, "--sample_sizes=4,60", "--num_trials=3")
  output, rows = run("boolean_sample_complexity", tmp_path / "run", *arguments)
  assert list(rows[0]) == [
    "task", "model", "length", "sample_size", "trial", "accuracy", "steps", "outcome",
  ]  # fmt: skip
  assert len(rows) == 2 * 3
  for row in rows:
    assert (float(row["accuracy"]) > 0.98) == (row["outcome"] == "reached")
  summary = json.loads((tmp_path / "run/summary.json").read_text())
  assert len(summary["cells"]) == 2
  assert [cell["length"] for cell in summary["critical"]] == [6]
  assert (tmp_path / "run/figure.png").read_bytes().startswith(b"\x89PNG")
  with np.load(tmp_path / "run/curves.npz") as curves:
    curve = curves[
      "task=and/model=tests.test_erm:Logistic/length=6/sample_size=60/trial=0"
    ]
  assert curve.dtype.names == (
    "steps", "test_error", "train_error", "train_loss", "test_loss",
  )  # fmt: skip
  assert "m at which half succeed" in output
  assert "success odds grow" in output
  assert "at every T" not in output  # there is one
  second = (*arguments, "--contexts=7", "--num_trials=1", f"--beside={tmp_path / 'run'}")
  output, rows = run("boolean_sample_complexity", tmp_path / "second", *second)
  assert "at every T" in output
  assert [row["length"] for row in rows] == ["7", "7"]
  summary = json.loads((tmp_path / "second/summary.json").read_text())
  assert [cell["trials"] for cell in summary["cells"]] == [3, 3, 1, 1]
  assert summary["floor"] == []
  assert summary["no_floor"] == [6, 7]


@pytest.mark.faults
def test_parity_end_to_end(tmp_path):
  arguments = (
    "--contexts=4", "--sparsity=1", "--noise=0.1", "--num_trials=2", "--num_test=300",
    "--batch_size=64", "--max_steps=300", "--learning_rate=0.003",
  )  # fmt: skip
  output, rows = run("parity", tmp_path / "run", *arguments)
  assert [row["task"] for row in rows] == ["parity"] * 2
  summary = json.loads((tmp_path / "run/summary.json").read_text())
  (cell,) = summary["cells"]
  assert summary["parameters"]
  assert cell["reached"] == 2  # one bit is learned
  assert cell["steps"] == sorted(int(row["samples"]) // 64 for row in rows)
  assert (tmp_path / "run/figure.png").read_bytes().startswith(b"\x89PNG")
  assert "steps to learn" in output


@pytest.mark.faults
def test_a_larger_budget_is_also_for_what_a_search_did_not_ask_for(tmp_path):
  """Trials that a grid censored at 20 steps are at 40 after a search of another size."""
  out = tmp_path / "run"
  grid = (*LOGISTIC, "--sample_sizes=4,60", "--num_trials=2", "--max_steps=20")
  _, rows = run("boolean_sample_complexity", out, *grid)
  censored = {(row["sample_size"], row["trial"]) for row in rows} - {
    (row["sample_size"], row["trial"]) for row in rows if row["outcome"] == "reached"
  }
  assert ("4", "0") in censored
  search = (*LOGISTIC, "--sample_sizes=60", "--num_trials=2", "--search=adaptive")
  _, rows = run("boolean_sample_complexity", out, *search, "--max_steps=40")
  assert len(rows) == 4
  assert all(row["steps"] == "40" for row in rows if row["outcome"] == "censored")
