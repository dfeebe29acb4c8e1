"""`sepfx.summarise` and `print(records)` against the records."""

import dataclasses

import numpy as np
import pytest

import sepfx
from sepfx.ensembles import Records, cells
from sepfx.errors import InvalidSetting
from tests import own_task, test_modes, test_success
from tests.test_analysis import as_records

PROTOCOL = {"batch_size": 10, "check_every": 10, "max_samples": 10**6}


def records_of(factors, rates=(1e-3, 3e-3), lengths=(3, 4, 8, 16)):
  """Trials of models whose n is so many times the length, a third of it at more rates."""
  rows = [
    ("qstr", model, N, rate, k, 0.7, 100 * (factor * N // 3**r + k), "reached")
    for model, factor in factors.items()
    for N in lengths
    for r, rate in enumerate(rates)
    for k in range(4)
  ]
  found = as_records(rows, ("learning_rate",))
  cells = {found.cell_of(row): 1 - 1 / row["length"] for row in found.table}
  notes = {**found.notes, "uniform_attention_risk": cells}
  return dataclasses.replace(found, settings={"protocol": PROTOCOL}, notes=notes)


@pytest.fixture
def records():
  return records_of({"transformer": 60, "Mixer": 180, "ffn": 600})


def one(rows, **where):
  (found,) = [row for row in rows if all(row[k] == v for k, v in where.items())]
  return found


def test_the_ratio_of_mine_over_the_transformer_s(records):
  found = sepfx.summarise(records)
  where = {"model": "Mixer", "over": "transformer", "length": 8, "learning_rate": 1e-3}
  ratio = one(found.ratios, **where)
  assert ratio["low"] < 3 < ratio["high"]
  assert ratio["ratio"] == pytest.approx(3, rel=0.02)
  assert (ratio["bound"], ratio["pairs"], ratio["of"]) == ("", None, "model")
  back = one(
    found.ratios, model="transformer", over="Mixer", length=8, learning_rate=1e-3
  )
  assert back["ratio"] * ratio["ratio"] == pytest.approx(1)
  assert back["low"] * ratio["high"] == pytest.approx(1)
  rate = one(found.ratios, model="Mixer", length=8, of="learning_rate")
  assert (rate["learning_rate"], rate["over"], rate["pairs"]) == (3e-3, 1e-3, 4)
  assert rate["ratio"] == pytest.approx(1 / 3, rel=0.02)
  # 3 models either way, at 4 lengths and 2 rates; a further rate of each over the first.
  assert len(found.ratios) == 6 * 4 * 2 + 3 * 4


def test_rows_say_what_means_are(records):
  found = sepfx.summarise(records)
  mean = one(found.means, model="Mixer", length=16, learning_rate=1e-3)
  table = records.table
  own = (table["model"] == "Mixer") & (table["length"] == 16)
  own &= table["learning_rate"] == 1e-3
  assert mean["recorded"] == np.mean(table["samples"][own])
  assert mean["low"] < mean["mean"] < mean["recorded"] < mean["high"]
  assert mean["bound"] == ""
  assert len(found.means) == 3 * 4 * 2
  assert {row["over"] for row in found.exponents} == {"4, 8, 16"}
  assert all(row["c"] == pytest.approx(1, abs=0.1) for row in found.exponents)
  assert found.critical == []


def test_what_is_left_out_says_why(records):
  why = {(row["what"], row["why"]) for row in sepfx.summarise(records).left_out}
  line = "N = 3: uniform attention's loss is not above the threshold"
  assert why == {("point of the exponent", line)}
  few = records.where(records.table["length"] < 16)
  found = sepfx.summarise(few)
  assert found.exponents == []
  assert "it takes three values of N, and has 2" in str(found)


def test_the_mean_of_trials_that_ended_early_has_no_upper_end():
  """Nothing is known of n above the budget."""
  records = records_of({"Mixer": 60})
  records.table["outcome"][records.table["trial"] == 0] = "censored"
  for row in sepfx.summarise(records).means:
    assert (row["bound"], row["high"]) == ("at least", None)


def test_a_budget_may_be_an_axis():
  """Its values have the same keys: they are compared trial by trial, and not pooled."""
  found = as_records(
    [
      ("qstr", model, 4, every, k, 0.7, factor * (100 * k + 900), "reached")
      for model, factor in (("transformer", 1), ("Mixer", 3))
      for every in (10, 20)
      for k in range(3)
    ],
    ("check_every",),
  )
  settings = {"protocol": {"batch_size": 10, "max_samples": 10**6}}
  found = sepfx.summarise(dataclasses.replace(found, settings=settings))
  assert [row["trials"] for row in found.means] == 4 * [3]
  of = [(row["model"], row["over"], row["check_every"]) for row in found.ratios]
  assert of == [
    ("Mixer", "transformer", 10), ("transformer", "Mixer", 10),
    ("Mixer", "transformer", 20), ("transformer", "Mixer", 20),
    ("transformer", 10, 20), ("Mixer", 10, 20),
  ]  # fmt: skip


@pytest.mark.parametrize("count", [1, 60])
def test_printed_records_are_a_screen_at_most(records, count):
  many = records_of({f"a model of a long name, number {k}": 60 for k in range(count)})
  for own in (records, many, many.where(np.zeros(len(many.table), bool))):
    for text in (repr(own), str(own)):
      lines = text.splitlines()
      assert len(lines) <= 24
      assert max(map(len, lines)) <= 80
  assert f"Records of {count * 32:,} trials" in str(many)
  assert isinstance(records.table, np.ndarray)
  assert "3/3" not in str(records)
  assert "4/4" in str(records)


def test_an_unfinished_run_says_so_in_its_summary(records):
  records = dataclasses.replace(records, complete=False, missing=3)
  first = sepfx.summarise(records).left_out[0]
  assert first == {
    "what": "trials",
    "why": "not complete: missing: 3; slow ones end last",
  }


def test_printed_rows_say_of_which_series_they_are():
  records = records_of({"transformer": 60, "Mixer": 180}, rates=(1e-3,), lengths=(3, 8))
  records.table["outcome"] = "censored"
  found = sepfx.summarise(records)
  assert {"ratio", "exponent"} <= {row["what"] for row in found.left_out}
  printed = str(dataclasses.replace(found, means=[], ratios=[])).splitlines()
  assert all("transformer" in line or "Mixer" in line for line in printed[4:])


def test_printed_rows_name_their_tasks_where_there_are_several():
  rows = {
    task: [(task, "gru", 8, k, 0.1, 100, "reached") for k in range(3)]
    for task in ("mqar", "dyck")
  }
  settings = {"protocol": {"batch_size": 10, "check_every": 1, "max_samples": 10**6}}

  def printed(own):
    records = dataclasses.replace(as_records(own), settings=settings)
    return str(sepfx.summarise(records)).splitlines()

  assert not any("mqar" in line for line in printed(rows["mqar"]))
  lines = printed([*rows["mqar"], *rows["dyck"]])
  for task in rows:
    assert sum(line.split()[:2] == [task, "gru"] for line in lines) == 1


def test_printed_summaries_name_the_parts(records):
  assert str(sepfx.summarise(records)).startswith("Thresholds are of the test mean sq")
  text = str(sepfx.summarise(records))
  assert [line for line in text.splitlines() if line.endswith(":")] == [
    "means:", "exponents:", "ratios:", "left_out:",
  ]  # fmt: skip
  assert "... and " in text


@pytest.mark.parametrize("name", ["mean", "low", "of", "samples", "trial", "threshold"])
def test_an_axis_called_like_a_result_is_refused(name):
  """Its values would stand where the result's do."""
  own = dataclasses.make_dataclass(
    "Own", [(name, float, 1.0)], bases=(own_task.Side,), frozen=True
  )
  with pytest.raises(
    InvalidSetting, match=rf"^{name}: got 0\.5, takes a field of another"
  ):
    sepfx.measure(own(), own_task.Dense(), 4, axes={name: [0.5, 1.0]})


def test_the_threshold_of_a_fixed_sample_may_be_an_axis():
  plan = test_modes.planned(
    own_task.Side(), own_task.Dense(), 4, protocol=sepfx.ERM(),
    axes={"threshold": [0.1, 0.2]},
  )  # fmt: skip
  assert [cell.coordinates["threshold"] for cell in plan.cells] == [0.1, 0.2]


def test_names_of_all_results_are_refused(records):
  results = set()
  for own in (records, test_success.records_of()):
    found = sepfx.summarise(own)
    for rows in (
      found.means,
      found.critical,
      found.exponents,
      found.ratios,
      found.left_out,
    ):
      results |= {name for row in rows for name in row} - set(own.coordinates)
  assert results - {"threshold"} <= cells._OF_SUMMARIES
  assert {"mean", "fraction", "c", "ratio", "why"} <= results


def test_records_of_something_else_are_refused():
  with pytest.raises(InvalidSetting, match="records: got 'runs', takes Records"):
    sepfx.summarise("runs")
  with pytest.raises(InvalidSetting, match="records: got 'no rows'"):
    sepfx.summarise(Records(np.empty(0, [("samples", int)]), (), {}))
