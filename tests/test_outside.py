"""A task, a model and a probe from outside, each in one file, on the command line."""

import csv
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import sepfx
from sepfx import InvalidSetting

ROOT = pathlib.Path(__file__).parent.parent

TASK = '''
import dataclasses
from typing import NamedTuple
import jax
import jax.numpy as jnp
import sepfx
from sepfx.tasks import REGRESSION

class Sample(NamedTuple):
  inputs: jax.Array
  labels: jax.Array

@sepfx.lanewise("spread")
@dataclasses.dataclass(frozen=True)
class Sums:
  """Each label is a planted multiple of the sum of the prompt's numbers."""
  length: int = 4
  spread: float = 1.0
  objective = REGRESSION
  name = "sums"

  def init(self, key):
    return jax.random.normal(key)

  def sample(self, key, planted, n):
    inputs = self.spread * jax.random.normal(key, (n, self.length, 1))
    labels = planted * jnp.sum(inputs, axis=(1, 2)) / jnp.sqrt(self.length)
    return Sample(inputs, jnp.broadcast_to(labels[:, None], (n, self.length)))

  def encode(self, planted, sample):
    return sample.inputs

  def best_constant_error(self):
    return self.spread**2

  def check_draw(self, keys):
    pass
'''
MODEL = """
import flax.linen as nn

class Mixer(nn.Module):
  width: int = 4

  @nn.compact
  def __call__(self, inputs):
    hidden = nn.Dense(self.width)(inputs.reshape(len(inputs), -1))
    return nn.Dense(inputs.shape[1])(hidden)
"""
PROBE = """
import jax
import jax.numpy as jnp

def largest(trial, params, world, key):
  values = [jnp.max(jnp.abs(a)) for a in jax.tree.leaves(params)]
  return {"largest_weight": jnp.max(jnp.stack(values)), "planted": world.planted}
"""


@pytest.fixture
def lab(tmp_path):
  package = tmp_path / "lab"
  package.mkdir()
  files = {"__init__.py": "", "tasks.py": TASK, "mixers.py": MODEL, "probes.py": PROBE}
  for name, text in files.items():
    (package / name).write_text(text)
  return tmp_path


def run(directory, *arguments):
  command = [sys.executable, "-m", "experiments.sample_complexity", *arguments]
  environment = {**os.environ, "PYTHONPATH": str(ROOT)}
  return subprocess.run(
    command, cwd=directory, env=environment, capture_output=True, text=True
  )


SMALL = (
  "--task=lab.tasks:Sums", "--models=lab.mixers:Mixer", "--lengths=3", "--num_trials=2",
  "--thresholds=0.05", "--batch_size=16", "--num_test=100", "--max_samples=1600",
  "--learning_rate=0.03", "--quiet", "--output_dir=out",
)  # fmt: skip


@pytest.mark.slow
def test_task_model_and_probe_from_outside(lab):
  done = run(
    lab, *SMALL, "--spread=0.5,1", "--width=4,8", "--probes=lab.probes:largest,norms"
  )
  assert done.returncode == 0, done.stderr
  with open(lab / "out/trials.csv") as file:
    rows = list(csv.DictReader(file))
  assert list(rows[0])[:6] == ["task", "model", "length", "spread", "width", "trial"]
  assert {(row["spread"], row["width"]) for row in rows} == {
    ("0.5", "4"), ("0.5", "8"), ("1.0", "4"), ("1.0", "8"),
  }  # fmt: skip
  records = sepfx.load(lab / "out")
  assert records.coordinates == ("task", "model", "length", "spread", "width")
  assert records.probes["largest_weight"].shape == (8,)
  # Cells that differ in an axis are paired: they have planted the same.
  for trial in (0, 1):
    planted = records.probes["planted"][records.probes["trial"] == trial]
    assert len(set(planted.tolist())) == 1
  assert len(records.curves(spread=0.5, width=8)) == 2
  settings = json.loads((lab / "out/config.json").read_text())["settings"]
  assert (settings["spread"], settings["width"]) == ([0.5, 1.0], [4, 8])
  names = records.probes.dtype.names
  assert "norm_Dense_0_kernel" in names


@pytest.mark.slow
@pytest.mark.parametrize(
  ("argument", "message"),
  [
    ("--widht=4", "--widht: got 4, takes a field of the task sums, the model"),
    ("--width=4.5", "--width: got '4.5', takes an integer"),
    ("--token_dim=3", "--token_dim: got 3, takes its default with the task lab"),
    ("--task=lab.tasks:Sums:spread=wide", "takes a number"),
    ("--task=lab.tasks:Product", "--task: got 'lab.tasks:Product', takes qstr"),
    ("--probes=lab.probes:smallest", "--probes: got 'lab.probes:smallest', takes norms"),
    ("--width", "takes a flag"),
  ],
)
def test_what_is_wrong_is_named(lab, argument, message):
  done = run(lab, *SMALL, argument)
  assert done.returncode == 2, done.stderr
  assert message in done.stderr
  assert not (lab / "out").exists()


def scalar(trial, params, world, key):
  return {"one": np.float32(1)}


@pytest.mark.parametrize(
  ("probe", "message"),
  [
    (lambda t, p, w, k: np.float32(1), "takes a probe that returns .* a dict"),
    (lambda t, p, w, k: {"v": np.zeros(2)}, r"\(v is \(2,\) of float"),
    (lambda t, p, w, k: {"v": "text"}, "it raised: .*type <class 'str'>"),
    (lambda t, p, w, k: {"v": np.bool_(True)}, "v is .* of bool"),
    (lambda t, p, w, k: {"v": p["nothing"]}, "it raised"),
    ([scalar, lambda t, p, w, k: scalar(t, p, w, k)], "names not scalar's: one"),
    (["norms", "norms"], "each probe once"),
    ("norm", f"takes {', '.join(sepfx.probes.NAMES)} or package.module:function"),
    (lambda t, p, w, k: {"length": np.float32(1)}, "of the records' columns: length"),
    (lambda t, p, w, k: {"trial": np.float32(1)}, "of the records' columns: trial"),
    (lambda t, p, w, k: {"task": np.float32(1)}, "of the records' columns: task"),
    (lambda t, p, w, k: {"l2": np.float32(1)}, "of the records' columns: l2"),
    (lambda t, p, w, k: {"a\nb": np.float32(1)}, r"by name, not by 'a\\nb'"),
    (lambda t, p, w, k: {"": np.float32(1)}, "by name, not by ''"),
    ("risk:lenght=4", "got 'risk:lenght', takes num_samples or a field of the task "),
    ("risk:noise=0.1", "takes num_samples or a field of the task qstr"),
    (
      "risk:codes=distinct",
      "got 'risk:codes', takes .* on qstr, which is no task of tok",
    ),
    ("span", "takes a protocol with a fixed sample"),
  ],
)
def test_bad_probes_are_refused_before_anything_compiles(probe, message):
  with pytest.raises(InvalidSetting, match=message):
    sepfx.measure(
      sepfx.tasks.QSTR(token_dim=2), "transformer", 3, probes=probe, axes={"l2": [0.1]}
    )
