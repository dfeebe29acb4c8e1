"""Theorem 9 by training: the point-wise risk, what a summary says, the study."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver

from experiments.qstr.constructions.interpolation import interpolator, memory_norms
from experiments.qstr.memorising import study as memorising
from experiments.qstr.memorising.memories import draw_memories, summarise_memories
from sepfx import InvalidSetting
from sepfx.commands import options, program
from sepfx.ensembles import Records
from sepfx.tasks import QSTR, Custom, PointwiseQSTR
from tests.programs import ROOT, check_preset_says_what_it_is

PRESET = ROOT / "experiments/flags/memorising.cfg"
SMALL = ("--lengths=4", "--sample_sizes=3,20", "--num_trials=2", "--token_dim=3",
         "--steps=40", "--check_every=20", "--num_test=200")  # fmt: skip


def test_one_label_of_each_prompt_is_seen():
  task = PointwiseQSTR(length=5, token_dim=3)
  planted = task.init(jax.random.key(0))
  with jax.debug_nans(True):  # those that are not seen are no error
    sample = task.sample(jax.random.key(1), planted, 4000)
  labels = np.asarray(sample.labels)
  known = np.isfinite(labels)
  assert np.all(known.sum(axis=1) == 1)
  np.testing.assert_allclose(known.mean(axis=0), 0.2, atol=0.03)  # five standard errors
  whole = np.asarray(QSTR.label(task, planted, sample.tokens, sample.indices))
  np.testing.assert_array_equal(labels[known], whole[known])


def test_best_constant_is_that_of_all_labels():
  link = Custom(lambda tokens: tokens[..., 0, 0])  # of variance 1, which it does not say
  task = PointwiseQSTR(length=3, token_dim=2, link=link)
  assert task.best_constant_error() == pytest.approx(1.0, abs=0.03)


def test_loss_is_the_pointwise_risk_and_has_a_gradient():
  task = PointwiseQSTR(length=5, token_dim=3)
  sample = task.sample(jax.random.key(1), task.init(jax.random.key(0)), 50)
  predictions = jax.random.normal(jax.random.key(2), (50, 5))

  def risk(predictions):
    return jnp.mean(task.objective.loss(predictions, sample.labels))

  labels = np.asarray(sample.labels)
  known = np.isfinite(labels)
  plain = np.mean((np.asarray(predictions)[known] - labels[known]) ** 2)  # (2.3)
  np.testing.assert_allclose(risk(predictions), plain, rtol=1e-6)
  gradient = np.asarray(jax.grad(risk)(predictions))
  assert np.all(gradient[~known] == 0)
  expected = 2 * (np.asarray(predictions)[known] - labels[known]) / 50
  np.testing.assert_allclose(gradient[known], expected, rtol=1e-4, atol=1e-7)


def test_memories_fit_labels_of_another_token():
  found = memory_norms(6, 4, 3, 5)
  rng = np.random.default_rng((5, 6, 1))
  x, u = rng.normal(size=(6, 4)), rng.normal(size=4)
  y = rng.normal(size=(6, 4)) @ (u / np.linalg.norm(u))
  np.testing.assert_allclose(found[1], interpolator(x, y, rng).squared_norm)
  np.testing.assert_array_equal(memory_norms(6, 4, 2, 5), found[:2])
  deeper = memory_norms(6, 4, 3, 5, depth=3)
  np.testing.assert_allclose(deeper, 3 * found ** (2 / 3))


def test_penalty_falls_from_the_first_to_the_last():
  chosen = memorising.STUDY.chosen([*SMALL, "--sample_sizes=3"])
  (cell,) = memorising.STUDY.cells(chosen)
  optimizer = cell.trial.protocol.optimizer
  params = {"w": jnp.array([2.0])}
  moments = []
  for step in (0, 20, 40):
    _, inner = optimizer.init(params)
    _, after = optimizer.update({"w": jnp.zeros(1)}, (jnp.int32(step), inner), params)
    # Adam's first moment is a tenth of the gradient, here of the penalty alone.
    first = next(leaf for leaf in jax.tree.leaves(after) if leaf.shape == (1,))
    moments.append(float(first[0]) / 0.1)
  np.testing.assert_allclose(moments, [4e-3, 4e-4, 4e-5], rtol=1e-4)


def records_of(rows):
  """rows: (N, n, trial, train, risk, norm)."""
  kinds = [("length", int), ("sample_size", int), ("trial", int)]
  names = ("train_loss", "population_risk", "norm")
  own = np.array(rows, [*kinds, *((name, float) for name in names)])
  return Records(own, ("length", "sample_size"), {}, own, {}, {})


def test_norms_and_risks_stand_beside_the_constructions():
  rows = [
    (8, 4, 0, 0.0, 1.1, 2.0), (8, 4, 1, 0.2, 1.3, 4.0),
    (8, 64, 0, 0.1, 0.4, 5.0), (8, 64, 1, 0.1, 0.5, 5.0),
    (8, 99, 0, 0.1, 0.3, 5.0), (8, 99, 1, 0.1, 0.31, 5.0),
    (16, 4, 0, 0.0, 0.9, 3.0), (16, 64, 0, np.nan, np.nan, np.nan),
    (16, 99, 0, 0.0, 0.1, 3.0),
  ]  # fmt: skip
  summary = summarise_memories(
    records_of(rows), 10, {2: 10.0, 8: 1000.0}, {8: 100.0, 16: 1e6}
  )
  json.dumps(summary, allow_nan=False)
  first, second, _, third, fourth, _ = summary["cells"]
  assert (first["train"], first["risk"]) == pytest.approx((0.1, 1.2))
  assert first["train_low"] == 0.0
  assert first["squared_norm"] == pytest.approx(8.0)  # between 4 and 16 on the log scale
  assert 0 < first["squared_norm_low"] < 4
  assert second["risk_low"] < 0.45 < second["risk_high"]
  assert third["risk_low"] is fourth["risk"] is None
  eight, sixteen = summary["crossings"]
  # Halfway between 10 and 1,000 on the log scale, so between 2 and 8.
  assert eight == {"length": 8, "constructed": pytest.approx(4), "learned": 99}
  assert sixteen == {"length": 16, "constructed": None, "learned": None}
  norms, risks = draw_memories(summary).axes
  drawn = {str(line.get_label()): line.get_ydata() for line in norms.get_lines()}
  np.testing.assert_allclose(drawn["N = 8, trained"], [8, 25, 25])
  drawn = {str(line.get_label()): line.get_ydata() for line in risks.get_lines()}
  np.testing.assert_allclose(drawn["N = 8, trained: fresh prompts"], [1.2, 0.45, 0.305])
  np.testing.assert_allclose(drawn["N = 16, trained: labels seen"], [0, 0])
  assert drawn["any learner: 1 - n / d"][0] == pytest.approx(0.6)
  shown = memorising.table(summary)
  assert "n = 99" in shown[1]
  assert "at no n tried" in shown[2]


@pytest.mark.parametrize(
  ("argument", "expected"),
  [
    ("--last_penalty=0", "last_penalty: got 0.0, takes a positive number"),
    ("--first_penalty=1e-6", "first_penalty: got 1e-06, takes at least last_penalty"),
    ("--sparsity=2", "sparsity: got 2, takes nothing: both constructions are of 1STR"),
    ("--l2=1e-3", "l2: got 0.001, takes none: first_penalty and last_penalty are"),
    ("--model=transformer", "model: got 'transformer', takes a residual_rnn with radius"),
    ("--model=residual_rnn:radius=1.0", "takes a residual_rnn with radius=1.0 and two"),
    ("--lengths=0", "lengths: got 0, takes an integer >= 2"),
    ("--sample_sizes=0", "sample_sizes: got 0, takes an integer >= 1"),
    ("--steps=30", "steps: got 30, takes a multiple of check_every = 20"),
    (
      "--learning_rate=1e-4,1e-3",
      "takes one value: this study tells length, sample_size apart",
    ),
  ],
)
def test_bad_flags_are_refused(argument, expected):
  with pytest.raises(InvalidSetting) as error:
    memorising.STUDY.cells(memorising.STUDY.chosen([*SMALL, argument]))
  assert expected in str(error.value)


@pytest.mark.slow
def test_preset_says_what_it_is():
  check_preset_says_what_it_is(PRESET)
  chosen = memorising.STUDY.chosen([f"--flagfile={PRESET}"])
  assert len(memorising.STUDY.cells(chosen)) == 10


@pytest.mark.slow
def test_the_program_end_to_end(tmp_path, monkeypatch):
  monkeypatch.setattr(options.signal, "signal", lambda *_: None)
  chosen = memorising.STUDY.chosen([*SMALL])
  with flagsaver.flagsaver():
    flags.FLAGS(["memorising", "--quiet", f"--output_dir={tmp_path / 'run'}"])
    program.run(memorising.STUDY, chosen)
  summary = json.loads((tmp_path / "run/summary.json").read_text())
  assert [cell["samples"] for cell in summary["cells"]] == [3, 20]
  assert all(cell["squared_norm"] > 0 for cell in summary["cells"])
  assert summary["lengths"][0]["slots_squared_norm"] > 0
  assert (tmp_path / "run/figure.png").exists()
