"""Table 1 from the summaries of runs."""

import csv
import json
import os
import pathlib
import subprocess
import sys

import pytest

from experiments.qstr.table_1 import study as table_1
from experiments.qstr.table_1.figure import draw_exponents
from sepfx import InvalidSetting
from sepfx.drawing import looks

ROOT = pathlib.Path(__file__).parents[2]


def entry(series, c, low, high, threshold=None, fraction=0.5, over=(4, 8, 12)):
  return {"series": series, "threshold": threshold, "fraction": fraction, "c": c,
          "low": low, "high": high, "over": list(over)}  # fmt: skip


def run_of(path, task, *exponents, **further):
  """A directory with a summary, and records that name the task."""
  path.mkdir()
  cells = [
    {**own, "length": N, "restricted": N in own.get("lower", ()),
     "edge": N in own.get("upper", ())}
    for own in exponents
    for N in own["over"]
  ]  # fmt: skip
  summary = {"cells": cells, "exponents": exponents, **further}
  (path / "summary.json").write_text(json.dumps(summary))
  (path / "trials_a.csv").write_text(f"task,model\n{task},gru\n")
  return str(path)


def test_verdicts_and_what_the_theorems_say(tmp_path):
  path = run_of(
    tmp_path / "run",
    "qstr",
    entry("transformer", 0.3, 0.2, 0.4) | {"edge": True, "coarse": True},
    entry("deep_transformer", 0.7, 0.6, 0.8),
    entry("gru, learning_rate=0.01", 0.6, 0.4, 0.8),
    entry("ffn", 2.0, None, None, threshold=0.7, fraction=None),
    entry("lru", 1.9, 1.8, 2.0, over=(4, 8)),  # two always lie on a line
    against="length",
  )
  rows = table_1.exponents_of(path)
  assert [(row["column"], row["verdict"], row["same_direction"]) for row in rows] == [
    ("Transformer", "nearly independent of N", "yes"),
    ("Transformer", "grows", "no"),
    ("recurrent", "not settled", "open"),
    ("feedforward", "not settled", "open"),
  ]
  assert {row["task"] for row in rows} == {"qstr"}
  assert [row["marks"] for row in rows] == ["coarse, some are upper bounds", "", "", ""]
  assert rows[0]["threshold"] == "0.5 of uniform attention's"
  assert rows[3]["threshold"] == "0.7"
  assert table_1.missing(rows) == [
    "simple-qSTR, feedforward", "simple-qSTR, recurrent", "simple-qSTR, Transformer"
  ]  # fmt: skip
  simple = run_of(tmp_path / "simple", "simple_qstr", entry("min_gru", 0.1, 0.0, 0.2))
  (row,) = table_1.exponents_of(simple)
  assert row["same_direction"] == "yes"  # where recurrent networks need powers of log N


@pytest.mark.parametrize(
  ("lengths", "bound", "grows"),
  [
    ({}, "", "grows"),
    ({"upper": [16]}, "at most", "not settled"),
    ({"upper": [4]}, "at least", "grows"),
    ({"lower": [16]}, "at least", "grows"),
    ({"lower": [4]}, "at most", "not settled"),
    ({"lower": [16], "upper": [8, 16]}, "about", "not settled"),
  ],
)
def test_a_verdict_needs_a_bound_from_its_own_side(tmp_path, lengths, bound, grows):
  large = entry("gru", 1.2, 1.0, 1.4, over=(4, 8, 16)) | lengths
  small = entry("lstm", 0.2, 0.1, 0.3, over=(4, 8, 16)) | lengths
  path = run_of(tmp_path / "run", "qstr", large, small)
  found = table_1.exponents_of(path)
  assert [row["bound"] for row in found] == [bound, bound]
  says = {"upper": "some are upper bounds", "lower": "some are lower bounds"}
  marks = ", ".join(words for kind, words in says.items() if kind in lengths)
  assert [row["marks"] for row in found] == [marks, marks]
  independent = "not settled" if bound in ("at least", "about") else None
  expected = [grows, independent or "nearly independent of N"]
  assert [row["verdict"] for row in found] == expected


def test_a_run_without_exponents_is_refused(tmp_path):
  path = run_of(tmp_path / "run", "qstr")
  with pytest.raises(InvalidSetting, match="takes a run with exponents of n ~ N"):
    table_1.exponents_of(path)


