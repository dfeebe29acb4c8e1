"""Shares of a run: processes that know nothing of one another come to what one does."""

import contextlib
import importlib
import json
import random
import shutil
import signal
import subprocess
import sys
import time
import types

import jax
import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver

import sepfx
from experiments import best_rate, sample_complexity
from experiments.boolean import boolean_sample_complexity
from sepfx import InvalidSetting
from sepfx.commands import options
from sepfx.records import adoption, shares
from sepfx.records.run_directory import RunDirectory
from sepfx.records.shares import Share
from sepfx.studies import running, sharing
from sepfx.studies.missing import Options
from sepfx.studies.study import StudyCall
from sepfx.tasks import QSTR
from tests import small
from tests.programs import ROOT, complete, finish, start
from tests.test_faults import GRID, await_file
from tests.test_leaving_out import Stopping

PROTOCOL = sepfx.Online(
  thresholds=(0.9, 0.7), batch_size=8, check_every=1, num_test=50, max_samples=80
)
KEPT = {"probes": "norms", "keep_weights": True}
STUDY = {
  "models": "tests.small:Linear", "lengths": [2], "num_trials": 6, "token_dim": 2,
  "batch_size": 8, "num_test": 50, "check_every": 1, "max_samples": 80,
  "thresholds": [0.9, 0.7],
}  # fmt: skip


def measured(directory, share=None, *, lengths=(2, 3, 4), num_trials=3, **settings):
  return sepfx.measure(
    QSTR(token_dim=2, codes="distinct"), small.Linear(), list(lengths),
    settings.pop("protocol", PROTOCOL), num_trials=num_trials, directory=directory,
    share=share, progress=False, **{**KEPT, **settings},
  )  # fmt: skip


def content(path):
  """Every file that a complete run leaves of its trials, by name."""
  names = ("trials.csv", "curves.npz", "probes.csv", "summary.json")
  files = [path / name for name in names if (path / name).exists()]
  files += sorted((path / "weights").rglob("*.safetensors"))
  return {str(file.relative_to(path)): file.read_bytes() for file in files}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  """What one process leaves."""
  path = tmp_path_factory.mktemp("whole")
  measured(path)
  return content(path)


def call(path, *, merge=False, share=None, **settings):
  """A call of a study's command."""
  chosen = sepfx.studies.settings.from_values(
    sample_complexity.STUDY.settings, {**STUDY, **settings}
  )
  asked = StudyCall(sample_complexity.STUDY, chosen)
  return running.run(asked, path, Options(share=share, merge=merge))


# Which trials.


@pytest.mark.parametrize("items", [0, 1, 5, 27, 64])
@pytest.mark.parametrize("count", [1, 3, 8, 64])
def test_shares_are_all_there_is_and_nearly_equal(items, count):
  cut = [Share(k, count).cut(range(items)) for k in range(count)]
  assert [item for part in cut for item in part] == list(range(items))
  sizes = set(map(len, cut))
  assert max(sizes) - min(sizes) <= 1


def test_a_share_has_few_programs():
  chosen = sepfx.studies.settings.from_values(
    sample_complexity.STUDY.settings,
    {**STUDY, "models": ["tests.small:Linear", "tests.small:ffn"]},
  )
  asked = StudyCall(sample_complexity.STUDY, chosen)
  request = asked.request(None)
  plan = sepfx.studies.requests.planned(request, [], None)
  parts = [sharing.names_of(Share(k, 4), request) for k in range(4)]
  assert sorted(name for part in parts for name in part) == sorted(plan.names)
  for part in parts:
    assert len({name.rpartition("/")[0] for name in part}) == 1


def test_a_share_of_a_search_has_whole_groups():
  chosen = sepfx.studies.settings.from_values(
    best_rate.STUDY.settings,
    {
      "models": ["ffn:hidden_widths=4", "transformer"],
      "lengths": [4, 8],
      "num_trials": 3,
    },
  )
  asked = StudyCall(best_rate.STUDY, chosen)
  request = asked.request(None)
  groups = asked.search(request).groups
  assert [len(group) for group in groups] == [7] * 4
  parts = [sharing.request_of(Share(k, 3), request, groups).own for k in range(3)]
  assert [len(part) for part in parts] == [7, 7, 14]
  assert {cell.name for part in parts for cell in part} == {
    cell.name for cell in request.own
  }
  none = sharing.request_of(Share(0, 5), request, groups).own
  assert none == []


