#!/usr/bin/env bash
# Runs a study on a Cloud TPU VM: creates it (or takes a running one), installs, launches a
# share of the trials on each worker, fetches the results as they come, launches again after a
# preemption, and deletes what it created.
set -euo pipefail

usage() {
  cat <<'END'
usage: ./run_tpu.sh --name=NAME --zone=ZONE --type=TYPE [option...] -- FLAG...

FLAG... goes to the study, without --output_dir:
  ./run_tpu.sh --name=sepfx --zone=us-central1-a --type=v5litepod-8 --spot -- \
      --flagfile=experiments/flags/fig1a.cfg

  --name=NAME        of the TPU VM; one that runs already is used, and not deleted
  --zone=ZONE        where
  --study=NAME       of those that `sepfx --help` names [sample-complexity]
  --type=TYPE        accelerator type
  --version=VERSION  runtime version [tpu-ubuntu2204-base]
  --project=PROJECT  [gcloud's own]
  --spot             create a preemptible VM
  --results=DIR      where results are fetched to on this machine [runs/NAME]
  --shared_dir=DIR   directory that all workers share (a mounted Filestore, say);
                     needed where the VM has more than one worker
  --fetch_every=S    seconds between two fetches of the results [60]
  --launches=K       give up after so many launches [20]
  --keep             do not delete the VM at the end
  --dry_run          print every command, run none
END
}

fail() {
  echo "run_tpu.sh: $*" >&2
  exit 2
}

name='' zone='' study=sample-complexity type='' version=tpu-ubuntu2204-base project='' spot='' results=''
shared_dir='' fetch_every=60 launches=20 keep='' dry_run=''
while (($#)); do
  case $1 in
    --name=*) name=${1#*=} ;;
    --zone=*) zone=${1#*=} ;;
    --study=*) study=${1#*=} ;;
    --type=*) type=${1#*=} ;;
    --version=*) version=${1#*=} ;;
    --project=*) project=${1#*=} ;;
    --spot) spot=1 ;;
    --results=*) results=${1#*=} ;;
    --shared_dir=*) shared_dir=${1#*=} ;;
    --fetch_every=*) fetch_every=${1#*=} ;;
    --launches=*) launches=${1#*=} ;;
    --keep) keep=1 ;;
    --dry_run) dry_run=1 ;;
    --help) usage && exit ;;
    --) shift && break ;;
    *) fail "unknown setting $1 (flags of the experiment go after --; see --help)" ;;
  esac
  shift
done

# Everything is checked before anything is created.
[[ $name =~ ^[a-z]([-a-z0-9]*[a-z0-9])?$ ]] ||
  fail "--name: got '$name', takes lower-case letters, digits and hyphens"
[[ $zone =~ ^[a-z]+-[a-z]+[0-9]+-[a-z]$ ]] ||
  fail "--zone: got '$zone', takes a zone such as us-central1-a"
[[ $study =~ ^[a-z]([-a-z0-9]*[a-z0-9])?$ ]] ||
  fail "--study: got '$study', takes the name of a study such as best-rate"
[[ $type =~ ^v[0-9]+[a-z]*-[1-9][0-9]{0,4}$ ]] ||
  fail "--type: got '$type', takes an accelerator type such as v5litepod-8"
