"""The best of several rates: chosen, reported by the other half, drawn again."""

import numpy as np
import pytest

from benchmarks import choice
from sepfx.statistics.best import Trials, best_of, choose, laid_out, repeated, split_mean
from sepfx.statistics.bounded import Bounds
from sepfx.statistics.passages import (
  Checks,
  log_restricted_mean,
  padded,
  points,
  restricted_means,
)


def checked(settings):
  """A check after every step of 64, within 200 of them."""
  return choice.alike(settings, 64, 64, 64 * 200)


def drawn(rng, logs, spread, m=6, correlation=0.0):
  return choice.drawn(rng, logs, spread, m, checked(len(logs)), correlation)


def truth(logs, spread):
  return choice.truth(logs, spread, checked(len(logs)))


def test_the_spread_of_another_setting_is_not_that_of_the_best():
  """One that scatters widely, so that Bartlett's test tells them apart."""
  rng = np.random.default_rng(2)
  trials = drawn(rng, [np.log(2000), np.log(4000)], (0.1, 1.5))
  found = best_of(trials, 100, rng)
  assert found.setting == 0
  np.testing.assert_allclose(found.mean, np.mean(trials.samples[0]), rtol=0.03)
  again, _ = repeated(trials, 200, rng)
  spreads = np.std(np.log(again.samples), axis=(0, 2))
  np.testing.assert_allclose(spreads, np.std(np.log(trials.samples), axis=1), rtol=0.3)


def test_points_are_the_middle_of_restricted_means():
  rng = np.random.default_rng(0)
  trials = drawn(rng, np.log([2000, 3000, 9000]), 0.3)
  whole = restricted_means(trials.bounds, 12_800.0, 64.0)
  found = points(trials.bounds)
  mean = np.exp(log_restricted_mean(*found, np.log(12_800.0)))
  np.testing.assert_allclose(mean, whole.mean, rtol=1e-6)
  np.testing.assert_allclose(found.spread, whole.log_spread, rtol=1e-6)
  several = Bounds(*(np.stack([side, side + 0.5]) for side in trials.bounds))
  both = points(several)
  np.testing.assert_allclose(both.log[0], found.log, rtol=1e-6)
  np.testing.assert_allclose(both.log[1], found.log + 0.5, rtol=1e-5)


def test_rates_of_few_trials_are_laid_out_with_holes():
  samples, reached = np.array([640, 1280, 128.0]), np.array([True, True, False])
  rate, trial = np.array([0, 1, 1]), np.array([0, 0, 1])
  checks = Checks(*(np.full(3, own) for own in (64, 64, 12_800)))
  trials = laid_out(samples, reached, rate, trial, checks)
  np.testing.assert_array_equal(trials.run, [[True, False], [True, True]])
  lower, upper = trials.bounds
  np.testing.assert_allclose(np.exp(lower), [[576, 0], [1216, 12_800]])
  np.testing.assert_allclose(np.exp(upper), [[640, np.inf], [1280, np.inf]])
  one = padded(Bounds(lower[1], upper[1]), np.zeros(2))
  np.testing.assert_array_equal(one.lower[0], lower[1])


def test_choice_is_the_least_recorded_mean():
  rng = np.random.default_rng(1)
  again = [drawn(rng, np.log([2000, 2200, 8000]), 0.5) for _ in range(20)]
  batch = Trials(
    *(np.stack([getattr(t, name) for t in again]) for name in Trials._fields[:3]),
    checked(3),
  )
  found = choose(batch)
  for k, trials in enumerate(again):
    means = np.mean(np.minimum(trials.samples - 32 * trials.reached, 12_800), axis=1)
    assert found.setting[k] == np.argmin(means)
    np.testing.assert_allclose(found.mean[k], np.min(means), rtol=1e-6)
  assert 0 < np.mean(found.setting) < 1  # the first two both win at times


def test_a_rate_of_which_no_trial_reached_is_not_chosen():
  trials = drawn(np.random.default_rng(2), np.log([1e9, 3000]), 0.1)
  assert not trials.reached[0].any()
  own = best_of(trials, 50, np.random.default_rng(0))
  assert own.setting == 1
  np.testing.assert_array_equal(own.chosen, [0, 1])
  assert best_of(drawn(np.random.default_rng(2), [50.0, 60.0], 0.1), 5, None) is None


