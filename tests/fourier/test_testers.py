"""What is said of property testers, on functions small enough to know, and the study."""

import collections
import csv
import dataclasses
import itertools
import json
import math
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rich.console
from jax.flatten_util import ravel_pytree

from experiments.fourier import tables as fourier_tables
from experiments.fourier.property_testing import figure as testing_figures
from experiments.fourier.property_testing import study as property_testing
from experiments.fourier.property_testing.estimators import Estimate, Verdict
from experiments.fourier.property_testing.study import Settings
from experiments.fourier.property_testing.testers import (
  Case,
  PropertyTester,
  compare,
  distances,
  model_case,
  property_testers,
  summarise_tests,
)
from sepfx.errors import InvalidSetting
from sepfx.models import ReadOutTransformer, predict
from sepfx.tasks.fourier import all_bits

ROOT = pathlib.Path(__file__).parents[2]
QUIET = rich.console.Console(quiet=True)
SETTINGS = Settings(
  length=7, degree=(1, 2), num_components=(2, 3), num_functions=2, tau=(0.3, 0.05),
  max_degree=3, max_width=3, num_subcubes=16, num_restrictions=3,
)  # fmt: skip


def tabulated(length, seed):
  """A function with all components: of bits, and its values on all inputs."""
  values = np.random.default_rng(seed).standard_normal(2**length)
  places = 2 ** np.arange(length)[::-1]
  return lambda bits: values[np.asarray(bits) @ places], values


def spectrum_of(values, length):
  """Sizes and coefficients of all nonempty sets, set by set."""
  bits = np.asarray(all_bits(length))
  sets = bits[1:]
  coefficients = [np.mean(values * (1 - 2 * (bits @ one % 2))) for one in sets]
  return sets, np.array(coefficients)


@pytest.mark.parametrize("seed", range(3))
def test_distances_are_those_of_the_nearest_functions(seed):
  """Found by least squares over every choice of components, at T = 3."""
  length = 3
  _, values = tabulated(length, seed)
  sets, coefficients = spectrum_of(values, length)
  bits = np.asarray(all_bits(length))
  columns = 1 - 2 * (bits @ sets.T % 2)

  def residual(chosen):
    own = np.column_stack([np.ones(2**length), columns[:, chosen]])
    fitted = own @ np.linalg.lstsq(own, values, rcond=None)[0]
    return np.std(values - fitted) / np.std(values)

  found = distances(sets.sum(axis=1), coefficients**2)
  degrees = [
    residual(np.flatnonzero(sets.sum(axis=1) <= d)) for d in range(1, length + 1)
  ]
  np.testing.assert_allclose(found["degree"], degrees, atol=1e-7)
  widths = [
    min(residual(list(own)) for own in itertools.combinations(range(7), k))
    for k in range(1, 8)
  ]
  np.testing.assert_allclose(found["width"], widths, atol=1e-7)
  assert found["degree"][-1] == found["width"][-1] == 0


def test_distances_of_little():
  """Nothing, and one component of degree 3."""
  found = distances(np.zeros(0, int), np.zeros(0))
  assert [own.tolist() for own in found.values()] == [[0.0], [0.0]]
  found = distances(np.array([3, 1]), np.array([4.0, 0.0]))
  assert found["degree"].tolist() == [1.0, 1.0, 0.0]
  assert found["width"].tolist() == [0.0]


def whole(seed, length=3):
  function, values = tabulated(length, seed)
  sets, coefficients = spectrum_of(values, length)
  labels = {"kind": "target", "degree": 2, "num_components": 3, "index": seed}
  exact = distances(sets.sum(axis=1), coefficients**2)
  return Case(labels, (seed,), function, length, exact)


def test_exact_testers_are_never_wrong():
  """At T = 3 every test looks at the whole cube."""
  taus = [0.05, 0.3, 0.5, 0.7, 0.9]
  nothing = 0
  for seed in range(10):
    rows = compare(whole(seed), property_testers(2, 5, 4, 5), taus)
    assert [(row["property"], row["tau"]) for row in rows] == [
      *itertools.product(["degree", "width"], taus)
    ]
    for row in rows:
      assert row["found"] == row["within"]
      assert row["accepted_within"] in (True, None)
      assert row["accepted_below"] in (False, None)
      level = row["found"] or row["most"]
      assert row["queries"] == 8 * level
      if row["found"] is None:
        nothing += 1
        assert row["accepted_within"] is None
        assert row["distance_below"] > row["tau"]
      elif row["found"] > 1:
        assert row["distance_below"] > row["tau"] >= row["distance_within"]
      else:
        assert row["accepted_below"] is row["distance_below"] is None
  assert nothing > 0
  levels = {row["planted"] for row in rows if row["property"] == "width"}
  assert levels == {3}


