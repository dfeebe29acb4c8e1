"""One trial against a plain loop, and the risks against sums."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sepfx.errors import InvalidSetting
from sepfx.training import (
  Online,
  OnlineTrial,
  averaged_risk,
  pointwise_risk,
  population_risk,
  prompt_errors,
)
from tests import small


def plain_trial(trial, own):
  """The published protocol step by step: every evaluation in full, nothing clever.

  Returns first passages {threshold: samples} and the test losses.
  """
  protocol, task, model = trial.protocol, trial.task, trial.model
  weights_key, data_key, test_key, _ = jax.random.split(own.trial, 4)
  planted = task.init(own.task)
  # The sampler pads the test set to whole chunks; its first prompts are the test set.
  padded = -(-protocol.num_test // 125) * 125
  test = trial.test_task.sample(test_key, planted, padded)
  test = jax.tree.map(lambda a: a[: protocol.num_test], test)
  test_inputs = trial.test_task.encode(planted, test)
  params = model.init(weights_key, test_inputs[:1])["params"]
  optimizer_state = protocol.optimizer.init(params)

  @jax.jit
  def step(params, optimizer_state, key):
    sample = task.sample(key, planted, protocol.batch_size)
    inputs = task.encode(planted, sample)

    def loss(params):
      return jnp.mean((model.apply({"params": params}, inputs) - sample.labels) ** 2)

    updates, new = protocol.optimizer.update(
      jax.grad(loss)(params), optimizer_state, params
    )
    return optax.apply_updates(params, updates), new

  first, losses, samples = {}, [], 0
  predict = jax.jit(lambda params: model.apply({"params": params}, test_inputs))
  while samples < protocol.max_samples and len(first) < len(protocol.thresholds):
    for _ in range(protocol.check_every):
      key = jax.random.fold_in(data_key, samples // protocol.batch_size)
      params, optimizer_state = step(params, optimizer_state, key)
      samples += protocol.batch_size
    losses.append(float(np.mean((predict(params) - test.labels) ** 2)))
    for threshold in protocol.thresholds:
      if losses[-1] < threshold:
        first.setdefault(threshold, samples)
  return first, losses


@pytest.mark.slow
def test_trial_is_the_published_protocol():
  own = small.seeds(1)
  first, losses = plain_trial(small.TRIAL, own)
  assert len(first) == 2  # both thresholds are reached, or this tests little
  screened = small.run_to_end(small.TRIAL, own)
  full_trial = dataclasses.replace(
    small.TRIAL, protocol=dataclasses.replace(small.PROTOCOL, screen=False)
  )
  full = small.run_to_end(full_trial, own)
  for state in (screened, full):
    assert {p.threshold: p.samples for p in small.TRIAL.outcomes(state)} == first
    assert all(p.outcome == "reached" for p in small.TRIAL.outcomes(state))
  recorded = small.TRIAL.curve(full)
  np.testing.assert_allclose(recorded["loss"], losses, rtol=2e-3)
  assert recorded["exact"].all()
  per_check = small.PROTOCOL.batch_size * small.PROTOCOL.check_every
  np.testing.assert_array_equal(
    recorded["samples"], per_check * np.arange(1, len(losses) + 1)
  )
  # The screen saves evaluations, its estimates are close and above what is open.
  estimated = small.TRIAL.curve(screened)
  assert not estimated["exact"].all()
  np.testing.assert_allclose(estimated["loss"], losses, rtol=0.1)
  np.testing.assert_allclose(
    estimated["loss"][estimated["exact"]], recorded["loss"][estimated["exact"]], rtol=1e-5
  )


@pytest.mark.slow  # test_golden_trials.py holds the same on fewer prompts
def test_first_passage_is_a_scan_of_the_curve():
  state = small.run_to_end(small.TRIAL, small.seeds(2))
  own = small.TRIAL.curve(state)
  for passage in small.TRIAL.outcomes(state):
    below = [
      s
      for s, loss in zip(own["samples"], own["loss"], strict=True)
      if loss < passage.threshold
    ]
    assert passage.outcome == "reached"
    assert passage.samples == below[0]


@pytest.mark.parametrize(
  ("diverged_at", "crossings"), [(0, [10, 15]), (12, [10, 0]), (7, [0, 0])]
)
def test_a_report_follows_from_its_curve(diverged_at, crossings):
  """The first check below each threshold, unless a number was not finite before it."""
  curve = small.losses([80, 160, 240], [0.95, 0.85, 0.5], [True] * 3)
  report = small.TRIAL.report_of(curve, diverged_at)
  assert report.crossings.tolist() == crossings
  assert (report.step, report.checks, report.active) == (15, 3, False)
  np.testing.assert_array_equal(small.TRIAL.curve(report), curve)
  outcomes = [outcome.outcome for outcome in small.TRIAL.outcomes(report)]
  unreached = "diverged" if diverged_at else "censored"
  assert outcomes == ["reached" if own else unreached for own in crossings]


@pytest.mark.slow  # likewise
def test_censored_at_the_budget():
  protocol = dataclasses.replace(
    small.PROTOCOL, thresholds=(0.9, 1e-6), max_samples=16 * 5 * 12 + 70
  )
  trial = dataclasses.replace(small.TRIAL, protocol=protocol)
  state = small.run_to_end(trial, small.seeds(0))
  reached, censored = trial.outcomes(state)
  assert reached.outcome == "reached"
  # The last check that fits in the budget.
  assert censored == (1e-6, 16 * 5 * 12, "censored")
  assert len(trial.curve(state)) == 12


@pytest.mark.slow
def test_diverged_is_its_own_outcome():
  # A step size that explodes after 17 steps, in the middle of the fourth check.
  schedule = optax.join_schedules(
    [optax.constant_schedule(5e-3), optax.constant_schedule(1e30)], [17]
  )
  protocol = dataclasses.replace(
    small.PROTOCOL, thresholds=(1.3, 1e-6), optimizer=optax.sgd(schedule)
  )
  trial = dataclasses.replace(small.TRIAL, protocol=protocol)
  state = small.run_to_end(trial, small.seeds(0))
  reached, diverged = trial.outcomes(state)
  assert reached.outcome == "reached"
  assert reached.samples <= 16 * 15
  assert diverged.outcome == "diverged"
  assert 16 * 17 < diverged.samples <= 16 * 20
  assert state.checks == 4
  # The step of the first bad loss, not the one at which all of it was noticed; and what
  # is below a threshold afterwards is no passage.
  world, own = trial.world(small.seeds(0)), small.seeds(0)
  begun = trial.init(own)
  exploded = trial.train(begun, world, 20)
  assert 17 < int(exploded.diverged_at) < 20
  point = exploded.curve._replace(loss=jnp.float32(0.1), exact=jnp.array(True))
  later = trial.record(exploded, jnp.float32(0.1), point)
  assert not later.crossings.any()
  again = trial.record(exploded, jnp.float32(jnp.nan), point)
  assert again.diverged_at == exploded.diverged_at


@pytest.mark.slow
def test_risks():
  task = small.TASK
  planted = task.init(jax.random.key(0))
  labels = np.asarray(task.sample(jax.random.key(1), planted, 7).labels)
  predictions = np.asarray(jax.random.normal(jax.random.key(2), labels.shape))
  n, length = labels.shape
  errors = [
    sum((predictions[i, j] - labels[i, j]) ** 2 for j in range(length)) / length
    for i in range(n)
  ]
  np.testing.assert_allclose(prompt_errors(predictions, labels), errors, rtol=1e-5)
  np.testing.assert_allclose(
    averaged_risk(predictions, labels), sum(errors) / n, rtol=1e-5
  )
  # (2.3) reads one position a prompt; over many draws its mean is (2.2).
  keys = jax.random.split(jax.random.key(3), 4000)
  drawn = jax.vmap(pointwise_risk, (0, None, None))(keys, predictions, labels)
  squares = (predictions - labels) ** 2
  smallest, largest = squares.min(axis=1).mean(), squares.max(axis=1).mean()
  assert np.all((drawn >= smallest * 0.999) & (drawn <= largest * 1.001))
  np.testing.assert_allclose(
    np.mean(drawn), averaged_risk(predictions, labels), rtol=0.05
  )
  # (2.1) of the zero predictor is Var(y).
  risk = population_risk(
    jax.random.key(4), lambda inputs: jnp.zeros(inputs.shape[:2]), task, planted, 20_000
  )
  np.testing.assert_allclose(risk, 1.0, rtol=0.05)


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    ({"thresholds": ()}, "thresholds: got"),
    ({"thresholds": 0.7}, "thresholds: got 0.7, takes several"),
    ({"thresholds": (0.5, -1.0)}, "thresholds: got -1.0"),
    ({"thresholds": (float("nan"),)}, "thresholds: got nan"),
    ({"batch_size": 0}, "batch_size: got 0"),
    ({"check_every": 0}, "check_every: got 0"),
    ({"num_test": 0}, "num_test: got 0"),
    ({"max_samples": 639}, "max_samples: got 639, takes at least .* 640"),
  ],
)
def test_bad_protocols_are_refused(settings, message):
  with pytest.raises(InvalidSetting, match=message):
    Online(**settings)


def test_thresholds_are_sorted_once_each():
  assert Online(thresholds=(0.1, 0.7, 0.1)).thresholds == (0.7, 0.1)


class WrongShape(small.Linear):
  def __call__(self, inputs):
    return inputs


class WithStatistics(nn.Module):
  @nn.compact
  def __call__(self, inputs):
    return nn.BatchNorm(use_running_average=False)(inputs)[..., 0]


class Raises(small.Linear):
  def __call__(self, inputs):
    raise TypeError("no such thing")


@pytest.mark.parametrize(
  ("model", "message"),
  [
    (WrongShape(), r"maps inputs \[2, 3, 8\|12\] to .*it gave"),
    (WithStatistics(), "also has batch_stats"),
    (Raises(), r"it raised: TypeError: no such thing in test_training.py, line \d+\)"),
  ],
)
def test_models_that_do_not_fit_are_refused(model, message):
  message = message.replace("8\\|12", str(small.TASK.input_dim))
  trial = OnlineTrial(small.TASK, small.TASK, model, small.PROTOCOL, "mine")
  with pytest.raises(InvalidSetting, match=message):
    trial.check()
