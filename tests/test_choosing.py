"""Batch size and learning rate chosen together: pilot trials, edges, the study."""

import json

import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver

import sepfx
from benchmarks import choice
from benchmarks.choice import GRID, Plane
from experiments import best_rate
from sepfx.commands import options, program
from sepfx.drawing import best_figures
from sepfx.ensembles import Records, table
from sepfx.errors import InvalidSetting
from sepfx.statistics.best_summary import summarise_best
from sepfx.statistics.levels import Level
from sepfx.statistics.passages import Checks
from sepfx.studies import beside, merging
from sepfx.studies.searches import MOST_PILOTS, next_pilots
from sepfx.studies.settings import from_stored

AXES = ("batch_size", "learning_rate")


def searched(settings, n, budget=np.inf, pilots=2):
  """Runs pilot trials as they are asked for; the order in which they were."""
  n = np.reshape(n, (len(settings), -1))
  known = np.full((len(settings), pilots, n.shape[1]), np.nan)
  limits = np.full((len(settings), 1, 1), budget)
  order = []
  while found := next_pilots(settings, known, limits):
    assert len(set(found)) == len(found)
    for setting, k in found:
      assert np.all(np.isnan(known[setting, k]))
      known[setting, k] = np.where(n[setting] <= budget, n[setting], np.inf)
    order.append(found)
  return order, known


@pytest.mark.parametrize(
  "plane", [Plane(4, 6e-3), Plane(4, 1e-2), Plane(16, 3e-3), Plane(64, 1e-2)]
)
def test_pilots_come_to_the_best_setting(plane):
  n = 1000 * np.exp(plane.gaps(GRID))
  order, known = searched(GRID, n)
  run = ~np.isnan(known[..., 0])
  assert np.sum(run) <= MOST_PILOTS
  assert run[np.argmin(n)].all()
  # First one trial of all rates at 64, then the second of those within five times.
  assert [GRID[k]["batch_size"] for k, _ in order[0]] == [64] * 7
  at_64 = np.array([own["batch_size"] == 64 for own in GRID])
  near = n <= 5 * np.min(n[at_64])
  np.testing.assert_array_equal(run[at_64 & near], True)
  assert run[at_64 & ~near].tolist() == [[True, False]] * int(np.sum(at_64 & ~near))


def test_three_rates_next_to_the_one_predicted_at_the_next_size():
  n = 1000 * np.exp(Plane(64, 1e-2).gaps(GRID))
  order, _ = searched(GRID, n)
  smaller = [(GRID[k]["batch_size"], GRID[k]["learning_rate"]) for k, _ in order[2]]
  # 1e-2 at 64 predicts 5e-3 at 16.
  assert smaller == [(16, 3e-3), (16, 1e-2), (16, 1e-3)]
  # Then the larger size, from which nothing is better: 1e-2 predicts 2e-2.
  larger = [[GRID[k] for k, _ in each] for each in order]
  sizes = [{own["batch_size"] for own in each} for each in larger]
  first = sizes.index({256})
  assert [own["learning_rate"] for own in larger[first]] == [3e-2, 1e-2, 1e-1]


def test_a_batch_size_above_is_found():
  n = 1000 * np.exp(Plane(256, 1e-2).gaps(GRID))
  _, known = searched(GRID, n)
  best = int(np.argmin(n))
  assert GRID[best]["batch_size"] == 256
  assert not np.any(np.isnan(known[best]))


def test_the_best_at_each_threshold_is_sought():
  own = 1000 * np.exp(Plane(16, 3e-3).gaps(GRID))
  other = 5000 * np.exp(Plane(64, 1e-2).gaps(GRID))
  _, known = searched(GRID, np.stack([own, other], axis=1))
  for n in (own, other):
    assert not np.any(np.isnan(known[np.argmin(n)]))
  assert np.sum(~np.isnan(known[..., 0])) <= MOST_PILOTS


