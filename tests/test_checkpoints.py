"""Trials in progress on disk: what is saved is what is read, or it is set aside."""

import dataclasses
import errno
import json
import pathlib
import random
import shutil
import subprocess

import chex
import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from sepfx.ensembles import InProgress, Watcher, run
from sepfx.ensembles.cells import Cell
from sepfx.errors import Interrupted
from sepfx.models import Transformer
from sepfx.records import checkpoints as checkpoints_module
from sepfx.records.checkpoints import Checkpoints
from sepfx.records.run_directory import RunDirectory
from tests import small

CELL = Cell(small.TRIAL)


def states_of(value, num_lanes=3):
  """States whose every number is a function of `value` and the lane."""
  lanes = np.arange(num_lanes)
  return jax.tree.map(
    lambda leaf: np.broadcast_to(
      (value + lanes).reshape(-1, *(1 for _ in leaf.shape)), (num_lanes, *leaf.shape)
    ).astype(leaf.dtype),
    small.TRIAL.state_shapes(),
  )


def saved(path, *values, **settings):
  checkpoints = Checkpoints(path, every_seconds=60, **settings)
  for value in values:
    group = InProgress([(CELL.name, 4), None, (CELL.name, 2)], states_of(value))
    checkpoints.save([group])
  return checkpoints


def assert_is(restored, value):
  assert set(restored) == {(CELL.name, 4), (CELL.name, 2)}
  for trial, lane in ((4, 0), (2, 2)):
    want = jax.tree.map(lambda a, lane=lane: a[lane], states_of(value))
    chex.assert_trees_all_equal(restored[CELL.name, trial], want)


