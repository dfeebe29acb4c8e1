"""Other people's executors run shares; a worker of theirs is killed and started again."""

import pathlib

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
