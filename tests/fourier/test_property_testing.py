"""Property tests against whole spectra, and against functions planted."""

import itertools
import math

import jax
import numpy as np
import pytest

from experiments.fourier.property_testing.estimators import (
  degree_verdict,
  estimate_degree,
  estimate_width,
  seen_probability,
  width_verdict,
)
from sepfx.errors import InvalidSetting
from sepfx.tasks.fourier import FourierSparse


def planted(components, length, constant=0.0):
  """f = constant + sum_S c_S chi_S, of a dict from tuples of positions."""
  sets = np.zeros((len(components), length), int)
  for row, positions in enumerate(components):
    sets[row, list(positions)] = 1
  coefficients = np.array(list(components.values()), float)
  return lambda bits: (1 - 2 * (np.asarray(bits) @ sets.T % 2)) @ coefficients + constant


def random_sets(rng, length, size, number):
  """Different sets of one size."""
  found = set()
  while len(found) < number:
    found.add(tuple(sorted(rng.choice(length, size, replace=False).tolist())))
  return sorted(found)


def whole_spectrum(length, seed):
  """All components but the constant, normal coefficients of variance 1 in all."""
  rng = np.random.default_rng(seed)
  subsets = [
    subset
    for size in range(1, length + 1)
    for subset in itertools.combinations(range(length), size)
  ]
  own = rng.standard_normal(len(subsets))
  return dict(zip(subsets, own / np.linalg.norm(own), strict=True))


class Counter:
  """A function that counts its calls and the inputs that it is given."""

  def __init__(self, function):
    self.function, self.calls, self.inputs = function, 0, 0

  def __call__(self, bits):
    assert bits.ndim == 2
    assert np.issubdtype(bits.dtype, np.integer)
    assert set(np.unique(bits)) <= {0, 1}
    self.calls, self.inputs = self.calls + 1, self.inputs + len(bits)
    return self.function(bits)


@pytest.mark.parametrize(("length", "degree"), [(2, 1), (6, 4), (8, 6), (8, 7)])
def test_degree_is_exact_where_a_subcube_is_everything(length, degree):
  components = whole_spectrum(length, seed=length)
  above = sum(c**2 for subset, c in components.items() if len(subset) > degree)
  function = planted(components, length, constant=3.0)
  for tau in (0.99 * above**0.5, 1.01 * above**0.5):
    verdict = degree_verdict(0, function, length, degree, tau=tau, num_subcubes=5)
    np.testing.assert_allclose(verdict.statistic, above**0.5, rtol=1e-9)
    np.testing.assert_allclose(verdict.threshold, tau, rtol=1e-9)
    assert verdict.accepted == (tau**2 > above)
    assert verdict.queries == 2**length


@pytest.mark.parametrize(("length", "width"), [(4, 1), (6, 3), (7, 5), (8, 20), (3, 9)])
def test_width_is_exact_where_a_restriction_is_everything(length, width):
  components = whole_spectrum(length, seed=length)
  squares = sorted((c**2 for c in components.values()), reverse=True)
  tail = sum(squares[width:])
  function = planted(components, length, constant=3.0)
  for tau in (0.99 * tail**0.5, 1.01 * tail**0.5) if tail else (0.01,):
    verdict = width_verdict(0, function, length, width, tau=tau, num_restrictions=5)
    np.testing.assert_allclose(verdict.statistic, tail, rtol=1e-9, atol=1e-25)
    np.testing.assert_allclose(verdict.threshold, tau**2, rtol=1e-9)
    assert verdict.accepted == (tau**2 > tail)
    assert verdict.queries == 2**length


@pytest.mark.parametrize(
  ("length", "degree", "sizes"),
  [(9, 2, (3, 3, 1, 1)), (10, 2, (3, 3, 1, 1)), (10, 3, (3, 3, 1, 1, 1))],
)
def test_chance_of_being_seen_is_a_count_of_sets(length, degree, sizes):
  block_of = np.repeat(np.arange(len(sizes)), sizes)
  for size in range(1, length + 1):
    seen = 0
    for subset in itertools.combinations(range(length), size):
      own = [block_of[j] for j in subset if j < len(block_of)]
      seen += np.sum(np.bincount(own, minlength=len(sizes)) % 2) > degree
    expected = seen / math.comb(length, size)
    np.testing.assert_allclose(seen_probability(length, degree, size), expected)


def test_every_larger_component_may_be_seen_and_no_smaller_one():
  for length in range(2, 16):
    for degree in range(1, length):
      chances = [seen_probability(length, degree, s) for s in range(1, length + 1)]
      assert max(chances[:degree]) == 0
      assert min(chances[degree:]) > 0