# Who says which.


@pytest.mark.parametrize(
  "asked",
  ["3/3", "-1/3", "1/0", "a/3", "", "3", "1/2/3", "auto/", (3, 3), (1,), (0, 2.0), 1],
)
def test_what_is_no_share_is_refused(tmp_path, asked):
  with pytest.raises(InvalidSetting, match=r"share: got .*, takes i/n with 0 <= i < n"):
    sharing.share_of(asked, tmp_path / "run")
  assert not (tmp_path / "run").exists()


ARRAY = {
  "SLURM_ARRAY_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": "9", "SLURM_ARRAY_TASK_COUNT": "4",
  "SLURM_ARRAY_TASK_MIN": "5", "SLURM_ARRAY_TASK_MAX": "11", "SLURM_ARRAY_TASK_STEP": "2",
  "SLURM_PROCID": "0", "SLURM_NTASKS": "8",
}  # fmt: skip
MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}
STEP = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "8", "SLURM_NTASKS": "8"}


@pytest.mark.parametrize(
  ("environment", "asked", "share"),
  [
    (ARRAY, "auto", Share(2, 4)),
    (STEP, "auto", Share(3, 8)),
    ({**ARRAY, **STEP}, "auto", Share(2 * 8 + 3, 32)),
    (MPI, "auto/2", Share(1, 2)),
    # Ranks of mpirun have the step of the daemon that started them.
    ({**STEP, **MPI}, "auto", Share(1, 2)),
    ({**ARRAY, **MPI}, "auto", Share(2 * 2 + 1, 8)),
    ({"JOB_COMPLETION_INDEX": "5"}, "auto/64", Share(5, 64)),
  ],
)
def test_schedulers_say_which_share(monkeypatch, tmp_path, environment, asked, share):
  monkeypatch.setattr("os.environ", environment)
  assert sharing.share_of(asked, tmp_path)[0] == share


@pytest.mark.parametrize(
  ("environment", "asked", "takes"),
  [
    ({}, "auto", "i/n here: no SLURM array"),
    # A batch script that was not started with srun is not share 0 of 8.
    ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, "auto", "i/n here: no SLURM array"),
    ({"JOB_COMPLETION_INDEX": "5"}, "auto", "auto/n: JOB_COMPLETION_INDEX does not say"),
    ({"JOB_COMPLETION_INDEX": "5"}, "auto/4", "0 <= i < n: from 0/4 to 3/4"),
    (STEP, "auto/4", "auto: SLURM_PROCID says 8"),
  ],
)
def test_where_nothing_says_it_auto_is_refused(
  monkeypatch, tmp_path, environment, asked, takes
):
  monkeypatch.setattr("os.environ", environment)
  with pytest.raises(InvalidSetting, match=takes):
    sharing.share_of(asked, tmp_path)


def test_an_array_with_gaps_has_as_many_shares_as_tasks(monkeypatch, tmp_path):
  gaps = {
    **ARRAY, "SLURM_ARRAY_TASK_COUNT": "2", "SLURM_ARRAY_TASK_MIN": "3",
    "SLURM_ARRAY_TASK_MAX": "17", "SLURM_ARRAY_TASK_STEP": "1",
  }  # fmt: skip
  found = []
  for task in ("17", "3", "17"):  # one of them is started again
    monkeypatch.setattr("os.environ", {**gaps, "SLURM_ARRAY_TASK_ID": task})
    found.append(sharing.share_of("auto", tmp_path)[0])
  assert found == [Share(0, 2), Share(1, 2), Share(0, 2)]
  other = {**gaps, "SLURM_ARRAY_JOB_ID": "78", "SLURM_ARRAY_TASK_ID": "3"}
  monkeypatch.setattr("os.environ", other)
  assert sharing.share_of("auto", tmp_path)[0] == Share(0, 2)


def test_a_call_without_a_directory_has_no_shares():
  with pytest.raises(InvalidSetting, match=r"share: .*takes a call with a directory"):
    measured(None, (0, 2))


