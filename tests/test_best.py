"""The best of several rates: chosen, reported by the other half, drawn again."""

import io
import json

import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver
from numpy.lib import recfunctions

import sepfx
from benchmarks import choice
from experiments import best_rate, best_tables, study
from experiments.pilots import Pilots
from sepfx.analysis import Level, best_figures, summarise_best
from sepfx.analysis.best import Trials, best_of, choose, laid_out, repeated, split_mean
from sepfx.analysis.best_summary import verdict
from sepfx.analysis.bounded import Bounds
from sepfx.analysis.passages import (
  Checks,
  log_restricted_mean,
  padded,
  points,
  restricted_means,
)
from sepfx.ensembles import Records, table, trial_name
from sepfx.errors import InvalidSetting
from tests.programs import ROOT, check_preset_says_what_it_is

EVERY = Checks(np.array(64), np.array(64), np.array(64 * 200))


def drawn(rng, logs, spread, m=6, correlation=0.0):
  return choice.drawn(rng, logs, spread, m, EVERY, correlation)


def truth(logs, spread):
  return choice.truth(logs, spread, EVERY)


def test_the_spread_of_another_setting_is_not_that_of_the_best():
  """One that scatters widely, so that Bartlett's test tells them apart."""
  rng = np.random.default_rng(2)
  trials = drawn(rng, [np.log(2000), np.log(4000)], (0.1, 1.5))
  found = best_of(trials, 100, rng)
  assert found.setting == 0
  np.testing.assert_allclose(found.mean, np.mean(trials.samples[0]), rtol=0.03)
  again, _ = repeated(trials, 200, rng)
  spreads = np.std(np.log(again.samples), axis=(0, 2))
  np.testing.assert_allclose(spreads, np.std(np.log(trials.samples), axis=1), rtol=0.3)


def test_points_are_the_middle_of_restricted_means():
  rng = np.random.default_rng(0)
  trials = drawn(rng, np.log([2000, 3000, 9000]), 0.3)
  whole = restricted_means(trials.bounds, 12_800.0, 64.0)
  found = points(trials.bounds)
  mean = np.exp(log_restricted_mean(*found, np.log(12_800.0)))
  np.testing.assert_allclose(mean, whole.mean, rtol=1e-6)
  np.testing.assert_allclose(found.spread, whole.spread, rtol=1e-6)
  several = Bounds(*(np.stack([side, side + 0.5]) for side in trials.bounds))
  both = points(several)
  np.testing.assert_allclose(both.log[0], found.log, rtol=1e-6)
  np.testing.assert_allclose(both.log[1], found.log + 0.5, rtol=1e-5)


def test_rates_of_few_trials_are_laid_out_with_holes():
  samples, reached = np.array([640, 1280, 128.0]), np.array([True, True, False])
  rate, trial = np.array([0, 1, 1]), np.array([0, 0, 1])
  checks = Checks(*(np.full(3, own) for own in (64, 64, 12_800)))
  trials = laid_out(samples, reached, rate, trial, checks)
  np.testing.assert_array_equal(trials.run, [[True, False], [True, True]])
  lower, upper = trials.bounds
  np.testing.assert_allclose(np.exp(lower), [[576, 0], [1216, 12_800]])
  np.testing.assert_allclose(np.exp(upper), [[640, np.inf], [1280, np.inf]])
  one = padded(Bounds(lower[1], upper[1]), np.zeros(2))
  np.testing.assert_array_equal(one.lower[0], lower[1])


def test_choice_is_the_least_recorded_mean():
  rng = np.random.default_rng(1)
  again = [drawn(rng, np.log([2000, 2200, 8000]), 0.5) for _ in range(20)]
  batch = Trials(
    *(np.stack([getattr(t, name) for t in again]) for name in Trials._fields[:3]), EVERY
  )
  found = choose(batch)
  for k, trials in enumerate(again):
    means = np.mean(np.minimum(trials.samples - 32 * trials.reached, 12_800), axis=1)
    assert found.setting[k] == np.argmin(means)
    np.testing.assert_allclose(found.mean[k], np.min(means), rtol=1e-6)
  assert 0 < np.mean(found.setting) < 1  # the first two both win at times


def test_a_rate_of_which_no_trial_reached_is_not_chosen():
  trials = drawn(np.random.default_rng(2), np.log([1e9, 3000]), 0.1)
  assert not trials.reached[0].any()
  own = best_of(trials, 50, np.random.default_rng(0))
  assert own.setting == 1
  np.testing.assert_array_equal(own.chosen, [0, 1])
  assert best_of(drawn(np.random.default_rng(2), [50.0, 60.0], 0.1), 5, None) is None


