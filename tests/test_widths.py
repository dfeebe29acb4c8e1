"""How many lanes a device has: by the table, by the rule, and as a directory noted it."""

import dataclasses
import json
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver

from experiments.sample_complexity import STUDY
from sepfx import InvalidSetting, measure
from sepfx.commands import options, program
from sepfx.ensembles import (
  Cell,
  Watcher,
  compiling,
  programs,
  rehearsal,
  rehearse,
  run,
  trial_name,
  widths,
)
from sepfx.ensembles.operations import loss_operations, operations_of
from sepfx.records import beginning
from sepfx.records.run_directory import RunDirectory
from sepfx.studies import missing
from tests import small

KIND = "cpu:cpu"
FFN = dataclasses.replace(small.TRIAL, model=small.ffn(), model_name="ffn")
LINEAR = small.with_protocol(
  dataclasses.replace(small.TRIAL, model=small.Linear(), model_name="linear"),
  max_samples=16 * 5 * 3,
)


@pytest.fixture
def batched(monkeypatch):
  """Lanes are batched, as on an accelerator; the rule says eight of them."""
  monkeypatch.setattr(compiling, "_are_mapped", lambda devices: False)
  monkeypatch.setattr(widths, "by_rule", lambda operations: 8)


class Accelerator:
  """A device with a thousand bytes."""

  platform, device_kind, process_index = "gpu", "One", 0

  def memory_stats(self):
    return {"bytes_limit": 1000}


class Heard(Watcher):
  """Notes how wide programs are."""

  def __init__(self):
    self.lanes = []

  def batched(self, cells, kind, lanes):
    self.lanes.append(([cell.coordinates["model"] for cell in cells], kind, lanes))


def test_the_operations_of_a_loss_are_counted():
  """Two dense layers on 16 prompts."""
  length, dim = small.TASK.length, small.TASK.input_dim
  assert loss_operations(FFN) == 2 * 16 * (length * dim * 20 + 20 * length)


def test_scans_count_with_their_length_and_conditionals_with_their_larger_branch():
  def program(a, b):
    a = jax.lax.scan(lambda own, _: (own @ b, None), a, None, length=5)[0]
    a = jax.lax.cond(a[0, 0] > 0, lambda: a @ b @ b, lambda: a @ b)
    return jax.jit(lambda own: own @ b)(a)

  jaxpr = jax.make_jaxpr(program)(jnp.ones((2, 3)), jnp.ones((3, 3))).jaxpr
  assert operations_of(jaxpr) == (5 + 2 + 1) * 2 * 2 * 3 * 3


def test_convolutions_count():
  """Four outputs in each of five places, each of three places of two inputs."""

  def program(a, b):
    return jax.lax.conv_general_dilated(a, b, (1,), "SAME")

  jaxpr = jax.make_jaxpr(program)(jnp.ones((7, 2, 5)), jnp.ones((4, 2, 3))).jaxpr
  assert operations_of(jaxpr) == 2 * 7 * 5 * 4 * 3 * 2


def test_the_rule_fills_a_device_within_bounds():
  found = [widths.by_rule(2**k) for k in range(45)]
  assert found[0] == widths.MOST
  assert found[-1] == widths.LEAST
  assert found == sorted(found, reverse=True)
  assert set(found) == {32, 64, 128, 256, 512, 1024}
  assert widths.by_rule(0) == widths.MOST  # nothing but sums
  # The Transformer at N = 12. On an H200 it was faster with 256 than with 64 and fewer.
  assert widths.by_rule(9_000_000) == 256


def test_the_table_comes_before_the_rule(monkeypatch, tmp_path):
  own = {"operations": loss_operations(FFN), "parameters": FFN.num_parameters}
  rows = [{**own, "parameters": 1, "lanes": 2}, {**own, "what": "ffn", "lanes": 48}]
  monkeypatch.setattr(widths, "TABLE", tmp_path / "widths.json")
  widths.TABLE.write_text(json.dumps({"gpu:One": rows, "gpu:Other": rows[:1]}))
  rule = widths.by_rule(own["operations"])
  assert rule not in (2, 48)
  assert widths.width(FFN, "gpu:One") == 48
  assert widths.width(FFN, "gpu:Other") == widths.width(FFN, "gpu:New") == rule
  assert widths.width(LINEAR, "gpu:One") == widths.by_rule(loss_operations(LINEAR))


