"""What stands on disk: written once, read back, protected."""

import contextlib
import errno
import json
import os
import re
import shutil
import subprocess
import sys
import warnings

import jax
import numpy as np
import pytest

from sepfx.ensembles import InProgress, Result
from sepfx.ensembles.cells import Cell
from sepfx.errors import InvalidSetting
from sepfx.provenance.environment import source_digest
from sepfx.records.checkpoints import Checkpoints
from sepfx.records.run_directory import RunDirectory, remove
from sepfx.records.trial_files import TrialFiles
from sepfx.training import Passage
from tests import small

CELL = Cell(small.TRIAL)
SETTINGS = {"seed": 0, "lengths": [3]}


def result(trial, samples=80):
  at = 80 * np.arange(1, 61)
  curve = small.losses(at, np.where(at < samples, 1.5, 0.8), at < 4000)
  passages = [Passage(0.9, samples, "reached"), Passage(0.7, 4800, "censored")]
  return Result(CELL, trial, passages, curve)


@pytest.fixture
def opened(tmp_path):
  """Opens the directory and its trial files; closes what is open at the end."""
  live = []

  def open_again():
    while live:
      live.pop().__exit__()
    live.append(RunDirectory(tmp_path / "run"))
    files = TrialFiles(live[-1], [CELL])
    live[-1].begin(SETTINGS, {})
    return files

  yield open_again
  while live:
    live.pop().__exit__()


def test_records_survive_and_are_sorted(opened, tmp_path):
  files = opened()
  assert not files.rows
  files.ended(result(2))
  files.ended(result(0, samples=160))
  appended = (tmp_path / "run/trials.csv").read_text()
  assert [line.split(",")[3] for line in appended.splitlines()[1:]] == [
    "2",
    "2",
    "0",
    "0",
  ]
  files = opened()  # as after a kill
  name = "task=qstr/model=m/length=3/trial={}".format
  outcomes = {own: [row["outcome"] for row in rows] for own, rows in files.rows.items()}
  assert outcomes == {name(0): ["reached", "censored"], name(2): ["reached", "censored"]}
  files.ended(result(1))
  records = files.complete()
  assert records.table["trial"].tolist() == [0, 0, 1, 1, 2, 2]
  assert records.settings == SETTINGS
  assert (tmp_path / "run/trials.csv").read_text().splitlines()[:3] == [
    "task,model,length,trial,threshold,samples,outcome",
    "qstr,m,3,0,0.9,160,reached",
    "qstr,m,3,0,0.7,4800,censored",
  ]
  (curve,) = records.curves(model="m", length=3, trial=2)
  np.testing.assert_array_equal(curve, result(2).curve)
  with np.load(tmp_path / "run/curves.npz") as stored:
    assert sorted(stored) == [name(0), name(1), name(2)]
  assert not (tmp_path / "run/checkpoints").exists()
  # Complete, and opened once more: nothing is left to do, nothing is lost.
  files = opened()
  assert len(files.rows) == 3
  np.testing.assert_array_equal(files.complete().table, records.table)


def test_a_line_cut_short_costs_its_trial_only(opened, tmp_path):
  files = opened()
  files.ended(result(0))
  files.ended(result(1))
  path = tmp_path / "run/trials.csv"
  path.write_text(path.read_text()[:-7])
  with pytest.warns(UserWarning, match="cut short"):
    files = opened()
  assert set(files.rows) == {"task=qstr/model=m/length=3/trial=0"}
  assert "qstr,m,3,1" not in path.read_text()


@pytest.mark.parametrize(
  ("spoil", "message"),
  [
    (
      lambda text: text.replace("samples", "n", 1),
      "line 1: .* takes the header task,model",
    ),
    (lambda text: text.replace(",80,", ",eighty,"), "line 2: .*takes a row of a trial"),
    (lambda text: text.replace("reached", "arrived"), "line 2: .*unknown outcome"),
    (
      lambda text: text.replace("qstr,m,3,0", "qstr,other,3,0"),
      "takes a row of this run's",
    ),
    (lambda text: text.replace(",0.9,", ",0.8,"), "takes a row of this run's"),
    (lambda text: text + "a,b\n", "line 4: a,b, takes a row of a trial"),
  ],
)
def test_malformed_or_foreign_records_are_refused(opened, tmp_path, spoil, message):
  opened().ended(result(0))
  path = tmp_path / "run/trials.csv"
  spoiled = spoil(path.read_text())
  path.write_text(spoiled)
  with pytest.raises(InvalidSetting, match=message.replace(", takes", "', takes")):
    opened()
  assert path.read_text() == spoiled  # what is there is left as it is


def test_other_versions_are_named(opened, tmp_path):
  opened()
  path = tmp_path / "run/config.json"
  stored = json.loads(path.read_text())
  stored["starts"][0]["versions"]["jax"] = "0.0.1"
  stored["starts"][0]["revision"] = "abc"
  path.write_text(json.dumps(stored))
  with pytest.warns(UserWarning, match=r"jax 0\.0\.1 \(now .*, source revision abc \("):
    opened()
  opened()  # the last start was with these versions