def test_other_sizes_are_tried_where_none_reached():
  """Smaller ones first, all rates of each, as far as the pilot trials go."""
  order, known = searched(GRID, np.full(len(GRID), 1e6), budget=1000)
  assert [{GRID[k]["batch_size"] for k, _ in each} for each in order] == [
    {64}, {16}, {4}, {1}, {256}
  ]  # fmt: skip
  assert np.sum(~np.isnan(known)) == MOST_PILOTS
  # What is reached at a smaller size alone is found, and then what is around it.
  n = 1000 * np.exp(Plane(4, 1e-2).gaps(GRID))
  _, known = searched(GRID, n, budget=2000)
  assert np.min(n[[own["batch_size"] == 64 for own in GRID]]) > 2000
  assert not np.any(np.isnan(known[np.argmin(n)]))


def test_one_pilot_trial_of_each_is_enough():
  n = 1000 * np.exp(Plane(16, 3e-3).gaps(GRID))
  order, known = searched(GRID, n, pilots=1)
  assert known[np.argmin(n), 0, 0] == np.min(n)
  assert {k for each in order for _, k in each} == {0}


def test_settings_without_batch_sizes_all_have_their_pilots_at_once():
  settings = [{"learning_rate": r, "weight_decay": w} for r in (1, 2) for w in (0, 1)]
  order, _ = searched(settings, [1, 2, 3, 4])
  assert order == [[(k, i) for k in range(4) for i in range(2)]]


def test_other_axes_keep_the_value_of_the_best():
  settings = [{**own, "weight_decay": w} for own in GRID for w in (0.0, 0.1)]
  gaps = Plane(16, 3e-3).gaps(settings)
  n = 1000 * np.exp(gaps + [0.5 * (own["weight_decay"] == 0) for own in settings])
  order, _ = searched(settings, n)
  away = [settings[k] for each in order[2:] for k, _ in each]
  assert {own["weight_decay"] for own in away if own["batch_size"] != 64} == {0.1}


def test_checks_follow_the_batch_size():
  assert [best_rate.check_steps(1, b) for b in (1, 4, 16, 64, 256)] == [8, 4, 2, 1, 1]
  assert [best_rate.check_steps(8, b) for b in (1, 16, 64, 128, 256)] == [64, 16, 8, 4, 2]

  def steps(*arguments):
    chosen = best_rate.STUDY.chosen(
      ["--models=transformer", "--lengths=4", "--learning_rates=1e-2",
       "--check_every=2", "--batch_size=4,64", *arguments]
    )  # fmt: skip
    return [cell.trial.protocol.check_every for cell in best_rate.STUDY.cells(chosen)]

  assert steps("--choose=learning_rate,batch_size") == [8, 2]
  assert steps() == [2, 2]  # batch sizes are series of their own
  for every in ("0", "-3"):
    with pytest.raises(InvalidSetting, match=f"check_every: got {every}"):
      steps("--choose=learning_rate,batch_size", f"--check_every={every}")


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (["--choose=batch_size"], "choose: got 'batch_size', takes axes with several"),
    (["--choose="], "choose: got '', takes axes with several values here: learning_rate"),
    (["--choose=model"], "choose: got 'model', takes axes with several"),
    (
      ["--choose=learning_rate,batch_size,weight_decay", "--batch_size=4,64",
       "--weight_decay=0,0.01,0.1"],
      "choose: got .* takes fewer than 15 settings at one batch size",
    ),
  ],
)  # fmt: skip
def test_what_cannot_be_chosen_from(arguments, message):
  chosen = best_rate.STUDY.chosen(["--models=transformer", "--lengths=4", *arguments])
  with pytest.raises(InvalidSetting, match=message):
    best_rate.STUDY.cells(chosen)


def test_directories_of_before_are_taken_up():
  """They chose a learning rate, and their digests say nothing of it."""
  chosen = best_rate.STUDY.chosen(["--models=transformer", "--lengths=4"])
  stored = chosen.stored()
  del stored["choose"]
  before = from_stored(best_rate.Settings, stored)
  assert before == chosen
  assert merging.identity(chosen) == (
    "fcd98e376aef679c8c8b35a012016dc02da7b77cba229ecbe78d67d1bf041b8c"
  )
  two = best_rate.STUDY.chosen(["--choose=learning_rate,batch_size", "--batch_size=4,64"])
  with pytest.raises(InvalidSetting, match=r"differs in choose \(there "):
    merging.merged(best_rate.STUDY.chosen(["--batch_size=4,64"]), two)