def test_the_width_is_of_the_structure_alone():
  rates = [dataclasses.replace(small.PROTOCOL, l2=own) for own in (0.0, 0.5)]
  one, other = (dataclasses.replace(FFN, protocol=own) for own in rates)
  assert jax.tree.structure(one) == jax.tree.structure(other)
  assert widths.width(one, KIND) == widths.width(other, KIND)


def test_the_projects_own_table_can_be_read():
  for kind, rows in json.loads(widths.TABLE.read_text()).items():
    assert kind.startswith(("gpu:", "tpu:"))
    for row in rows:
      assert set(row) == {"what", "operations", "parameters", "lanes"}
      assert 1 <= row["lanes"] <= compiling.MAX_LANES


@pytest.mark.parametrize(
  "trial", [LINEAR, pytest.param(small.TRIAL, marks=pytest.mark.slow)], ids=["l", "t"]
)
def test_the_first_trials_are_those_of_a_run_with_more(batched, trial):
  """Of five trials three lanes are idle; of fifty some are refilled ten times."""
  heard, found = Heard(), []
  for num_trials in (5, 50):
    found.append(
      {
        result.trial: result
        for result in run(
          [Cell(trial)],
          seed=3,
          num_trials=num_trials,
          watchers=[heard],
          devices=jax.devices()[:1],
        )
      }
    )
  assert heard.lanes == [([trial.model_name], KIND, 8)] * 2
  few, many = found
  assert (sorted(few), sorted(many)) == (list(range(5)), list(range(50)))
  for k in range(5):
    assert few[k].rows == many[k].rows
    np.testing.assert_array_equal(few[k].curve, many[k].curve)


def measured(directory, **settings):
  """A small run, and what its config.json says of lanes."""
  own = {"lengths": 2, "num_trials": 2, "progress": False, **settings}
  protocol = dataclasses.replace(small.PROTOCOL, max_samples=16 * 5, num_test=100)
  records = measure(
    small.TASK, [small.Linear()], protocol=protocol, directory=directory, **own
  )
  return records, json.loads((directory / "config.json").read_text()).get("lanes")


def test_what_is_noted_stays(tmp_path):
  with RunDirectory(tmp_path) as directory:
    directory.begin({}, {"model": "str"})
    directory.note_lanes("gpu:One", ["a", "b"], 64)
    directory.note_lanes("gpu:Other", ["a"], 16)
  with RunDirectory(tmp_path) as directory:
    directory.rename_cells({"a": "c"})
    with pytest.warns(UserWarning, match="of kind"):  # of devices, too
      directory.begin({}, {"model": "str"}, devices=[Accelerator()])
    directory.note_lanes("gpu:One", ["c"], 64)
    words = r"begun with 64 lanes per device of kind gpu:One \(now 32\): its trials round"
    with pytest.warns(UserWarning, match=words):
      directory.note_lanes("gpu:One", ["b", "d"], 32)
  with RunDirectory(tmp_path) as directory:
    assert directory.lanes("gpu:One") == {"b": 32, "c": 64, "d": 32}
    assert directory.lanes("gpu:Other") == {"c": 16}
    assert directory.lanes("gpu:New") == {}
    assert directory.stored["lanes"]["gpu:One"]["b"] == [64, 32]


