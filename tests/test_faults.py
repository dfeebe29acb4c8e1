"""Bad luck: whatever happens to the machine, what was recorded stays, and a run goes on.

The long ones carry the marker `faults`, which the default run leaves out.
"""

import csv
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.programs import ROOT, complete, finish, start

GRID = (
  "--models=tests.small:transformer,tests.small:ffn,tests.small:gru", "--lengths=3",
  "--num_trials=5", "--thresholds=0.9,0.6", "--check_every=20", "--max_samples=128000",
  "--checkpoint_every_seconds=1",
)  # fmt: skip
# One cell whose trials never reach a threshold: it lasts.
LASTING = (
  "--models=tests.small:Linear", "--lengths=3", "--num_trials=3", "--thresholds=0.3",
  "--check_every=60", "--max_samples=2400000", "--checkpoint_every_seconds=1",
)  # fmt: skip


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
  return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, cache):
  """What the grid gives when nothing happens: trials.csv."""
  path = tmp_path_factory.mktemp("undisturbed")
  complete(path, *GRID, cache=cache)
  return (path / "trials.csv").read_bytes()


@pytest.fixture(scope="module")
def lasting(tmp_path_factory, cache):
  path = tmp_path_factory.mktemp("lasting")
  complete(path, *LASTING, cache=cache)
  return (path / "trials.csv").read_bytes()


def await_file(directory, pattern, process, timeout=120):
  """Waits until a file that matches is there."""
  end = time.monotonic() + timeout
  while not list(pathlib.Path(directory).glob(pattern)):
    assert process.poll() is None, finish(process)
    assert time.monotonic() < end
    time.sleep(0.05)


def await_checkpoint(directory, process, number=0):
  await_file(directory, f"checkpoints/lanes-{number}.sha256", process)


@pytest.mark.faults
def test_slices_of_a_run_come_to_what_it_is_at_once(tmp_path, cache, lasting):
  """Each half as long again: one ends amid training, a third of the run at least."""
  place, minutes, amid = tmp_path / "run", 0.02, 0
  while True:
    process = start(place, *LASTING, f"--max_minutes={minutes}", cache=cache)
    code, errors = finish(process)
    if code == 0:
      break
    assert code == 75
    assert "the time is up, stopping" in errors
    amid += (place / "checkpoints/lanes-0.sha256").exists()
    place = place.rename(tmp_path / f"carried_{minutes}")
    minutes *= 1.5
  assert amid
  assert (place / "trials.csv").read_bytes() == lasting


@pytest.mark.faults
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_run_and_the_same_command_goes_on(
  tmp_path, cache, lasting, number
):
  process = start(tmp_path, *LASTING, cache=cache)
  await_checkpoint(tmp_path, process)
  process.send_signal(number)
  code, errors = finish(process, timeout=10)
  assert code == 75, errors
  assert "the same command goes on from here" in errors
  complete(tmp_path, *LASTING, cache=cache)
  assert (tmp_path / "trials.csv").read_bytes() == lasting
  assert not (tmp_path / "checkpoints").exists()


@pytest.mark.slow
def test_a_second_interrupt_ends_at_once(tmp_path, cache):
  # While it compiles: the first would wait for the compilation.
  process = start(tmp_path, *LASTING, cache=cache / "nothing")
  await_file(tmp_path, "config.json", process)
  process.send_signal(signal.SIGINT)
  time.sleep(0.3)
  process.send_signal(signal.SIGINT)
  code, _ = finish(process, timeout=5)
  assert code == 130


@pytest.mark.faults
def test_ten_kills_at_random_moments(tmp_path, cache, undisturbed):
  rng = random.Random(0)
  kills = 0
  while True:
    process = start(tmp_path, *GRID, cache=cache)
    try:
      # A start takes some seconds; most of the kills come after it.
      code, errors = finish(process, timeout=rng.uniform(1, 8) if kills < 10 else 300)
      assert code == 0, errors
      if kills == 10:
        break
      # Done before the kills were: begin again.
      assert (tmp_path / "trials.csv").read_bytes() == undisturbed
      for file in tmp_path.iterdir():
        file.unlink()
    except subprocess.TimeoutExpired:
      process.kill()
      process.communicate()
      kills += 1
  assert (tmp_path / "trials.csv").read_bytes() == undisturbed


@pytest.mark.faults
@pytest.mark.parametrize("number", range(3))
def test_a_truncated_checkpoint(tmp_path, cache, lasting, number):
  rng = random.Random(number)
  process = start(tmp_path, *LASTING, cache=cache)
  await_checkpoint(tmp_path, process, number=1)
  process.kill()
  process.communicate()
  last = max(tmp_path.glob("checkpoints/lanes-*.sha256"), key=lambda p: p.stat().st_mtime)
  files = [file for file in last.with_suffix("").rglob("*") if file.is_file()]
  file = rng.choice([file for file in files if file.stat().st_size])
  content = file.read_bytes()
  file.write_bytes(content[: rng.randrange(len(content))])
  code, errors = finish(start(tmp_path, *LASTING, cache=cache))
  assert code == 0, errors
  assert "is damaged: set aside" in errors
  assert (tmp_path / "trials.csv").read_bytes() == lasting


