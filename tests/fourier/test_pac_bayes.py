"""PAC-Bayes bounds: their pieces, that they hold, and where they say something."""

import math

import numpy as np
import pytest
import scipy.optimize

from experiments.fourier.flatness import pac_bayes
from experiments.fourier.flatness.pac_bayes import Setting
from sepfx import InvalidSetting

SETTING = Setting(num_samples=1000, constant=0.1)


def test_divergence_is_that_of_the_gaussians():
  """By quadrature in one dimension: N(theta, sigma^2) from N(0, sigma^2)."""
  theta, sigma = 0.7, 0.3
  x = np.linspace(theta - 9 * sigma, theta + 9 * sigma, 200_001)
  density = np.exp(-((x - theta) ** 2) / (2 * sigma**2)) / sigma / math.sqrt(2 * math.pi)
  ratio = (x**2 - (x - theta) ** 2) / (2 * sigma**2)
  expected = np.trapezoid(density * ratio, x)
  assert pac_bayes.divergence(theta**2, sigma) == pytest.approx(expected)


def test_second_order_and_what_remains_of_it():
  """With P measured the sum is the measured loss, by definition."""
  perturbation = pac_bayes.risk_perturbation(0.5, 0.02, 30.0, 0.1)
  found = pac_bayes.gaussian_loss(0.02, 30.0, 0.1, perturbation)
  assert found == pytest.approx(0.5)
  assert pac_bayes.gaussian_loss(0.02, 30.0, 0.1) == pytest.approx(0.02 + 0.15)


@pytest.mark.parametrize("norm", [0.01, 3.0, 1e3, 1e6])
def test_union_over_lambda_costs_little(norm):
  """The bound is above the form that nothing pays for, and not by much."""
  free = pac_bayes.optimised_bound(0.1, norm, 0.05, SETTING)
  paid = pac_bayes.sub_gaussian_bound(0.1, norm, 0.05, SETTING)
  assert free < paid
  # log J more, and at most a factor sqrt(2) off the best lambda.
  price = norm / 0.05**2 + 2 * math.log(40 / SETTING.delta)
  worst = 0.1 * math.sqrt(price / 1000) * (2**0.5 + 2**-0.5) / 2
  assert paid - 0.1 <= worst * 1.0001


def test_the_bound_holds_where_everything_is_known():
  """Mean of a Gaussian under the squared loss cut at 1: exceptions are rarer than delta.

  theta depends on the sample. Losses lie between 0 and 1, so C = 1/2.
  """
  rng = np.random.default_rng(0)
  n, sigma, trials, delta = 40, 0.2, 400, 0.3
  setting = Setting(n, 0.5, delta)
  fresh = rng.normal(size=20_000)
  noise = rng.normal(size=200)

  def mean_loss(theta, data):
    weights = theta + sigma * noise[:, None]
    return float(np.mean(np.minimum((weights - data) ** 2, 1)))

  exceptions, gaps = 0, []
  for _ in range(trials):
    data = rng.normal(size=n)
    theta = data.mean()
    bound = pac_bayes.sub_gaussian_bound(mean_loss(theta, data), theta**2, sigma, setting)
    risk = mean_loss(theta, fresh[:2000])
    exceptions += risk > bound
    gaps.append(bound - risk)
  assert exceptions / trials < delta
  assert np.mean(gaps) < 0.5  # and it says something


def test_closed_sigma_is_the_minimum():
  for trace, norm, n in ((30.0, 2.0, 100), (1e4, 50.0, 8192), (0.1, 1e3, 10)):
    setting = Setting(n, 0.07)

    def truncated(log_sigma, trace=trace, norm=norm, n=n):
      sigma = math.exp(log_sigma)
      loss = pac_bayes.gaussian_loss(0.0, trace, sigma)
      return loss + 0.07 * math.sqrt(norm / n) / sigma

    best = scipy.optimize.minimize_scalar(
      truncated, bracket=(-3, 0), options={"xtol": 1e-12}
    )
    closed = pac_bayes.closed_sigma(trace, norm, setting)
    assert truncated(math.log(closed)) == pytest.approx(best.fun, rel=1e-10)
    assert closed == pytest.approx(math.exp(best.x), rel=1e-6)


def test_bounded_losses():
  """Both forms by hand."""
  kl = pac_bayes.divergence(2.0, 0.5)
  own = pac_bayes.mcallester(0.1, 2.0, 0.5, SETTING)
  assert own == pytest.approx(0.1 + math.sqrt((kl + math.log(1000 / 0.05)) / 1998))
  own = pac_bayes.neyshabur(0.1, 2.0, 0.5, SETTING)
  assert own == pytest.approx(0.1 + 4 * math.sqrt((kl + math.log(2000 / 0.05)) / 1000))


def test_samples_needed_is_the_least():
  for target in (0.5, 0.1, 0.013):
    n = pac_bayes.samples_needed(lambda n: 1 / math.sqrt(n), target)
    assert 1 / math.sqrt(n) < target <= 1 / math.sqrt(n - 1)
  assert pac_bayes.samples_needed(lambda n: 0.0, 1.0) == 1
  assert pac_bayes.samples_needed(lambda n: float(n < 9 * 10**17), 1.0) == 9 * 10**17
  assert pac_bayes.samples_needed(lambda n: 2.0 + 1 / n, 1.0) is None


def test_sub_gaussian_constant():
  rng = np.random.default_rng(0)
  # A Gaussian's is its standard deviation; of two equally likely values, half of their
  # distance; of a rare one it is far above the standard deviation.
  assert pac_bayes.sub_gaussian_constant(rng.normal(0, 0.3, 200_000)) == pytest.approx(
    0.3, rel=0.05
  )
  pair = np.array([0.0, 1.0] * 500)
  assert pac_bayes.sub_gaussian_constant(pair) == pytest.approx(0.5, rel=0.01)
  rare = np.array([1.0] * 100 + [0.0] * 99_900)
  found = pac_bayes.sub_gaussian_constant(rare)
  assert found > 3 * np.std(rare)
  assert found < 0.5


@pytest.mark.parametrize(
  ("call", "message"),
  [
    (lambda: pac_bayes.divergence(1.0, 0.0), "sigma: got 0.0"),
    (lambda: Setting(0, 0.1).check(), "num_samples: got 0"),
    (lambda: Setting(10, 0.0).check(), "constant: got 0.0"),
    (lambda: Setting(10, 0.1, 1.0).check(), "delta: got 1.0, takes a number between"),
    (lambda: pac_bayes.closed_sigma(0.0, 1.0, SETTING), "trace: got 0.0"),
    (lambda: pac_bayes.sub_gaussian_constant(np.ones(5)), "losses: .*not all the same"),
    (lambda: pac_bayes.mcallester(0.1, 1.0, 1.0, Setting(1, 1.0)), "num_samples: got 1"),
    (lambda: pac_bayes.sub_gaussian_bound(0.1, 1.0, -1.0, SETTING), "sigma: got -1.0"),
  ],
)
def test_bad_settings_are_refused(call, message):
  with pytest.raises(InvalidSetting, match=message):
    call()