def test_what_trials_ran_with_is_chosen_again(monkeypatch):
  """Unless lanes are asked for; what is chosen has to fit three tenths of the memory."""
  made = []

  class Program:
    def __init__(self, trial, devices, lanes_per_device, *, mapped):
      made.append(lanes_per_device)
      self.lanes_per_device = lanes_per_device
      self.bytes_per_device = 10 * lanes_per_device

  monkeypatch.setattr(compiling, "Lanes", Program)
  monkeypatch.setattr(widths, "by_rule", lambda operations: 256)
  cells = [Cell(LINEAR), Cell(small.with_protocol(LINEAR, l2=0.5), {"l2": 0.5})]
  jobs = programs.jobs_of(cells, 0, 1, ())
  before = programs.by_structure(cells, jobs, {cells[1].name: 128, "gone": 3})
  devices = [Accelerator()]
  assert compiling.Compiler(devices, 0)(cells[0]).lanes_per_device == 16
  assert made == [256, 16]
  made.clear()
  assert jax.tree.structure(cells[0].trial) not in before  # None is no leaf
  for lanes, cell, expected in (
    (0, cells[1], 128),
    (0, cells[0], 16),
    (64, cells[1], 64),
  ):
    compiler = compiling.Compiler(devices, lanes, before=before)
    assert compiler(cell).lanes_per_device == expected
  compiler = compiling.Compiler(devices, 0, before=before)
  with pytest.warns(UserWarning, match="going on with 32"):
    compiler.narrow(64, MemoryError(), cells)
  assert compiler(cells[1]).lanes_per_device == 32


def test_of_cells_that_share_a_program_the_first_decides():
  """Of those that have trials to run, if there is one; a new cell takes the others'."""
  rates = [small.with_protocol(LINEAR, l2=own) for own in (0.1, 0.2, 0.3)]
  cells = [Cell(own, {"l2": own.protocol.l2}) for own in rates]
  noted = {cell.name: width for cell, width in zip(cells, (2, 4, 8), strict=True)}
  structure = jax.tree.structure(LINEAR), jax.tree.structure(rates[0])
  jobs = programs.jobs_of(cells, 0, 1, {trial_name(cells[0], 0)})
  assert programs.by_structure(cells, jobs, noted) == {structure[1]: 4}
  assert programs.by_structure(cells, jobs, None) == {}
  noted = {cells[0].name: 2}
  assert programs.by_structure(cells, jobs, noted) == {structure[1]: 2}


class Seen(Exception):
  """Ends a call where its trials would run."""


def seen(**settings):
  raise Seen(settings["widths"])


def noted(directory, cell, axis=""):
  """Writes down that the cell's trials ran with eight lanes."""
  with RunDirectory(directory) as opened:
    opened.note_lanes(KIND, [cell + axis], 8)
  return {cell + axis: 8}


def test_a_call_hands_over_what_its_directory_notes(tmp_path, monkeypatch):
  monkeypatch.setattr(missing, "run_trials", lambda cells, **settings: seen(**settings))
  with pytest.raises(Seen):
    measured(tmp_path)
  expected = noted(tmp_path, "task=qstr/model=Linear/length=2")
  with pytest.raises(Seen) as error:
    measured(tmp_path)
  assert error.value.args == (expected,)


def test_a_study_hands_over_what_its_directory_notes(tmp_path, monkeypatch):
  """Under the names of today, where an axis is new."""
  monkeypatch.setattr(missing, "run_trials", lambda cells, **settings: seen(**settings))
  monkeypatch.setattr(options.signal, "signal", lambda *_: None)

  def run_study(rates):
    with flagsaver.flagsaver():
      flags.FLAGS(["study", "--quiet", f"--output_dir={tmp_path}"])
      arguments = ("--models=tests.small:Linear", "--lengths=2", rates)
      program.run(STUDY, STUDY.chosen(arguments))

  with pytest.raises(Seen):
    run_study("--learning_rate=0.01")
  cell = "task=qstr/model=tests.small:Linear/length=2"
  expected = noted(tmp_path, cell)
  with pytest.raises(Seen) as error:
    run_study("--learning_rate=0.01")
  assert error.value.args == (expected,)
  with pytest.raises(Seen) as error:
    run_study("--learning_rate=0.01,0.02")
  assert error.value.args == ({f"{cell}/learning_rate=0.01": 8},)


