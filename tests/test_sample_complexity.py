"""The command line: what it refuses, what it writes, and that it goes on."""

import csv
import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver

from experiments import beside, running, sample_complexity
from sepfx import InvalidSetting
from tests.programs import check_preset_says_what_it_is

ROOT = pathlib.Path(__file__).parent.parent
PRESETS = sorted((ROOT / "experiments/flags").glob("[!b]*.cfg"))  # not boolean_*


def parse(*arguments):
  flags.FLAGS.unparse_flags()
  flags.FLAGS(["program", *arguments])
  return sample_complexity._settings()


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
    (["--lengths=1,4"], "lengths: got"),
    (["--lengths=four"], "lengths: got 'four', takes integers >= 2"),
    (["--lengths="], "lengths: got"),
    (["--lengths=4,6", "--sparsity=5"], "sparsity: got 5"),
    (["--sparsity=0"], "sparsity: got 0"),
    (["--token_dim=0"], "token_dim: got 0"),
    (["--batch_size=0"], "batch_size: got 0"),
    (["--check_every=-1"], "check_every: got -1"),
    (["--num_test=0"], "num_test: got 0"),
    (["--num_heads=0"], "num_heads: got 0"),
    (["--thresholds=0.5,0"], "thresholds: got 0.0"),
    (["--thresholds=low"], "thresholds: got 'low', takes positive numbers"),
    (["--thresholds=1"], "thresholds: got 1.0, takes numbers below 1, the error"),
    (["--link=mean", "--sparsity=2", "--thresholds=0.5"], "thresholds: got 0.5"),
    (["--uniform_fractions=1"], "uniform_fractions: got 1.0, takes numbers between"),
    (["--uniform_fractions=half"], "uniform_fractions: got 'half', takes numbers"),
    (
      ["--uniform_fractions=0.5", "--link=relu_teacher"],
      r"uniform_fractions: got \[0.5\], takes nothing for this task",
    ),
    (["--learning_rate=0"], "learning_rate: got 0"),
    (["--learning_rate=inf"], "learning_rate: got inf"),
    (["--weight_decay=-1"], "weight_decay: got -1"),
    (["--max_samples=100"], "max_samples: got 100"),
    (["--code_dim=0"], "code_dim: got 0"),
  ],
)
def test_bad_flags_are_refused(arguments, message):
  with pytest.raises(InvalidSetting, match=message):
    sample_complexity._cells(parse(*arguments))


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
  ],
)
def test_bad_ways_of_running_are_refused(arguments, message):
  parse(*arguments)
  with pytest.raises(InvalidSetting, match=message):
    running.start()


@pytest.mark.parametrize(
  "flag", ["task", "link", "codes", "task_draw", "test_distribution"]
)
def test_unknown_names_are_refused(flag):
  with pytest.raises(
    flags.IllegalFlagValueError, match=f"flag --{flag}=nonsense: .*should be"
  ):
    parse(f"--{flag}=nonsense")


def test_lists_are_sorted_once_each():
  settings = parse("--lengths=8,4,8", "--thresholds=0.1,0.7,0.1", "--models=ffn,gru,ffn")
  assert settings["lengths"] == [4, 8]
  assert settings["thresholds"] == [0.7, 0.1]
  assert settings["models"] == ["ffn", "gru"]


@pytest.mark.parametrize("preset", PRESETS, ids=lambda path: path.stem)
def test_presets_say_what_they_are(preset):
  check_preset_says_what_it_is(preset)
  cells = sample_complexity._cells(parse(f"--flagfile={preset}"))
  assert cells
  sample_complexity._read_published(flags.FLAGS.published)


def test_fractions_become_thresholds_of_their_length():
  cells = sample_complexity._cells(
    parse("--models=ffn", "--lengths=2,4", "--uniform_fractions=0.5,0.8")
  )
  thresholds = [cell.trial.protocol.thresholds for cell in cells]
  assert thresholds == [(0.7, 0.8 * 0.5, 0.5 * 0.5), (0.7, 0.8 * 0.75, 0.5 * 0.75)]


def test_published_values_are_known_by_name():
  points = sample_complexity._read_published("figure_1a")
  assert points["ffn", 0.7][-1] == (12, 115300)
  with pytest.raises(InvalidSetting, match=r"published: got 'fig9', takes .*figure_1a"):
    sample_complexity._read_published("fig9")


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
    (["--lengths=3,4"], "takes runs of other cells; task=qstr/model=tests"),
    (["--seed=1"], r"takes runs that differ in models, .* in seed \(there 0, here 1\)"),
    ([f"--beside={tmp_path}"], r"takes directories of complete runs \("),
  ):
    settings = parse(*SMALL_RUN, *second, *arguments)
    cells = sample_complexity._cells(settings)
    with pytest.raises(InvalidSetting, match=f"^beside: got .*, {message}"):
      beside.read(settings, cells, sample_complexity._MAY_DIFFER)
  drawn = run(tmp_path, *second, f"--output_dir={tmp_path / 'second'}")
  assert drawn.returncode == 0, drawn.stderr
  together = json.loads((tmp_path / "second" / "summary.json").read_text())["cells"]
  assert [cell["length"] for cell in together] == 3 * [2, 3, 4, 5]
  assert [cell["fraction"] for cell in together] == 8 * [None] + 4 * [0.9]
  own = (tmp_path / "second" / "trials.csv").read_text()
  assert {line.split(",")[2] for line in own.splitlines()[1:]} == {"4", "5"}


def other_lengths(source, target, lengths):
  """Makes a complete run as if it had been the one of `source` at other lengths."""
  target.mkdir()
  config = json.loads((source / "config.json").read_text())
  config["settings"]["lengths"] = list(lengths.values())
  (target / "config.json").write_text(json.dumps(config))
  (target / "summary.json").write_text("{}")
  with open(source / "trials.csv") as file:
    header, *rows = csv.reader(file)
  for row in rows:
    length = lengths[int(row[2])]
    row[2] = str(length)
    if row[4] not in ("0.9", "0.3"):
      row[4] = str(0.9 * (1 - 1 / length))
  with open(target / "trials.csv", "w", newline="") as file:
    csv.writer(file, lineterminator="\n").writerows([header, *rows])
  with np.load(source / "curves.npz") as curves:
    renamed = {
      re.sub(
        r"length=(\d)", lambda found: f"length={lengths[int(found[1])]}", name
      ): curve
      for name, curve in curves.items()
    }
  np.savez(target / "curves.npz", **renamed)


def test_impossible_codes_stop_the_program(tmp_path):
  refused = run(tmp_path, "--codes=incoherent", "--code_dim=1", "--lengths=6")
  assert refused.returncode == 2
  assert refused.stderr.startswith(
    "error: --code_dim: got 1, takes a dimension in which 6"
  )