@pytest.mark.parametrize("size", [1, 3, 4, 5, 9])
def test_components_are_seen_as_often_as_computed(size):
  length, degree, n = 9, 2, 4000
  function = planted({tuple(range(size)): 1.0}, length)
  verdict = degree_verdict(size, function, length, degree, tau=0.5, num_subcubes=n)
  share = verdict.statistic**2 * seen_probability(length, degree, degree + 1)
  chance = seen_probability(length, degree, size)
  spread = math.sqrt(chance * (1 - chance) / n)
  assert abs(share - chance) <= 4 * spread + 1e-12


def test_energies_of_components_add_up_on_average():
  length, degree, n = 7, 2, 8000
  components = whole_spectrum(length, seed=1)
  function = planted(components, length, constant=-1.0)
  verdict = degree_verdict(0, function, length, degree, tau=0.5, num_subcubes=n)
  scale = seen_probability(length, degree, degree + 1)
  expected = sum(
    c**2 * seen_probability(length, degree, len(subset)) / scale
    for subset, c in components.items()
  )
  np.testing.assert_allclose(verdict.statistic**2, expected, rtol=0.05)
  np.testing.assert_allclose(verdict.threshold, 0.5, rtol=0.02)


@pytest.mark.parametrize("degree", [1, 2, 3, 4, 5])
def test_functions_of_low_degree_are_always_accepted(degree):
  rng = np.random.default_rng(degree)
  sets = [s for size in range(1, degree + 1) for s in random_sets(rng, 20, size, 10)]
  components = dict(zip(sets, rng.standard_normal(len(sets)), strict=True))
  function = planted(components, 20, constant=100.0)
  for seed in range(10):
    verdict = degree_verdict(seed, function, 20, degree, tau=1e-6, num_subcubes=5)
    assert verdict.accepted
    assert verdict.statistic < 1e-9


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_a_little_energy_above_the_degree_is_rejected(degree):
  rng = np.random.default_rng(degree)
  low = dict.fromkeys(random_sets(rng, 20, degree, 8), math.sqrt(0.96 / 8))
  high = dict.fromkeys(random_sets(rng, 20, degree + 1, 8), math.sqrt(0.04 / 8))
  function = planted(low | high, 20)
  settings = {"num_subcubes": 64}
  squares, rejected = [], 0
  for seed in range(20):
    verdict = degree_verdict(seed, function, 20, degree, tau=0.1, **settings)
    squares.append(verdict.statistic**2)
    rejected += not verdict.accepted
    assert degree_verdict(seed, function, 20, degree, tau=0.5, **settings).accepted
  assert rejected >= 19
  np.testing.assert_allclose(np.mean(squares), 0.04, rtol=0.3)


def test_lone_components_are_missed_as_often_as_stated():
  function = planted({(0, 3, 7, 19): 1.0}, 20)
  chance = (1 - seen_probability(20, 3, 4)) ** 4
  missed = [
    degree_verdict(seed, function, 20, 3, tau=0.3, num_subcubes=4).accepted
    for seed in range(300)
  ]
  assert 0.3 < chance < 0.5
  assert abs(np.mean(missed) - chance) < 4 * math.sqrt(chance * (1 - chance) / 300)


@pytest.mark.parametrize("size", [5, 6, 19, 20])
def test_the_largest_components_are_not_overlooked(size):
  function = planted({tuple(range(size)): 1.0, (0,): 1.0}, 20)
  assert not degree_verdict(0, function, 20, 4, tau=0.1, num_subcubes=64).accepted


@pytest.mark.parametrize("number", [2, 4, 8, 12])
@pytest.mark.parametrize("constant", [0.0, 50.0])
def test_width_is_right_on_sparse_functions(number, constant):
  rng = np.random.default_rng(number)
  settings = {"tau": 0.1, "num_restrictions": 9}
  for seed in range(10):
    sets = random_sets(rng, 20, 1 + seed % 5, number)
    signs = rng.choice([-1.0, 1.0], number) * rng.uniform(0.7, 1.3, number)
    components = dict(zip(sets, signs, strict=True))
    function = planted(components, 20, constant)
    right = width_verdict(seed, function, 20, number, **settings)
    assert right.accepted
    assert right.statistic < 1e-9
    below = width_verdict(seed, function, 20, number - 1, **settings)
    if number > 2:
      least = min(c**2 for c in components.values())
      np.testing.assert_allclose(below.statistic, least, rtol=1e-6)
    assert not below.accepted


def test_width_takes_the_median_restriction():
  """Where nothing merged: the two smallest merge to 0 or to twice the energy."""
  function = planted({(0, 1): 1.0, (2, 9): 0.3, (7, 8, 17): 0.3}, 20)
  verdict = width_verdict(0, function, 20, 1, tau=0.1, num_restrictions=101)
  np.testing.assert_allclose(verdict.statistic, 0.18, rtol=1e-6)


