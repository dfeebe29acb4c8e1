"""Success fractions, critical sizes and their growth against what they must be."""

import dataclasses
import math

import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from experiments.boolean.exhaustive import stored_floor
from sepfx.drawing import success_figures
from sepfx.ensembles import Cell, Records, columns, table
from sepfx.models import ClsTransformer
from sepfx.statistics import success
from sepfx.statistics.success import Counts
from sepfx.statistics.success_summary import summarise_success
from sepfx.studies import tables
from sepfx.tasks import SparseBoolean
from sepfx.training import ERM

COLUMNS = columns([Cell(ERM().trial(SparseBoolean(), SparseBoolean(), ClsTransformer()))])
SIZES = np.array([20, 40, 60, 80, 100, 120])
UP, DOWN = r"$\Uparrow$", r"$\Downarrow$"


def simulated(critical, steepness, trials, seed=0, sizes=SIZES):
  """Trials that succeed with the chance of a known curve."""
  chance = 1 / (1 + (critical / sizes) ** steepness)
  drawn = np.random.default_rng(seed).binomial(trials, chance)
  return Counts(sizes, drawn, np.full(len(sizes), trials))


def critical(counts):
  """The critical size of trials at one length alone."""
  posteriors, _ = success.success_curves({50: counts})
  return success.critical_size(counts, posteriors.get(50))


def test_fractions_have_wilson_intervals():
  z = scipy.stats.norm.ppf(0.975)
  for k, n in ((0, 20), (7, 20), (20, 20)):
    own = success.success_fraction(k, n)
    # The interval's ends solve |p_hat - p| = z sqrt(p (1 - p) / n).
    for p in (own.low, own.high):
      assert abs(k / n - p) == pytest.approx(z * math.sqrt(p * (1 - p) / n), abs=1e-6)
    assert own.error == pytest.approx(math.sqrt(k / n * (1 - k / n) / n))


def test_trials_are_counted():
  counts = success.count(np.array([40, 20, 40, 40]), np.array([True, False, False, True]))
  assert [a.tolist() for a in counts] == [[20, 40], [0, 2], [1, 3]]


@pytest.mark.slow
def test_posterior_is_the_likelihood_under_its_prior():
  counts = simulated(66.0, 8.0, 10)

  def density(log_k, log_critical):
    chance = 1 / (1 + np.exp(-np.exp(log_k) * (np.log(SIZES) - log_critical)))
    each = scipy.stats.binom.pmf(counts.successes, counts.trials, chance)
    return np.prod(each)

  def mass(low, high):
    steep = (0.0, math.log(60))
    return scipy.integrate.dblquad(density, low, high, *steep, epsabs=0, epsrel=1e-4)[0]

  low, middle, high = math.log(10), math.log(65), math.log(240)
  expected = mass(low, middle) / (mass(low, middle) + mass(middle, high))
  own = success.posterior(counts, SIZES)
  assert own.critical(expected) == pytest.approx(65, rel=2e-3)
  # With many trials it is at the truth, whatever the prior.
  trials = simulated(66.0, 8.0, 4000)
  many = success.posterior(trials, SIZES)
  assert many.critical(0.5) == pytest.approx(66, rel=0.02)
  posteriors, steepness = success.success_curves({50: trials})
  np.testing.assert_allclose(posteriors[50].weights, many.weights, atol=1e-15)
  assert steepness.k == pytest.approx(8, rel=0.1)
  np.testing.assert_allclose(many.chance(SIZES), 1 / (1 + (66 / SIZES) ** 8.0), atol=0.02)


def searched(critical, steepness, trials, seed):
  """Trials of a search, three at a time."""
  rng = np.random.default_rng(seed)
  sizes, succeeded = np.array([], int), np.array([], bool)
  while len(sizes) < trials:
    chosen = success.choose_sizes(success.count(sizes, succeeded), SIZES, 3)
    chance = 1 / (1 + (critical / chosen) ** steepness)
    sizes = np.append(sizes, chosen)
    succeeded = np.append(succeeded, rng.random(3) < chance)
  return success.count(sizes, succeeded)


