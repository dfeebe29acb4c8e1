"""The studies of the third paper as programs, in small."""

import csv
import dataclasses
import json
import subprocess
import sys
import types

import jax
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import sepfx
from experiments.fourier.flatness.bounds import bounds, covering_bound
from experiments.fourier.flatness.construction import flat_transformer
from experiments.fourier.flatness.paired import summarise_paired
from experiments.fourier.fourier_generalisation import study as fourier_generalisation
from sepfx import InvalidSetting
from tests.programs import ROOT, check_preset_says_what_it_is

SMALL = (
  "--lengths=6", "--components=2", "--num_trials=2", "--sample_size=24",
  "--batch_size=12", "--check_every=20", "--max_steps=400", "--stop_loss=0.5", "--quiet",
)  # fmt: skip


def run(program, *arguments):
  command = [sys.executable, "-m", f"experiments.{program}", *arguments]
  return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def summary(directory):
  return json.loads((directory / "summary.json").read_text())


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
  directory = tmp_path_factory.mktemp("fourier") / "run"
  done = run(
    "fourier_generalisation", *SMALL, "--degrees=1,2", f"--output_dir={directory}"
  )
  assert done.returncode == 0, done.stderr
  return directory


@pytest.mark.slow
def test_gaps_are_those_of_the_kept_weights(trained):
  records = sepfx.load(trained)
  cells = {(c["degree"], c["num_components"]): c for c in summary(trained)["cells"]}
  assert set(cells) == {(1, 2), (2, 2)}
  for row in records.probes:
    world = records.models[records.name_of(row)]
    assert np.isfinite(row["gap"])
    assert row["gap"] == pytest.approx(row["test_loss"] - row["train_loss"], abs=1e-6)
    assert ravel_pytree(world.params)[0].size > 0
  for cell in cells.values():
    gaps = [
      row["gap"]
      for row, end in zip(records.probes, records.table, strict=True)
      if row["degree"] == cell["degree"] and end["outcome"] == "reached"
    ]
    assert cell["reached"] == len(gaps) > 0
    assert cell["gap"] == pytest.approx(np.mean(gaps))


@pytest.mark.slow
def test_sharpness_beside_the_construction(trained, tmp_path):
  done = run("sharpness", f"--runs={trained}", f"--output_dir={tmp_path}")
  assert done.returncode == 0, done.stderr
  with open(tmp_path / "sharpness.csv") as file:
    rows = list(csv.DictReader(file))
  records = sepfx.load(trained)
  assert len(rows) == len(records.table) == 4
  found = {name: np.array([float(row[name]) for row in rows]) for name in rows[0]
           if name.startswith(("learned_", "constructed_"))}  # fmt: skip
  norms = [
    float(np.sum(ravel_pytree(records.models[records.name_of(row)].params)[0] ** 2))
    for row in records.table
  ]
  np.testing.assert_allclose(found["learned_squared_norm"], norms, rtol=1e-4)
  below = (found["learned_trace"] <= found["constructed_trace"]) & (
    found["learned_squared_norm"] <= found["constructed_squared_norm"]
  )
  cells = summary(tmp_path)["cells"]
  assert sum(cell["dominating"] for cell in cells) == np.sum(below)
  assert np.all(found["constructed_loss"] < 1e-6)
  assert np.all(found["constructed_eigenvalue"] <= 3 * found["constructed_trace"])
  # More neurons flip where perturbations are larger.
  for kind in ("learned", "constructed"):
    assert np.all(found[f"{kind}_flips_19"] >= found[f"{kind}_flips_0"])
    assert np.sum(found[f"{kind}_flips_19"]) > np.sum(found[f"{kind}_flips_0"])
    assert np.all(found[f"{kind}_flips_19"] < 0.5)
  # The bound that is derived is above the one that is measured.
  assert np.all(found["constructed_analytic"] > found["constructed_semi_analytic"])
  with np.load(tmp_path / "spectra.npz") as spectra:
    np.testing.assert_allclose(spectra["learned_weights"].sum(axis=1), 1, rtol=1e-4)
  for name in ("figure", "spectra"):
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_flat_learners_are_held_against_the_first(tmp_path):
  done = run(
    "flat_learners", *SMALL, "--degrees=2", "--gradient_penalty=0,0.01",
    "--weight_decay=0.0001", f"--output_dir={tmp_path / 'run'}",
  )  # fmt: skip
  assert done.returncode == 0, done.stderr
  found = summary(tmp_path / "run")
  plain, penalised = found["cells"]
  assert plain["gap_change"] == 0
  assert plain["hessian_trace_change"] == pytest.approx(1)
  probes = sepfx.load(tmp_path / "run").probes
  traces = {
    weight: probes["hessian_trace"][probes["gradient_penalty"] == weight]
    for weight in (0.0, 0.01)
  }
  assert plain["reached"] == penalised["pairs"] == 2
  ratio = np.exp(np.mean(np.log(traces[0.01] / traces[0.0])))
  assert penalised["hessian_trace_change"] == pytest.approx(ratio, rel=1e-5)
  assert len(found["constructed"]["hessian_trace"]) == 2


