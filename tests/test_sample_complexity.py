"""The command line: what it refuses, what it writes, and that it goes on."""

import csv
import io
import json
import pathlib
import re
import subprocess
import sys

import jax
import numpy as np
import pytest
import rich.console
from absl import flags
from absl.testing import flagsaver

from experiments import (
  attention_weights,
  beside,
  parity,
  published,
  running,
  study,
  tables,
)
from experiments import boolean_sample_complexity as boolean
from experiments.beside import Part
from experiments.merging import differing_axes, merged
from experiments.sample_complexity import STUDY
from experiments.settings import from_stored
from sepfx import InvalidSetting
from sepfx.ensembles import Records, columns, table
from sepfx.ensembles.run_directory import RunDirectory
from tests.programs import check_preset_says_what_it_is

ROOT = pathlib.Path(__file__).parent.parent
FLAGS = ROOT / "experiments/flags"
OTHERS = ("quickstart.cfg", "lengths.cfg")
PRESETS = [*sorted(FLAGS.glob("fig*.cfg")), *(FLAGS / name for name in OTHERS)]


def cells_of(*arguments):
  return STUDY.cells(STUDY.chosen(arguments))


@pytest.fixture(autouse=True)
def _fresh_flags():
  with flagsaver.flagsaver():
    yield


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (["--models=tranformer"], "models: got 'tranformer', takes transformer, ffn"),
    (["--models="], "models: got"),
    (["--models=tests.small:nothing"], "models: got"),
    (["--lengths=1,4"], "lengths: got 1, takes an integer >= 2"),
    (["--lengths=four"], "lengths: got 'four', takes an integer"),
    (["--lengths="], "lengths: got"),
    (["--lengths=4,6", "--sparsity=5"], "sparsity: got 5"),
    (["--sparsity=0"], "sparsity: got 0"),
    (["--token_dim=0"], "token_dim: got 0"),
    (["--batch_size=0"], "batch_size: got 0"),
    (["--check_every=-1"], "check_every: got -1"),
    (["--num_test=0"], "num_test: got 0"),
    (["--models=transformer:num_heads=0"], "models: got 'transformer:num_heads=0'"),
    (
      ["--models=transformer:num_heads=x"],
      "models: got 'transformer:num_heads=x', takes an int",
    ),
    (["--models=transformer:heads=1"], "takes the fields num_heads, parametrization"),
    (["--width=20"], "width: got 20, takes a field of .*, the model ffn"),
    (["--width=20", "--models=transformer,gru"], "a field of .*, the model gru, "),
    (["--length=4"], "length: got '4', takes nothing: its flag is --lengths"),
    (
      ["--widht=20"],
      "widht: got 20, takes a field of the task qstr, the model transformer, "
      "the protocol Online, its optimizer",
    ),
    (["--models=transformer", "--width=20.5"], "width: got '20.5', takes an integer"),
    (["--width="], "width: got '', takes at least one value"),
    (["--width=20,,30"], "width: got '20,,30', takes at least one value"),
    (["--width=20", "--width=30"], "width: got '30', takes its values in one flag"),
    (["--width", "20"], "argument: got '--width', takes a flag .* or --FIELD=VALUE"),
    (["--batch_size=8,8.5"], "batch_size: got '8.5', takes an integer"),
    (["--learning_rate="], "learning_rate: got '', takes at least one value"),
    (["--seed=0,1"], "seed: got '0,1', takes one value: it cannot be an axis"),
    (["--max_samples=10000,20000"], "max_samples: .* takes one value: it cannot be"),
    (["--num_trials=2,3"], "num_trials: got '2,3', takes one value"),
    (["--check_every=5,10"], "check_every: got '5,10', takes one value"),
    (["--optimizer=adamx"], "optimizer: got 'adamx', takes adamw, or the name"),
    (
      ["--optimizer=sgd", "--weight_decay=0,0.1"],
      "weight_decay: .* its default with sgd",
    ),
    (["--optimizer=adamw:rate=1"], "takes the fields learning_rate, .* of adamw"),
    (["--task=qstrs"], "task: got 'qstrs', takes qstr, simple_qstr, package"),
    (["--link=cubic"], "link: got 'cubic', takes one of linear, mean"),
    (["--codes=morse"], "codes: got 'morse', takes one of rademacher"),
    (["--task_draw=once"], "task_draw: got 'once', takes one of per_trial, shared"),
    (["--test_distribution=odd"], "test_distribution: got 'odd', takes one of matched"),
    (["--screen=maybe"], "screen: got 'maybe', takes true or false"),
    (["--thresholds=0.5,0"], "thresholds: got 0.0"),
    (["--thresholds=low"], "thresholds: got 'low', takes a number"),
    (["--thresholds=1"], "thresholds: got 1.0, takes numbers below 1, the error"),
    (["--link=mean", "--sparsity=2", "--thresholds=0.5"], "thresholds: got 0.5"),
    (["--uniform_fractions=1"], "uniform_fractions: got 1.0, takes numbers between"),
    (["--uniform_fractions=half"], "uniform_fractions: got 'half', takes a number"),
    (
      ["--uniform_fractions=0.5", "--link=relu_teacher"],
      r"uniform_fractions: got \[0.5\], takes nothing for a task",
    ),
    (["--learning_rate=0"], "learning_rate: got 0"),
    (["--learning_rate=inf"], "learning_rate: got inf"),
    (["--weight_decay=-1"], "weight_decay: got -1"),
    (["--max_samples=100"], "max_samples: got 100"),
    (["--code_dim=0"], "code_dim: got 0"),
    (["--code_dim=2000000"], "code_dim: got 2000000, takes an integer from 1 to 1048576"),
    (["--lengths=2147483648"], "lengths: got 2147483648, takes an integer between"),
    (
      ["--lengths=2000000"],
      "lengths: got 2000000, takes an integer >= 2, at most",
    ),
    (["--token_dim=2000000"], "token_dim: got 2000000, takes an integer >= 1, at most"),
    (["--lengths=500", "--sparsity=101"], "sparsity: got 101, takes .* 1 to 100"),
    (["--max_samples=1" + "0" * 24], "max_samples: got 10*, takes fewer than 2"),
    (
      ["--published=" + "x" * 5000],
      "published: got .* characters., takes nothing or one",
    ),
    (["--batch_size=2147483648"], "batch_size: got 2147483648, takes an integer between"),
  ],
)
def test_bad_flags_are_refused(arguments, message):
  with pytest.raises(InvalidSetting, match=message):
    cells_of(*arguments)


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (["--coordinator=a:1"], "coordinator: got 'a:1', takes --distributed too"),
    (["--process_id=0"], "process_id: got 0, takes --distributed too"),
    (
      ["--distributed", "--num_processes=2"],
      "num_processes: got 2, takes --coordinator and --process_id too",
    ),
    (
      ["--distributed", "--coordinator=a:1", "--num_processes=0", "--process_id=0"],
      "num_processes: got 0, takes an integer >= 1",
    ),
    (
      ["--distributed", "--coordinator=a:1", "--num_processes=2", "--process_id=2"],
      "process_id: got 2, takes 0 to 1",
    ),
    (["--checkpoint_every_seconds=0"], "checkpoint_every_seconds: got 0"),
    (["--start_timeout=0"], "start_timeout: got 0.0, takes a number of seconds"),
    (["--start_timeout=nan"], "start_timeout: got nan, takes a number of seconds"),
    (["--lanes=-1"], "lanes: got -1, takes an integer from 1 to 4096, or 0"),
    (["--lanes=1000000000"], "lanes: got 1000000000, takes an integer from 1 to 4096"),
    (
      ["--distributed", "--coordinator=a", "--num_processes=2", "--process_id=1"],
      "coordinator: got 'a', takes HOST:PORT",
    ),
    (
      ["--distributed", "--coordinator=a:1e9", "--num_processes=2", "--process_id=1"],
      "coordinator: got 'a:1e9', takes HOST:PORT",
    ),
    (
      ["--distributed"],
      "distributed: got True, takes --coordinator, --num_proc",
    ),
  ],
)
def test_bad_ways_of_running_are_refused(arguments, message):
  flags.FLAGS(["program", *arguments])
  with pytest.raises(InvalidSetting, match=message):
    running.start({})


