"""What a Transformer with one channel learned: the model, the probe and Figure 5."""

import csv
import json
import math
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.fourier.fourier_attention import channels
from experiments.fourier.fourier_attention import study as fourier_attention
from sepfx import InvalidSetting, probes
from sepfx.models import ChannelTransformer, ReadOutTransformer, build
from sepfx.probes.attention import first_attention, matched
from sepfx.tasks import FourierSparse, UnseenStrings
from sepfx.tasks.fourier import Spectrum, all_bits
from sepfx.training import ERM
from tests import small
from tests.programs import check_preset_says_what_it_is

ROOT = pathlib.Path(__file__).parents[2]
KEY = jax.random.key(0)
BITS = np.asarray(all_bits(6))
SETS = np.array([[1, 0, 1, 0, 0, 1], [0, 1, 1, 1, 0, 0], [1, 1, 0, 0, 1, 0]], float)
C = np.array([0.8, 0.5, -0.3])


def softmax(scores):
  weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
  return weights / weights.sum(axis=-1, keepdims=True)


def plain_weights(params, bits, read_bits):
  """Attention of the model, input by input."""
  q, k = (np.asarray(params[f"{name}_kernel"], float) for name in ("query", "key"))
  T = bits.shape[1]
  found = []
  for own in np.concatenate([bits, np.zeros((len(bits), 1))], axis=1):
    x = np.concatenate([np.eye(T + 1), own[:, None] * read_bits], axis=1)
    found.append(softmax(math.log(T) * x @ q @ k.T @ x.T))
  return np.array(found)


@pytest.mark.slow
@pytest.mark.parametrize("read_bits", [True, False])
def test_model_is_the_plain_one(read_bits):
  model = ChannelTransformer(mlp_width=7, read_bits=read_bits)
  params = jax.jit(model.init)(KEY, BITS)["params"]
  params = jax.tree.map(
    lambda a: a + 0.4 * jax.random.normal(jax.random.key(a.size), a.shape), params
  )
  weights = plain_weights(params, BITS, read_bits)
  assert (np.std(weights, axis=0).max() > 0.05) == read_bits
  values = np.asarray(params["value_kernel"])
  inputs = np.concatenate([BITS, np.zeros((64, 1))], axis=1)
  read = np.einsum("nrs,ns->nr", weights, values[:-1] + values[-1] * inputs)

  def dense(rows, layer):
    return rows @ np.asarray(layer["kernel"]) + np.asarray(layer["bias"])

  hidden = np.maximum(dense(read[..., None], params["mlp_in"]), 0)
  rows = dense(hidden, params["mlp_out"])[..., 0]
  expected = dense(rows, params["read_out"])[:, 0]
  assert np.std(expected) > 0.01
  got = jax.jit(model.apply)({"params": params}, BITS)
  np.testing.assert_allclose(got, expected, rtol=2e-4, atol=2e-5)
  sown = first_attention(model, params, BITS)
  np.testing.assert_allclose(sown, weights, rtol=1e-3, atol=1e-6)


def test_number_of_parameters():
  """Just over 1,000 at T = 20, as the paper says."""
  model = build("channel", FourierSparse())
  shapes = jax.eval_shape(model.init, KEY, jnp.zeros((1, 20), int))["params"]
  assert sum(math.prod(a.shape) for a in jax.tree.leaves(shapes)) == 1109


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("layers", [1, 2])
def test_read_out_transformer_sows_its_first_attention(layers):
  model = ReadOutTransformer(num_layers=layers, embedding_dim=None, mlp_width=5)
  params = jax.jit(model.init)(KEY, BITS)["params"]
  block = params["block_0"]
  kernels = {name: block[f"{name}_kernel"][:, 0] for name in ("query", "key")}
  weights = plain_weights({f"{k}_kernel": a for k, a in kernels.items()}, BITS, True)
  expected = weights if layers == 2 else weights[:, -1:]
  found = first_attention(model, params, BITS)
  np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_models_that_show_no_attention_are_refused():
  with pytest.raises(
    InvalidSetting, match=r"attention of Linear.* that sows its weights"
  ):
    first_attention(small.Linear(), {"Dense_0": {"kernel": jnp.ones((6, 1)),
                    "bias": jnp.zeros(1)}}, BITS[:, None, :])  # fmt: skip


