"""The paper: its numbers are made again from rows, and no result is typed by hand."""

import functools
import itertools
import math
import re

import pytest

from docs.paper import make, records, tables
from docs.paper.estimates import AT_MOST, MORE_THAN, Estimate, ratios
from tests.programs import each_model_checked_once

TEXT = (make.HERE / "text.md").read_text()
# What is no result: lengths, thresholds of the task, names, years, settings of the
# protocol that Section 3 states.
GIVEN = r"""
  N\ =\ [\d,]+(\ (to|and)\ \d+)* | N\ d | 1\ -\ 1/N | 1STR | 95% | \d\.\d\.?\ (?=[A-Z])
  | \(\d{4}\) | ,\ \d{4}(?=[;)]) | batches\ of\ 64 | have\ 16
  | (Theorem|Table|[Ff]igure)\ \d
  | Section\ \d\.\d | figure_\d | (rate|decay)\ (up\ to|of)\ (1e-2|3e-3|0\.1|1(?=\s))
"""


@functools.cache
def named():
  with each_model_checked_once():
    return make.numbers()


@pytest.mark.slow
def test_the_paper_is_what_the_rows_say():
  assert (make.HERE / "index.md").read_text() == make.text(named())


@pytest.mark.parametrize("section", ["## Abstract", "## 4. Results"])
def test_no_number_of_a_result_is_typed_by_hand(section):
  own = TEXT.partition(f"{section}\n")[2]
  own = re.split(r"^## ", own, flags=re.MULTILINE)[0]
  assert own
  plain = re.sub(r"\{[^{}]*\}|\]\([^)]*\)|^ {4}.*$", "", own, flags=re.MULTILINE)
  left = re.sub(GIVEN, "", re.sub(r"\s+", " ", plain), flags=re.VERBOSE)
  assert not re.findall(r".{0,30}\d.{0,30}", left)


@pytest.mark.slow
def test_figures_show_the_numbers():
  for draw, values in ((make.figure_1, "half"), (make.figure_2, "m")):
    axis = draw(named()).axes[0]
    drawn = {round(float(y), 6) for line in axis.lines for y in line.get_ydata()}
    own = [e.value for each in named()[values].values() for e in each.values()]
    assert len(own) > 5
    assert {round(value, 6) for value in own} <= drawn


def test_a_bound_says_that_it_is_one():
  assert f"{Estimate(12.3, 10.1, 14.9):i}" == "12 [10, 15]"
  assert f"{Estimate(1.234, 1.1, 1.4):i}" == "1.23 [1.10, 1.40]"
  assert f"{Estimate(4601.08, 4213.1, 5025.0, AT_MOST)}" == "at most 4,601"
  nothing = Estimate(999680.0, math.nan, math.nan, MORE_THAN)
  assert f"{nothing:i}" == "more than 999,680"


def test_a_ratio_is_of_logarithms_and_keeps_bounds():
  one, other = Estimate(200.0, 100.0, 400.0), Estimate(10.0, 5.0, 20.0)
  ratio = one.over(other)
  assert ratio.value == 20
  away = math.exp(math.sqrt(2) * math.log(2))
  assert (ratio.low, ratio.high) == pytest.approx((20 / away, 20 * away))
  less, more = (Estimate(10.0, 5.0, 20.0, bound) for bound in (AT_MOST, MORE_THAN))
  assert one.over(less).bound == MORE_THAN
  assert less.over(one).bound == AT_MOST
  assert less.over(less) is None
  assert less.over(more).bound == AT_MOST
  found = ratios({"a": {4: less, 8: one}}, {"a": {4: less, 8: other}, "b": {}})
  assert found == {"a": {8: ratio}}


def test_a_table_names_a_model_once():
  rows = [["A", 1], ["A", 2], ["B", ""]]
  lines = tables.table(["model", "N"], rows).splitlines()
  assert lines == ["| model | N |", "| --- | --- |", "| A | 1 |", "| | 2 |", "| B | |"]


@pytest.mark.slow
def test_sentences_without_numbers_are_so():
  """What the text says in words."""
  own = named()
  others = [n for values in own["factor"].values() for n in values.values()]
  assert all(n.low > 1 for n in others)  # the Transformer needs the fewest
  for values in own["factor"].values():
    n = [each for each in values.values() if not each.bound]
    assert len(n) == 1 or n[0].high < n[-1].low  # factors grow with N
  knobs = {knob: n for knob, n in own["knob"].items() if knob != "weight_decay=1"}
  assert all(0.8 < n.value < 1.2 for n in knobs.values())
  refused = own["growth64"]["transformer"], own["growth"]["linear_attention"]
  for laws in (each["laws"] for each in refused):
    assert max(laws["p_power"], laws["p_logarithm"]) < 0.01
  for growth in (own["growth"], own["growth_tenth"]):
    laws = growth["transformer"]["laws"]
    assert min(laws["p_power"], laws["p_logarithm"]) > 0.05
  assert own["lower"]["linear_attention"][64].bound == MORE_THAN
  assert own["steps_ratio"].value == pytest.approx(2, abs=0.2)


