"""Marks, panels and labels of figures: whose they are, and what they say."""

import dataclasses

import numpy as np
import pytest

from sepfx.drawing import figures, looks
from sepfx.errors import InvalidSetting
from tests.test_analysis import (
  as_records,
  at_values,
  draw_records,
  legend_labels,
  records_of,
  summary_of,
)


def test_own_models_wear_no_library_model_s_marks():
  names = list(looks._OF_MODELS)
  library = looks.styles_of([n for name in names for n in (name, f"{name}, lr=0.1")])
  own = looks.styles_of(
    [
      "Transformer",
      "mylab:Transformer",
      "ffn",
      "mine",
      *(f"mine, lr={k}" for k in range(9)),
    ]
  )
  own.pop("ffn")
  for look in ("color", "marker"):
    worn = {str(style[look]) for style in library.values()}
    assert worn.isdisjoint({str(style[look]) for style in own.values()})
  shown = {(s["color"], str(s["marker"]), s["fillstyle"]) for s in own.values()}
  assert len(shown) == len(own)


def first_checks():
  """Model a passes at its first check at N = 4; at 8 and 16 later. b always later."""
  factors = {("a", 4): 1, ("a", 8): 20, ("a", 16): 45}
  return as_records(
    [
      ("qstr", m, N, k, 0.7, 100 * factors.get((m, N), 3 * N + k), "reached")
      for m in ("a", "b")
      for N in (4, 8, 16)
      for k in range(3)
    ]
  )


def test_a_cell_that_passes_at_its_first_check_is_drawn_as_an_upper_bound():
  records = first_checks()
  summary = summary_of(records, budget=10**6, every=100)
  figure = draw_records(records, summary, {})
  counts = figure.axes[0]
  down = [l for l in counts.lines if l.get_marker() == r"$\Downarrow$"]
  (shown,) = [l for l in down if len(l.get_xdata())]
  np.testing.assert_array_equal(shown.get_ydata(), [100])
  assert "at most n: passes at the first check" in legend_labels(figure)
  # All of the arrow is inside the panel.
  (place,) = shown.get_transform().transform(shown.get_xydata())
  length = shown.get_markersize() * figure.dpi / 72
  assert counts.bbox.y0 < place[1] - length / 2
  # The mean's mark is there too, not far below.
  marker = looks.styles_of("ab")["a"]["marker"]
  means = [l for l in counts.lines if l.get_marker() == marker and not l.get_alpha()]
  assert any(100 in l.get_ydata() for l in means)
  others = records_of(["reached"] * 3)
  plain = draw_records(others, summary_of(others), {})
  assert "at most n: passes at the first check" not in legend_labels(plain)


def own_measure(name):
  records = records_of(["reached"] * 3)
  return dataclasses.replace(
    records,
    notes={"error_name": dict.fromkeys(map(records.cell_of, records.table), name)},
  )


def test_figures_say_what_is_measured():
  records = own_measure("error rate")
  counts, curves = draw_records(records, summary_of(records), {}).axes
  assert counts.get_title() == "test error rate below 0.7"
  assert curves.get_ylabel() == "test error rate"
  assert curves.get_title() == "test error rate at $N$ = 8"


@pytest.mark.parametrize("style", ["paper", "screen"])
@pytest.mark.parametrize("panel", [0, 1])
def test_one_panel_alone_is_no_taller_than_wide(style, panel):
  width = {"paper": 3.3, "screen": 4.5}[style]
  records = at_values("learning_rate", (1e-3, 3e-3, 1e-2), c=-50)
  summary = summary_of(records, against="learning_rate")
  with looks.look(style, width):
    figure = draw_records(records, summary, {}, against="learning_rate", panels=[panel])
    figure.draw_without_rendering()
  (axis,) = figure.axes
  whole = draw_records(records, summary, {}, against="learning_rate")
  assert axis.get_title().replace("\n", " ") == whole.axes[panel].get_title()
  assert figure.get_figwidth() == width
  assert figure.get_figheight() <= width
  assert axis.bbox.height > 0.25 * figure.bbox.height
  (legend,) = figure.legends
  assert not legend.get_window_extent().overlaps(axis.get_tightbbox())
  assert ("one trial" in legend_labels(figure)) == (panel == 0)


@pytest.mark.parametrize("panels", [2, [0, 0], [-1], [], "01", [True], 1.5])
def test_panels_that_are_not_there_are_refused(panels):
  records = records_of(["reached"] * 3)
  with pytest.raises(InvalidSetting, match=r"panels: got .*, takes places of panels"):
    draw_records(records, summary_of(records), {}, panels=panels)


def test_labels_stand_at_their_lines():
  np.testing.assert_allclose(figures.apart([0.1, 0.5], [0.1, 0.1]), [0.1, 0.5])
  # Three that would overlap move apart, both ways.
  moved = figures.apart([0.5, 0.5, 0.52], [0.1, 0.3, 0.1])
  np.testing.assert_allclose(np.diff(moved), [0.2, 0.2])
  assert np.mean(moved) == pytest.approx(np.mean([0.5, 0.5, 0.52]))
  records = records_of(["reached"] * 3)
  curves = draw_records(records, summary_of(records), {}).axes[1]
  label = next(t for t in curves.texts if "uniform" in t.get_text())
  low, high = curves.get_ylim()
  assert label.xy[1] == pytest.approx((0.875 - low) / (high - low))
