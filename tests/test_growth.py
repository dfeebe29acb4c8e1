"""A run that grows: what stands there is kept, what is missing is run."""

import contextlib
import csv
import json
import shutil
import time

import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver

import sepfx
from experiments.sample_complexity import STUDY
from sepfx import InvalidSetting
from sepfx.commands import options, program
from sepfx.ensembles import Watcher, compiling
from sepfx.errors import Interrupted
from sepfx.records import trial_files
from sepfx.records.trial_files import Contradiction
from sepfx.tasks import QSTR
from tests.programs import complete, start

SMALL = (
  "--token_dim=2", "--batch_size=16", "--check_every=2", "--num_test=200",
  "--max_samples=1600", "--thresholds=0.9,0.3", "--learning_rate=0.01",
  # The directory names both, each command one of them.
  "--classes=tests.small:Linear,tests.small:ffn",
)  # fmt: skip
FIRST = ("--models=tests.small:Linear", "--lengths=3", "--num_trials=2")
WHOLE = (
  "--models=tests.small:Linear,tests.small:ffn", "--lengths=3,4", "--num_trials=4",
)  # fmt: skip
pytestmark = pytest.mark.slow
FILES = ("trials.csv", "curves.npz", "summary.json", "figure.png")


@pytest.fixture(autouse=True)
def _no_signals(monkeypatch):
  monkeypatch.setattr(options.signal, "signal", lambda *_: None)


def run(directory, *arguments):
  """Runs the study in this process; the last of an argument's values counts."""
  arguments = [*SMALL, *arguments]
  own = [a for a in arguments if a.partition("=")[0].removeprefix("--") in flags.FLAGS]
  with flagsaver.flagsaver():
    flags.FLAGS(["study", "--quiet", f"--output_dir={directory}", *own])
    program.run(STUDY, STUDY.chosen(arguments))


def files(directory):
  return {name: (directory / name).read_bytes() for name in FILES}


@contextlib.contextmanager
def counted(monkeypatch):
  """Lists the names of the trials that run."""
  ran = []
  ended = trial_files.TrialFiles.ended
  with monkeypatch.context() as patched:
    patched.setattr(
      trial_files.TrialFiles,
      "ended",
      lambda self, result: (ran.append(result.name), ended(self, result))[1],
    )
    yield ran


@pytest.fixture(scope="module")
def at_once(tmp_path_factory):
  directory = tmp_path_factory.mktemp("at_once")
  with pytest.MonkeyPatch.context() as patched:
    patched.setattr(options.signal, "signal", lambda *_: None)
    run(directory, *WHOLE)
  return directory


def test_trials_lengths_and_models_are_added(tmp_path, at_once, monkeypatch):
  run(tmp_path, *FIRST)
  with counted(monkeypatch) as ran:
    run(tmp_path, *WHOLE)
  assert len(ran) == 2 * 2 * 4 - 2  # two were there
  assert files(tmp_path) == files(at_once)
  # What is asked for less is there already, and nothing of the rest goes away.
  with counted(monkeypatch) as ran:
    run(tmp_path, *FIRST)
  assert not ran
  assert (tmp_path / "trials.csv").read_bytes() == files(at_once)["trials.csv"]


def test_in_any_order(tmp_path, at_once):
  parts = (
    ("--models=tests.small:Linear", "--lengths=4", "--num_trials=1"),
    ("--models=tests.small:ffn", "--lengths=3", "--num_trials=4"),
    ("--models=tests.small:ffn", "--lengths=4", "--num_trials=4"),
    ("--models=tests.small:Linear", "--lengths=4,3", "--num_trials=4"),
  )
  for part in parts:
    run(tmp_path, *part)
  assert (tmp_path / "trials.csv").read_bytes() == files(at_once)["trials.csv"]
  assert len(sepfx.load(tmp_path).all_curves) == 16