def test_choosing_among_equals_flatters_and_halves_do_not():
  rng = np.random.default_rng(3)
  logs, spread = [np.log(3000)] * 4, 0.4
  whole, halves, said = [], [], []
  for _ in range(200):
    trials = drawn(rng, logs, spread)
    whole.append(np.log(choose(trials).mean / truth(logs, spread)[0]))
    halves.append(split_mean(trials) / truth(logs, spread)[0] - 1)
    said.append(np.log(best_of(trials, 50, rng).flatters))
  error = np.std(halves) / np.sqrt(200)
  assert np.mean(whole) < -0.1
  assert abs(np.mean(halves)) < 3 * error
  # The bootstrap takes differences that are noise for true, so it says less.
  assert 1.2 * np.mean(whole) < np.mean(said) < 0.4 * np.mean(whole)


def test_a_clear_choice_flatters_nobody():
  trials = drawn(np.random.default_rng(4), np.log([1500, 6000]), 0.1)
  own = best_of(trials, 200, np.random.default_rng(0))
  assert own.setting == 0
  np.testing.assert_allclose(own.flatters, 1.0, atol=0.01)
  means = restricted_means(trials.bounds, 12_800.0, 64.0)
  assert own.low == means.low[0]
  np.testing.assert_allclose(own.high, means.high[0] / min(own.flatters, 1))


def test_rates_that_were_given_up_are_out_of_the_running():
  trials = drawn(np.random.default_rng(9), np.log([1500, 2000]), 0.1)
  alone = best_of(trials, 50, np.random.default_rng(0))
  # One of whose pilot trials neither came near.
  own, nothing = np.array([9000.0, 12_000.0]), np.ones(4)
  sides = [
    np.vstack([side, np.concatenate([pilots, rest])])
    for side, pilots, rest in (
      (trials.samples, own, nothing),
      (trials.reached, np.ones(2, bool), nothing == 0),
      (trials.run, np.ones(2, bool), nothing == 0),
    )
  ]
  three = best_of(Trials(*sides, EVERY), 50, np.random.default_rng(0))
  assert three[:-1] == alone[:-1]
  np.testing.assert_array_equal(three.chosen, [*alone.chosen, 0])


def test_a_rate_of_which_one_trial_reached_tells_no_spread():
  """Five spent the budget: with one spread for both the best mean would be too large."""
  own = drawn(np.random.default_rng(9), np.log([1500, 1500]), 0.1)
  alone = best_of(own.settings(np.array([0])), 50, np.random.default_rng(0))
  samples, reached = own.samples.copy(), own.reached.copy()
  samples[1], reached[1] = 12_800, False
  samples[1, 0], reached[1, 0] = 6400, True
  trials = own._replace(samples=samples, reached=reached)
  np.testing.assert_array_equal(trials.running, [True, False])
  found = best_of(trials, 50, np.random.default_rng(0))
  assert found[:-1] == alone[:-1]
  shared = restricted_means(trials.bounds, 12_800.0, 64.0)
  assert shared.mean[0] > 1.05 * found.mean  # what it would be


def test_a_rate_of_which_one_trial_reached_may_be_the_best():
  samples = np.array([[640.0, 12_800, 12_800], [12_736, 12_736, 12_800]])
  trials = Trials(samples, samples < 12_800, np.ones((2, 3), bool), EVERY)
  np.testing.assert_array_equal(trials.running, [True, True])
  assert best_of(trials, 50, np.random.default_rng(0)).setting == 0


def test_rates_with_more_trials_than_the_best_are_not_preferred():
  """A directory may grow at one rate alone: the others were not given up for that."""
  trials = drawn(np.random.default_rng(9), np.log([1500, 2000, 9000]), 0.1, m=8)
  run = trials.run.copy()
  run[0, 3:] = run[2, 2:] = False
  grown = trials._replace(run=run, reached=trials.reached & run)
  np.testing.assert_array_equal(grown.given_up, [False, False, True])
  found = best_of(grown, 100, np.random.default_rng(0))
  assert found.setting == 0
  np.testing.assert_allclose(found.mean, np.mean(trials.samples[0, :3]), rtol=0.1)
  assert found.chosen[0] > 0.9
  assert found.chosen[2] == 0


def test_any_rate_may_be_the_best_so_the_interval_begins_at_the_lowest():
  """The second has the smaller mean, the first the wider interval."""
  wide = np.array([1000.0, 1400, 2000, 2800, 4000, 5600])
  narrow = np.array([1900.0, 2000, 2050, 2100, 2150, 2200])
  samples = 64 * np.ceil(np.stack([wide, narrow]) / 64)
  trials = Trials(samples, np.ones((2, 6), bool), np.ones((2, 6), bool), EVERY)
  found = best_of(trials, 100, np.random.default_rng(0))
  means = restricted_means(trials.bounds, 12_800.0, 64.0)
  assert found.setting == 1
  assert means.low[0] < means.low[1]
  assert found.low == means.low[0]
  assert found.high >= means.high[1]


