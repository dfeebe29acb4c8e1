"""Each series at its best rate: the summary, the figure, the table, the study."""

import io
import json

import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver
from numpy.lib import recfunctions

import sepfx
from experiments import best_rate, best_tables
from sepfx.commands import options, program
from sepfx.drawing import best_figures
from sepfx.ensembles import Records, table
from sepfx.errors import InvalidSetting
from sepfx.statistics.best_summary import summarise_best, verdict
from sepfx.statistics.levels import Level
from sepfx.statistics.passages import Checks
from tests.programs import ROOT, check_preset_says_what_it_is

TYPES = {
  "task": str, "model": str, "length": int, "learning_rate": float, "trial": int,
  "threshold": float, "samples": int, "outcome": str,
}  # fmt: skip
RATES = (1e-3, 3e-3, 1e-2)


def records(n_of):
  """Six trials per model, length and rate, two where the first two did not reach."""
  rng, rows = np.random.default_rng(7), []
  for model in ("transformer", "ffn"):
    for length in (4, 8, 16):
      for rate in RATES:
        n = n_of(model, length, rate)
        for trial in range(6 if n < 12_800 else 2):
          own = 64 * int(np.ceil(n * np.exp(0.1 * rng.normal()) / 64))
          met = own <= 12_800
          outcome = (own, "reached") if met else (12_800, "censored")
          rows.append(("qstr", model, length, rate, trial, 0.5, *outcome))
  return Records(table(rows, TYPES), ("task", "model", "length", "learning_rate"), {})


def n_of(model, length, rate):
  """The Transformer is best in the middle; the other at an edge, and too slow at last."""
  if model == "transformer":
    return 1500 * (1 if rate == 3e-3 else 3)
  return 100 * length**1.5 * (1 if rate == 1e-3 else 8)


def summary_of(own, against="length", unknowns=None):
  count = len(own.table)
  checks = Checks(*(np.full(count, v) for v in (64, 64, 12_800)))
  known = None if unknowns is None else np.full(count, unknowns)
  return summarise_best(own, [Level(0.5)], checks, np.full(count, 0.9), against, known)


def test_summary_says_rates_edges_and_bounds():
  found = json.loads(json.dumps(summary_of(records(n_of))))
  best = {(e["series"], e["length"]): e for e in found["best"]}
  for length in (4, 8, 16):
    own = best["transformer", length]
    assert own["learning_rate"] == 3e-3
    assert not own["edge"]
    assert not own["restricted"]
    assert own["low"] < 1500 < own["high"]
    shares = {each["learning_rate"]: each["chosen"] for each in own["tried"]}
    assert shares == {1e-3: 0, 3e-3: 1, 1e-2: 0}
    assert best["ffn", length]["learning_rate"] == 1e-3
    assert best["ffn", length]["edge"]
  assert len(found["cells"]) == 2 * 3 * 3
  assert {c["trials"] for c in found["cells"]} == {2, 6}
  one, two = found["exponents"]
  assert (one["series"], one["verdict"]) == ("transformer", "no growth seen")
  assert one["growth"]["low"] < 1 < one["growth"]["high"]
  assert (two["series"], two["verdict"]) == ("ffn", "grows")
  assert two["low"] < 1.5 < two["high"]
  assert two["growth"]["low"] < 8 < two["growth"]["high"]
  assert two["growth"]["over"] == [4, 16]
  assert two["laws"]["c"] == pytest.approx(two["c"], rel=1e-6)
  assert two["laws"]["p_logarithm"] < 0.01 < two["laws"]["p_power"]
  # At one rate for all lengths, over those lengths at which all its trials reached.
  assert [own["learning_rate"] for own in one["at_settings"]] == list(RATES)
  assert [own["over"] for own in one["at_settings"]] == [[4, 8, 16]] * 3
  (best,) = (own for own in one["at_settings"] if own["learning_rate"] == 3e-3)
  assert (best["c"], best["low"]) == (one["c"], one["low"])
  slow = [own for own in two["at_settings"] if own["learning_rate"] != 1e-3]
  assert all(own["over"] == [4, 8] for own in slow)


