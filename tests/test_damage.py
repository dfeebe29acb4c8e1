"""Files that something else changed: refused in words, or set aside and run again."""

import dataclasses
import io
import json
import random
import re
import zipfile

import numpy as np
import pytest

import sepfx
from experiments.boolean import boolean_sample_complexity
from experiments.sample_complexity import STUDY
from sepfx.ensembles import Records, Result
from sepfx.ensembles.cells import Cell
from sepfx.errors import InvalidSetting
from sepfx.records.agreement import check_rows, contradiction
from sepfx.records.run_directory import RunDirectory
from sepfx.records.trial_files import Contradiction, TrialFiles
from sepfx.studies import merging
from sepfx.studies.settings import from_stored
from sepfx.training import Passage, Report
from tests import small
from tests.test_erm import Logistic

CELL = Cell(small.TRIAL)
NAME = "task=qstr/model=m/length=3/trial={}".format


def result(trial, samples=80, cell=CELL, **settings):
  checks = cell.trial.protocol.num_checks
  at = 80 * np.arange(1, checks + 1)
  curve = small.losses(at, np.where(at < samples, 1.5, 0.8), at < 4000)
  passages = [Passage(0.9, samples, "reached"), Passage(0.7, 80 * checks, "censored")]
  return Result(cell, trial, passages, curve, **settings)


@pytest.fixture
def complete(tmp_path):
  """A finished run of three trials, with probes."""
  path = tmp_path / "run"
  with RunDirectory(path) as directory:
    files = TrialFiles(directory, [CELL])
    types = {name: kind.__name__ for name, kind in files.types.items()}
    directory.begin({"seed": 0}, types)
    for k in range(3):
      files.ended(result(k, samples=80 * (k + 1), probes={"norm": float(k)}))
    files.complete()
    directory.write("summary.json", "{}")
  return path


def reopened(path, cell=CELL, **settings):
  with RunDirectory(path) as directory:
    return TrialFiles(directory, [cell], **settings)


