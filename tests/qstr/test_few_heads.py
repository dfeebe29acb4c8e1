"""Few heads: the task, the block that stays zero, the floors beside the risks."""

import json
import pathlib

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver

from experiments.qstr.bounds.lower_bounds import blind_heads_floor, heads_floor
from experiments.qstr.few_heads import study as few_heads
from experiments.qstr.few_heads.heads import draw_heads, summarise_heads
from sepfx import InvalidSetting
from sepfx.commands import options, program
from sepfx.ensembles import Records
from sepfx.tasks import FewHeads
from sepfx.training import Seeds
from tests.programs import check_preset_says_what_it_is, each_model_checked_once

ROOT = pathlib.Path(__file__).parents[2]
PRESET = ROOT / "experiments/flags/few_heads.cfg"
SMALL = ("--length=7", "--sparsity=2", "--token_dim=3", "--width=20", "--batch_size=16",
         "--steps=20", "--check_every=10", "--num_test=100")  # fmt: skip


@pytest.mark.parametrize("length", [9, pytest.param(10, marks=pytest.mark.slow)])
def test_labels_of_the_positions_that_count(length):
  task = FewHeads(length=length, token_dim=5, sparsity=3)
  sample = task.sample(jax.random.key(0), task.init(jax.random.key(1)), 4000)
  counted = [i - 1 for i in range(1, length + 1) if 2 * i >= length]
  tokens = np.asarray(sample.tokens)
  assert not tokens[:, counted].any()
  squares = np.sum(tokens[:, :3] ** 2, axis=(1, 2))
  plain = (squares - 3 * 5) / np.sqrt(3 * 5)
  np.testing.assert_allclose(sample.labels[:, counted], plain[:, None] + 0 * tokens[
    :, counted, 0
  ], atol=1e-4)  # fmt: skip
  assert np.var(plain) == pytest.approx(task.best_constant_error(), rel=0.1)
  # Predictions at other positions are of no account.
  predictions = jnp.zeros_like(sample.labels).at[:, : counted[0]].set(100.0)
  errors = task.objective.error(predictions, sample.labels)
  np.testing.assert_allclose(errors, plain**2, rtol=1e-3, atol=1e-4)


def trial_of(*arguments):
  (cell,) = few_heads.STUDY.cells(few_heads.STUDY.chosen([*SMALL, *arguments]))
  return cell.trial


@pytest.mark.parametrize("attention", ["full", "blind"])
@pytest.mark.slow
def test_block_that_is_kept_at_zero(attention):
  trial = trial_of(f"--attention={attention}", "--heads=2")
  seeds = _seeds()
  state, world = trial.init(seeds), trial.world(seeds)
  before = state.params["W_QK"]
  after = trial.train(state, world, 5).params["W_QK"]
  d = trial.task.token_dim
  assert np.any(after[:, d:, :d]) == (attention == "full")
  moved = np.abs(after - before) > 0
  assert np.all(moved[:, d:, d:])  # codes are compared with codes


def _seeds():
  task_key, trial_key = jax.random.split(jax.random.key(5))
  return Seeds(task_key, trial_key)


