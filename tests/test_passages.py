"""Means, exponents and ratios from bounds of first passages, against plain forms."""

import numpy as np
import pytest
import scipy.integrate
import scipy.optimize
import scipy.stats

from benchmarks.coverage import Coverage, normal_residuals
from sepfx.statistics.bounded import (
  Bounds,
  coefficient_interval,
  contrasts,
  end_of,
  fit,
  log_probability,
)
from sepfx.statistics.passages import (
  Checks,
  bounds_of,
  cell_means,
  log_restricted_mean,
  padded,
  points,
  restricted_means,
  spreads_differ,
)
from sepfx.statistics.scaling import (
  fit_exponent,
  local_exponents,
  paired_ratio,
  straightness,
)

EVERY = 640.0


def narrow(values):
  """Bounds of numbers of which next to nothing is hidden."""
  return Bounds(values - 1e-6, values + 1e-6)


def checks_of(number, budget=np.inf, every=EVERY):
  return Checks(*(np.full(number, value) for value in (64.0, every, budget)))


def recorded(n, budget=np.inf):
  """What a run records of first passages n: samples, outcome and checks."""
  samples = np.ceil(n / EVERY) * EVERY
  reached = samples <= budget
  return np.where(reached, samples, budget), reached, checks_of(len(n), budget)


def hidden_line(seed=1):
  """Numbers around a line, rounded up to halves, those above 2.8 censored."""
  rng = np.random.default_rng(seed)
  x = np.repeat([0.0, 1.0, 2.0, 3.0], 8)
  y = 1 + 0.8 * x + 0.3 * rng.normal(size=x.size)
  upper = np.ceil(2 * y) / 2
  seen = upper <= 2.8
  assert 5 < np.sum(~seen) < 20
  bounds = Bounds(np.where(seen, upper - 0.5, 2.8), np.where(seen, upper, np.inf))
  return np.stack([np.ones_like(x), x], axis=-1), bounds


def plain_likelihood(parameters, design, bounds):
  *line, log_spread = parameters
  mean, spread = design @ np.array(line), np.exp(log_spread)
  low, high = (scipy.stats.norm.cdf((side - mean) / spread) for side in bounds)
  return np.sum(np.log(np.maximum(high - low, 1e-300)))


def test_probabilities_are_exact_in_both_tails():
  low = np.array([-40.0, -3.0, -1.0, 0.2, 3.0, 39.0, -np.inf, 5.0, -1e-9])
  high = np.array([-39.0, -2.0, 2.0, 0.3, 4.0, 40.0, -8.0, np.inf, 1e-9])
  expected = [
    np.log(scipy.integrate.quad(lambda z, s=s: np.exp(-(z**2) / 2 + s), a, b)[0]) - s
    for a, b, s in ((39.0, 40.0, 39**2 / 2), (2.0, 3.0, 0), (-1.0, 2.0, 0), (0.2, 0.3, 0))
  ] - np.log(np.sqrt(2 * np.pi))
  found = log_probability(low, high)
  np.testing.assert_allclose(found[:4], expected, rtol=1e-8)
  np.testing.assert_allclose(found[5], found[0])
  np.testing.assert_allclose(np.exp(found[4]), np.diff(scipy.stats.norm.cdf([3, 4]))[0])
  np.testing.assert_allclose(found[6], scipy.stats.norm.logcdf(-8.0), rtol=1e-12)
  np.testing.assert_allclose(found[7], scipy.stats.norm.logsf(5.0), rtol=1e-12)
  np.testing.assert_allclose(found[8], np.log(2e-9 * scipy.stats.norm.pdf(0)), rtol=1e-6)


def test_nothing_hidden_is_least_squares_and_student():
  rng = np.random.default_rng(0)
  x = np.repeat(np.log([4.0, 8.0, 16.0]), 3)
  y = 1 + x + 0.2 * rng.normal(size=9)
  c, low, high = coefficient_interval(
    narrow(y), np.stack([np.ones(9), x], axis=-1), column=1
  )
  line = scipy.stats.linregress(x, y)
  half = scipy.stats.t.ppf(0.975, 7) * line.stderr
  expected = [line.slope, line.slope - half, line.slope + half]
  np.testing.assert_allclose([c, low, high], expected, atol=1e-4)