def test_the_command_says_what_told_it_its_share(monkeypatch, tmp_path, capsys):
  monkeypatch.setenv("JOB_COMPLETION_INDEX", "1")
  with flagsaver.flagsaver():
    flags.FLAGS(["program", "--share=auto/3", f"--output_dir={tmp_path}"])
    made = options.options(types.SimpleNamespace(requested=False))
  assert made.share == Share(1, 3)
  assert "share 1 of 3, as JOB_COMPLETION_INDEX says" in capsys.readouterr().out


# What they come to.


@pytest.mark.parametrize(
  "order", [(0, 1, 2), pytest.param((2, 0, 1), marks=pytest.mark.slow)]
)
def test_three_shares_come_to_what_one_process_does(tmp_path, whole, order):
  counts = []
  for k in order:
    part = measured(tmp_path, (k, 3))
    assert len(part.all_curves) == 3
    assert (tmp_path / "trials.csv").read_text().count("\n") == 1
    found = sepfx.load(tmp_path, classes=[small.Linear])
    counts.append((len(found.all_curves), found.complete, found.missing))
    for name, model in part.models.items():  # also those that stand in shares alone
      jax.tree.map(np.testing.assert_array_equal, found.models[name].params, model.params)
  assert counts == [(3, False, 6), (6, False, 3), (9, False, 0)]
  assert len(measured(tmp_path).all_curves) == 9
  assert content(tmp_path) == whole
  assert not list((tmp_path / "shares").glob("*-of-*"))
  assert sepfx.load(tmp_path, classes=[small.Linear]).complete
  # A share that is started once more has nothing to do.
  measured(tmp_path, (1, 3))
  measured(tmp_path)
  assert content(tmp_path) == whole


@pytest.mark.slow
def test_more_shares_than_trials_and_another_number_afterwards(tmp_path, whole):
  for k in (7, 1, 10):
    measured(tmp_path, (k, 11))
  for k in (2, 0):
    measured(tmp_path, (k, 3))
  found = sepfx.load(tmp_path)
  assert found.missing == 9 - len(found.all_curves) > 0
  measured(tmp_path)
  assert content(tmp_path) == whole


def test_what_is_missing_of_shares_is_run(tmp_path, whole):
  with pytest.raises(RuntimeError, match="stopped"):
    measured(tmp_path, (1, 2), watchers=[Stopping(2)])
  missing, ran = sepfx.load(tmp_path).missing, []
  measured(tmp_path, watchers=[Counting(ran)])
  assert len(ran) == missing < 9
  assert content(tmp_path) == whole


class Counting(sepfx.Watcher):
  def __init__(self, into):
    self._into = into

  def ended(self, result):
    self._into.append(result.name)


@pytest.mark.slow
def test_a_directory_that_one_process_began_goes_on_in_shares(tmp_path, whole):
  measured(tmp_path, lengths=[3], num_trials=2)
  ran = []
  for k in range(2):
    measured(tmp_path, (k, 2), watchers=[Counting(ran)])
  assert len(ran) == 7  # the first of them made the directory say what all will
  measured(tmp_path)
  assert content(tmp_path) == whole


@pytest.mark.slow
def test_a_larger_budget_in_shares(tmp_path):
  larger = sepfx.Online(
    thresholds=(0.9, 0.7), batch_size=8, check_every=1, num_test=50, max_samples=160
  )
  for k in range(2):
    measured(tmp_path / "parts", (k, 2))
  for k in range(2):
    measured(tmp_path / "parts", (k, 2), protocol=larger)
  measured(tmp_path / "parts", protocol=larger)
  measured(tmp_path / "whole", protocol=larger)
  assert content(tmp_path / "parts") == content(tmp_path / "whole")


@pytest.mark.slow
def test_an_axis_that_comes_later(tmp_path):
  """A share that had recorded nothing has a table of fewer columns."""
  rates = {"learning_rate": [1e-2, 1e-3], "num_trials": 3}
  path = tmp_path / "parts"
  for k in (0, 2):
    call(path, share=Share(k, 9), learning_rate=1e-2, num_trials=3)
  for k in (0, 2):
    call(path, share=Share(k, 9), **rates)
  call(path, **rates)
  call(tmp_path / "whole", **rates)
  assert content(path) == content(tmp_path / "whole")


