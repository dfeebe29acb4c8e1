"""`sepfx.measure` on a directory, and `sepfx.plot`."""

import csv
import dataclasses
import functools
import json
import os
import signal

import jax
import numpy as np
import optax
import pytest

import sepfx
from sepfx import plotting
from sepfx.errors import InvalidSetting
from sepfx.models import Convolution, DenseFirst
from sepfx.tasks import FUNCTIONS, LINKS, QSTR, SparseBoolean
from sepfx.training import ERM, AdamW, Online
from sepfx.watching import viewers
from tests import programs, small

# As `programs.SMALL` has it on the command line.
PROTOCOL = Online(
  thresholds=(0.9, 0.7),
  optimizer=AdamW(0.01, weight_decay=0.01),
  batch_size=16,
  check_every=5,
  num_test=300,
  max_samples=8000,
)
TASK = QSTR(token_dim=2)
MODEL = "ffn:hidden_widths=20"
quick = functools.partial(
  sepfx.measure, QSTR(token_dim=2, codes="distinct"), small.Linear(name="own"), 3,
  Online(thresholds=(0.7,), batch_size=8, check_every=1, num_test=50, max_samples=40),
  num_trials=2, progress=False,
)  # fmt: skip


class Counted(sepfx.Watcher):
  """How many trials ended; does something after each."""

  def __init__(self, then=lambda: None):
    self.number, self._then = 0, then

  def ended(self, result):
    self.number += 1
    self._then()


@pytest.mark.slow
def test_the_same_trials_as_the_command_line_leaves(tmp_path):
  programs.complete(
    tmp_path / "command", f"--models={MODEL}", "--lengths=3,4", "--num_trials=2",
    "--thresholds=0.9,0.7", "--check_every=5", "--max_samples=8000",
    cache=tmp_path / "cache",
  )  # fmt: skip
  found = sepfx.measure(
    TASK, MODEL, [3, 4], PROTOCOL, num_trials=2,
    directory=tmp_path / "call", progress=False,
  )  # fmt: skip
  for name in ("trials.csv", "curves.npz"):
    own = (tmp_path / "call" / name).read_bytes()
    assert own == (tmp_path / "command" / name).read_bytes()
  loaded = sepfx.load(tmp_path / "call")
  of_command = json.loads((tmp_path / "command" / "summary.json").read_text())
  of_both = plotting.summary_of(sepfx.load(tmp_path / "command"))
  for part in ("cells", "exponents"):
    assert plotting.summary_of(loaded)[part] == of_command[part]
    assert of_both[part] == of_command[part]
  np.testing.assert_array_equal(loaded.table, found.table)
  assert loaded.settings == found.settings


@pytest.mark.slow
def test_a_figure_while_the_call_lasts(tmp_path, monkeypatch):
  monkeypatch.setattr(viewers, "_FIRST_SECONDS", 0.0)
  monkeypatch.setattr(viewers, "_REST", 0.0)
  seen = []

  def looked():
    seen.append((tmp_path / "figure.png").read_bytes())

  quick(directory=tmp_path, watchers=[Counted(looked)])
  assert len(seen) == 2
  at_end = (tmp_path / "figure.png").read_bytes()
  assert len({*seen, at_end}) == 3  # of one trial, of two, and the complete one


@pytest.mark.slow
def test_a_call_goes_on_and_grows(tmp_path):
  first = quick(directory=tmp_path)
  again = Counted()
  np.testing.assert_array_equal(
    quick(directory=tmp_path, watchers=[again]).table, first.table
  )
  assert again.number == 0
  more = Counted()
  grown = sepfx.measure(
    *quick.args[:2], [3, 4], quick.args[3], num_trials=3, progress=False,
    directory=tmp_path, watchers=[more],
  )  # fmt: skip
  assert more.number == 4
  assert sorted(grown.table[["length", "trial"]].tolist()) == [
    (length, trial) for length in (3, 4) for trial in range(3)
  ]