def test_states_of_another_place_are_read_however_it_is_written(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  there = pathlib.Path("share/checkpoints")
  saved(there, 1)
  assert_is(Checkpoints(pathlib.Path("run"), 60, others=[there]).restore([CELL]), 1)


def test_what_a_call_leaves_out_is_kept_for_the_next(tmp_path):
  saved(tmp_path / "c", 1).keep_apart(lambda _: True)
  assert not list(tmp_path.glob("c/left_out-*"))
  checkpoints = Checkpoints(tmp_path / "c", 60)
  for _ in range(2):
    checkpoints.keep_apart(lambda trial: trial[1] != 4)
  for value in range(3):
    checkpoints.save([InProgress([(CELL.name, 7)], states_of(value, 1))])
  restored = Checkpoints(tmp_path / "c", 60).restore([CELL])
  own = jax.tree.map(lambda a: a[0], states_of(2, 1))
  chex.assert_trees_all_equal(restored.pop((CELL.name, 7)), own)
  assert_is(restored, 1)
  assert sorted(file.name for file in (tmp_path / "c").glob("lanes-*")) == [
    "lanes-2", "lanes-2.sha256", "lanes-3", "lanes-3.sha256",
  ]  # fmt: skip


def test_the_last_one_saved_is_read(tmp_path):
  assert Checkpoints(tmp_path / "c", 60).restore([CELL]) == {}
  checkpoints = saved(tmp_path / "c", 1, 2, 3)
  assert_is(checkpoints.restore([CELL]), 3)
  assert sorted(file.name for file in (tmp_path / "c").iterdir()) == [
    "lanes-1", "lanes-1.sha256", "lanes-2", "lanes-2.sha256",
  ]  # fmt: skip
  subprocess.run(["sha256sum", "--check", "--quiet", "lanes-2.sha256"],
                 cwd=tmp_path / "c", check=True)  # fmt: skip


def truncate(file, rng):
  content = file.read_bytes()
  file.write_bytes(content[: rng.randrange(len(content))])


def flip(file, rng):
  content = bytearray(file.read_bytes())
  content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
  file.write_bytes(content)


@pytest.mark.parametrize("damage", [truncate, flip])
@pytest.mark.parametrize("seed", range(2))
def test_a_damaged_one_is_set_aside_and_the_one_before_it_read(tmp_path, damage, seed):
  checkpoints = saved(tmp_path, 1, 2)
  rng = random.Random(seed)
  last = tmp_path / "lanes-1"
  files = [
    file for file in sorted(last.rglob("*")) if file.is_file() and file.stat().st_size
  ]
  damage(rng.choice([*files, last.with_suffix(".sha256")]), rng)
  with pytest.warns(UserWarning, match="lanes-1 is damaged: set aside"):
    assert_is(checkpoints.restore([CELL]), 1)
  assert (tmp_path / "lanes-1.set_aside.1").is_dir()
  checkpoints.save([InProgress([(CELL.name, 4), None, (CELL.name, 2)], states_of(5))])
  assert_is(checkpoints.restore([CELL]), 5)


def header_without(key):
  def spoil(path):
    file = path / "header.json"
    header = json.loads(file.read_text())
    del header["lanes"][0][key]
    file.write_text(json.dumps(header))

  return spoil


def header_of(content):
  return lambda path: (path / "header.json").write_bytes(content)


@pytest.mark.parametrize(
  "spoil",
  [
    header_of(b"not JSON"),
    header_of(b"\xff\xfe"),
    header_of(b"{}"),
    header_of(b"5"),
    header_of(b'{"run": "", "lanes": 3}'),
    header_of(b'{"run": "", "lanes": [{"trials": [5], "leaves": []}]}'),
    header_of(b'{"run": "", "lanes": [{"trials": [["m", "0"]], "leaves": []}]}'),
    header_of(b'{"run": "", "lanes": [{"trials": [], "leaves": [[[3], "float33"]]}]}'),
    header_without("trials"),
    header_without("leaves"),
    lambda path: (path / "header.json").unlink(),
  ],
)
def test_a_header_of_another_form_is_damage(tmp_path, spoil):
  checkpoints = saved(tmp_path, 1, 2)
  path = tmp_path / "lanes-1"
  spoil(path)
  # As if it had been written so.
  path.with_suffix(".sha256").write_text(checkpoints_module._digests(path))
  with pytest.warns(UserWarning, match="lanes-1 is damaged: set aside"):
    assert_is(checkpoints.restore([CELL]), 1)


def alone(digests):
  shutil.rmtree(digests.with_suffix(""))
  digests.write_bytes(b"")


def a_directory(digests):
  digests.unlink()
  digests.mkdir()


@pytest.mark.parametrize(
  "spoil",
  [
    lambda digests: digests.write_bytes(b"\xff\x00"),
    lambda digests: digests.write_bytes(b""),
    lambda digests: shutil.rmtree(digests.with_suffix("")),
    alone,
    a_directory,
  ],
)
def test_digests_that_are_none_are_damage(tmp_path, spoil):
  checkpoints = saved(tmp_path, 1, 2)
  spoil(tmp_path / "lanes-1.sha256")
  with pytest.warns(UserWarning, match="lanes-1 is damaged: set aside"):
    assert_is(checkpoints.restore([CELL]), 1)


def test_the_same_number_damaged_twice(tmp_path):
  checkpoints = saved(tmp_path, 1, 2)
  for number in (1, 2):
    (tmp_path / "lanes-1/header.json").write_text("")
    with pytest.warns(UserWarning, match=rf"set aside as lanes-1\.set_aside\.{number}"):
      assert_is(checkpoints.restore([CELL]), 1)
    saved(tmp_path, 5)
  assert_is(checkpoints.restore([CELL]), 5)


def test_one_of_another_run_is_set_aside(tmp_path):
  saved(tmp_path, 1, run="of seed 0")
  seed_1 = Checkpoints(tmp_path, 60, run="of seed 1")
  with pytest.warns(UserWarning, match="lanes-0 is of a run with other settings: set as"):
    assert seed_1.restore([CELL]) == {}
  assert (tmp_path / "lanes-0.set_aside.1").is_dir()
  assert seed_1.restore([CELL]) == {}  # and says so once


def test_one_of_an_earlier_version_is_set_aside(tmp_path):
  checkpoints = saved(tmp_path, 1)
  path = tmp_path / "lanes-0"
  header = json.loads((path / "header.json").read_text())
  (path / "header.json").write_text(json.dumps(header["lanes"]))
  path.with_suffix(".sha256").write_text(checkpoints_module._digests(path))
  with pytest.warns(UserWarning, match="is of an earlier version, .*: set aside"):
    assert checkpoints.restore([CELL]) == {}


def test_trials_that_nobody_asks_for_are_ignored(tmp_path):
  checkpoints = saved(tmp_path, 1)
  other = dataclasses.replace(CELL, axes={"rate": 1})
  assert checkpoints.restore([other]) == {}


@pytest.mark.parametrize("name", ["a[1]", "b*", "c?d", "e f%20#", "g\udcff"])
def test_any_name_of_a_directory_will_do(tmp_path, name):
  checkpoints = saved(tmp_path / name, 1, 2)
  assert_is(checkpoints.restore([CELL]), 2)


def test_one_cut_short_is_not_read(tmp_path):
  checkpoints = saved(tmp_path, 1, 2)
  (tmp_path / "lanes-1.sha256").unlink()
  assert_is(checkpoints.restore([CELL]), 1)
  saved(tmp_path, 3)
  assert_is(checkpoints.restore([CELL]), 3)


def test_one_that_cannot_be_written_leaves_those_before(tmp_path):
  checkpoints = saved(tmp_path / "c", 1)
  (tmp_path / "c" / "lanes-1").write_text("in the way")
  with pytest.raises(OSError, match="lanes-1"):
    checkpoints.save([InProgress([(CELL.name, 4), None, (CELL.name, 2)], states_of(2))])
  assert_is(checkpoints.restore([CELL]), 1)


@pytest.mark.parametrize("begun_anew", [False, True])
def test_a_directory_that_is_moved_while_one_is_written(
  tmp_path, monkeypatch, begun_anew
):
  path, states = tmp_path / "run", states_of(1)
  save = ocp.Checkpointer.save

  def moved_on_the_way(self, *arguments, **settings):
    path.rename(tmp_path / "moved")
    if begun_anew:
      RunDirectory(path).__exit__()
      save(self, *arguments, **settings)
    else:
      raise FileNotFoundError(errno.ENOENT, "No such file or directory", "states")

  with RunDirectory(path) as directory:
    checkpoints = Checkpoints(path / "checkpoints", 60, directory=directory)
    monkeypatch.setattr(ocp.Checkpointer, "save", moved_on_the_way)
    with pytest.raises(OSError, match="run was removed or moved while this run"):
      checkpoints.save([InProgress([(CELL.name, 4), None, (CELL.name, 2)], states)])
  assert Checkpoints(path / "checkpoints", 60).restore([CELL]) == {}


class Steps(Watcher):
  """A watcher that lists the steps that each dispatch took."""

  def __init__(self):
    self.dispatches = []

  def advanced(self, cells, steps):
    self.dispatches.append(int(steps.sum()))


@pytest.fixture(scope="module")
def undisturbed():
  return {result.trial: result for result in attempt(1, 1)}


SHORT = dataclasses.replace(
  CELL,
  trial=dataclasses.replace(
    small.TRIAL, protocol=dataclasses.replace(small.PROTOCOL, max_samples=16 * 5 * 20)
  ),
)


def attempt(lanes, devices, **settings):
  devices = jax.devices()[:devices]
  return run([SHORT], seed=3, num_trials=4, lanes=lanes, devices=devices, **settings)


# Lanes per device and devices, before and after the stop.
@pytest.mark.parametrize(
  ("before", "after"),
  [((1, 2), (2, 1)), ((3, 1), (1, 1))],
)
@pytest.mark.bits
def test_a_stopped_run_goes_on_with_other_lanes_and_devices(
  tmp_path, undisturbed, before, after
):
  first, ended = Steps(), {}
  stopped_run = attempt(
    *before,
    keeper=Checkpoints(tmp_path, 60),
    watchers=[first],
    # It is told of a dispatch while the next one runs: three ran, of 1 + 2 + 4 steps.
    stopping=lambda: len(first.dispatches) == 2,
  )
  with pytest.raises(Interrupted):
    list(stopped_run)
  stopped = Checkpoints(tmp_path, 60).restore([SHORT])
  assert len(stopped) == before[0] * before[1]
  steps = [int(state.step) for state in stopped.values()]
  assert any(step % small.PROTOCOL.check_every for step in steps)  # between two checks
  assert sum(steps) == sum(first.dispatches)

  second = Steps()
  for result in attempt(*after, keeper=Checkpoints(tmp_path, 60), watchers=[second]):
    ended[result.trial] = result
  assert sorted(ended) == [0, 1, 2, 3]
  for k, result in ended.items():
    assert result.rows == undisturbed[k].rows
    # On one device the same bits; a program for two may sum a loss in another order.
    tolerance = 0 if before[1] == after[1] else 1e-6
    np.testing.assert_allclose(
      result.curve["loss"], undisturbed[k].curve["loss"], rtol=tolerance
    )
  # Nothing was trained twice.
  total = sum(len(result.curve) for result in ended.values())
  per_check = small.PROTOCOL.check_every
  assert sum(first.dispatches) + sum(second.dispatches) == total * per_check


def test_one_of_another_shape_is_not_read(tmp_path):
  checkpoints = saved(tmp_path, 1)
  wider = dataclasses.replace(small.TRIAL, model=Transformer(width=24))
  with pytest.warns(
    UserWarning, match="of other versions or another budget, these trials start anew"
  ):
    assert checkpoints.restore([dataclasses.replace(CELL, trial=wider)]) == {}


def test_one_state_of_another_form_costs_its_trial_alone(tmp_path):
  other = dataclasses.replace(small.TRIAL, model_name="other")
  checkpoints = Checkpoints(tmp_path, 60)
  cells = [CELL, Cell(other)]
  groups = [InProgress([(cell.name, 4)], states_of(7, 1)) for cell in cells]
  checkpoints.save(groups)
  wider = dataclasses.replace(other, model=Transformer(width=24))
  with pytest.warns(UserWarning, match="start anew: task=qstr/model=other/.*/trial=4"):
    restored = checkpoints.restore([CELL, Cell(wider)])
  assert set(restored) == {(CELL.name, 4)}
  want = jax.tree.map(lambda a: a[0], states_of(7, 1))
  chex.assert_trees_all_equal(restored[CELL.name, 4], want)
