"""run_tpu.sh, against a program that stands in for gcloud."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parent.parent
VM = ("--name=probe", "--zone=us-central1-a", "--type=v5litepod-8")
FLAGS = ("--", "--flagfile=experiments/flags/fig1a.cfg")

# Keeps the VM's state in the file `state` and every call in `calls`; runs the VM's
# scripted fate: one line of `launches` a launch, its exit code and the state after it.
GCLOUD = r"""#!/usr/bin/env bash
cd "$(dirname "$0")"
echo "$*" >> calls
case "$4" in
  create) echo READY > state ;;
  delete) rm state ;;
  describe) cat state ;;
  scp) case "$*" in
      *probe:sepfx-run\ *) mkdir "$6" && echo fetched > "$6/trials.csv" ;;
    esac ;;
  ssh) case "$*" in
      *test\ -e*) exit 1 ;;
      *experiments.sample_complexity*)
        read -r code after < launches
        sed -i 1d launches
        echo "$after" > state
        exit "$code" ;;
    esac ;;
esac
"""


def call(tmp_path, *arguments, launches=(), state=None):
  stand_in = tmp_path / "bin"
  stand_in.mkdir(exist_ok=True)
  (stand_in / "gcloud").write_text(GCLOUD)
  (stand_in / "gcloud").chmod(0o755)
  (stand_in / "launches").write_text("".join(line + "\n" for line in launches))
  if state:
    (stand_in / "state").write_text(state)
  done = subprocess.run(
    [ROOT / "run_tpu.sh", *arguments], capture_output=True, text=True, timeout=60,
    env={**os.environ, "PATH": f"{stand_in}:{os.environ['PATH']}"},
  )  # fmt: skip
  calls = stand_in / "calls"
  verbs = [line.split()[3] for line in calls.read_text().splitlines()
           if line.startswith("compute")] if calls.exists() else []  # fmt: skip
  return done, verbs


def results(tmp_path):
  return f"--results={tmp_path / 'results'}"


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (VM[1:] + FLAGS, "--name: got ''"),
    (("--name=Probe", *VM[1:], *FLAGS), "--name: got 'Probe'"),
    ((VM[0], VM[2], *FLAGS), "--zone: got ''"),
    ((VM[0], "--zone=us", VM[2], *FLAGS), "--zone: got 'us'"),
    ((*VM[:2], *FLAGS), "--type: got ''"),
    ((*VM[:2], "--type=v5litepod-16", *FLAGS), "--shared_dir: missing"),
    ((*VM, "--fetch_every=0", *FLAGS), "--fetch_every: got '0'"),
    ((*VM, "--launches=none", *FLAGS), "--launches: got 'none'"),
    ((*VM, "--models=gru"), "unknown setting --models=gru"),
    (VM, "no flags for the experiment"),
    ((*VM, *FLAGS, "--output_dir=here"), "--output_dir=here: set by this script"),
  ],
)
def test_bad_settings_stop_it_before_anything_is_created(tmp_path, arguments, message):
  done, verbs = call(tmp_path, *arguments)
  assert done.returncode == 2
  assert message in done.stderr
  assert not verbs


def test_a_dry_run_prints_every_command_and_runs_none(tmp_path):
  done, verbs = call(tmp_path, *VM, "--spot", "--dry_run", results(tmp_path), *FLAGS)
  assert done.returncode == 0, done.stderr
  assert not verbs
  printed = [line.split() for line in done.stdout.splitlines() if "gcloud" in line]
  assert [line[4] for line in printed] == [
    "describe", "create", "scp", "ssh", "ssh", "scp", "delete",
  ]  # fmt: skip
  assert "--spot" in done.stdout
  assert "--flagfile=experiments/flags/fig1a.cfg" in done.stdout
  assert "--distributed" not in done.stdout  # one worker
  assert not (tmp_path / "results").exists()
  many = (*VM[:2], "--type=v5litepod-16", "--shared_dir=/nfs/run", "--dry_run")
  done, _ = call(tmp_path, *many, results(tmp_path), *FLAGS)
  assert done.returncode == 0, done.stderr
  assert "--distributed" in done.stdout


def test_it_creates_runs_fetches_and_deletes(tmp_path):
  done, verbs = call(tmp_path, *VM, results(tmp_path), *FLAGS, launches=["0 READY"])
  assert done.returncode == 0, done.stderr
  assert verbs == ["describe", "create", "scp", "ssh", "ssh", "scp", "delete"]
  assert (tmp_path / "results/trials.csv").read_text() == "fetched\n"


def test_it_survives_a_preemption(tmp_path):
  done, verbs = call(
    tmp_path, *VM, results(tmp_path), *FLAGS, launches=["75 PREEMPTED", "0 READY"]
  )
  assert done.returncode == 0, done.stderr
  once = ["scp", "ssh", "ssh", "scp"]
  # The second VM is given what was fetched from the first.
  again = ["scp", "ssh", "ssh", "scp", "ssh", "scp"]
  assert verbs == [
    "describe", "create", *once, "describe", "delete", "create", *again, "delete",
  ]  # fmt: skip


def test_a_vm_that_was_there_stays(tmp_path):
  done, verbs = call(
    tmp_path, *VM, results(tmp_path), *FLAGS, launches=["0 READY"], state="READY"
  )
  assert done.returncode == 0, done.stderr
  assert "create" not in verbs
  assert "delete" not in verbs


@pytest.mark.parametrize("code", [2, 1])
def test_what_it_created_is_deleted_when_it_fails(tmp_path, code):
  done, verbs = call(
    tmp_path, *VM, results(tmp_path), "--launches=2", *FLAGS,
    launches=[f"{code} READY"] * 2,
  )  # fmt: skip
  assert done.returncode == 2
  assert ("refused its settings" if code == 2 else "gave up") in done.stderr
  assert verbs[-1] == "delete"


def test_it_is_kept_when_asked(tmp_path):
  done, verbs = call(
    tmp_path, *VM, "--keep", results(tmp_path), *FLAGS, launches=["0 READY"]
  )
  assert done.returncode == 0, done.stderr
  assert "create" in verbs
  assert "delete" not in verbs