@pytest.mark.parametrize(
  ("own", "argument", "message"),
  [
    *(
      (own, f"--num_trials={count}", f"num_trials: got {count}, takes an integer >= 1")
      for own in (STUDY, parity.STUDY, boolean.STUDY, attention_weights.STUDY)
      for count in (0, -1, 100_001)
    ),
    (STUDY, "--seed=-1", "seed: got -1, takes an integer from 0 to 2"),
    (parity.STUDY, "--against=noise", "against: got 'noise', takes length"),
  ],
)
def test_a_run_is_refused_before_anything_is_written(tmp_path, own, argument, message):
  flags.FLAGS(["program", argument, f"--output_dir={tmp_path}/run"], known_only=True)
  with pytest.raises(InvalidSetting, match=message):
    study.run(own, own.chosen([argument]))
  assert not list(tmp_path.iterdir())


def test_lists_are_sorted_once_each():
  chosen = STUDY.chosen(
    ["--lengths=8,4,8", "--thresholds=0.1,0.7,0.1", "--models=ffn,gru,ffn"]
  )
  assert chosen.values["length"] == (4, 8)
  assert chosen.one("thresholds") == (0.7, 0.1)
  assert chosen.values["model"] == ("ffn", "gru")
  assert STUDY.chosen(["--learning_rate=1e-3,0.001"]).one("learning_rate") == 1e-3
  assert STUDY.chosen(["--width=20,20.0"]).further == {"width": (20,)}