def test_matched_is_the_best_row_of_each_set():
  weights = softmax(2 * np.random.default_rng(0).normal(size=(5, 4, 7)))
  found = matched(jnp.asarray(weights), jnp.asarray(SETS))
  for i, own in enumerate(SETS):
    overlaps = [
      np.mean([np.minimum(w[r, :6], own / 3).sum() for w in weights]) for r in range(4)
    ]
    best = int(np.argmax(overlaps))
    assert found.rows[i] == best
    assert found.overlaps[i] == pytest.approx(overlaps[best], rel=1e-5)
    share = np.mean(weights[:, best, :6][:, own == 1].sum(axis=1))
    assert found.shares[i] == pytest.approx(share, rel=1e-5)
  # Uniform on the set is 1, one of its three bits alone a third.
  rows = np.zeros((1, 2, 7))
  rows[0, 0, :6], rows[0, 1, 0] = SETS[0] / 3, 1.0
  whole, one = (
    matched(jnp.asarray(rows[:, r : r + 1]), jnp.asarray(SETS[:1])) for r in (0, 1)
  )
  assert (float(whole.overlaps[0]), float(whole.shares[0])) == pytest.approx((1, 1))
  assert (float(one.overlaps[0]), float(one.shares[0])) == pytest.approx((1 / 3, 1))


def constructed(sets, degree):
  """Weights of `ChannelTransformer(read_bits=False)` whose rows are the parities."""
  k, T = sets.shape
  query, key = np.zeros((T + 2, T + 2)), np.eye(T + 2)
  query[:k, :T] = 30 / math.log(T) * sets
  # 1 at 0, then slopes of -2 d and 2 d in turn: +-1 at each count over d.
  bends = np.arange(1, degree) / degree
  bias = np.concatenate([[0.0], -bends])
  slopes = -4.0 * degree * (-1.0) ** np.arange(degree)
  slopes[0] /= 2
  value = np.zeros(T + 2)
  value[-1] = 1.0
  read_out = np.zeros((T + 1, 1))
  read_out[:k, 0] = C[:k]
  params = {
    "query_kernel": query, "key_kernel": key, "value_kernel": value,
    "mlp_in": {"kernel": np.ones((1, degree)), "bias": bias},
    "mlp_out": {"kernel": slopes[:, None], "bias": np.ones(1)},
    "read_out": {"kernel": read_out, "bias": np.zeros(1)},
  }  # fmt: skip
  return ChannelTransformer(mlp_width=degree, read_bits=False), params


@pytest.mark.usefixtures("exact")
def test_look_finds_what_was_put_there():
  model, params = constructed(SETS, 3)
  chi = np.prod(np.where(SETS[:, None] == 1, 1 - 2 * BITS, 1), axis=2).T
  outputs = model.apply({"params": params}, BITS)
  zero_rows = outputs - chi @ C
  np.testing.assert_allclose(zero_rows, zero_rows[0], atol=1e-4)
  planted = Spectrum(np.vstack([SETS, SETS[:1]]), np.append(C, 0.0))
  found = channels.look(model, params, planted, BITS)
  assert found.rows.tolist() == [0, 1, 2]
  assert found.coefficients.tolist() == C.tolist()
  np.testing.assert_allclose(found.overlaps, 1, atol=1e-4)
  np.testing.assert_allclose(found.shares, 1, atol=1e-4)
  np.testing.assert_allclose(found.agreements, 1, atol=1e-4)
  np.testing.assert_allclose(found.channel, found.ones / 3, atol=1e-4)
  np.testing.assert_array_equal(found.ones, BITS @ SETS.T)
  assert found.turns == 2
  assert len(channels.figure([("a", found)]).subfigs) == 1
  # A reader that is no parity is told from one.
  wrong = {**params, "value_kernel": np.eye(8)[0]}
  assert np.max(channels.look(model, wrong, planted, BITS).agreements) < 0.1


def test_turns():
  x = np.linspace(0, 1, 400)
  assert channels.turns(x) == channels.turns(-x) == 0
  assert channels.turns(np.ones(5)) == 0
  assert channels.turns(np.cos(4 * np.pi * x)) == 3
  assert channels.turns(x + 0.02 * np.cos(40 * np.pi * x)) == 0  # swings of 4%
  assert channels.turns(x + 0.02 * np.cos(40 * np.pi * x), swing=0.001) > 10


def trial_of(model):
  task, unseen = (
    kind(length=6, degree=2, num_components=3) for kind in (FourierSparse, UnseenStrings)
  )
  protocol = ERM(sample_size=8, threshold=0.02, watched="train_loss", num_test=64)
  return protocol.trial(task, unseen, model, "m")


