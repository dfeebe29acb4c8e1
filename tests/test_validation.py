"""Trials on fixed samples of which a part chooses the check that counts."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import sepfx
from sepfx import measure, precision
from sepfx.errors import InvalidSetting
from sepfx.measuring import growth
from sepfx.records.agreement import contradiction
from sepfx.tasks import QSTR, SparseBoolean
from sepfx.training import ERM, Seeds
from tests import small


class Logistic(nn.Module):
  """The smallest classifier of bits."""

  @nn.compact
  def __call__(self, bits):
    return nn.Dense(2)(2.0 * bits - 1.0)


TASK = QSTR(length=3, token_dim=2)
PROTOCOL = ERM(
  sample_size=42,
  threshold=0.2,
  optimizer=optax.adam(3e-2),
  check_every=5,
  num_test=300,
  max_steps=60,
  validation=0.25,
)
TRIAL = PROTOCOL.trial(TASK, TASK, small.Linear())


def seeds(k=0):
  return Seeds(jax.random.key(k), jax.random.key(100 + k))


def ended(trial, own):
  """The state at the end, and how often it advanced."""
  state, world = trial.init(own), trial.world(own)
  advance, checks = jax.jit(trial.advance), 0
  while state.active:
    state, checks = advance(state, world), checks + 1
  return state, checks


@precision.exact()
def plain_trial(trial, own):
  """Gradient steps on the first samples alone; (test, validation) errors at checks."""
  protocol = trial.protocol
  weights_key, data_key, test_key, _ = jax.random.split(own.trial, 4)
  sample_key, _ = jax.random.split(data_key)
  planted = trial.task.init(own.task)
  whole = trial.task.sample(sample_key, planted, protocol.sample_size)
  test = trial.task.sample(test_key, planted, protocol.num_test)
  held = int(protocol.validation * protocol.sample_size)
  train, validation = (
    jax.tree.map(lambda a, part=part: a[part], whole)
    for part in (slice(-held), slice(-held, None))
  )

  def risk(params, sample):
    outputs = trial.model.apply({"params": params}, trial.task.encode(planted, sample))
    return jnp.mean((outputs - sample.labels) ** 2)

  params = trial.model.init(weights_key, trial.task.encode(planted, train))["params"]
  state, found = protocol.optimizer.init(params), []
  for step in range(1, protocol.max_steps + 1):
    gradient = jax.grad(risk)(params, train)
    updates, state = protocol.optimizer.update(gradient, state, params)
    params = optax.apply_updates(params, updates)
    if step % protocol.check_every == 0:
      found.append((risk(params, test), risk(params, validation)))
  return np.array(found)


@pytest.mark.parametrize("k", range(3))
def test_trial_is_a_plain_loop_over_the_part_to_train_on(k):
  plain = plain_trial(TRIAL, seeds(k))
  state, checks = ended(TRIAL, seeds(k))
  assert checks == PROTOCOL.num_checks == 12
  curve = TRIAL.curve(state)
  both = np.stack([curve["test_error"], curve["validation_error"]], axis=-1)
  np.testing.assert_allclose(both, plain, rtol=2e-4)
  at = np.argmin(plain[:, 1])
  (verdict,) = TRIAL.outcomes(state)
  np.testing.assert_allclose(verdict.best, plain[at, 0], rtol=2e-4)


def test_thirty_two_of_forty_two_samples_are_trained_on():
  assert PROTOCOL.num_training == 32
  world = TRIAL.world(seeds())
  assert len(world.sample.labels) == 32
  assert len(world.validation.labels) == 10
  assert TRIAL.samples_a_step == 32
  whole = ERM(sample_size=42).trial(TASK, TASK, small.Linear()).world(seeds())
  assert whole.validation is None
  both = np.concatenate([world.sample.labels, world.validation.labels])
  np.testing.assert_array_equal(both, whole.sample.labels)
  assert ERM(sample_size=2, validation=0.1).num_training == 1


def decided(test, validation):
  """What a trial with these curves says, on the device and read back."""
  protocol = ERM(
    sample_size=8, threshold=0.5, check_every=5, max_steps=20, validation=0.25
  )
  trial = protocol.trial(TASK, TASK, small.Linear())
  state = trial.init(seeds())
  for own in zip(test, validation, strict=True):
    point = trial._curve(own[0], 0.0, 0.0, 0.0, own[1])
    point = type(point)(*map(jnp.float32, point))
    state = state._replace(step=state.step + 5)
    state = trial.record(state, trial._decisive(state, point), point)
    if not state.active:
      break
  (verdict,) = trial.outcomes(state)
  curve = trial.curve(state)
  again = trial.outcomes(trial.report_of(curve, int(state.diverged_at)))
  assert str(again) == str([verdict])
  assert contradiction(trial, curve, [tuple(verdict)]) == (-1, "")
  return verdict


def test_the_check_with_the_least_validation_error_counts():
  # Below the threshold at the third check alone, which validation does not choose.
  verdict = decided([0.9, 0.8, 0.4, 0.6], [0.9, 0.8, 0.7, 0.6])
  assert verdict == (pytest.approx(0.6), 20, "censored")
  # Validation chooses it: the trial goes on to its end and has succeeded.
  verdict = decided([0.9, 0.8, 0.4, 0.6], [0.9, 0.8, 0.5, 0.6])
  assert verdict == (pytest.approx(0.4), 20, "reached")
  # Of equal ones the first.
  assert decided([0.4, 0.6, 0.6, 0.6], [0.5, 0.5, 0.5, 0.5]).outcome == "reached"


@pytest.mark.parametrize("where", ["test", "validation"])
@pytest.mark.parametrize("check", [1, 3])
def test_a_trial_that_diverges_has_not_succeeded(where, check):
  curves = {"test": [0.4] * 4, "validation": [0.5] * 4}
  curves[where][check] = np.nan
  verdict = decided(**curves)
  assert verdict == (pytest.approx(0.4), 5 * (check + 1), "diverged")


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    ({"validation": 1.0}, "validation: got 1.0, takes a share from 0 to below 1"),
    ({"validation": -0.1}, "validation: got -0.1"),
    ({"validation": 0.5, "sample_size": 1}, "of which a sample is left to train on"),
    (
      {"validation": 0.5, "watched": "train_loss"},
      "watched: got 'train_loss', takes test",
    ),
    (
      {"validation": 0.25, "sample_size": 8, "batch_size": 7},
      "batch_size: got 7, takes an integer from 1 to the samples to train on, 6,",
    ),
  ],
)
def test_bad_shares_are_refused(settings, message):
  with pytest.raises(InvalidSetting, match=message):
    ERM(**settings)


def test_batches_are_of_the_part_to_train_on():
  protocol = ERM(sample_size=8, validation=0.25, batch_size=2, check_every=1, max_steps=6)
  trial = protocol.trial(TASK, TASK, small.Linear())
  world = trial.world(seeds())
  rows = np.asarray(trial.rows(world, jnp.arange(3)))
  assert sorted(rows.ravel()) == list(range(6))


def test_records_and_directories(tmp_path):
  """Rows follow from the curves that are kept; a larger budget is refused."""

  def call(protocol=PROTOCOL):
    return measure(
      TASK, [small.Linear()], [3], protocol, axes={"sample_size": [8, 200]},
      num_trials=3, directory=tmp_path, progress=False,
    )  # fmt: skip

  found = call()
  assert set(found.table["outcome"]) <= {"reached", "censored"}
  assert {row["steps"] for row in found.table} == {60}
  read = sepfx.load(tmp_path)
  for row in read.table:
    curve = read.all_curves[read.name_of(row)]
    at = np.argmin(curve["validation_error"])
    assert row["risk"] == pytest.approx(curve["test_error"][at], rel=1e-6)
    assert (row["outcome"] == "reached") == (curve["test_error"][at] < 0.2)
  np.testing.assert_array_equal(call().table, found.table)
  longer = dataclasses.replace(PROTOCOL, max_steps=120)
  with pytest.raises(InvalidSetting, match="its trials run to the end"):
    call(longer)


def test_directories_of_before_had_no_validation():
  here = {"seed": 0, "protocol": {"matmul_precision": "float32", "validation": 0.0}}
  there = {"seed": 0, "protocol": {}}
  assert growth.fixed(here) == growth.fixed(there)
  assert growth.identity(here) == growth.identity(there)
  other = {"seed": 0, "protocol": {"validation": 0.25}}
  assert growth.fixed(other) != growth.fixed(there)
  assert growth.identity(other) != growth.identity(there)


def test_classifiers_too():
  task = SparseBoolean(length=6, sparsity=2)
  protocol = ERM(sample_size=60, threshold=0.3, max_steps=20, validation=0.25,
                 optimizer=optax.adam(3e-2), num_test=200)  # fmt: skip
  trial = protocol.trial(task, task, Logistic())
  state, _ = ended(trial, seeds())
  curve = trial.curve(state)
  at = np.argmin(curve["validation_error"])
  (verdict,) = trial.outcomes(state)
  assert verdict.best == pytest.approx(1 - curve["test_error"][at])
