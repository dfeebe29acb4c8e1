"""Figures of the docs' records: nothing is cut off or touches, however narrow."""

import csv
import itertools
import json
import pathlib

import numpy as np
import pytest

from experiments.fourier.chain_of_thought import figure as chain_figures
from experiments.fourier.flatness import figures as flatness_figures
from experiments.fourier.fourier_generalisation import figure as gap_figures
from experiments.fourier.property_testing import figure as testing_figures
from experiments.qstr.few_heads import heads
from experiments.qstr.first_layer.figure import draw_spans
from experiments.qstr.memorising import memories
from experiments.qstr.norm_figures import draw_norms
from experiments.qstr.query_key import draw_products
from experiments.qstr.recurrent_width.figure import draw_widths
from experiments.qstr.table_1.figure import draw_exponents
from sepfx.drawing import best_figures, figures, looks, success_figures
from sepfx.ensembles import Records, table
from sepfx.statistics.levels import Level

RESULTS = pathlib.Path(__file__).parents[1] / "docs/results"
TASKS = {"simple_qstr": "simple-qSTR", "qstr": "qSTR"}


def value(text):
  for kind in (int, float):
    try:
      return kind(text)
    except ValueError:
      continue
  return text or None


def rows_of(path):
  with open(RESULTS / path, newline="") as file:
    return [{k: value(text) for k, text in row.items()} for row in csv.DictReader(file)]


def summary_of(name):
  """A recorded summary, with what earlier versions did not write."""
  summary = json.loads((RESULTS / name / "summary.json").read_text())
  for entry in [*summary.get("cells", ()), *summary.get("best", ())]:
    entry.setdefault("at_most", False)
  return {"error": "mean squared error", **summary}


def table_of(paths):
  """Rows of several files that have the same columns."""
  rows = [row for path in paths for row in rows_of(path)]
  kinds = {name: {type(row[name]) for row in rows} for name in rows[0]}
  types = {
    name: next(kind for kind in (str, float, int) if kind in own)
    for name, own in kinds.items()
  }
  return table([tuple(row.values()) for row in rows], types)


def records_of(pattern, probes=None):
  """Records without curves; the columns before `trial` tell cells apart."""
  trials, measured = (
    table_of(sorted(path.relative_to(RESULTS) for path in RESULTS.glob(own)))
    if own
    else None
    for own in (pattern, probes)
  )
  names = trials.dtype.names
  return Records(trials, names[: names.index("trial")], {}, probes=measured)


def many_levels():
  summary = summary_of("fig1_extended")
  records = records_of("fig1_extended/trials*.csv")
  risk = 1 - 1 / records.table["length"]
  levels = [Level(**own) for own in summary["levels"]]
  return figures.sample_complexity(records, levels, summary, risk, {})


def exponents():
  rows = rows_of("table_1/table_1.csv")
  return draw_exponents([{**row, "threshold": str(row["threshold"])} for row in rows],
                        TASKS)  # fmt: skip


def attention():
  return draw_products(np.eye(56), np.eye(56), 10, 23)


DRAWN = {
  "attention": attention,
  "best_rate": lambda: best_figures.best_rates(summary_of("best_rate")),
  "boolean_models": lambda: success_figures.success(
    records_of("boolean_models/trials*.csv"), summary_of("boolean_models")
  ),
  "chains": lambda: chain_figures.chains(
    records_of("chain_of_thought*/trials.csv", "chain_of_thought*/probes.csv"),
    summary_of("chain_of_thought_t20"),
  ),
  "exponents": lambda: best_figures.best_rates(summary_of("exponents/q")),
  "fig1_extended": many_levels,
  "fourier_t20": lambda: gap_figures.gaps(
    records_of("fourier_t20/trials.csv", "fourier_t20/probes.csv"),
    summary_of("fourier_t20"),
    "degree",
    "num_components",
  ),
  "few_heads": lambda: heads.draw_heads(summary_of("few_heads")),
  "first_layer": lambda: draw_spans(summary_of("first_layer")),
  "flat_learners": lambda: gap_figures.front(summary_of("flat_learners")),
  "growth": lambda: flatness_figures.growth(rows_of("construction_growth/growth.csv")),
  "guarantees": lambda: draw_norms(summary_of("guarantees")),
  "memorising": lambda: memories.draw_memories(summary_of("memorising")),
  "property_testing": lambda: testing_figures.sweeps(
    rows_of("property_testing/tests.csv"), summary_of("property_testing")
  ),
  "recurrent_width": lambda: draw_widths(summary_of("recurrent_width")),
  "sharpness": lambda: flatness_figures.flatness(
    rows_of("sharpness/sharpness.csv"), summary_of("sharpness")
  ),
  "table_1": exponents,
}
LOOKS = {
  "screen": ("screen", None),
  "page": ("paper", None),
  "column": ("paper", 3.3),
  "least": ("paper", looks.LOOKS["paper"].least),
  "slides": ("slides", None),
}


