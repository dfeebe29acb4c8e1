"""Other people's executors run shares; a worker of theirs is killed and started again."""

import pathlib
import subprocess
import sys

import pytest

from tests.programs import ROOT
from tests.retried import work
from tests.test_shares import content, measured

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  path = tmp_path_factory.mktemp("whole")
  measured(path)
  return content(path)


def test_submitit(tmp_path, whole, monkeypatch):
  submitit = pytest.importorskip("submitit")
  monkeypatch.setenv("PYTHONPATH", str(ROOT))
  executor = submitit.AutoExecutor(tmp_path / "logs", cluster="local")
  executor.update_parameters(timeout_min=10)
  path, again = str(tmp_path / "run"), 0
  jobs = {k: executor.submit(work, k, 2, path) for k in range(2)}
  while jobs:
    for k, job in list(jobs.items()):
      if job.exception() is None:
        del jobs[k]
      else:
        again += 1
        assert again == 1, job.stderr()
        jobs[k] = executor.submit(work, k, 2, path)
  assert again == 1
  measured(path)
  assert content(pathlib.Path(path)) == whole


def test_ray(tmp_path, whole):
  ray = pytest.importorskip("ray")
  ray.init(
    num_cpus=2, include_dashboard=False, log_to_driver=False,
    runtime_env={"env_vars": {"PYTHONPATH": str(ROOT)}},
  )  # fmt: skip
  try:
    path = str(tmp_path / "run")
    task = ray.remote(max_retries=3)(work)
    ray.get([task.remote(k, 3, path) for k in range(3)])
    assert pathlib.Path(f"{path}.killed").exists()
  finally:
    ray.shutdown()
  measured(path)
  assert content(pathlib.Path(path)) == whole


OWN = """
import dataclasses

import flax.linen as nn

import sepfx
from sepfx.tasks import QSTR


@dataclasses.dataclass(frozen=True)
class Task(QSTR):
  token_dim: int = 2
  codes: str = "distinct"


class Mixer(nn.Module):
  width: int = 3

  @nn.compact
  def __call__(self, inputs):
    return nn.Dense(1)(nn.relu(nn.Dense(self.width)(inputs)))[..., 0]


def measured(share=None):
  protocol = sepfx.Online(
    thresholds=(0.9,), batch_size=8, check_every=1, num_test=50, max_samples=80
  )
  return sepfx.measure(
    Task(), Mixer(), [2], protocol, num_trials=2, directory="run", share=share,
    progress=False,
  )


def work(index):
  measured((index, 2))
"""
SUBMITIT = """
import submitit

executor = submitit.AutoExecutor("logs", cluster="local")
for job in [executor.submit(work, k) for k in range(2)]:
  job.result()
"""
RAY = """
import ray

ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
task = ray.remote(work)
ray.get([task.remote(k) for k in range(2)])
ray.shutdown()
"""


@pytest.mark.parametrize("executor", [SUBMITIT, RAY])
def test_task_and_model_of_the_script_itself(tmp_path, monkeypatch, executor):
  monkeypatch.setenv("PYTHONPATH", str(ROOT))
  script = tmp_path / "script.py"
  script.write_text(f"{OWN}{executor}print(measured().complete)\n")
  run = subprocess.run(
    [sys.executable, script.name], cwd=tmp_path, capture_output=True, text=True
  )
  assert run.stdout.splitlines()[-1:] == ["True"], run.stderr
  assert "nothing tells" not in run.stderr
