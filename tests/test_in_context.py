"""Linear regression in context, beside its definition."""

import jax
import numpy as np
import pytest

import sepfx
from sepfx import Online
from sepfx.errors import InvalidSetting
from sepfx.models.mixers import Backbone
from sepfx.tasks.in_context import LinearInContext

pytestmark = pytest.mark.usefixtures("exact")


def test_labels_are_linear_in_the_points_of_a_sequence():
  task = LinearInContext(length=9, token_dim=4)
  points, labels = map(np.asarray, task.sample(jax.random.key(0), (), 50))
  for own, values in zip(points, labels, strict=True):
    found, *_ = np.linalg.lstsq(own[:4], values[:4], rcond=None)
    np.testing.assert_allclose(own @ found, values, atol=2e-3)


def test_labels_have_a_variance_of_one_and_noise_adds_to_it():
  for noise in (0.0, 0.7):
    task = LinearInContext(length=2, noise=noise)
    labels = np.asarray(task.sample(jax.random.key(0), (), 20_000).labels)
    assert np.mean(labels**2) == pytest.approx(task.best_constant_error(), rel=0.05)


def test_rows_are_points_and_labels_in_turn():
  task = LinearInContext(length=3, token_dim=2)
  sample = task.sample(jax.random.key(0), (), 4)
  rows, asked = map(np.asarray, task.encode((), sample))
  points, labels = map(np.asarray, sample)
  assert rows.shape == (4, 6, 3)
  np.testing.assert_array_equal(rows[:, ::2, :2], points)
  np.testing.assert_array_equal(rows[:, 1::2, 2], labels)
  assert np.all(rows[:, ::2, 2] == 0)
  assert np.all(rows[:, 1::2, :2] == 0)
  np.testing.assert_array_equal(asked, [[0, 2, 4]] * 4)


@pytest.mark.parametrize(
  ("fields", "what"),
  [
    ({"length": 0}, "length"),
    ({"token_dim": 0}, "token_dim"),
    ({"noise": -1.0}, "noise"),
  ],
)
def test_bad_settings_are_refused(fields, what):
  with pytest.raises(InvalidSetting, match=what):
    LinearInContext(**fields)


@pytest.mark.slow
def test_it_is_learned():
  """In one dimension the second label follows from the first."""
  protocol = Online(
    thresholds=(0.75,), optimizer=sepfx.training.AdamW(3e-3), check_every=20,
    num_test=500, max_samples=200_000,
  )  # fmt: skip
  model = Backbone("attention:num_heads=2", width=32, positions="sinusoidal")
  records = sepfx.measure(
    LinearInContext(token_dim=1), model, 4, protocol, num_trials=1, progress=False
  )
  assert set(records.table["outcome"]) == {"reached"}