@pytest.mark.slow
def test_a_larger_budget(tmp_path, monkeypatch):
  short, long = (
    dataclasses.replace(
      quick.args[3], thresholds=(0.95,), optimizer=AdamW(0.03), max_samples=8 * steps
    )
    for steps in (8, 60)
  )

  def call(protocol, **options):
    return sepfx.measure(
      *quick.args[:3], protocol, num_trials=4, progress=False, **options
    )

  drawn = []
  monkeypatch.setattr(viewers, "_FIRST_SECONDS", 0.0)
  monkeypatch.setattr(viewers, "_REST", 0.0)
  before = call(short, directory=tmp_path)
  monkeypatch.setattr(plotting, "plot", lambda records: drawn.append(records.table) or 1)
  monkeypatch.setattr(plotting, "write_unfinished", lambda *_: None)
  monkeypatch.setattr(plotting, "write", lambda *_: None)
  assert set(before.table["outcome"]) == {"reached", "censored"}
  again = Counted()
  grown = call(long, directory=tmp_path, watchers=[again])
  of_trials = before.where(before.table["outcome"] == "censored").names()
  assert again.number == len(of_trials)
  assert len(drawn) == len(of_trials)
  for k, table in enumerate(drawn, start=1):  # without what runs again
    assert len(table) == 4 - len(of_trials) + k
    assert "censored" not in table["outcome"]
  whole = call(long)
  np.testing.assert_array_equal(grown.table, whole.table)
  assert grown.settings == json.loads(json.dumps(whole.settings))
  with pytest.raises(InvalidSetting, match="max_samples: got 64, takes 480, as in the "):
    call(short, directory=tmp_path)


@pytest.mark.slow
def test_a_budget_that_is_always_spent_does_not_grow(tmp_path):
  def call(steps):
    protocol = ERM(max_steps=steps, check_every=1, num_test=20, run_to_end=True)
    return sepfx.measure(
      SparseBoolean(sparsity=1), "ffn:hidden_widths=4", 4, protocol,
      axes={"sample_size": [8]}, num_trials=1, progress=False, directory=tmp_path,
    )  # fmt: skip

  call(2)
  with pytest.raises(InvalidSetting, match="max_steps: got 3, takes 2, as in the "):
    call(3)


@pytest.mark.slow
@pytest.mark.usefixtures("heard")
def test_interrupted_by_ctrl_c(tmp_path):
  once = iter([lambda: os.kill(os.getpid(), signal.SIGINT)])
  stopped = Counted(lambda: next(once, lambda: None)())
  before = signal.getsignal(signal.SIGINT)
  with pytest.raises(KeyboardInterrupt, match="the same call goes on from here"):
    quick(directory=tmp_path, num_trials=20, lanes=1, watchers=[stopped])
  assert signal.getsignal(signal.SIGINT) is before
  with open(tmp_path / "trials.csv") as file:
    recorded = len(list(csv.DictReader(file)))
  assert 1 <= recorded < 20
  assert not (tmp_path / "summary.json").exists()
  rest = Counted()
  found = quick(directory=tmp_path, num_trials=20, watchers=[rest])
  assert rest.number == 20 - recorded
  np.testing.assert_array_equal(found.table, quick(num_trials=20).table)


def of_rate(rate):
  return sepfx.measure(
    *quick.args[:3],
    dataclasses.replace(quick.args[3], optimizer=optax.sgd(rate)),
    progress=False,
    num_trials=1,
    directory=of_rate.directory,
  )


@pytest.mark.slow
def test_an_optimizer_of_another_rate_is_another_call(tmp_path):
  of_rate.directory = tmp_path
  of_rate(1e-3)
  of_rate(1e-3)
  with pytest.raises(InvalidSetting, match=r"differs in protocol.optimizer.*0.001.*0.01"):
    of_rate(0.01)


@pytest.mark.slow
def test_numbers_of_numpy_are_numbers(tmp_path):
  own = {"axes": {"batch_size": np.array([4, 8])}, "num_trials": np.int64(1)}
  found = quick(directory=tmp_path, seed=np.int64(3), **own)
  assert found.table["batch_size"].tolist() == [4, 8]
  again = quick(directory=tmp_path, seed=3, **own)
  np.testing.assert_array_equal(found.table, again.table)
  np.testing.assert_array_equal(sepfx.load(tmp_path).table, found.table)