@pytest.mark.slow
@pytest.mark.parametrize("preset", PRESETS, ids=lambda path: path.stem)
def test_presets_say_what_they_are(preset):
  check_preset_says_what_it_is(preset)
  chosen = STUDY.chosen([f"--flagfile={preset}"])
  assert STUDY.cells(chosen)
  published.read(chosen.one("published"))


def test_fractions_become_thresholds_of_their_length():
  cells = cells_of("--models=ffn", "--lengths=2,4", "--uniform_fractions=0.5,0.8")
  thresholds = [cell.trial.protocol.thresholds for cell in cells]
  assert thresholds == [(0.7, 0.8 * 0.5, 0.5 * 0.5), (0.7, 0.8 * 0.75, 0.5 * 0.75)]


@pytest.mark.slow
def test_any_setting_is_an_axis():
  cells = cells_of(
    "--models=transformer,transformer:num_heads=2", "--lengths=4", "--token_dim=2",
    "--learning_rate=3e-3,1e-3", "--width=10,20", "--encoding_prefactor=false,true",
  )  # fmt: skip
  assert len(cells) == 2 * 2 * 2 * 2
  assert cells[0].name == (
    "task=qstr/model=transformer/length=4/learning_rate=0.001/"
    "encoding_prefactor=False/width=10"
  )
  assert {cell.trial.model.width for cell in cells} == {10, 20}
  rates = {cell.trial.protocol.optimizer.learning_rate for cell in cells}
  assert rates == {1e-3, 3e-3}
  keys = {tuple(np.ravel(jax.random.key_data(c.seeds(0, 2).trial))) for c in cells}
  assert len(keys) == 1  # all of them are paired
  # The rates of one model, width and encoding are one program.
  assert len({jax.tree.structure(cell.trial) for cell in cells}) == 2 * 2 * 2


def test_values_that_are_no_numbers_keep_their_order():
  cells = cells_of(
    "--models=tests.small:Linear",
    "--lengths=4",
    "--code_dim=8,none",
    "--link=mean,linear",
  )
  axes = [(cell.coordinates["code_dim"], cell.coordinates["link"]) for cell in cells]
  assert axes == [(8, "mean"), (8, "linear"), ("None", "mean"), ("None", "linear")]
  assert [cell.trial.task.code_dim for cell in cells] == [8, 8, None, None]


def test_a_field_of_the_specification_is_that_models_own():
  cells = cells_of("--models=transformer:num_heads=2,ffn,transformer", "--lengths=4")
  assert [cell.coordinates["model"] for cell in cells] == [
    "transformer:num_heads=2", "ffn", "transformer",
  ]  # fmt: skip
  two, _, one = (cell.trial.model for cell in cells)
  assert (two.num_heads, one.num_heads) == (2, 1)
  # As a further field it is an axis; either way the trials are paired.
  axis = cells_of("--models=transformer", "--num_heads=1,2", "--lengths=4")
  assert [cell.coordinates["num_heads"] for cell in axis] == [1, 2]
  assert [cell.trial.model.num_heads for cell in axis] == [1, 2]
  keys = [jax.random.key_data(cell.seeds(0, 2).trial) for cell in (cells[0], *axis)]
  np.testing.assert_array_equal(keys[0], keys[1])
  np.testing.assert_array_equal(keys[0], keys[2])