def test_hidden_numbers_have_the_likeliest_line():
  design, bounds = hidden_line()
  best = scipy.optimize.minimize(
    lambda p: -plain_likelihood(p, design, bounds), [0, 0, 0], method="Nelder-Mead",
    options={"xatol": 1e-8, "fatol": 1e-10, "maxiter": 5000},
  )  # fmt: skip
  found = fit(bounds, design)
  np.testing.assert_allclose(found.coefficients, best.x[:2], atol=1e-5)
  np.testing.assert_allclose(np.log(found.spread), best.x[2], atol=1e-5)
  np.testing.assert_allclose(found.value, -best.fun, atol=1e-8)


def test_an_interval_is_where_the_profile_is_high():
  design, bounds = hidden_line()
  c, low, high = coefficient_interval(bounds, design, 1)
  count = np.sum(bounds.informative)
  t = scipy.stats.t.ppf(0.975, count - 2)
  fall = count / 2 * np.log(1 + t**2 / (count - 2))

  def profile(slope):
    best = scipy.optimize.minimize(
      lambda p: -plain_likelihood((p[0], slope, p[1]), design, bounds), [1.0, -1.0],
      method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-10, "maxiter": 5000},
    )  # fmt: skip
    return -best.fun

  assert low < c < high
  for end in (low, high):
    assert profile(c) - profile(end) == pytest.approx(fall, abs=1e-3)


def test_fits_of_a_batch_are_those_of_each():
  design, first = hidden_line(1)
  _, second = hidden_line(2)
  both = Bounds(*(np.stack(sides) for sides in zip(first, second, strict=True)))
  together = coefficient_interval(both, design, 1)
  for k, own in enumerate((first, second)):
    alone = coefficient_interval(own, design, 1)
    np.testing.assert_allclose([a[k] for a in together], alone, atol=1e-4)


@pytest.mark.parametrize("budget", [9.0, 30.0, np.inf])
def test_restricted_mean_of_a_lognormal(budget):
  mean, spread = 2.0, 0.7
  density = scipy.stats.lognorm(s=spread, scale=np.exp(mean)).pdf
  below, _ = scipy.integrate.quad(lambda n: n * density(n), 0, min(budget, 400))
  above = 0.0
  if np.isfinite(budget):
    above = budget * scipy.stats.norm.sf((np.log(budget) - mean) / spread)
  found = np.exp(log_restricted_mean(np.array(mean), np.array(spread), np.log(budget)))
  assert found == pytest.approx(below + above, rel=1e-5)


def test_means_are_where_the_profile_is_high():
  """Two cells of one spread, against a plain search over means and spread."""
  rng = np.random.default_rng(3)
  n = np.exp(np.array([[8.5], [9.0]]) + 0.4 * rng.normal(size=(2, 4)))
  budget = 10_240.0
  samples, reached, checks = recorded(n.ravel(), budget)
  assert 0 < np.sum(~reached) < 4
  bounds = Bounds(*(a.reshape(2, 4) for a in bounds_of(samples, reached, checks)))
  found = restricted_means(bounds, budget, EVERY)
  count = np.sum(bounds.informative)
  t = scipy.stats.t.ppf(0.975, count - 2)
  fall = count / 2 * np.log(1 + t**2 / (count - 2))
  means, spreads = np.linspace(7.5, 11.0, 701), np.geomspace(0.1, 3.0, 150)

  def likelihoods(cell):
    ends = [(side[cell][:, None, None] - means[:, None]) / spreads for side in bounds]
    return np.sum(log_probability(*ends), axis=0)  # [means spreads]

  own = [likelihoods(cell) for cell in range(2)]
  top = [each.max(axis=0) for each in own]
  best = np.max(top[0] + top[1])
  values = np.exp(log_restricted_mean(means[:, None], spreads, np.log(budget)))
  for cell in range(2):
    inside = own[cell] + top[1 - cell] >= best - fall
    expected = [values[inside].min(), values[inside].max()]
    np.testing.assert_allclose([found.low[cell], found.high[cell]], expected, rtol=0.02)