def truncated(content):
  return content[: len(content) // 2]


def flipped(content):
  """With a bit of the last curve's data flipped."""
  archive = zipfile.ZipFile(io.BytesIO(content))
  last = archive.infolist()[-1]
  changed = bytearray(content)
  changed[last.header_offset + 200] ^= 4
  return bytes(changed)


@pytest.mark.parametrize(
  "damage", [truncated, flipped, lambda _: b"", lambda _: b"PK", lambda _: b"no zip" * 99]
)
def test_damaged_curves_are_refused(complete, damage):
  path = complete / "curves.npz"
  path.write_bytes(damage(path.read_bytes()))
  before = (complete / "trials.csv").read_bytes()
  for opens in (reopened, sepfx.load):
    with pytest.raises(InvalidSetting, match=r"curves\.npz.*it is damaged"):
      opens(complete)
  assert (complete / "trials.csv").read_bytes() == before


def test_any_flipped_bit_of_the_curves_is_found_or_harmless(complete):
  path = complete / "curves.npz"
  content = path.read_bytes()
  wanted = sepfx.load(complete).all_curves
  rng = random.Random(0)
  for _ in range(300):
    changed = bytearray(content)
    changed[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(changed)
    try:
      found = sepfx.load(complete).all_curves
    except InvalidSetting:
      continue
    for name, curve in wanted.items():
      np.testing.assert_array_equal(found[name], curve)


ROWS = """task,model,length,trial,threshold,samples,outcome
qstr,m,3,0,0.9,80,reached
qstr,m,3,0,0.7,4800,censored
qstr,m,3,1,0.9,160,reached
qstr,m,3,1,0.7,4800,censored
qstr,m,3,2,0.9,240,reached
qstr,m,3,2,0.7,4800,censored
"""


@pytest.mark.parametrize(
  ("old", "new", "message"),
  [
    ("qstr,m,3,1", "qstr,m\xff,3,1", r"trials\.csv', takes text in UTF-8 .*line 4"),
    (",160,", ",80,", "line 4: .*,80,reached', takes what follows .*says .*160,reached"),
    (",160,", ",161,", "line 4: .*,161,reached', takes what follows"),
    ("0.9,80,reached", "0.9,80,diverged", "line 2: .*says .*80,reached"),
    ("2,0.7,4800,censored", "2,0.7,4800,reached", "line 7: .*curve, which says"),
    ("2,0.7,4800,censored", "2,0.7,4000,censored", "line 7: .*says .*4800"),
    ("2,0.7,4800,censored", "2,0.7,4801,diverged", "line 7: .*curve, which says"),
    (
      "qstr,m,3,1,0.9,160,reached\nqstr,m,3,1,0.7,4800,censored\n",
      "qstr,m,3,1,0.7,4800,censored\nqstr,m,3,1,0.9,160,reached\n",
      "takes .*one after another, by descending threshold",
    ),
    (
      "qstr,m,3,1,0.9,160,reached\n",
      "qstr,m,3,1,0.9,160,reached\nqstr,m,3,1,0.9,160,reached\n",
      "line 5: .*one after another, by descending threshold",
    ),
    (
      "qstr,m,3,2,0.9,240,reached\nqstr,m,3,2,0.7,4800,censored\n",
      "qstr,m,3,1,0.9,160,reached\nqstr,m,3,1,0.7,4800,censored\n",
      "takes each trial once",
    ),
    (",160,", f",{2**63},", "line 4: .*no integer of 64 bits"),
    (",160,", f",{'1' * 5000},", r"line 4: .*\.\.\.', takes a row of a trial"),
    ("qstr,m,3,1", "q" * 200_000 + ",m,3,1", "takes comma-separated values"),
    ('qstr,m,3,1,', '"qstr,m,3,1,', "takes a row of"),
  ],
)  # fmt: skip
def test_a_changed_row_is_refused(complete, old, new, message):
  path = complete / "trials.csv"
  assert path.read_text() == ROWS
  assert old in ROWS
  changed = ROWS.replace(old, new, 1).encode("latin-1")
  path.write_bytes(changed)
  for opens in (reopened, sepfx.load):
    with pytest.raises(InvalidSetting, match=message):
      opens(complete)
    assert path.read_bytes() == changed


def test_rows_without_their_curve_run_again_and_are_kept(complete):
  (complete / "curves.npz").unlink()
  with pytest.raises(InvalidSetting):
    sepfx.load(complete)
  with pytest.warns(
    UserWarning, match=r"3 of them, .* kept as trials\.csv\.set_aside\.1"
  ):
    assert not reopened(complete).rows
  assert (complete / "trials.csv.set_aside.1").read_text() == ROWS


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"garbage", None])
def test_a_damaged_curve_of_a_run_that_lasts_is_set_aside(tmp_path, content):
  path = tmp_path / "run"
  with RunDirectory(path) as directory:
    files = TrialFiles(directory, [CELL])
    directory.begin({}, {})
    for k in range(2):
      files.ended(result(k))
  (file,) = path.glob("checkpoints/*trial=1.npy")
  file.write_bytes(file.read_bytes()[:-7] if content is None else content)
  with pytest.warns(UserWarning, match="damaged: set aside") as warned:
    files = reopened(path)
  one, two = (str(own.message) for own in warned)
  assert re.search("is damaged: set aside as .*, its trial runs again", one)
  assert re.search("trials without their curves, 1 of them, .* kept as", two)
  assert set(files.rows) == {NAME(0)}
  with RunDirectory(path) as directory:
    files = TrialFiles(directory, [CELL])
    files.ended(result(1))
    assert len(files.complete().table) == 4
  kept = {each.name for each in path.rglob("*.set_aside.*")}
  assert len(kept) == 2  # the curve, and trials.csv as it was


@pytest.mark.parametrize("content", [b"", b"[1]", b'{"norm": "x"}', b"\xff"])
def test_damaged_probes_of_a_run_that_lasts_are_set_aside(tmp_path, content):
  path = tmp_path / "run"
  with RunDirectory(path) as directory:
    files = TrialFiles(directory, [CELL])
    directory.begin({}, {})
    for k in range(2):
      files.ended(result(k, probes={"norm": 1.0}))
  (file,) = path.glob("checkpoints/*trial=1.json")
  file.write_bytes(content)
  with pytest.warns(UserWarning, match="is damaged: set aside as .*runs again where"):
    files = reopened(path, probed={CELL.name: ["norm"]})
  assert set(files.rows) == {NAME(0)}


@pytest.mark.parametrize(
  ("old", "new", "message"),
  [
    ("trial,norm", "norm,trial", "probes.csv, line 1: .*takes a header"),
    ("0,0.0", "0,zero", "line 2: .*takes a row of a trial's probes"),
    ("0,0.0", "0,0.0,1", "line 2: .*takes a row of a trial's probes"),
    ("qstr", "\xff", "text in UTF-8"),
  ],
)
def test_malformed_probes_are_refused(complete, old, new, message):
  path = complete / "probes.csv"
  text = path.read_text()
  assert old in text
  path.write_bytes(text.replace(old, new, 1).encode("latin-1"))
  with pytest.raises(InvalidSetting, match=message):
    reopened(complete)


