"""`sepfx.run`: what a command runs, called from Python."""

import json
import subprocess
import sys

import numpy as np
import pytest

import sepfx
from experiments import best_rate, sample_complexity
from experiments.boolean import boolean_sample_complexity
from sepfx import InvalidSetting
from tests.programs import ROOT

SMALL = {
  "models": "tests.small:Linear", "lengths": [2, 3], "num_trials": 2, "token_dim": 2,
  "batch_size": 8, "num_test": 50, "check_every": 1, "max_samples": 80,
}  # fmt: skip


def test_settings_of_python_are_those_of_flags():
  study = sample_complexity.STUDY
  values = {
    "models": ("ffn", "gru:units=3"), "lengths": np.array([4, 8]), "thresholds": [0.7],
    "learning_rate": 1e-3, "code_dim": None, "encoding_prefactor": True, "noise": [1, 2],
  }  # fmt: skip
  arguments = (
    "--models=ffn,gru:units=3", "--lengths=4,8", "--thresholds=0.7",
    "--learning_rate=0.001", "--code_dim=none", "--encoding_prefactor", "--noise=1,2",
  )  # fmt: skip
  assert sepfx.studies.settings.from_values(study.settings, values) == study.chosen(
    arguments
  )


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    ({"lengths": []}, "lengths: got '', takes at least one value"),
    ({"lengths": "four"}, "lengths: got 'four'"),
    ({"num_trials": [1, 2]}, "num_trials: got '1,2', takes one value"),
    ({"length": 3}, "length: got '3', takes nothing: its flag is --lengths"),
    ({"nothing": 3}, "nothing: got"),
  ],
)
def test_bad_settings_are_refused(tmp_path, settings, message):
  with pytest.raises(InvalidSetting, match=message):
    sepfx.run(sample_complexity.STUDY, {**SMALL, **settings}, directory=tmp_path / "run")
  assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    ((sample_complexity, {}), "study: got .*, takes a study"),
    ((sample_complexity.STUDY, [1]), "settings: got .*, takes values by the names"),
  ],
)
def test_what_is_no_study_or_no_settings_is_refused(tmp_path, arguments, message):
  with pytest.raises(InvalidSetting, match=message):
    sepfx.run(*arguments, directory=tmp_path)


@pytest.mark.slow
def test_it_leaves_what_the_command_leaves_and_goes_on_with_it(tmp_path):
  arguments = [
    f"--{name}={','.join(map(str, value)) if isinstance(value, list) else value}"
    for name, value in SMALL.items()
  ]
  command = [sys.executable, "-m", "experiments.sample_complexity", *arguments, "--quiet"]
  subprocess.run([*command, f"--output_dir={tmp_path / 'command'}"], cwd=ROOT, check=True)
  found = sepfx.run(
    sample_complexity.STUDY, SMALL, directory=tmp_path / "call", progress=False
  )
  for name in ("trials.csv", "summary.json"):
    left = [(tmp_path / way / name).read_bytes() for way in ("command", "call")]
    assert left[0] == left[1], name
  assert found.summary == json.loads((tmp_path / "call/summary.json").read_text())
  assert set(found.cells) == {found.records.cell_of(row) for row in found.records.table}
  # A call that leaves out what is there keeps it.
  more = sepfx.run(
    sample_complexity.STUDY, {**SMALL, "lengths": 4},
    directory=tmp_path / "command", progress=False,
  )  # fmt: skip
  assert set(more.records.table["length"]) == {2, 3, 4}


@pytest.mark.slow
def test_a_search_and_the_choice_of_a_rate(tmp_path):
  found = sepfx.run(
    best_rate.STUDY,
    {**SMALL, "lengths": 2, "learning_rates": [1e-3, 3e-2], "num_trials": 3},
    directory=tmp_path / "best", progress=False,
  )  # fmt: skip
  assert {entry["learning_rate"] for entry in found.summary["best"]} <= {1e-3, 3e-2, None}
  assert (tmp_path / "best/figure.png").exists()
  found = sepfx.run(
    boolean_sample_complexity.STUDY,
    {
      "models": "ffn:hidden_widths=4", "contexts": 4, "sparsity": 1, "num_trials": 4,
      "sample_sizes": [2, 8, 32], "search": "adaptive", "max_steps": 20, "num_test": 50,
    },
    directory=tmp_path / "search", progress=False,
  )  # fmt: skip
  assert len(found.records.table) == 4