def test_a_mean_is_not_known_better_than_the_checks_tell():
  """Three trials of one count, as of the quickstart: only the check is known."""
  samples, reached, checks = recorded(np.full(3, 1900.0))
  (mean,) = cell_means(samples, reached, checks, np.full(3, 4)).values()
  assert mean.recorded == 1920
  assert mean.low < 1300
  assert mean.high > 1900
  assert mean.coarse
  many = recorded(np.full(40, 190_000.0) + np.arange(40) * 16)
  (fine,) = cell_means(*many, np.full(40, 4)).values()
  ends = [fine.mean - EVERY / 2, fine.mean + EVERY / 2]
  np.testing.assert_allclose([fine.low, fine.high], ends, rtol=1e-9)
  assert not fine.coarse
  # Not below 0, nor beyond the budget.
  early = np.array([10.0] * 39 + [EVERY + 10.0])
  (first,) = cell_means(*recorded(early, 640.0), np.full(40, 4)).values()
  assert 0 <= first.low < first.mean < first.high <= 640


def test_a_spread_is_the_pooled_standard_deviation():
  """Of numbers that are known, less one degree of freedom for each cell's mean."""
  logs = 9 + 0.3 * np.random.default_rng(0).normal(size=(3, 4))
  found = points(narrow(logs))
  np.testing.assert_allclose(found.log, logs.mean(axis=1), atol=1e-5)
  pooled = np.sqrt(np.sum(np.var(logs, axis=1, ddof=1)) / 3)
  np.testing.assert_allclose(found.spread, pooled, rtol=1e-4)


def test_what_is_not_reached_is_a_bound():
  samples, reached, checks = recorded(np.array([5e3, 6e3, 9e9, 9e9]), 10_240.0)
  (mean,) = cell_means(samples, reached, checks, np.full(4, 8)).values()
  assert mean.restricted
  assert mean.high == pytest.approx(10_240, rel=0.02)
  assert mean.recorded == pytest.approx((5120 + 6400 + 2 * 10_240) / 4)
  # One that diverged early is no sooner there than one that spent the budget.
  diverged = np.where(reached, samples, 640.0)
  assert cell_means(diverged, reached, checks, np.full(4, 8))[8] == mean
  none = recorded(np.full(3, 9e9), 10_240.0)
  (never,) = cell_means(*none, np.full(3, 8)).values()
  assert never.mean == pytest.approx(10_240, rel=1e-3)
  assert np.isnan(never.low)


def test_a_single_trial_has_no_interval():
  (mean,) = cell_means(*recorded(np.array([9e3])), np.array([8])).values()
  assert np.isnan(mean.low)
  assert mean.mean == pytest.approx(9e3, abs=EVERY)


def test_spreads_are_told_apart():
  rng = np.random.default_rng(0)
  noise = rng.normal(size=(400, 3, 10))
  means = np.array([9.0, 10.0, 11.0])[:, None]

  def share(spreads):
    return np.mean(spreads_differ(narrow(means + np.array(spreads)[:, None] * noise)))

  assert share([0.2, 0.2, 0.2]) < 0.03  # a level of 0.01
  assert share([0.5, 0.2, 0.1]) > 0.9


@pytest.mark.parametrize(("trials", "growth"), [(2, 5.0), (3, 3.0), (10, 1.4)])
def test_spreads_are_told_apart_by_bartletts_test(trials, growth):
  """Of numbers that are known, in cells of equal size, it is SciPy's, correction and all.

  The correction divides the statistic by 1.42 where cells have two trials.
  """
  rng = np.random.default_rng(0)
  spreads = 0.05 * growth ** np.arange(4)[:, None]
  logs = 9 + spreads * rng.normal(size=(400, 4, trials))
  found = scipy.stats.bartlett(*np.moveaxis(logs, 1, 0), axis=-1)
  limit = scipy.stats.chi2.ppf(0.99, 3)
  near = np.abs(found.statistic / limit - 1) < 0.01  # the bounds have a width
  apart = found.pvalue < 0.01
  assert 100 < np.sum(apart) < 300  # or this tests little
  np.testing.assert_array_equal(spreads_differ(narrow(logs))[~near], apart[~near])