@pytest.mark.parametrize("search", [False, True])
def test_intervals_cover(search):
  covered = 0
  for seed in range(40):
    counts = searched(66.0, 6.0, 30, seed) if search else simulated(66.0, 6.0, 20, seed)
    own = critical(counts)
    assert own.low <= own.size <= own.high
    covered += own.low <= 66 <= own.high
  # 95% of 40 is 38; fewer than 33 has a chance of 2e-3 even at 93%.
  assert covered >= 33


def test_a_search_begins_wide_and_closes_in():
  none = success.count(np.array([], int), np.array([], bool))
  first = success.choose_sizes(none, SIZES, 5)
  assert first[0] <= 40
  assert first[-1] >= 80
  assert first.tolist() == sorted(first.tolist())
  known = success.choose_sizes(simulated(70.0, 30.0, 500), SIZES, 5)
  assert set(known.tolist()) <= {60, 80}
  # For the trials of this search it is surer than a grid of as many.
  widths = []
  for seed in range(10):
    counts = (searched(66.0, 10.0, 36, seed), simulated(66.0, 10.0, 6, seed))
    found = [critical(own) for own in counts]
    widths.append([math.log(own.high / own.low) for own in found])
  search, grid = np.mean(widths, axis=0)
  assert search < 0.9 * grid


def test_steps_and_grids_without_a_half():
  step = Counts(SIZES, np.array([0, 0, 0, 5, 5, 5]), np.full(6, 5))
  own = critical(step)
  assert 60 < own.low < own.size < own.high < 80
  assert own.on_grid == 80
  for successes in (0, 5):
    flat = critical(Counts(SIZES, np.full(6, successes), np.full(6, 5)))
    assert math.isnan(flat.size)
    assert flat.on_grid == 20 if successes else math.isnan(flat.on_grid)


def test_lengths_share_a_steepness():
  counts = {50: simulated(50.0, 8.0, 5, 1), 100: simulated(80.0, 8.0, 4, 2)}
  posteriors, steepness = success.success_curves(counts)
  # The whole joint distribution of log m_crit at both lengths and k.
  grids = [posteriors[length].log_critical for length in counts]
  k = np.geomspace(1, 60, 40)
  logs = success.log_likelihood(grids[0][:, None, None], k, counts[50])
  logs = logs + success.log_likelihood(grids[1][:, None], k, counts[100])
  joint = np.exp(logs - np.max(logs))
  joint /= np.sum(joint)
  np.testing.assert_allclose(posteriors[50].weights, np.sum(joint, axis=1), atol=1e-12)
  np.testing.assert_allclose(posteriors[100].weights, np.sum(joint, axis=0), atol=1e-12)
  assert k[0] < steepness.low < steepness.k < steepness.high < k[-1]
  of_k = np.sum(joint, axis=(0, 1))
  for value, level in ((steepness.low, 0.025), (steepness.k, 0.5)):
    assert np.sum(of_k[k < value]) == pytest.approx(level, abs=np.max(of_k))
  ratios = grids[1] - grids[0][:, None]
  both = np.sum(joint, axis=2)
  own = success.critical_ratio(posteriors[100], posteriors[50])
  for ratio, level in zip(own, (0.5, 0.025, 0.975), strict=True):
    share = np.sum(both[ratios < math.log(ratio)])
    assert share == pytest.approx(level, abs=0.01)


def test_trials_say_whether_lengths_share_a_steepness():
  def support(*steepness):
    each = (simulated(66.0, own, 200, k) for k, own in enumerate(steepness))
    return success.success_curves(dict(enumerate(each)))[1].support

  assert support(6.0) == pytest.approx(0)
  assert support(6.0, 6.0, 6.0) > 2
  assert support(3.0, 12.0) < -5


