"""The program that prints what the main paper's bounds ask for."""

import csv
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from experiments.qstr.norm_figures import crossings, draw_norms

ROOT = pathlib.Path(__file__).parents[2]


def run(*arguments):
  return subprocess.run(
    [sys.executable, "-m", "experiments.guarantees", *arguments],
    capture_output=True, text=True, cwd=ROOT, env={**os.environ, "COLUMNS": "120"},
  )  # fmt: skip


def summary_of(norms, slots):
  memorised = [
    {"samples": 2**k, "median": m, "low": m / 2, "high": 2 * m, "bound": 10 * m}
    for k, m in enumerate(norms)
  ]
  lengths = [
    {"length": 8 * 2**k, "slots_squared_norm": s, "least_squared_norm": 1.0,
     "transformer_samples": 1e9, "recurrent_samples": 1e12}
    for k, s in enumerate(slots)
  ]  # fmt: skip
  return {"lengths": lengths, "memorised": memorised}


def test_where_norms_cross():
  summary = summary_of([1.0, 8.0, 64.0], [8.0, 8 * np.sqrt(8), 100.0, 0.5])
  np.testing.assert_allclose(crossings(summary)[:2], [2, 2 * np.sqrt(2)])
  assert np.isnan(crossings(summary)[2:]).all()
  asked, norms, where = draw_norms(summary).axes
  np.testing.assert_allclose(asked.get_lines()[0].get_ydata(), 1e9)
  np.testing.assert_allclose(norms.get_lines()[0].get_ydata(), [1, 8, 64])
  np.testing.assert_allclose(where.get_lines()[0].get_ydata()[:2], [2, 2 * np.sqrt(2)])


def test_norms_that_are_equal_nowhere_are_said_to_be(tmp_path):
  figure = draw_norms(summary_of([1.0, 8.0], [100.0, 200.0]))
  figure.savefig(tmp_path / "figure.png")
  *_, where = figure.axes
  assert [text.get_text() for text in where.texts] == ["at none of the n that were tried"]
  assert not draw_norms(summary_of([1.0, 8.0], [4.0, 200.0])).axes[-1].texts


@pytest.mark.slow
def test_the_program_end_to_end(tmp_path):
  small = ("--lengths=8,16", "--samples=4,32", "--draws=3", "--token_dim=4")
  done = run(*small, f"--output_dir={tmp_path}")
  assert done.returncode == 0, done.stderr
  with open(tmp_path / "guarantees.csv") as file:
    first, second = csv.DictReader(file)
  for name in ("transformer_samples", "recurrent_samples", "slots_squared_norm"):
    assert 1 < float(second[name]) / float(first[name]) < 3
  summary = json.loads((tmp_path / "summary.json").read_text())
  few, many = summary["memorised"]
  assert 0 < few["low"] <= few["median"] <= few["high"] < many["median"] < many["bound"]
  for own in summary["lengths"]:
    assert own["least_squared_norm"] < own["slots_squared_norm"]
  assert (tmp_path / "figure.png").exists()
  before = (tmp_path / "summary.json").read_bytes()
  other = run(*small, "--draws=4", f"--output_dir={tmp_path}")
  assert other.returncode == 2
  assert "this one differs in draws (there 3, here 4)" in other.stderr
  assert (tmp_path / "summary.json").read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize(
  ("argument", "expected"),
  [
    ("--lengths=3", "--lengths: got '3', takes different whole numbers from 4 to 4096"),
    ("--samples=1,2", "--samples: got '1,2', takes different whole numbers from 2"),
    ("--draws=1", "--draws: got 1, takes an integer >= 2"),
    ("--length=8", "argument: got '--length=8', takes a flag (see --help)"),
  ],
)
def test_bad_flags_are_refused(tmp_path, argument, expected):
  done = run(argument, f"--output_dir={tmp_path}")
  assert done.returncode == 2
  assert expected in done.stderr
