"""Random orders of which a part is computed by itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from sepfx.training.orders import place_in_order


def orders(num_keys, m, seed=0):
  """Whole orders of m samples by as many keys, [keys m]."""
  keys = jax.random.split(jax.random.key(seed), num_keys)
  draw = jax.jit(jax.vmap(lambda key: place_in_order(key, jnp.arange(m), m)))
  return np.asarray(draw(keys))


def is_uniform(cases, num_cases):
  counts = np.bincount(cases, minlength=num_cases)
  assert len(counts) == num_cases
  return scipy.stats.chisquare(counts).pvalue > 1e-4


@pytest.mark.parametrize("m", [1, 2, 5, 64, 1000])
def test_an_order_has_every_sample_once(m):
  for order in orders(20, m):
    np.testing.assert_array_equal(np.sort(order), np.arange(m))


@pytest.mark.parametrize("m", [5, 64, 1000])
def test_a_part_is_that_of_the_whole(m):
  key = jax.random.key(3)
  whole = np.asarray(place_in_order(key, jnp.arange(m), m))
  rng = np.random.default_rng(0)
  for places in ([m - 1], np.arange(m // 3, m // 2), rng.integers(0, m, 7)):
    part = place_in_order(key, jnp.asarray(places), m)
    np.testing.assert_array_equal(part, whole[np.asarray(places)])


@pytest.mark.parametrize("m", [5, 64])
def test_every_place_is_uniform_over_keys(m):
  drawn = orders(10_000, m)
  for place in (0, 1, m // 2, m - 1):
    assert is_uniform(drawn[:, place], m)
  # And a sample's place, that of a neighbour given.
  apart = (drawn[:, 1] - drawn[:, 0]) % m - 1
  assert is_uniform(apart, m - 1)


def test_two_samples_change_places_half_of_the_time():
  # Six rounds, each of which changes them with probability 1/4, leave 1/128 more as is.
  first = orders(20_000, 2)[:, 0]
  expected = 0.5 - 1 / 128
  assert np.mean(first) == pytest.approx(expected, abs=4 * 0.5 / 20_000**0.5)


def test_other_keys_give_other_orders():
  drawn = orders(200, 64)
  assert len({tuple(order) for order in drawn}) == 200
  # Two random orders agree in one place, on average, whatever m; so 199 pairs in 199.
  agreements = np.sum(drawn[1:] == drawn[:-1])
  assert abs(agreements - 199) < 5 * 199**0.5
