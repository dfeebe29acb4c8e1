"""A call of `measure` that leaves out what stands in its directory keeps it."""

import dataclasses
import json
import shutil
import signal

import numpy as np
import pytest

import sepfx
from experiments import best_rate
from sepfx import InvalidSetting
from sepfx.tasks import QSTR
from tests import small

PROTOCOL = sepfx.Online(
  thresholds=(0.7,), batch_size=8, check_every=1, num_test=50, max_samples=40
)
ONE, TWO = small.Linear(name="one"), small.Linear(name="two")
RATES = {"learning_rate": [1e-2, 1e-3]}


class Stopping(sepfx.Watcher):
  """Ends a call when so many trials have ended."""

  def __init__(self, number):
    self._left = number

  def ended(self, result):
    self._left -= 1
    if not self._left:
      raise RuntimeError("stopped")


class Interrupting(sepfx.Watcher):
  """Sends Ctrl-C when the first trial has begun: twice would end a call at once."""

  sent = False

  def started(self, cell, trial, step):
    if not self.sent:
      self.sent = True
      signal.raise_signal(signal.SIGINT)


class Steps(sepfx.Watcher):
  """Where each trial goes on from."""

  def __init__(self):
    self.of = {}

  def started(self, cell, trial, step):
    self.of[f"{cell.name}/trial={trial}"] = step


def measured(directory, models, lengths, axes=RATES, protocol=PROTOCOL, **options):
  task = QSTR(token_dim=2, codes="distinct")
  return sepfx.measure(
    task, models, lengths, protocol, axes=axes, num_trials=2, progress=False,
    directory=directory, **options,
  )  # fmt: skip


def content(path):
  """What a directory has of its trials: config.json tells of each start, too."""
  config = json.loads((path / "config.json").read_text())
  del config["starts"]
  names = ("trials.csv", "probes.csv", "summary.json")
  return config, {name: (path / name).read_bytes() for name in names}


def test_calls_one_after_another_leave_what_one_call_does(tmp_path):
  """Whoever asks for the models one by one gets them one by one."""
  options = {"probes": "norms", "keep_weights": True}
  first = measured(tmp_path / "parts", ONE, 3, **options)
  second = measured(tmp_path / "parts", TWO, [2, 3], **options)
  measured(tmp_path / "parts", ONE, [2], **options)
  whole = measured(tmp_path / "whole", [ONE, TWO], [2, 3], **options)
  assert content(tmp_path / "parts") == content(tmp_path / "whole")
  assert sorted(set(second.table["length"].tolist())) == [2, 3]
  for found in (first, second):
    model = set(found.table["model"])
    assert len(model) == 1
    assert len(found.all_curves) == len(found.table) == len(found.probes)
    assert {found.name_of(row) for row in found.probes} == set(found.models)
    for row in found.table:
      assert row in whole.table
      name = found.name_of(row)
      np.testing.assert_array_equal(found.all_curves[name], whole.all_curves[name])
      own, same = found.models[name], whole.models[name]
      np.testing.assert_array_equal(
        own.params["Dense_0"]["kernel"],
        same.params["Dense_0"]["kernel"],
      )
  loaded = sepfx.load(tmp_path / "parts", classes=[small.Linear])
  assert loaded.complete
  np.testing.assert_array_equal(loaded.table, whole.table)


def test_probes_that_a_call_for_a_part_asked_for_are_measured_of_the_others(tmp_path):
  measured(tmp_path, ONE, [2, 3])
  with pytest.warns(UserWarning, match=r"without the probes .*, 4 at most\."):
    part = measured(tmp_path, ONE, 2, probes="norms")
  assert np.isfinite(part.probes["norm"]).all()
  loaded = sepfx.load(tmp_path)
  assert np.isnan(loaded.probes["norm"][loaded.probes["length"] == 3]).all()
  with pytest.warns(UserWarning, match=r"run again, 4 at most\."):
    whole = measured(tmp_path, ONE, [2, 3], probes="norms")
  assert np.isfinite(whole.probes["norm"]).all()
  measured(tmp_path / "one", ONE, [2, 3], probes="norms")
  own, same = (path / "probes.csv" for path in (tmp_path, tmp_path / "one"))
  assert own.read_bytes() == same.read_bytes()


def test_values_of_an_axis_are_kept(tmp_path):
  measured(tmp_path, ONE, 3)
  found = measured(tmp_path, ONE, 3, {"learning_rate": [3e-3]})
  assert set(found.table["learning_rate"]) == {3e-3}
  assert set(sepfx.load(tmp_path).table["learning_rate"]) == {1e-2, 1e-3, 3e-3}


def test_an_axis_has_text_when_a_value_is_none(tmp_path):
  measured(tmp_path, ONE, 3, {"l2": [0.1, 0.2]})
  measured(tmp_path, ONE, 3, {"l2": [None, 0.1]})
  found = measured(tmp_path, ONE, 3, {"l2": [0.2]})
  assert set(found.table["l2"]) == {"0.2"}
  assert set(sepfx.load(tmp_path).table["l2"]) == {"0.1", "0.2", "None"}


def test_a_damaged_row_of_what_is_left_out_is_refused(tmp_path):
  measured(tmp_path, ONE, 3)
  rows = (tmp_path / "trials.csv").read_text()
  changed = rows.replace(",censored", ",reached")
  assert changed != rows
  (tmp_path / "trials.csv").write_text(changed)
  (tmp_path / "digests.json").unlink()
  with pytest.raises(InvalidSetting, match=r"what follows from the trial's curve"):
    measured(tmp_path, TWO, 3)


