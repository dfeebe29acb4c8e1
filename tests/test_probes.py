"""Probes against what they measure, written plainly."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sepfx
from sepfx import probes
from sepfx.errors import InvalidSetting
from sepfx.models import FeedForward, OnBits
from sepfx.models.mixers import Backbone
from sepfx.tasks import QSTR, SparseBoolean, shared
from sepfx.tasks.tokens import MQAR, Memorisation
from tests import small

FFN = FeedForward((7, 5))
FIXED = sepfx.ERM(sample_size=4, threshold=1e-9, l2=0.01, num_test=50)
TRIAL = FIXED.trial(small.TASK, small.TASK, FFN)


def ended(trial):
  own = small.seeds(0)
  return trial.init(own).params, trial.world(own), jax.random.key(5)


@pytest.mark.slow
def test_norms():
  params, world, key = ended(TRIAL)
  found = probes.norms(TRIAL, params, world, key)
  kernel = np.linalg.norm(params["Dense_0"]["kernel"])
  assert found["norm_Dense_0_kernel"] == pytest.approx(kernel, rel=1e-6)
  flat = np.concatenate([a.ravel() for a in jax.tree.leaves(params)])
  assert found["norm"] == pytest.approx(np.linalg.norm(flat), rel=1e-6)


@pytest.mark.slow
def test_gradient_is_of_what_is_minimised():
  params, world, key = ended(TRIAL)
  found = probes.gradient(TRIAL, params, world, key)
  inputs = small.TASK.encode(world.planted, world.sample)

  def loss(params):
    errors = (FFN.apply({"params": params}, inputs) - world.sample.labels) ** 2
    return jnp.mean(errors) + 0.01 * sum(jnp.sum(a**2) for a in jax.tree.leaves(params))

  assert found["training_loss"] == pytest.approx(float(loss(params)), rel=1e-5)
  gradient = jnp.concatenate([a.ravel() for a in jax.tree.leaves(jax.grad(loss)(params))])
  norm = float(jnp.linalg.norm(gradient))
  assert found["gradient_norm"] == pytest.approx(norm, rel=1e-4)


@pytest.mark.slow
def test_clipped_keeps_predictions_within_a_range():
  params, world, key = ended(TRIAL)
  found = probes.build("clipped:at=0.25")(TRIAL, params, world, key)
  inputs = small.TASK.encode(world.planted, world.test)
  outputs = np.asarray(FFN.apply({"params": params}, inputs))
  labels = np.asarray(world.test.labels)
  kept = np.where(outputs > 0.25, 0.25, np.where(outputs < -0.25, -0.25, outputs))
  assert 0 < found["clipped_share"] < 1
  assert found["clipped_share"] == pytest.approx(np.mean(kept != outputs))
  risks = [float(found[name]) for name in ("unclipped_risk", "clipped_risk")]
  plain = [np.mean((own - labels) ** 2) for own in (outputs, kept)]
  assert risks == pytest.approx(plain, rel=1e-5)
  assert risks[0] != pytest.approx(risks[1], rel=1e-5)


def test_clipped_is_of_numbers():
  with pytest.raises(InvalidSetting, match="takes a positive number"):
    probes.build("clipped:at=0.0")
  bits = SparseBoolean(length=9)
  trial = FIXED.trial(bits, bits, OnBits(FFN))
  with pytest.raises(InvalidSetting, match="takes a task whose labels are numbers"):
    probes.combined(["clipped"], [trial])


@pytest.mark.slow
def test_risk_on_another_distribution_and_length():
  trial = small.TRIAL
  params, world, key = ended(trial)
  other = probes.build("risk:indices=shared:num_samples=700")
  (name, value), *rest = other(trial, params, world, key).items()
  assert (name, rest) == ("risk_indices_shared", [])
  _, sample_key = jax.random.split(key)
  task = dataclasses.replace(small.TASK, indices=shared)
  sample = task.sample(sample_key, world.planted, 700)
  outputs = trial.model.apply({"params": params}, task.encode(world.planted, sample))
  np.testing.assert_allclose(value, np.mean((outputs - sample.labels) ** 2), rtol=1e-4)
  # Longer prompts, with the same u and codes of their own; D must not follow N.
  task = QSTR(length=3, token_dim=2, code_dim=4)
  trial = dataclasses.replace(trial, task=task, test_task=task)
  params, world, key = ended(trial)
  longer = probes.risk(length=5, num_samples=300)(trial, params, world, key)
  drawn_key, sample_key = jax.random.split(key)
  task = dataclasses.replace(task, length=5)
  planted = task.init(drawn_key)._replace(link=world.planted.link)
  codes = planted.codes.at[:3].set(world.planted.codes)
  planted = planted._replace(codes=codes)
  sample = task.sample(sample_key, planted, 300)
  outputs = trial.model.apply({"params": params}, task.encode(planted, sample))
  expected = np.mean((outputs - sample.labels) ** 2)
  np.testing.assert_allclose(longer["risk_length_5"], expected, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("places", ["first", "random"])
def test_risk_at_other_lengths_has_the_trials_codes(places):
  task = QSTR(length=3, token_dim=2, max_length=6, places=places)
  trial = small.PROTOCOL.trial(task, task, small.MODEL)
  params, world, key = ended(trial)
  found = probes.risk(length=6, num_samples=300)(trial, params, world, key)
  _, sample_key = jax.random.split(key)
  longer = dataclasses.replace(task, length=6)
  sample = longer.sample(sample_key, world.planted, 300)
  outputs = trial.model.apply({"params": params}, longer.encode(world.planted, sample))
  expected = np.mean((outputs - sample.labels) ** 2)
  np.testing.assert_allclose(found["risk_length_6"], expected, rtol=1e-4)


def test_lengths_that_a_risk_cannot_be_measured_at():
  codes = QSTR(length=3, token_dim=2, max_length=6)
  plain = QSTR(length=3, token_dim=2)
  for task, model, length, message in (
    (
      codes,
      small.MODEL,
      7,
      r"probes: got 'risk:length=7', takes .* here 7, to .* as max_length \(it has 6\)",
    ),
    (
      codes,
      FeedForward((5,)),
      6,
      "risk_length_6 of FeedForward.*whose parameters do not depend on the length",
    ),
    (plain, small.MODEL, 6, "tokens have 12 numbers at that length, too: set max_le"),
  ):
    trial = small.PROTOCOL.trial(task, task, model)
    with pytest.raises(InvalidSetting, match=message):
      probes.combined(f"risk:length={length}", [trial])


@pytest.mark.slow
def test_risk_at_another_difficulty():
  task = MQAR(length=16, num_pairs=1, vocabulary=20)
  model = Backbone("min_gru", vocabulary=20, width=8)
  trial = sepfx.Online(thresholds=(0.1,), num_test=50).trial(task, task, model)
  params, world, key = ended(trial)
  probe = probes.build("risk:num_pairs=3:random_rest=false:num_samples=200")
  (found,) = probe(trial, params, world, key).values()
  _, sample_key = jax.random.split(key)
  tokens, asked, labels = dataclasses.replace(task, num_pairs=3).draw(sample_key, 200)
  assert asked.shape == (200, 3)
  logits = model.apply({"params": params}, (tokens, asked))
  wrong = np.mean(np.argmax(logits, axis=-1) != labels)
  assert wrong > 0.5
  np.testing.assert_allclose(found, wrong, rtol=1e-6)


@pytest.mark.slow
def test_risk_at_another_difficulty_has_what_is_planted():
  task = Memorisation(length=8, vocabulary=16)
  model = Backbone("min_gru", vocabulary=16, width=8)
  trial = sepfx.Online(thresholds=(0.1,), num_test=50).trial(task, task, model)
  params, world, key = ended(trial)
  found = probes.risk(length=12, num_samples=200)(trial, params, world, key)
  _, sample_key = jax.random.split(key)
  longer = dataclasses.replace(task, length=12)
  sample = longer.sample(sample_key, world.planted, 200)
  tokens, asked = longer.encode(world.planted, sample)
  logits = model.apply({"params": params}, (tokens, asked))
  wrong = np.mean(np.argmax(logits, axis=-1) != sample.labels)
  np.testing.assert_allclose(found["risk_length_12"], wrong, rtol=1e-6)


def test_a_probe_is_checked_on_settings_that_are_data():
  """As a run has them: so what passes the check fails at no trial's end."""

  def doubled(trial, params, world, key):
    return {"doubled": 2.0 if trial.test_task.noise > 0.1 else 0.0}

  task = SparseBoolean(length=9, noise=0.2)
  trial = FIXED.trial(task, task, OnBits(FeedForward((6,), num_outputs=2)))
  with pytest.raises(
    InvalidSetting, match=r"doubled.*raised: TracerBoolConversionError: Attempted boolean"
  ):
    probes.combined([doubled], [trial])


