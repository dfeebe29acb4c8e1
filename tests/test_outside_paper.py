"""A paper that somebody else adds: a package with a task, a model, a study, a preset."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]

LEARNED = '''
"""On which side of a hidden plane a vector lies, and who learns it."""

import dataclasses
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from sepfx.tasks import CLASSIFICATION


class Sample(NamedTuple):
  vectors: jax.Array
  labels: jax.Array


@dataclasses.dataclass(frozen=True)
class Side:
  length: int = 4
  objective = CLASSIFICATION
  name = "side"

  def init(self, key):
    return jax.random.normal(key, (self.length,))

  def sample(self, key, planted, n):
    vectors = jax.random.normal(key, (n, self.length))
    return Sample(vectors, (vectors @ planted > 0).astype(jnp.int32))

  def encode(self, planted, sample):
    return sample.vectors

  def best_constant_error(self):
    return 0.5

  def check_draw(self, keys):
    pass


class Plane(nn.Module):
  @nn.compact
  def __call__(self, vectors):
    return nn.Dense(2)(vectors)
'''

STUDY = '''
"""How many vectors tell on which side of a plane they lie?"""

import dataclasses

from planes.learned import Plane, Side
from sepfx.commands import program
from sepfx.drawing import figures
from sepfx.statistics import Level, summarise
from sepfx.studies import study, tables
from sepfx.studies.parts import made_from, optimizer_from
from sepfx.studies.settings import Common, setting
from sepfx.training import Online

LEVELS = [Level(0.2)]

@dataclasses.dataclass(frozen=True)
class Settings(Common):
  length: int = setting((2, 4), "N, coordinates.", flag="lengths", kind="grid")
  num_trials: int = setting(2, "Trials of each cell.", kind="count")
  max_samples: int = setting(100_000, "Vectors that a trial has.", kind="budget")

def build(settings):
  task, optimizer = made_from(settings, Side), optimizer_from(settings)
  own = made_from(settings, Online, optimizer=optimizer, thresholds=(0.2,), num_test=500)
  return own.trial(task, task, Plane(), "plane")

def risk(run):  # nothing to hold errors against
  return run.per_row(lambda trial: None)

STUDY = study.Study(
  Settings, build, output_dir="runs/sides", table=tables.means,
  summarise=lambda run: summarise(
    run.records, LEVELS, run.checks(), risk(run), run.keys(), run.against),
  draw=lambda run, summary: figures.sample_complexity(
    run.records, LEVELS, summary, risk(run), {}, run.against))

if __name__ == "__main__":
  program.main(STUDY)
'''

PRESET = """# Two lengths, in seconds.
#
#     sepfx sides --preset=quick
--lengths=2,3
--learning_rate=0.03
"""


@pytest.fixture
def outside(tmp_path):
  """Runs `sepfx` where another distribution is installed, in a directory of its own."""
  site = tmp_path / "site"
  package = site / "planes"
  (package / "flags").mkdir(parents=True)
  (package / "__init__.py").write_text("")
  (package / "learned.py").write_text(LEARNED)
  (package / "study.py").write_text(STUDY)
  (package / "flags/quick.cfg").write_text(PRESET)
  (site / "broken.py").write_text("def (")
  told = site / "planes-1.0.dist-info"
  told.mkdir()
  (told / "METADATA").write_text("Metadata-Version: 2.1\nName: planes\nVersion: 1.0\n")
  (told / "entry_points.txt").write_text(
    "[sepfx.studies]\n"
    "sides = planes.study\n"
    "broken = broken\n"
    "gone = planes.nowhere\n"
    "parity = planes.other\n"
  )
  (tmp_path / "empty").mkdir()

  def sepfx(*arguments):
    return subprocess.run(
      [sys.executable, "-m", "experiments", *arguments],
      cwd=tmp_path / "empty", capture_output=True, text=True,
      env={**os.environ, "PYTHONPATH": f"{site}:{ROOT}"},
    )  # fmt: skip

  return sepfx


def test_the_study_is_short():
  assert len(STUDY.strip().splitlines()) < 40


def test_studies_of_others_are_listed_and_broken_ones_named(outside):
  done = outside("--help")
  assert done.returncode == 0
  lines = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}
  assert "How many vectors tell on which side" in lines["sides"]
  assert "(cannot be run: invalid syntax" in lines["broken"]
  assert "(cannot be run: no module planes.nowhere)" in lines["gone"]
  assert "When does a Transformer learn a sparse parity?" in done.stdout
  assert "another study is called parity" in done.stdout
  refused = outside("gone")
  assert refused.returncode == 2
  assert "error: no study 'gone': no module planes.nowhere" in refused.stderr


def test_its_help_has_its_preset(outside):
  done = outside("sides", "--help")
  assert "Presets: quick" in done.stdout
  assert "--lengths=2,4" in done.stdout
  assert outside("sides", "--preset=quick", "--help").stdout == PRESET


def test_it_runs_and_draws(outside, tmp_path):
  done = outside("sides", "--preset=quick", "--num_trials=1", "--quiet")
  assert done.returncode == 0, done.stderr
  there = tmp_path / "empty/runs/sides"
  assert (there / "figure.png").stat().st_size > 10_000
  assert len((there / "trials.csv").read_text().splitlines()) == 3