def test_a_larger_budget_is_of_all_that_stands_there(tmp_path):
  measured(tmp_path, ONE, [2, 3])
  longer = dataclasses.replace(PROTOCOL, max_samples=80)
  with pytest.raises(
    InvalidSetting, match=r"max_samples: .* without all of its models and lengths"
  ):
    measured(tmp_path, TWO, 3, protocol=longer)
  measured(tmp_path, [ONE, TWO], [2, 3], protocol=longer)


def test_trials_that_a_larger_budget_brings_back_are_not_left_out(tmp_path):
  """The call that asked for it was stopped before they ran again."""
  measured(tmp_path, [ONE, TWO], 3)
  longer = dataclasses.replace(PROTOCOL, max_samples=80)
  stop = Stopping(2)
  with pytest.raises(RuntimeError, match="stopped"):
    measured(tmp_path, [ONE, TWO], 3, protocol=longer, watchers=[stop], lanes=1)
  kept = (tmp_path / "trials.csv").read_bytes()
  with pytest.raises(
    InvalidSetting, match="a larger budget brings back task=qstr/model="
  ):
    measured(tmp_path, small.Linear(name="third"), 3, protocol=longer)
  assert (tmp_path / "trials.csv").read_bytes() == kept
  measured(tmp_path, [ONE, TWO], 3, protocol=longer)
  measured(tmp_path, small.Linear(name="third"), 3, protocol=longer)
  assert set(sepfx.load(tmp_path).table["samples"]) == {80}


def test_whole_numbers_stand_with_others_on_an_axis(tmp_path):
  measured(tmp_path, ONE, 3, {"weight_decay": [0, 0.5]})
  found = measured(tmp_path, ONE, 3, {"weight_decay": [1]})
  assert found.table["weight_decay"].tolist() == [1.0, 1.0]


def test_a_name_that_differs_in_case_alone_is_refused(tmp_path):
  measured(tmp_path, ONE, 3)
  with pytest.raises(InvalidSetting, match="differ in more than case"):
    measured(tmp_path, small.Linear(name="One"), 3)


def test_an_axis_and_the_budget_may_grow_together(tmp_path):
  measured(tmp_path, ONE, 3, {"learning_rate": [1e-3]})
  longer = dataclasses.replace(PROTOCOL, max_samples=80)
  found = measured(tmp_path, ONE, 3, protocol=longer)
  assert set(found.table["learning_rate"]) == {1e-2, 1e-3}


def test_another_model_of_the_same_name_is_refused(tmp_path):
  measured(tmp_path, small.Linear(name="own"), 3)
  with pytest.raises(InvalidSetting, match=r"differs in models\.own"):
    measured(tmp_path, sepfx.models.FeedForward((3,), name="own"), 3)


@pytest.mark.usefixtures("heard")
def test_what_was_in_progress_goes_on_after_a_call_for_something_else(tmp_path):
  run, longer = tmp_path / "run", dataclasses.replace(PROTOCOL, max_samples=8000)
  call = {"protocol": longer, "lanes": 1}
  with pytest.raises(KeyboardInterrupt):
    measured(run, ONE, [2, 3], watchers=[Interrupting()], **call)
  other = measured(run, TWO, 3, **call)
  assert other.complete
  assert set(other.table["model"]) == {"two"}
  loaded = sepfx.load(run)
  assert not loaded.complete
  assert loaded.missing == 2  # of the cell that had begun
  measured(run, TWO, 2, **call)  # whose checkpoints are later ones
  steps = Steps()
  measured(run, ONE, [2, 3], watchers=[steps], **call)
  assert sepfx.load(run).complete
  assert max(steps.of.values()) > 0
  assert not (run / "checkpoints").exists()
  measured(tmp_path / "whole", [ONE, TWO], [2, 3], **call)
  names = ("trials.csv", "summary.json")
  for name in names:
    assert (run / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.usefixtures("heard")
def test_cells_of_which_nothing_is_there_are_given_up_without_a_state(tmp_path):
  call = {"protocol": dataclasses.replace(PROTOCOL, max_samples=8000), "lanes": 1}
  with pytest.raises(KeyboardInterrupt):
    measured(tmp_path, ONE, [2, 3], watchers=[Interrupting()], **call)
  for state in tmp_path.glob("checkpoints/lanes-*"):
    shutil.rmtree(state) if state.is_dir() else state.unlink()
  measured(tmp_path, ONE, 3, **call)
  loaded = sepfx.load(tmp_path)
  assert loaded.complete
  assert set(loaded.table["length"]) == {3}


@pytest.mark.usefixtures("heard")
def test_so_it_does_where_a_search_chooses_trials(tmp_path):
  settings = {
    "models": "tests.small:Linear", "learning_rates": [1e-2, 1e-3], "token_dim": 2,
    "batch_size": 8, "num_test": 50, "max_samples": 8000, "thresholds": [0.9],
    "uniform_fractions": [], "num_trials": 3,
  }  # fmt: skip

  def run(*lengths, directory="run", **options):
    return sepfx.run(
      best_rate.STUDY, {**settings, "lengths": lengths}, directory=tmp_path / directory,
      progress=False, lanes=1, **options,
    )  # fmt: skip

  with pytest.raises(KeyboardInterrupt):
    run(2, watchers=[Interrupting()])
  part = run(3)
  assert "an earlier call" in part.words
  assert not sepfx.load(tmp_path / "run").complete
  steps = Steps()
  run(2, 3, watchers=[steps])
  assert max(steps.of.values()) > 0
  assert sepfx.load(tmp_path / "run").complete
  run(2, 3, directory="whole")
  for name in ("trials.csv", "summary.json"):
    own, same = (tmp_path / place / name for place in ("run", "whole"))
    assert own.read_bytes() == same.read_bytes()