def test_task_of_the_cells_comes_before_that_of_the_records(tmp_path):
  path = run_of(tmp_path / "run", "nothing", entry("ffn", 2.0, 1.0, 3.0))
  summary = json.loads((tmp_path / "run/summary.json").read_text())
  summary["cells"][0]["task"] = "simple_qstr"
  (tmp_path / "run/summary.json").write_text(json.dumps(summary))
  assert table_1.exponents_of(path)[0]["task"] == "simple_qstr"


@pytest.mark.parametrize(
  ("make", "expected"),
  [
    (lambda path: str(path / "none"), "takes a directory with the summary.json of a run"),
    (
      lambda path: run_of(path / "r", "parity", entry("ffn", 1.0, 0.0, 2.0)),
      "takes runs on one of simple_qstr, qstr per series, not on ['parity']",
    ),
    (
      lambda path: run_of(path / "r", "qstr", entry("mine:f", 1.0, 0.0, 2.0)),
      "not of mine:f",
    ),
    (
      lambda path: run_of(
        path / "r", "qstr", entry("ffn", 1.0, 0.0, 2.0), against="token_dim"
      ),
      "of a run against the length",
    ),
  ],
)
def test_what_is_no_run_of_these_is_refused(tmp_path, make, expected):
  path = make(tmp_path)
  with pytest.raises(InvalidSetting) as error:
    table_1.exponents_of(path)
  assert expected in str(error.value)


def test_intervals_are_drawn_where_they_are():
  rows = [
    {"task": task, "column": "recurrent", "series": "gru", "threshold": "0.7", "c": c,
     "low": low, "high": high, "marks": marks, "run": "runs/a"}
    for task, c, low, high, marks in (
      ("a", 1.0, 0.5, 1.5, ""), ("b", 2.0, None, None, "coarse")
    )
  ]  # fmt: skip
  figure = draw_exponents(rows, {"a": "A", "b": "B", "c": "C"})
  first, second = figure.axes
  shown = [text.get_text() for text in figure.legends[0].get_texts()]
  assert shown == [
    "recurrent: gru", "hollow: some n are bounds, or coarse",
    "0.5, the border of the verdicts",
  ]  # fmt: skip
  assert (first.get_title(), second.get_title()) == ("A", "B")
  drawn = [line.get_xdata() for line in first.get_lines()]
  assert list(drawn[0]) == [1.0]
  assert list(drawn[1]) == [0.5, 1.5]
  points = [line for line in second.get_lines() if list(line.get_xdata()) == [2.0]]
  assert [line.get_fillstyle() for line in points] == ["none"]
  assert first.get_lines()[0].get_fillstyle() == "full"
  # The model has its own colour and marker, whatever the column.
  style = looks.styles_of(["gru"])["gru"]
  for line in (first.get_lines()[0], *points):
    assert (line.get_color(), line.get_marker()) == (style["color"], style["marker"])
  assert not any(1.0 in list(line.get_xdata()) for line in second.get_lines())
  assert [t.get_text() for t in first.get_yticklabels()] == ["gru, below 0.7"]


@pytest.mark.slow
def test_the_program_on_the_records_of_the_docs(tmp_path):
  names = ("fig1_extended", "fig1b", "best_rate", "best_rate/simple")
  runs = ",".join(f"docs/results/{name}" for name in names)
  done = subprocess.run(
    [sys.executable, "-m", "experiments.table_1", f"--runs={runs}",
     f"--output_dir={tmp_path}"],
    capture_output=True, text=True, cwd=ROOT, env={**os.environ, "COLUMNS": "160"},
  )  # fmt: skip
  assert done.returncode == 0, done.stderr
  assert "No run" not in done.stdout
  with open(tmp_path / "table_1.csv") as file:
    rows = list(csv.DictReader(file))
  with open(ROOT / "docs/results/table_1/table_1.csv") as file:
    kept = list(csv.DictReader(file))
  assert rows == kept
  assert (tmp_path / "figure.png").exists()


@pytest.mark.slow
def test_no_runs_are_refused(tmp_path):
  done = subprocess.run(
    [sys.executable, "-m", "experiments.table_1", f"--output_dir={tmp_path}"],
    capture_output=True, text=True, cwd=ROOT,
  )  # fmt: skip
  assert done.returncode == 2
  assert "--runs: got '', takes directories of runs" in done.stderr