def test_records_are_told_how_wide_a_program_is(tmp_path):
  cell = Cell(LINEAR)
  with RunDirectory(tmp_path) as directory:
    files = beginning.begun(directory, {}, [cell])
    files.batched([cell], KIND, 8)
    assert files.widths() == {cell.name: 8}
  assert RunDirectory(tmp_path).lanes(KIND) == {cell.name: 8}


@pytest.mark.slow
def test_a_directory_notes_how_wide_its_programs_are(batched, monkeypatch, tmp_path):
  cell = "task=qstr/model=Linear/length=2"
  assert measured(tmp_path)[1] == {KIND: {cell: [8]}}
  monkeypatch.setattr(widths, "by_rule", lambda operations: 16)  # of a later version
  heard = Heard()
  with warnings.catch_warnings():
    warnings.simplefilter("error")
    noted = measured(tmp_path, num_trials=3, lengths=[2, 3], watchers=[heard])[1]
  assert [lanes for _, _, lanes in heard.lanes] == [8, 16]
  other = cell.replace("length=2", "length=3")
  assert noted == {KIND: {cell: [8], other: [16]}}


@pytest.mark.slow
def test_another_width_is_told_and_noted(batched, tmp_path):
  measured(tmp_path)
  words = r"was begun with 8 lanes per device of kind cpu:cpu \(now 4\)"
  with pytest.warns(UserWarning, match=words):
    noted = measured(tmp_path, num_trials=3, lanes=4)[1]
  assert list(noted[KIND].values()) == [[8, 4]]


@pytest.mark.slow
def test_on_cpus_the_width_changes_nothing_and_is_not_noted(tmp_path):
  assert measured(tmp_path, lanes=3)[1] is None


@pytest.mark.slow
def test_what_was_noted_has_the_names_of_today(batched, monkeypatch, tmp_path):
  """Of an axis that was added, to whose first value all belonged that was there."""
  monkeypatch.setattr(options.signal, "signal", lambda *_: None)

  def run_study(*arguments):
    arguments = [
      "--models=tests.small:Linear", "--lengths=2", "--num_trials=2", "--token_dim=2",
      "--num_test=100", "--max_samples=1280", *arguments,
    ]  # fmt: skip
    with flagsaver.flagsaver():
      flags.FLAGS(["study", "--quiet", f"--output_dir={tmp_path}"])
      program.run(STUDY, STUDY.chosen(arguments))
    return json.loads((tmp_path / "config.json").read_text())["lanes"][KIND]

  (before,) = run_study("--learning_rate=0.01")
  monkeypatch.setattr(widths, "by_rule", lambda operations: 16)
  assert run_study("--learning_rate=0.01,0.02") == {
    f"{before}/learning_rate=0.01": [8],
    f"{before}/learning_rate=0.02": [8],  # a program of both
  }


@pytest.mark.slow
def test_a_rehearsal_has_the_width_of_the_run(batched, monkeypatch):
  """That which a directory notes, or is asked for, or follows from the rule."""
  monkeypatch.setattr(rehearsal, "_TIMED_SECONDS", 0.0)
  own = {"seed": 0, "num_trials": 20, "devices": jax.devices()[:1]}
  cell = Cell(LINEAR)
  known = {cell.name: 2}
  for lanes, noted, expected in ((0, None, 8), (0, known, 2), (4, known, 4)):
    (found,) = rehearse([cell], lanes=lanes, widths=noted, **own)
    assert found.lanes == expected


@pytest.mark.parametrize(
  "noted", [[8], {KIND: [8]}, {KIND: {"cell": 8}}, {KIND: {"cell": []}}]
)
def test_a_config_of_another_form_is_refused(noted, tmp_path):
  config = {"settings": {}, "starts": [], "columns": {}, "lanes": noted}
  (tmp_path / "config.json").write_text(json.dumps(config))
  with pytest.raises(InvalidSetting, match="lanes: of another form"):
    RunDirectory(tmp_path)