def test_a_directory_of_something_else_is_refused(tmp_path):
  (tmp_path / "notes.txt").write_text("mine")
  with pytest.raises(InvalidSetting, match=r"this one has notes.txt"):
    RunDirectory(tmp_path)
  (tmp_path / "config.json").write_text("{}")
  with pytest.raises(InvalidSetting, match=r"takes a config\.json that sepfx wrote"):
    RunDirectory(tmp_path)


def test_what_is_refused_is_left_as_it_is(tmp_path):
  (tmp_path / "notes.txt").write_text("mine")
  for content in ("", "{}"):
    if content:
      (tmp_path / "config.json").write_text(content)
    there = sorted(tmp_path.iterdir())
    with pytest.raises(InvalidSetting):
      RunDirectory(tmp_path)
    assert sorted(tmp_path.iterdir()) == there


def test_one_killed_before_its_config_was_written_is_new(tmp_path):
  (tmp_path / "run").mkdir()
  (tmp_path / "run/.config.json.partial").write_text('{"layout": ')
  with RunDirectory(tmp_path / "run") as directory:
    assert directory.stored is None
    TrialFiles(directory, [CELL])
  with RunDirectory(tmp_path / "run") as directory:
    TrialFiles(directory, [CELL])
    directory.begin(SETTINGS, {})
  with RunDirectory(tmp_path / "run") as directory:
    assert directory.stored["settings"] == SETTINGS


def test_the_mark_of_a_run_that_was_distributed_goes_away(tmp_path):
  mark = tmp_path / "run/.here-0123"
  mark.parent.mkdir()
  for _ in range(2):  # without a config.json, and with one
    mark.touch()
    with RunDirectory(tmp_path / "run") as directory:
      assert not mark.exists()
      directory.begin(SETTINGS, {})


@pytest.mark.parametrize(
  "wrong",
  [
    {"settings": None},
    {"starts": 5},
    {"starts": [None]},
    {"starts": [{"versions": 1}]},
    {"columns": 3},
    {"columns": {"task": "complex"}},
    {"columns": {"task": []}},
    {"layout": "2"},
  ],
)
def test_a_config_of_another_form_is_refused(opened, tmp_path, wrong):
  opened()
  path = tmp_path / "run/config.json"
  stored = json.loads(path.read_text())
  path.write_text(json.dumps({**stored, **wrong}))
  (name,) = wrong
  with pytest.raises(InvalidSetting, match=f"sepfx wrote .{name}: of another form"):
    opened()


@pytest.mark.parametrize("moved", [True, False])
@pytest.mark.parametrize("begun_anew", [True, False])
def test_a_directory_that_goes_away_is_not_written_to(tmp_path, moved, begun_anew):
  path = tmp_path / "run"
  with RunDirectory(path) as directory:
    files = TrialFiles(directory, [CELL])
    directory.begin(SETTINGS, {})
    files.ended(result(0))
    if moved:
      path.rename(tmp_path / "moved")
    else:
      shutil.rmtree(path)
    other = RunDirectory(path) if begun_anew else contextlib.nullcontext()
    with other:
      there = sorted(path.rglob("*"))
      checkpoints = Checkpoints(path / "checkpoints", 60, directory=directory)
      states = jax.tree.map(
        lambda a: np.zeros((1, *a.shape), a.dtype), CELL.trial.state_shapes()
      )
      group = InProgress([(CELL.name, 1)], states)
      for writes in (
        lambda: files.ended(result(1)),
        lambda: directory.append("trials.csv", "a row"),
        lambda: directory.write("summary.json", "{}"),
        lambda: checkpoints.save([group]),
        files.complete,
      ):
        with pytest.raises(OSError, match="run was removed or moved while this run"):
          writes()
      assert sorted(path.rglob("*")) == there


@pytest.mark.parametrize("name", ["summary.json", "trials.csv"])
def test_a_full_disk_names_the_file(tmp_path, monkeypatch, name):
  def full(_):
    raise OSError(errno.ENOSPC, "No space left on device")

  with RunDirectory(tmp_path / "run") as directory:
    monkeypatch.setattr(os, "fsync", full)
    writes = directory.append if name == "trials.csv" else directory.write
    with pytest.raises(OSError, match=f"No space left on device: '.*run/{name}'"):
      writes(name, "text")


def test_a_disk_that_is_full_when_a_run_begins_is_no_bad_setting(tmp_path, monkeypatch):
  def full(path, mode):
    raise OSError(errno.ENOSPC, "No space left on device", str(path))

  monkeypatch.setattr("builtins.open", full)
  with pytest.raises(OSError, match=r"No space left on device: '.*\.lock'"):
    RunDirectory(tmp_path)


def test_a_directory_that_cannot_be_written_is_refused(tmp_path):
  (tmp_path / "file").write_text("")
  with pytest.raises(
    InvalidSetting, match=r"output_dir: got .* takes a directory that can"
  ):
    RunDirectory(tmp_path / "file" / "run")


