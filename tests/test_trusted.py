"""Nothing that stands in a directory is imported or called but classes that are known."""

import importlib
import json

import flax.linen as nn
import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver

import sepfx
from experiments.fourier.fourier_generalisation import study as fourier_generalisation
from experiments.sample_complexity import STUDY
from sepfx import descriptions, specifications
from sepfx.commands import options, program
from sepfx.errors import InvalidSetting
from sepfx.models import GRU, OnBits
from sepfx.records import weights
from sepfx.records.run_directory import RunDirectory
from sepfx.studies import beside
from sepfx.studies.settings import from_stored
from sepfx.trusted import known_classes, public_names
from tests import small
from tests.test_run_directory import CELL, result

MADE = []


class Marks(nn.Module):
  """Says that it was made."""

  width: int = 1
  inner: object = None

  def __post_init__(self):
    MADE.append(self.width)
    super().__post_init__()


@pytest.fixture(autouse=True)
def _fresh():
  MADE.clear()
  with flagsaver.flagsaver():
    yield


@pytest.fixture
def imports(monkeypatch):
  """Names of the modules that are imported by text."""
  seen = []
  real = importlib.import_module

  def record(name, *arguments):
    seen.append(name)
    return real(name, *arguments)

  monkeypatch.setattr(specifications.importlib, "import_module", record)
  return seen


def kept(path, description):
  """A directory of a run with one trial, whose weights have this description."""
  name = f"{CELL.name}/trial=0"
  params = {"w": np.ones(2, np.float32)}
  content = weights.serialised(name, small.MODEL, params)
  own = json.dumps(json.dumps(descriptions.described(small.MODEL)))
  assert own.encode() in content
  with RunDirectory(path) as directory:
    directory.begin({"seed": 0}, {})
    directory.write("trials.csv", HEADER + "qstr,m,3,0,0.9,80,reached\n")
    np.savez(path / "curves.npz", **{name: result(0).curve})
    directory.write("summary.json", "{}")
    arrays = {"w": np.ones(2, np.float32)}
    metadata = {"trial": name, "model": json.dumps(description)}
    content = weights.safetensors.numpy.save(arrays, metadata)
    directory.write(weights.path_of(name), content)
  return name


HEADER = "task,model,length,trial,threshold,samples,outcome\n"
OWN = descriptions.qualified(Marks)
HOSTILE = [
  {"class": "os:system", "fields": {"command": "touch x"}},
  {"class": "this:nothing", "fields": {}},
  {"class": "sepfx.models:build", "fields": {"name": "os:system", "task": None}},
  {"class": "sepfx.records.run_directory:RunDirectory", "fields": {"path": "x"}},
  {"class": OWN, "fields": {}},
]


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda own: own["class"])
@pytest.mark.parametrize("nested", [False, True])
def test_no_class_of_a_weights_file_is_imported(tmp_path, imports, hostile, nested):
  description = hostile
  if nested:
    description = {"class": "sepfx.models.on_bits:OnBits", "fields": {"model": hostile}}
  name = kept(tmp_path, description)
  trained = sepfx.load(tmp_path).models[name]
  assert not trained.model
  assert hostile["class"] in repr(trained.model)
  assert trained.description == description
  np.testing.assert_array_equal(trained.params["w"], [1, 1])
  for use in (
    lambda: trained(np.zeros(1)),
    lambda: trained.model.apply({}),
    trained.model,
  ):
    with pytest.raises(InvalidSetting, match=rf"got '{hostile['class']}', .*classes=\["):
      use()
  assert not hasattr(trained.model, "__wrapped__")  # what inspection looks for
  assert all(own.startswith("sepfx") for own in imports)
  assert not MADE


def test_all_classes_are_looked_at_before_one_is_made(tmp_path):
  inner = {"class": OWN, "fields": {"width": 2}}
  outer = {"class": OWN, "fields": {"width": 1, "inner": inner}}
  name = kept(tmp_path, outer)
  assert sepfx.load(tmp_path, classes=[Marks]).models[name].model == Marks(1, Marks(2))
  assert MADE
  inner["class"] = "os:system"
  MADE.clear()
  known = known_classes([Marks])
  with pytest.raises(InvalidSetting, match="os:system"):
    descriptions.rebuilt(outer, known)
  outer["fields"] = {"inner": {"class": OWN, "fields": {}}, "later": inner}
  with pytest.raises(InvalidSetting, match="os:system"):
    descriptions.rebuilt(outer, known)
  assert not MADE


def test_this_packages_own_classes_are_known():
  known = known_classes()
  assert {"sepfx.models.recurrent:GRU", "sepfx.tasks.qstr:QSTR"} < set(known)
  assert {"sepfx.training.online:Online", "sepfx.training.erm:ERM"} < set(known)
  assert public_names()["sepfx.models:GRU"] is GRU
  assert all(isinstance(own, type) for own in known.values())
  assert not any("build" in name for name in public_names())
  model = OnBits(GRU(units=3))
  again = json.loads(json.dumps(descriptions.described(model)))
  assert descriptions.rebuilt(again, known) == model