@pytest.mark.parametrize(
  ("fields", "says"),
  [
    ("vocabulary=24", "got 'risk_vocabulary_24 of .*takes a task with the vocabulary of"),
    ("num_pairs=5", "got 'risk:num_pairs=5', takes an integer from 1 to 4"),
    ("num_pairs=few", "got 'risk:num_pairs=few', takes an integer"),
    ("pairs=2", "got 'risk:pairs', takes .* a field of the task mqar: length, num_pairs"),
  ],
)
def test_difficulties_that_a_risk_cannot_be_measured_at(fields, says):
  task = MQAR(length=16, num_pairs=1, vocabulary=20)
  model = Backbone("min_gru", vocabulary=20, width=8)
  trial = sepfx.Online(thresholds=(0.1,), num_test=50).trial(task, task, model)
  with pytest.raises(InvalidSetting, match=says):
    probes.combined(f"risk:{fields}", [trial])


@pytest.mark.slow
def test_share_of_the_first_layer_in_the_span():
  params, world, key = ended(TRIAL)
  inputs = np.asarray(small.TASK.encode(world.planted, world.sample)).reshape(4, -1)
  kernel = np.asarray(params["Dense_0"]["kernel"])
  projection = np.linalg.pinv(inputs) @ inputs
  share = np.sum((projection @ kernel) ** 2) / np.sum(kernel**2)
  assert 0.05 < share < 0.95
  found = probes.span(TRIAL, params, world, key)["span_share"]
  assert found == pytest.approx(share, rel=1e-4)
  inside = {**params, "Dense_0": {**params["Dense_0"], "kernel": projection @ kernel}}
  assert probes.span(TRIAL, inside, world, key)["span_share"] == pytest.approx(
    1, rel=1e-4
  )