@pytest.mark.slow
def test_probe_is_the_mean_over_components():
  trial = trial_of(ReadOutTransformer(embedding_dim=None, mlp_width=5))
  seeds = small.seeds(0)
  world = jax.jit(trial.world)(seeds)
  params = jax.tree.map(lambda a: 3 * a, jax.jit(trial.init)(seeds).params)
  probe = jax.jit(lambda own: probes.build("attention")(trial, own, world, KEY))
  found = probe(params)
  bits = trial.task.sample(jax.random.split(KEY)[0], world.planted, 256).bits
  weights = first_attention(trial.model, params, bits)
  own = matched(weights, world.planted.sets[:3])
  found = {name: float(value) for name, value in found.items()}
  assert found["attention_share"] == pytest.approx(float(np.mean(own.shares)), rel=1e-4)
  overlap = pytest.approx(float(np.mean(own.overlaps)), rel=1e-4)
  assert found["attention_overlap"] == overlap
  # Elsewhere: the mean over many sets of two bits is near that over all of them.
  pairs = np.array([a for a in BITS if a.sum() == 2], float)
  everywhere = float(np.mean(matched(weights, jnp.asarray(pairs)).overlaps))
  assert found["attention_overlap_random"] == pytest.approx(everywhere, rel=0.2)
  assert found["attention_overlap_random"] != found["attention_overlap"]


def test_probe_refuses_what_has_no_sets():
  trial = small.TRIAL
  shapes = jax.eval_shape(trial.world, small.seeds(0))
  with pytest.raises(InvalidSetting, match=r"attention on .* a task that plants sets"):
    probes.attention(trial, None, shapes, KEY)


def test_every_printed_value_is_below_its_head():
  place = dict(zip(fourier_attention._CELL, ("channel", 12, 32, 2, 3), strict=True))
  means = {name: [0.1, 0.0, 0.2] for name in fourier_attention._MEANS}
  cells = [
    {**place, "trials": 2, "reached": 1, **means},
    {**place, "trials": 2, "reached": 0},
  ]
  shown = fourier_attention.table(cells)
  columns = {column.header: list(column.cells) for column in shown.columns}
  assert [columns[head][0] for head in ("T", "n", "degree", "k", "got there")] == [
    "12", "32", "2", "3", "1 of 2",
  ]  # fmt: skip
  assert columns["mean of"][:2] == ["share", "share random"]
  assert columns[""][0] == "0.10 [0.00, 0.20]"
  assert columns["got there"][-1] == "0 of 2"


def test_preset_says_what_it_is():
  check_preset_says_what_it_is(ROOT / "experiments/flags/fourier_attention.cfg")


def run(module, *arguments):
  command = [sys.executable, "-m", f"experiments.{module}", *arguments]
  return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.slow
def test_the_program_end_to_end(tmp_path):
  trained = tmp_path / "trained"
  settings = (
    "--lengths=4", "--degrees=1", "--components=1", "--num_trials=2",
    "--sample_size=16", "--max_steps=800", "--batch_size=16",
  )  # fmt: skip
  models = "--models=channel:mlp_width=8:read_bits=false"
  done = run("fourier_generalisation", models, *settings, f"--output_dir={trained}")
  assert done.returncode == 0, done.stderr
  inside = tmp_path / "inside"
  done = run("fourier_attention", f"--run={trained}", f"--output_dir={inside}")
  assert done.returncode == 0, done.stderr
  rows = list(csv.DictReader((inside / "attention.csv").open()))
  assert len(rows) == 2
  summary = json.loads((inside / "summary.json").read_text())
  assert [cell["trials"] for cell in summary] == [2]
  for cell in summary:
    own = [
      float(row["attention_overlap"])
      for row in rows
      if all(row[k] == str(cell[k]) for k in ("model", "degree"))
      and row["outcome"] == "reached"
    ]
    assert cell["reached"] == len(own)
    if own:
      assert cell["attention_overlap"][0] == pytest.approx(np.mean(own))
  assert sum(cell["reached"] for cell in summary) > 0
  assert (inside / "figure.png").read_bytes().startswith(b"\x89PNG")
  other = tmp_path / "other"
  run("fourier_generalisation", "--models=minimal", *settings, f"--output_dir={other}",
      "--num_trials=1", "--max_steps=40")  # fmt: skip
  refused = run("fourier_attention", f"--run={other}", f"--output_dir={tmp_path / 'x'}")
  assert refused.returncode == 2
  assert "takes a run of --models=channel" in refused.stderr
