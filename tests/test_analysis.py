"""Statistics against their textbook forms; figures against what they must show."""

import math

import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from sepfx.analysis import (
  block_statistics,
  figures,
  fit_exponent,
  restricted_mean,
  summarise,
)
from sepfx.analysis.scaling import fit_line
from sepfx.analysis.summary import at_level
from sepfx.ensembles import Cell, columns, table
from sepfx.training import Level
from tests import small

BUDGET = 1000
COLUMNS = columns(Cell("m", small.TRIAL))
ONE_LEVEL = [Level(0.7)]


def test_restricted_mean_is_the_area_under_kaplan_meier():
  samples = np.array([100, 300, 300, 700, 1000, 1000])
  reached = np.array([True, True, True, True, False, False])
  mean = restricted_mean(samples, reached, BUDGET)
  data = scipy.stats.CensoredData.right_censored(samples, ~reached)
  survival = scipy.stats.ecdf(data).sf
  times = np.arange(BUDGET)
  np.testing.assert_allclose(mean.mean, survival.evaluate(times).sum(), rtol=1e-12)
  assert mean.restricted


def test_restricted_mean_without_censoring_is_student():
  samples = np.array([10.0, 20.0, 40.0, 50.0])
  mean = restricted_mean(samples, np.ones(4, bool), BUDGET)
  interval = scipy.stats.ttest_1samp(samples, 0).confidence_interval(0.95)
  np.testing.assert_allclose((mean.low, mean.high), interval)
  assert mean.mean == 30
  assert not mean.restricted
  assert math.isnan(restricted_mean(samples[:1], np.ones(1, bool), BUDGET).low)


def test_a_diverged_trial_never_reached():
  mean = restricted_mean(np.array([100, 7]), np.array([True, False]), BUDGET)
  assert mean.mean == (100 + BUDGET) / 2


def test_intervals_stay_in_range():
  mean = restricted_mean(np.array([10, 990]), np.ones(2, bool), BUDGET)
  assert (mean.low, mean.high) == (0, BUDGET)


def test_line_without_censoring_is_least_squares():
  rng = np.random.default_rng(0)
  x, y = rng.normal(size=(2, 30))
  c, a = np.polyfit(x, y, 1)
  np.testing.assert_allclose(fit_line(x, y, np.ones(30, bool)), [a, c], rtol=1e-9)


def test_censored_line_maximises_the_likelihood():
  rng = np.random.default_rng(1)
  x = np.repeat([0.0, 1.0, 2.0, 3.0], 8)
  y = 1 + 0.8 * x + 0.3 * rng.normal(size=x.size)
  observed = y < 2.8
  y = np.minimum(y, 2.8)
  assert 5 < np.sum(~observed) < 16

  def negative_log_likelihood(parameters):
    a, c, log_sigma = parameters
    z = (y - a - c * x) / math.exp(log_sigma)
    dense = scipy.stats.norm.logpdf(z) - log_sigma
    return -np.sum(np.where(observed, dense, scipy.stats.norm.logsf(z)))

  best = scipy.optimize.minimize(
    negative_log_likelihood,
    [0, 0, 0],
    method="Nelder-Mead",
    options={"xatol": 1e-8, "fatol": 1e-10, "maxiter": 5000},
  )
  np.testing.assert_allclose(fit_line(x, y, observed), best.x[:2], atol=2e-4)


def test_exponent_and_its_interval():
  rng = np.random.default_rng(2)
  lengths = np.repeat([4, 6, 8, 12], 20)
  samples = 50 * lengths**1.5 * np.exp(0.1 * rng.normal(size=80))
  exponent = fit_exponent(lengths, samples, np.ones(80, bool), 10**9)
  assert exponent.low < 1.5 < exponent.high
  assert exponent.high - exponent.low < 0.2
  np.testing.assert_allclose(
    exponent.c, np.polyfit(np.log(lengths), np.log(samples), 1)[0]
  )
  # Censoring the longest trials must not bend the exponent towards zero.
  reached = samples < 1700
  cut = fit_exponent(lengths, np.minimum(samples, 1700), reached, 1700)
  assert 0.1 < np.mean(~reached) < 0.4
  assert abs(cut.c - 1.5) < 0.1
  assert fit_exponent(lengths, samples, lengths == 4, 1700) is None