def test_trials_drawn_again_are_like_the_first():
  rng = np.random.default_rng(5)
  logs = np.log([2000, 3000, 20_000])
  trials = drawn(rng, logs, 0.3, m=400, correlation=0.6)
  again, means = repeated(trials, 100, rng)
  np.testing.assert_allclose(means, truth(logs, 0.3), rtol=0.05)
  for name in ("samples", "reached"):
    own, others = getattr(trials, name), getattr(again, name)
    np.testing.assert_allclose(
      np.mean(others, axis=(0, 2)), np.mean(own, axis=1), rtol=0.1, atol=0.03
    )
  one, two = np.log(again.samples[:, 0]), np.log(again.samples[:, 1])
  np.testing.assert_allclose(np.corrcoef(one.ravel(), two.ravel())[0, 1], 0.6, atol=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("setting", choice.SETTINGS[1:8:2])
def test_intervals_of_the_best_cover(setting):
  rng = np.random.default_rng(6)
  found = [choice.sweep(setting, rng, 100) for _ in range(100)]
  # 93% and 95%, less three standard errors.
  assert np.mean([own.covered for own in found]) > 0.93 - 3 * 0.22 / np.sqrt(300)
  assert np.mean([own.exponent for own in found]) > 0.95 - 3 * 0.22 / np.sqrt(100)


def test_given_up_rates_have_their_pilots_alone():
  trials = drawn(np.random.default_rng(8), np.log([1000, 2000, 9000, 1e9]), 0.1)
  kept = choice.with_pilots(trials).run.sum(axis=1)
  np.testing.assert_array_equal(kept, [6, 6, 2, 2])


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
    assert own["chosen"]["0.003"] == 1
    assert best["ffn", length]["learning_rate"] == 1e-3
    assert best["ffn", length]["edge"]
  assert len(found["cells"]) == 2 * 3 * 3
  assert {c["trials"] for c in found["cells"]} == {2, 6}
  one, two = found["exponents"]
  assert (one["series"], one["verdict"]) == ("transformer", "nearly independent of N")
  assert (two["series"], two["verdict"]) == ("ffn", "grows")
  assert two["low"] < 1.5 < two["high"]
  # At one rate for all lengths, over those lengths at which all its trials reached.
  assert [own["learning_rate"] for own in one["at_rates"]] == list(RATES)
  assert [own["over"] for own in one["at_rates"]] == [[4, 8, 16]] * 3
  (best,) = (own for own in one["at_rates"] if own["learning_rate"] == 3e-3)
  assert (best["c"], best["low"]) == (one["c"], one["low"])
  slow = [own for own in two["at_rates"] if own["learning_rate"] != 1e-3]
  assert all(own["over"] == [4, 8] for own in slow)


def test_what_any_learner_needs_is_drawn_against_other_axes():
  own = records(n_of)
  renamed = recfunctions.rename_fields(own.table, {"length": "token_dim"})
  coordinates = ("task", "model", "token_dim", "learning_rate")
  found = summary_of(Records(renamed, coordinates, {}), "token_dim", unknowns=30.0)
  json.dumps(found, allow_nan=False)
  assert {e["information"] for e in found["best"]} == {15.0}  # half of them, below 0.5
  label = "any learner: q d (1 - MSE) labels, 15 to 15 prompts"
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
  assert found["exponents"][0]["verdict"] == "nearly independent of d"
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
  assert "at the published rate, 0.001" in labels
  shown = best_rate.STUDY.table(found)
  assert any("nearly independent" in str(part) for part in shown)


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
  (edge,) = arrows(upper, best_figures._EDGE)  # the Transformer at the largest rate
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
    "split": None, "flatters": 0.957, "reached": 5, "trials": 6, "rates": [0.01],
  }  # fmt: skip
  plain = {**entry, "restricted": False, "edge": False, "coarse": False}
  for marks, text in (
    ({}, "1,234"),
    ({"edge": True}, "< 1,234"),
    ({"restricted": True}, "> 1,234"),
    ({"restricted": True, "edge": True, "coarse": True}, "> < 1,234 coarse"),
    ({"low": 1000.0, "high": 2000.0}, "1,234 [1,000, 2,000]"),
  ):
    assert best_tables._best({**plain, **marks}) == ["0.01", text, "", "0.96", "5/6"]
  nothing = {**plain, "learning_rate": None}
  assert best_tables._best(nothing)[:2] == ["none", "> 12,800"]
  growth = {
    "series": "gru", "c": 1.234, "low": 1.0, "high": 1.5, "over": [4, 8, 16],
    "verdict": "grows", "straight": 0.012, "coarse": True, "edge": True,
    "restricted": True,
    "local": [{"c": 1.0, "over": [4, 8]}, {"c": 1.5, "over": [8, 16]}],
    "at_rates": [
      {"learning_rate": 0.001, "c": 1.9, "over": [4, 8, 16]},
      {"learning_rate": 0.01, "c": 1.2, "over": [4, 8]},
    ],
  }  # fmt: skip
  assert best_tables._growth(growth, "N") == (
    "gru: n ~ N^c, c = 1.23 [1.00, 1.50] coarse over N = 4, 8, 16: grows; some n are "
    "upper bounds; some n are lower bounds; c is 1.00 from 4 to 8, 1.50 from 8 to 16 "
    "(a straight line: p = 0.012). With one rate for all, c is 1.90 at 0.001, N = 4 to "
    "16; 1.20 at 0.01, N = 4 to 8"
  )


