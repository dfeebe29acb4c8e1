"""Figures of records against what they must show."""

import dataclasses
import itertools

import matplotlib.colors
import matplotlib.figure
import numpy as np
import pytest

from sepfx.drawing import figures, looks
from sepfx.drawing.ticks import label_logarithmic, label_places
from sepfx.errors import InvalidSetting
from sepfx.statistics.levels import Level
from tests.test_analysis import (
  BUDGET,
  ONE_LEVEL,
  arrows_of,
  as_records,
  at_values,
  draw_records,
  legend_labels,
  records_of,
  risks,
  summary_of,
)


def draw(outcomes, published):
  records = records_of(outcomes)
  summary = summary_of(records)
  return draw_records(records, summary, published)


def test_losses_are_shown_where_all_models_were_run():
  records = records_of(["reached"] * 3)
  rows = records.table
  for kept, length in (
    ((rows["model"] == "a") | (rows["length"] < 8), 4),
    ((rows["model"] == "a") == (rows["length"] == 8), 8),  # none in common
  ):
    own = records.where(kept)
    figure = draw_records(own, summary_of(own), {})
    assert figure.axes[1].get_title() == f"test MSE at $N$ = {length}"


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


def test_figure_against_another_axis():
  records = at_values("learning_rate", (1e-3, 3e-3, 1e-2), c=-50)
  summary = summary_of(records, against="learning_rate")
  figure = draw_records(records, summary, {}, against="learning_rate")
  counts, losses = figure.axes
  assert counts.get_xlabel() == "learning rate"
  assert counts.get_xscale() == "log"
  assert counts.get_xticks().tolist() == [1e-3, 3e-3, 1e-2]
  assert [label.get_text() for label in counts.get_xticklabels()] == [
    "0.001", "0.003", "0.01",
  ]  # fmt: skip
  exponents = counts.get_legend()
  assert exponents.get_title().get_text() == r"$c$ of $n \sim \mathrm{learning\ rate}^c$"
  assert losses.get_title() == r"test MSE at $\mathrm{learning\ rate}$ = 0.01"
  # Trials with their dots, the threshold, uniform attention.
  assert len(losses.lines) == 2 * 3 + 2
  assert legend_labels(figure)[0] == "a"
  # Published means are at lengths, of a model by its name alone.
  means = {("a", 0.7): [(2, 150.0), (4, 380.0)]}
  along = draw_records(records, summary, means, against="learning_rate")
  assert len(along.axes[0].lines) == len(counts.lines)
  assert "published mean" not in legend_labels(along)
  other = {("b", 0.7): means["a", 0.7]}
  lengths = records_of(["reached"] * 3)
  lengths = lengths.where(lengths.table["model"] == "a")
  alone = summary_of(lengths)
  assert "published mean" not in legend_labels(draw_records(lengths, alone, other))
  assert "published mean" in legend_labels(draw_records(lengths, alone, means))


@pytest.mark.parametrize(("high", "labels"), [(100, ["1", "2", "5"]), (1e6, ["1", "10"])])
def test_labels_of_a_long_logarithmic_axis_are_fewer(high, labels):
  figure = matplotlib.figure.Figure()
  axis = figure.subplots()
  axis.set(xscale="log", xlim=(1, high))
  label_logarithmic(axis.xaxis)
  figure.draw_without_rendering()
  ticks = zip(axis.get_xticks(), axis.get_xticklabels(), strict=True)
  shown = [label.get_text() for x, label in ticks if 1 <= x <= 10]
  assert shown[: len(labels)] == labels


def test_figure_against_an_axis_with_a_zero():
  records = at_values("noise", (0.0, 0.1, 0.2))
  summary = summary_of(records, against="noise")
  counts = draw_records(records, summary, {}, against="noise").axes[0]
  assert counts.get_xscale() == "linear"
  assert counts.get_legend() is None
  trials, *_ = (line for line in counts.lines if line.get_alpha())
  assert sorted(set(trials.get_xdata())) == pytest.approx([0, 0.1, 0.2])


