"""Several processes of one run: when one fails, all end, soon and in words.

A case of each kind that `benchmarks.process_faults` measures, and what one process can
do to the others alone.
"""

import dataclasses
import os
import subprocess

import pytest

from benchmarks.process_faults import CASES, finished, measured
from tests.programs import finish, start
from tests.test_faults import LASTING, await_file, together

SHORT = (*LASTING, "--max_samples=24000")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
  return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, cache):
  found = finished(tmp_path_factory.mktemp("undisturbed"), cache, 1)
  assert found
  return found


def row_of(name, tmp_path, cache, undisturbed, again=(), **settings):
  (case,) = (case for case in CASES if case.name == name)
  if case.kind == "alone":
    case = dataclasses.replace(case, arguments=("--start_timeout=12",))
  (tmp_path / "cache").symlink_to(cache)
  return measured(case, tmp_path, undisturbed, again, **settings)


def seconds(text):
  return max(map(float, text.split()))


@pytest.mark.faults
@pytest.mark.parametrize(
  ("name", "words"),
  [
    ("kill 0, the first checkpoint's header", "error: the first process of this run was"),
    ("kill 1, the last row is written", "error: process 1 of this run was lost"),
    ("kill 1, curves.npz is written", "error: process 1 of this run was lost"),
  ],
)
def test_a_process_is_killed(tmp_path, cache, undisturbed, name, words):
  row = row_of(name, tmp_path, cache, undisturbed, again=[2])
  assert row["exit codes"] == "75 -9"
  assert row["words"].startswith(words)
  assert seconds(row["seconds until end"]) < 60
  assert row["same with two"] == "yes"


@pytest.mark.faults
@pytest.mark.parametrize("whom", [0, 1])
def test_a_process_is_stopped(tmp_path, cache, undisturbed, whom):
  name = f"stop {whom}, the first checkpoint is whole"
  settings = {"again": [1], "stopped_seconds": 55.0}
  row = row_of(name, tmp_path, cache, undisturbed, **settings)
  assert row["exit codes"] == "75 75"
  assert row["words"].startswith("waiting for ")
  assert seconds(row["seconds until words"]) < 60
  assert seconds(row["seconds until end"]) < 60
  assert row["same with one"] == "yes"


@pytest.mark.faults
@pytest.mark.parametrize("whom", [0, 1])
def test_a_process_starts_alone(tmp_path, cache, whom):
  row = row_of(f"alone {whom}, ", tmp_path, cache, b"")
  assert row["exit codes"] == "75"
  assert f"process {whom} of 2 is waiting for " in row["words"]


@pytest.mark.faults
@pytest.mark.parametrize(
  ("unlike", "words"),
  [
    ("--seed=1", "error: --seed: got '1', takes 0, as the first process has"),
    ("--learning_rate=0.02", "error: --learning_rate: got '0.02', takes 0.01, as the"),
    ("--num_trials=4", "error: --num_trials: got '4', takes 3, as the first process"),
    ("--output_dir={other}", "error: --output_dir: got '/other', takes /run, as the"),
    ("--process_id=0", "error: --process_id: got '0', takes a number that no other"),
    ("--num_processes=3", "error: --num_processes: got '3', takes 2, as the first"),
  ],
)
def test_two_processes_are_unlike(tmp_path, cache, unlike, words):
  row = row_of(f"unlike 1, {unlike}", tmp_path, cache, b"")
  assert row["exit codes"] == "2 2"
  assert row["words"].split(" | ")[1].startswith(words)
  assert seconds(row["seconds until end"]) < 60
  assert not (tmp_path / "run").exists()


def ends(processes):
  """Exit codes and the last line of each."""
  found = [finish(process, timeout=120) for process in processes]
  return [code for code, _ in found], [errors for _, errors in found]


@pytest.mark.faults
def test_the_first_process_refuses_its_directory(tmp_path, cache):
  (tmp_path / "something").touch()
  codes, (first, second) = ends(together(tmp_path, 2, *SHORT, cache=cache, devices=1))
  assert codes == [2, 2]
  own = f"error: --output_dir: got '{tmp_path}', takes an empty directory"
  assert own in first
  assert f"process 0 of this run ended it: {own}" in second


@pytest.mark.faults
def test_the_first_process_cannot_write_what_it_drew(tmp_path, cache):
  processes = together(tmp_path, 2, *SHORT, cache=cache, devices=1)
  await_file(tmp_path, "config.json", processes[0])
  (tmp_path / "figure.pdf" / "in the way").mkdir(parents=True)
  codes, (first, second) = ends(processes)
  assert codes == [74, 74]
  own = f"'{tmp_path}/figure.pdf'"
  assert own in first
  assert "process 0 of this run ended it: error: " in second
  assert own in second


@pytest.mark.faults
def test_a_directory_that_is_not_shared(tmp_path, cache):
  tmp_path.joinpath("run").mkdir()
  script = f"mount -t tmpfs tmpfs '{tmp_path}/run' && exec \"$@\""
  elsewhere = ["unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh"]
  first, second = together(
    tmp_path / "run", 2, *SHORT, cache=cache, devices=1, launchers=[(), elsewhere]
  )
  codes, errors = ends([first, second])
  assert codes == [2, 2]
  for words in errors:
    assert "takes a directory that all processes share; process 1 does not see" in words
  assert {file.name for file in (tmp_path / "run").iterdir()} == {".lock"}


@pytest.mark.faults
def test_processes_find_one_another_under_slurm(tmp_path, cache, monkeypatch):
  """As JAX does it: by what SLURM leaves in the environment."""
  monkeypatch.setenv("SLURM_JOB_ID", str(10_000 + os.getpid() % 4096))
  monkeypatch.setenv("SLURM_STEP_NODELIST", "localhost")
  monkeypatch.setenv("SLURM_NTASKS", "2")
  processes = []
  for k, seed in enumerate((0, 1)):
    monkeypatch.setenv("SLURM_PROCID", str(k))
    monkeypatch.setenv("SLURM_LOCALID", str(k))
    own = (*SHORT, "--distributed", f"--seed={seed}")
    processes.append(start(tmp_path / "run", *own, cache=cache, devices=1))
  codes, errors = ends(processes)
  assert codes == [2, 2]
  assert "error: --seed: got '1', takes 0, as the first process has" in errors[1]


@pytest.mark.faults
def test_memory_that_does_not_suffice(tmp_path, cache):
  limited = ["sh", "-c", 'ulimit -v 8000000 && exec "$@"', "sh"]
  settings = (*SHORT, "--num_test=20000000", "--token_dim=10")
  code, errors = finish(start(tmp_path, *settings, cache=cache, launcher=limited))
  assert code == 71
  assert "out of memory: tests.small:Linear length=3 with 1 lane per device" in errors
  assert "what was recorded is kept" in errors
  assert "Traceback" not in errors


@pytest.mark.faults
def test_a_pipe_that_is_closed_does_not_end_a_run(tmp_path, cache):
  process = start(tmp_path, *SHORT, "--noquiet", cache=cache)
  head = subprocess.run(["head", "-c1"], stdin=process.stdout, capture_output=True)
  process.stdout.close()
  assert head.stdout
  assert process.wait(timeout=300) == 0
  assert (tmp_path / "summary.json").exists()
