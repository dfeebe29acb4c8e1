"""Names of the release before stand where the papers' bounds and constructions were."""

import importlib
import pkgutil
import subprocess
import sys

import pytest

import sepfx.constructions
import sepfx.theory
from sepfx.models import FeedForward, InputMap, evaluate
from sepfx.moved import MODULES, recorded_name
from sepfx.provenance.anatomy import named
from sepfx.provenance.fingerprints import fingerprint, name_of
from tests.programs import ROOT


@pytest.mark.parametrize(
  ("module", "name", "now"),
  [
    (sepfx.theory, "norms", "experiments.capacity.norms"),
    (sepfx.theory, "pac_bayes", "experiments.fourier.flatness.pac_bayes"),
    (sepfx.theory, "sharpness", "sepfx.probes.hessian"),
    (
      sepfx.constructions,
      "slot_memory",
      "experiments.qstr.constructions.slots.slot_memory",
    ),
  ],
)
def test_a_former_name_warns_and_is_what_it_was(module, name, now):
  with pytest.warns(DeprecationWarning, match=rf"{name} is (sepfx\.)?{now} now"):
    found = getattr(module, name)
  assert found is _imported(found, now)


def _imported(found, now):
  """What stands at a place, under the name by which the package is installed."""
  place = getattr(found, "__module__", found.__name__)
  package = "sepfx." if place.startswith("sepfx.experiments") else ""
  return pkgutil.resolve_name(package + now)


@pytest.mark.parametrize("module", [sepfx.theory, sepfx.constructions])
def test_every_former_name_is_somewhere(module):
  names = [*module._PLACES]
  names += [own.rpartition(".")[2] for own in MODULES if own.startswith(module.__name__)]
  assert len(names) > 20
  for name in names:
    with pytest.warns(DeprecationWarning, match=name):
      assert getattr(module, name) is not None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_former_modules_are_imported():
  program = (
    "import sepfx.theory.pac_bayes as own, warnings\n"
    "from sepfx.theory.lower_bounds import error_growth\n"
    "from sepfx.constructions.slots import slot_memory\n"
    "print(own.__name__)"
  )
  done = subprocess.run(
    [sys.executable, "-W", "default", "-c", program],
    cwd=ROOT, capture_output=True, text=True,
  )  # fmt: skip
  assert done.returncode == 0, done.stderr
  assert done.stdout.strip().endswith("experiments.fourier.flatness.pac_bayes")
  assert "sepfx.theory.lower_bounds is " in done.stderr


@pytest.mark.parametrize("former", MODULES)
def test_files_have_the_former_names_of_modules(former):
  """Directories that were begun before the move go on."""
  place = MODULES[former]
  package = "" if place.startswith("sepfx.") else "experiments."
  assert recorded_name(package + place) == former
  assert package == "" or recorded_name(f"sepfx.experiments.{place}") == former


def test_settings_and_code_are_told_apart_by_former_names():
  assert name_of(InputMap) == "sepfx.models.cls_attention:InputMap"
  assert name_of(evaluate) == named(evaluate) == "sepfx.models.evaluation:evaluate"
  assert fingerprint(FeedForward((3,)))["class"] == "sepfx.models.feedforward:FeedForward"


def test_other_names_are_none():
  with pytest.raises(AttributeError, match=r"has no attribute .nothing"):
    _ = sepfx.theory.nothing


def test_studies_of_papers_are_imported_by_their_names_alone():
  from experiments import few_heads
  from experiments.qstr.few_heads import study

  assert few_heads.STUDY is study.STUDY
  for name in ("study", "summary", "bits", "nothing"):
    with pytest.raises(ImportError):
      importlib.import_module(f"experiments.{name}")


def test_studies_of_papers_go_by_their_names_alone():
  done = subprocess.run(
    [sys.executable, "-m", "experiments.few_heads", "--help"],
    cwd=ROOT, capture_output=True, text=True,
  )  # fmt: skip
  assert done.returncode == 0, done.stderr
  assert "sepfx few-heads" in done.stdout
  assert "--heads=1,2,3,4,5" in done.stdout