@pytest.mark.slow
def test_probes_that_are_asked_for_later(tmp_path, whole):
  for k in range(2):
    measured(tmp_path, (k, 2), probes=(), keep_weights=False)
  measured(tmp_path, probes=(), keep_weights=False)
  for k in range(2):
    measured(tmp_path, (k, 2))
  measured(tmp_path)
  assert content(tmp_path) == whole


@pytest.mark.slow
@pytest.mark.parametrize(
  ("study", "settings"),
  [
    (
      best_rate.STUDY,
      {
        **STUDY, "lengths": [2, 3, 4], "num_trials": 3, "thresholds": [0.9],
        "uniform_fractions": [], "learning_rates": [1e-3, 1e-2, 1e-1],
      },
    ),
    (
      boolean_sample_complexity.STUDY,
      {
        "models": "ffn:hidden_widths=4", "contexts": [4, 5, 6], "sparsity": 1,
        "num_trials": 4, "sample_sizes": [2, 8, 32], "search": "adaptive",
        "max_steps": 20, "num_test": 50,
      },
    ),
  ],
  ids=["best rate", "adaptive"],
)  # fmt: skip
def test_a_search_in_three_shares(tmp_path, study, settings):
  sepfx.run(study, settings, directory=tmp_path / "one", progress=False)
  words = []
  for k in (1, 2, 0):
    part = sepfx.run(
      study, settings, directory=tmp_path / "parts", share=(k, 3), progress=False
    )
    words.append(part.words)
  assert "are missing, of shares 0, 2 of 3" in words[0]
  assert "none is missing elsewhere" in words[-1]
  ran = []
  sepfx.run(
    study, settings, directory=tmp_path / "parts", watchers=[Counting(ran)],
    progress=False,
  )  # fmt: skip
  assert not ran
  assert content(tmp_path / "parts") == content(tmp_path / "one")


# Together, and what is refused.


@contextlib.contextmanager
def held(path, share):
  """As if a process ran that share."""
  with (
    RunDirectory(path, shared=True) as root,
    RunDirectory(share.directory(path)),
  ):
    root.share()
    yield


def test_a_merge_while_shares_run(tmp_path):
  call(tmp_path / "one")
  path = tmp_path / "run"
  call(path, share=Share(1, 3))
  with held(path, Share(0, 3)):
    part = call(path, merge=True)
    assert part.words == "2 of 6 trials are recorded; share 0 of 3 runs"
    assert len(part.records.all_curves) == 2
    assert (path / "figure.png").exists()
    assert (path / "shares/1-of-3/trials.csv").exists()  # it may be running
    assert call(path, merge=True).words == part.words
  assert call(path, merge=True).words == "2 of 6 trials are recorded"
  assert not (path / "shares/1-of-3/trials.csv").exists()
  for k in (0, 2):
    call(path, share=Share(k, 3))
  finished = call(path, merge=True)
  assert len(finished.records.all_curves) == 6
  assert content(path) == content(tmp_path / "one")


def test_a_call_for_a_part_leaves_what_is_missing_of_the_others(tmp_path, whole):
  measured(tmp_path, (1, 2))
  found = measured(tmp_path, lengths=[2])
  assert found.complete
  assert set(found.table["length"]) == {2}
  loaded = sepfx.load(tmp_path)
  assert (loaded.complete, loaded.missing) == (False, 1)
  assert "summary.json" not in content(tmp_path)
  measured(tmp_path)
  assert content(tmp_path) == whole


def test_more_trials_of_some_cells_are_asked_of_the_run_itself(tmp_path):
  call(tmp_path, num_trials=2)
  call(tmp_path, lengths=[3], num_trials=4)
  call(tmp_path, share=Share(0, 2), num_trials=4)  # of which nothing is missing
  assert sepfx.load(tmp_path).missing == 2
  call(tmp_path, share=Share(1, 2), num_trials=4)
  call(tmp_path, merge=True, num_trials=4)
  (tmp_path / "digests.json").unlink()
  assert len(sepfx.load(tmp_path).all_curves) == 8