@pytest.mark.slow
def test_choosing_among_equals_flatters_and_halves_do_not():
  rng = np.random.default_rng(3)
  logs, spread = [np.log(3000)] * 4, 0.4
  whole, halves, said = [], [], []
  for _ in range(200):
    trials = drawn(rng, logs, spread)
    whole.append(np.log(choose(trials).mean / truth(logs, spread)[0]))
    halves.append(split_mean(trials) / truth(logs, spread)[0] - 1)
    said.append(np.log(best_of(trials, 50, rng).flatters))
  error = np.std(halves) / np.sqrt(200)
  assert np.mean(whole) < -0.1
  assert abs(np.mean(halves)) < 3 * error
  # The bootstrap takes differences that are noise for true, so it says less.
  assert 1.2 * np.mean(whole) < np.mean(said) < 0.4 * np.mean(whole)


def test_a_clear_choice_flatters_nobody():
  trials = drawn(np.random.default_rng(4), np.log([1500, 6000]), 0.1)
  own = best_of(trials, 200, np.random.default_rng(0))
  assert own.setting == 0
  np.testing.assert_allclose(own.flatters, 1.0, atol=0.01)
  means = restricted_means(trials.bounds, 12_800.0, 64.0)
  assert own.low == means.low[0]
  np.testing.assert_allclose(own.high, means.high[0] / min(own.flatters, 1))


def test_rates_that_were_given_up_are_out_of_the_running():
  trials = drawn(np.random.default_rng(9), np.log([1500, 2000]), 0.1)
  alone = best_of(trials, 50, np.random.default_rng(0))
  # One of whose pilot trials neither came near.
  own, nothing = np.array([9000.0, 12_000.0]), np.ones(4)
  sides = [
    np.vstack([side, np.concatenate([pilots, rest])])
    for side, pilots, rest in (
      (trials.samples, own, nothing),
      (trials.reached, np.ones(2, bool), nothing == 0),
      (trials.run, np.ones(2, bool), nothing == 0),
    )
  ]
  three = best_of(Trials(*sides, checked(3)), 50, np.random.default_rng(0))
  assert three[:-1] == alone[:-1]
  np.testing.assert_array_equal(three.chosen, [*alone.chosen, 0])


def test_a_rate_of_which_one_trial_reached_tells_no_spread():
  """Five spent the budget: with one spread for both the best mean would be too large."""
  own = drawn(np.random.default_rng(9), np.log([1500, 1500]), 0.1)
  alone = best_of(own.settings(np.array([0])), 50, np.random.default_rng(0))
  samples, reached = own.samples.copy(), own.reached.copy()
  samples[1], reached[1] = 12_800, False
  samples[1, 0], reached[1, 0] = 6400, True
  trials = own._replace(samples=samples, reached=reached)
  np.testing.assert_array_equal(trials.running, [True, False])
  found = best_of(trials, 50, np.random.default_rng(0))
  assert found[:-1] == alone[:-1]
  shared = restricted_means(trials.bounds, 12_800.0, 64.0)
  assert shared.mean[0] > 1.05 * found.mean  # what it would be


def test_a_rate_of_which_one_trial_reached_may_be_the_best():
  samples = np.array([[640.0, 12_800, 12_800], [12_736, 12_736, 12_800]])
  trials = Trials(samples, samples < 12_800, np.ones((2, 3), bool), checked(2))
  np.testing.assert_array_equal(trials.running, [True, True])
  assert best_of(trials, 50, np.random.default_rng(0)).setting == 0


def test_rates_with_more_trials_than_the_best_are_not_preferred():
  """A directory may grow at one rate alone: the others were not given up for that."""
  trials = drawn(np.random.default_rng(9), np.log([1500, 2000, 9000]), 0.1, m=8)
  run = trials.run.copy()
  run[0, 3:] = run[2, 2:] = False
  grown = trials._replace(run=run, reached=trials.reached & run)
  np.testing.assert_array_equal(grown.given_up, [False, False, True])
  found = best_of(grown, 100, np.random.default_rng(0))
  assert found.setting == 0
  np.testing.assert_allclose(found.mean, np.mean(trials.samples[0, :3]), rtol=0.1)
  assert found.chosen[0] > 0.9
  assert found.chosen[2] == 0