def test_scale_does_not_matter():
  components = whole_spectrum(8, seed=4)
  function = planted(components, 8)
  larger = planted({subset: 10 * c for subset, c in components.items()}, 8)
  settings = {"tau": 0.3, "num_subcubes": 3}
  small = degree_verdict(0, function, 8, 3, **settings)
  large = degree_verdict(0, larger, 8, 3, **settings)
  np.testing.assert_allclose(large[1:3], np.multiply(small[1:3], 10))
  settings = {"tau": 0.3, "num_restrictions": 3}
  small = width_verdict(0, function, 8, 3, **settings)
  large = width_verdict(0, larger, 8, 3, **settings)
  np.testing.assert_allclose(large[1:3], np.multiply(small[1:3], 100))


def test_components_far_more_than_the_width_are_rejected():
  rng = np.random.default_rng(0)
  function = planted(dict.fromkeys(random_sets(rng, 20, 3, 200), 1.0), 20)
  for width in (1, 3, 12):
    verdict = width_verdict(0, function, 20, width, tau=0.1, num_restrictions=9)
    assert not verdict.accepted


def test_width_leaves_out_what_is_below_tau():
  components = {(0, 1): 0.7, (5,): 0.7, (2, 3, 9): -0.1}
  function = planted(components, 20)
  # The smallest has 0.0101 of the variance.
  settings = {"num_restrictions": 15}
  assert width_verdict(0, function, 20, 2, tau=0.12, **settings).accepted
  assert not width_verdict(0, function, 20, 2, tau=0.08, **settings).accepted


def test_few_restrictions_merge_components():
  """No pair of positions is merged more often than one draw in 2^r, r = 4 here."""
  rng = np.random.default_rng(0)
  merged = 0
  for seed in range(400):
    first, second = random_sets(rng, 20, 3, 2)
    function = planted({first: 1.0, second: 1.0}, 20)
    verdict = width_verdict(seed, function, 20, 1, tau=0.1, num_restrictions=1)
    assert verdict.queries == 16
    merged += verdict.accepted
  # Any two of the components and the empty set: at most 3/16.
  assert 0.05 < merged / 400 < 3 / 16 + 4 * math.sqrt(3 / 16 * 13 / 16 / 400)


@pytest.mark.parametrize("degree", [1, 4])
def test_queries_of_the_degree_are_counted(degree):
  function = Counter(planted({(0, 1, 2): 1.0}, 12))
  verdict = degree_verdict(0, function, 12, degree, tau=0.1, num_subcubes=7)
  assert verdict.queries == function.inputs == 7 * 2 ** (degree + 2)
  assert function.calls == 1


@pytest.mark.parametrize(("width", "dimension"), [(1, 4), (3, 6), (4, 7), (12, 10)])
def test_queries_of_the_width_are_counted(width, dimension):
  function = Counter(planted({(0, 1, 2): 1.0}, 12))
  verdict = width_verdict(0, function, 12, width, tau=0.1, num_restrictions=7)
  assert verdict.queries == function.inputs == 7 * 2**dimension
  assert function.calls == 1


def test_queries_of_a_sweep_are_counted():
  sets = [(0, 1, 2), (1, 5, 7), (2, 8, 9)]
  function = Counter(planted(dict.fromkeys(sets, 1.0), 12))
  settings = {"max_degree": 3, "tau": 0.1, "num_subcubes": 40}
  assert estimate_degree(0, function, 12, **settings) == (3, function.inputs)
  assert function.inputs == 40 * (8 + 16 + 32)
  function = Counter(function.function)
  settings = {"max_width": 3, "tau": 0.1, "num_restrictions": 9}
  assert estimate_width(0, function, 12, **settings) == (3, function.inputs)
  assert function.inputs == 9 * (16 + 64 + 64)


def test_nothing_is_estimated_where_nothing_is_accepted():
  function = Counter(planted(whole_spectrum(8, seed=2), 8))
  settings = {"max_degree": 3, "tau": 0.1, "num_subcubes": 20}
  assert estimate_degree(0, function, 8, **settings) == (None, function.inputs)
  function = Counter(function.function)
  settings = {"max_width": 6, "tau": 0.1, "num_restrictions": 5}
  assert estimate_width(0, function, 8, **settings) == (None, function.inputs)