def test_ratio_of_critical_sizes():
  counts = {50: simulated(50.0, 8.0, 200, 2), 100: simulated(80.0, 8.0, 200, 1)}
  posteriors, _ = success.success_curves(counts)
  ratio, low, high = success.critical_ratio(posteriors[100], posteriors[50])
  assert low < 1.6 < high
  assert ratio == pytest.approx(1.6, rel=0.1)


@pytest.mark.parametrize("form", ["log", "power"])
def test_growth_tells_a_logarithm_from_a_power(form):
  lengths = (25, 50, 100, 200, 400)
  sizes = np.unique(np.geomspace(15, 400, 25).astype(int))
  true = {
    length: -20 + 20 * math.log(length) if form == "log" else 3 * length**0.7
    for length in lengths
  }
  counts = {
    length: simulated(true[length], 8.0, 100, k, sizes)
    for k, length in enumerate(lengths)
  }
  growth = success.fit_growth(counts)
  difference = growth.log_likelihood - growth.power_likelihood
  if form == "log":
    assert difference > 3
    assert growth.log[:2] == pytest.approx((-20, 20), rel=0.25)
  else:
    assert difference < -3
    assert growth.power[:2] == pytest.approx((3, 0.7), rel=0.2)
  two = {length: counts[length] for length in lengths[:2]}
  assert success.fit_growth(two) is None


def as_records(rows, curves=None, axes=()):
  """Rows as records; those of trials without a curve have none."""
  coordinates = (*tuple(COLUMNS)[:4], *axes)
  types = {**dict.fromkeys(coordinates, float), **COLUMNS}
  return Records(table(rows, types), coordinates, curves or {})


def records_of(models=("a", "b"), lengths=(50, 100, 200)):
  rows = []
  for model in models:
    for k, length in enumerate(lengths):
      counts = simulated(50 + 20 * k, 8.0, 10, k)
      for size, passed, trials in zip(*(a.tolist() for a in counts), strict=True):
        for trial in range(trials):
          outcome = "reached" if trial < passed else "censored"
          accuracy = 0.995 if trial < passed else 0.9
          rows.append(("and", model, length, size, trial, accuracy, 500, outcome))
  return as_records(rows)


def titles(figure):
  return [axis.get_title() for axis in figure.axes if axis.axison]


def test_summary_and_figure():
  records = records_of()
  floors = {50: stored_floor(SparseBoolean(length=50)), 100: None}
  summary = summarise_success(records, floors)
  assert len(summary["cells"]) == 2 * 3 * 6
  first = summary["cells"][0]
  rows = records.table
  own = rows[(rows["model"] == "a") & (rows["length"] == 50)]
  own = own[own["sample_size"] == 20]
  assert first["reached"] == np.sum(own["outcome"] == "reached")
  assert first["censored"] == 10 - first["reached"]
  assert [c["length"] for c in summary["critical"]] == [50, 100, 200] * 2
  pairs = [[50, 100], [50, 200], [100, 200]]
  assert [r["lengths"] for r in summary["ratios"]] == 2 * pairs
  assert summary["steepness"]["b"]["low"] < 8 < summary["steepness"]["b"]["high"]
  assert set(summary["growth"]["a"]) == {
    "log", "power", "log_likelihood", "power_likelihood",
  }  # fmt: skip
  steps = 10 * np.arange(1, 6)
  dtype = [
    ("steps", int),
    *((n, float) for n in ("test_error", "train_error", "train_loss")),
  ]
  curve = np.zeros(5, dtype)
  curve["steps"] = steps
  chosen = (rows["trial"] == 0) & (rows["length"] == 200) & (rows["model"] == "a")
  shown = records.where(chosen)
  shown = dataclasses.replace(shown, all_curves=dict.fromkeys(shown.names(), curve))
  figure = success_figures.success(shown, summary)
  assert titles(figure) == [
    "success, with standard errors:\na",
    "success, with standard errors:\nb",
    "critical sample size, 95% intervals",
    "a, T = 200, m = 20",
    "a, T = 200, m = 120",
  ]
  floor = figure.axes[2].get_lines()[-1]
  assert floor.get_xydata().tolist() == [[50, floors[50].size]]
  assert summary["no_floor"] == [100]


