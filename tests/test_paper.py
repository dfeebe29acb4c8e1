"""The paper: every number in it is made again from rows, and none is typed by hand."""

import functools
import math
import re

import pytest

from docs.paper import make, tables
from docs.paper.estimates import AT_MOST, MORE_THAN, Estimate, ratios
from tests.programs import each_model_checked_once

TEXT = (make.HERE / "text.md").read_text()
# What is no result: lengths, thresholds of the task, names, years, settings of the
# protocol that Section 3 states.
GIVEN = r"""
  N\ =\ [\d,]+(\ (to|and)\ \d+)* | N\ d | 1\ -\ 1/N | 1STR | 95% | \d\.\d\.?\ (?=[A-Z])
  | \(\d{4}\) | ,\ \d{4}(?=[;)]) | batches\ of\ 64 | Theorem\ \d | Section\ \d\.\d
  | N\ =\ \d+ | figure_\d | [Ff]igure\ \d
"""


@functools.cache
def named():
  with each_model_checked_once():
    return make.numbers()


def test_the_paper_is_what_the_rows_say():
  assert (make.HERE / "index.md").read_text() == make.text(named())


@pytest.mark.parametrize("section", ["## Abstract", "## 4. Results"])
def test_no_number_of_a_result_is_typed_by_hand(section):
  own = TEXT.partition(f"{section}\n")[2]
  own = re.split(r"^## ", own, flags=re.MULTILINE)[0]
  assert own
  plain = re.sub(r"\{[^{}]*\}|\]\([^)]*\)|^ {4}.*$", "", own, flags=re.MULTILINE)
  left = re.sub(GIVEN, "", plain, flags=re.VERBOSE)
  assert not re.findall(r".*\d.*", left)


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
