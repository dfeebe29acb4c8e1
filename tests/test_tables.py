"""What tables of means and ratios print, against the records."""

import numpy as np
import pytest

from sepfx.studies import tables
from tests.programs import printed
from tests.test_analysis import as_records, summary_of


def test_a_cell_that_passes_at_its_first_check_is_an_upper_bound():
  """At N = 4 all trials of "a" pass at their first check; an exponent knows it not."""
  rows = [
    ("qstr", "a", N, k, 0.7, n + 100 * k * (N > 4), "reached")
    for N, n in ((4, 100), (8, 3000), (16, 6000), (32, 12000))
    for k in range(3)
  ]
  records = as_records(rows)
  unknown = np.full(len(rows), np.nan)
  summary = summary_of(records, budget=10**6, every=100, risk=unknown)
  first, *later = summary["cells"]
  assert first["at_most"]
  assert (first["mean"], first["low"], first["high"]) == (100, None, None)
  assert not any(cell["at_most"] for cell in later)
  (exponent,) = summary["exponents"]
  assert exponent["over"] == (8, 16, 32)
  assert exponent["c"] == pytest.approx(1, abs=0.05)
  why = {entry["why"] for entry in summary["left_out"]}
  assert "N = 4: n is known as at most the first check" in why
  text = printed(tables.means(summary))
  assert "<= 100" in text
  assert "<=: all trials pass at their first check" in text
  assert "coarse" not in text.split("<= 100")[1].split("\n")[0]
  # One that passes later than the others makes it a mean again.
  rows[0] = (*rows[0][:5], 200, "reached")
  again = summary_of(as_records(rows), budget=10**6, every=100, risk=unknown)
  assert not again["cells"][0]["at_most"]


def test_a_table_says_what_its_mean_is():
  """The average of the recorded n is about half of a check's distance above it."""
  generator = np.random.default_rng(0)
  n = 20_000 * np.exp(0.1 * generator.standard_normal(400))
  rows = [
    ("qstr", "a", 4, k, 0.7, int(np.ceil(own / 1000) * 1000), "reached")
    for k, own in enumerate(n)
  ]
  summary = summary_of(as_records(rows), budget=10**6, every=1000)
  (cell,) = summary["cells"]
  assert cell["recorded"] - cell["mean"] == pytest.approx(500, abs=60)
  assert cell["mean"] == pytest.approx(np.mean(n), rel=0.005)
  assert "half the distance of two checks below the average in" in " ".join(
    printed(tables.means(summary)).split()
  )


@pytest.mark.parametrize("width", [60, 80, 160])
def test_no_word_and_no_number_of_a_table_is_broken(width):
  rows = [
    ("qstr", model, N, rate, k, 0.7, 100_000 * N + 1000 * k, "reached")
    for model in ("transformer", "mypackage:Recurrence")
    for rate in (0.001, 0.003)
    for N in (4, 8, 16)
    for k in range(3)
  ]
  records = as_records(rows, ("learning_rate",))
  text = printed(tables.means(summary_of(records, budget=10**8)), width)
  assert max(map(len, text.splitlines())) <= width
  tables_shown = [line for line in text.splitlines() if line[:1] in "┃│"]
  words = [word for line in tables_shown for word in line.split()]
  for word in ("transformer,", "mypackage:Recurrence,", "learning_rate=0.003"):
    assert word in words
  assert sum(word.startswith("401,") for word in words) > 3  # the means at N = 4