def test_a_row_cut_short_within_a_letter_costs_its_trial_only(tmp_path):
  path = tmp_path / "run"
  cell = Cell(dataclasses.replace(small.TRIAL, model_name="mé"))
  with RunDirectory(path) as directory:
    files = TrialFiles(directory, [cell])
    directory.begin({}, {})
    files.ended(result(0, cell=cell))
  with open(path / "trials.csv", "ab") as file:
    file.write("qstr,mé".encode()[:-1])
  with pytest.warns(UserWarning, match="cut short"):
    assert len(reopened(path, cell).rows) == 1


def test_a_larger_budget_that_was_killed_before_its_rows(complete):
  """The curve is longer than the row says; the trial runs again."""
  longer = Cell(small.with_protocol(small.TRIAL, max_samples=2 * 4800))
  with RunDirectory(complete) as directory:
    files = TrialFiles(directory, [longer])
    before = (complete / "trials.csv").read_bytes()
    files.ended(result(0, cell=longer))
  (complete / "trials.csv").write_bytes(before)
  assert not reopened(complete, longer).rows
  # And once its rows are there, they count.
  with RunDirectory(complete) as directory:
    files = TrialFiles(directory, [longer])
    files.ended(result(0, cell=longer))
  assert set(reopened(complete, longer).rows) == {NAME(0)}


def test_a_trial_that_comes_to_something_else_is_a_contradiction(complete):
  with RunDirectory(complete) as directory:
    files = TrialFiles(directory, [CELL])
    with pytest.raises(Contradiction, match="ran again and came to"):
      files.ended(result(0, samples=160))


def test_what_is_no_number_contradicts_nothing(tmp_path):
  """A trial that diverged before its first check has no best accuracy."""
  cell = Cell(fixed_sample())
  diverged = Result(cell, 0, [(np.nan, 3, "diverged")], errors(np.nan))
  with RunDirectory(tmp_path) as directory:
    files = TrialFiles(directory, [cell])
    directory.begin({}, {})
    files.ended(diverged)
  with RunDirectory(tmp_path) as directory:
    files = TrialFiles(directory, [cell])
    files.ended(diverged._replace(probes={"norm": np.nan}))
    assert len(files.complete().table) == 1


LOGISTIC = Logistic()
TASK = sepfx.tasks.SparseBoolean(length=4, sparsity=1)


def fixed_sample(**settings):
  protocol = sepfx.ERM(sample_size=8, num_test=20, max_steps=40, **settings)
  return protocol.trial(TASK, TASK, LOGISTIC, "m")


def errors(*values):
  names = ("test_error", "train_error", "train_loss", "test_loss")
  dtype = [("steps", np.int64), *((name, np.float32) for name in names)]
  rows = [(10 * k, *(v,) * 4) for k, v in enumerate(values, start=1)]
  return np.array(rows, dtype)


@pytest.mark.parametrize(
  ("curve", "row", "is_right"),
  [
    ([0.5, 0.2, 0.0], (1.0, 30, "reached"), True),
    ([0.5, 0.2, 0.0], (1.0, 20, "reached"), False),
    ([0.5, 0.2, 0.0], (0.9, 30, "reached"), False),
    ([0.5, 0.25, 0.25, 0.25], (0.75, 40, "censored"), True),
    ([0.5, 0.25, 0.25, 0.25], (0.75, 30, "censored"), False),
    ([0.5, 0.25, np.nan], (0.75, 25, "diverged"), True),
    ([0.5, 0.25, np.nan], (0.75, 20, "diverged"), False),
    ([np.nan], (np.nan, 3, "diverged"), True),
    ([np.nan], (0.5, 3, "diverged"), False),
  ],
)
def test_verdicts_follow_from_curves(curve, row, is_right):
  wrong, _ = contradiction(fixed_sample(), errors(*curve), [row])
  assert (wrong == -1) == is_right


def test_a_curve_of_another_form_is_no_trials():
  other = np.zeros(3, [("epochs", int), ("test_error", float)])
  assert "another form" in contradiction(fixed_sample(), other, [(0, 0, "reached")])[1]
  shifted = errors(0.5, 0.0)
  shifted["steps"] += 1
  assert "another form" in contradiction(fixed_sample(), shifted, [(1, 20, "reached")])[1]


