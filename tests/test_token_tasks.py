"""Tasks of tokens: what they draw, beside their definitions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import sepfx
from sepfx import Online
from sepfx.errors import InvalidSetting
from sepfx.models.mixers import Backbone
from sepfx.tasks.tokens import MQAR, Sequences, token_objective
from sepfx.tasks.tokens.recall import distinct


def test_objective_is_of_the_answers_alone():
  logits = jnp.log(jnp.array([[[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]]] * 2))
  labels = jnp.array([[0, 0], [1, -1]])
  own = token_objective(3)
  losses = own.loss(logits, labels)
  np.testing.assert_allclose(losses, -np.log([np.sqrt(0.5 * 0.1), 0.25]), rtol=1e-6)
  np.testing.assert_allclose(own.error(logits, labels), [0.5, 1.0])
  assert own.output_shape((7, 2)) == (7, 2, 3)
  nothing = own.loss(logits, jnp.full((2, 2), -1))
  np.testing.assert_allclose(nothing, 0.0)


def test_distinct_numbers_are_all_orders_alike():
  found = np.asarray(distinct(jax.random.key(0), (20_000, 2), 4))
  assert set(found.ravel().tolist()) == set(range(4))
  assert np.all(found[:, 0] != found[:, 1])
  _, counts = np.unique(found, axis=0, return_counts=True)
  assert len(counts) == 12
  assert scipy.stats.chisquare(counts).pvalue > 1e-3
  whole = np.sort(np.asarray(distinct(jax.random.key(1), (50, 6), 6)), axis=1)
  assert np.all(whole == np.arange(6))


@pytest.mark.parametrize("random_rest", [False, True])
def test_mqar_asks_for_the_value_of_each_key(random_rest):
  task = MQAR(length=32, num_pairs=5, vocabulary=64, random_rest=random_rest)
  tokens, asked, labels = map(np.asarray, task.draw(jax.random.key(0), 200))
  assert tokens.shape == (200, 32)
  assert tokens.min() >= 0
  assert tokens.max() < 64
  keys, values = tokens[:, 0:10:2], tokens[:, 1:10:2]
  assert np.all((keys >= 1) & (keys < 32))
  assert np.all((values >= 32) & (values < 64))
  for row in range(200):
    assert len(set(keys[row])) == len(set(values[row])) == len(set(asked[row])) == 5
    value_of = dict(zip(keys[row].tolist(), values[row].tolist(), strict=True))
    there = tokens[row, asked[row]].tolist()
    assert [value_of[key] for key in there] == labels[row].tolist()
  assert np.all((asked >= 10) & (asked % 2 == 0))
  rest = np.ones(tokens.shape, bool)
  rest[:, :10] = False
  np.put_along_axis(rest, asked, False, axis=1)
  assert np.all(tokens[rest] == 0) != random_rest


@pytest.mark.parametrize("power", [0.01, 1.0])
def test_distances_of_mqar_are_those_of_numbers_drawn_one_by_one(power):
  """With the weights of the published generator, no two alike."""
  task = MQAR(length=24, num_pairs=3, vocabulary=64, power=power)
  n, places = 20_000, 9
  asked = np.asarray(task.draw(jax.random.key(0), n).asked)
  gaps = (asked - 6) // 2
  weights = np.arange(1, places + 1) ** (power - 1)
  weights /= weights.sum()
  first = np.bincount(gaps[:, 0], minlength=places)
  assert scipy.stats.chisquare(first, n * weights).pvalue > 1e-3
  # Given the first, the second is one of the others.
  left = np.where(np.eye(places, dtype=bool), 0, weights)
  second = weights @ (left / left.sum(axis=1, keepdims=True))
  found = np.bincount(gaps[:, 1], minlength=places)
  assert scipy.stats.chisquare(found, n * second).pvalue > 1e-3


@pytest.mark.parametrize(
  ("fields", "what"),
  [
    ({"length": 63}, "length"),
    ({"num_pairs": 17}, "num_pairs"),
    ({"vocabulary": 64}, "vocabulary"),
    ({"vocabulary": 101}, "vocabulary"),
    ({"power": 0.0}, "power"),
  ],
)
def test_bad_settings_of_mqar_are_refused(fields, what):
  with pytest.raises(InvalidSetting, match=what):
    MQAR(**fields)


def test_a_model_that_gives_no_logits_is_refused():
  task = MQAR(length=8, num_pairs=1, vocabulary=10)
  with pytest.raises(InvalidSetting, match=r"\[2, 8\] and \[2, 1\].*\[2, 1, 10\]"):
    sepfx.measure(task, Backbone(vocabulary=10, num_outputs=3), 8, num_trials=1)


@pytest.mark.slow
@pytest.mark.parametrize("mixer", ["attention", "delta"])
def test_mqar_is_learned(mixer):
  task = MQAR(length=16, num_pairs=2, vocabulary=32)
  model = Backbone(mixer, vocabulary=32, width=32, mlp_width=0, convolution=3)
  protocol = Online(
    thresholds=(0.1,), optimizer=sepfx.training.AdamW(1e-2), check_every=20, num_test=500,
    max_samples=100_000,
  )  # fmt: skip
  records = sepfx.measure(task, model, 16, protocol, num_trials=2, progress=False)
  assert set(records.table["outcome"]) == {"reached"}


def test_a_sample_can_be_read_without_this_library():
  tokens, asked, labels = MQAR(length=8, num_pairs=1, vocabulary=10).draw(
    jax.random.key(0), 3
  )
  assert isinstance(Sequences(tokens, asked, labels), tuple)
  assert {np.asarray(own).dtype.kind for own in (tokens, asked, labels)} == {"i"}