@pytest.mark.parametrize("degree", [1, 2, 3, 4, 5])
def test_degrees_of_the_task_are_found(degree):
  number = {1: 8, 2: 4, 3: 2, 4: 8, 5: 12}[degree]
  task = FourierSparse(degree=degree, num_components=number)
  spectrum = task.init(jax.random.key(degree))
  estimate = estimate_degree(
    0,
    lambda bits: task.labels(spectrum, bits),
    task.length,
    max_degree=6,
    tau=0.05,
    num_subcubes=64,
  )
  assert estimate == (degree, 64 * sum(2 ** (d + 2) for d in range(1, degree + 1)))


@pytest.mark.parametrize("number", [2, 4, 8, 12])
def test_widths_of_the_task_are_found(number):
  task = FourierSparse(degree=3, num_components=number, convention="indicators")
  spectrum = task.init(jax.random.key(number))
  squares = np.sort(np.square(np.asarray(spectrum.coefficients, float)))[::-1]
  tails = 1 - np.cumsum(squares)
  tau = 0.05
  estimate = estimate_width(
    0,
    lambda bits: task.labels(spectrum, bits),
    task.length,
    max_width=15,
    tau=tau,
    num_restrictions=9,
  )
  assert estimate.value == 1 + np.argmax(tails <= tau**2)
  assert number - 2 <= estimate.value <= number


def test_functions_without_components_come_out_at_one():
  function = planted({}, 9, constant=0.3)
  settings = {"tau": 0.1, "num_subcubes": 3}
  assert estimate_degree(0, function, 9, max_degree=4, **settings).value == 1
  settings = {"tau": 0.1, "num_restrictions": 3}
  assert estimate_width(0, function, 9, max_width=4, **settings).value == 1


def test_draws_follow_the_seed():
  function = planted(whole_spectrum(8, seed=3), 8)
  counts = {degree_verdict: "num_subcubes", width_verdict: "num_restrictions"}
  for verdict, count in counts.items():
    settings = {"tau": 0.1, count: 3}
    first = verdict(0, function, 8, 2, **settings)
    assert verdict(0, function, 8, 2, **settings) == first
    assert verdict(1, function, 8, 2, **settings) != first
    rng = np.random.default_rng(0)
    assert verdict(rng, function, 8, 2, **settings) == first
    assert verdict(rng, function, 8, 2, **settings) != first


@pytest.mark.parametrize(
  ("setting", "changed"),
  [
    ("length", {"length": 1}),
    ("degree", {"degree": 0}),
    ("degree", {"degree": 6}),
    ("tau", {"tau": 0.0}),
    ("tau", {"tau": 1.0}),
    ("num_subcubes", {"num_subcubes": 0}),
  ],
)
def test_bad_settings_of_the_degree_are_refused(setting, changed):
  settings = {"length": 6, "degree": 2, "tau": 0.1, "num_subcubes": 3} | changed
  with pytest.raises(InvalidSetting, match=rf"^{setting}: got .*takes"):
    degree_verdict(0, planted({(0,): 1.0}, 6), **settings)
  settings["max_degree"] = settings.pop("degree")
  setting = "max_degree" if setting == "degree" else setting
  with pytest.raises(InvalidSetting, match=rf"^{setting}: got .*takes"):
    estimate_degree(0, planted({(0,): 1.0}, 6), **settings)


@pytest.mark.parametrize(
  ("setting", "changed"),
  [
    ("length", {"length": 0}),
    ("width", {"width": 0}),
    ("tau", {"tau": -0.1}),
    ("tau", {"tau": 1.5}),
    ("num_restrictions", {"num_restrictions": 0}),
  ],
)
def test_bad_settings_of_the_width_are_refused(setting, changed):
  settings = {"length": 6, "width": 2, "tau": 0.1, "num_restrictions": 3} | changed
  with pytest.raises(InvalidSetting, match=rf"^{setting}: got .*takes"):
    width_verdict(0, planted({(0,): 1.0}, 6), **settings)
  settings["max_width"] = settings.pop("width")
  setting = "max_width" if setting == "width" else setting
  with pytest.raises(InvalidSetting, match=rf"^{setting}: got .*takes"):
    estimate_width(0, planted({(0,): 1.0}, 6), **settings)


@pytest.mark.parametrize("size", [0, 7])
def test_bad_sizes_are_refused(size):
  with pytest.raises(InvalidSetting, match=r"^size: got .* from 1 to 6"):
    seen_probability(6, 2, size)


def test_bad_values_are_refused():
  settings = {"tau": 0.1, "num_subcubes": 3}
  with pytest.raises(InvalidSetting, match=r"^function: got \(48, 1\), .*\(48,\)"):
    degree_verdict(0, lambda bits: bits[:, :1], 6, 2, **settings)
  with pytest.raises(InvalidSetting, match=r"^function: got '48 values that are not'"):
    degree_verdict(0, lambda bits: bits[:, 0] * np.nan, 6, 2, **settings)