@pytest.mark.parametrize("sizes", [[5, 5, 1], [20, 20, 1], [3, 3, 1, 1, 1]])
def test_a_single_trial_says_nothing_of_a_spread(sizes):
  rng = np.random.default_rng(0)
  cells = np.repeat(np.arange(len(sizes)), sizes)
  logs = narrow(9.0 + cells + 0.2 * rng.normal(size=(200, len(cells))))
  tables = [padded(Bounds(*(side[k] for side in logs)), cells) for k in range(200)]
  whole = Bounds(*(np.stack(sides) for sides in zip(*tables, strict=True)))
  assert np.mean(spreads_differ(whole)) < 0.04  # a level of 0.01


@pytest.mark.parametrize(
  ("trials", "spreads"), [(8, [0.8, 0.1, 0.05]), (2, [0.5, 0.001, 0.002])]
)
def test_an_exponent_through_cells_of_other_spreads_has_their_spreads(trials, spreads):
  """Without what is hidden: the unweighted slope, and Welch's interval of it."""
  rng = np.random.default_rng(1)
  x, spreads = np.array([2.0, 4.0, 8.0]), np.array(spreads)
  logs = 9 + np.log(x)[:, None] + spreads[:, None] * rng.normal(size=(3, trials))
  every = np.ones(3 * trials, bool)
  found = fit_exponent(np.repeat(x, trials), narrow(logs.ravel()), every)
  # Three equidistant points: the difference of the ends alone, per log 4.
  welch = scipy.stats.ttest_ind(logs[2], logs[0], equal_var=False)
  ends = welch.confidence_interval(0.95)
  expected = np.array([np.mean(logs[2]) - np.mean(logs[0]), ends.low, ends.high])
  np.testing.assert_allclose(
    [found.c, found.low, found.high], expected / np.log(4), atol=2e-3
  )


def test_a_length_of_one_trial_leaves_the_spread_one():
  """The spreads differ, but one trial alone has none of its own."""
  rng = np.random.default_rng(1)
  sizes, spreads = [8, 8, 1], [0.8, 0.05, 0.1]
  x = np.repeat([2.0, 4.0, 8.0], sizes)
  logs = 9 + np.log(x) + np.repeat(spreads, sizes) * rng.normal(size=17)
  found = fit_exponent(x, narrow(logs), np.ones(17, bool))
  line = scipy.stats.linregress(np.log(x), logs)
  half = scipy.stats.t.ppf(0.975, 15) * line.stderr
  expected = [line.slope, line.slope - half, line.slope + half]
  np.testing.assert_allclose([found.c, found.low, found.high], expected, rtol=1e-3)


def test_a_mean_within_two_checks_is_not_known_better_than_they_tell():
  """All trials of the shorter length ended at one check: its mean is uniform there."""
  rng = np.random.default_rng(0)
  logs = 11 + rng.normal(size=40)
  long = narrow(logs)
  short = np.full(40, 8.0), np.full(40, 8.5)
  bounds = Bounds(*(np.concatenate(sides) for sides in zip(short, long, strict=True)))
  found = fit_exponent(np.repeat([2.0, 8.0], 40), bounds, np.ones(80, bool))
  parts = np.array([0.5**2 / 12, np.var(logs, ddof=1) / 40])  # Welch and Satterthwaite
  freedom = np.sum(parts) ** 2 / np.sum(parts**2 / 39)
  half = scipy.stats.t.ppf(0.975, freedom) * np.sqrt(np.sum(parts))
  expected = np.mean(logs) - 8.25 + half * np.array([0, -1, 1])
  np.testing.assert_allclose(
    [found.c, found.low, found.high], expected / np.log(4), rtol=5e-3
  )