@pytest.mark.slow
def test_what_one_batch_size_for_all_does():
  """Batches of 64 understate the separation from others; within attention it differs."""
  own = named()
  one, chosen = own["factor64"], own["factor"]
  for series in ("min_gru", "relu_rnn", "lru", "ffn"):
    for N in (N for N, n in chosen[series].items() if not n.bound):
      assert one[series][N].high < chosen[series][N].low
  gain = own["left"]["min_gru"]
  assert gain[16].low < 1 < gain[16].high  # nothing
  assert max(gain[4].high, gain[8].high) < 1
  for N in (4, 8, 16):
    assert chosen["deep_transformer"][N].high < one["deep_transformer"][N].low
    most = own["left"]["deep_transformer"][N]
    rest = [v[N] for s, v in own["left"].items() if s != "deep_transformer" and N in v]
    assert all(most.high < n.low for n in rest)  # the deep Transformer gains most
  for N in (16, 32, 64):
    assert one["linear_attention"][N].high < chosen["linear_attention"][N].low


@pytest.mark.slow
def test_the_transformer_gets_below_the_floor_of_others():
  for own in named()["risk"].values():
    assert own["mean"] < own["floor"] / 2


@pytest.mark.slow
def test_seeds_agree_and_stand_on_the_page_of_all_results():
  page = (records.GALLERY / "best_settings.md").read_text()
  assert f"\n\n{named()['seed_table']}\n\n" in page
  for first, second in (("half", "seed1"), ("tenth", "seed1_tenth")):
    for series, values in named()[second].items():
      for N, n in values.items():
        other = named()[first][series][N]
        assert n.low < other.high
        assert other.low < n.high


@pytest.mark.slow
def test_models_of_one_size_stand_on_the_page_and_keep_their_order():
  own = named()
  page = (records.GALLERY / "best_settings.md").read_text()
  assert f"\n\n{own['equal_table']}\n\n" in page
  parameters = [number for _, number in records.equal()]
  assert all(abs(number / 50_000 - 1) < 0.03 for number in parameters)
  n = {series: values[8] for series, values in own["equal"].items()}
  heads = n.pop("transformer:num_heads=13")
  order = ["transformer", "linear_attention", "min_gru", "ffn"]
  known = {s: own["half"][s][8] for s in n if 8 in own["half"][s]}
  assert {s for s, each in known.items() if not each.bound} == {*order}
  for less, more in itertools.pairwise(order):
    assert n[less].high < n[more].low
    assert own["half"][less][8].high < own["half"][more][8].low
  for series in ("lru", "relu_rnn"):
    assert n[series].bound == AT_MOST
  factors = own["factor_equal"]
  assert factors["min_gru"][8].high < own["factor"]["min_gru"][8].low
  for series in ("ffn", "linear_attention"):
    assert factors[series][8].value > own["factor"][series][8].value
  assert heads.high < n["transformer"].low  # the read-out costs more than heads
  assert n["transformer"].low > own["half"]["transformer"][8].high
  assert heads.low < own["half"]["transformer"][8].high
  at64 = {"linear_attention": 2.8, "min_gru": 5.9, "lru": 10, "relu_rnn": 12, "ffn": 56}
  known = {s: before for s, before in at64.items() if not factors[s][8].bound}
  assert len(known) == 3
  assert all(factors[series][8].low > before for series, before in known.items())


@pytest.mark.slow
def test_of_fixed_samples():
  growth = named()["m_growth"]
  assert all(n.low <= 1 for n in growth["transformer"][4].values())  # it does not grow
  assert growth["ffn"][4][8].low > 1
  over, fresh = named()["m_over"], named()["factor"]
  for N in (4, 8):
    assert (
      over["min_gru"][N].high < fresh["min_gru"][N].low
    )  # nearer than with fresh ones
  assert over["relu_rnn"][4].value > fresh["relu_rnn"][4].value  # not nearer


@pytest.mark.slow
def test_best_settings_of_linear_attention_change_between_lengths():
  best = records.best_settings()["best"]
  own = {
    (e["batch_size"], e["learning_rate"])
    for e in best
    if (e["series"], e["fraction"]) == ("linear_attention", 0.5)
  }
  assert len(own) > 1


@pytest.mark.slow
def test_best_batches_are_small():
  for e in records.best_settings()["best"]:
    if e["trials"] and e["fraction"] == 0.5:
      large = (e["series"], e["length"]) in (("ffn", 8), ("min_gru", 16))
      assert e["batch_size"] in ((16,) if large else (1, 4))
