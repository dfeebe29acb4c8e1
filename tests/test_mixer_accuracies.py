"""Accuracies of mixers after passes over a fixed sample."""

import json
import re

import jax
import numpy as np
import pytest

import sepfx
from experiments.suite import mixer_accuracies
from experiments.suite.mixer_accuracies import STUDY
from sepfx import probes
from sepfx.ensembles import Records, table, trial_name
from sepfx.errors import InvalidSetting
from sepfx.studies.study import Run
from tests.programs import ROOT, check_preset_says_what_it_is

SMALL = ("--tasks=dyck", "--models=delta", "--learning_rates=1e-3")


def cells_of(*arguments):
  return STUDY.cells(STUDY.chosen(arguments))


def test_passes_are_counted_in_steps_and_the_cosine_ends_with_them():
  (cell,) = cells_of(*SMALL, "--sample_size=100", "--batch_size=32", "--epochs=7")
  protocol = cell.trial.protocol
  assert (protocol.max_steps, protocol.check_every, protocol.num_checks) == (21, 3, 7)
  assert protocol.optimizer.decay_steps == 21
  assert protocol.optimizer.learning_rate == 1e-3


@pytest.mark.parametrize(
  ("argument", "what"),
  [
    ("--batch_size=101", "batch_size.*100"),
    ("--epochs=0", "epochs"),
    ("--stop_error=0", "stop_error"),
    ("--tasks=sorting", "tasks.*mqar"),
    ("--models=attentive", "models.*attention"),
  ],
)
def test_bad_settings_are_refused(argument, what):
  with pytest.raises(InvalidSetting, match=what):
    cells_of(*SMALL, "--sample_size=100", "--batch_size=10", argument)


def test_the_best_rate_is_that_of_the_most_accurate_last_checks():
  cells = cells_of(
    "--tasks=dyck", "--models=delta,attention", "--learning_rates=1e-4,1e-3,1e-2"
  )
  # Test errors at two checks, of two trials at each rate.
  errors = {
    ("delta", 1e-4): [(0.0, 0.5), (0.0, 0.7)],  # right before, which does not count
    ("delta", 1e-3): [(0.9, 0.2), (0.9, 0.4)],
    ("delta", 1e-2): [(0.9, 0.0), (0.9, 0.0, "diverged")],  # none is right
    ("attention", 1e-4): [(0.5, 0.9), (0.5, 0.9)],
    ("attention", 1e-3): [(0.5, 0.8), (0.5, 0.8)],
    ("attention", 1e-2): [(0.5, 0.1), (0.5, 0.3)],
  }
  rows, curves = [], {}
  for cell in cells:
    own = cell.coordinates["model"], cell.coordinates["learning_rate"]
    for k, (*values, outcome) in enumerate(
      (*each, "censored")[:3] for each in errors[own]
    ):
      rows.append((*cell.coordinates.values(), k, 0.0, 2, outcome))
      curves[trial_name(cell, k)] = np.array(
        [(value,) for value in values], [("test_error", float)]
      )
  kinds = {name: type(value) for name, value in cells[0].coordinates.items()}
  kinds |= {"trial": int, "accuracy": float, "steps": int, "outcome": str}
  records = Records(table(rows, kinds), tuple(cells[0].coordinates), curves)
  run = Run(records, {cell.name: cell for cell in cells}, None, "length")
  delta, attention = STUDY.summarise(run)["matrix"]
  assert (delta["model"], delta["rate"], delta["edge"]) == ("delta", 1e-3, False)
  assert delta["accuracy"] == pytest.approx(0.7)
  assert delta["rates"] == pytest.approx({1e-4: 0.4, 1e-3: 0.7, 1e-2: 0.5})
  assert delta["low"] <= 0.7 <= delta["high"] <= 1
  assert (attention["rate"], attention["edge"]) == (1e-2, True)
  figure = mixer_accuracies.draw({"matrix": [delta, attention]})
  assert {text.get_text() for text in figure.axes[0].texts} == {"0.700", "0.800"}
  found, says = mixer_accuracies.table({"matrix": [delta, attention]})
  assert len(found.rows) == 2
  assert "last check" in says


@pytest.mark.parametrize(
  "name",
  [
    "mixer_accuracies_quick",
    "zoology_figure_2",
    "zoology_mixed",
    pytest.param("mad", marks=pytest.mark.slow),
  ],
)
def test_presets_say_what_they_are_and_make_trials(name):
  path = ROOT / f"experiments/flags/{name}.cfg"
  check_preset_says_what_it_is(path)
  # Cells of a task differ in model and rate alone.
  each_task = {cell.trial.task: cell for cell in cells_of(f"--flagfile={path}")}
  for cell in each_task.values():
    trial = cell.trial
    seeds = jax.tree.map(lambda keys: keys[0], cell.seeds(0, 1))
    world = jax.eval_shape(trial.world, seeds)
    assert world.sample.tokens.shape == (trial.protocol.sample_size, trial.task.length)


@pytest.mark.slow
def test_probes_of_a_preset_are_of_its_tasks():
  path = ROOT / "experiments/flags/zoology_mixed.cfg"
  (text,) = re.findall("^--probes=(.*)$", path.read_text(), re.MULTILINE)
  cells = cells_of(f"--flagfile={path}")
  by_model = {cell.coordinates["model"]: cell.trial for cell in cells}
  probe = probes.combined(text.split(","), [*by_model.values()])
  for trial in by_model.values():
    assert len(probes.value_names(probe, trial)) == 6


@pytest.mark.slow
def test_a_run_leaves_accuracies_of_its_last_checks(tmp_path):
  settings = {
    "tasks": "memorisation:length=8:vocabulary=9",
    "models": ["attention", "min_gru"],
    "learning_rates": [1e-3, 1e-2],
    "sample_size": 64,
    "batch_size": 16,
    "epochs": 20,
    "width": 16,
    "stop_error": 0.001,
    "num_trials": 2,
  }
  finished = sepfx.run(STUDY, settings, directory=tmp_path, progress=False)
  summary = json.loads((tmp_path / "summary.json").read_text())
  for cell in summary["matrix"]:
    curves = finished.records.curves(model=cell["model"], learning_rate=cell["rate"])
    right = np.mean([1 - curve["test_error"][-1] for curve in curves])
    assert cell["accuracy"] == pytest.approx(right, abs=1e-6)
    assert cell["accuracy"] > 0.9  # one value for each key in all sequences
  assert (tmp_path / "figure.png").stat().st_size > 0