def test_what_any_learner_needs_is_drawn_against_other_axes():
  own = records(n_of)
  renamed = recfunctions.rename_fields(own.table, {"length": "token_dim"})
  coordinates = ("task", "model", "token_dim", "learning_rate")
  found = summary_of(Records(renamed, coordinates, {}), "token_dim", unknowns=30.0)
  json.dumps(found, allow_nan=False)
  assert {e["information"] for e in found["best"]} == {15.0}  # half of them, below 0.5
  label = "any learner: q d (1 - MSE) labels, 15 prompts"
  figure = best_figures.best_rates(found)
  axis, _ = figure.axes
  (line,) = (own for own in axis.get_lines() if own.get_linestyle() == ":"
             and own.get_color() == "black")  # fmt: skip
  np.testing.assert_array_equal(line.get_ydata(), [15, 15, 15])
  shown = [text.get_text() for own in figure.legends for text in own.get_texts()]
  assert label in shown
  # Series whose prompts have other numbers of labels have lines of their own.
  for entry in found["best"]:
    entry["information"] *= 1 if entry["series"] == "ffn" else 2
  axis, _ = best_figures.best_rates(found).axes
  lines = [own.get_ydata()[0] for own in axis.get_lines()
           if own.get_linestyle() == ":" and own.get_color() == "black"]  # fmt: skip
  assert sorted(lines) == [15, 30]
  unknown = summary_of(Records(renamed, coordinates, {}), "token_dim", unknowns=np.nan)
  assert {e["information"] for e in unknown["best"]} == {None}
  count = len(own.table)
  checks = Checks(*(np.full(count, v) for v in (64, 64, 12_800)))
  level, risk = Level(0.5, of_uniform=True), np.full(count, 0.9)
  own = summarise_best(own, [level], checks, risk, unknowns=np.full(count, 30.0))
  np.testing.assert_allclose([e["information"] for e in own["best"]], 16.5)


@pytest.mark.slow
@pytest.mark.parametrize(
  ("arguments", "expected"),
  [
    (["--task=qstr", "--lengths=4"], 2.5),  # 10 unknowns, 4 labels of a prompt
    (["--task=simple_qstr", "--lengths=4"], 10.0),
    (["--task=qstr", "--lengths=4", "--test_distribution=simple"], 2.5),
    (["--task=qstr", "--lengths=4", "--sparsity=2"], 5.0),
    (
      [
        "--task=qstr",
        "--lengths=4",
        "--link=relu_teacher",
        "--uniform_fractions=",
        "--thresholds=0.1",
      ],
      None,
    ),
  ],
)
def test_unknowns_for_each_label(arguments, expected):
  study_of = best_rate.STUDY
  cells = study_of.cells(study_of.chosen([*arguments, "--models=transformer"]))
  assert best_rate.unknowns(cells[0].trial) == expected


def test_another_axis_stands_where_the_length_does():
  own = records(n_of)
  renamed = recfunctions.rename_fields(own.table, {"length": "token_dim"})
  lengths = np.full(len(renamed), 8)
  other = recfunctions.append_fields(renamed, "length", lengths, usemask=False)
  coordinates = ("task", "model", "length", "token_dim", "learning_rate")
  found = summary_of(Records(other, coordinates, {}), "token_dim")
  plain = summary_of(own)
  assert [e["mean"] for e in found["best"]] == [e["mean"] for e in plain["best"]]
  assert [e["token_dim"] for e in found["best"]] == [e["length"] for e in plain["best"]]
  assert found["exponents"][0]["verdict"] == "no growth seen"
  figure = best_figures.best_rates(json.loads(json.dumps(found)))
  assert figure.axes[1].get_xlabel() == "dimension d"
  text = " ".join(str(part) for part in best_rate.STUDY.table(found))
  assert "n ~ d^c" in text


def test_summary_where_no_rate_reached():
  slower = {"transformer": 1, "ffn": 8}
  hard = records(lambda model, *point: n_of(model, *point) * slower[model])
  found = json.loads(json.dumps(summary_of(hard)))
  (last,) = (e for e in found["best"] if (e["series"], e["length"]) == ("ffn", 16))
  assert last["learning_rate"] is None
  assert (last["mean"], last["restricted"], last["low"]) == (12_800, True, None)
  figure = best_figures.best_rates(found)
  labels = [text.get_text() for text in figure.legends[0].get_texts()]
  assert "lower bound: trials spent their budget" in labels
  assert "upper bound: rate at an edge (hollow below)" in labels
  assert "at the published rate 0.001" in labels
  shown = best_rate.STUDY.table(found)
  assert any("no growth seen" in str(part) for part in shown)


def test_figure_where_no_rate_reached_anywhere():
  """The lower panel has no point then, and the rates tried as its range."""
  found = json.loads(json.dumps(summary_of(records(lambda *point: 1e9))))
  assert {entry["learning_rate"] for entry in found["best"]} == {None}
  figure = best_figures.best_rates(found)
  figure.savefig(io.BytesIO())
  low, high = figure.axes[1].get_ylim()
  rates = [cell["learning_rate"] for cell in found["cells"]]
  assert low < min(rates) <= max(rates) < high