def test_settings_are_read_again_as_they_were_stored():
  chosen = STUDY.chosen(
    [
      "--models=transformer", "--lengths=4,8", "--learning_rate=1e-3,3e-3", "--width=20",
      "--code_dim=8", "--l2=none,0.1", "--thresholds=0.5,0.7", "--noscreen",
    ]
  )  # fmt: skip
  stored = json.loads(json.dumps(chosen.stored()))
  assert stored["learning_rate"] == [1e-3, 3e-3]
  assert (stored["models"], stored["lengths"]) == (["transformer"], [4, 8])
  assert (stored["width"], stored["code_dim"], stored["screen"]) == (20, 8, False)
  assert "published" not in stored
  again = from_stored(STUDY.settings, stored)
  assert again == chosen
  names = [cell.name for cell in STUDY.cells(chosen)]
  assert [cell.name for cell in STUDY.cells(again)] == names


def test_runs_beside_one_another_may_differ_in_axes():
  def differing(*arguments):
    first = STUDY.chosen(["--models=transformer", "--width=20"])
    return differing_axes([first, STUDY.chosen(["--models=gru", *arguments])])

  assert differing("--width=20", "--lengths=5", "--num_trials=2") == []
  assert differing("--width=20", "--learning_rate=3e-3") == ["learning_rate"]
  assert differing("--width=20", "--learning_rate=1e-3,3e-3") == ["learning_rate"]
  assert differing("--width=20", "--max_samples=640000") == ["max_samples"]
  assert differing("--width=30", "--check_every=5") == ["check_every", "width"]
  for arguments, message in (
    ((), "beside: got 'width', takes runs that all have this further field"),
    (("--width=20", "--seed=1"), r"in seed \(there 1, here 0\)"),
    (("--width=20", "--thresholds=0.5"), "in thresholds "),
  ):
    with pytest.raises(InvalidSetting, match=message):
      differing(*arguments)


def test_tables_stand_along_the_axis_of_the_figure():
  level = {"threshold": 0.7, "fraction": None}
  cell = {
    "series": "gru", "low": 90, "high": 110, "restricted": False, "reached": 2,
    "trials": 2, "coarse": False,
  }  # fmt: skip
  fitted = {"series": "gru", "c": -0.5, "low": -0.6, "high": -0.4, "coarse": True}
  summary = {
    "against": "learning_rate",
    "levels": [{"value": 0.7, "of_uniform": False}],
    "cells": [
      {**level, **cell, "learning_rate": 3e-3, "mean": 100.0},
      {**level, **cell, "learning_rate": 1e-3, "mean": 2000.0, "reached": 1},
    ],
    "exponents": [{**level, **fitted}],
    "ratios": [],
  }
  console = rich.console.Console(record=True, width=100, file=io.StringIO())
  for part in tables.means(summary):
    console.print(part)
  text = console.export_text()
  lines = [re.findall(r"[^\s│┃]+", line) for line in text.splitlines()]
  assert ["learning_rate", "gru"] in lines
  first = lines.index(["0.001", "2,000", "[90,", "110]", "(1/2", "reached)"])
  assert lines[first + 1] == ["0.003", "100", "[90,", "110]"]
  assert ["c", "-0.50", "[-0.60,", "-0.40]", "coarse"] in lines
  assert "n ~ learning_rate^c" in text


def test_cells_that_differ_in_a_rate_share_their_keys():
  rates = "--learning_rate=1e-3,3e-3"
  cells = cells_of(
    "--models=ffn,transformer,transformer:num_heads=2", "--lengths=4", rates
  )
  types = columns(cells)
  rows = [(*cell.coordinates.values(), 0, 0.7, 640, "reached") for cell in cells]
  names = tuple(cells[0].coordinates)
  run = study.Run(
    Records(table(rows, types), names, {}), {c.name: c for c in cells}, None, "length"
  )
  assert run.keys().tolist() == [0, 0, 1, 1, 1, 1]
  checks = run.checks()
  assert checks.step.tolist() == [64] * 6
  assert checks.every.tolist() == [640] * 6
  assert checks.budget.tolist() == [999_680] * 6


@pytest.mark.parametrize("other", ["--max_samples=64000", "--check_every=5"])
def test_the_same_trials_are_not_drawn_twice(other):
  """A budget and the checks tell no cells apart."""
  same = ("--models=ffn", "--lengths=4")
  parts = []
  for arguments in (same, (*same, other)):
    chosen = STUDY.chosen(arguments)
    parts.append(Part(Records(np.empty(0), (), {}), STUDY.cells(chosen), chosen))
  with pytest.raises(InvalidSetting, match=r"beside: got 'there', .*twice"):
    beside.check(parts, ["there"], "length")


