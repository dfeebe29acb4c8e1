"""Mixers by tasks: the suite."""

import json

import flax.linen as nn
import numpy as np
import pytest

import sepfx
from experiments.suite import matrix
from experiments.suite.study import STUDY, TASKS
from sepfx.ensembles import Records, table
from sepfx.errors import InvalidSetting
from sepfx.models.mixers import MIXERS
from tests.programs import ROOT, check_preset_says_what_it_is


class Leaks(nn.Module):
  """Each token with the next one added."""

  width: int

  def __call__(self, rows):
    return rows.at[:, :-1].add(rows[:, 1:])


class Sums(nn.Module):
  """Sums of all tokens so far."""

  width: int

  @nn.compact
  def __call__(self, rows):
    return nn.Dense(self.width)(rows.cumsum(axis=1))


def cells_of(*arguments):
  return STUDY.cells(STUDY.chosen(arguments))


def test_all_tasks_and_mixers_make_trials():
  cells = cells_of(
    f"--tasks={','.join(TASKS)}", "--models=attention,delta", "--learning_rates=1e-3"
  )
  assert len(cells) == 2 * len(TASKS)
  for cell in cells:
    assert cell.trial.task.vocabulary == cell.trial.model.vocabulary
  names = ",".join(MIXERS)
  assert len(cells_of("--tasks=parity", f"--models={names}")) == 3 * len(MIXERS)


def test_fields_of_tasks_mixers_and_the_backbone_are_settings():
  (cell,) = cells_of(
    "--tasks=mqar:num_pairs=2:length=16", "--models=attention:num_heads=4",
    "--learning_rates=1e-3", "--num_layers=3", "--width=32", "--positions=none",
  )  # fmt: skip
  assert (cell.trial.task.num_pairs, cell.trial.task.length) == (2, 16)
  model = cell.trial.model
  assert (model.num_layers, model.width, model.positions) == (3, 32, "none")


def test_a_mixer_of_ones_own_is_taken_and_one_that_leaks_is_refused_by_name():
  rates = "--learning_rates=1e-3"
  (cell,) = cells_of("--tasks=parity", f"--models={__name__}:Sums", rates)
  assert cell.coordinates["model"] == f"{__name__}:Sums"
  with pytest.raises(InvalidSetting, match=f"{__name__}:Leaks.*output 0.*input 1"):
    cells_of("--tasks=parity", f"--models={__name__}:Leaks", rates)


@pytest.mark.parametrize(
  ("argument", "what"),
  [
    ("--tasks=sorting", "tasks.*mqar"),
    ("--tasks=mqar:pairs=2", "tasks.*num_pairs"),
    ("--tasks=mqar,mqar:num_pairs=2", "tasks.*different names"),
    ("--models=attentive", "models.*attention"),
    ("--models=delta:heads=2", "models.*num_heads"),
    ("--norm=lyer", "norm"),
  ],
)
def test_bad_settings_are_refused(argument, what):
  with pytest.raises(InvalidSetting, match=what):
    cells_of("--tasks=parity", "--models=delta", argument)


def found(n_of):
  """A summary and records of mixers on tasks."""
  best, rows = [], []
  for (task, model), (n, restricted, edge) in n_of.items():
    own = {"mean": n, "low": n / 2, "high": 2 * n, "learning_rate": 1e-3}
    series = f"{model}, task={task}"
    best.append({"series": series, **own, "restricted": restricted, "edge": edge})
    rows.append((task, model, 8, 1e-3, 0, 0.1, 64, "reached"))
  kinds = {"task": str, "model": str, "length": int, "learning_rate": float,
           "trial": int, "threshold": float, "samples": int, "outcome": str}  # fmt: skip
  coordinates = ("task", "model", "length", "learning_rate")
  records = Records(table(rows, kinds), coordinates, {})
  return {"best": best, "levels": [{"value": 0.1}]}, records


def test_the_matrix_holds_each_mixer_against_attention():
  n_of = {
    ("a", "delta"): (200.0, False, False), ("a", "attention"): (100.0, False, False),
    ("b", "delta"): (300.0, True, False), ("b", "attention"): (100.0, False, True),
    ("c", "delta"): (300.0, False, False), ("c", "attention"): (900.0, True, False),
  }  # fmt: skip
  summary, records = found(n_of)
  cells = matrix.entries(summary, records)
  over = {(c["task"], c["model"]): (c["over"], c["bound"]) for c in cells}
  assert over["a", "delta"] == (2.0, "")
  assert over["b", "delta"] == (3.0, "more than")
  assert over["c", "delta"] == (None, "")  # attention's n is a bound
  assert over["b", "attention"] == (1.0, "at most")
  whole = {**summary, "matrix": cells}
  (axis, _) = matrix.draw(whole).axes
  assert {text.get_text() for text in axis.texts} == {
    "200", "100", "> 300", "< 100", "300", "> 900",
  }  # fmt: skip
  shown = axis.images[0].get_array()
  assert np.ma.count_masked(np.ma.masked_invalid(shown)) == 2  # of task c
  assert len(matrix.table(whole)[0].rows) == 6


def test_difficulties_of_a_task_stand_side_by_side():
  cells = cells_of("--tasks=mqar", "--models=delta", "--num_pairs=2,4")
  assert {cell.trial.task.num_pairs for cell in cells} == {2, 4}
  kinds = {"task": str, "model": str, "length": int, "learning_rate": float,
           "num_pairs": int, "trial": int, "threshold": float, "samples": int,
           "outcome": str}  # fmt: skip
  rows = [("mqar", "delta", 8, 1e-3, P, 0, 0.1, 64 * P, "reached") for P in (2, 4)]
  records = Records(table(rows, kinds), tuple([*kinds][:5]), {})
  best = [
    {"series": f"delta, num_pairs={P}", "mean": 64.0 * P, "low": None, "high": None,
     "restricted": False, "edge": False, "learning_rate": 1e-3} for P in (2, 4)
  ]  # fmt: skip
  cells = matrix.entries({"best": best}, records)
  assert [cell["task"] for cell in cells] == ["mqar, num_pairs=2", "mqar, num_pairs=4"]


def test_the_preset_says_what_it_is():
  check_preset_says_what_it_is(ROOT / "experiments/flags/suite_quick.cfg")


@pytest.mark.slow
def test_a_run_leaves_a_matrix(tmp_path):
  settings = {
    "tasks": "recall:length=8:vocabulary=6", "models": ["attention", "min_gru"],
    "learning_rates": 1e-2, "num_trials": 2, "max_samples": 20_000, "width": 16,
  }  # fmt: skip
  sepfx.run(STUDY, settings, directory=tmp_path / "run", progress=False)
  summary = json.loads((tmp_path / "run/summary.json").read_text())
  assert [cell["model"] for cell in summary["matrix"]] == ["attention", "min_gru"]
  assert (tmp_path / "run/figure.png").stat().st_size > 0