@pytest.fixture
def small_disk(tmp_path):
  """A disk too small for a figure and a function that enlarges it; any user may mount it.

  It is mounted in a namespace of its own, and reached through the process that holds it.
  """
  inside = tmp_path / "disk"
  inside.mkdir()
  script = f"mount -t tmpfs -o size=128k tmpfs '{inside}' && echo mounted && exec cat"
  own_namespace = ["unshare", "--map-root-user", "--mount", "sh", "-c", script]
  with subprocess.Popen(
    own_namespace, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
  ) as holder:
    assert holder.stdout.readline() == "mounted\n"

    def enlarge():
      enter = f"--target={holder.pid} --user --mount --preserve-credentials".split()
      remount = ["mount", "-o", "remount,size=100m", str(inside)]
      subprocess.run(["nsenter", *enter, *remount], check=True)

    yield pathlib.Path(f"/proc/{holder.pid}/root{inside}"), enlarge
    holder.stdin.close()


@pytest.mark.faults
def test_a_full_disk(small_disk, cache, undisturbed):
  disk, enlarge = small_disk
  settings = (*GRID, "--checkpoint_every_seconds=0.2")
  kept = set()
  for _ in range(2):
    code, errors = finish(start(disk / "run", *settings, cache=cache))
    assert code == 74, errors
    # Anywhere: the threads of orbax write to stderr at the same time.
    assert re.search("error: .*No space left on device", errors), errors
    assert "what was recorded is kept" in errors
    rows = (disk / "run/trials.csv").read_text().splitlines()
    assert kept <= set(rows)
    kept = {row for row in rows if row.endswith(("reached", "censored"))}
  enlarge()
  complete(disk / "run", *settings, cache=cache)
  assert kept <= set(undisturbed.decode().splitlines())
  assert (disk / "run/trials.csv").read_bytes() == undisturbed


@pytest.mark.faults
def test_a_directory_that_becomes_unwritable(tmp_path, cache, lasting):
  # Root may write anywhere, unless it gives that right up.
  rights = "--bounding-set=-dac_override,-dac_read_search"
  drop = ["setpriv", rights] if os.geteuid() == 0 else []
  run = tmp_path / "run"
  process = start(run, *LASTING, cache=cache, launcher=drop)
  await_checkpoint(run, process)
  for directory in (run, run / "checkpoints"):
    directory.chmod(0o555)
  code, errors = finish(process)
  assert code == 74, errors
  assert "Permission denied" in errors
  code, errors = finish(start(run, *LASTING, cache=cache, launcher=drop))
  assert code != 0
  assert "error: " in errors
  for directory in (run, run / "checkpoints"):
    directory.chmod(0o755)
  complete(run, *LASTING, cache=cache, launcher=drop)
  assert (run / "trials.csv").read_bytes() == lasting


@pytest.mark.faults
@pytest.mark.parametrize("begun_anew", [False, True])
def test_a_directory_that_is_moved_during_a_run(tmp_path, cache, lasting, begun_anew):
  run, moved = tmp_path / "run", tmp_path / "moved"
  process = start(run, *LASTING, cache=cache)
  await_checkpoint(run, process)
  run.rename(moved)
  other = start(run, *LASTING, cache=cache) if begun_anew else None
  code, errors = finish(process)
  assert code == 74, errors
  assert f"{run} was removed or moved while this run was using it" in errors
  if other:
    assert finish(other)[0] == 0
    assert (run / "trials.csv").read_bytes() == lasting
  else:
    assert not run.exists()
  complete(moved, *LASTING, cache=cache)
  assert (moved / "trials.csv").read_bytes() == lasting


@pytest.mark.faults
@pytest.mark.parametrize(
  ("experiment", "number"), [("sample_complexity", 2), ("boolean_sample_complexity", 1)]
)
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_file_operations_that_are_struck(tmp_path, experiment, number):
  """A sample of what `benchmarks.file_faults` tries, spread evenly over a run."""
  command = [
    sys.executable, "-m", "benchmarks.file_faults", f"--experiment={experiment}",
    f"--number={number}", f"--faults_dir={tmp_path}",
  ]  # fmt: skip
  done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
  assert done.returncode == 0, done.stdout + done.stderr
  with open(tmp_path / f"{experiment}.csv") as file:
    tried = {row["fault"] for row in csv.DictReader(file) if row["operation"]}
  assert tried == {"kill", "full", "eio"}


@pytest.mark.faults
@pytest.mark.parametrize("devices", [1, 4])
def test_a_checkpoint_of_two_devices_goes_on_elsewhere(tmp_path, cache, lasting, devices):
  process = start(tmp_path, *LASTING, cache=cache, devices=2)
  await_checkpoint(tmp_path, process)
  process.terminate()
  assert finish(process)[0] == 75
  complete(tmp_path, *LASTING, cache=cache, devices=devices)
  assert (tmp_path / "trials.csv").read_bytes() == lasting


@pytest.mark.faults
@pytest.mark.parametrize(
  "layout", [(1, 0), (2, 2), (2, 8), (4, 0)], ids=lambda layout: "{}x{}".format(*layout)
)
def test_devices_and_lanes_do_not_matter(tmp_path, cache, undisturbed, layout):
  devices, lanes = layout
  complete(tmp_path, *GRID, f"--lanes={lanes}", cache=cache, devices=devices)
  assert (tmp_path / "trials.csv").read_bytes() == undisturbed


@pytest.mark.faults
def test_the_grid_is_worth_disturbing(undisturbed):
  rows = undisturbed.decode().splitlines()[1:]
  assert len(rows) == 3 * 5 * 2
  outcomes = np.array([row.rsplit(",", 1)[1] for row in rows])
  assert np.mean(outcomes == "reached") > 0.3