def recorded(n_of, settings, axes=AXES, types=(int, float)):
  """Ten trials of settings that come near, two of others; at lengths 4, 8 and 16."""
  rng, rows = np.random.default_rng(3), []
  for length in (4, 8, 16):
    least = min(n_of(length, *own) for own in settings)
    for own in settings:
      n = n_of(length, *own)
      for trial in range(10 if n < 2 * least else 2):
        count = 64 * int(np.ceil(n * np.exp(0.1 * rng.normal()) / 64))
        outcome = (count, "reached") if count <= 128_000 else (128_000, "censored")
        rows.append(("qstr", "ffn", length, *own, trial, 0.5, *outcome))
  columns = dict(zip(axes, types, strict=True))
  kinds = {"task": str, "model": str, "length": int, **columns, "trial": int,
           "threshold": float, "samples": int, "outcome": str}  # fmt: skip
  return Records(table(rows, kinds), ("task", "model", "length", *axes), {})


def summary_of(records, axes=AXES):
  count = len(records.table)
  checks = Checks(*(np.full(count, v) for v in (64, 64, 128_000)))
  levels, risk = [Level(0.5)], np.full(count, 0.9)
  return json.loads(json.dumps(summarise_best(records, levels, checks, risk, axes=axes)))


def test_summary_of_two_axes_and_their_edges():
  def n_of(length, size, rate):
    # Best at (1, 1e-2) at N = 4, at the smallest rate at N = 8, at 64 at N = 16.
    best = {4: (1, 1e-2), 8: (4, 1e-3), 16: (64, 1e-2)}[length]
    return 1000 * length * (1 if (size, rate) == best else 3)

  settings = [(b, r) for b in (1, 4, 64) for r in (1e-3, 1e-2, 1e-1)]
  found = summary_of(recorded(n_of, settings))
  assert found["axes"] == list(AXES)
  best = {entry["length"]: entry for entry in found["best"]}
  assert [(best[N]["batch_size"], best[N]["learning_rate"]) for N in (4, 8, 16)] == [
    (1, 1e-2), (4, 1e-3), (64, 1e-2)
  ]  # fmt: skip
  # Nothing is below a batch of one.
  assert [best[N]["edges"] for N in (4, 8, 16)] == [[], ["learning_rate"], ["batch_size"]]
  assert [best[N]["edge"] for N in (4, 8, 16)] == [False, True, True]
  for N, entry in best.items():
    assert entry["low"] < 1000 * N < entry["high"]
    assert entry["median_low"] <= entry["median"] <= entry["median_high"]
    assert sum(own["chosen"] for own in entry["tried"]) == pytest.approx(1)
    assert len(entry["tried"]) == len(settings)
  (exponent,) = found["exponents"]
  assert exponent["edge"]
  assert {
    (own["batch_size"], own["learning_rate"]) for own in exponent["at_settings"]
  } == {*settings}
  shown = [part for part in best_rate.STUDY.table(found) if isinstance(part, str)]
  assert not any("With one" in part for part in shown)  # nine lines of it


def test_edges_are_of_what_was_tried_beside_the_best():
  """Rates follow the batch size: those of another size enclose none of this one."""

  def n_of(length, size, rate):
    return 1000 * length * (1 if (size, rate) == (4, 3e-3) else 3)

  settings = [(4, 3e-3), (4, 1e-2), (16, 1e-3), (16, 1e-2), (64, 1e-3), (64, 1e-2)]
  found = summary_of(recorded(n_of, settings))
  assert {tuple(entry["edges"]) for entry in found["best"]} == {AXES}
  settings += [(4, 1e-3), (1, 1e-3)]
  found = summary_of(recorded(n_of, settings))
  assert {tuple(entry["edges"]) for entry in found["best"]} == {()}


def test_a_best_whose_rate_was_tried_alone_is_at_an_edge():
  def n_of(length, size, rate):
    return 1000 * length * (1 if (size, rate) == (4, 3e-3) else 3)

  settings = [(4, 3e-3), (1, 1e-3), (1, 1e-2), (16, 1e-3), (16, 1e-2)]
  found = summary_of(recorded(n_of, settings))
  assert {tuple(entry["edges"]) for entry in found["best"]} == {("learning_rate",)}