@pytest.mark.slow
def test_blind_heads_attend_without_regard_to_data():
  """At i >= N/2 the weights do not depend on tokens, as the model computes them."""
  trial = trial_of("--attention=blind", "--heads=2")
  seeds = _seeds()
  world = trial.world(seeds)
  params = trial.train(trial.init(seeds), world, 1).params
  sample = trial.task.sample(jax.random.key(3), world.planted, 2)
  z = trial.task.encode(world.planted, sample)
  d, (_, N, D) = trial.task.token_dim, z.shape

  def averages(z):
    """Of codes, which are the weights' alone."""
    heads = []

    def watch(call, arguments, keywords, context):
      if context.module.name == "hidden":
        heads.append(arguments[0])
      return call(*arguments, **keywords)

    with nn.intercept_methods(watch):
      trial.model.apply({"params": params}, z)
    return np.asarray(heads[0]).reshape(2, N, 2, D)[..., d:]

  before, after = averages(z), averages(z.at[..., :d].multiply(-2.0))
  first = -(-N // 2) - 1
  np.testing.assert_allclose(before[:, first:], after[:, first:], rtol=1e-4, atol=1e-5)
  assert np.max(np.abs(before[:, :first] - after[:, :first])) > 1e-3


def test_rate_falls_over_the_steps_of_a_trial():
  optimizer = trial_of("--attention=full", "--heads=1").protocol.optimizer
  assert (optimizer.decay_steps, optimizer.weight_decay) == (20, 0.0)


@pytest.mark.parametrize(
  ("arguments", "expected"),
  [
    (["--heads=0"], "heads: got 0, takes an integer >= 1"),
    (["--width=0"], "width: got 0, takes an integer >= 1"),
    (["--attention=dense"], "attention: got 'dense', takes one of separate, full, blind"),
    (["--sparsity=4", "--length=8"], "sparsity: got 4, takes less than length/2"),
    (["--steps=25"], "steps: got 25, takes a multiple of check_every = 10"),
  ],
)
def test_bad_flags_are_refused(arguments, expected):
  def check():
    for cell in few_heads.STUDY.cells(few_heads.STUDY.chosen([*SMALL, *arguments])):
      cell.trial.check()

  with pytest.raises(InvalidSetting) as error:
    check()
  assert expected in str(error.value)


@pytest.mark.slow
@each_model_checked_once()
def test_preset_says_what_it_is():
  check_preset_says_what_it_is(PRESET)
  chosen = few_heads.STUDY.chosen([f"--flagfile={PRESET}"])
  assert len(few_heads.STUDY.cells(chosen)) == 15


def records_of(risks):
  """risks: (attention, H) -> those of trials."""
  rows = [
    (attention, heads, trial, risk)
    for (attention, heads), own in risks.items()
    for trial, risk in enumerate(own)
  ]
  kinds = [("attention", "U8"), ("num_heads", int), ("trial", int), ("risk", float)]
  table = np.array(rows, kinds)
  return Records(table, ("attention", "num_heads"), {}, table, {}, {})


def test_risks_stand_beside_the_floor_of_their_attention():
  records = records_of(
    {("full", 1): [1.5, 1.6, 1.7], ("blind", 1): [1.3, 1.4, 1.5], ("full", 4): [0.1]}
  )
  summary = summarise_heads(records, 4, 20, [1.5, 1.01, 0.52, 0.03])
  json.dumps(summary)
  full, four, blind = summary["cells"]
  assert full["floor"] == heads_floor(4, 20, 1) == pytest.approx(1.425)
  assert blind["floor"] == blind_heads_floor(4, 1) == 1.5
  assert four["floor"] == 0
  assert four["error"] is four["below"] is None
  assert full["below"] == 0
  error = np.std([1.3, 1.4, 1.5], ddof=1) / np.sqrt(3)
  assert blind["below"] == pytest.approx(0.1 / error)
  assert [line["num_heads"] for line in summary["lines"]] == [1, 2, 3, 4, 5]
  assert summary["lines"][0]["printed"] == pytest.approx(2 * (1 - 24 / 80))
  figure = draw_heads(summary)
  (axis,) = figure.axes
  drawn = {line.get_label(): line.get_ydata() for line in axis.get_lines()}
  np.testing.assert_allclose(
    drawn["trained, full: mean and trials"], [full["risk"], four["risk"]]
  )
  built = drawn["constructed: H heads that retrieve"]
  np.testing.assert_array_equal(built, [1.5, 1.01, 0.52, 0.03, 0.03])
  table, _ = few_heads.table(summary)
  assert list(table.columns[3].cells) == ["1.500", "0.030", "1.500"]
  (floor,) = [values for label, values in drawn.items() if "(1 - H/d)" in str(label)]
  np.testing.assert_allclose(floor[:2], [2, 1.425])


@pytest.mark.parametrize("heads", [1, 2, 3])
@pytest.mark.slow
def test_constructed_heads_are_at_their_floor(heads):
  # Of so few random codes some coincide.
  task = FewHeads(length=9, sparsity=3, token_dim=6, codes="rademacher", code_dim=3)
  risk, floor = few_heads.constructed(task, heads, 0), blind_heads_floor(3, heads)
  # x^2 is read as a function that is linear between the integers, and beyond 2.
  assert floor < risk < floor + 0.03


@pytest.mark.slow
def test_the_program_end_to_end(tmp_path, monkeypatch):
  monkeypatch.setattr(options.signal, "signal", lambda *_: None)
  chosen = few_heads.STUDY.chosen([*SMALL, "--heads=1", "--num_trials=2"])
  with flagsaver.flagsaver():
    flags.FLAGS(["few_heads", "--quiet", f"--output_dir={tmp_path / 'run'}"])
    program.run(few_heads.STUDY, chosen)
  summary = json.loads((tmp_path / "run/summary.json").read_text())
  assert [cell["attention"] for cell in summary["cells"]] == ["separate", "full", "blind"]
  assert all(0 < cell["risk"] < 4 for cell in summary["cells"])
  assert (tmp_path / "run/figure.png").exists()
