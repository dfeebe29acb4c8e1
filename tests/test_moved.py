"""Names of the release before stand where the papers' bounds and constructions were."""

import pkgutil
import subprocess
import sys

import pytest

import sepfx.constructions
import sepfx.theory
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
  names = [*module._PLACES, *module._MODULES]
  assert len(names) > 20
  for name in names:
    with pytest.warns(DeprecationWarning, match=name):
      assert getattr(module, name) is not None


def test_other_names_are_none():
  with pytest.raises(AttributeError, match=r"has no attribute .nothing"):
    _ = sepfx.theory.nothing


def test_studies_of_papers_go_by_their_names_alone():
  done = subprocess.run(
    [sys.executable, "-m", "experiments.few_heads", "--help"],
    cwd=ROOT, capture_output=True, text=True,
  )  # fmt: skip
  assert done.returncode == 0, done.stderr
  assert "sepfx few-heads" in done.stdout
  assert "--heads=1,2,3,4,5" in done.stdout