def test_killed_in_between(tmp_path, tmp_path_factory):
  cache = tmp_path_factory.mktemp("cache")
  lasting = ("--thresholds=0.3", "--check_every=20", "--max_samples=48000")
  small = [a for a in SMALL if a.partition("=")[0] not in str(lasting)]
  complete(tmp_path / "one", *small, *lasting, *WHOLE, cache=cache)
  complete(tmp_path / "two", *small, *lasting, *FIRST, cache=cache)
  before = (tmp_path / "two/trials.csv").read_text().splitlines()
  process = start(tmp_path / "two", *small, *lasting, *WHOLE, cache=cache)
  while len((tmp_path / "two/trials.csv").read_text().splitlines()) == len(before):
    assert process.poll() is None
    time.sleep(0.01)
  process.kill()
  process.communicate()
  assert set(before) <= set((tmp_path / "two/trials.csv").read_text().splitlines())
  complete(tmp_path / "two", *small, *lasting, *WHOLE, cache=cache)
  one, two = ((tmp_path / name / "trials.csv").read_bytes() for name in ("one", "two"))
  assert one == two


TWO_RATES = "--learning_rate=0.003,0.01"


def test_a_setting_becomes_an_axis(tmp_path):
  run(tmp_path / "grown", *FIRST, "--keep_weights", "--probes=norms")
  run(tmp_path / "grown", *FIRST, TWO_RATES, "--keep_weights", "--probes=norms")
  run(tmp_path / "once", *FIRST, TWO_RATES, "--keep_weights", "--probes=norms")
  assert files(tmp_path / "grown") == files(tmp_path / "once")
  probes, names = [], []
  for name in ("grown", "once"):
    directory = tmp_path / name
    probes.append((directory / "probes.csv").read_bytes())
    kept = directory.glob("weights/**/*.safetensors")
    names.append(sorted(str(file.relative_to(directory)) for file in kept))
  assert probes[0] == probes[1]
  assert names[0] == names[1]
  assert len(names[0]) == 4
  records = sepfx.load(tmp_path / "grown")
  assert records.coordinates == ("task", "model", "length", "learning_rate")
  # Now that it is an axis, it takes any value.
  run(tmp_path / "grown", *FIRST, "--learning_rate=0.03")
  assert set(sepfx.load(tmp_path / "grown").table["learning_rate"]) == {0.003, 0.01, 0.03}


@pytest.fixture(scope="module")
def of_one_rate_and_two(tmp_path_factory):
  """A run with probes, and the same one grown by another rate."""
  one = tmp_path_factory.mktemp("one_rate") / "run"
  two = one.with_name("grown")
  with pytest.MonkeyPatch.context() as patched:
    patched.setattr(options.signal, "signal", lambda *_: None)
    run(one, *FIRST, "--probes=norms")
    shutil.copytree(one, two)
    run(two, *FIRST, TWO_RATES, "--probes=norms")
  return one, two


@pytest.mark.parametrize("killed_after", ["curves.npz", "probes.csv", "trials.csv"])
def test_becoming_an_axis_is_done_again_if_it_was_cut_short(
  tmp_path, monkeypatch, of_one_rate_and_two, killed_after
):
  one, whole = of_one_rate_and_two
  shutil.copytree(one, tmp_path / "run")
  write = trial_files.RunDirectory.write

  def cut_short(self, name, content):
    write(self, name, content)
    if name == killed_after:
      raise KeyboardInterrupt

  with monkeypatch.context() as patched:
    patched.setattr(trial_files.RunDirectory, "write", cut_short)
    with pytest.raises(KeyboardInterrupt):
      run(tmp_path / "run", *FIRST, TWO_RATES, "--probes=norms")
  with counted(monkeypatch) as ran:
    run(tmp_path / "run", *FIRST, TWO_RATES, "--probes=norms")
  assert len(ran) == 2  # those of the other rate
  assert files(tmp_path / "run") == files(whole)


