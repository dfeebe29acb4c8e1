"""Training to the end on m prompts of 1STR, beside learners that know a part."""

import json

import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver

import sepfx
from experiments.qstr.fixed_samples import planted, study
from sepfx.commands import options, program
from sepfx.ensembles import Records, table
from sepfx.errors import InvalidSetting
from sepfx.studies.searches import Adaptive
from sepfx.studies.study import Run
from tests.programs import ROOT, check_preset_says_what_it_is, printed

PRESET = ROOT / "experiments/flags/fixed_samples.cfg"
SMALL = (
  "--models=tests.small:transformer", "--lengths=3", "--token_dim=2", "--steps=300",
  "--check_every=50", "--num_test=200", "--learning_rate=1e-2",
)  # fmt: skip


def prompts(m, length, d, seed=0):
  rng = np.random.default_rng(seed)
  u = rng.normal(size=d)
  u /= np.linalg.norm(u)
  return planted.Prompts.drawn(rng, m, u, length), u


def test_labels_of_planted_prompts_are_those_of_the_named_tokens():
  own, u = prompts(5, 4, 3)
  for tokens, indices, labels in zip(*own, strict=True):
    for index, label in zip(indices, labels, strict=True):
      assert label == pytest.approx(tokens[index] @ u)


@pytest.mark.parametrize("m", [1, 2, 8])
def test_the_learner_that_knows_the_index_projects_the_link(m):
  """Its risk is what is left of u outside of the span of the named tokens."""
  own, u = prompts(m, 4, 10)
  rule, found = planted.knows_index(own)
  named = np.concatenate([t[i] for t, i in zip(own.tokens, own.indices, strict=True)])
  seen = np.linalg.pinv(named) @ named @ u
  np.testing.assert_allclose(found, seen, atol=1e-8)
  left = planted.risk(rule, found, u)
  assert left == pytest.approx(1 - np.sum(seen**2), abs=1e-8)
  assert left == pytest.approx(0, abs=1e-8) or m < 8


def test_the_best_rule_is_the_right_one_when_labels_outnumber_unknowns():
  own, u = prompts(4, 3, 4)
  rule, found = planted.best_rule(own)
  np.testing.assert_array_equal(rule, np.arange(3))
  np.testing.assert_allclose(found, u, atol=1e-8)
  # With fewer labels than unknowns several agree with all: that of the least norm.
  few, _ = prompts(1, 3, 4, seed=1)
  rule, found = planted.best_rule(few)
  for other in planted._rules(3):
    (own,), (error,) = planted._least_squares(few, other[None])
    assert error > 1e-9 or np.sum(own**2) >= np.sum(found**2) - 1e-12


def test_risk_of_a_rule_is_that_of_fresh_prompts():
  rng = np.random.default_rng(0)
  u, found, rule = rng.normal(size=3), rng.normal(size=3), np.array([0, 2, 2, 1])
  fresh = planted.Prompts.drawn(rng, 100_000, u, 4)
  answers = np.take_along_axis(fresh.tokens, rule[fresh.indices][..., None], axis=1)
  measured = np.mean((answers @ found - fresh.labels) ** 2)
  assert planted.risk(rule, found, u) == pytest.approx(measured, rel=0.02)


def test_sizes_of_planted_learners_and_bounds():
  # 10 unknowns: a risk below 0.375 takes 7 of them, so two prompts of 4 labels may do
  # if few of them name one token twice; three mostly do.
  own = planted.planted_size("knows_index", 4, 10, 0.375)
  assert own.size == 3
  assert 0 < own.error < 0.2
  assert planted.planted_size("best_rule", 3, 4, 1 / 3, 100).size >= (
    planted.planted_size("knows_index", 3, 4, 1 / 3, 100).size
  )
  assert planted.label_floor(4, 10, 0.375) == pytest.approx(10 / 4 * 0.625)
  assert planted.first_layer_floor(4, 10, 0.375) == pytest.approx(40 * 0.625)


