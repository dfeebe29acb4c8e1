"""Theorem 6 beside training: the model, the probe, floors of trials, the study."""

import dataclasses
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver

import sepfx
from experiments.qstr.bounds.lower_bounds import span_floor
from experiments.qstr.first_layer import study as first_layer
from experiments.qstr.first_layer.figure import draw_spans
from experiments.qstr.first_layer.summary import floors, summarise_spans
from sepfx import InvalidSetting, models, probes
from sepfx.commands import options, program
from sepfx.ensembles import Records
from sepfx.models import TokensFirst
from sepfx.training import Seeds
from tests import small
from tests.programs import check_preset_says_what_it_is, each_model_checked_once

ROOT = pathlib.Path(__file__).parents[2]
PRESET = ROOT / "experiments/flags/first_layer.cfg"
SMALL = ("--length=4", "--token_dim=3", "--num_test=300", "--steps=40",
         "--check_every=20", "--sample_sizes=3,8", "--num_trials=2")  # fmt: skip


def cell_of(*arguments):
  chosen = first_layer.STUDY.chosen([*SMALL, "--sample_sizes=5", *arguments])
  (cell,) = first_layer.STUDY.cells(chosen)
  return cell


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("activation", ["gelu", "softplus", "relu"])
def test_network_is_f_of_indices_and_w_x(activation):
  model = TokensFirst(token_dim=2, width=5, hidden_widths=(4,), activation=activation)
  z = jax.random.normal(jax.random.key(0), (3, 4, 6))
  params = model.init(jax.random.key(1), z)["params"]
  p = jax.tree.map(np.asarray, params)
  act = {
    "gelu": lambda v: np.asarray(jax.nn.gelu(v)),
    "softplus": lambda v: np.log1p(np.exp(v)),
    "relu": lambda v: np.maximum(v, 0),
  }[activation]
  plain = np.asarray(z)
  x, codes = plain[..., :2].reshape(3, -1), plain[..., 2:].reshape(3, -1)
  hidden = np.concatenate([act(x @ p["first"]["kernel"] + p["first"]["bias"]), codes], 1)
  hidden = act(hidden @ p["hidden_1"]["kernel"] + p["hidden_1"]["bias"])
  expected = hidden @ p["output"]["kernel"] + p["output"]["bias"]
  np.testing.assert_allclose(model.apply({"params": params}, z), expected, atol=1e-5)


def test_named_model_sees_the_tokens_of_its_task():
  model = models.build("tokens_first:width=7", small.TASK)
  assert (model.token_dim, model.width) == (small.TASK.token_dim, 7)
  with pytest.raises(InvalidSetting, match="activation: got 'tanh', takes gelu or"):
    dataclasses.replace(model, activation="tanh").init(
      jax.random.key(0), jnp.zeros((1, 3, 6))
    )


def ended(cell, steps=30):
  own = jax.tree.map(lambda keys: keys[0], cell.seeds(0, 1))
  trial = cell.trial
  state, world = trial.init(own), trial.world(own)
  return trial, trial.train(state, world, steps).params, world


@pytest.mark.slow
def test_probe_is_definition_5():
  trial, params, world = ended(cell_of("--models=tokens_first"))
  found = probes.stationarity(trial, params, world, None)
  X = np.asarray(world.sample.tokens, np.float64).reshape(5, -1)
  V = np.linalg.pinv(X) @ X  # on the span of the rows
  W = np.asarray(params["first"]["kernel"], np.float64).T  # [m_1, N*d]
  outside = np.linalg.norm(W - W @ V) ** 2 / np.linalg.norm(W) ** 2
  assert 0.1 < outside < 1
  assert found["outside_share"] == pytest.approx(outside, rel=1e-3)
  whole = {**params, "first": {**params["first"], "kernel": jnp.asarray((W @ V).T)}}
  for name, weights in (("test_risk", params), ("projected_risk", whole)):
    z = trial.task.encode(world.planted, world.test)
    outputs = trial.model.apply({"params": weights}, z)
    errors = np.mean((np.asarray(outputs) - np.asarray(world.test.labels)) ** 2, axis=1)
    assert found[name] == pytest.approx(np.mean(errors), rel=1e-3)
  error = np.std(errors) / np.sqrt(len(errors))
  assert found["projected_error"] == pytest.approx(error, rel=1e-2)

  def minimised(kernel):
    own = {**params, "first": {**params["first"], "kernel": kernel}}
    z = trial.task.encode(world.planted, world.sample)
    errors = (trial.model.apply({"params": own}, z) - world.sample.labels) ** 2
    squares = sum(jnp.sum(a**2) for a in jax.tree.leaves(own))
    return jnp.mean(errors) + 2e-3 * squares

  gradient = np.asarray(jax.grad(minimised)(params["first"]["kernel"]))
  ratio = np.linalg.norm(gradient) / (4e-3 * np.linalg.norm(W))
  assert found["gradient_ratio"] == pytest.approx(ratio, rel=1e-3)
  # What Definition 5 promises: outside the span only the penalty pulls.
  assert found["outside_share"] <= found["gradient_ratio"] ** 2