@pytest.mark.parametrize(
  ("classes", "message"),
  [
    ([Marks()], "takes classes, as in"),
    ("Marks", "takes classes, as in"),
    (Marks, "takes classes, as in"),
    ([Marks, "os:system"], "takes classes, as in"),
    ([Marks, type("Marks", (), {"__module__": __name__})], "the name of two"),
    (
      [type("GRU", (), {"__module__": "sepfx.models.recurrent"})],
      "sepfx.models.recurrent:GRU is the name of two",
    ),
  ],
)
def test_what_is_no_class_or_of_one_name_with_another_is_refused(
  tmp_path, classes, message
):
  kept(tmp_path, {"class": OWN, "fields": {}})
  with pytest.raises(InvalidSetting, match=rf"classes: got [\s\S]*{message}"):
    sepfx.load(tmp_path, classes=classes)


def test_a_module_that_could_not_be_written_down(tmp_path):
  name = kept(tmp_path, {"repr": "Own(activation=relu)"})
  trained = sepfx.load(tmp_path).models[name]
  with pytest.raises(InvalidSetting, match=r"Own\(activation=relu\).* Make it yourself"):
    trained(np.zeros(1))


def test_weights_that_do_not_fit_are_said_so(tmp_path):
  name = kept(tmp_path, descriptions.described(small.MODEL))
  with pytest.raises(InvalidSetting, match="inputs that fit Transformer"):
    sepfx.load(tmp_path).models[name](np.zeros((1, 3, 2)))


# On the command line: settings of a directory name models and tasks.


def stored(*arguments):
  return STUDY.chosen(["--lengths=3", *arguments]).stored()


HERE = STUDY.chosen(["--lengths=3", "--models=tests.small:ffn"])
STRANGE = (
  {"models": ["os:system:command=touch x"]},
  {"models": ["tests.small:Linear"]},
  {"models": ["sepfx.models:build:name=os"]},
  {"models": ["gru"], "task": "os:system:command=touch x"},
  {"models": ["tests.small:ffn"], "task": "tests.test_trusted:Marks"},
)


@pytest.mark.parametrize("own", STRANGE, ids=str)
def test_no_name_of_a_directorys_settings_is_imported(imports, own):
  there = from_stored(STUDY.settings, {**stored(), **own})
  message = "takes names that this call gives: .*--classes"
  with pytest.raises(InvalidSetting, match=message):
    beside.cells_of(there, STUDY.cells, here=HERE)
  assert set(imports) <= {"tests.small"}
  assert not MADE


def test_what_the_call_names_is_imported():
  there = from_stored(STUDY.settings, stored("--models=tests.small:ffn,gru"))
  assert len(beside.cells_of(there, STUDY.cells, here=HERE)) == 2
  with pytest.raises(InvalidSetting, match=r"--classes=tests\.small:ffn"):
    beside.cells_of(there, STUDY.cells)
  assert len(beside.cells_of(there, STUDY.cells, ["tests.small:ffn"])) == 2
  # With fields, and by the names of this package's tables.
  names = "--models=sepfx.models:GRU:units=3,sepfx.models.recurrent:LSTM:units=2"
  there = from_stored(STUDY.settings, stored(names))
  assert len(beside.cells_of(there, STUDY.cells)) == 2


@pytest.mark.parametrize(
  ("text", "message"),
  [
    ("tests.small:nothing", "classes: got .*:nothing', takes names of classes"),
    ("Mixer", "classes: got 'Mixer', takes names of classes"),
    ("tests.small:TASK", "classes: got .*:TASK', takes names of classes"),
    ("tests.small:ffn,tests.small:ffn", "each name once"),
  ],
)
def test_bad_classes_are_refused(text, message):
  flags.FLAGS(["program", f"--classes={text}"])
  with pytest.raises(InvalidSetting, match=message):
    beside.cells_of(HERE, STUDY.cells, options.trusted())


@pytest.mark.parametrize("own", [STUDY, fourier_generalisation.STUDY])
def test_a_directory_taken_up_or_beside_imports_nothing(tmp_path, imports, own):
  path, here = tmp_path / "run", own.chosen(["--lengths=12"])
  settings = {**own.chosen(["--lengths=12"]).stored(), "models": ["os:system:command=x"]}
  with RunDirectory(path) as directory:
    directory.begin(settings, {})
  flags.FLAGS(["program", f"--output_dir={path}"], known_only=True)
  for run in (
    lambda: beside.cells_of(from_stored(own.settings, settings), own.cells, here=here),
    lambda: program.run(own, here),
  ):
    with pytest.raises(InvalidSetting, match="models: got 'os:system', takes names that"):
      run()
  with RunDirectory(path) as directory:
    directory.write("trials.csv", HEADER + "qstr,m,3,0,0.7,80,reached\n")
    curve = small.losses([80], [0.5], [True])
    np.savez(path / "curves.npz", **{f"{CELL.name}/trial=0": curve})
    directory.write("summary.json", "{}")
  readers = [lambda: beside.read(str(path), own.settings, own.cells, here=here)]
  if own is fourier_generalisation.STUDY:
    readers.append(lambda: fourier_generalisation.trained(str(path), "runs"))
  for read in readers:
    with pytest.raises(InvalidSetting, match="got 'os:system', takes names that"):
      read()
  assert not any(name.partition(".")[0] == "os" for name in imports)
  (path / "summary.json").unlink()
  with pytest.raises(InvalidSetting, match="complete run: this one has not ended"):
    beside.read(str(path), own.settings, own.cells, here=here)
