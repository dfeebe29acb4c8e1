"""A directory that others made: whole, cut, edited, exchanged, unfinished."""

import dataclasses
import io
import json
import shutil
import struct

import chex
import jax
import matplotlib.figure
import numpy as np
import pytest
import safetensors.numpy

import sepfx
from sepfx import plotting
from sepfx.ensembles import Result
from sepfx.ensembles.cells import Cell
from sepfx.errors import InvalidSetting
from sepfx.models import FeedForward
from sepfx.records import digests, run_directory, stored_trials, weights
from sepfx.records import trial_files as trial_files_module
from sepfx.records.beginning import begun
from sepfx.records.run_directory import RunDirectory
from sepfx.records.trial_files import TrialFiles
from sepfx.training import Passage
from tests import small

_FFN = dataclasses.replace(small.TRIAL, model=FeedForward((4,)), model_name="f")
CELLS = [Cell(small.TRIAL), Cell(_FFN)]
SETTINGS = {"seed": 0, "num_trials": 2, "thresholds": [0.9, 0.7]}
FILES = (
  "config.json", "trials.csv", "curves.npz", "probes.csv", "probes.json", "summary.json",
  "digests.json",
)  # fmt: skip
FIRST = "weights/task=qstr/model=m/length=3/trial=0.safetensors"
OTHER_TRIAL = "weights/task=qstr/model=m/length=3/trial=1.safetensors"
OTHER_MODEL = "weights/task=qstr/model=f/length=3/trial=0.safetensors"
_SHAPES = {cell.name: cell.trial.state_shapes().params for cell in CELLS}


def result(cell, trial, seed=0):
  samples = 80 * (trial + 1 + seed)
  at = 80 * np.arange(1, 61)
  curve = small.losses(at, np.where(at < samples, 1.5, 0.8), at < 4000)
  passages = [Passage(0.9, samples, "reached"), Passage(0.7, 4800, "censored")]
  rng = np.random.default_rng(100 * seed + trial)
  params = jax.tree.map(
    lambda a: rng.normal(size=a.shape).astype(a.dtype), _SHAPES[cell.name]
  )
  return Result(cell, trial, passages, curve, {"norm": 1.5 + trial + seed}, params)


def leave(path, num_trials=2, seed=0):
  """Does all that a run does but train; goes on with what is there."""
  settings = {**SETTINGS, "seed": seed, "num_trials": num_trials}
  asked = {cell.name: num_trials for cell in CELLS}
  probed = {cell.name: ["norm"] for cell in CELLS}
  with RunDirectory(path) as directory:
    files = begun(
      directory, settings, CELLS, asked=asked, probed=probed, keep_weights=True
    )
    names = set(files.rows)
    for cell in CELLS:
      for k in range(num_trials):
        if f"{cell.name}/trial={k}" not in names:
          directory.discard("summary.json")
          files.ended(result(cell, k, seed))
    files.complete()
    directory.write("probes.json", f'{{"seed": {seed}}}')
    directory.write("summary.json", f'{{"seed": {seed}}}')
    digests.seal(directory)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
  path = tmp_path_factory.mktemp("made")
  leave(path / "one")
  leave(path / "two", seed=1)
  return path


@pytest.fixture
def run(made, tmp_path):
  shutil.copytree(made / "one", tmp_path / "run")
  return tmp_path / "run"