def test_what_lives_is_named(tmp_path):
  measured(tmp_path, (1, 3))
  with held(tmp_path, Share(0, 3)):
    with pytest.raises(InvalidSetting, match="live run is using: share 0 of 3 runs ther"):
      measured(tmp_path)
    with pytest.raises(InvalidSetting, match="'0/3', takes a share that no live process"):
      measured(tmp_path, (0, 3))
    with pytest.raises(InvalidSetting, match=r"'0/4', takes as many shares .* 0 of 3"):
      measured(tmp_path, (0, 4))
    with pytest.raises(
      InvalidSetting, match="the num_trials of those before: share 0 of 3"
    ):
      measured(tmp_path, (2, 3), num_trials=4)
    measured(tmp_path, (2, 3))  # one of the same may come
  measured(tmp_path, (0, 4))


def test_a_plain_run_lets_no_share_begin(tmp_path):
  measured(tmp_path, (1, 3))
  with (
    RunDirectory(tmp_path),
    pytest.raises(InvalidSetting, match="a directory that no live run is using"),
  ):
    measured(tmp_path, (0, 3))


def test_a_directory_of_something_else_is_left_alone(tmp_path):
  (tmp_path / "thesis.tex").touch()
  with pytest.raises(InvalidSetting, match=r"this one has thesis\.tex"):
    measured(tmp_path, (0, 3))
  assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_merge_of_nothing(tmp_path):
  with pytest.raises(InvalidSetting, match="the directory of a run: there is none yet"):
    call(tmp_path / "run", merge=True)
  assert not (tmp_path / "run").exists()
  call(tmp_path / "run", share=Share(0, 3))
  with pytest.raises(InvalidSetting, match="--merge runs nothing"):
    call(tmp_path / "run", merge=True, num_trials=10)


def changed(path, old, new):
  text = path.read_text()
  assert old in text
  path.write_text(text.replace(old, new, 1))


def test_a_trial_that_came_to_something_else_is_refused_by_name(tmp_path):
  measured(tmp_path, (0, 1))
  shutil.copytree(tmp_path / "shares/0-of-1", tmp_path / "shares/1-of-2")
  rows = (tmp_path / "shares/1-of-2/trials.csv").read_text().splitlines()
  own = tmp_path / "shares/1-of-2"
  name = "task=qstr/model=Linear/length=2/trial=0"
  curve = next(own.glob("checkpoints/*length=2*trial=0.npy"))
  values = np.load(curve)
  values["loss"] = 0.1
  np.save(curve, values)
  samples = str(values["samples"][0])
  for line in rows:
    if ",2,0,0." in line:
      head = line.split(",0.")[0]
      threshold = line.split(",")[-3]
      changed(own / "trials.csv", line, f"{head},{threshold},{samples},reached")
  with pytest.raises(InvalidSetting, match=f"of {name}, as .* has it, not"):
    measured(tmp_path)
  with pytest.raises(InvalidSetting, match=r"as .* has it, not"):
    sepfx.load(tmp_path)


@pytest.mark.parametrize("what", ["settings", "code"])
def test_shares_of_other_settings_or_code_are_refused(tmp_path, what):
  measured(tmp_path, (0, 2))
  path = tmp_path / "shares/0-of-2/config.json"
  config = json.loads(path.read_text())
  if what == "settings":
    config["settings"]["seed"] = 5
  else:
    wholes = config["code"]["wholes"]
    assert wholes
    config["code"]["wholes"] = {name: ["0:0"] for name in wholes}
  path.write_text(json.dumps(config))
  named = "seed" if what == "settings" else "the code of"
  for share in ((1, 2), None):
    with pytest.raises(InvalidSetting, match=f"share 0 of 2 differs in {named}"):
      measured(tmp_path, share)


def test_what_is_brought_back_belongs_to_one_share(tmp_path):
  """Whatever is brought back by now: another share may have recorded a part of it."""
  chosen = sepfx.studies.settings.from_values(
    sample_complexity.STUDY.settings, {**STUDY, "lengths": [2, 3]}
  )
  whole = StudyCall(sample_complexity.STUDY, chosen).request(None)
  request = whole._replace(own=whole.own[:1])  # a larger budget is for all that is there
  every = [f"{whole.own[1].name}/trial={k}" for k in range(6)]
  for again in (every, every[::2], every[:1]):
    parts = [sharing.again_of(Share(k, 4), request, request, again) for k in range(4)]
    assert sorted(name for part in parts for name in part) == sorted(again)
    for k, part in enumerate(parts):
      assert set(part) <= set(sharing.again_of(Share(k, 4), request, request, every))