def names_of(axis):
  """Title and names of axes, with their places."""
  texts = (axis.title, axis.xaxis.label, axis.yaxis.label)
  return [(text.get_text(), text.get_window_extent()) for text in texts]


def labels_of(side):
  """Labels of the ticks that are seen, with their places."""
  low, high = sorted(side.get_view_interval())
  ticks = [tick for tick in side.get_major_ticks() if low <= tick.get_loc() <= high]
  sides = [text for tick in ticks for text in (tick.label1, tick.label2)]
  return [
    (text.get_text(), text.get_window_extent())
    for text in sides
    if text.get_visible() and text.get_text()
  ]


def shrunk(box, share=0.1):
  """Letters do not fill the box of their line."""
  return box.expanded(1 - share, 1 - 2 * share)


@pytest.mark.parametrize(
  "look",
  [
    own if own == "column" else pytest.param(own, marks=pytest.mark.slow) for own in LOOKS
  ],
)
@pytest.mark.parametrize("name", DRAWN)
def test_nothing_is_cut_off_and_nothing_touches(name, look):
  style, width = LOOKS[look]
  with looks.look(style, width):
    figure = DRAWN[name]()
    figure.draw_without_rendering()
    if style == "paper":
      assert figure.get_figwidth() == pytest.approx(width or 6.75)
    shown = [axis for axis in figure.axes if axis.axison]
    legends = [*figure.legends, *(axis.get_legend() for axis in shown)]
    legends = [legend for legend in legends if legend]
    titles = [own for axis in shown for own in names_of(axis) if own[0].strip()]
    inside = [(f"legend {k}", l.get_window_extent()) for k, l in enumerate(legends)]
    ticks = [labels_of(side) for axis in shown for side in (axis.xaxis, axis.yaxis)]
    whole = figure.bbox
    for text, box in [*titles, *inside, *itertools.chain(*ticks)]:
      assert box.x0 >= whole.x0 - 3, text
      assert box.x1 <= whole.x1 + 3, text
      assert box.y0 >= whole.y0 - 3, text
      assert box.y1 <= whole.y1 + 3, text
    for (first, one), (second, other) in itertools.combinations([*titles, *inside], 2):
      assert not shrunk(one).overlaps(shrunk(other)), (first, second)
    for labels in ticks:
      for (first, one), (second, other) in itertools.pairwise(labels):
        assert not shrunk(one).overlaps(shrunk(other)), (first, second)
    # A logarithmic axis tells how it runs.
    sides = [side for axis in shown for side in (axis.xaxis, axis.yaxis)]
    for side, labels in zip(sides, ticks, strict=True):
      if side.get_scale() == "log" and labels:
        assert len(labels) >= 2, side.axes.get_title()
    # What is drawn has its part of the panel.
    for axis in shown:
      if axis.get_subplotspec() is not None:
        across, _ = looks.panel_of(axis)
        box = axis.get_window_extent().transformed(figure.dpi_scale_trans.inverted())
        assert box.width > 0.35 * across
        assert box.height > looks.points(0.9)