def test_any_rate_may_be_the_best_so_the_interval_begins_at_the_lowest():
  """The second has the smaller mean, the first the wider interval."""
  wide = np.array([1000.0, 1400, 2000, 2800, 4000, 5600])
  narrow = np.array([1900.0, 2000, 2050, 2100, 2150, 2200])
  samples = 64 * np.ceil(np.stack([wide, narrow]) / 64)
  trials = Trials(samples, np.ones((2, 6), bool), np.ones((2, 6), bool), checked(2))
  found = best_of(trials, 100, np.random.default_rng(0))
  means = restricted_means(trials.bounds, 12_800.0, 64.0)
  assert found.setting == 1
  assert means.low[0] < means.low[1]
  assert found.low == means.low[0]
  assert found.high >= means.high[1]


def test_trials_drawn_again_are_like_the_first():
  rng = np.random.default_rng(5)
  logs = np.log([2000, 3000, 20_000])
  trials = drawn(rng, logs, 0.3, m=400, correlation=0.6)
  again, means = repeated(trials, 100, rng)
  np.testing.assert_allclose(means, truth(logs, 0.3), rtol=0.05)
  for name in ("samples", "reached"):
    own, others = getattr(trials, name), getattr(again, name)
    np.testing.assert_allclose(
      np.mean(others, axis=(0, 2)), np.mean(own, axis=1), rtol=0.1, atol=0.03
    )
  one, two = np.log(again.samples[:, 0]), np.log(again.samples[:, 1])
  np.testing.assert_allclose(np.corrcoef(one.ravel(), two.ravel())[0, 1], 0.6, atol=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("setting", choice.SETTINGS[1:8:2])
def test_intervals_of_the_best_cover(setting):
  rng = np.random.default_rng(6)
  found = [choice.sweep(setting, rng, 100) for _ in range(100)]
  # 93% and 95%, less three standard errors.
  assert np.mean([own.covered for own in found]) > 0.93 - 3 * 0.22 / np.sqrt(300)
  assert np.mean([own.exponent for own in found]) > 0.95 - 3 * 0.22 / np.sqrt(100)


def test_given_up_rates_have_their_pilots_alone():
  trials = drawn(np.random.default_rng(8), np.log([1000, 2000, 9000, 1e9]), 0.1)
  kept = choice.with_pilots(trials).run.sum(axis=1)
  np.testing.assert_array_equal(kept, [6, 6, 2, 2])


def test_settings_of_one_axis_are_given_up_beyond_five_times_and_of_several_beyond_two():
  trials = drawn(np.random.default_rng(8), np.log([1000, 3000]), 0.05)
  later = np.arange(6) >= 2
  run = np.stack([np.ones(6, bool), ~later])
  trials = trials._replace(run=run, reached=trials.reached & run)
  assert trials.given_up.tolist() == [False, False]
  assert trials._replace(near=2.0).given_up.tolist() == [False, True]
  assert trials._replace(near=2.0).half(0).near == 2.0
  assert trials._replace(near=2.0).settings(np.array([0])).near == 2.0


def test_settings_may_have_checks_of_their_own():
  """Of a smaller batch, say: each n is known between its own two checks."""
  rng = np.random.default_rng(6)
  logs, spread = np.log([3000.0, 2000.0]), 0.2
  checks = Checks(*(np.array(own)[:, None] for own in ([64, 8], [640, 80], [6400, 6480])))
  trials = choice.drawn(rng, logs, spread, 400, checks)
  assert set(np.unique(trials.samples[0] % 640)) == {0}
  found = best_of(trials, 100, rng)
  assert found.setting == 1
  np.testing.assert_allclose(found.mean, choice.truth(logs, spread, checks)[1], rtol=0.03)
  assert choose(trials).mean < np.mean(trials.samples[1])
  alone = trials.settings(np.array([1]))
  np.testing.assert_array_equal(alone.checks.every, [[80]])
  np.testing.assert_array_equal(alone.bounds.lower, trials.bounds.lower[1:])
  again, means = repeated(trials, 20, rng)
  assert set(np.unique(again.samples[:, 1] % 80)) == {0}
  np.testing.assert_allclose(means, choice.truth(logs, spread, checks), rtol=0.05)