def test_values_of_an_axis_are_series():
  first, checks = records_of(models=("a",)), {0.0: 3, 0.1: 4}
  rows = [
    (*row[:4], noise, *row[4:-1], "censored" if noise and row[2] == 200 else row[-1])
    for noise in checks
    for row in first.table.tolist()
  ]
  records = as_records(rows, axes=("noise",))
  summary = summarise_success(records, {})
  names = ["a, noise=0", "a, noise=0.1"]
  for part in ("critical", "cells"):
    assert list(dict.fromkeys(each["series"] for each in summary[part])) == names
  assert [cell["noise"] for cell in summary["cells"]] == [0.0] * 18 + [0.1] * 18
  assert list(summary["steepness"]) == list(summary["growth"]) == names
  at_200 = [c["size"] for c in summary["critical"] if c["length"] == 200]
  assert at_200[0] is not None
  assert at_200[1] is None
  # Training curves are of the first series alone.
  dtype = [("steps", int), ("test_error", float), ("train_error", float)]
  curves = {
    name: np.zeros(number, dtype)
    for noise, number in checks.items()
    for name in records.names(noise=noise)
  }
  shown = dataclasses.replace(records, all_curves=curves)
  figure = success_figures.success(shown, summary)
  assert titles(figure)[:2] == [
    f"success, with standard errors:\n{name}" for name in names
  ]
  assert titles(figure)[3].startswith("a, noise=0, T = 200, m = ")
  assert {len(line.get_xdata()) for line in figure.axes[3].lines} == {3}
  ticks = figure.axes[2].get_xticklabels()
  assert [tick.get_text() for tick in ticks] == ["50", "100", "200"]


def test_series_stand_side_by_side_with_their_names_where_there_is_one_t():
  records = records_of(models=("a", "b, noise=0.1"))
  alone = records.where(records.table["length"] == 100)
  axis = success_figures.success(alone, summarise_success(alone, {})).axes[2]
  assert [tick.get_text() for tick in axis.get_xticklabels()] == ["a", "b\nnoise=0.1"]
  marks = [bar.get_children()[0].get_xdata()[0] for bar in axis.containers]
  np.testing.assert_allclose(axis.get_xticks(), marks)


def drawn(records, model, length):
  """The figure of records, with training curves of one model and length."""
  dtype = [("steps", int), ("test_error", float), ("train_error", float)]
  shown = records.where(records.table["length"] == length)
  curves = dict.fromkeys(shown.names(model=model), np.zeros(1, dtype))
  records = dataclasses.replace(records, all_curves=curves)
  return success_figures.success(records, summarise_success(records, {}))


def arrows(axis, *markers):
  """The points that arrows stand on."""
  lines = [line for line in axis.lines if line.get_marker() in (markers or (UP, DOWN))]
  return [point for line in lines for point in line.get_xydata().tolist()]


@pytest.mark.parametrize(
  ("outcome", "bound", "marker", "label"),
  [
    ("censored", 120, UP, "less than half succeeded up to here"),
    ("reached", 20, DOWN, "more than half succeeded from here"),
  ],
)
def test_where_all_trials_ended_alike_a_size_is_a_bound(outcome, bound, marker, label):
  records = records_of()
  rows = records.table
  alike = (rows["model"] == "b") & (rows["length"] == 200)
  rows["outcome"][alike] = outcome
  axis = drawn(records, "a", 200).axes[2]
  assert arrows(axis) == [[pytest.approx(200 * 1.08**0.5), bound]]
  assert arrows(axis, marker) == arrows(axis)
  legend = [text.get_text() for text in axis.get_legend().get_texts()]
  assert legend == ["a", "b", label]