def test_series_that_share_an_axis_stand_side_by_side():
  records = as_records(
    [
      ("qstr", "a", 4, noise, width, trial, 0.7, 100 + trial, "reached")
      for noise in (0.0, 0.1)
      for width in (8.0, 16.0)
      for trial in range(2)
    ],
    ("noise", "width"),
  )
  summary = summary_of(records, against="noise")
  figure = draw_records(records, summary, {}, against="noise")
  assert legend_labels(figure)[:2] == ["a, width=8", "a, width=16"]
  first, second = (l.get_xdata() for l in figure.axes[0].lines if l.get_alpha())
  assert np.all(first < second)


@pytest.mark.parametrize(("style", "width"), [("screen", None), ("paper", 3.3)])
def test_legend_and_labels_do_not_cover_data(tmp_path, style, width):
  with looks.look(style, width):
    records = at_values("sparsity", (1, 2, 4), c=1.0)
    summary = summary_of(records, against="sparsity")
    figure = draw_records(records, summary, {}, against="sparsity")
    figure.savefig(tmp_path / "figure.png")
    figure.savefig(tmp_path / "figure.pdf")
  assert b"/Type3" not in (tmp_path / "figure.pdf").read_bytes()
  if width:
    assert figure.get_figwidth() == width
  legend = figure.legends[0].get_window_extent()
  for axis in figure.axes:
    assert not legend.overlaps(axis.get_window_extent())
  counts = figure.axes[0]
  text = counts.get_legend().get_window_extent()
  for line in counts.lines:
    points = counts.transData.transform(np.column_stack(line.get_data()).astype(float))
    for x, y in points:
      assert not text.contains(x, y)


def test_many_levels_stand_in_rows():
  levels = [*ONE_LEVEL, *(Level(k / 8, of_uniform=True) for k in (2, 3, 4, 5))]
  first = records_of(["reached"] * 3)
  rows = [
    (*row[:4], level.threshold(risk), *row[5:])
    for level in levels
    for row, risk in zip(first.table.tolist(), risks(first), strict=True)
  ]
  records = as_records(rows)
  summary = summary_of(records, levels)
  figure = draw_records(records, summary, {}, levels)
  shown = [axis for axis in figure.axes if axis.axison]
  assert [axis.get_title() for axis in shown[:2]] == [
    "test MSE below 0.7",
    "test MSE below 0.25 of uniform attention's",
  ]
  assert shown[5].get_title() == "test MSE at $N$ = 8"
  assert len(shown) == 6


@pytest.mark.parametrize(
  "models",
  [["a", "b"], ["transformer", "a name that is long"], [f"model {k}" for k in range(12)]],
)
def test_legend_and_exponents_stay_within_the_figure(models):
  rates = [0.001, 0.003]
  rows = [
    ("qstr", model, length, rate, trial, 0.7, 10 * length + trial, "reached")
    for model in models
    for length in (4, 8, 16)
    for rate in rates
    for trial in range(3)
  ]
  records = as_records(rows, axes=("learning_rate",))
  figure = draw_records(records, summary_of(records), {})
  figure.draw_without_rendering()
  (legend,) = figure.legends
  boxes = [legend.get_window_extent()]
  boxes += [a.get_legend().get_window_extent() for a in figure.axes if a.get_legend()]
  for box in boxes:
    assert 0 <= box.x0 < box.x1 <= figure.bbox.width
  panels = [axis.get_tightbbox() for axis in figure.axes]
  assert 0 <= boxes[0].y0 < boxes[0].y1 <= min(panel.y0 for panel in panels)
  assert max(panel.y1 for panel in panels) <= figure.bbox.height
  assert min(axis.get_window_extent().height for axis in figure.axes) > 200
  looks = [
    (line.get_color(), line.get_fillstyle(), line.get_marker())
    for line in legend.get_lines()
  ]
  assert len(set(looks)) == len(looks) > 2 * len(models)
  exponents = figure.axes[0].get_legend()
  many = exponents.get_title().get_text().endswith("in summary.json")
  assert many == (len(models) == 12)
  # No more of the panel than a third is for them.
  assert exponents.get_window_extent().height < figure.axes[0].bbox.height / 3