def test_trials_of_a_cell():
  chosen = study.STUDY.chosen([*SMALL, "--sample_sizes=8,200"])
  few, many = (cell.trial for cell in study.STUDY.cells(chosen))
  assert few.protocol.num_training == 6
  assert (few.samples_a_step, many.samples_a_step) == (6, 64)
  assert many.protocol.threshold == pytest.approx(0.5 * (1 - 1 / 3))
  assert many.protocol.validation == 0.25
  assert many.run_to_end


def test_other_tasks_have_no_planted_learners():
  further = ["--sample_sizes=8", "--search=grid", "--sparsity=2"]
  chosen = study.STUDY.chosen([*SMALL, *further])
  cells = study.STUDY.cells(chosen)
  names = ("task", "model", "length", "sample_size", "trial", "risk", "steps", "outcome")
  kinds = dict(zip(names, (str, str, int, int, int, float, int, str), strict=True))
  rows = [("qstr", "tests.small:transformer", 3, 8, 0, 1.0, 300, "censored")]
  records = Records(table(rows, kinds), names[:4], {})
  run = Run(records, {cell.name: cell for cell in cells}, chosen, "length")
  summary = study.summarise(run)
  assert (summary["planted"], summary["floor"]) == ([], [])


@pytest.mark.parametrize(
  ("argument", "message"),
  [
    ("--validation=0", "validation: got 0.0, takes a share above 0"),
    ("--uniform_fraction=1", "uniform_fraction: got 1.0, takes a number between 0 and 1"),
    ("--task=fixed", "task: got 'fixed', takes one of qstr, simple_qstr"),
    ("--search=all", "search: got 'all', takes grid or adaptive"),
    ("--batch_size=0", "batch_size: got 0, takes an integer from 1"),
    ("--steps=10", "max_steps: got 10, takes at least check_every = 50"),
  ],
)
def test_bad_settings_are_refused(argument, message):
  with pytest.raises(InvalidSetting, match=message):
    study.STUDY.cells(study.STUDY.chosen([*SMALL, argument]))


@pytest.mark.slow
def test_preset_says_what_it_is():
  check_preset_says_what_it_is(PRESET)
  chosen = study.STUDY.chosen([f"--flagfile={PRESET}"])
  cells = study.STUDY.cells(chosen)
  assert len(cells) == 3 * 10
  search = study.STUDY.search(cells, chosen)
  assert isinstance(search, Adaptive)
  assert [len(group) for group in search.groups] == [10] * 3


@pytest.mark.slow
def test_the_study_end_to_end(tmp_path, monkeypatch):
  monkeypatch.setattr(options.signal, "signal", lambda *_: None)
  arguments = [*SMALL, "--sample_sizes=8,400", "--search=grid", "--num_trials=3"]
  own = [a for a in arguments if a.partition("=")[0].removeprefix("--") in flags.FLAGS]
  with flagsaver.flagsaver():
    flags.FLAGS(["study", f"--output_dir={tmp_path}", "--quiet", *own])
    program.run(study.STUDY, study.STUDY.chosen(arguments))
  records = sepfx.load(tmp_path)
  for row in records.table:
    curve = records.all_curves[records.name_of(row)]
    counts = curve["test_error"][np.argmin(curve["validation_error"])]
    assert (row["outcome"] == "reached") == (counts < 1 / 3)
  summary = json.loads((tmp_path / "summary.json").read_text())
  few, many = summary["cells"]
  assert (few["sample_size"], few["reached"]) == (8, 0)
  assert (many["sample_size"], many["reached"]) == (400, 3)
  (own,) = summary["planted"]
  assert own["knows_index"] <= own["best_rule"]
  assert summary["letter"] == "N"
  shown = printed(study.table(summary))
  assert "least squares that knows the index needs m =" in shown
  assert "the learner that knows the index" in shown