def test_each_end_of_a_batch_is_found():
  """Near and far ones, each as exactly as its first step asks, and none at all."""
  ends = np.array([0.3, 1.0, 700.0, 0.002, np.inf])
  steps = np.array([1.0, 0.5, 0.1, 1.0, 1.0])
  with np.errstate(invalid="ignore"):
    found = end_of(lambda x: ends - x, np.zeros(5), steps)
    below = end_of(lambda x: ends + x, np.zeros(5), -steps)
  assert np.all(np.abs(found[:4] - ends[:4]) <= 1e-4 * steps[:4])
  assert np.all(np.abs(below[:4] + ends[:4]) <= 1e-4 * steps[:4])
  assert (found[4], below[4]) == (np.inf, -np.inf)


def test_spreads_that_wide_bounds_allow_are_looked_at():
  """Three coarse trials of one cell beside a fine one, against a plain search."""
  samples = np.array([1280.0, 1280.0, 640.0, 3e6])
  checks = checks_of(4)
  bounds = padded(bounds_of(samples, np.ones(4, bool), checks), np.array([0, 0, 0, 1]))
  found = restricted_means(bounds, np.inf, EVERY)
  at = np.log(3e6)
  means = np.linspace(at - 0.05, at + 0.05, 2001)  # finer than between two checks
  spreads = np.geomspace(1e-5, 1.0, 200)
  # Of no spread the first cell's mean can only be where its two bounds meet.
  first = np.append(np.linspace(4.0, 8.5, 301), np.log(640))

  def likelihood(cell, own):
    ends = [(side[cell][:, None, None] - own[:, None]) / spreads for side in bounds]
    return np.sum(log_probability(*ends), axis=0)

  top = likelihood(0, first).max(axis=0) + likelihood(1, means)
  t = scipy.stats.t.ppf(0.975, 2)
  inside = top >= top.max() - 2 * np.log(1 + t**2 / 2)
  values = np.exp(log_restricted_mean(means[:, None], spreads, np.array(np.inf)))
  expected = [values[inside].min(), values[inside].max()]
  found_ends = np.array([found.low[1], found.high[1]])
  np.testing.assert_allclose(found_ends / 3e6 - 1, np.array(expected) / 3e6 - 1, rtol=0.2)


def test_cells_of_other_spreads_have_their_own():
  rng = np.random.default_rng(0)
  n = np.exp(np.concatenate([11 + 0.02 * rng.normal(size=20), 12 + rng.normal(size=20)]))
  samples, reached, checks = recorded(n)
  short, long = cell_means(samples, reached, checks, np.repeat([4, 8], 20)).values()
  assert short.log_spread == pytest.approx(0.02, rel=0.4)
  assert long.log_spread == pytest.approx(1.0, rel=0.4)


@pytest.mark.slow
@pytest.mark.parametrize(
  ("smallest", "spread", "trials", "censored"),
  [
    (1500, 0.2, 3, False), (15_000, 0.05, 3, False), (15_000, 0.2, 3, True),
    (15_000, 0.5, 5, False),
  ],
)  # fmt: skip
def test_intervals_cover(smallest, spread, trials, censored):
  """`benchmarks.coverage` has all settings; three standard errors of 200 are 0.046."""
  own = Coverage(
    normal_residuals(), smallest, spread, trials, censored, 200, np.random.default_rng(5)
  )
  assert min(*own.means, own.exponent) > 0.95 - 0.046
  if smallest >= 10 * EVERY:
    assert max(own.exponent, *own.means[: 2 if censored else 3]) < 0.95 + 0.046


def test_exponent_of_trials_that_are_cut():
  rng = np.random.default_rng(2)
  lengths = np.repeat([4.0, 6.0, 8.0, 12.0], 20)
  n = 1000 * lengths**1.5 * np.exp(0.1 * rng.normal(size=80))
  for budget in (np.inf, 38_400.0):
    samples, reached, checks = recorded(n, budget)
    found = fit_exponent(lengths, bounds_of(samples, reached, checks), reached)
    assert found.low < 1.5 < found.high
    assert found.high - found.low < 0.25
  # Censoring the longest trials must not bend the exponent towards zero.
  assert 0.1 < np.mean(~reached) < 0.4
  bounds = bounds_of(samples, reached, checks)
  assert fit_exponent(lengths, bounds, lengths == 4) is None


