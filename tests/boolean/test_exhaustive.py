"""The learner that tries all subsets against one that does so plainly."""

import importlib.resources
import itertools
import re

import jax
import numpy as np
import pytest

from benchmarks import exhaustive_floor
from experiments.boolean import exhaustive
from experiments.boolean.exhaustive import exhaustive_success
from sepfx.errors import InvalidSetting
from sepfx.tasks import FUNCTIONS, SparseBoolean, TruthTable

SIZES = np.array([8, 12, 20])


@pytest.mark.slow
@pytest.mark.parametrize(
  "function",
  [FUNCTIONS["and"], FUNCTIONS["parity"], TruthTable((0, 1, 0, 0, 1, 1, 0, 1))],
)
def test_chance_is_that_of_a_plain_search(function):
  task = SparseBoolean(length=9, function=function)
  trials = 300
  chances = np.zeros((trials, len(SIZES)))
  subsets = list(itertools.combinations(range(9), 3))
  table = function.table(3)
  for k in range(trials):
    planted_key, sample_key = jax.random.split(jax.random.key(k))
    sample = task.sample(sample_key, task.init(planted_key), SIZES[-1])
    bits, labels = np.asarray(sample.bits), np.asarray(sample.labels)
    if len(table) == 4:
      values = [table[bits[:, s].sum(axis=1)] for s in subsets]
    else:
      values = [table[bits[:, s] @ (4, 2, 1)] for s in subsets]
    wrong = np.array(values) != labels
    chances[k] = [1 / np.sum(~wrong[:, :m].any(axis=1)) for m in SIZES]
  ours = exhaustive_success(task, SIZES, trials, seed=0)
  spread = np.std(chances, axis=0) * np.sqrt(2 / trials)
  np.testing.assert_array_less(abs(ours - chances.mean(axis=0)), 4 * spread + 1e-9)


def test_critical_sizes_of_and_grow_like_the_logarithm():
  sizes = np.arange(20, 65)
  critical = []
  for length in (50, 200):
    chance = exhaustive_success(SparseBoolean(length=length), sizes, 100, seed=1)
    critical.append(sizes[np.flatnonzero(chance > 0.5)[0]])
  # About 31 and 40.
  assert 27 <= critical[0] <= 35
  assert 36 <= critical[1] <= 45


def test_stored_floors_are_where_the_chance_passes_one_half():
  (stored,) = (own for own in exhaustive.stored_floors() if own.length == 25)
  sizes = np.array([stored.size - 2, stored.size + 2])
  below, above = exhaustive_success(SparseBoolean(length=25), sizes, 1000, seed=2)
  # Two samples are 0.05 of the chance, and three standard errors.
  assert below < 0.5 < above
  assert all(own.error < 1 for own in exhaustive.stored_floors())
  known = {own.length for own in exhaustive.stored_floors()}
  assert known == set(exhaustive_floor.LENGTHS)
  drawn = set()
  for preset in ("boolean_fig4", "boolean_quick"):
    text = importlib.resources.files("experiments").joinpath(f"flags/{preset}.cfg")
    (own,) = re.findall(r"^--contexts=(.*)$", text.read_text(), re.MULTILINE)
    drawn |= set(map(int, own.split(",")))
  assert drawn <= known


def test_crossing_is_where_batches_pass_one_half():
  sizes = np.arange(10, 20)
  rng = np.random.default_rng(0)
  true = 0.5 + 0.04 * (sizes - 14.5)
  chances = true + 0.1 * rng.normal(size=(100, len(sizes)))
  found = exhaustive_floor.crossing(sizes, chances)
  assert found.size == 15
  assert found.error == pytest.approx(0.01 / 0.04, rel=0.3)
  with pytest.raises(ValueError, match="does not pass 1/2"):
    exhaustive_floor.crossing(sizes, chances - 0.5)


def test_bad_settings_are_refused():
  with pytest.raises(InvalidSetting, match="noise"):
    exhaustive_success(SparseBoolean(noise=0.1), SIZES, 1, seed=0)
  with pytest.raises(InvalidSetting, match="sizes"):
    exhaustive_success(SparseBoolean(), np.array([0, 3]), 1, seed=0)