def test_a_size_outside_those_tried_is_a_bound():
  """Where half succeed is the prior's guess if one of ten does at the largest size."""
  records = records_of(models=("a",))
  rows = records.table
  rows["outcome"][rows["length"] == 200] = "censored"
  first = (rows["length"] == 200) & (rows["sample_size"] == 120) & (rows["trial"] == 0)
  rows["outcome"][first] = "reached"
  summary = summarise_success(records, {})
  short, middle, long = summary["critical"]
  assert [short["bound"], middle["bound"]] == [None, None]
  assert (long["bound"], long["size"], long["low"], long["high"]) == (
    "more than", None, None, None
  )  # fmt: skip
  assert [ratio["lengths"] for ratio in summary["ratios"]] == [[50, 100]]
  assert summary["growth"]["a"] is None  # two sizes are known
  assert arrows(drawn(records, "a", 200).axes[1], UP) == [[200, 120]]
  shown = list(tables.successes(summary)[0].columns[2].cells)
  assert shown[0].startswith(f"{short['size']:.1f} [")
  assert shown[2] == "more than 120"


def test_several_models_have_a_logarithmic_axis():
  records = records_of()
  # Models may differ by orders of magnitude; alone, a + b log T is a straight line.
  for models, scale in ((["a", "b"], "log"), (["a"], "linear")):
    own = records.where(np.isin(records.table["model"], models))
    axis = drawn(own, "a", 200).axes[len(models)]
    assert axis.get_yscale() == scale
    assert arrows(axis) == []


def test_no_model_hides_another():
  records = records_of()
  records.table["outcome"][records.table["length"] == 200] = "censored"
  apart = 1.08**0.5
  assert arrows(drawn(records, "a", 200).axes[2]) == [
    [pytest.approx(200 / apart), 120],
    [pytest.approx(200 * apart), 120],
  ]
  alone = records.where(records.table["model"] == "b")
  assert arrows(drawn(alone, "b", 200).axes[1]) == [[200, 120]]


@pytest.mark.parametrize(
  ("successes", "shown"),
  [
    ({20: [0], 40: [0, 0], 60: [0, 0], 80: [1, 1], 100: [1, 1], 120: [1]}, [40, 100]),
    ({20: [0], 120: [0, 0]}, [120]),
  ],
)
def test_training_is_shown_where_most_trials_failed_and_where_most_succeeded(
  successes, shown
):
  rows = [
    ("and", "a", 50, size, k, 0.9, 500, "reached" if passed else "censored")
    for size, outcomes in successes.items()
    for k, passed in enumerate(outcomes)
  ]
  figure = drawn(as_records(rows), "a", 50)
  assert titles(figure)[2:] == [f"a, T = 50, m = {size}" for size in shown]


@pytest.mark.parametrize(("spike", "top"), [(400.0, 1.1), (2.0, None)])
def test_a_trial_that_jumps_flattens_no_other(spike, top):
  """A check in hundreds is cut off; what is no more than a few times as large is not."""
  rows = [("and", "a", 50, 20, k, 0.9, 500, "censored") for k in range(4)]
  records = as_records(rows)
  dtype = [("steps", int), ("test_error", float), ("train_error", float)]
  curves = {}
  for k, name in enumerate(records.names(model="a")):
    own = np.zeros(100, dtype)
    own["steps"], own["test_error"], own["train_error"] = np.arange(100), 1.0, 0.5
    own["test_error"][50] = spike if k == 0 else 1.0
    curves[name] = own
  records = dataclasses.replace(records, all_curves=curves)
  axis = success_figures.success(records, summarise_success(records, {})).axes[2]
  assert axis.get_ylim()[1] == pytest.approx(top or 2.075, rel=0.02)