def test_runs_of_other_seeds_share_no_keys():
  """Drawn together, they have a column for the seed."""
  (cell,) = cells_of("--models=ffn", "--lengths=4")
  names = (*cell.coordinates, "seed")
  rows = [(*cell.coordinates.values(), seed, 0, 0.7, 640, "reached") for seed in (0, 1)]
  types = columns([cell])
  types = {**{name: types.get(name, int) for name in names}, **types}
  records = Records(table(rows, types), names, {})
  both = {records.cell_of(row): cell for row in records.table}
  assert study.Run(records, both, None, "length").keys().tolist() == [0, 1]


def test_published_values_are_known_by_name():
  points = published.read("figure_1a")
  assert points["ffn", 0.7][-1] == (12, 115300)
  with pytest.raises(InvalidSetting, match=r"published: got 'fig9', takes .*figure_1a"):
    STUDY.cells(STUDY.chosen(["--published=fig9"]))


SMALL_RUN = (
  "--models=tests.small:Linear", "--lengths=2,3", "--token_dim=2",
  "--thresholds=0.9,0.3", "--uniform_fractions=0.9", "--num_trials=3",
  "--batch_size=16", "--check_every=2", "--num_test=300",
  "--max_samples=3200", "--learning_rate=0.01",
)  # fmt: skip


def run(tmp_path, *arguments, **kwargs):
  command = [
    sys.executable, "-m", "experiments.sample_complexity", *SMALL_RUN,
    f"--output_dir={tmp_path / 'run'}", *arguments,
  ]  # fmt: skip
  return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, **kwargs)


@pytest.mark.slow
def test_end_to_end_and_on_from_where_it_stopped(tmp_path):
  done = run(tmp_path)
  assert done.returncode == 0, done.stderr
  assert "until the test MSE is below 0.9 of uniform attention's" in done.stdout
  directory = tmp_path / "run"
  assert {path.name for path in directory.iterdir()} == {
    ".lock", "config.json", "trials.csv", "curves.npz", "summary.json", "figure.png",
    "figure.pdf",
  }  # fmt: skip
  whole = (directory / "trials.csv").read_text()
  with open(directory / "trials.csv") as file:
    rows = list(csv.DictReader(file))
  assert len(rows) == 2 * 3 * 3
  assert {row["outcome"] for row in rows if row["threshold"] == "0.3"} == {"censored"}
  with np.load(directory / "curves.npz") as curves:
    assert len(curves) == 6
  summary = json.loads((directory / "summary.json").read_text())
  assert len(summary["cells"]) == 6
  assert (directory / "figure.png").read_bytes().startswith(b"\x89PNG")

  # Two trials are lost; the same command makes them again and touches no other.
  lines = whole.splitlines(keepends=True)
  (directory / "trials.csv").write_text("".join(lines[:4] + lines[10:]))
  again = run(tmp_path)
  assert again.returncode == 0, again.stderr
  assert (directory / "trials.csv").read_text() == whole

  other = run(tmp_path, "--seed=1")
  assert other.returncode == 2
  assert other.stderr.startswith("error: --output_dir: got ")
  assert "seed (there 0, here 1)" in other.stderr
  assert (directory / "trials.csv").read_text() == whole


@pytest.mark.faults
def test_one_figure_of_several_runs(tmp_path):
  done = run(tmp_path)
  assert done.returncode == 0, done.stderr
  directory = tmp_path / "run"
  other_lengths(directory, tmp_path / "second", {2: 4, 3: 5})
  second = ("--lengths=4,5", f"--beside={directory}")
  for arguments, message in (
    (["--lengths=3,4"], "takes runs of other cells; .*length=3"),
    (["--seed=1"], r"takes runs that differ in axes, .* in seed \(there 0, here 1\)"),
    ([f"--beside={tmp_path}"], r"takes directories of complete runs \("),
    (["--against=model"], "^--against: got 'model', takes one of the numeric axes"),
    (
      ["--encoding_prefactor=false,true", "--against=encoding_prefactor"],
      "^--against: got 'encoding_prefactor', takes one of the numeric axes: length",
    ),
  ):
    refused = run(tmp_path, *second, *arguments, f"--output_dir={tmp_path / 'third'}")
    assert refused.returncode == 2
    assert re.search(message, refused.stderr.removeprefix("error: ")), refused.stderr
  drawn = run(tmp_path, *second, f"--output_dir={tmp_path / 'second'}")
  assert drawn.returncode == 0, drawn.stderr
  together = json.loads((tmp_path / "second" / "summary.json").read_text())["cells"]
  assert [cell["length"] for cell in together] == 3 * [2, 3, 4, 5]
  assert [cell["fraction"] for cell in together] == 8 * [None] + 4 * [0.9]
  own = (tmp_path / "second" / "trials.csv").read_text()
  assert {line.split(",")[2] for line in own.splitlines()[1:]} == {"4", "5"}
  # At another rate the same cells are others: what differs is a column and a series.
  rate = ("--learning_rate=0.02", "--max_samples=1600", f"--beside={directory}")
  faster = run(tmp_path, *rate, f"--output_dir={tmp_path / 'faster'}")
  assert faster.returncode == 0, faster.stderr
  summary = json.loads((tmp_path / "faster" / "summary.json").read_text())
  assert {(c["learning_rate"], c["budget"]) for c in summary["cells"]} == {
    (0.01, 3200), (0.02, 1600),
  }  # fmt: skip
  assert len({c["series"] for c in summary["cells"]}) == 2
  along = run(
    tmp_path, *rate, "--against=learning_rate", f"--output_dir={tmp_path / 'faster'}"
  )
  assert along.returncode == 0, along.stderr
  summary = json.loads((tmp_path / "faster" / "summary.json").read_text())
  series = {c["series"] for c in summary["cells"]}
  assert series == {f"tests.small:Linear, length={n}" for n in (2, 3)}