@pytest.mark.slow
def test_other_models_have_a_risk_alone():
  trial, params, world = ended(cell_of("--models=transformer"), steps=1)
  assert set(probes.stationarity(trial, params, world, None)) == {"test_risk"}


@pytest.mark.slow
def test_probe_needs_a_penalty_and_a_fixed_sample():
  cell = cell_of("--models=tokens_first")
  free = dataclasses.replace(cell.trial.protocol, l2=None)
  trial, params, world = ended(cell, steps=1)
  with pytest.raises(InvalidSetting, match="takes a protocol with l2"):
    probes.stationarity(dataclasses.replace(trial, protocol=free), params, world, None)
  with pytest.raises(InvalidSetting, match="takes a protocol with a fixed sample"):
    probes.combined(
      "stationarity", [sepfx.Online().trial(small.TASK, small.TASK, small.MODEL)]
    )


@pytest.mark.slow
@pytest.mark.parametrize("task", ["simple_qstr", "qstr"])
def test_floors_are_of_the_trials_own_sample_and_link(task):
  cell = cell_of("--models=tokens_first", f"--task={task}", "--num_test=4000")
  lines = [floors(cell, 0, k) for k in range(3)]
  for k, found in enumerate(lines):
    trials, tasks = cell.seeds(0, 3)
    world = cell.trial.world(Seeds(trials[k], tasks[k]))
    expected = span_floor(np.asarray(world.sample.tokens), np.asarray(world.planted.link))
    assert (found["own"], found["worst"]) == (expected.own, expected.worst)
    assert found["mean"] == pytest.approx(1 - 5 / 12)
    # A sample of 4,000 prompts: five standard errors, three trials.
    assert abs(found["predictor"] - found["own"]) < 5 * found["predictor_error"]
  assert len({line["own"] for line in lines}) == 3


@pytest.mark.slow
def test_a_sample_that_spans_everything_leaves_nothing():
  chosen = first_layer.STUDY.chosen(
    [*SMALL, "--sample_sizes=12", "--models=tokens_first"]
  )
  (cell,) = first_layer.STUDY.cells(chosen)
  summary = summarise_spans(records_of(cell, [0.3, 0.4]), {cell.name: cell}, 0)
  (own,) = summary["cells"]
  assert own["own"] == pytest.approx(0, abs=1e-6)
  assert own["predictor"] == pytest.approx(0, abs=1e-6)
  assert own["predictor_off"] == 0
  assert own["below"] == 0


def records_of(cell, risks):
  """Of trials with these risks."""
  names = ("test_risk", "gradient_ratio", "outside_share", "projected_risk",
           "projected_error")  # fmt: skip
  place = cell.coordinates
  rows = [(*place.values(), k, risk, 0.1, 0.1, risk, 0.1) for k, risk in enumerate(risks)]
  texts = {"task": "U16", "model": "U16"}
  kinds = [(name, texts.get(name, int)) for name in (*place, "trial")]
  table = np.array(rows, [*kinds, *((name, float) for name in names)])
  return Records(table, tuple(place), {}, table, {}, {})


def test_absolute_errors_are_minimised_and_squared_ones_measured():
  trial = cell_of("--models=tokens_first", "--loss=absolute").trial
  outputs, labels = jnp.array([[3.0, 0.0]]), jnp.array([[1.0, 1.0]])
  assert trial.objective.loss(outputs, labels)[0] == 1.5
  assert trial.objective.error(outputs, labels)[0] == 2.5


