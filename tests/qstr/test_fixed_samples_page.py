"""The table of docs/gallery/fixed_samples.md, made again from the rows beside it."""

import pytest

from docs.paper import records
from docs.paper.records import NAMES
from experiments.qstr.fixed_samples import planted
from sepfx.studies.tables import critical_size

PAGE = records.GALLERY / "fixed_samples.md"
ROWS = records.RESULTS / "fixed_samples"
recomputed = records.fixed_samples


def lines():
  found = []
  for series in dict.fromkeys(own["series"] for own in recomputed()["critical"]):
    own = [c for c in recomputed()["critical"] if c["series"] == series]
    for k, critical in enumerate(own):
      N = critical["length"]
      threshold = 0.5 * (1 - 1 / N)
      knows = planted.planted_size("knows_index", N, 10, threshold).size
      rule = planted.planted_size("best_rule", N, 10, threshold).size if N == 4 else ""
      any_learner = planted.label_floor(N, 10, threshold)
      first_layer = planted.first_layer_floor(N, 10, threshold)
      cells = ["" if k else NAMES[series], N, critical_size(critical, 1, ",.0f"), knows,
               rule, f"{any_learner:.2g}", f"{first_layer:g}"]  # fmt: skip
      found.append(f"| {' | '.join(map(str, cells))} |".replace("|  |", "| |"))
  return found


def test_the_table_is_what_the_rows_say():
  text = PAGE.read_text().splitlines()
  for line in lines():
    assert line in text, line


def test_growth_is_what_the_rows_say():
  text = PAGE.read_text()
  (own,) = (
    r for r in recomputed()["ratios"]
    if r["series"] == "transformer" and r["lengths"] == [4, max(t["lengths"][1]
      for t in recomputed()["ratios"] if t["series"] == "transformer")]
  )  # fmt: skip
  assert f"{own['ratio']:.2f} [{own['low']:.2f}, {own['high']:.2f}]" in text


@pytest.mark.parametrize(
  ("name", "setting", "trials", "successes"),
  [
    ("choice_transformer_100", (100, 3e-2, 1.0), 10, 10),
    ("choice_transformer_100", (100, 3e-2, 0.1), 10, 9),
    ("choice_transformer_100", (100, 3e-2, 0.01), 10, 6),
    ("choice_transformer_79", (79, 3e-2, 0.3), 10, 7),
    ("choice_transformer_79", (79, 3e-2, 1.0), 10, 4),
    ("choice_transformer_79", (79, 3e-2, 3.0), 10, 0),
    ("choice_ffn", (1000, 3e-3, 3.0), 10, 8),
    ("choice_ffn", (1000, 1e-3, 3.0), 10, 5),
    ("choice_ffn_8_7943", (7943, 3e-3, 1.0), 10, 2),
    ("choice_ffn_8_7943", (7943, 3e-3, 0.3), 10, 1),
    ("choice_ffn_794", (794, 1e-2, 3.0), 10, 2),
    ("choice_ffn_794", (794, 3e-3, 3.0), 10, 1),
    ("choice_relu_631", (631, 3e-4, 0.1), 4, 0),
    ("choice_relu_631", (631, 3e-4, 1.0), 4, 0),
    ("choice_relu_631", (631, 1e-3, 0.1), 4, 0),
    ("choice_relu_631", (631, 1e-3, 1.0), 4, 0),
    ("choice_relu_631", (631, 3e-3, 0.1), 4, 0),
    ("choice_relu_631", (631, 3e-3, 1.0), 4, 0),
    ("choice_relu_2512", (2512, 3e-3, 0.1), 2, 2),
    ("choice_relu_2512", (2512, 3e-3, 1.0), 2, 2),
    ("choice_relu_2512", (2512, 1e-3, 0.1), 2, 1),
    ("choice_relu_2512", (2512, 1e-3, 1.0), 2, 1),
    ("choice_relu_2512", (2512, 3e-4, 0.1), 2, 0),
    ("choice_relu_2512", (2512, 3e-4, 1.0), 2, 0),
    ("choice_relu_1259", (1259, 1e-2, 1.0), 10, 7),
    ("choice_relu_1259", (1259, 1e-2, 0.1), 10, 5),
    ("choice_relu_1259", (1259, 3e-3, 1.0), 10, 0),
    ("choice_relu_1259", (1259, 3e-3, 0.1), 10, 0),
    ("choice_relu_8_5012", (5012, 3e-3, 1.0), 2, 2),
    ("choice_relu_8_5012", (5012, 3e-3, 0.1), 2, 0),
    ("choice_relu_8_5012", (5012, 1e-3, 1.0), 2, 0),
    ("choice_relu_8_5012", (5012, 1e-3, 0.1), 2, 0),
    ("choice_relu_8_3162", (3162, 1e-2, 1.0), 2, 1),
    ("choice_relu_8_3162", (3162, 1e-2, 3.0), 2, 0),
    ("choice_relu_8_3162", (3162, 3e-3, 1.0), 2, 0),
    ("choice_relu_8_3162", (3162, 3e-3, 3.0), 2, 0),
    ("choice_relu_1000", (1000, 1e-2, 1.0), 10, 3),
    ("choice_relu_1000", (1000, 1e-2, 3.0), 10, 0),
    ("choice_relu_1000", (1000, 3e-2, 1.0), 10, 2),
    ("choice_relu_1000", (1000, 3e-2, 3.0), 10, 0),
  ],
)
def test_choices_are_what_the_rows_say(name, setting, trials, successes):
  own = records.rows_of(ROWS / f"{name}.csv").table
  at = [tuple(r) == setting for r in own[["sample_size", "learning_rate",
                                          "weight_decay"]].tolist()]  # fmt: skip
  assert len(own[at]) == trials
  assert (own[at]["outcome"] == "reached").sum() == successes


def test_successes_of_the_relu_rnn_are_what_the_rows_say():
  own = records.rows_of(ROWS / "relu_rnn_8.csv").table
  found = []
  for m in (2512, 3162, 6310):
    outcomes = own["outcome"][own["sample_size"] == m].tolist()
    found.append((outcomes.count("reached"), len(outcomes)))
  assert found == [(0, 6), (4, 5), (6, 11)]
  text = " ".join(PAGE.read_text().split())
  assert "none of six trials succeeds at m = 2,512, four of five at 3,162" in text
  assert "and six of eleven at 6,310" in text