def test_a_larger_budget_runs_what_was_censored(tmp_path, monkeypatch):
  run(tmp_path, *FIRST, "--max_samples=1600")
  run(tmp_path, *FIRST, "--lengths=4", "--max_samples=1600")
  with open(tmp_path / "trials.csv") as file:
    rows = list(csv.DictReader(file))
  censored = {
    (row["length"], row["trial"]) for row in rows if row["outcome"] == "censored"
  }
  assert censored
  with pytest.raises(InvalidSetting, match=r"max_samples \(there 1600, here 800, a "):
    run(tmp_path, *FIRST, "--max_samples=800")
  with counted(monkeypatch) as ran:
    run(tmp_path, *FIRST, "--max_samples=3200")  # also those at the other length
  assert len(ran) == len(censored)
  run(tmp_path / "once", *FIRST, "--lengths=3,4", "--max_samples=3200")
  assert files(tmp_path) == files(tmp_path / "once")


def test_a_budget_that_changes_trials_is_refused(tmp_path):
  from experiments.boolean import boolean_sample_complexity as boolean

  arguments = [
    "--models=tests.test_erm:Logistic", "--contexts=4", "--sparsity=1", "--num_test=50",
    "--sample_sizes=8", "--num_trials=1", "--run_to_end",
  ]  # fmt: skip
  with flagsaver.flagsaver():
    flags.FLAGS(["study", "--quiet", f"--output_dir={tmp_path}"])
    program.run(boolean.STUDY, boolean.STUDY.chosen([*arguments, "--max_steps=20"]))
    with pytest.raises(InvalidSetting, match="max_steps: got 40, takes 20, as there"):
      program.run(boolean.STUDY, boolean.STUDY.chosen([*arguments, "--max_steps=40"]))


def test_a_call_does_not_go_on_with_what_a_command_wrote(at_once):
  before = files(at_once)
  with pytest.raises(InvalidSetting, match="a command of the shell wrote this one"):
    sepfx.measure(QSTR(token_dim=2), "ffn", 3, directory=at_once, progress=False)
  assert files(at_once) == before


@pytest.mark.parametrize(
  "setting",
  ["--thresholds=0.9", "--check_every=4", "--num_test=300", "--batch_size=32",
   "--seed=1", "--learning_rate=0.003", "--token_dim=3", "--screen=false"],
)  # fmt: skip
def test_what_changes_a_trial_is_refused(tmp_path, at_once, setting):
  name = setting.removeprefix("--").partition("=")[0]
  before = files(at_once)
  with pytest.raises(InvalidSetting, match=rf"of the same config; .* in {name} \(there"):
    run(at_once, *WHOLE, setting)
  assert files(at_once) == before


def test_probes_and_weights_asked_for_later(tmp_path, at_once, monkeypatch):
  directory = tmp_path / "run"
  shutil.copytree(at_once, directory)
  again = pytest.warns(UserWarning, match=r"run again, 2 at most\.")
  with again, counted(monkeypatch) as ran:
    run(directory, *FIRST, "--probes=norms", "--keep_weights")
  assert len(ran) == 2
  assert files(directory) == files(at_once)
  records = sepfx.load(directory)
  assert np.isfinite(records.probes["norm"]).sum() == 2
  assert len(records.models) == 2
  # Both are kept when a later command asks for neither, or for another probe.
  run(directory, *WHOLE)
  with pytest.warns(UserWarning, match=r"run again, 2 at most\."):
    run(directory, *FIRST, "--probes=gradient")
  records = sepfx.load(directory)
  assert np.isfinite(records.probes["norm"]).sum() == 2
  assert np.isfinite(records.probes["gradient_norm"]).sum() == 2


