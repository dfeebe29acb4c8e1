"""The study of chains: what it refuses, what it searches, what it makes of records."""

import csv
import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import matplotlib.figure
import numpy as np
import pytest

from experiments.fourier import tables as fourier_tables
from experiments.fourier.chain_of_thought import figure as chain_figures
from experiments.fourier.chain_of_thought.study import STUDY
from experiments.fourier.chain_of_thought.summary import summarise_chains
from sepfx import InvalidSetting
from sepfx.drawing import success_figures
from sepfx.ensembles import Records, columns, table
from sepfx.statistics.intervals import student_interval
from tests.programs import check_preset_says_what_it_is

ROOT = pathlib.Path(__file__).parents[2]
PRESET = ROOT / "experiments/flags/chain_of_thought.cfg"


@pytest.mark.parametrize(
  ("arguments", "expected"),
  [
    (["--lengths=1"], "sample_sizes: got 16, takes one of at most 2^T / 4 = 0"),
    (["--lengths=1", "--sample_sizes=0"], "lengths: got 1, takes an integer from 2"),
    (["--lengths=31"], "lengths: got 31, takes an integer from 2 to 30"),
    (["--lengths=12,ten"], "lengths: got 'ten', takes an integer"),
    (["--sample_sizes=0,16"], "sample_sizes: got 0, takes an integer >= 1"),
    (["--sample_sizes=16,1025"], "sample_sizes: got 1025, takes integers of at most"),
    (["--lengths=5,12"], "sample_sizes: got 16, takes one of at most 2^T / 4 = 8"),
    (["--modes=chain,steps"], "modes: got 'steps', takes chain or one_pass"),
    (["--models=gru"], "models: got 'gru', takes transformer or package"),
    (["--models=transformer:num_heads=2:mlp_width=0.5"], "mlp_width=0.5"),
    (["--models=transformer:num_heads=7"], "num_heads: got 7, takes a divisor"),
    (["--accuracy_level=0.5"], "accuracy_level: got 0.5, takes a number between"),
    (["--accuracy_level=1"], "accuracy_level: got 1.0"),
    (["--batch_size=0"], "batch_size: got 0"),
    (["--max_steps=99"], "max_steps: got 99, takes at least check_every = 100"),
  ],
)
def test_bad_flags_are_refused(arguments, expected):
  with pytest.raises(InvalidSetting) as error:
    STUDY.cells(STUDY.chosen(arguments))
  assert expected in str(error.value)


def test_preset_says_what_it_is():
  check_preset_says_what_it_is(PRESET)
  chosen = STUDY.chosen([f"--flagfile={PRESET}"])
  assert chosen.axes["length"] == (10, 12, 16, 20)
  assert max(chosen.axes["sample_size"]) == 2**14
  first = {name: values[:1] for name, values in chosen.axes.items()}
  small = dataclasses.replace(chosen, values={**chosen.values, **first})
  assert len(STUDY.cells(small)) == 1


@pytest.mark.slow
def test_a_search_leaves_strings_to_be_tested_on():
  """At each T it chooses sample sizes of at most 2^T / 4, of both modes."""
  chosen = STUDY.chosen(
    ["--lengths=6,8", "--sample_sizes=8,16,32,64", "--num_trials=32", "--modes=chain"]
  )
  cells = STUDY.cells(chosen)
  search = STUDY.search(cells, chosen)
  assert search.num_trials == 2 * 32
  by_name = {f"{cell.name}/trial={k}": cell for cell in cells for k in range(32)}
  ended = {}
  while names := search(ended):
    censored = [{"outcome": "censored"}]
    ended |= dict.fromkeys(names, censored)  # so it asks for ever more strings
  largest = {}
  for name in ended:
    own = by_name[name].coordinates
    largest[own["length"]] = max(largest.get(own["length"], 0), own["sample_size"])
  assert largest == {6: 16, 8: 64}


def test_both_modes_are_trained_on_the_same_strings_in_batches_that_they_have():
  chosen = STUDY.chosen(["--lengths=8", "--sample_sizes=16,64"])
  cells = STUDY.cells(chosen)
  names = {
    (cell.coordinates["mode"], cell.coordinates["sample_size"]): cell for cell in cells
  }
  assert len(names) == 4
  for size in (16, 64):
    chain, one_pass = names["chain", size], names["one_pass", size]
    assert chain.trial.key_name == one_pass.trial.key_name
    assert chain.trial.protocol.batch_size == size
    assert chain.trial.task.mode == chain.trial.test_task.mode == "chain"
    assert one_pass.trial.task.mode == one_pass.trial.test_task.mode == "one_pass"