@pytest.mark.slow
def test_growth_of_the_construction(tmp_path):
  small = ("--lengths=6,8", "--components=2,4", "--functions=2", "--inputs=8")
  done = run("construction_growth", *small, "--degrees=1,2", f"--output_dir={tmp_path}")
  assert done.returncode == 0, done.stderr
  with open(tmp_path / "growth.csv") as file:
    assert len(list(csv.DictReader(file))) == 2 * 2 * 2 * 2
  found = summary(tmp_path)
  assert set(found) == {"squared_norm", "trace"}
  for fit in found.values():
    assert {"length", "degree", "num_components"} <= set(fit)


@pytest.mark.parametrize(
  ("arguments", "name"),
  [
    (["--lengths=4", "--sample_size=17"], "sample_size"),
    (["--degrees=13"], "degree"),
    (["--degrees=1", "--components=13"], "components"),
    (["--stop_loss=0"], "stop_loss"),
    (["--function=majority", "--lengths=17", "--sample_size=9"], "length"),
    (["--gradient_penalty=-1"], "gradient_penalty"),
  ],
)
def test_bad_settings_are_refused_before_anything_compiles(arguments, name):
  study = fourier_generalisation.STUDY
  with pytest.raises(InvalidSetting, match=name):
    study.cells(study.chosen(arguments))


@pytest.mark.slow
@pytest.mark.parametrize(
  ("program", "arguments", "message"),
  [
    ("sharpness", ["--runs=nowhere"], "nowhere"),
    ("construction_growth", ["--lengths=6,x"], "--lengths: got '6,x'"),
    ("construction_growth", ["--degrees=2,2"], "--degrees: got '2,2'"),
    ("construction_growth", ["--lengths=4", "--degrees=5"], "--degrees: got 5"),
  ],
)
def test_bad_flags_of_readers_are_refused(program, arguments, message, tmp_path):
  done = run(program, *arguments, f"--output_dir={tmp_path / 'out'}")
  assert done.returncode == 2, done.stderr
  assert message in done.stderr
  assert not (tmp_path / "out/summary.json").exists()


@pytest.mark.parametrize("name", ["fourier_quick", "fourier_fig1", "fourier_attention"])
def test_presets_say_what_they_are(name):
  preset = ROOT / f"experiments/flags/{name}.cfg"
  check_preset_says_what_it_is(preset)
  study = fourier_generalisation.STUDY
  assert study.cells(study.chosen([f"--flagfile={preset}"]))


def test_one_program_serves_all_degrees_and_numbers():
  """All cells of the grid differ in what is data of the lanes alone."""
  study = fourier_generalisation.STUDY
  flagfile = ROOT / "experiments/flags/fourier_quick.cfg"
  cells = study.cells(study.chosen([f"--flagfile={flagfile}"]))
  assert len(cells) == 16
  assert len({jax.tree.structure(cell.trial) for cell in cells}) == 1


