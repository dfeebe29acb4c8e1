"""The study as a program: what a run writes, that it goes on, and runs drawn together."""

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

from experiments.boolean import parity
from experiments.sample_complexity import STUDY
from sepfx.commands import program
from sepfx.ensembles import rehearsal
from sepfx.records import beginning
from sepfx.records.run_directory import RunDirectory
from sepfx.studies import study
from sepfx.studies.merging import merged
from sepfx.studies.settings import from_stored
from sepfx.watching import viewers

ROOT = pathlib.Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def _fresh_flags():
  with flagsaver.flagsaver():
    yield


SMALL_RUN = (
  "--models=tests.small:Linear", "--lengths=2,3", "--token_dim=2",
  "--thresholds=0.9,0.3", "--uniform_fractions=0.9", "--num_trials=3",
  "--batch_size=16", "--check_every=2", "--num_test=300",
  "--max_samples=3200", "--learning_rate=0.01",
)  # fmt: skip


def started(tmp_path, *arguments):
  """The same in this process."""
  arguments = [*SMALL_RUN, *arguments, f"--output_dir={tmp_path / 'run'}"]
  flags.FLAGS(["program", *arguments], known_only=True)
  program.run(STUDY, STUDY.chosen(arguments))


@pytest.mark.slow
def test_a_dry_run_leaves_nothing(tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(rehearsal, "_TIMED_SECONDS", 0.0)
  monkeypatch.setenv("COLUMNS", "160")
  started(tmp_path, "--dry_run")
  printed = capsys.readouterr().out
  assert "2 cells, 6 trials, 0 recorded; nothing was run." in printed
  for length in (2, 3):
    row = rf" qstr: tests.small:Linear length={length} +│ +1 │ +3 │ +600 │"
    assert re.search(row, printed)
  assert re.search(r"sum +│ +2 │ +6 │ +1,200 │", printed)
  assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_dry_run_beside_what_is_recorded(tmp_path, monkeypatch, capsys):
  """A new axis, probes, and a larger budget: it says what the run trains."""
  monkeypatch.setattr(rehearsal, "_TIMED_SECONDS", 0.0)
  one = ("--thresholds=0.3", "--uniform_fractions=", "--num_trials=2")
  started(tmp_path, *one)
  directory = tmp_path / "run"
  before = {p: p.read_bytes() for p in directory.iterdir()}

  def dry(*arguments):
    capsys.readouterr()
    with flagsaver.flagsaver():
      started(tmp_path, *one, *arguments, "--dry_run")
    assert {p: p.read_bytes() for p in directory.iterdir()} == before
    return capsys.readouterr().out

  assert "2 cells, 4 trials, 4 recorded; nothing was run." in dry()
  assert "4 cells, 8 trials, 4 recorded; " in dry("--learning_rate=0.01,0.02")
  assert "2 cells, 4 trials, 0 recorded; " in dry("--probes=norms")
  assert "2 cells, 4 trials, 0 recorded; " in dry("--keep_weights")
  assert "1 cell, 2 trials, 0 recorded, 2 that a larger budget brings back; " in dry(
    "--lengths=2", "--max_samples=6400"
  )


@pytest.mark.slow
def test_a_figure_while_the_run_lasts(tmp_path, monkeypatch):
  monkeypatch.setattr(viewers, "_FIRST_SECONDS", 0.0)
  monkeypatch.setattr(viewers, "_REST", 0.0)
  seen = []

  def write(directory, figure, trials, of):
    complete = (directory.path / "summary.json").exists()
    seen.append((trials, of, len(figure.axes) > 0, complete))

  monkeypatch.setattr(study, "write_unfinished", write)
  started(tmp_path, "--num_trials=1")
  assert seen == [(1, 2, True, False), (2, 2, True, False)]
  assert (tmp_path / "run/summary.json").exists()


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
    ".lock", "config.json", "trials.csv", "curves.npz", "digests.json", "summary.json",
    "figure.png", "figure.pdf",
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
  (directory / "digests.json").unlink()  # else the file is refused
  before = {path: path.read_bytes() for path in directory.iterdir()}
  dry = run(tmp_path, "--dry_run")
  assert dry.returncode == 0, dry.stderr
  assert "2 cells, 6 trials, 4 recorded; nothing was run." in dry.stdout
  assert {path: path.read_bytes() for path in directory.iterdir()} == before
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
    ([f"--beside={tmp_path}"], r"takes the directory of a run \(no run is there"),
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

  monkeypatch.setattr(beginning, "TrialFiles", files)
  with pytest.raises(Killed):
    program.run(STUDY, STUDY.chosen(arguments))
  with RunDirectory(tmp_path / "run") as directory:
    assert directory.stored["settings"]["lengths"] == [2, 3]


@pytest.mark.slow
def test_means_of_probes_are_printed_and_kept(tmp_path):
  asked = ("--max_length=4", "--code_dim=3", "--probes=risk:length=2,risk:length=4,norms")
  done = run(tmp_path, "--lengths=3", *asked)
  assert done.returncode == 0, done.stderr
  assert "Probes at the trials' ends, mean [95% interval]:" in done.stdout
  (cell,) = json.loads((tmp_path / "run/probes.json").read_text())
  with open(tmp_path / "run/probes.csv") as file:
    rows = list(csv.DictReader(file))
  for name, own in cell["probes"].items():
    values = [float(row[name]) for row in rows]
    assert own["trials"] == len(values) == 3
    np.testing.assert_allclose(own["mean"], np.mean(values), rtol=1e-5)
    assert own["low"] <= own["mean"] <= own["high"]