@pytest.mark.parametrize("run_to_end", [False, True])
@pytest.mark.parametrize("rate", [0.3, 1e30])
def test_what_trials_come_to_follows_from_their_curves(run_to_end, rate):
  trials = [fixed_sample(optimizer=sepfx.training.AdamW(rate), run_to_end=run_to_end)]
  if not run_to_end:
    own = small.with_protocol(small.TRIAL, optimizer=sepfx.training.AdamW(rate / 50))
    trials.append(dataclasses.replace(own, model=small.Linear()))
  for trial in trials:
    state = small.run_to_end(trial, small.seeds(0))
    report = Report(*(getattr(state, name) for name in Report._fields))
    rows = [tuple(row) for row in trial.outcomes(report)]
    assert {row[-1] for row in rows} <= {
      "diverged" if rate > 1 else "reached",
      "censored",
    }
    assert contradiction(trial, trial.curve(report), rows) == (-1, "")


def test_runs_beside_are_held_against_their_curves():
  """Also where the settings alone say what was watched."""
  cell = Cell(fixed_sample(run_to_end=True, watched="train_loss", threshold=0.3))
  columns = list(cell.coordinates.items())
  dtype = [
    *((n, "U9" if isinstance(v, str) else int) for n, v in columns),
    ("trial", int),
  ]
  dtype += [("accuracy", float), ("steps", int), ("outcome", "U8")]
  for steps, right in ((20, True), (30, False)):
    row = (*(value for _, value in columns), 0, 0.9375, steps, "reached")
    table = np.array([row], dtype)
    curve = errors(0.5, 0.25, 0.125, 0.0625)
    name = f"{cell.name}/trial=0"
    records = Records(table, tuple(cell.coordinates), {name: curve})
    if right:
      check_rows(records, [cell], "run")
    else:
      with pytest.raises(InvalidSetting, match=r"run/trials\.csv, line 2: .*20,reached"):
        check_rows(records, [cell], "run")
  with pytest.raises(InvalidSetting, match="all rows of a trial of this run's grid"):
    check_rows(records, [CELL], "run")


BASE = ("--models=tests.small:Linear", "--lengths=3", "--seed=1")


@pytest.mark.parametrize(
  ("more", "same"),
  [
    (["--num_trials=9"], True),
    (["--lengths=3,4"], True),
    (["--models=tests.small:Linear,gru"], True),
    (["--max_samples=2000000"], True),
    (["--published=fig1a"], True),
    (["--seed=2"], False),
    (["--learning_rate=0.1"], False),
    (["--learning_rate=0.001,0.1"], False),  # it is in the cells' names then
    (["--thresholds=0.5"], False),
    (["--check_every=5"], False),
    (["--num_test=100"], False),
    (["--task_draw=shared"], False),
    (["--optimizer.b1=0.8"], False),
  ],
)
def test_what_tells_runs_apart_whose_cells_have_the_same_names(more, same):
  one, two = (merging.identity(STUDY.chosen([*BASE, *own])) for own in ([], more))
  assert (one == two) == same


def test_an_axis_takes_values_in_the_same_run():
  rates = ("--learning_rate=0.001,0.1", "--learning_rate=0.001,0.1,0.2")
  one, two = (merging.identity(STUDY.chosen([*BASE, own])) for own in rates)
  assert one == two
  sizes = ("--sample_sizes=8", "--sample_sizes=8,16")
  study = boolean_sample_complexity.STUDY
  one, two = (merging.identity(study.chosen([own])) for own in sizes)
  assert one == two


@pytest.mark.parametrize("name", ["num_test", "other"])
def test_integers_of_a_config_beyond_32_bits_are_refused(name):
  message = rf"{name} = {2**31}', takes one with an integer between -2\^31 and"
  with pytest.raises(InvalidSetting, match=message):
    from_stored(STUDY.settings, {name: 2**31})


def test_a_seed_and_a_budget_beyond_32_bits_are_taken_up():
  arguments = [*BASE, f"--seed={2**32 - 1}", f"--max_samples={2**33}"]
  chosen = STUDY.chosen(arguments)
  again = from_stored(STUDY.settings, json.loads(json.dumps(chosen.stored())))
  assert (again.one("seed"), again.one("max_samples")) == (2**32 - 1, 2**33)