def test_wrong_testers_are_counted():
  """One accepts everything, the other nothing."""
  all_of_it = PropertyTester(
    lambda *_, tau: Estimate(1, 1), lambda *_, tau: Verdict(True, 0, 0, 1), 2
  )
  none_of_it = PropertyTester(
    lambda *_, tau: Estimate(None, 3), lambda *_, tau: Verdict(False, 0, 0, 1), 7
  )
  case = whole(0)
  assert case.exact["degree"][0] > 0.1
  both = {"degree": all_of_it, "width": none_of_it}
  rates = summarise_tests(compare(case, both, [1e-6, 0.1]))["rates"]
  for rate in rates:
    wrong = rate["property"] == "width"
    assert rate["right_planted"] == 0
    # Up to degree 2 nothing is within: there is nothing to find or to reject falsely.
    assert rate["right_within"] == (0 if wrong else None)
    assert rate["false_rejection"] == (1 if wrong else None)
    assert rate["false_acceptance"] == (0 if wrong else 1)
    assert rate["queries"] == (3 if wrong else 1)


def row(found, within, planted=4, **others):
  return {
    "kind": "target", "degree": 2, "num_components": 4, "index": 0, "property": "width",
    "planted": planted, "tau": 0.1, "within": within, "found": found, "most": 6,
    "queries": 10 * planted, "accepted_within": found is not None,
    "accepted_below": False, **others,
  }  # fmt: skip


def test_finding_no_level_where_there_is_none_is_not_finding_it():
  (rate,) = summarise_tests([row(None, None), row(None, 4), row(3, 3)])["rates"]
  assert (rate["right_within"], rate["right_within_of"]) == (0.5, 2)


def test_summaries_count_and_cut():
  rows = [row(4, 3), row(3, 3), row(None, 4), row(2, 2, planted=2, accepted_below=None)]
  summary = summarise_tests(rows)
  (rate,) = summary["rates"]
  assert rate["functions"] == 4
  assert (rate["right_planted"], rate["right_within"]) == (0.5, 0.5)
  assert (rate["false_rejection"], rate["false_acceptance"]) == (0.25, 0)
  assert (rate["false_rejection_of"], rate["false_acceptance_of"]) == (4, 3)
  # Wilson's, written out.
  z, n, p = 1.959964, 4, 0.25
  middle = (p + z**2 / (2 * n)) / (1 + z**2 / n)
  half = z / (1 + z**2 / n) * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
  np.testing.assert_allclose(rate["false_rejection_low"], middle - half, rtol=1e-5)
  np.testing.assert_allclose(rate["false_rejection_high"], middle + half, rtol=1e-5)
  four, two = summary["levels"]
  # The sweep that found nothing counts as its last level, 6.
  np.testing.assert_allclose(four["found"], (4 + 3 + 6) / 3)
  assert four["found_restricted"]
  assert not four["within_restricted"]
  assert four["queries"] == 40
  assert (two["found"], two["found_low"], two["queries_low"]) == (2, None, None)
  assert two["false_acceptance"] is None


@pytest.mark.slow
def test_models_are_functions_with_their_spectra():
  length = 5
  model = ReadOutTransformer(num_layers=1, embedding_dim=3, mlp_width=4)
  bits = all_bits(length)
  params = model.init(jax.random.key(0), bits)["params"]
  flat, unravel = ravel_pytree(params)
  params = unravel(flat + 0.5 * jax.random.normal(jax.random.key(1), flat.shape))
  case = model_case({}, (0,), model, params, length)
  values = np.asarray(predict(model, params, bits), float)
  np.testing.assert_allclose(case.function(bits[::3]), values[::3], rtol=1e-4, atol=1e-6)
  sets, coefficients = spectrum_of(values, length)
  expected = distances(sets.sum(axis=1), coefficients**2)
  for name, own in case.exact.items():
    np.testing.assert_allclose(own, expected[name], atol=1e-3)
    assert own[0] > 0.02, name  # far above the tolerance
  with pytest.raises(InvalidSetting, match=r"^length: got 21"):
    model_case({}, (0,), model, params, 21)


@pytest.mark.slow
def test_targets_have_the_distances_they_are_given():
  cases = list(property_testing.targets(SETTINGS))
  assert len(cases) == 8
  bits = all_bits(SETTINGS.length)
  for case in cases:
    sets, coefficients = spectrum_of(
      np.asarray(case.function(bits), float), SETTINGS.length
    )
    assert np.sum(coefficients**2 > 1e-9) == case.labels["num_components"]
    assert set(sets.sum(axis=1)[coefficients**2 > 1e-9]) == {case.labels["degree"]}
    expected = distances(
      sets.sum(axis=1), np.where(coefficients**2 > 1e-9, coefficients, 0) ** 2
    )
    for name, own in case.exact.items():
      np.testing.assert_allclose(own, expected[name][: len(own)], atol=1e-4)
      assert np.all(expected[name][len(own) :] == 0)