def test_a_model_has_its_colour_whatever_stands_beside_it():
  everyone = looks.styles_of(["gru", "transformer", "ffn", "mine:Mixer"])
  assert list(everyone) == ["gru", "transformer", "ffn", "mine:Mixer"]
  for names in (
    ["ffn", "gru"],
    ["gru:units=3"],
    ["gru, learning_rate=0.1", "transformer"],
  ):
    for name, style in looks.styles_of(names).items():
      assert style == everyone[name.partition(",")[0].partition(":")[0]]
  # The order of the command line tells nothing.
  assert looks.styles_of(["b", "a"]) == looks.styles_of(["a", "b"])
  rates = [f"gru, learning_rate={rate}" for rate in range(20)]
  every = looks.styles_of([*rates, "transformer", *"abcdefg"]).values()
  shown = [(s["color"], s["marker"], s["fillstyle"]) for s in every]
  assert len(set(shown)) == len(shown) == 28


def test_further_series_of_a_model_keep_its_colour():
  names = ["transformer", "transformer, lr=0.001", "ffn", "ffn, lr=0.001", "mine:Mixer"]
  styles = looks.styles_of(names)
  assert looks.styles_of(reversed(names)) == styles
  for model in ("transformer", "ffn"):
    own, further = styles[model], styles[f"{model}, lr=0.001"]
    assert further["color"] == own["color"]
    assert further["marker"] == own["marker"]
    assert further["fillstyle"] != own["fillstyle"]
    assert further["linestyle"] != own["linestyle"]
  colours = {styles[model]["color"] for model in ("transformer", "ffn")}
  assert styles["mine:Mixer"]["color"] not in colours


@pytest.mark.parametrize(
  "names",
  [
    ["lstm", "deep_transformer", "dense_transformer", "lstm, lr=0.1", "lstm, lr=1"],
    [f"gru, lr={rate}" for rate in range(7)] + ["min_gru"],
    ["lru", "lru, lr=0.1", "dense_convolution", "dense_convolution, lr=0.1"],
  ],
)
def test_series_that_share_a_colour_have_different_dashes(names):
  styles = looks.styles_of(names).values()
  for colour in {style["color"] for style in styles}:
    dashes = [style["linestyle"] for style in styles if style["color"] == colour]
    assert len(set(dashes)) == len(dashes)


def test_numbers_have_colours_from_dark_to_light_that_are_no_models():
  styles = looks.styles_of_numbers([16, 4, 8, 4])
  assert list(styles) == [4, 8, 16]
  light = [np.sum(matplotlib.colors.to_rgb(own["color"])) for own in styles.values()]
  assert light == sorted(light)
  assert {own["color"] for own in styles.values()}.isdisjoint(
    style["color"] for style in looks.STYLES
  )
  assert len({own["marker"] for own in styles.values()}) == 3


@pytest.mark.slow
def test_arrows_lie_clear_of_the_exponents():
  rows = [
    ("qstr", model, length, trial, 0.7, n, "censored" if n == BUDGET else "reached")
    for model, factor in zip("abcdef", (30, 28, 26, 62.5, 22, 20), strict=True)
    for length in (4, 8, 16)
    for trial in range(3)
    for n in [int(factor * length)]
  ]
  for style, width in (("screen", None), ("paper", 6.75)):
    with looks.look(style, width):
      records = as_records(rows)
      figure = draw_records(records, summary_of(records), {})
      figure.draw_without_rendering()
      axis = figure.axes[0]
      text = axis.get_legend().get_window_extent()
      arrows = [l for l in axis.lines if "arrow" in str(l.get_marker())]
      drawn = [l for l in arrows if len(l.get_xdata())]
      assert len(drawn) == 2  # the trials' and the mean's
      for line in drawn:
        points = line.get_transform().transform(line.get_xydata().astype(float))
        high = line.get_markersize() / 2 * figure.dpi / 72
        assert max(y for _, y in points) + high < text.y0
        assert max(y for _, y in points) + high < axis.bbox.y1


def test_marks_lie_before_all_lines():
  figure = draw(["reached", "censored", "diverged"], {})
  lines = [l for l in figure.axes[0].lines if len(l.get_xdata())]
  drawn = [l for l in lines if l.get_linestyle() not in ("None", "none")]
  own = {style["marker"] for style in looks.styles_of("ab").values()}
  marks = [l for l in lines if l.get_marker() in own and not l.get_alpha()]
  arrows = [l for l in lines if "arrow" in str(l.get_marker())]
  assert drawn
  assert marks
  assert max(l.zorder for l in drawn) < min(l.zorder for l in marks)
  assert max(l.zorder for l in marks) < min(l.zorder for l in arrows)