def edited(path):
  """One digit or letter is another."""
  content = bytearray(path.read_bytes())
  content[len(content) // 3] ^= 1
  path.write_bytes(content)


def cut(path):
  content = path.read_bytes()
  path.write_bytes(content[: len(content) // 2])


def cut_at_a_line(path):
  content = path.read_bytes()
  path.write_bytes(content[: content.rstrip(b"\n").rfind(b"\n") + 1])


def opened(path):
  with RunDirectory(path) as directory:
    return TrialFiles(directory, CELLS)


def test_a_whole_directory_is_read(run):
  records = sepfx.load(run)
  assert (records.complete, records.missing) == (True, 0)
  assert len(records.models) == 4
  for name, trained in records.models.items():
    model = CELLS["model=f" in name].trial.model
    assert trained.model == model
  assert not (run / "digests.json").read_text().count("starts")
  with RunDirectory(run) as directory:  # a further start is no change
    directory.stored["starts"].append({})
    run_directory.write_whole(run / "config.json", json.dumps(directory.stored))
  assert sepfx.load(run).complete


@pytest.mark.parametrize("name", [*FILES, FIRST, OTHER_MODEL])
@pytest.mark.parametrize("damage", [edited, cut, cut_at_a_line, "exchanged", "deleted"])
def test_each_file_that_is_not_the_runs_own_is_refused_by_name(run, made, name, damage):
  path = run / name
  before = path.read_bytes()
  if damage == "exchanged":
    shutil.copy(made / "two" / name, path)
  elif damage == "deleted":
    path.unlink()
  else:
    damage(path)
  if damage == "deleted" and name == "digests.json":
    assert sepfx.load(run).complete
    return
  assert damage == "deleted" or path.read_bytes() != before
  with pytest.raises(InvalidSetting, match=f"directory: got .*{path.name}"):
    sepfx.load(run)
  if damage == "deleted":  # what a run makes again
    return
  there = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
  with pytest.raises(InvalidSetting, match=path.name):
    opened(run)
  assert there == {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}


@pytest.mark.parametrize("others", [OTHER_TRIAL, OTHER_MODEL])
@pytest.mark.parametrize("proven", [True, False])
def test_weights_of_two_trials_exchanged(run, others, proven):
  if not proven:
    (run / "digests.json").unlink()
  content = (run / FIRST).read_bytes()
  shutil.copy(run / others, run / FIRST)
  (run / others).write_bytes(content)
  with pytest.raises(InvalidSetting, match=r"trial=\d\.safetensors"):
    sepfx.load(run)


def test_a_file_that_the_run_did_not_write(run):
  shutil.copy(run / FIRST, run / "weights/task=qstr/model=m/length=3/trial=7.safetensors")
  with pytest.raises(InvalidSetting, match=r"trial=7\.safetensors.* did not write it"):
    sepfx.load(run)


def test_another_threshold_in_the_settings(run):
  for proven in (True, False):
    text = (run / "config.json").read_text()
    (run / "config.json").write_text(text.replace("0.7", "0.5"))
    message = r"config\.json" if proven else r"trials\.csv.* for the thresholds \[0\.5\]"
    with pytest.raises(InvalidSetting, match=message):
      sepfx.load(run)
    (run / "config.json").write_text(text)
    (run / "digests.json").unlink(missing_ok=True)


# Without digests: of an earlier version, or deleted.


def unproven(run, *without):
  (run / "digests.json").unlink()
  config = json.loads((run / "config.json").read_text())
  for name in without:
    del config[name]
  (run / "config.json").write_text(json.dumps(config))


EARLIER = ((), ("trials", "budgets"), ("trials", "budgets", "parameters"))


@pytest.mark.parametrize("without", EARLIER)
def test_what_no_digest_proves_is_read(run, without):
  unproven(run, *without)
  assert sepfx.load(run).complete


@pytest.mark.parametrize("without", EARLIER)
@pytest.mark.parametrize("lines", range(1, 9))
def test_rows_cut_at_a_lines_end(run, lines, without):
  unproven(run, *without)
  text = (run / "trials.csv").read_text().splitlines(keepends=True)
  assert len(text) == 9
  (run / "trials.csv").write_text("".join(text[:lines]))
  with pytest.raises(InvalidSetting, match=r"trials\.csv"):
    sepfx.load(run)


@pytest.mark.parametrize("lines", range(5))
def test_probes_cut_at_a_lines_end(run, lines):
  unproven(run)
  text = (run / "probes.csv").read_text().splitlines(keepends=True)
  assert len(text) == 5
  (run / "probes.csv").write_text("".join(text[:lines]))
  with pytest.raises(InvalidSetting, match=r"probes\.csv"):
    sepfx.load(run)


@pytest.mark.parametrize(
  ("old", "new"),
  [("length=3/trial=1", "length=3/trial=0"), ("m,3,1", "m,3,4"), ("norm", "trial"),
   ("trial,norm", "norm,trial"), ("2.5", "x")],
)  # fmt: skip
def test_edited_probes(run, old, new):
  unproven(run)
  text = (run / "probes.csv").read_text()
  old = old.replace("length=3/trial=", "m,3,")
  new = new.replace("length=3/trial=", "m,3,")
  assert old in text
  (run / "probes.csv").write_text(text.replace(old, new))
  with pytest.raises(InvalidSetting, match=r"probes\.csv"):
    sepfx.load(run)


def without_trial(run, name):
  """A trial is taken out of all files alike."""
  cell, _, index = name.rpartition("/trial=")
  head = ",".join(part.partition("=")[2] for part in cell.split("/")) + f",{index},"
  for file in ("trials.csv", "probes.csv"):
    lines = (run / file).read_text().splitlines(keepends=True)
    (run / file).write_text("".join(own for own in lines if not own.startswith(head)))
  with np.load(run / "curves.npz") as archive:
    curves = dict(archive)
  del curves[name]
  np.savez(run / "curves.npz", **curves)


def test_the_number_of_trials(run):
  name = "task=qstr/model=m/length=3/trial=1"
  unproven(run)
  without_trial(run, name)
  with pytest.raises(InvalidSetting, match=r"trials\.csv.* 2 trials of .*m.*: it has 1"):
    sepfx.load(run)


@pytest.mark.parametrize(
  ("old", "new", "message"),
  [
    ('"num_trials": 2', '"num_trials": 1', "1 trials of each cell, and not"),
    ("model=m", "model=n", "rows of the run's cells, not of"),
    ('length=3": 4800', 'length=3": 9600', "trials that end within 9600"),
  ],
)
def test_settings_that_rows_contradict(run, old, new, message):
  (run / "digests.json").unlink()
  text = (run / "config.json").read_text()
  assert old in text
  (run / "config.json").write_text(text.replace(old, new))
  with pytest.raises(InvalidSetting, match=message):
    sepfx.load(run)


def with_header(change):
  """Changes the header of a safetensors file, whose length stays right."""

  def damage(content):
    (size,) = struct.unpack("<Q", content[:8])
    text = json.dumps(change(json.loads(content[8 : 8 + size]))).encode()
    return struct.pack("<Q", len(text)) + text + content[8 + size :]

  return damage


def with_metadata(**changes):
  def change(header):
    metadata = {**header["__metadata__"], **changes}
    own = {name: value for name, value in metadata.items() if value is not None}
    return {**header, "__metadata__": own}

  return with_header(change)


def with_arrays(change):
  def damage(content):
    (size,) = struct.unpack("<Q", content[:8])
    metadata = json.loads(content[8 : 8 + size])["__metadata__"]
    return safetensors.numpy.save(change(safetensors.numpy.load(content)), metadata)

  return damage


def described(**changes):
  def damage(content):
    (size,) = struct.unpack("<Q", content[:8])
    metadata = json.loads(content[8 : 8 + size])["__metadata__"]
    model = {**json.loads(metadata["model"]), **changes}
    return with_metadata(model=json.dumps(model))(content)

  return damage


DAMAGES = {
  "empty": lambda _: b"",
  "cut in the length": lambda content: content[:5],
  "cut in the header": lambda content: content[:50],
  "cut in the numbers": lambda content: content[:-1],
  "longer": lambda content: content + b"\0",
  "a length beyond the end": lambda content: struct.pack("<Q", 2**62) + content[8:],
  "no length": lambda content: bytes(8) + content[8:],
  "no JSON": lambda content: content[:8] + b"[" + content[9:],
  "no UTF-8": lambda content: content[:20] + b"\xff" + content[21:],
  "no metadata": with_header(lambda h: {k: v for k, v in h.items() if k[0] != "_"}),
  "no trial": with_metadata(trial=None),
  "another trial": with_metadata(trial="task=qstr/model=m/length=3/trial=9"),
  "no model": with_metadata(model=None),
  "a model that is no JSON": with_metadata(model="{"),
  "a model that is a number": with_metadata(model="3"),
  "a deep model": with_metadata(model="[" * 100_000),
  "a class that is none": described(**{"class": 3}),
  "fields that are none": described(fields=[1]),
  "a field that is none of its class": described(fields={"depth": 3}),
  "parent": described(fields={"parent": None}),
  "an array less": with_arrays(lambda a: dict(sorted(a.items())[1:])),
  "a new name": with_arrays(lambda a: {f"x{k}": v for k, v in a.items()}),
  "another shape": with_arrays(lambda a: {k: v[None] for k, v in a.items()}),
  "another dtype": with_arrays(lambda a: {k: v.astype("f8") for k, v in a.items()}),
  "a name within a name": with_arrays(lambda a: {**a, "hidden": np.zeros(1, "f4")}),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_weights_are_refused_by_name(run, damage):
  (run / "digests.json").unlink()
  (run / FIRST).write_bytes(damage((run / FIRST).read_bytes()))
  with pytest.raises(InvalidSetting, match=r"m.*trial=0\.safetensors"):
    _ = sepfx.load(run).models["task=qstr/model=m/length=3/trial=0"].model


def test_weights_that_are_damaged_later_are_refused_too(run):
  records = sepfx.load(run)
  (run / FIRST).write_bytes(b"")
  with pytest.raises(InvalidSetting, match=r"weights: got .*trial=0\.safetensors"):
    _ = records.models["task=qstr/model=m/length=3/trial=0"]


# A run that lasts, or was stopped.


@pytest.fixture
def stopped(tmp_path):
  """Three of four trials have ended."""
  path = tmp_path / "stopped"
  asked = {cell.name: 2 for cell in CELLS}
  with RunDirectory(path) as directory:
    files = begun(directory, SETTINGS, CELLS, asked=asked, keep_weights=True)
    for cell, k in ((CELLS[0], 1), (CELLS[1], 0), (CELLS[0], 0)):
      files.ended(result(cell, k))
  return path


def test_an_unfinished_run_is_read_as_far_as_it_is(stopped):
  records = sepfx.load(stopped)
  assert (records.complete, records.missing) == (False, 1)
  assert len(records.table) == 6
  assert records.table["trial"].tolist() == [1, 1, 0, 0, 0, 0]
  assert records.probes["norm"].tolist() == [2.5, 1.5, 1.5]
  assert len(records.models) == 3
  assert len(records.curves(model="m")) == 2
  assert "not complete: trials missing: 1" in str(records)
  with RunDirectory(stopped) as directory:
    found = TrialFiles(directory, CELLS).records
  assert (found.complete, found.missing) == (False, 1)


def test_damaged_weights_that_nothing_proves_run_again(tmp_path):
  leave(tmp_path)
  (tmp_path / "digests.json").unlink()
  file = next(tmp_path.glob("weights/**/*.safetensors"))
  file.write_bytes(file.read_bytes()[:-8])
  with pytest.warns(UserWarning, match="is damaged: set aside as .* runs again"):
    leave(tmp_path)
  records = sepfx.load(tmp_path)
  assert records.complete
  for cell in CELLS:
    for k in range(2):
      trained = records.models[f"{cell.name}/trial={k}"]
      chex.assert_trees_all_equal(trained.params, result(cell, k).params)


def test_a_figure_of_an_unfinished_run_says_so(stopped, monkeypatch):
  figure = matplotlib.figure.Figure()
  monkeypatch.setattr(plotting, "summary_of", lambda *_, **__: {})
  monkeypatch.setattr(plotting.figures, "sample_complexity", lambda *_: figure)
  sepfx.plot(sepfx.load(stopped))
  assert figure.get_suptitle() == "not complete: 3 of 4 trials so far"


def test_a_run_of_which_nothing_has_ended(tmp_path):
  with RunDirectory(tmp_path) as directory:
    begun(directory, SETTINGS, CELLS, asked={CELLS[0].name: 2})
    for file in ("trials.csv", None):
      records = sepfx.load(tmp_path)
      assert (records.complete, records.missing, len(records.table)) == (False, 2, 0)
      assert records.coordinates == ("task", "model", "length")
      if file:
        (tmp_path / file).unlink(missing_ok=True)


def test_what_is_cut_or_damaged_of_an_unfinished_run_is_left_out(stopped):
  path = stopped / "trials.csv"
  text = path.read_text()
  for end in (-7, -len(text.splitlines()[-1]) - 1):  # in a line, in a trial
    path.write_text(text[:end])
    records = sepfx.load(stopped)
    assert (records.missing, len(records.table)) == (2, 4)
  path.write_text("".join(text.splitlines(keepends=True)[:2]))  # in the first trial
  records = sepfx.load(stopped)
  assert (records.missing, len(records.table)) == (4, 0)
  path.write_text(text)
  (file,) = stopped.glob("checkpoints/*model=f*.npy")
  file.write_bytes(b"")
  assert sepfx.load(stopped).missing == 2
  path.write_text(text.replace("m,3,1,0.9,160", "m,3,1,0.9,80"))
  with pytest.raises(
    InvalidSetting, match=r"trials\.csv, line 2: .*80,reached.* says 160,reached"
  ):
    sepfx.load(stopped)


def test_trials_that_a_larger_budget_brings_back_are_missing(run):
  longer = [
    dataclasses.replace(c, trial=small.with_protocol(c.trial, max_samples=2 * 4800))
    for c in CELLS
  ]
  with RunDirectory(run) as directory:
    begun(directory, SETTINGS, longer, asked={cell.name: 2 for cell in CELLS})
  records = sepfx.load(run)
  assert (records.complete, records.missing, len(records.table)) == (False, 4, 8)


def test_a_search_does_not_know_how_many_are_missing(tmp_path):
  with RunDirectory(tmp_path) as directory:
    files = begun(directory, SETTINGS, CELLS)
    files.ended(result(CELLS[0], 0))
    assert sepfx.load(tmp_path).missing is None
    files.complete()
    directory.write("summary.json", "{}")
    assert sepfx.load(tmp_path).complete


class Killed(BaseException):
  """At an operation on a file."""


@pytest.mark.slow
def test_killed_between_any_two_operations(made, run, tmp_path, monkeypatch):
  """A run that grows goes on, and what is read is right, whole or said to be a part."""
  leave(tmp_path / "whole", num_trials=3)
  # The order of metadata in weights is not the same twice.
  wanted = {name: (tmp_path / "whole" / name).read_bytes() for name in FILES[1:-1]}
  operations, most = [0], [0]

  def counted(own):
    def operation(*arguments):
      if operations[0] == most[0]:
        raise Killed
      operations[0] += 1
      return own(*arguments)

    return operation

  for module in (run_directory, trial_files_module, stored_trials):
    for name in ("write_whole", "remove"):
      if hasattr(module, name):
        monkeypatch.setattr(module, name, counted(getattr(module, name)))
  append = RunDirectory.append
  monkeypatch.setattr(RunDirectory, "append", counted(append))
  done = False
  while not done:
    path = tmp_path / f"at_{most[0]}"
    shutil.copytree(made / "one", path)
    operations[0] = 0
    try:
      leave(path, num_trials=3)
      done = True
    except Killed:
      records = sepfx.load(path)
      trials = json.loads((path / "config.json").read_text())["trials"]
      assert len(records.table) == 2 * (sum(trials.values()) - records.missing)
      operations[0] = -1000
      leave(path, num_trials=3)
    assert sepfx.load(path).complete
    for name, content in wanted.items():
      assert (path / name).read_bytes() == content, (most[0], name)
    shutil.rmtree(path)
    most[0] += 1
  assert most[0] > 20


def test_digests_go_away_before_anything_is_written(run):
  with RunDirectory(run) as directory:
    directory.append("trials.csv", "")
    assert not (run / "digests.json").exists()
    digests.seal(directory)
    directory.discard("probes.json")
    assert not (run / "digests.json").exists()


def test_a_config_that_is_deleted_while_a_run_lasts_comes_back(tmp_path):
  with RunDirectory(tmp_path) as directory:
    files = begun(directory, SETTINGS, CELLS)
    files.ended(result(CELLS[0], 0))
    config = (tmp_path / "config.json").read_bytes()
    (tmp_path / "config.json").unlink()
    files.ended(result(CELLS[0], 1))
    assert (tmp_path / "config.json").read_bytes() == config
    (tmp_path / "config.json").unlink()
  for opens in (RunDirectory, sepfx.load):  # killed before it wrote again
    with pytest.raises(
      InvalidSetting, match=r"put a copy (back|of its config.json back)"
    ):
      opens(tmp_path)
  (tmp_path / "config.json").write_bytes(config)
  assert len(opened(tmp_path).rows) == 2


def test_names_that_differ_in_case_alone(tmp_path):
  upper = dataclasses.replace(CELLS[0].trial, model_name="M")
  with RunDirectory(tmp_path) as directory:
    with pytest.raises(InvalidSetting, match="differ in more than case from those of"):
      begun(directory, SETTINGS, [CELLS[0], Cell(upper)])
    assert not (tmp_path / "config.json").exists()


@pytest.mark.parametrize(
  ("first", "second", "added"), [(1, 2, 1), ("None", "0.1", None), ("1", "None", 1.0)]
)
def test_a_further_axis_is_written_into_weights(tmp_path, first, second, added):
  """Their files say whose they are: under the new name, too."""
  with RunDirectory(tmp_path) as directory:
    files = begun(directory, SETTINGS, CELLS)
    files.ended(result(CELLS[0], 0))
    files.complete()
  wider = [dataclasses.replace(CELLS[0], axes={"rate": own}) for own in (first, second)]
  with RunDirectory(tmp_path) as directory:
    files = begun(directory, SETTINGS, wider, added={"rate": added})
    (name,) = files.rows
    assert name == f"task=qstr/model=m/length=3/rate={first}/trial=0"
    assert files.complete().probes["norm"].tolist() == [1.5]
    assert len(files.records.models) == 1
  content = weights.read(tmp_path, name)
  assert content.description["class"].endswith(":Transformer")
  (file,) = (tmp_path / "weights").rglob("*.safetensors")
  (size,) = struct.unpack("<Q", file.read_bytes()[:8])
  metadata = json.load(io.BytesIO(file.read_bytes()[8 : 8 + size]))["__metadata__"]
  assert metadata["trial"] == name