def other_lengths(source, target, lengths):
  """Makes a complete run as if it had been the one of `source` at other lengths.

  Rows of a threshold that follows the length are what the trial's curve says of it.
  """
  target.mkdir()
  config = json.loads((source / "config.json").read_text())
  config["settings"]["lengths"] = list(lengths.values())
  (target / "config.json").write_text(json.dumps(config))
  (target / "summary.json").write_text("{}")
  with open(source / "trials.csv") as file:
    header, *rows = csv.reader(file)
  with np.load(source / "curves.npz") as curves:
    renamed = {
      re.sub(
        r"length=(\d)", lambda found: f"length={lengths[int(found[1])]}", name
      ): curve
      for name, curve in curves.items()
    }
  np.savez(target / "curves.npz", **renamed)
  for row in rows:
    length = lengths[int(row[2])]
    row[2] = str(length)
    if row[4] not in ("0.9", "0.3"):
      row[4] = str(0.9 * (1 - 1 / length))
      name = f"task={row[0]}/model={row[1]}/length={length}/trial={row[3]}"
      curve = renamed[name]
      below = curve["loss"] < np.float32(row[4])
      last = int(np.argmax(below)) if below.any() else -1
      outcome = "reached" if below.any() else "censored"
      row[5:] = [str(curve["samples"][last]), outcome]
  with open(target / "trials.csv", "w", newline="") as file:
    csv.writer(file, lineterminator="\n").writerows([header, *rows])


@pytest.mark.slow
def test_impossible_codes_stop_the_program(tmp_path):
  refused = run(tmp_path, "--codes=incoherent", "--code_dim=1", "--lengths=6")
  assert refused.returncode == 2
  assert refused.stderr.startswith(
    "error: --code_dim: got 1, takes a dimension in which 6"
  )


def test_axes_keep_the_order_in_which_a_directory_has_them():
  """Columns and names follow it, whatever the order of today's fields."""
  arguments = ["--noise=0,0.1", "--sparsity=2,3"]
  chosen = parity.STUDY.chosen(arguments)
  stored = chosen.stored()
  other = {key: stored[key] for key in reversed(stored)}
  there = from_stored(parity.Settings, other)
  whole, added = merged(there, chosen)
  own = [name for name in chosen.axes if name in ("noise", "sparsity")]
  assert [name for name in whole.axes if name in own] == own[::-1]
  assert not added
  assert whole.axes == there.axes


def test_a_run_killed_at_its_first_record_goes_on(tmp_path, monkeypatch):
  """trials.csv is there from the start: config.json has to be there before it."""
  arguments = [*SMALL_RUN, f"--output_dir={tmp_path}/run"]
  flags.FLAGS(["program", *arguments], known_only=True)

  class Killed(Exception):
    pass

  def files(directory, *_, **__):
    directory.write("trials.csv", "task,model\n")
    raise Killed

  monkeypatch.setattr(running, "TrialFiles", files)
  with pytest.raises(Killed):
    study.run(STUDY, STUDY.chosen(arguments))
  with RunDirectory(tmp_path / "run") as directory:
    assert directory.stored["settings"]["lengths"] == [2, 3]