[[ $fetch_every =~ ^[1-9][0-9]{0,8}$ ]] || fail "--fetch_every: got '$fetch_every', takes seconds"
[[ $launches =~ ^[1-9][0-9]{0,8}$ ]] || fail "--launches: got '$launches', takes an integer >= 1"
(($#)) || fail "no flags for the experiment: give them after --"
[[ $shared_dir != [-~]* ]] ||
  fail "--shared_dir: got '$shared_dir', takes a path that begins with no ~ and no -"
# These types have eight chips or cores a worker at most.
several=''
if ((${type##*-} > 8)); then
  [[ $shared_dir ]] || fail "--shared_dir: missing, and $type has more than one worker"
  several=1
fi
for flag; do
  [[ $flag != --output_dir* && $flag != --share* && $flag != --merge* ]] ||
    fail "$flag: set by this script (see --results and --shared_dir)"
  # It would be launched again and again.
  [[ $flag != --max_minutes* ]] || fail "$flag: not here, a VM runs to the end"
done
results=${results:-runs/$name}
cd "$(dirname "$0")"
[[ -f pyproject.toml ]] || fail "not in a clone of sepfx"
[[ ! $(git --no-optional-locks status --porcelain --untracked-files=no) ]] ||
  echo "run_tpu.sh: uncommitted changes are not sent to the VM" >&2
[[ $dry_run ]] || command -v gcloud >/dev/null || fail "gcloud is not installed"

exec 3>&1
# A command of one VM: tpu VERB ARGUMENT...
tpu() {
  local command=(gcloud compute tpus tpu-vm "$1" "${@:2}" --zone="$zone")
  [[ ! $project ]] || command+=(--project="$project")
  if [[ $dry_run ]]; then
    (printf '%q ' "${command[@]}" && echo) >&3
  else
    "${command[@]}"
  fi
}

state() {
  tpu describe "$name" --format='value(state)' 2>/dev/null || true
}

on_workers() {
  tpu ssh "$name" --worker="$1" --command="$2"
}

created=''
create() {
  local options=(--accelerator-type="$type" --version="$version")
  [[ ! $spot ]] || options+=(--spot)
  created=1
  tpu create "$name" "${options[@]}"
}

# Where results are on the workers. A directory that they share may have any name: what
# gcloud copies goes through a link, since versions of scp differ in what they quote.
remote_dir=sepfx-run link=''
if [[ $shared_dir ]]; then
  remote_dir=sepfx-shared
  printf -v link 'ln -sfn %q %s' "$shared_dir" "$remote_dir"
fi

install() {
  # What a condition calls does not end where a command fails.
  [[ $dry_run ]] || git bundle create -q "$package" HEAD || return 1
  tpu scp "$package" "$name:sepfx.bundle" --worker=all || return 1
  on_workers all "set -e
    sudo apt-get -qq update && sudo apt-get -qq install -y git python3.11-venv
    rm -rf sepfx && git clone -q sepfx.bundle sepfx
    python3.11 -m venv venv && venv/bin/pip install -q -e './sepfx[tpu]'
    $link" || return 1
  # What an earlier VM had come to.
  [[ $dry_run ]] || restore
  if [[ -d $results ]] && ! on_workers 0 "rm -rf sepfx-results; test -e $remote_dir"; then
    # All of it: a run goes on from what it finds there, and its results replace these.
    tpu scp "$results" "$name:sepfx-results" --recurse --worker=0 || return 1
    on_workers 0 "mv -T sepfx-results \"\$(realpath -m $remote_dir)\"" || return 1
  fi
}

# Runs the study on one worker: run WORKER SETTINGS FLAG...
run() {
  local flags
  printf -v flags '%q ' "${@:3}"
  on_workers "$1" "cd sepfx && $2../venv/bin/python -m experiments.${study//-/_} \
$flags--output_dir=\"\$(cd && realpath -m $remote_dir)\""
}

# How many workers the VM has.
count_workers() {
  [[ ! $dry_run ]] || { echo 2 && return; }
  tpu describe "$name" --format='value(networkEndpoints[].ipAddress)' |
    tr ';' '\n' | grep -c .
}

# Each worker has its own chips to itself: the runtime does not wait for the others.
alone='TPU_PROCESS_BOUNDS=1,1,1 TPU_CHIPS_PER_PROCESS_BOUNDS=2,2,1 '
alone+='TPU_VISIBLE_CHIPS=0,1,2,3 '

launch() {
  if [[ ! $several ]]; then
    run 0 '' "$@"
    return
  fi
  local count worker code=0 own workers=()
  count=$(count_workers) || return 1
  for ((worker = 0; worker < count; worker++)); do
    run "$worker" "$alone" "$@" "--share=$worker/$count" &
    workers+=($!)
  done
  for worker in "${workers[@]}"; do
    own=0
    wait "$worker" || own=$?
    # Bad settings are said first, then whatever else went wrong.
    ((own == 0 || code == 2)) || code=$own
  done
  ((code == 0)) || return "$code"
  run 0 'JAX_PLATFORMS=cpu ' "$@" --merge
}

# Ended between two moves, what was fetched before is all that there is.
restore() {
  [[ -e $results || ! -e $results.old ]] || mv "$results.old" "$results"
}

fetch() {
  if [[ $dry_run ]]; then
    tpu scp "$name:$remote_dir" "$results.new" --recurse --worker=0
    return
  fi
  mkdir -p "$(dirname "$results")"
  restore
  rm -rf "$results.new"
  # All of it or none: a VM that is taken away in the middle must not cost what is here.
  tpu scp "$name:$remote_dir" "$results.new" --recurse --worker=0 || return 1
  rm -rf "$results.old"
  [[ ! -e $results ]] || mv "$results" "$results.old"
  mv "$results.new" "$results"
  rm -rf "$results.old"
}

fetching=''
stop_fetching() {
  [[ $fetching ]] || return 0
  kill -- "-$fetching" 2>/dev/null || true # with the copy that it is making
  wait "$fetching" 2>/dev/null || true
  fetching=''
}

finish() {
  stop_fetching
  [[ ! $work ]] || rm -rf "$work"
  if [[ $created && ! $keep ]]; then
    tpu delete "$name" --quiet
  fi
}

work=''
[[ $dry_run ]] || work=$(mktemp -d)
package=${work:-/tmp}/sepfx.bundle
trap finish EXIT
trap 'exit 130' INT TERM

for ((attempt = 1; attempt <= launches; attempt++)); do
  case $(state) in
    READY) ;;
    '') create ;;
    *) # preempted, stopped or broken: what is left of it cannot run
      [[ $created ]] || fail "$name exists but does not run: delete it or choose another"
      tpu delete "$name" --quiet
      create
      ;;
  esac
  if install; then
    if [[ ! $dry_run ]]; then
      set -m # a group of processes of its own
      {
        # The signal reaches a copy too: with a trap, this waits until the copy has ended.
        trap exit TERM
        while sleep "$fetch_every"; do fetch || true; done
      } >/dev/null 2>&1 3>&- &
      fetching=$!
      set +m
    fi
    code=0
    launch "$@" || code=$?
    stop_fetching
    fetch || true
    # 2: bad settings. Anything else may be the machine's doing: launch again.
    ((code != 2)) || fail "the experiment refused its settings"
    if ((code == 0)); then
      echo "results: $results"
      exit
    fi
  fi
  echo "launch $attempt ended early" >&2
done
fail "gave up after $launches launches"