def of_sizes(rows, budgets):
  """A summary of rows (batch size, trial, n or None), of budgets and checks by size."""
  kinds = {"task": str, "model": str, "length": int, "batch_size": int,
           "learning_rate": float, "trial": int, "threshold": float, "samples": int,
           "outcome": str}  # fmt: skip
  made = [
    ("qstr", "ffn", 4, size, 1e-2, trial, 0.5, n or budgets[size],
     "reached" if n else "censored")
    for size, trial, n in rows
  ]  # fmt: skip
  coordinates = ("task", "model", "length", "batch_size", "learning_rate")
  records = Records(table(made, kinds), coordinates, {})
  sizes = records.table["batch_size"]
  step = sizes.astype(float)
  budget = np.array([budgets[size] for size in sizes.tolist()], float)
  checks = Checks(step, step * 10, budget)
  risk = np.full(len(sizes), 0.9)
  return summarise_best(records, [Level(0.5)], checks, risk, axes=AXES)


def test_a_setting_that_reached_nowhere_is_not_the_best_for_its_smaller_budget():
  """Budgets are whole numbers of checks, and differ by that between batch sizes."""
  rows = [(16, k, 47_840 + 16 * k) for k in range(10)] + [
    (64, k, None) for k in range(10)
  ]
  (entry,) = of_sizes(rows, {16: 48_000, 64: 44_800})["best"]
  # Within 44,800 prompts neither reached: nothing can be said.
  assert (entry["trials"], entry["batch_size"], entry["mean"]) == (0, None, 44_800)
  rows = [(16, k, 44_640 + 16 * k) for k in range(10)] + rows[10:]
  (entry,) = of_sizes(rows, {16: 48_000, 64: 44_800})["best"]
  assert (entry["batch_size"], entry["reached"]) == (16, 10)


def test_settings_of_one_pilot_trial_and_checks_of_their_own():
  """A setting that one trial gave up is no best and spoils no spread."""
  near = [(4, k, 2000 + 40 * k) for k in range(10)]
  rows = [*near, (16, 0, 14_400), (64, 0, None)]
  (entry,) = of_sizes(rows, {4: 50_000, 16: 49_920, 64: 49_920})["best"]
  assert (entry["batch_size"], entry["trials"], entry["resolution"]) == (4, 10, 40)
  assert [own["chosen"] for own in entry["tried"]] == [1, 0, 0]
  (alone,) = of_sizes(near, {4: 49_920})["best"]
  assert (entry["mean"], entry["low"]) == (alone["mean"], alone["low"])
  assert entry["edges"] == ["batch_size"]
  assert alone["edges"] == []


def test_parts_of_other_batch_sizes_have_one_budget():
  parts = []
  for size, budget in ((4, 10_000), (64, 20_000)):
    chosen = best_rate.STUDY.chosen(
      ["--models=ffn", "--lengths=4", f"--batch_size={size}", f"--max_samples={budget}"]
    )
    cells = best_rate.STUDY.cells(chosen)
    parts.append(beside.Part(Records(np.empty(0), (), {}), cells, chosen))
  with pytest.raises(
    InvalidSetting, match="runs with one max_samples for all batch sizes"
  ):
    beside.check(parts, ["there"], "length", AXES)
  beside.check(parts, ["there"], "length", ("learning_rate",))


def test_figure_has_a_panel_for_each_axis():
  def n_of(length, size, rate):
    return 1000 * length * (1 if size == 4 else 3) * (1 if rate == 1e-2 else 3)

  settings = [(b, r) for b in (4, 16, 64) for r in (1e-3, 1e-2, 1e-1)]
  figure = best_figures.best_rates(summary_of(recorded(n_of, settings)))
  upper, size, rate = figure.axes
  assert [axis.get_ylabel() for axis in (size, rate)] == [
    "best batch size", "best learning rate"
  ]  # fmt: skip
  marks = [line for line in size.get_lines() if line.get_marker() not in ("None", "")]
  assert [line.get_ydata()[0] for line in marks] == [4, 4, 4]
  assert {line.get_markerfacecolor() for line in marks} == {"white"}  # an edge
  marks = [line for line in rate.get_lines() if line.get_marker() not in ("None", "")]
  assert "white" not in {line.get_markerfacecolor() for line in marks}
  labels = [text.get_text() for text in figure.legends[0].get_texts()]
  assert "at the published batch size 64 and rate 0.001" in labels
  assert "upper bound: setting at an edge (hollow below)" in labels
  assert upper.get_xlim() == size.get_xlim() == rate.get_xlim()