@pytest.mark.parametrize("least", [0.0, -1.0])
def test_values_without_a_logarithm_have_no_exponent(least):
  x = np.repeat([least, 1.0, 2.0], 4)
  bounds = narrow(np.log(np.tile([90.0, 100.0, 110.0, 120.0], 3)))
  reached = np.ones(12, bool)
  assert fit_exponent(x, bounds, reached) is None
  # Also where none of its trials reached: the fit would still be over it.
  assert fit_exponent(x, bounds, x > least) is None
  positive = fit_exponent(x[4:], Bounds(*(a[4:] for a in bounds)), reached[4:])
  assert positive.over == (1.0, 2.0)
  assert positive.c == pytest.approx(0, abs=1e-6)


def paired_trials(rng, trials):
  """log n of trials that share their keys at three values of x, with c = 0.5."""
  own = rng.normal(size=(trials, 1))  # what a trial brings to all x
  x = np.array([1.0, 2.0, 4.0])
  return x, 9 + own + 0.5 * np.log(x) + 0.05 * rng.normal(size=(trials, 3))


def test_trials_that_share_keys_are_fitted_one_by_one():
  rng = np.random.default_rng(0)
  x, logs = paired_trials(rng, 4)
  places, index = np.tile(x, 4), np.repeat(np.arange(4), 3)
  reached = np.ones(12, bool)
  found = fit_exponent(places, narrow(logs.ravel()), reached, paired=index)
  slopes = [np.polyfit(np.log(x), own, 1)[0] for own in logs]
  expected = scipy.stats.ttest_1samp(slopes, 0).confidence_interval(0.95)
  np.testing.assert_allclose(found.c, np.mean(slopes), atol=1e-4)
  np.testing.assert_allclose([found.low, found.high], expected, atol=1e-4)
  loose = fit_exponent(places, narrow(logs.ravel()), reached)
  assert loose.high - loose.low > 3 * (found.high - found.low)
  # A trial that is not there at every x has no slope.
  some = np.arange(12) != 5
  bounds = Bounds(*(side[some] for side in narrow(logs.ravel())))
  part = fit_exponent(places[some], bounds, reached[some], paired=index[some])
  np.testing.assert_allclose(part.c, np.mean(np.delete(slopes, 1)), atol=1e-4)
  # One that was cut at the largest x says that its slope is steep.
  cut = narrow(logs.ravel())
  cut.lower[5], cut.upper[5], reached[5] = logs.max() + 3, np.inf, False
  steep = fit_exponent(places, cut, reached, paired=index)
  assert steep.c > np.mean(slopes) + 0.2


def test_ratios_are_of_pairs():
  rng = np.random.default_rng(1)
  _, logs = paired_trials(rng, 5)
  found = paired_ratio(narrow(logs[:, 2]), narrow(logs[:, 0]))
  difference = logs[:, 2] - logs[:, 0]
  expected = scipy.stats.ttest_1samp(difference, 0).confidence_interval(0.95)
  np.testing.assert_allclose(np.log(found.ratio), np.mean(difference), atol=1e-4)
  np.testing.assert_allclose(np.log([found.low, found.high]), expected, atol=1e-3)
  assert found.pairs == 5


def test_a_pair_of_which_one_was_cut_says_which_way():
  first = Bounds(np.log([900.0, 1900.0, 5000.0]), np.log([1000.0, 2000.0, np.inf]))
  second = Bounds(np.log([450.0, 950.0, 900.0]), np.log([500.0, 1000.0, 1000.0]))
  found = paired_ratio(first, second)
  assert found.pairs == 3
  assert found.ratio > 2  # the third is above 5
  both = Bounds(np.full(2, 5.0), np.full(2, np.inf))
  assert paired_ratio(both, both) is None