@pytest.mark.slow
def test_a_larger_budget_of_a_search_runs_each_trial_once(tmp_path):
  settings = {
    **STUDY, "lengths": [2, 3, 4], "num_trials": 3, "thresholds": [0.9],
    "uniform_fractions": [], "learning_rates": [1e-3, 1e-1],
  }  # fmt: skip
  counts = []
  for path in ("one", "parts"):
    sepfx.run(best_rate.STUDY, settings, directory=tmp_path / path, progress=False)
  for path, asked in (("one", [None]), ("parts", [(0, 2), (1, 2), None])):
    ran = []
    for share in asked:
      sepfx.run(
        best_rate.STUDY, {**settings, "max_samples": 160}, share=share, progress=False,
        directory=tmp_path / path, watchers=[Counting(ran)],
      )  # fmt: skip
    assert len(ran) == len(set(ran))
    counts.append(sorted(ran))
  assert counts[0] == counts[1]
  assert content(tmp_path / "parts") == content(tmp_path / "one")


@pytest.mark.parametrize("cut", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_damaged_share_is_set_aside(tmp_path, whole, cut):
  measured(tmp_path, (0, 2))
  share = tmp_path / "shares/0-of-2"
  file = next(share.glob("checkpoints/*.npy"))
  file.write_bytes(file.read_bytes()[:20]) if cut else file.unlink()
  with pytest.warns(UserWarning, match=r"0-of-2 is damaged: set aside as 0-of-2\.set_as"):
    measured(tmp_path)
  assert content(tmp_path) == whole
  assert (tmp_path / "shares/0-of-2.set_aside.1/trials.csv").exists()


@pytest.mark.parametrize("of", ["share", "run"])
def test_a_config_that_is_gone_is_said_to_be(tmp_path, of):
  measured(tmp_path, (0, 2))
  place = tmp_path / "shares/0-of-2" if of == "share" else tmp_path
  config = (place / "config.json").read_bytes()
  (place / "config.json").unlink()
  for share in ((1, 2), None):
    with pytest.raises(InvalidSetting, match=r"config\.json.*put a copy"):
      measured(tmp_path, share)
  with pytest.raises(InvalidSetting, match=r"config\.json.*put a copy"):
    sepfx.load(tmp_path)
  (place / "config.json").write_bytes(config)
  measured(tmp_path)


PROBE = """
def own(trial, params, world, key):
  return {"own": VALUE}
"""


def test_code_of_probes_that_come_later_is_held(tmp_path, monkeypatch):
  """The directory says of it when the first share asks for them."""
  monkeypatch.syspath_prepend(tmp_path)
  path = tmp_path / "run"
  measured(path, lengths=[2], probes=())
  for share, value in (((0, 2), "1.0"), ((1, 2), "2.0"), (None, "2.0")):
    (tmp_path / "later_probe.py").write_text(PROBE.replace("VALUE", value))
    sys.modules.pop("later_probe", None)
    importlib.invalidate_caches()
    settings = {"lengths": [2], "probes": "later_probe:own"}
    if value == "1.0":
      measured(path, share, **settings)
    else:
      with pytest.raises(InvalidSetting, match="was begun with another"):
        measured(path, share, **settings)


def test_a_share_reads_what_a_merge_changes_before_it_begins(tmp_path, whole):
  """Merges run beside a share at each of its moments; here, when a trial has ended."""
  measured(tmp_path, (0, 2))
  merged = []

  class Merging(sepfx.Watcher):
    def ended(self, result):
      with shares.starting(tmp_path), RunDirectory(tmp_path, shared=True) as root:
        adoption.take_up(root, alone=root.alone)
        merged.append(root.alone)

  measured(tmp_path, (1, 2), watchers=[Merging()])
  assert merged == [False] * len(merged)
  assert merged
  measured(tmp_path)
  assert content(tmp_path) == whole


# Bad luck.


@pytest.mark.slow
def test_a_merge_that_ends_anywhere_loses_nothing(tmp_path, whole, monkeypatch):
  """After each of its changes in turn."""
  for k in range(2):
    measured(tmp_path / "parts", (k, 2))
  write, append, remove = RunDirectory.write, RunDirectory.append, adoption.remove
  number, done = 0, False
  while not done:
    path = tmp_path / f"run{number}"
    shutil.copytree(tmp_path / "parts", path)
    left = number

    def counted(own):
      def change(*arguments):
        nonlocal left
        if not left:
          raise KeyboardInterrupt
        left -= 1
        return own(*arguments)

      return change

    monkeypatch.setattr(RunDirectory, "write", counted(write))
    monkeypatch.setattr(RunDirectory, "append", counted(append))
    monkeypatch.setattr(adoption, "remove", counted(remove))
    try:
      with RunDirectory(path) as directory:
        adoption.take_up(directory, alone=True)
      done = True
    except KeyboardInterrupt:
      pass
    monkeypatch.undo()
    assert len(sepfx.load(path).all_curves) == 9
    if number % 8 == 0 or done:
      measured(path)
      assert content(path) == whole
    shutil.rmtree(path)
    number += 1
  assert number > 9 * 4  # weights, curve, probes and row of each


@pytest.mark.parametrize("cut", [5, -5])
def test_a_merge_that_was_killed_within_a_row(tmp_path, whole, cut):
  """Of a trial with two rows: in the first, and in the second."""
  measured(tmp_path, (0, 1))
  rows = (tmp_path / "shares/0-of-1/trials.csv").read_text().splitlines(keepends=True)
  with open(tmp_path / "trials.csv", "a") as file:
    file.write("".join(rows[1:3])[:cut])
  measured(tmp_path)
  assert content(tmp_path) == whole


@pytest.mark.faults
def test_shares_that_are_killed(tmp_path):
  """Two at a time, killed at ten random moments, retried; then three after eight."""
  cache, settings = tmp_path / "cache", (*GRID, "--num_trials=9", "--keep_weights")
  complete(tmp_path / "one", *settings, cache=cache, devices=1)
  path, draw = tmp_path / "run", random.Random(0)
  waiting, kills = list(range(8)), 0
  draw.shuffle(waiting)
  running_now = {}
  while kills < 10 or running_now:
    while len(running_now) < 2 and kills < 10 and waiting:
      k = waiting.pop(0)
      running_now[k] = start(path, *settings, f"--share={k}/8", cache=cache, devices=1)
    time.sleep(draw.uniform(2, 7))
    for k, process in list(running_now.items()):
      if process.poll() is None and kills < 10:
        process.send_signal(signal.SIGKILL)
        kills += 1
        waiting.append(k)
      code, errors = finish(process)
      assert code in (0, -signal.SIGKILL), errors
      if code == 0:
        waiting.append(k)  # started again it has nothing to do
      del running_now[k]
  for k in (2, 0, 1):
    complete(path, *settings, f"--share={k}/3", cache=cache, devices=1)
  complete(path, *settings, cache=cache, devices=1)
  assert content(path) == content(tmp_path / "one")


@pytest.mark.faults
def test_one_of_two_is_killed_and_the_other_ends(tmp_path):
  cache = tmp_path / "cache"
  complete(tmp_path / "one", *GRID, cache=cache, devices=1)
  path = tmp_path / "run"
  first, second = (
    start(path, *GRID, f"--share={k}/2", cache=cache, devices=1) for k in range(2)
  )
  await_file(path, "shares/1-of-2/config.json", second)
  second.kill()
  finish(second)
  code, errors = finish(first)
  assert code == 0, errors
  complete(path, *GRID, "--share=1/2", cache=cache, devices=1)
  complete(path, *GRID, cache=cache, devices=1)
  assert content(path) == content(tmp_path / "one")


_OF_JAX = """
import sys, jax
jax.distributed.initialize("127.0.0.1:" + sys.argv[1], 2, int(sys.argv[2]))
from tests import test_shares
part = test_shares.measured(sys.argv[3], "auto")
assert len(part.all_curves) in (4, 5), part
"""


@pytest.mark.slow
def test_processes_that_jax_knows_of(tmp_path, whole):
  """Each saves and compiles for itself; a TPU pod's have to be joined so."""
  import socket

  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = str(free.getsockname()[1])
  command = [sys.executable, "-c", _OF_JAX, port]
  processes = [
    subprocess.Popen([*command, str(k), str(tmp_path)], cwd=ROOT) for k in range(2)
  ]
  assert [process.wait(timeout=300) for process in processes] == [0, 0]
  measured(tmp_path)
  assert content(tmp_path) == whole