def test_a_trial_that_contradicts_its_records_ends_the_run(tmp_path, at_once):
  directory = tmp_path / "run"
  shutil.copytree(at_once, directory)
  path = directory / "trials.csv"
  lines = path.read_text().splitlines(keepends=True)
  # Row and curve both say that a threshold was reached at the first check.
  records = sepfx.load(at_once)
  table = records.table
  later = (table["outcome"] == "reached") & (table["samples"] > 32)
  index = int(np.argmax(later & (table["threshold"] == 0.9)))
  row = index + 1
  lines[row] = lines[row].replace(f",{table['samples'][index]},", ",32,")
  path.write_text("".join(lines))
  curves = dict(records.all_curves)
  curves[records.name_of(table[index])]["loss"][0] = 0.85
  np.savez_compressed(directory / "curves.npz", **curves)
  (directory / "digests.json").unlink()  # else the files are refused
  again = pytest.warns(UserWarning, match="without the probes or weights")
  with again, pytest.raises(Contradiction, match="ran again and came to"):
    run(directory, *WHOLE, "--probes=norms")
  assert lines[row] in path.read_text()


def test_rates_in_one_program(tmp_path, monkeypatch):
  """Done when 2: one program for each structure, as many steps as in separate runs."""
  compiled, steps = [], []

  class Counting(compiling.Lanes):
    def __init__(self, *arguments, **settings):
      compiled.append(arguments[0])
      super().__init__(*arguments, **settings)

  class Steps(Watcher):
    def advanced(self, cells, taken):
      steps.append(int(taken.sum()))

  monkeypatch.setattr(compiling, "Lanes", Counting)
  rates = [0.003, 0.01, 0.03]
  protocol = sepfx.Online(
    thresholds=(0.8,), batch_size=16, check_every=2, num_test=200, max_samples=1600
  )
  task = sepfx.tasks.QSTR(token_dim=2)

  def measure(values):
    found = sepfx.measure(
      task, ["tests.small:Linear", "tests.small:ffn"], [3, 4], protocol,
      axes={"learning_rate": values}, num_trials=2, watchers=[Steps()],
    )  # fmt: skip
    return {found.name_of(row): row.tolist() for row in found.table}

  together = measure(rates)
  assert len(compiled) == 4  # two models at two lengths
  sweep, steps[:] = sum(steps), []
  alone = [measure([rate]) for rate in rates]
  assert len(compiled) == 4 + 3 * 4
  assert sum(steps) == sweep
  assert together == {name: row for each in alone for name, row in each.items()}


def test_the_first_layout_is_read(tmp_path, at_once):
  """As an earlier version wrote it: no types, no `layout`, settings that are gone."""
  directory = tmp_path / "old"
  shutil.copytree(at_once, directory)
  config = json.loads((directory / "config.json").read_text())
  settings = config["settings"]
  for name in ("optimizer", "l2", "init_scale"):
    del settings[name]
  settings["num_heads"] = 1
  old = {"settings": settings, "starts": config["starts"]}
  (directory / "config.json").write_text(json.dumps(old))
  (directory / "digests.json").unlink()
  records = sepfx.load(directory)
  np.testing.assert_array_equal(records.table, sepfx.load(at_once).table)
  run(tmp_path / "new", *FIRST, "--lengths=2", f"--beside={directory}")
  cells = json.loads((tmp_path / "new/summary.json").read_text())["cells"]
  assert {cell["length"] for cell in cells} == {2, 3, 4}
  config["layout"] = 3
  (directory / "config.json").write_text(json.dumps(config))
  with pytest.raises(InvalidSetting, match="layout 2 or earlier"):
    sepfx.load(directory)


def test_a_run_that_was_stopped_while_it_grew_is_not_complete(tmp_path, monkeypatch):
  run(tmp_path, *FIRST)
  assert len(sepfx.load(tmp_path).names()) == 2
  with monkeypatch.context() as patched:
    patched.setattr(options.Stop, "requested", True, raising=False)
    patched.setattr(options.Stop, "__init__", lambda self, _: None)
    with pytest.raises(Interrupted):
      run(tmp_path, *FIRST, "--token_dim=2,3")
  records = sepfx.load(tmp_path)
  assert (records.complete, records.missing, len(records.names())) == (False, 2, 2)
  run(tmp_path, *FIRST, "--token_dim=2,3")
  assert len(sepfx.load(tmp_path).names()) == 4
