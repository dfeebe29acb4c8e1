"""Statistics of records against their textbook forms."""

import dataclasses
import math

import numpy as np
import pytest
import rich.console

from experiments.qstr.query_key import block_statistics
from sepfx.drawing import figures
from sepfx.ensembles import Cell, Records, columns, joined, table
from sepfx.ensembles.results import probe_table
from sepfx.statistics import error_names, series
from sepfx.statistics.levels import Level
from sepfx.statistics.passages import Checks
from sepfx.statistics.probed import summarise_probes
from sepfx.statistics.summary import at_level, summarise
from sepfx.studies import tables
from sepfx.tasks import REGRESSION
from tests import small
from tests.programs import printed

BUDGET = 1000
COLUMNS = columns([Cell(small.TRIAL)])
ONE_LEVEL = [Level(0.7)]
CURVE = small.losses([10, 100], [1.2, 0.6], [True, True])


def as_records(rows, axes=()):
  """Rows as records, whose axes stand after the length; all curves are the same."""
  coordinates = ("task", "model", "length", *axes)
  types = {**dict.fromkeys(coordinates, float), **COLUMNS}
  found = Records(table(rows, types), coordinates, {})
  curves = dict.fromkeys(found.names(), CURVE)
  cells = map(found.cell_of, found.table)
  notes = {error_names.NOTE: dict.fromkeys(cells, REGRESSION.error_name)}
  return dataclasses.replace(found, all_curves=curves, notes=notes)


def risks(records, of=None):
  """Uniform attention's risk of each row: 1 - 1/N, or as given by length."""
  of = {2: 0.5, 4: 0.75, 8: 0.875, 16: 0.9375} if of is None else of
  return np.array([of[length] for length in records.table["length"].tolist()], float)


def records_of(outcomes):
  """Rows of two models at lengths 2, 4, 8 with given outcomes of model b at 8."""
  rows = []
  for model, factor in (("a", 100), ("b", 40)):
    for length in (2, 4, 8):
      for trial in range(3):
        outcome = outcomes[trial] if (model, length) == ("b", 8) else "reached"
        samples = factor * length + 10 * trial if outcome == "reached" else BUDGET
        rows.append(("qstr", model, length, trial, 0.7, samples, outcome))
  return as_records(rows)


def summary_of(records, levels=ONE_LEVEL, budget=BUDGET, risk=None, against="length",
               every=1, keys=None):  # fmt: skip
  """A summary of trials that are checked after each sample, unless said otherwise."""
  number = len(records.table)
  checks = Checks(
    np.ones(number), np.full(number, every), np.broadcast_to(budget, number)
  )
  risk = risks(records) if risk is None else risk
  keys = np.arange(number) if keys is None else keys
  return summarise(records, levels, checks, risk, keys, against)


def draw_records(records, summary, published, levels=ONE_LEVEL, **settings):
  return figures.sample_complexity(
    records, levels, summary, risks(records), published, **settings
  )


def arrows_of(axis):
  return [l for l in axis.lines if l.get_marker() == r"$\uparrow$" and len(l.get_xdata())]


def legend_labels(figure):
  return [text.get_text() for text in figure.legends[0].get_texts()]


def test_summary():
  records = records_of(["reached", "censored", "diverged"])
  summary = summary_of(records)
  assert summary["against"] == "length"
  cell = summary["cells"][-1]
  assert (cell["series"], cell["model"]) == ("b", "b")
  assert (cell["length"], cell["trials"]) == (8, 3)
  assert (cell["reached"], cell["censored"], cell["diverged"]) == (1, 1, 1)
  assert cell["restricted"]
  assert cell["recorded"] == pytest.approx((320 + 2 * BUDGET) / 3)
  # At N = 2 uniform attention is below the threshold: not the task, not in the fit.
  assert [tuple(e["over"]) for e in summary["exponents"]] == [(4, 8), (4, 8)]
  unknown = risks(records, dict.fromkeys((2, 4, 8), math.nan))
  everywhere = summary_of(records, risk=unknown)
  assert [tuple(e["over"]) for e in everywhere["exponents"]] == [(2, 4, 8)] * 2


def at_values(axis, values, model="a", c=1.0):
  """Rows of one model and length, whose n grows like (1 + value)^c along an axis."""
  return as_records(
    [
      ("qstr", model, 4, value, trial, 0.7, 100 * (1 + value) ** c + trial, "reached")
      for value in values
      for trial in range(3)
    ],
    (axis,),
  )


