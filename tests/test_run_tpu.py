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


def call(tmp_path, *arguments, launches=(), state=None, gcloud=GCLOUD, **environment):
  stand_in = tmp_path / "bin"
  stand_in.mkdir(exist_ok=True)
  (stand_in / "gcloud").write_text(gcloud)
  (stand_in / "gcloud").chmod(0o755)
  (stand_in / "launches").write_text("".join(line + "\n" for line in launches))
  if state:
    (stand_in / "state").write_text(state)
  done = subprocess.run(
    [ROOT / "run_tpu.sh", *arguments], capture_output=True, text=True, timeout=60,
    env={**os.environ, "PATH": f"{stand_in}:{os.environ['PATH']}", **environment},
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
    ((*VM[:2], "--type=v5litepod-08", *FLAGS), "--type: got 'v5litepod-08'"),
    ((*VM[:2], "--type=v5litepod-0", *FLAGS), "--type: got 'v5litepod-0'"),
    ((*VM, "--shared_dir=~/run", *FLAGS), "--shared_dir: got '~/run'"),
    ((*VM, "--shared_dir=-run", *FLAGS), "--shared_dir: got '-run'"),
    ((*VM, "--fetch_every=0", *FLAGS), "--fetch_every: got '0'"),
    ((*VM, "--launches=none", *FLAGS), "--launches: got 'none'"),
    ((*VM, "--models=gru"), "unknown setting --models=gru"),
    (VM, "no flags for the experiment"),
    ((*VM, *FLAGS, "--output_dir=here"), "--output_dir=here: set by this script"),
    ((*VM, *FLAGS, "--share=0/2"), "--share=0/2: set by this script"),
    ((*VM, "--study=Best", *FLAGS), "--study: got 'Best', takes the name of a study"),
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
  assert "--share" not in done.stdout  # one worker
  assert not (tmp_path / "results").exists()
  many = (*VM[:2], "--type=v5litepod-16", "--shared_dir=/nfs/run", "--dry_run")
  done, _ = call(tmp_path, *many, results(tmp_path), *FLAGS)
  assert done.returncode == 0, done.stderr
  assert "share=0/2" in done.stdout
  assert "share=1/2" in done.stdout
  assert "--merge" in done.stdout


def test_a_dry_run_touches_nothing(tmp_path):
  """No file of this machine: neither results, nor temporary ones, nor git's own."""
  there, scratch = tmp_path / "here/results", tmp_path / "scratch"
  scratch.mkdir()
  (tmp_path / "here/results.new").mkdir(parents=True)
  index = ROOT / ".git/index"
  before = index.stat().st_mtime_ns if index.is_file() else 0
  done, verbs = call(
    tmp_path, *VM, "--dry_run", f"--results={there}", *FLAGS, TMPDIR=str(scratch)
  )
  assert done.returncode == 0, done.stderr
  assert not verbs
  assert (tmp_path / "here/results.new").is_dir()
  assert not list(scratch.iterdir())
  assert before == (index.stat().st_mtime_ns if index.is_file() else 0)
  elsewhere = tmp_path / "nowhere/results"
  done, _ = call(tmp_path, *VM, "--dry_run", f"--results={elsewhere}", *FLAGS)
  assert done.returncode == 0, done.stderr
  assert not elsewhere.parent.exists()


# What a worker runs, in a home of its own with programs that stand in for its.
REMOTE = r"""#!/usr/bin/env bash
here=$(cd "$(dirname "$0")" && pwd)
export HOME=$here/home PATH="$here/remote:$PATH"
mkdir -p "$HOME" && cd "$HOME"
[[ $4 != scp || $6 != *.new ]] || mkdir "$6"
[[ $4 != describe || $* != *networkEndpoints* ]] || echo "10.0.0.1;10.0.0.2"
[[ $4 == ssh ]] || exit 0
for argument; do
  [[ $argument != --command=* ]] || exec bash -c "${argument#--command=}"
done
"""
PROGRAMS = {
  "sudo": "exit 0",
  "git": 'mkdir -p "${@: -1}"',
  "python3.11": """mkdir -p venv/bin
printf '#!/bin/sh\n' > venv/bin/pip
printf '#!/bin/sh\nprintf "%%s\\n" "$@" > "$HOME/arguments.$$"\n' > venv/bin/python
chmod +x venv/bin/*""",
}


HOSTILE = """; touch INJECTED; $(touch INJECTED) `touch INJECTED` && touch INJECTED #
a  b it's "said" a\\b * ~ $HOME"""


def test_no_value_is_run_by_a_remote_shell(tmp_path):
  remote = tmp_path / "bin/remote"
  remote.mkdir(parents=True)
  for program, text in PROGRAMS.items():
    (remote / program).write_text(f"#!/usr/bin/env bash\n{text}\n")
    (remote / program).chmod(0o755)
  shared, flag = f"{tmp_path}/nfs{HOSTILE}", f"--models={HOSTILE}"
  done, _ = call(
    tmp_path, *VM[:2], "--type=v5litepod-16", f"--shared_dir={shared}",
    "--study=best-rate", results(tmp_path), "--", flag, gcloud=REMOTE,
  )  # fmt: skip
  assert done.returncode == 0, done.stderr
  assert not list(tmp_path.rglob("INJECTED"))
  found = {file.read_text() for file in (tmp_path / "bin/home").glob("arguments.*")}
  assert found == {
    "\n".join(["-m", "experiments.best_rate", flag, last, f"--output_dir={shared}", ""])
    for last in ("--share=0/2", "--share=1/2", "--merge")
  }


@pytest.mark.parametrize(("code", "says"), [(2, "refused its settings"), (75, "gave up")])
def test_a_worker_of_two_that_ends_early(tmp_path, code, says):
  """Its share is launched again; nothing is merged before."""
  gcloud = GCLOUD.replace(
    "read -r code",
    f"""
        [[ "$*" != *share=0/2* ]] || exit 0
        [[ "$*" != *share=1/2* ]] || exit {code}
        read -r code""",
  )
  gcloud = gcloud.replace(
    "cat state ;;",
    """case "$*" in
      *networkEndpoints*) echo "10.0.0.1;10.0.0.2" ;;
      *) cat state ;;
    esac ;;""",
  )
  done, verbs = call(
    tmp_path, *VM[:2], "--type=v5litepod-16", "--shared_dir=/nfs/run", "--launches=2",
    results(tmp_path), *FLAGS, gcloud=gcloud,
  )  # fmt: skip
  assert done.returncode == 2
  assert says in done.stderr
  assert "--merge" not in (tmp_path / "bin/calls").read_text()
  assert verbs[-1] == "delete"


def test_it_creates_runs_fetches_and_deletes(tmp_path):
  done, verbs = call(tmp_path, *VM, results(tmp_path), *FLAGS, launches=["0 READY"])
  assert done.returncode == 0, done.stderr
  assert verbs == ["describe", "create", "scp", "ssh", "ssh", "scp", "delete"]
  assert (tmp_path / "results/trials.csv").read_text() == "fetched\n"


@pytest.mark.slow
def test_it_survives_a_preemption(tmp_path):
  done, verbs = call(
    tmp_path, *VM, results(tmp_path), *FLAGS, launches=["75 PREEMPTED", "0 READY"]
  )
  assert done.returncode == 0, done.stderr
  once = ["scp", "ssh", "ssh", "scp"]
  # The second VM is given what was fetched from the first.
  again = ["scp", "ssh", "ssh", "scp", "ssh", "ssh", "scp"]
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


@pytest.mark.parametrize("code", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_what_it_created_is_deleted_when_it_fails(tmp_path, code):
  done, verbs = call(
    tmp_path, *VM, results(tmp_path), "--launches=2", *FLAGS,
    launches=[f"{code} READY"] * 2,
  )  # fmt: skip
  assert done.returncode == 2
  assert ("refused its settings" if code == 2 else "gave up") in done.stderr
  assert verbs[-1] == "delete"


@pytest.mark.slow
def test_no_copy_of_results_outlives_it(tmp_path):
  """One that is being made when the run ends would write into the last one's folder."""
  slow = """
    if [[ "$*" == *probe:sepfx-run\\ * && ! -e copying ]]; then
      echo $$ > copying
      trap "sleep 1; exit 1" TERM # ends in its own time
      sleep 50
    fi"""
  gcloud = GCLOUD.replace('case "$4" in', f'{slow}\ncase "$4" in', 1)
  gcloud = gcloud.replace("read -r code", "sleep 3; read -r code")
  done, _ = call(
    tmp_path, *VM, "--fetch_every=1", results(tmp_path), *FLAGS,
    launches=["0 READY"], gcloud=gcloud,
  )  # fmt: skip
  assert done.returncode == 0, done.stderr
  process = (tmp_path / "bin/copying").read_text().strip()
  assert not pathlib.Path(f"/proc/{process}").exists()
  assert (tmp_path / "results/trials.csv").read_text() == "fetched\n"


def test_a_vm_that_results_do_not_reach_is_not_used(tmp_path):
  """What it fetched would replace them."""
  (tmp_path / "results").mkdir()
  (tmp_path / "results/trials.csv").write_text("whole\n")
  fails = 'case "$*" in *probe:sepfx-results*) exit 1 ;; esac\ncase "$4" in'
  done, verbs = call(
    tmp_path, *VM, "--launches=1", results(tmp_path), *FLAGS, launches=["0 READY"],
    gcloud=GCLOUD.replace('case "$4" in', fails, 1),
  )  # fmt: skip
  assert done.returncode != 0
  assert verbs == ["describe", "create", "scp", "ssh", "ssh", "scp", "delete"]
  assert (tmp_path / "results/trials.csv").read_text() == "whole\n"


def test_results_that_were_being_replaced_are_given_to_the_next_vm(tmp_path):
  """It was ended when the old ones had been moved aside, and the new ones not here."""
  (tmp_path / "results.old").mkdir()
  done, verbs = call(tmp_path, *VM, results(tmp_path), *FLAGS, launches=["0 READY"])
  assert done.returncode == 0, done.stderr
  assert verbs.count("scp") == 3  # the program, these results, and the new ones
  assert not (tmp_path / "results.old").exists()


def test_it_is_kept_when_asked(tmp_path):
  done, verbs = call(
    tmp_path, *VM, "--keep", results(tmp_path), *FLAGS, launches=["0 READY"]
  )
  assert done.returncode == 0, done.stderr
  assert "create" in verbs
  assert "delete" not in verbs