@pytest.mark.slow
def test_an_axis_of_numbers_and_none(tmp_path):
  """Its column is text, also where the directory had numbers alone before."""
  first = quick(directory=tmp_path, axes={"init_scale": [2.0]}, probes="norms")
  grown = quick(directory=tmp_path, axes={"init_scale": [2.0, None]}, probes="norms")
  column = grown.table["init_scale"]
  assert column.tolist() == ["2", "2", "None", "None"]
  np.testing.assert_array_equal(grown.table["samples"][:2], first.table["samples"])
  np.testing.assert_array_equal(grown.probes["norm"][:2], first.probes["norm"])
  assert len(grown.curves()) == 4
  loaded = sepfx.load(tmp_path)
  np.testing.assert_array_equal(loaded.table, grown.table)
  assert sepfx.plot(loaded).axes


@pytest.mark.slow
@pytest.mark.usefixtures("heard")
def test_a_call_for_fewer_trials_ends_those_of_the_earlier_one(tmp_path):
  """Those that had ended are the fast ones: alone they would be a biased sample."""
  once = iter([lambda: os.kill(os.getpid(), signal.SIGINT)])
  stopped = Counted(lambda: next(once, lambda: None)())
  with pytest.raises(KeyboardInterrupt):
    quick(directory=tmp_path, num_trials=9, lanes=1, watchers=[stopped])
  found = quick(directory=tmp_path, num_trials=1)
  assert found.table["trial"].tolist() == list(range(9))


@pytest.mark.slow
def test_what_stands_inside_a_model_is_in_its_name(tmp_path):
  model = DenseFirst(Convolution(features=4))
  found = sepfx.measure(
    QSTR(), model, 3, quick.args[3], num_trials=1, progress=False, directory=tmp_path
  )
  (name,) = set(found.table["model"].tolist())
  assert name == "DenseFirst:model=(Convolution,features=4)"
  longer = small.Linear(name="l" * 250)
  with pytest.raises(InvalidSetting, match="a shorter description"):
    sepfx.measure(QSTR(), longer, 3, quick.args[3], progress=False)


@pytest.mark.slow
def test_weights_of_a_class_that_cannot_be_imported(tmp_path):
  """What the call returns knows its own classes; another session is told of them."""

  class Own(small.Linear):
    pass

  found = sepfx.measure(
    *(quick.args[0], Own(), 3, quick.args[3]), num_trials=1, progress=False,
    directory=tmp_path, keep_weights=True,
  )  # fmt: skip
  (trained,) = found.models.values()
  assert trained.model == Own()
  (loaded,) = sepfx.load(tmp_path).models.values()
  assert not loaded.model
  assert loaded.params.keys() == trained.params.keys()
  assert loaded.description["class"].endswith("<locals>.Own")
  with pytest.raises(InvalidSetting, match=r"sepfx\.load\(directory, classes=\[Own\]\)"):
    loaded(np.zeros((2, 3, 2)))
  (loaded,) = sepfx.load(tmp_path, classes=[Own]).models.values()
  assert loaded.model == Own()


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    ({"lengths": [3.5]}, "lengths: got 3.5, takes an integer from 1"),
    ({"lengths": [0]}, "lengths: got 0, takes an integer from 1"),
    ({"lengths": "3x4"}, "lengths: got '3x4', takes an integer"),
    ({"lengths": []}, r"lengths: got \[\], takes at least one"),
    ({"models": []}, r"models: got \[\], takes at least one"),
    ({"models": [lambda: None]}, "did you forget"),
    ({"models": [3]}, "models: got 3, takes a flax.linen module"),
    ({"task": "qstr"}, "task: got 'qstr', takes a task"),
    ({"protocol": "erm"}, "protocol: got 'erm', takes a protocol"),
    ({"num_trials": 2.5}, "num_trials: got 2.5, takes an integer from 1"),
    ({"lanes": -1}, "lanes: got -1"),
    ({"axes": [1e-3]}, r"axes: got \[0.001\], takes values by the names"),
    ({"axes": {"length": [4]}}, "axes: got 'length', takes another name"),
    ({"axes": {"hidden_widths": [(5,), (5, 5)]}}, "hidden_widths"),
  ],
)
def test_bad_input_is_refused_in_the_words_of_the_call(tmp_path, settings, message):
  given = {
    "task": QSTR(), "models": small.Linear(), "lengths": 3, "protocol": Online(),
    "directory": tmp_path / "run", "progress": False, **settings,
  }  # fmt: skip
  with pytest.raises(InvalidSetting, match=message):
    sepfx.measure(**given)
  assert not (tmp_path / "run" / "config.json").exists()


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    ({"seed": 1}, r"differs in seed \(there 0, here 1\)"),
    ({"task_draw": "shared"}, "differs in task_draw"),
    (
      {"axes": {"learning_rate": [1e-3]}},
      r"differs in the names of axes \(there \[\], here",
    ),
  ],
)
def test_directory_of_another_call_is_refused(tmp_path, settings, message):
  quick(directory=tmp_path)
  kept = {path: path.read_bytes() for path in tmp_path.iterdir()}
  with pytest.raises(InvalidSetting, match=f"^directory: got .*{message}"):
    quick(directory=tmp_path, **settings)
  assert {path: path.read_bytes() for path in tmp_path.iterdir()} == kept


