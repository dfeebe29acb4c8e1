"""What is measured has its objective's name, in figures, tables and summaries."""

import dataclasses
import json

import pytest

import sepfx
from sepfx import plotting
from sepfx.statistics import error_names
from sepfx.studies import tables
from sepfx.tasks import CLASSIFICATION, REGRESSION, STEPS, Objective
from tests.own_task import Dense, Side
from tests.programs import printed, start

ONLINE = sepfx.Online(
  thresholds=(0.4, 0.3), optimizer=sepfx.AdamW(1e-2), batch_size=16, check_every=5,
  num_test=200, max_samples=1600,
)  # fmt: skip
ERM = sepfx.ERM(
  threshold=0.3, optimizer=sepfx.AdamW(1e-2), num_test=200, max_steps=50, run_to_end=True
)


def texts(figure):
  """All that is written in a figure's panels."""
  found = []
  for axis in figure.axes:
    found += [axis.get_title(), axis.get_xlabel(), axis.get_ylabel()]
  return " ".join(found)


def test_objectives_have_names():
  assert REGRESSION.error_name == "mean squared error"
  assert CLASSIFICATION.error_name == STEPS.error_name == "error rate"
  fields = {k: v for k, v in REGRESSION._asdict().items() if k != "error_name"}
  assert Objective(**fields).error_name == "error"  # one made before they had


@pytest.fixture(scope="module")
def own(tmp_path_factory):
  """Records of a user's own classification, and the directory that has them, too."""
  path = tmp_path_factory.mktemp("own") / "run"
  records = sepfx.measure(
    Side(), Dense(), [3, 4], ONLINE, num_trials=2, directory=path, progress=False
  )
  return records, path


@pytest.mark.slow
def test_own_classification_is_labelled_error_rate(own):
  records, path = own
  for each in (records, sepfx.load(path)):
    written = texts(sepfx.plot(each))
    assert "test error rate below 0.4" in written
    assert "MSE" not in written
    summary = plotting.summary_of(each)
    assert summary["error"] == "error rate"
    text = printed(tables.means(summary))
    assert "Training prompts until the test error rate is below 0.4:" in text
    assert "MSE" not in text
  assert json.loads((path / "summary.json").read_text())["error"] == "error rate"


@pytest.mark.parametrize(
  ("settings", "columns", "name"),
  [
    ({"task": {"class": "tests.own_task:Side", "copies": 0}}, (), "error"),
    ({"task": {"class": {"class": "__main__:Side", "methods": {}}}}, (), "error"),
    ({"task": {"class": "sepfx.tasks.qstr:QSTR"}}, (), "mean squared error"),
    ({"task": {"class": "sepfx.tasks.boolean:SparseBoolean"}}, (), "error rate"),
    ({"task": "qstr"}, (), "mean squared error"),
    ({"task": "mine:task"}, (), "error"),
    ({}, (), "error"),
    ({"task": "mine:task"}, ("accuracy",), "error rate"),
  ],
)
def test_directories_from_before_errors_had_names(own, settings, columns, name):
  records = dataclasses.replace(own[0], settings=settings, notes={})
  if columns:
    table = records.table.astype(
      [("accuracy" if n == "samples" else n, t) for n, t in records.table.dtype.descr]
    )
    records = dataclasses.replace(records, table=table)
  assert error_names.of(records) == name


def test_cells_of_two_kinds_have_no_common_name(own):
  records, _ = own
  first, second, *_ = dict.fromkeys(map(records.cell_of, records.table))
  notes = {error_names.NOTE: {first: "error rate", second: "mean squared error"}}
  assert error_names.of(dataclasses.replace(records, notes=notes)) == "error"


@pytest.mark.slow
def test_own_classification_on_fixed_samples():
  records = sepfx.measure(
    Side(), [Dense(), Dense(width=16)], [3, 4], ERM, num_trials=2,
    axes={"sample_size": [10, 40]}, progress=False,
  )  # fmt: skip
  assert "error rate" in texts(sepfx.plot(records))
  found = sepfx.summarise(records)
  assert {own["of"] for own in found.ratios} <= {"model"}
  assert len(found.means) == 8


@pytest.mark.slow
def test_own_classification_on_the_command_line(tmp_path):
  process = start(
    tmp_path / "run", "--task=tests.own_task:Side", "--models=tests.own_task:Dense",
    "--lengths=3,4", "--num_trials=2", "--thresholds=0.4", "--check_every=5",
    "--max_samples=1600", "--noquiet", "--token_dim=10", cache=tmp_path / "cache",
  )  # fmt: skip
  output, errors = process.communicate(timeout=300)
  assert process.returncode == 0, errors
  assert "until the test error rate is below 0.4" in output
  assert "MSE" not in output
  loaded = sepfx.load(tmp_path / "run")
  assert "MSE" not in texts(sepfx.plot(loaded))