def test_coarse_is_of_what_is_recorded():
  """Ten checks are 640 samples."""
  for n, coarse in ((450.0, True), (900.0, False)):
    found = summary_of(records(lambda *_, n=n: n))
    assert {e["coarse"] for e in found["best"]} == {coarse}
    assert {e["coarse"] for e in found["exponents"]} == {coarse}


def test_preset_says_what_it_is():
  preset = ROOT / "experiments/flags/best_rate.cfg"
  check_preset_says_what_it_is(preset)
  chosen = best_rate.STUDY.chosen([f"--flagfile={preset}"])
  assert len(best_rate.STUDY.cells(chosen)) == 6 * 3 * 7


def test_verdicts():
  assert verdict(-0.1, 0.4) == "nearly independent of N"
  assert verdict(0.6, 2.0) == "grows"
  assert verdict(0.4, 0.6) == verdict(np.nan, np.nan) == "not settled"


def test_pilots_choose_the_rates_to_go_on_with():
  chosen = best_rate.STUDY.chosen(
    ["--models=transformer", "--lengths=4,8", "--max_samples=64000", "--num_trials=5"]
  )
  cells = best_rate.STUDY.cells(chosen)
  assert len(cells) == 2 * 7
  search = best_rate.STUDY.search(cells, chosen)
  first = search({})
  assert sorted(first) == sorted(trial_name(c, k) for c in cells for k in (0, 1))
  n = {1e-4: None, 3e-4: 9000, 1e-3: 4900, 3e-3: 1000, 1e-2: 1100, 3e-2: None, 1e-1: None}

  def rows(cell, k):
    own = n[cell.coordinates["learning_rate"]]
    if cell.coordinates["length"] == 8:  # one of two reaches, another late
      own = {1e-2: (None, 2000), 1e-3: (20_000, 30_000)}.get(
        cell.coordinates["learning_rate"], (None, None)
      )[k]
    reached = {"samples": own, "outcome": "reached"}
    return [reached if own else {"samples": 64_000, "outcome": "censored"}]

  ended = {trial_name(c, k): rows(c, k) for c in cells for k in (0, 1)}
  second = search(ended)
  going_on = {
    (c.coordinates["length"], c.coordinates["learning_rate"])
    for c in cells
    if trial_name(c, 2) in second
  }
  # At 4 within five times 1,000. At 8 the least mean is 25,000: one that spent its
  # budget counts with it, and a rate is near if one of its trials is.
  assert going_on == {(4, 1e-3), (4, 3e-3), (4, 1e-2), (8, 1e-2), (8, 1e-3)}
  assert len(second) == 3 * len(going_on)
  assert search.num_trials == 2 * 14 + len(second)
  assert search(ended) == []


def test_pilots_alone_where_no_more_are_asked_for():
  chosen = best_rate.STUDY.chosen(["--models=transformer", "--lengths=4"])
  cells = best_rate.STUDY.cells(chosen)
  search = Pilots(cells, 1)
  assert len(search({})) == 7
  assert search({}) == []


@pytest.mark.parametrize("rates", ["0", "-1e-3", "1e-3,nan"])
def test_rates_that_are_none(rates):
  chosen = best_rate.STUDY.chosen([f"--learning_rates={rates}"])
  with pytest.raises(
    ValueError, match=r"learning_rates: got .*, takes a positive number"
  ):
    best_rate.STUDY.cells(chosen)


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
  monkeypatch.setattr(study.running.signal, "signal", lambda *_: None)
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
      study.run(best_rate.STUDY, best_rate.STUDY.chosen(values))

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
      study.run(best_rate.STUDY, best_rate.STUDY.chosen())