def test_a_live_run_locks_its_directory_and_a_dead_one_does_not(tmp_path):
  program = (
    "import sys; from sepfx.records.run_directory import RunDirectory\n"
    f"directory = RunDirectory({str(tmp_path / 'run')!r})\n"
    f"directory.begin({SETTINGS!r}, {{}})\n"
    "print('open', flush=True); sys.stdin.read()"
  )
  with subprocess.Popen(
    [sys.executable, "-c", program],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
  ) as other:
    assert other.stdout.readline() == "open\n"
    with pytest.raises(InvalidSetting, match="no live run is using"):
      RunDirectory(tmp_path / "run")
    other.kill()
    other.wait()
  with RunDirectory(tmp_path / "run") as directory:
    directory.begin(SETTINGS, {})
    starts = json.loads((tmp_path / "run/config.json").read_text())["starts"]
  assert len(starts) == 2
  wanted = {"versions", "devices", "revision", "time"}
  assert wanted <= set(starts[0])


def test_rows_parse_back(opened):
  files = opened()
  files.ended(result(0))
  records = files.complete().table
  assert records.dtype.names == (
    "task", "model", "length", "trial", "threshold", "samples", "outcome",
  )  # fmt: skip
  assert records[0].tolist() == ("qstr", "m", 3, 0, 0.9, 80, "reached")


def test_what_cannot_be_removed_is_named(tmp_path, monkeypatch):
  """`shutil.rmtree` names the last part of a path alone."""

  def fail(_):
    raise OSError(errno.EIO, "Input/output error", "manifest")

  monkeypatch.setattr("shutil.rmtree", fail)
  with pytest.raises(OSError, match=re.escape(str(tmp_path))):
    remove(tmp_path)


def test_a_digest_of_source_is_of_every_module(tmp_path):
  (tmp_path / "one.py").write_text("ONE = 1\n")
  found = [source_digest([tmp_path])]
  written = ("two.py", ""), ("one.py", "ONE = 2\n"), ("table.json", ""), ("notes.txt", "")
  for name, text in written:
    (tmp_path / name).write_text(text)
    found.append(source_digest([tmp_path]))
  assert len(set(found)) == 4
  assert found[3] == found[4]


COLUMNS = {"task": "str", "samples": "int", "outcome": "str"}


GPUS, TPUS = ["gpu:NVIDIA H100"] * 8, ["tpu:TPU v4"]


@pytest.mark.parametrize(
  ("starts", "words"),
  [
    ([["cpu:cpu"]], []),
    ([["cpu:cpu"] * 64], []),  # another number of them
    ([None], []),  # of a version that did not say
    ([GPUS], ["begun with devices of kind gpu:NVIDIA H100 (now cpu:cpu)"]),
    # Trials of all starts may stand there.
    (
      [["cpu:cpu"], TPUS, None],
      ["begun with devices of kind cpu:cpu, then tpu:TPU v4 (now cpu:cpu)"],
    ),
  ],
)
def test_other_devices_are_named(tmp_path, starts, words):
  with RunDirectory(tmp_path) as directory:
    directory.begin(SETTINGS, COLUMNS)
    (own,) = directory.stored["starts"]
    directory.stored["starts"] = [{**own, "devices": devices} for devices in starts]
    with warnings.catch_warnings(record=True) as heard:
      warnings.simplefilter("always")
      directory.begin(SETTINGS, COLUMNS)
  said = [str(warning.message) for warning in heard]
  assert len(said) == len(words)
  assert all(word in text for word, text in zip(words, said, strict=True))


@pytest.mark.parametrize(
  ("devices", "noted", "refused"),
  [
    (["cpu:cpu"], "default", False),
    (["cpu:cpu"], "bfloat16", False),  # CPUs do not look at it
    (None, "default", False),
    (GPUS, "highest", False),
    (GPUS, "default", True),
    (TPUS, "high", True),
  ],
)
@pytest.mark.filterwarnings("ignore:.*begun with devices")
def test_trials_of_accelerators_that_were_not_of_float32(
  tmp_path, devices, noted, refused
):
  """Versions before `matmul_precision` noted JAX's own setting at each start."""
  with RunDirectory(tmp_path) as directory:
    directory.begin(SETTINGS, COLUMNS)
    before = {"devices": devices, "matmul_precision": noted}
    directory.stored["starts"][0].update(before)
    if not refused:
      directory.begin(SETTINGS, COLUMNS)
      return
    with pytest.raises(InvalidSetting, match=rf"matmul precision \({noted}\)"):
      directory.begin(SETTINGS, COLUMNS)
    directory.begin(SETTINGS, {})  # nothing is trained


def test_devices_are_those_of_the_call(tmp_path):
  with RunDirectory(tmp_path) as directory:
    directory.begin(SETTINGS, COLUMNS, devices=jax.devices()[:1])
  (start,) = json.loads((tmp_path / "config.json").read_text())["starts"]
  assert start["devices"] == ["cpu:cpu"]


def test_a_report_is_written_anew_and_does_not_warn(tmp_path):
  with RunDirectory(tmp_path) as directory:
    directory.begin(SETTINGS, {})
    directory.stored["starts"][0]["devices"] = GPUS
    with warnings.catch_warnings():
      warnings.simplefilter("error")
      directory.begin(SETTINGS, {})