def records_of(outcomes):
  """Records of both modes: (mode, T, n, trial, outcome, p, error, train error) rows."""
  cells = STUDY.cells(STUDY.chosen(["--lengths=6,8", "--sample_sizes=8,16"]))
  names = tuple(cells[0].coordinates)
  rows, probed, curves = [], [], []
  for mode, length, size, trial, outcome, p, error, train in outcomes:
    head = {"task": "parity_chain", "model": "transformer", "length": length}
    head |= {"sample_size": size, "mode": mode}
    own = (*(head[name] for name in names), trial)
    rows.append((*own, 1 - error, 300, outcome))
    steps = length - 1 if mode == "chain" else 1
    probed.append((*own, p, error, steps * p))
    curve = np.zeros(2, [(k, float) for k in ("steps", "test_error", "train_error")])
    curve["train_error"] = [0.5, train]
    curves.append(curve)
  types = columns(cells)
  heads = {name: types[name] for name in (*names, "trial")}
  values = dict.fromkeys(("step_error", "chain_error", "union_bound"), float)
  records = Records(table(rows, types), names, {}, table(probed, {**heads, **values}))
  by_name = dict(zip(map(records.name_of, records.table), curves, strict=True))
  return dataclasses.replace(records, all_curves=by_name)


OUTCOMES = [
  ("chain", 6, 8, 0, "censored", 0.2, 0.4, 0.0),
  ("chain", 6, 8, 1, "censored", 0.3, 0.5, 0.0),
  ("chain", 6, 16, 0, "reached", 0.01, 0.03, 0.0),
  ("chain", 6, 16, 1, "reached", 0.02, 0.09, 0.0),
  ("chain", 6, 16, 2, "reached", 0.0, 0.0, 0.0),
  ("chain", 8, 16, 0, "reached", 0.001, 0.006, 0.0),
  ("one_pass", 6, 8, 0, "censored", 0.5, 0.5, 0.0),
  ("one_pass", 6, 16, 0, "censored", 0.5, 0.5, 0.3),
  ("one_pass", 6, 16, 1, "diverged", np.nan, np.nan, np.nan),
  ("one_pass", 8, 8, 0, "censored", 0.5, 0.5, 0.0),
  ("one_pass", 8, 16, 0, "reached", 0.1, 0.1, 0.0),
  *(("one_pass", 8, 16, k, "censored", 0.5, 0.5, 0.0) for k in range(1, 8)),
]


@pytest.fixture(scope="module")
def summary():
  records = records_of(OUTCOMES)
  labels = np.array([5] * 5 + [7] + [1] * 12, float)
  return records, summarise_chains(records, labels)


def test_summary_counts_strings_labels_and_failures(summary):
  _, found = summary
  by_place = {(c["series"], c["length"]): c for c in found["critical"]}
  short, long, one_pass, few = by_place.values()
  assert list(by_place) == [
    ("transformer, mode=chain", 6),
    ("transformer, mode=chain", 8),
    ("transformer, mode=one_pass", 6),
    ("transformer, mode=one_pass", 8),
  ]
  assert [c["labels_per_string"] for c in by_place.values()] == [5, 7, 1, 1]
  bounds = [c["bound"] for c in by_place.values()]
  assert bounds == [None, "less than", "more than", "more than"]
  assert short["low"] < short["size"] < short["high"]
  assert 8 < short["size"] < 16
  assert (short["failed"], short["failed_fitted"], short["trials"]) == (2, 2, 5)
  assert (long["size"], long["failed"], long["smallest"]) == (None, 0, 16)
  assert (one_pass["size"], one_pass["largest"]) == (None, 16)
  # One of eight succeeded: where half do is a guess of the prior.
  assert (few["size"], few["low"], few["largest"], few["failed"]) == (None, None, 16, 8)
  # One memorised its sample, one did not get there, and one diverged.
  assert (one_pass["failed"], one_pass["failed_fitted"]) == (3, 1)
  steps = {(c["series"], c["length"]): c for c in found["steps"]}
  own = steps["transformer, mode=chain", 6]
  assert own["trials"] == 3
  for name, values in (
    ("step_error", [0.01, 0.02, 0.0]),
    ("chain_error", [0.03, 0.09, 0.0]),
    ("union_bound", [0.05, 0.1, 0.0]),
  ):
    interval = [own[key] for key in (name, f"{name}_low", f"{name}_high")]
    mean, low, high = student_interval(np.array(values))
    assert low < 0  # an error is not
    np.testing.assert_allclose(interval, [mean, 0.0, high])
  single = steps["transformer, mode=chain", 8]
  assert (single["step_error"], single["step_error_low"]) == (0.001, None)
  assert steps["transformer, mode=one_pass", 6]["step_error"] is None
  json.dumps(found, allow_nan=False)