@pytest.mark.slow
def test_targets_of_a_class_do_not_depend_on_the_others():
  def values(settings, seed=0):
    bits = jnp.asarray(all_bits(7))
    return {
      case.seed: np.asarray(case.function(bits))
      for case in property_testing.targets(settings)
    }

  several = values(SETTINGS)
  alone = values(
    Settings(length=7, degree=(2,), num_components=(3,), num_functions=3, tau=(0.1,))
  )
  assert len(set(several) & set(alone)) == 2
  for seed in set(several) & set(alone):
    np.testing.assert_array_equal(several[seed], alone[seed])
  assert len({own.tobytes() for own in several.values()}) == len(several) == 8


@pytest.mark.slow
def test_the_study_tests_all_that_it_draws():
  rows = property_testing.tested(SETTINGS, QUIET)
  assert len(rows) == 8 * 2 * 2
  summary = summarise_tests(rows)
  for rate in summary["rates"]:
    assert rate["functions"] == 8
    if rate["property"] == "degree":
      assert rate["right_planted"] == 1
  assert [cell["functions"] for cell in summary["levels"]] == [4] * 8
  assert len(fourier_tables.tests(summary)) == 5
  figure = testing_figures.sweeps(rows, summary)
  titles = [axis.get_title() for axis in figure.axes]
  assert len(titles) == 6
  # A line per tau, of the means that the summary has.
  drawn = {line.get_label(): line for line in figure.axes[3].containers}
  for tau in SETTINGS.tau:
    expected = [
      cell["found"]
      for cell in summary["levels"]
      if (cell["property"], cell["tau"]) == ("width", tau)
    ]
    (line, *_) = drawn[rf"$\tau$ = {tau:g}"]
    np.testing.assert_allclose(line.get_ydata(), expected)


@pytest.mark.parametrize(
  ("changed", "message"),
  [
    ({"tau": ()}, "tau: got '', takes at least one"),
    ({"tau": (1.5,)}, "tau: got 1.5"),
    ({"degree": (8,)}, "degree: got 8"),
    ({"num_components": (9,)}, "num_components: got 9"),
    ({"num_functions": 0}, "num_functions: got 0"),
    ({"max_degree": 7}, "max_degree: got 7"),
    ({"max_width": 0}, "max_width: got 0"),
    ({"num_subcubes": 0}, "num_subcubes: got 0"),
    ({"num_restrictions": 0}, "num_restrictions: got 0"),
    ({"seed": -1}, "seed: got -1"),
    ({"run": "nowhere"}, "run: got 'nowhere'"),
  ],
)
def test_bad_settings_are_refused(changed, message):
  with pytest.raises(InvalidSetting, match=f"^{message}"):
    property_testing.tested(dataclasses.replace(SETTINGS, **changed), QUIET)


def program(name, *arguments):
  command = [sys.executable, "-m", f"experiments.{name}", *arguments]
  return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.slow
def test_programs_test_what_another_kept(tmp_path):
  run, output = tmp_path / "run", tmp_path / "tests"
  done = program(
    "fourier_generalisation", "--lengths=6", "--degrees=1", "--components=1,2",
    "--num_trials=2", "--sample_size=48", "--batch_size=16", "--check_every=20",
    "--max_steps=400", f"--output_dir={run}", "--quiet",
  )  # fmt: skip
  assert done.returncode == 0, done.stderr
  small = (
    "--length=6", "--degrees=1,2", "--components=2", "--num_functions=3",
    "--taus=0.1,0.3", "--max_degree=3", "--max_width=4", f"--output_dir={output}",
  )  # fmt: skip
  done = program("property_testing", *small, f"--run={run}")
  assert done.returncode == 0, done.stderr
  assert "width, 4 functions (trained)" in done.stdout
  assert (output / "figure.png").read_bytes().startswith(b"\x89PNG")
  with open(output / "tests.csv", newline="") as file:
    rows = list(csv.DictReader(file))
  assert collections.Counter(r["kind"] for r in rows) == {"target": 24, "trained": 16}
  summary = json.loads((output / "summary.json").read_text())
  settings = json.loads((output / "config.json").read_text())["settings"]
  assert (settings["run"], settings["taus"]) == (str(run), [0.3, 0.1])
  # These learn functions of degree 1: all that they compute is near them.
  (rate,) = (
    r
    for r in summary["rates"]
    if (r["kind"], r["property"], r["tau"]) == ("trained", "degree", 0.3)
  )
  assert rate["right_planted"] == 1
  next((run / "weights").rglob("*.safetensors")).unlink()
  (run / "digests.json").unlink()  # else the directory is refused
  done = program("property_testing", *small, f"--run={run}")
  assert done.returncode == 2
  assert "error: --run: got" in done.stderr
  assert "1 are missing" in done.stderr


@pytest.mark.slow
def test_bad_flags_are_refused_by_their_names(tmp_path):
  done = program(
    "property_testing", "--taus=2", "--degrees=1", "--components=2", "--num_functions=1",
    f"--output_dir={tmp_path}",
  )  # fmt: skip
  assert done.returncode == 2
  assert done.stderr == "error: --taus: got 2.0, takes a number in (0, 1)\n"
  with pytest.raises(InvalidSetting, match=r"^argument: got '--tau=0.1', takes a flag"):
    property_testing.main(["--tau=0.1"])
