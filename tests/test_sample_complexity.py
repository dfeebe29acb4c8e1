"""Settings and axes of the study: presets, what is stored, what stands beside what."""

import io
import json
import pathlib
import re

import jax
import numpy as np
import pytest
import rich.console
from absl import flags
from absl.testing import flagsaver

from experiments import published
from experiments.sample_complexity import STUDY
from sepfx import InvalidSetting
from sepfx.ensembles import Records, columns, table
from sepfx.studies import beside, study, tables
from sepfx.studies.beside import Part
from sepfx.studies.merging import differing_axes
from sepfx.studies.settings import define, from_stored
from tests.programs import check_preset_says_what_it_is

ROOT = pathlib.Path(__file__).parent.parent
FLAGS = ROOT / "experiments/flags"
OTHERS = ("quickstart.cfg", "lengths.cfg", "lipschitz.cfg")
PRESETS = [*sorted(FLAGS.glob("fig*.cfg")), *(FLAGS / name for name in OTHERS)]


def cells_of(*arguments):
  return STUDY.cells(STUDY.chosen(arguments))


@pytest.fixture(autouse=True)
def _fresh_flags():
  with flagsaver.flagsaver():
    yield


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


def test_preset_of_transitions_that_are_lipschitz():
  cells = cells_of(f"--flagfile={FLAGS / 'lipschitz.cfg'}")
  alphas = [cell.trial.model.lipschitz for cell in cells]
  assert alphas == [0, 1 / 16, 1, None]
  assert {cell.trial.task.length for cell in cells} == {16}


def test_fractions_become_thresholds_of_their_length():
  cells = cells_of("--models=ffn", "--lengths=2,4", "--uniform_fractions=0.5,0.8")
  thresholds = [cell.trial.protocol.thresholds for cell in cells]
  assert thresholds == [(0.7, 0.8 * 0.5, 0.5 * 0.5), (0.7, 0.8 * 0.75, 0.5 * 0.75)]


@pytest.mark.parametrize("heads", ["2", "1,2"])
def test_fields_of_models_are_read_again(heads):
  """`num_heads` was a setting of the first layout, in which it is not read."""
  chosen = STUDY.chosen(["--models=transformer", f"--num_heads={heads}"])
  stored = json.loads(json.dumps(chosen.stored()))
  again = from_stored(STUDY.settings, stored)
  assert (
    again.further == chosen.further == {"num_heads": tuple(map(int, heads.split(",")))}
  )
  del stored["optimizer"]
  assert from_stored(STUDY.settings, stored).further == {}


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
  assert axes == [("8", "mean"), ("8", "linear"), ("None", "mean"), ("None", "linear")]
  assert [cell.trial.task.code_dim for cell in cells] == [8, 8, None, None]


def test_units_of_a_teacher_are_an_axis():
  own = ("--link=relu_teacher", "--link_width=2,16", "--thresholds=0.01")
  cells = cells_of("--models=tests.small:Linear", "--lengths=4", *own)
  assert [cell.coordinates["link_width"] for cell in cells] == [2, 16]
  assert [cell.trial.task.link.width for cell in cells] == [2, 16]
  assert all(cell.trial.test_task.link == cell.trial.task.link for cell in cells)


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


def test_a_further_field_of_a_file_is_overridden_on_the_line(tmp_path):
  file = tmp_path / "own.cfg"
  file.write_text("--models=transformer\n--width=20,30\n")
  for given, width in (("30", (30,)), ("20,30", (20, 30)), ("40", (40,))):
    chosen = STUDY.chosen([f"--flagfile={file}", f"--width={given}"])
    assert chosen.further == {"width": width}


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
    ((), r"beside: got 'width', .* these differ in width \(a further field that all"),
    (("--width=20", "--seed=1"), r"in seed \(there 1, here 0\)"),
    (("--width=20", "--thresholds=0.5"), "in thresholds "),
    (
      ("--width=20", "--thresholds=0.5", "--seed=1"),
      r"^beside: got 'seed, thresholds', .* in seed \(there 1, here 0\), thresholds ",
    ),
  ):
    with pytest.raises(InvalidSetting, match=message):
      differing(*arguments)


def test_tables_stand_along_the_axis_of_the_figure():
  level = {"threshold": 0.7, "fraction": None}
  cell = {
    "series": "gru", "model": "gru", "low": 90, "high": 110, "restricted": False,
    "reached": 2, "trials": 2, "coarse": False, "at_most": False, "slow": 0,
  }  # fmt: skip
  fitted = {"series": "gru", "c": -0.5, "low": -0.6, "high": -0.4, "coarse": True}
  fitted["over"] = [1e-3, 3e-3, 1e-2]
  summary = {
    "against": "learning_rate",
    "error": "mean squared error",
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


def test_help_says_the_defaults_of_flags_that_are_on_or_off():
  values = flags.FlagValues()
  define(STUDY.settings, values)
  assert values["encoding_prefactor"].default_as_str == "'False'"
  assert values["screen"].default_as_str == "'True'"