def test_table_bounds_what_it_does_not_know(summary):
  sizes, errors, _ = fourier_tables.chains(summary[1])
  by_column = {column.header: list(column.cells) for column in sizes.columns}
  half, labels = by_column["n at which half succeed"], by_column["in labels"]
  assert half[1:] == ["less than 16", "more than 16", "more than 16"]
  assert labels[1:] == ["less than 112", "more than 16", "more than 16"]
  critical = summary[1]["critical"][0]
  assert half[0].startswith(f"{critical['size']:,.0f} [")
  assert labels[0].startswith(f"{5 * critical['size']:,.0f} [")
  assert by_column["failed"] == [
    "2 of 5, 2 fitted", "0 of 1", "3 of 3, 1 fitted", "8 of 9, 8 fitted"
  ]  # fmt: skip
  assert errors.row_count == 2


def test_figure_has_both_units_and_every_trial_of_several_steps(summary):
  figure = chain_figures.chains(*summary)
  assert isinstance(figure, matplotlib.figure.Figure)
  chain, one_pass, critical, errors = figure.axes
  assert "mode=chain" in chain.get_title()
  assert "mode=one_pass" in one_pass.get_title()
  labels = [text.get_text() for text in critical.get_legend().get_texts()]
  assert "transformer, mode=chain, in labels" in labels
  assert "transformer, mode=one_pass, in labels" not in labels
  marks = {line.get_label(): line.get_xydata().tolist() for line in errors.lines}
  assert marks["T = 8"] == [[0.007, 0.006]]
  assert sorted(marks["T = 6"]) == [
    [0.0, 0.0], [0.05, 0.03], [0.1, 0.09], [1.0, 0.4], [1.5, 0.5]
  ]  # fmt: skip
  arrows = [line for line in critical.lines if line.get_marker() == r"$\Uparrow$"]
  assert len(arrows) == 1


def test_a_wide_range_of_sample_sizes_is_drawn_on_a_logarithmic_axis(summary):
  _, found = summary
  cells = [{**cell, "sample_size": cell["sample_size"] ** 5} for cell in found["cells"]]
  wide = {**found, "cells": cells}
  for own, scale in ((found, "linear"), (wide, "log")):
    axis = matplotlib.figure.Figure().subplots()
    success_figures.draw_fractions(axis, "transformer, mode=chain", own)
    assert axis.get_xscale() == scale


@pytest.mark.slow
def test_end_to_end(tmp_path):
  arguments = (
    "--lengths=6", "--sample_sizes=2,16", "--num_trials=4", "--max_steps=600",
    "--check_every=50", "--num_test=200", "--learning_rate=0.003",
  )  # fmt: skip

  def run(*further):
    command = [sys.executable, "-m", "experiments.chain_of_thought", *arguments, *further]
    done = subprocess.run(
      [*command, f"--output_dir={tmp_path}"], cwd=ROOT, capture_output=True, text=True,
      env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with open(tmp_path / "trials.csv") as file:
      return done.stdout, list(csv.DictReader(file))

  _, rows = run("--modes=chain")
  assert [row["mode"] for row in rows] == ["chain"] * 4
  output, both = run("--modes=one_pass")
  assert [row for row in both if row["mode"] == "chain"] == rows
  assert [row["mode"] for row in both].count("one_pass") == 4
  assert "in labels" in output
  for row in both:
    assert (float(row["accuracy"]) > 0.9) == (row["outcome"] == "reached")
  assert {row["outcome"] for row in rows if row["sample_size"] == "2"} == {"censored"}
  with open(tmp_path / "probes.csv") as file:
    for row in csv.DictReader(file):
      assert float(row["chain_error"]) <= float(row["union_bound"]) + 1e-6
  summary = json.loads((tmp_path / "summary.json").read_text())
  assert [c["labels_per_string"] for c in summary["critical"]] == [5, 1]
  assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