def records_of(outcomes):
  """Rows of two models at lengths 2, 4, 8 with given outcomes of model b at 8."""
  rows = []
  for model, factor in (("a", 100), ("b", 40)):
    for length in (2, 4, 8):
      for trial in range(3):
        outcome = outcomes[trial] if (model, length) == ("b", 8) else "reached"
        samples = factor * length + 10 * trial if outcome == "reached" else BUDGET
        rows.append(("qstr", model, length, trial, 0.7, samples, outcome))
  return table(rows, COLUMNS)


RISK = {2: 0.5, 4: 0.75, 8: 0.875}


def test_summary():
  records = records_of(["reached", "censored", "diverged"])
  summary = summarise(records, ONE_LEVEL, BUDGET, RISK)
  cell = summary["cells"][-1]
  assert (cell["model"], cell["length"], cell["trials"]) == ("b", 8, 3)
  assert (cell["reached"], cell["censored"], cell["diverged"]) == (1, 1, 1)
  assert cell["restricted"]
  assert cell["mean"] == pytest.approx((320 + 2 * BUDGET) / 3)
  # At N = 2 uniform attention is below the threshold: not the task, not in the fit.
  assert [tuple(e["lengths"]) for e in summary["exponents"]] == [(4, 8), (4, 8)]
  everywhere = summarise(records, ONE_LEVEL, BUDGET, dict.fromkeys(RISK))
  assert [tuple(e["lengths"]) for e in everywhere["exponents"]] == [(2, 4, 8)] * 2


def test_levels_are_kept_apart():
  """A loss, and a fraction of uniform attention's that is the same loss at N = 4."""
  samples = {
    2: {0.375: 300, 0.25: 200},
    4: {0.375: 400},
    8: {0.375: 300, 0.4375: 800},
  }
  rows = [
    ("qstr", "a", length, 0, threshold, n, "reached")
    for length, by_threshold in samples.items()
    for threshold, n in by_threshold.items()
  ]
  levels = [Level(0.375), Level(0.5, of_uniform=True), Level(0.5)]
  summary = summarise(table(rows, COLUMNS), levels, BUDGET, RISK)
  means = [[c["mean"] for c in at_level(summary["cells"], level)] for level in levels]
  assert means == [[300, 400, 300], [200, 400, 800], []]
  (exponent,) = at_level(summary["exponents"], levels[1])
  assert exponent["c"] == pytest.approx(1)
  assert (exponent["threshold"], exponent["fraction"]) == (None, 0.5)


def test_runs_with_budgets_of_their_own():
  records = records_of(["censored"] * 3)
  records["samples"][-3:] = 500
  budget = np.where((records["model"] == "b") & (records["length"] == 8), 500, BUDGET)
  summary = summarise(records, ONE_LEVEL, budget, RISK)
  assert [cell["mean"] for cell in summary["cells"]][-2:] == [170, 500]
  assert [cell["budget"] for cell in summary["cells"]] == [BUDGET] * 5 + [500]
  figure = draw_records(records, summary, {})
  (arrows,) = arrows_of(figure.axes[0])
  assert set(arrows.get_ydata()) == {500}


def test_losses_are_shown_where_all_models_were_run():
  records = records_of(["reached"] * 3)
  for kept, length in (
    ((records["model"] == "a") | (records["length"] < 8), 4),
    ((records["model"] == "a") == (records["length"] == 8), 8),  # none in common
  ):
    own = records[kept]
    figure = draw_records(own, summarise(own, ONE_LEVEL, BUDGET, RISK), {})
    assert figure.axes[1].get_title() == f"test loss at N = {length}"


def draw_records(records, summary, published, levels=ONE_LEVEL):
  curves = {}
  for row in records:
    name = f"task=qstr/model={row['model']}/length={row['length']}/trial={row['trial']}"
    dtype = [("samples", int), ("loss", float), ("exact", bool)]
    curves[name] = np.array([(10, 1.2, True), (100, 0.6, True)], dtype)
  return figures.sample_complexity(records, curves, levels, summary, RISK, published)