def test_bounds_without_a_constant_say_nothing():
  """Of f = +-1 all losses of the prior's draws are 1 where sigma is small."""
  generator = np.random.default_rng(0)
  drawn = generator.uniform(0.5, 1.5, (20, 2, 30))
  measured = {
    "squared_norm": 10.0, "loss": 0.0, "trace": 3.0,
    "perturbed": generator.uniform(0, 1, (20, 8)), "held": np.zeros(30),
    "posterior_held": drawn, "prior_held": np.ones((20, 2, 30)),
  }  # fmt: skip
  found = bounds(measured, 100, 1.0)
  assert found["semi_analytic"] == np.inf
  assert np.isnan(found["truncated"])
  assert np.isnan(found["semi_analytic_needs"])
  assert np.isfinite(found["posterior_form"])
  measured["prior_held"] = np.concatenate([np.ones((19, 2, 30)), drawn[:1]])
  assert np.isfinite(bounds(measured, 100, 1.0)["semi_analytic"])


def test_the_constant_is_of_losses_around_the_mean_of_their_own_draw():
  """Draws whose means lie far apart do not raise the C of what happens within each."""
  generator = np.random.default_rng(0)
  within = generator.uniform(-0.5, 0.5, (20, 4, 3000))
  measured = {
    "squared_norm": 10.0, "loss": 0.0, "trace": 3.0,
    "perturbed": generator.uniform(0, 1, (20, 8)), "held": within[0, 0],
    "posterior_held": within, "prior_held": within + np.arange(4.0)[:, None],
  }  # fmt: skip
  found = bounds(measured, 100, 1.0)
  assert found["prior_constant"] == pytest.approx(12**-0.5, rel=0.05)
  # Weights whose losses are all the same say that C is 0, as one draw among others.
  measured["prior_held"] = np.arange(4.0)[:, None] * np.ones((20, 4, 30))
  assert np.isnan(bounds(measured, 100, 1.0)["prior_constant"])


def test_covering_bound_falls_with_n_and_grows_with_the_weights():
  c = np.array([0.8, 0.6])
  sets = np.array([[1, 1, 0, 0], [0, 1, 1, 0]])
  built = flat_transformer(sets, c)
  at = [covering_bound(built, 10**k, 1.0)["covering"] for k in (2, 12, 16)]
  assert at[0] >= at[1] > at[2] > 0
  wider = dataclasses.replace(built, params={**built.params, "G": 2 * built.params["G"]})
  assert covering_bound(wider, 10**16, 1.0)["covering"] > at[2]


@pytest.mark.slow
def test_a_report_is_not_written_over_a_run(trained):
  before = (trained / "config.json").read_bytes()
  done = run("sharpness", f"--runs={trained}", f"--output_dir={trained}")
  assert done.returncode == 2
  assert "takes a directory of its own" in done.stderr
  assert (trained / "config.json").read_bytes() == before


def test_only_cells_of_one_group_are_paired():
  """A gap of 1 in the first cell, 3 in the second, 5 in a third of another group."""
  rows = [(name, trial) for name in "abc" for trial in (0, 1)]
  gaps = {"a": 1.0, "b": 3.0, "c": 5.0}
  head = [("x", "U1"), ("trial", int)]
  own = types.SimpleNamespace(
    coordinates=("x",),
    table=np.array([(*row, "reached") for row in rows], [*head, ("outcome", "U8")]),
    probes=np.array([(*row, gaps[row[0]]) for row in rows], [*head, ("gap", float)]),
    cell_of=lambda row: row["x"].item(),
  )
  groups = {"a": 0, "b": 0, "c": 1}
  found = summarise_paired(own, groups, differences=("gap",), ratios=())
  assert [cell["gap_change"] for cell in found] == [0.0, 2.0, 0.0]
  assert [cell["pairs"] for cell in found] == [2, 2, 2]