def test_summary_against_another_axis():
  records = as_records(
    [
      ("qstr", model, length, width, trial, 0.7, n * length * width + trial, "reached")
      for model, n in (("a", 20), ("b", 5))
      for length in (4, 8)
      for width in (2.0, 4.0, 8.0)
      for trial in range(3)
    ],
    ("width",),
  )
  summary = summary_of(records, budget=10**6, against="width")
  assert summary["against"] == "width"
  names = ["a, length=4", "a, length=8", "b, length=4", "b, length=8"]
  assert [cell["series"] for cell in summary["cells"]] == [
    name for name in names for _ in range(3)
  ]
  assert [cell["width"] for cell in summary["cells"]] == [2, 4, 8] * 4
  assert [cell["recorded"] for cell in summary["cells"]][:3] == [161, 321, 641]
  assert [e["series"] for e in summary["exponents"]] == names
  for exponent in summary["exponents"]:
    assert (exponent["against"], exponent["over"]) == ("width", (2, 4, 8))
    assert exponent["c"] == pytest.approx(1, abs=0.03)
  # Against the length it is the widths that make series.
  across = summary_of(records, budget=10**6)
  assert across["cells"][0]["series"] == "a, width=2"
  assert {tuple(e["over"]) for e in across["exponents"]} == {(4, 8)}


def test_an_axis_with_a_zero_has_means_and_no_exponent():
  records = at_values("noise", (0.0, 0.1, 0.2))
  summary = summary_of(records, against="noise")
  assert [cell["noise"] for cell in summary["cells"]] == [0, 0.1, 0.2]
  assert [cell["recorded"] for cell in summary["cells"]] == [101, 111, 121]
  assert summary["exponents"] == []


def test_ratios_compare_cells_that_differ_in_one_thing():
  """Of two models at two widths and rates: the model, the width or the rate differs."""
  generator = np.random.default_rng(0)
  rows = []
  factors = {"a": 1, "b": 2, 1e-3: 1, 3e-3: 0.5, 8.0: 1, 16.0: 3}
  for model in ("a", "b"):
    base = generator.integers(2000, 8000, 4)
    for width in (8.0, 16.0):
      for rate in (1e-3, 3e-3):
        factor = factors[model] * factors[width] * factors[rate]
        rows += [
          ("qstr", model, 4, width, rate, k, 0.7, int(n * factor), "reached")
          for k, n in enumerate(base)
        ]
  records = as_records(rows, ("width", "learning_rate"))
  keys = (records.table["model"] == "b").astype(int)
  summary = summary_of(records, budget=10**6, keys=keys)
  names = ("model", "width", "learning_rate", "of", "over", "pairs")
  found = {tuple(own[name] for name in names): own for own in summary["ratios"]}
  assert set(found) == {
    *(
      ("b", width, rate, "model", "a", None) for width in (8, 16) for rate in (1e-3, 3e-3)
    ),
    *((m, 16, rate, "width", 8, 4) for m in "ab" for rate in (1e-3, 3e-3)),
    *((m, width, 3e-3, "learning_rate", 1e-3, 4) for m in "ab" for width in (8, 16)),
  }
  for (_, _, _, of, _, _), ratio in found.items():
    expected = {"width": 3, "learning_rate": 0.5}.get(of)
    assert ratio["low"] < ratio["ratio"] < ratio["high"]
    if expected:  # trial by trial: though n themselves differ by a factor
      assert ratio["ratio"] == pytest.approx(expected, rel=1e-3)
      assert ratio["high"] / ratio["low"] < 1.02
    else:
      assert ratio["high"] / ratio["low"] > 2
  text = printed(tables.means(summary))
  assert "n over n of a, at equal settings:" in text
  assert "n over n of learning_rate=0.001, trial by trial:" in text
  assert "n over n of width=8, trial by trial:" in text
  budget = summary_of(records, budget=10**6)  # nobody shares keys with another
  assert {own["pairs"] for own in budget["ratios"]} == {None}


def test_coarse_means_say_so():
  records = records_of(["reached"] * 3)
  summary = summary_of(records, every=100)
  assert all(cell["coarse"] == (cell["mean"] < 1000) for cell in summary["cells"])
  assert any(cell["coarse"] for cell in summary["cells"])
  assert all(cell["resolution"] == 100 for cell in summary["cells"])
  figure = draw_records(records, summary, {})
  assert "one trial, between two checks" in legend_labels(figure)
  text = [part for part in tables.means(summary) if isinstance(part, str)]
  assert "Coarse: less than ten checks" in text[-1]


def test_series_are_told_apart_by_what_differs():
  rows = [
    ("qstr", model, 4, rate, decay, budget, 0, 0.7, 100, "reached")
    for model, budget in (("a", 500), ("b", 1000))
    for rate in (0.001, 0.003)
    for decay in (0.01,)
  ]
  axes = ("learning_rate", "weight_decay", "max_samples")
  names = series(as_records(rows, axes), ("length",))
  # Neither what all share nor a budget makes a series.
  assert names.tolist() == [
    "a, learning_rate=0.001", "a, learning_rate=0.003",
    "b, learning_rate=0.001", "b, learning_rate=0.003",
  ]  # fmt: skip
  along = series(as_records(rows, axes), ("learning_rate",))
  assert along.tolist() == ["a", "a", "b", "b"]