def draw(outcomes, published):
  records = records_of(outcomes)
  summary = summarise(records, ONE_LEVEL, BUDGET, RISK)
  return draw_records(records, summary, published)


def arrows_of(axis):
  return [l for l in axis.lines if l.get_marker() == r"$\uparrow$" and len(l.get_xdata())]


def legend_labels(figure):
  return [text.get_text() for text in figure.legends[0].get_texts()]


def test_figure_marks_what_was_not_reached():
  figure = draw(
    ["reached", "censored", "diverged"], {("a", 0.7): [(2, 150.0), (4, 380.0)]}
  )
  counts = figure.axes[0]
  (arrows,) = arrows_of(counts)
  assert set(arrows.get_ydata()) == {BUDGET}
  assert "threshold not reached" in legend_labels(figure)
  # The mean that they are part of, and no other.
  bounds = [l for l in counts.lines if l.get_marker() == r"$\Uparrow$"]
  assert sum(len(l.get_xdata()) for l in bounds) == 1
  assert "mean is a lower bound" in legend_labels(figure)
  assert "published mean" in legend_labels(figure)
  hollow = [l for l in counts.lines if l.get_markerfacecolor() == "white"]
  np.testing.assert_array_equal(hollow[0].get_ydata(), [150, 380])
  plain = draw(["reached"] * 3, {})
  assert "threshold not reached" not in legend_labels(plain)
  assert "published mean" not in legend_labels(plain)


def test_legend_and_labels_do_not_cover_data(tmp_path):
  figure = draw(["reached", "censored", "diverged"], {})
  figure.savefig(tmp_path / "figure.png")
  legend = figure.legends[0].get_window_extent()
  for axis in figure.axes:
    assert not legend.overlaps(axis.get_window_extent())
  counts = figure.axes[0]
  text = counts.texts[0].get_window_extent()
  for line in counts.lines:
    points = counts.transData.transform(np.column_stack(line.get_data()).astype(float))
    for x, y in points:
      assert not text.contains(x, y)


def test_many_levels_stand_in_rows():
  levels = [*ONE_LEVEL, *(Level(k / 8, of_uniform=True) for k in (2, 3, 4, 5))]
  first = records_of(["reached"] * 3).tolist()
  rows = [
    (*row[:4], level.threshold(RISK[row[2]]), *row[5:])
    for level in levels
    for row in first
  ]
  records = table(rows, COLUMNS)
  summary = summarise(records, levels, BUDGET, RISK)
  figure = draw_records(records, summary, {}, levels)
  shown = [axis for axis in figure.axes if axis.axison]
  assert [axis.get_title() for axis in shown[:2]] == [
    "test MSE below 0.7",
    "test MSE below 0.25 of uniform attention's",
  ]
  assert shown[5].get_title() == "test loss at N = 8"
  assert len(shown) == 6


def test_block_statistics():
  d, d_e = 2, 3
  matrix = np.zeros((8, 8))
  matrix[5:, 2:5] = 4 * np.eye(3)
  matrix[5, 3] = -1.0
  matrix[0, 0] = 1.0
  statistics = block_statistics(matrix, d, d_e)
  assert statistics["share_in_block"] == pytest.approx(49 / 50)
  assert statistics["rows_won_by_diagonal"] == 1.0
  assert statistics["mean_diagonal"] == 4.0
  assert statistics["mean_off_diagonal"] == pytest.approx(1 / 6)
  matrix[6, 0] = 5.0  # outside the block, but in the row
  assert block_statistics(matrix, d, d_e)["rows_won_by_diagonal"] == pytest.approx(2 / 3)


def test_attention_figure_draws_both_matrices():
  learned, constructed = np.eye(8), 2 * np.eye(8)
  figure = figures.attention(learned, constructed, 2, 3)
  images = [axis.images[0] for axis in figure.axes if axis.images]
  np.testing.assert_array_equal(images[0].get_array(), learned)
  np.testing.assert_array_equal(images[1].get_array(), constructed)