def test_summary_holds_risks_against_floors():
  cell = cell_of("--models=tokens_first")
  other = cell_of("--models=transformer")
  kinds = [("task", "U16"), ("model", "U16"), ("length", int), ("sample_size", int),
           ("trial", int)]  # fmt: skip
  names = ("test_risk", "gradient_ratio", "outside_share", "projected_risk",
           "projected_error")  # fmt: skip
  own = [floors(cell, 0, k)["own"] for k in range(2)]
  rows = [
    (
      "simple_qstr",
      "tokens_first",
      4,
      5,
      0,
      own[0] - 0.01,
      0.1,
      0.001,
      own[0] + 0.1,
      0.01,
    ),
    (
      "simple_qstr",
      "tokens_first",
      4,
      5,
      1,
      own[1] - 0.03,
      0.2,
      0.002,
      own[1] - 0.05,
      0.02,
    ),
    ("simple_qstr", "transformer", 4, 5, 0, 0.4, np.nan, np.nan, np.nan, np.nan),
  ]
  table = np.array(rows, [*kinds, *((name, float) for name in names)])
  records = Records(table, tuple(name for name, _ in kinds[:-1]), {}, table, {}, {})
  cells = {
    records.cell_of(row): own for row, own in zip(table[1:], (cell, other), strict=True)
  }
  summary = summarise_spans(records, cells, 0)
  json.dumps(summary, allow_nan=False)
  assert summary["size"] == 12
  dense, transformer = summary["cells"]
  assert dense["below"] == pytest.approx(2.0, rel=1e-3)  # 0.02 of an error of 0.01
  assert dense["projected_below"] == pytest.approx(2.5)  # of one trial, whatever others
  assert dense["own"] == pytest.approx(np.mean(own))
  assert (dense["gradient_ratio"], dense["outside_share"]) == (0.2, 0.002)
  assert "own" not in transformer
  assert summary["crossings"] == [
    {
      "series": "tokens_first",
      "samples": None if np.mean(own) > 0.52 else 5,
      "largest": 5,
    },
    {"series": "transformer", "samples": 5, "largest": 5},
  ]
  (axis,) = draw_spans(summary).axes
  drawn = {str(line.get_label()): line.get_ydata() for line in axis.get_lines()}
  np.testing.assert_allclose(drawn["transformer"], [0.4])
  np.testing.assert_allclose(drawn["the floor of the trials' own u"], [np.mean(own)])


@pytest.mark.parametrize(
  ("argument", "expected"),
  [
    ("--task=parity", "task: got 'parity', takes one of simple_qstr, qstr"),
    ("--loss=hinge", "loss: got 'hinge', takes one of squared, absolute"),
    ("--l2=none", "l2: got None, takes a positive number: the theorem needs one"),
    ("--l2=0", "l2: got 0.0, takes a positive number"),
    ("--batch_size=3,4", "batch_size: got '3,4', takes one value"),
    ("--steps=25", "steps: got 25, takes a multiple of check_every = 20"),
    ("--sample_sizes=0", "sample_sizes: got 0, takes an integer >= 1"),
  ],
)
def test_bad_flags_are_refused(argument, expected):
  with pytest.raises(InvalidSetting) as error:
    first_layer.STUDY.cells(first_layer.STUDY.chosen([*SMALL, argument]))
  assert expected in str(error.value)


@pytest.mark.slow
@each_model_checked_once()
def test_preset_says_what_it_is():
  check_preset_says_what_it_is(PRESET)
  chosen = first_layer.STUDY.chosen([f"--flagfile={PRESET}"])
  assert len(first_layer.STUDY.cells(chosen)) == 50


@pytest.mark.slow
def test_the_program_end_to_end(tmp_path, monkeypatch):
  monkeypatch.setattr(options.signal, "signal", lambda *_: None)
  chosen = first_layer.STUDY.chosen([*SMALL, "--models=tokens_first,dense_transformer"])
  with flagsaver.flagsaver():
    flags.FLAGS(["first_layer", "--quiet", f"--output_dir={tmp_path / 'run'}"])
    program.run(first_layer.STUDY, chosen)
  summary = json.loads((tmp_path / "run/summary.json").read_text())
  assert [cell["samples"] for cell in summary["cells"]] == [3, 8, 3, 8]
  assert all(0 < cell["risk"] < 5 for cell in summary["cells"])
  assert 0.6 < summary["cells"][0]["own"] < 0.9  # 1 - 3/12 on average
  assert (tmp_path / "run/figure.png").exists()