@pytest.mark.parametrize(
  ("panels", "style", "width", "across"),
  [
    (4, "screen", None, 2),  # a square
    (3, "screen", None, 3),
    (3, "paper", None, 3),
    (3, "paper", 3.3, 1),
    (12, "paper", 3.3, 2),  # in one column they would be higher than a page
    (1, "slides", None, 1),
  ],
)
def test_panels_break_into_rows_where_the_figure_is_narrow(panels, style, width, across):
  with looks.look(style, width):
    figure, axes = looks.grid(panels, (4.4, 4.0))
    assert len(axes) == len(figure.axes) == panels
    assert axes[0].get_subplotspec().get_gridspec().ncols == across
    least = {"screen": 4.0, "paper": 1.3, "slides": 4.0}[style]
    assert looks.panel_of(axes[0])[1] >= least
    if style == "paper":
      assert figure.get_figwidth() == (width or 6.75)
      assert figure.get_figheight() <= 9


@pytest.mark.parametrize(
  ("text", "room", "lines"),
  [
    ("a short one", 3, ["a short one"]),
    ("number of components k", 1.4, ["number of", "components k"]),
    (r"the $W_Q^\top W_K$ of it", 0.9, [r"the $W_Q^\top W_K$", "of it"]),
    ("success:\ntransformer", 3, ["success:", "transformer"]),
  ],
)
def test_long_names_are_broken_between_words(text, room, lines):
  assert looks.wrap(text, room).split("\n") == lines


@pytest.mark.parametrize("width", [6.75, 3.3])
def test_labels_of_places_do_not_touch(width):
  with looks.look("paper", width):
    figure, axes = looks.grid(3, (4.4, 4.0), room=1)
    for axis in axes:
      axis.plot([2, 64], [1, 2])
      axis.set_xscale("log")
      label_places(axis.xaxis, [2, 4, 8, 12, 16, 24, 28, 30, 32, 48, 64])
    figure.draw_without_rendering()
    texts = [text for text in axes[0].get_xticklabels() if text.get_text()]
    assert len(texts) > 3
    boxes = [text.get_window_extent() for text in texts]
    assert all(a.x1 < b.x0 for a, b in itertools.pairwise(boxes))
    assert len(axes[0].get_xticks()) == 11


def test_two_places_show_no_exponent():
  records = at_values("sparsity", (1, 2), c=1.0)
  summary = summary_of(records, against="sparsity")
  assert summary["exponents"]
  figure = draw_records(records, summary, {}, against="sparsity")
  assert figure.axes[0].get_legend() is None


def test_losses_that_are_all_high_fill_their_panel():
  records = records_of(["reached"] * 3)
  high = {
    name: np.array(
      list(zip(own["samples"], 0.9 + 0 * own["loss"], own["exact"], strict=True)),
      own.dtype,
    )
    for name, own in records.all_curves.items()
  }
  records = dataclasses.replace(records, all_curves=high)
  figure = draw_records(records, summary_of(records), {})
  low, _ = figure.axes[1].get_ylim()
  assert low > 0.3


@pytest.mark.parametrize("style", looks.LOOKS)
def test_labels_beside_the_losses_do_not_touch(style):
  """A threshold of 0.7 below uniform attention's loss of 0.75."""
  records = records_of(["reached"] * 3)
  risk = np.full(len(records.table), 0.75)
  with looks.look(style):
    figure = figures.sample_complexity(
      records, [Level(0.7)], summary_of(records), risk, {}
    )
    figure.draw_without_rendering()
    threshold, uniform = figure.axes[1].texts
    assert threshold.get_text() == "threshold\n0.7"
    below, above = (text.get_window_extent() for text in (threshold, uniform))
  assert below.y1 <= above.y0 + 1


@pytest.mark.parametrize(
  ("style", "width", "message"),
  [
    ("poster", None, "style: got 'poster', takes one of screen, paper, slides"),
    ("paper", "3.3", "width: got '3.3', takes inches from 2.8 to 60"),
    ("paper", 0.5, "width: got 0.5, takes inches from 2.8 to 60"),
  ],
)
def test_looks_that_there_are_not(style, width, message):
  with pytest.raises(InvalidSetting, match=message), looks.look(style, width):
    pass