def test_a_directory_of_other_things_is_refused(tmp_path):
  (tmp_path / "notes.txt").write_text("mine")
  with pytest.raises(InvalidSetting, match=r"^directory: got .*an empty directory"):
    quick(directory=tmp_path)


@pytest.mark.slow
def test_weights_in_memory_are_those_on_disk(tmp_path):
  kept = quick(keep_weights=True)
  read = quick(keep_weights=True, directory=tmp_path)
  assert list(kept.models) == list(read.models)
  for name, own in kept.models.items():
    jax.tree.map(
      np.testing.assert_array_equal, own.params, dict(read.models[name].params)
    )
  assert not quick().models


def test_links_and_functions_by_their_names():
  assert QSTR(link="mean") == QSTR(link=LINKS["mean"])
  assert SparseBoolean(function="majority").function is FUNCTIONS["majority"]
  with pytest.raises(InvalidSetting, match="link: got 'linaer', takes linear, mean"):
    QSTR(link="linaer")
  with pytest.raises(InvalidSetting, match="function: got 'nor', takes and, or"):
    SparseBoolean(function="nor")


def test_progress_is_shown_on_stderr_unless_it_is_not_wanted(capsys):
  quick(progress=True)
  out, err = capsys.readouterr()
  assert not out
  assert "2/2 trials" in err
  quick()
  assert capsys.readouterr() == ("", "")


def test_figure_of_first_passages():
  found = quick(axes={"learning_rate": [1e-3, 1e-2]})
  figure = sepfx.plot(found, against="learning_rate")
  assert figure.axes[0].get_xlabel() == "learning rate"
  with pytest.raises(InvalidSetting, match="against: got 'model', takes a numeric axis"):
    sepfx.plot(found, against="model")


@pytest.mark.slow
def test_figure_of_shares_of_uniform_attentions_loss(tmp_path):
  programs.complete(
    tmp_path / "run", f"--models={MODEL}", "--lengths=3,4", "--num_trials=2",
    "--check_every=5", "--max_samples=8000", "--thresholds=0.9",
    "--uniform_fractions=0.9,0.8",
    cache=tmp_path / "cache",
  )  # fmt: skip
  loaded = sepfx.load(tmp_path / "run")
  titles = [axis.get_title() for axis in sepfx.plot(loaded).axes]
  shares = [f"test MSE below {f} of uniform attention's" for f in (0.9, 0.8)]
  assert titles[:3] == ["test MSE below 0.9", *shares]
  of_command = json.loads((tmp_path / "run" / "summary.json").read_text())
  found = json.loads(json.dumps(plotting.summary_of(loaded)))
  assert found["exponents"] == of_command["exponents"]


@pytest.mark.slow
def test_figure_of_fixed_samples():
  protocol = ERM(threshold=0.4, max_steps=20, num_test=50)
  found = sepfx.measure(
    SparseBoolean(sparsity=1), MODEL, [4, 5], protocol,
    axes={"sample_size": [5, 20]}, num_trials=2, progress=False,
  )  # fmt: skip
  titles = [axis.get_title() for axis in sepfx.plot(found).axes]
  assert titles[0].endswith(MODEL)
  assert titles[1] == "critical sample size, 95% intervals"
  with pytest.raises(InvalidSetting, match="against: got 'sample_size', takes length"):
    sepfx.plot(found, against="sample_size")