def arrows(axis, kind):
  """Data points of the arrows of a kind."""
  lines = [line for line in axis.lines if line.get_marker() == kind["marker"]]
  return [point for line in lines for point in zip(*line.get_data(), strict=True)]


def test_figure_of_one_length_where_most_spent_their_budget():
  """Series stand side by side, and arrows stay within the panel."""
  slow = {"transformer": 5_000, "ffn": 1e9}
  found = summary_of(records(lambda model, length, rate: slow[model] / rate * 1e-3))
  for name in ("cells", "best"):
    found[name] = [entry for entry in found[name] if entry["length"] == 8]
  figure = best_figures.best_rates(json.loads(json.dumps(found)))
  figure.savefig(io.BytesIO())
  upper, lower = figure.axes
  assert [tick.get_text() for tick in lower.get_yticklabels()] == [
    "0.001",
    "0.003",
    "0.01",
  ]
  assert upper.get_xlim() == lower.get_xlim()
  (edge,) = arrows(upper, best_figures.AT_MOST)  # the Transformer at the largest rate
  bounds = arrows(upper, best_figures.BOUND)  # at best, and at the published rate
  assert len(bounds) == 2
  assert len({x for x, _ in [edge, *bounds]}) == 2
  low, high = upper.get_ylim()
  assert high / low >= 10
  (best,) = (e for e in found["best"] if e["series"] == "transformer")
  assert edge[1] == best["low"]


def test_table_marks_bounds_and_coarse_means():
  entry = {
    "learning_rate": 0.01, "budget": 12_800, "mean": 1234.4, "low": None, "high": None,
    "split": None, "flatters": 0.957, "reached": 5, "trials": 6, "tried": [{}], "slow": 0,
  }  # fmt: skip
  plain = {**entry, "restricted": False, "edge": False, "coarse": False}
  plain |= {"at_most": False, "edges": []}
  axes = ["learning_rate"]
  for marks, text in (
    ({}, "1,234"),
    ({"edge": True}, "< 1,234"),
    ({"edge": True, "at_most": True}, "<= 1,234"),
    ({"restricted": True}, "> 1,234"),
    ({"restricted": True, "edge": True, "coarse": True}, "> < 1,234 coarse"),
    ({"low": 1000.0, "high": 2000.0}, "1,234 [1,000, 2,000]"),
  ):
    own = best_tables._best({**plain, **marks}, axes)
    assert own == ["0.01", text, "", "0.96", "5/6"]
  slow = {"slow": 1, "median": 900.4}
  assert best_tables._best({**plain, **slow}, axes)[1] == "1,234; median 900, 1 slow"
  two = {**plain, "batch_size": 4, "edge": True, "edges": ["batch_size"]}
  shown = best_tables._best(two, ["batch_size", "learning_rate"])
  assert shown[:3] == ["4 (edge)", "0.01", "< 1,234"]
  nothing = {**plain, "learning_rate": None, "trials": 0}
  shown = best_tables._best(nothing, axes)
  assert shown[:2] == ["none", "> 12,800"]
  assert shown[-1] == "0 of 1 settings"
  growth = {
    "series": "gru", "c": 1.234, "low": 1.0, "high": 1.5, "over": [4, 8, 16],
    "verdict": "grows", "coarse": True, "edge": True, "restricted": True,
    "growth": {"factor": 5.5, "low": 4.0, "high": 8.0, "over": [4.0, 16.0]},
    "laws": {"a": -10.0, "b": 1234.5, "scale": 1.0, "c": 1.2, "advantage": -0.5,
             "p_logarithm": 0.001, "p_power": 0.3},
    "local": [{"c": 1.0, "over": [4, 8]}, {"c": 1.5, "over": [8, 16]}],
    "at_settings": [
      {"learning_rate": 0.001, "c": 1.9, "over": [4, 8, 16]},
      {"learning_rate": 0.01, "c": 1.2, "over": [4, 8]},
    ],
  }  # fmt: skip
  said = best_tables._growth(growth, "N", axes)
  assert said == (
    "gru: n ~ N^c, c = 1.23 [1.00, 1.50] coarse over N = 4, 8, 16: grows, 5.50 [4.00, "
    "8.00] times from N = 4 to 16; some n are upper bounds; some n are lower bounds; c "
    "is 1.00 from 4 to 8, 1.50 from 8 to 16; a power: p = 0.3; n = -10 + 1,234 log N: "
    "p = 0.001; the log-likelihood of the power is higher by 0.50. With one rate for "
    "all, c is 1.90 at 0.001, N = 4 to 16; 1.20 at 0.01, N = 4 to 8"
  )
  unknown = {**growth, "growth": None, "laws": None, "verdict": "not settled"}
  assert ": not settled; some n are" in best_tables._growth(unknown, "N", axes)