def test_contrasts_bound_sums():
  bounds = Bounds(np.array([1.0, 2.0, -np.inf]), np.array([2.0, 4.0, np.inf]))
  found = contrasts(bounds, np.array([1.0, -2.0, 0.0]))
  assert (found.lower, found.upper) == (1 - 8, 2 - 4)
  # A weight that rounding has left of 0 is one.
  rounded = contrasts(bounds, np.array([1.0, -2.0, 1e-16]))
  assert (rounded.lower, rounded.upper) == (1 - 8, 2 - 4)


def test_cells_may_have_other_numbers_of_trials():
  rng = np.random.default_rng(0)
  n = np.exp(np.repeat([10.0, 11.0, 12.0], [2, 5, 3]) + 0.2 * rng.normal(size=10))
  samples, reached, checks = recorded(n)
  with np.errstate(all="raise", under="ignore"):
    means = cell_means(samples, reached, checks, np.repeat([1, 2, 4], [2, 5, 3]))
  assert all(mean.low < mean.mean < mean.high for mean in means.values())


def test_where_no_trial_reached_the_mean_is_the_budget():
  budget = 10_240.0
  samples, reached, checks = recorded(np.array([2e4, 3e4, 1500.0, 1700.0]), budget)
  bounds = Bounds(*(a.reshape(2, 2) for a in bounds_of(samples, reached, checks)))
  found = restricted_means(bounds, budget, EVERY)
  assert found.mean[0] == budget
  assert found.mean[1] < 2000


def known(logs):
  """Bounds so close that the numbers are as good as known."""
  return Bounds(logs - 1e-4, logs + 1e-4)


def test_straightness_is_the_f_test_of_lack_of_fit():
  rng = np.random.default_rng(11)
  x = np.repeat([4.0, 8, 16, 32], 6)
  logs = 0.2 * np.log(x) ** 2 + 0.2 * rng.normal(size=24)
  line = np.polynomial.Polynomial.fit(np.log(x), logs, 1)
  about_line = np.sum((logs - line(np.log(x))) ** 2)
  table = logs.reshape(4, 6)
  about_means = np.sum((table - np.mean(table, axis=1, keepdims=True)) ** 2)
  statistic = (about_line - about_means) / 2 / (about_means / 20)
  expected = scipy.stats.f.sf(statistic, 2, 20)
  assert 1e-6 < expected < 0.2
  assert straightness(x, known(logs)) == pytest.approx(expected, rel=0.02)
  assert np.isnan(straightness(x[:12], known(logs[:12])))


def test_straight_lines_are_rarely_called_bent():
  """With bounds as coarse as a check, and trials that spent their budget."""
  rng = np.random.default_rng(12)
  x = np.repeat([4.0, 8, 16], 6)
  found = []
  for _ in range(200):
    n = np.exp(np.log(800) + 0.7 * np.log(x) + 0.3 * rng.normal(size=18))
    samples, reached, checks = recorded(n, 10_240.0)
    found.append(straightness(x, bounds_of(samples, reached, checks)))
  assert abs(np.mean(np.array(found) < 0.05) - 0.05) < 3 * np.sqrt(0.05 * 0.95 / 200)


def test_local_exponents_are_those_of_neighbours():
  rng = np.random.default_rng(13)
  x = np.repeat([4.0, 8, 16], 5)
  logs = np.interp(x, [4, 8, 16], [7, 8, 10]) + 0.1 * rng.normal(size=15)
  reached = np.ones(15, bool)
  first, second = local_exponents(x, known(logs), reached)
  assert (first.over, second.over) == ((4, 8), (8, 16))
  assert first.c == pytest.approx(
    np.diff(logs.reshape(3, 5).mean(axis=1))[0] / np.log(2), abs=1e-3
  )
  assert first.low < 1 / np.log(2) < first.high
  assert second.low < 2 / np.log(2) < second.high
  assert len(local_exponents(x, known(logs), x < 16)) == 1