@pytest.mark.slow
def test_span_is_of_what_the_layer_is_given():
  task = SparseBoolean(length=9)
  trial = FIXED.trial(task, task, OnBits(FeedForward((6,), num_outputs=2)))
  params, world, key = ended(trial)
  kernel = np.asarray(params["model"]["Dense_0"]["kernel"])
  inputs = 2.0 * np.asarray(world.sample.bits) - 1
  projection = np.linalg.pinv(inputs) @ inputs
  share = np.sum((projection @ kernel) ** 2) / np.sum(kernel**2)
  found = probes.span(trial, params, world, key)["span_share"]
  assert found == pytest.approx(share, rel=1e-4)


@pytest.mark.slow
def test_values_are_of_the_trials_end_and_nan_where_it_diverged():
  protocol = sepfx.ERM(
    sample_size=8, threshold=1e-9, num_test=50, max_steps=20, optimizer=sepfx.AdamW(1e-2)
  )
  found = sepfx.measure(
    small.TASK, small.Linear(), 3, protocol, num_trials=2,
    axes={"learning_rate": [1e-2, 1e38]}, probes=["gradient", "norms"],
  )  # fmt: skip
  assert found.probes["trial"].tolist() == [0, 1, 0, 1]
  diverged = found.table["outcome"] == "diverged"
  assert diverged.tolist() == [False, False, True, True]
  np.testing.assert_array_equal(np.isnan(found.probes["norm"]), diverged)
  # Without a penalty what is minimised is the loss that the curve ends with.
  ends = [curve["train_loss"][-1] for curve in found.curves(learning_rate=1e-2)]
  np.testing.assert_allclose(found.probes["training_loss"][:2], ends, rtol=1e-5)