def test_axes_of_texts_and_of_zero_are_drawn_and_have_no_edge_there():
  def n_of(length, optimizer, decay):
    own = 1 if optimizer == "lion" else 2
    return 1000 * length * own * (1 if decay == 0 else 3)

  settings = [(o, w) for o in ("adamw", "lion") for w in (0.0, 0.1)]
  axes = ("optimizer", "weight_decay")
  found = summary_of(recorded(n_of, settings, axes, (str, float)), axes)
  assert {tuple(entry["edges"]) for entry in found["best"]} == {()}
  assert {entry["optimizer"] for entry in found["best"]} == {"lion"}
  _, optimizer, decay = best_figures.best_rates(found).axes
  texts = [label.get_text() for label in optimizer.get_yticklabels()]
  assert texts == ["adamw", "lion"]
  assert [label.get_text() for label in decay.get_yticklabels()] == ["0", "0.1"]


def test_simulated_sweeps_of_two_axes_are_searched():
  setting = choice.Setting(Plane(16, 3e-3), 0.1, 10, 0.3, 10_000, 20, 640)
  found = choice.sweep(setting, np.random.default_rng(0), 20)
  assert all(found.covered)
  assert found.regret == [0, 0, 0]
  assert max(found.trials) < 90


def test_the_median_of_a_simulated_setting():
  rng = np.random.default_rng(0)
  for slow in (0.0, 0.1, 0.4):
    n = np.exp(7 + 0.3 * rng.normal(size=100_000))
    n *= np.where(rng.random(n.shape) < slow, choice.SLOWER, 1.0)
    np.testing.assert_allclose(choice.middle_of(7, 0.3, slow), np.median(n), rtol=0.01)
    checks = choice.alike(1, 1, 1, 2500)
    own = choice.truth([7.0], 0.3, checks, slow)
    np.testing.assert_allclose(own, np.mean(np.minimum(n, 2500)), rtol=0.01)


@pytest.mark.slow
def test_a_study_of_two_axes_end_to_end(tmp_path, capsys, monkeypatch):
  monkeypatch.setattr(options.signal, "signal", lambda *_: None)
  arguments = [
    "--models=tests.small:transformer", "--lengths=3,4", "--token_dim=2",
    "--learning_rates=3e-3,1e-2,3e-2,1e-1", "--batch_size=4,16,64", "--num_trials=4",
    "--check_every=1", "--num_test=300", "--max_samples=20000",
    "--uniform_fractions=0.8,0.5", "--task=simple_qstr",
    "--choose=learning_rate,batch_size",
  ]  # fmt: skip

  def run(directory):
    own = [a for a in arguments if a.partition("=")[0].removeprefix("--") in flags.FLAGS]
    with flagsaver.flagsaver():
      flags.FLAGS(["study", f"--output_dir={directory}", *own])
      program.run(best_rate.STUDY, best_rate.STUDY.chosen(arguments))

  run(tmp_path / "one")
  assert "batch" in capsys.readouterr().out
  records = sepfx.load(tmp_path / "one")
  summary = json.loads((tmp_path / "one" / "summary.json").read_text())
  counts = {}
  for row in records.table:
    cell = (row["length"], row["batch_size"], row["learning_rate"])
    counts.setdefault(cell, set()).add(row["trial"])
  # All rates at 64, and the smaller sizes at some.
  assert {rate for _, size, rate in counts if size == 64} == {3e-3, 1e-2, 3e-2, 1e-1}
  assert any(size < 64 for _, size, _ in counts)
  for entry in summary["best"]:
    best = (entry["length"], entry["batch_size"], entry["learning_rate"])
    assert len(counts[best]) == entry["trials"] == 4
  # What the records hold is all that the search needs: it chooses the same again.
  before = (tmp_path / "one" / "trials.csv").read_bytes()
  run(tmp_path / "one")
  assert (tmp_path / "one" / "trials.csv").read_bytes() == before