def test_coarse_is_of_what_is_recorded():
  """Ten checks are 640 samples."""
  for n, coarse in ((450.0, True), (900.0, False)):
    found = summary_of(records(lambda *_, n=n: n))
    assert {e["coarse"] for e in found["best"]} == {coarse}
    assert {e["coarse"] for e in found["exponents"]} == {coarse}


@pytest.mark.slow
def test_preset_says_what_it_is():
  preset = ROOT / "experiments/flags/best_rate.cfg"
  check_preset_says_what_it_is(preset)
  chosen = best_rate.STUDY.chosen([f"--flagfile={preset}"])
  assert len(best_rate.STUDY.cells(chosen)) == 6 * 3 * 7


def test_verdicts():
  assert verdict(1.1, 2.0) == "grows"
  assert verdict(0.5, 0.9) == "falls"
  assert verdict(0.9, 1.1) == "no growth seen"
  assert verdict(np.nan, np.nan) == "not settled"


@pytest.mark.parametrize("rates", ["0", "-1e-3", "1e-3,nan"])
def test_rates_that_are_none(rates):
  chosen = best_rate.STUDY.chosen([f"--learning_rates={rates}"])
  with pytest.raises(
    ValueError, match=r"learning_rates: got .*, takes a positive number"
  ):
    best_rate.STUDY.cells(chosen)


@pytest.mark.slow
def test_models_of_one_size_are_a_setting():
  arguments = ["--models=transformer,gru", "--lengths=4", "--learning_rates=1e-3"]
  chosen = best_rate.STUDY.chosen([*arguments, "--num_parameters=50000"])
  one, two = (cell.trial.model for cell in best_rate.STUDY.cells(chosen))
  assert one.width > 100
  assert two.units < 500
  with pytest.raises(ValueError, match="num_parameters: got 500, takes a number that"):
    best_rate.STUDY.cells(best_rate.STUDY.chosen([*arguments, "--num_parameters=500"]))


@pytest.mark.slow
def test_a_study_of_best_rates_end_to_end(tmp_path, capsys, monkeypatch):
  monkeypatch.setattr(options.signal, "signal", lambda *_: None)
  arguments = [
    "--models=tests.small:Linear,tests.small:transformer", "--lengths=3,4",
    "--learning_rates=1e-3,1e-2,3e-2", "--num_trials=3", "--token_dim=2",
    "--batch_size=16", "--check_every=2", "--num_test=300", "--max_samples=9600",
    "--uniform_fractions=0.8", "--task=simple_qstr",
  ]  # fmt: skip

  def run(*further):
    values = [*arguments, *further]
    own = [a for a in values if a.partition("=")[0].removeprefix("--") in flags.FLAGS]
    with flagsaver.flagsaver():
      flags.FLAGS(["study", f"--output_dir={tmp_path}", *own])
      program.run(best_rate.STUDY, best_rate.STUDY.chosen(values))

  run()
  assert "none" in capsys.readouterr().out  # a linear model never gets there
  records = sepfx.load(tmp_path)
  models = records.table["model"]
  linear = records.table[models == "tests.small:Linear"]
  assert len(linear) == 2 * 3 * 2  # its pilots alone
  summary = json.loads((tmp_path / "summary.json").read_text())
  chosen = {(e["model"], e["length"]): e["learning_rate"] for e in summary["best"]}
  assert chosen["tests.small:Linear", 3] is None
  rate = chosen["tests.small:transformer", 4]
  own = records.table[
    (models == "tests.small:transformer") & (records.table["length"] == 4)
  ]
  recorded = {
    each: np.mean(own["samples"][own["learning_rate"] == each])
    for each in np.unique(own["learning_rate"]).tolist()
    if np.sum(own["learning_rate"] == each) == 3
  }
  assert rate == min(recorded, key=recorded.get)
  before = (tmp_path / "trials.csv").read_bytes()
  run()
  assert (tmp_path / "trials.csv").read_bytes() == before


def test_the_axis_that_is_chosen_from_is_not_drawn_along():
  with flagsaver.flagsaver():
    flags.FLAGS(["best_rate", "--quiet", "--against=learning_rate"])
    with pytest.raises(
      InvalidSetting, match="against: got 'learning_rate', takes another"
    ):
      program.run(best_rate.STUDY, best_rate.STUDY.chosen())