def test_runs_with_columns_of_their_own_are_joined():
  slow = records_of(["reached"] * 3)
  fast = records_of(["reached", "censored", "censored"])
  both = joined([(slow, {"learning_rate": 1e-3}), (fast, {"learning_rate": 3e-3})])
  assert both.coordinates == ("task", "model", "length", "learning_rate")
  assert both.table.dtype.names == (
    "task", "model", "length", "learning_rate", "trial", "threshold", "samples",
    "outcome",
  )  # fmt: skip
  half = len(slow.table)
  for part, own, rate in (
    (both.table[:half], slow.table, 1e-3),
    (both.table[half:], fast.table, 3e-3),
  ):
    assert set(part["learning_rate"]) == {rate}
    for column in own.dtype.names:
      np.testing.assert_array_equal(part[column], own[column])
  assert len(both.all_curves) == 2 * len(slow.all_curves)
  summary = summary_of(both)
  assert [c["recorded"] for c in summary["cells"] if c["series"].startswith("b")] == [
    90, 170, 330, 90, 170, pytest.approx((320 + 2 * BUDGET) / 3),
  ]  # fmt: skip
  assert [e["series"] for e in summary["exponents"]] == [
    f"{model}, learning_rate={rate}" for rate in (0.001, 0.003) for model in "ab"
  ]


def test_a_column_of_joined_runs_is_of_one_type():
  own = records_of(["reached"] * 3)
  both = joined([(own, {"dropout": 0}), (own, {"dropout": 0.5})])
  assert both.table["dropout"].dtype == float
  assert len(both.curves(dropout=0)) == len(both.curves(dropout=0.5)) == 18
  assert sorted(both.all_curves) == sorted(both.names())


def test_joined_runs_keep_their_models():
  own = records_of(["reached"] * 3)
  one, two = (
    dataclasses.replace(own, models=dict.fromkeys(own.names(), k)) for k in range(2)
  )
  both = joined([(one, {"learning_rate": 1e-3}), (two, {"learning_rate": 3e-3})])
  assert [both.models[name] for name in both.names()] == [0] * 18 + [1] * 18


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
  records = as_records(rows)
  summary = summary_of(records, levels)
  means = [[c["recorded"] for c in at_level(summary["cells"], level)] for level in levels]
  assert means == [[300, 400, 300], [200, 400, 800], []]
  (exponent,) = at_level(summary["exponents"], levels[1])
  assert exponent["c"] == pytest.approx(1, abs=0.01)  # n is known to one sample
  assert (exponent["threshold"], exponent["fraction"]) == (None, 0.5)


def test_runs_with_budgets_of_their_own():
  records = records_of(["censored"] * 3)
  rows = records.table
  rows["samples"][-3:] = 500
  budget = np.where((rows["model"] == "b") & (rows["length"] == 8), 500, BUDGET)
  summary = summary_of(records, budget=budget)
  assert [cell["recorded"] for cell in summary["cells"]][-2:] == [170, 500]
  assert [cell["budget"] for cell in summary["cells"]] == [BUDGET] * 5 + [500]
  figure = draw_records(records, summary, {})
  (arrows,) = arrows_of(figure.axes[0])
  assert set(arrows.get_ydata()) == {500}


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


def headers_of(shown):
  """The heads of a table's columns, where all fit side by side."""
  console = rich.console.Console(width=200)
  (table,) = shown.__rich_console__(console, console.options)
  return [column.header for column in table.columns]


def test_probes_are_summarised_by_cell():
  types = {"task": str, "model": str, "length": int, "trial": int}
  names = tuple(types)[:3]
  heads = [("qstr", model, 4, k) for model in ("a", "b") for k in range(3)]
  values = [1.0, 2.0, 3.0, 5.0, np.nan, np.nan]
  own = probe_table([(h, {"x": v}) for h, v in zip(heads, values, strict=True)], types)
  one, two = summarise_probes(Records(np.empty(0), names, {}, own))
  assert one == {
    "task": "qstr", "model": "a", "length": 4,
    "probes": {"x": {**one["probes"]["x"], "trials": 3, "mean": 2.0}},
  }  # fmt: skip
  # Student: 4.303 / sqrt(3).
  np.testing.assert_allclose(one["probes"]["x"]["low"], 2 - 2.484, atol=1e-3)
  np.testing.assert_allclose(one["probes"]["x"]["high"], 2 + 2.484, atol=1e-3)
  assert two["probes"]["x"] == {"trials": 1, "mean": 5.0, "low": None, "high": None}
  _, shown = tables.probes([one, two])
  assert headers_of(shown) == ["model", "x"]
  asked = ["risk:length=8", "risk:length=16", "risk"]
  own = [
    {**cell, "probes": dict.fromkeys(asked[::-1], one["probes"]["x"])}
    for cell in (one, two)
  ]
  _, shown = tables.probes(own)
  assert headers_of(shown) == ["model", asked[2], *asked[:2]]
