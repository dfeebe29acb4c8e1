"""Planted sparse Boolean functions against their definitions."""

import itertools
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from sepfx.errors import InvalidSetting
from sepfx.tasks import FUNCTIONS, ByCount, SparseBoolean, TruthTable, threshold

DEFINITIONS = [
  (FUNCTIONS["and"], all),
  (FUNCTIONS["or"], any),
  (FUNCTIONS["majority"], lambda hidden: sum(hidden) > len(hidden) / 2),
  (FUNCTIONS["parity"], lambda hidden: sum(hidden) % 2),
  (threshold(2), lambda hidden: sum(hidden) >= 2),
  (ByCount((1, 0, 0, 1)), lambda hidden: sum(hidden) in (0, 3)),
  (
    TruthTable((0, 1, 0, 0, 1, 1, 0, 1)),
    lambda hidden: (0, 1, 0, 0, 1, 1, 0, 1)[4 * hidden[0] + 2 * hidden[1] + hidden[2]],
  ),
]


@pytest.mark.parametrize(("function", "definition"), DEFINITIONS)
def test_labels_are_the_function_of_the_hidden_bits(function, definition):
  task = SparseBoolean(length=7, sparsity=3, function=function)
  planted_key, sample_key = jax.random.split(jax.random.key(0))
  planted = task.init(planted_key)
  sample = task.sample(sample_key, planted, 200)
  assert sample.bits.shape == (200, 7)
  hidden = np.asarray(sample.bits)[:, np.asarray(planted.subset)]
  expected = [int(definition(row)) for row in hidden.tolist()]
  np.testing.assert_array_equal(sample.labels, expected)
  np.testing.assert_array_equal(task.encode(planted, sample), sample.bits)
  inputs = list(itertools.product((0, 1), repeat=3))
  assert task.truth_table().tolist() == [int(definition(bits)) for bits in inputs]


@pytest.mark.parametrize(("function", "definition"), DEFINITIONS)
def test_error_of_the_best_constant(function, definition):
  p = 0.3
  task = SparseBoolean(length=5, function=function, bit_probability=p)
  mean = sum(
    p ** sum(bits) * (1 - p) ** (3 - sum(bits)) * bool(definition(bits))
    for bits in itertools.product((0, 1), repeat=3)
  )
  assert task.best_constant_error() == pytest.approx(min(mean, 1 - mean))


@pytest.mark.slow
def test_large_parity_needs_no_table_of_all_inputs():
  task = SparseBoolean(length=40, sparsity=30, function=FUNCTIONS["parity"])
  sample = task.sample(jax.random.key(1), task.init(jax.random.key(0)), 100)
  assert 20 < int(jnp.sum(sample.labels)) < 80
  assert task.best_constant_error() == pytest.approx(0.5)


def test_subsets_are_uniform_and_ascending():
  task = SparseBoolean(length=5, sparsity=3)
  keys = jax.random.split(jax.random.key(0), 5000)
  drawn = np.asarray(jax.vmap(task.init)(keys).subset)
  counts = Counter(map(tuple, drawn.tolist()))
  assert sorted(counts) == list(itertools.combinations(range(5), 3))
  assert scipy.stats.chisquare(list(counts.values())).pvalue > 1e-3


def test_noise_flips_labels_alone():
  clean = SparseBoolean(length=6, function=FUNCTIONS["parity"])
  noisy = SparseBoolean(length=6, function=FUNCTIONS["parity"], noise=0.1)
  planted = clean.init(jax.random.key(0))
  plain, flipped = (t.sample(jax.random.key(1), planted, 20_000) for t in (clean, noisy))
  np.testing.assert_array_equal(plain.bits, flipped.bits)
  # Four standard deviations of 20,000 flips.
  rate = np.mean(np.asarray(plain.labels != flipped.labels))
  assert rate == pytest.approx(0.1, abs=4 * 0.3 / 20_000**0.5)


def test_noise_and_bias_are_not_in_the_name():
  for function, name in ((FUNCTIONS["parity"], "parity"), (ByCount((0, 1)), None)):
    own = SparseBoolean(length=6, sparsity=1, function=function)
    noisy = SparseBoolean(6, 1, function, noise=0.25, bit_probability=0.4)
    assert own.name == noisy.name == (name or "symmetric_01")


def test_biased_bits():
  task = SparseBoolean(length=10, bit_probability=0.2)
  bits = task.sample(jax.random.key(1), task.init(jax.random.key(0)), 4000).bits
  assert np.mean(bits) == pytest.approx(0.2, abs=4 * 0.4 / 40_000**0.5)


def test_given_subset():
  task = SparseBoolean(length=6, subset=(4, 0, 2))
  np.testing.assert_array_equal(task.init(jax.random.key(0)).subset, [0, 2, 4])


@pytest.mark.parametrize(
  ("setting", "settings"),
  [
    ("length", {"length": 0, "sparsity": 1}),
    ("sparsity", {"length": 2}),
    ("sparsity", {"sparsity": 0}),
    ("function", {"function": TruthTable((0, 1, 1))}),
    ("function", {"function": TruthTable((0, 1, 1, 0, 0, 0, 0, 2))}),
    ("function", {"function": ByCount((0, 1, 1))}),
    ("noise", {"noise": 0.5}),
    ("noise", {"noise": -0.1}),
    ("bit_probability", {"bit_probability": 1.0}),
    ("subset", {"length": 6, "subset": (0, 1, 6)}),
    ("subset", {"length": 6, "subset": (0, 1, 1)}),
    ("subset", {"length": 6, "subset": (0, 1)}),
  ],
)
def test_bad_settings_are_refused(setting, settings):
  with pytest.raises(InvalidSetting) as error:
    SparseBoolean(**settings)
  assert error.value.setting == setting
