"""What happens to a run of two processes when one of them is lost, stopped or odd?

    python -m benchmarks.process_faults

Starts two processes of a small run on this machine, kills either at ten moments, stops
either for 140 seconds, starts one alone, or both unlike one another. Measures when each
process that is left says what it waits for, when it ends and how, and whether the same
command then gives the records of a run that nothing disturbed. Each case is a row of
runs/faults/processes.csv; those that are there are not done again.
"""

from __future__ import annotations

import csv
import dataclasses
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence

import rich.console
import rich.table
from absl import app, flags

flags.DEFINE_string("processes_csv", "runs/faults/processes.csv", "Where rows are kept.")
flags.DEFINE_list("kinds", [], "Kinds of cases, such as kill; all if there are none.")

FLAGS = flags.FLAGS

_ROOT = pathlib.Path(__file__).parent.parent
# One cell whose trials never reach their threshold.
_RUN = (
  "--models=tests.small:Linear", "--lengths=3", "--num_trials=3", "--thresholds=0.3",
  "--token_dim=2", "--batch_size=16", "--num_test=300", "--learning_rate=0.01",
  "--check_every=400", "--max_samples=6400000", "--checkpoint_every_seconds=1", "--quiet",
)  # fmt: skip
_STOPPED_SECONDS = 140.0
_LONGEST = 400.0  # of a case, and of a run after it
_POLL = 0.01
# What JAX writes itself, and the library that its processes talk through.
_NOT_OURS = re.compile(
  r"[IWEF]\d{4} |\[Gloo\]|Additional GRPC|:UNKNOWN|RPC: |\s+@ |\*\*\*"
)
_OURS = re.compile(r"waiting for|error: |ended it")


def _rows(path: pathlib.Path) -> int:
  file = path / "trials.csv"
  return file.read_text().count("\n") - 1 if file.exists() else 0


# When a process is killed: what is seen in the directory by then.
MOMENTS: dict[str, Callable[[pathlib.Path], bool]] = {
  "its directory is made": lambda path: path.exists(),
  "config.json is written": lambda path: (path / "config.json").exists(),
  "the program is compiled": lambda path: (path / "trials.csv").exists(),
  "the first checkpoint begins": lambda path: any(path.glob("checkpoints/lanes-*")),
  "the first checkpoint's header": lambda path: any(
    path.glob("checkpoints/lanes-*/header.json")
  ),
  "the first checkpoint is whole": lambda path: any(path.glob("checkpoints/*.sha256")),
  "the second checkpoint begins": lambda path: (path / "checkpoints/lanes-1").exists(),
  "the first row is written": lambda path: _rows(path) >= 1,
  "the last row is written": lambda path: _rows(path) >= 3,
  "curves.npz is written": lambda path: (path / "curves.npz").exists(),
}


@dataclasses.dataclass(frozen=True)
class Case:
  """What is done to two processes.

  Attributes:
    kind: kill, stop, alone or unlike.
    whom: the process that it is done to; where one is alone, the one that is there.
    what: the moment; or the arguments of the second process that differ.
    arguments: of both.
  """

  kind: str
  whom: int
  what: str
  arguments: tuple[str, ...] = ()

  @property
  def name(self) -> str:
    return f"{self.kind} {self.whom}, {self.what}"


CASES = [
  *(Case("kill", whom, moment) for whom in (0, 1) for moment in MOMENTS),
  *(Case("stop", whom, "the first checkpoint is whole") for whom in (0, 1)),
  *(Case("alone", whom, "", ("--start_timeout=60",)) for whom in (0, 1)),
  Case("unlike", 1, "--seed=1"),
  Case("unlike", 1, "--learning_rate=0.02"),
  Case("unlike", 1, "--num_trials=4"),
  Case("unlike", 1, "--output_dir={other}"),
  Case("unlike", 1, "--process_id=0"),
  Case("unlike", 1, "--num_processes=3"),
]


class Process:
  """One started process, and what it said when.

  Attributes:
    popen: the process.
    said: (time, line) of its standard error.
    ended: when it did; None while it lives.
  """

  def __init__(self, path: pathlib.Path, cache: pathlib.Path, arguments: Iterable[str]):
    command = [sys.executable, "-m", "experiments.sample_complexity", *_RUN]
    environment = {
      **os.environ,
      "JAX_NUM_CPU_DEVICES": "1",
      "JAX_COMPILATION_CACHE_DIR": str(cache),
      "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    self.started = time.monotonic()
    self.popen = subprocess.Popen(
      [*command, f"--output_dir={path}", *arguments], cwd=_ROOT, env=environment,
      stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    self.said: list[tuple[float, str]] = []
    self.ended: float | None = None
    self._reader = threading.Thread(target=self._read, daemon=True)
    self._reader.start()

  def wait(self, seconds: float) -> int:
    """Returns the exit code; kills it after so long."""
    try:
      self.popen.wait(seconds)
    except subprocess.TimeoutExpired:
      self.popen.kill()
      self.popen.wait()
    self._reader.join(timeout=5.0)
    return self.popen.returncode

  def words_after(self, moment: float) -> list[tuple[float, str]]:
    """Its own lines, without JAX's, with seconds since then."""
    own = [(at - moment, line) for at, line in self.said if not _NOT_OURS.match(line)]
    return [(at, line) for at, line in own if at >= 0]

  def _read(self) -> None:
    assert self.popen.stderr is not None
    for line in self.popen.stderr:
      self.said.append((time.monotonic(), line.rstrip()))
    self.popen.wait()
    self.ended = time.monotonic()


def together(
  path: pathlib.Path,
  cache: pathlib.Path,
  arguments: Sequence[str] = (),
  unlike: Sequence[str] = (),
  which: Sequence[int] = (0, 1),
) -> list[Process]:
  """Starts two processes of one run, or one of them.

  Args:
    path: their output directory.
    cache: of compiled programs.
    arguments: of both.
    unlike: further ones of the second.
    which: of the two.
  """
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    address = f"127.0.0.1:{free.getsockname()[1]}"
  shared = [*arguments, "--distributed", f"--coordinator={address}", "--num_processes=2"]
  return [
    Process(path, cache, [*shared, f"--process_id={k}", *(unlike if k else ())])
    for k in which
  ]


def finished(path: pathlib.Path, cache: pathlib.Path, number: int) -> bytes:
  """Runs to the end with one process or two; returns trials.csv, b"" if it failed."""
  started = together(path, cache) if number == 2 else [Process(path, cache, ())]
  codes = [process.wait(_LONGEST) for process in started]
  return b"" if any(codes) else (path / "trials.csv").read_bytes()


def measured(
  case: Case,
  folder: pathlib.Path,
  undisturbed: bytes,
  again: Sequence[int] = (1, 2),
  stopped_seconds: float = _STOPPED_SECONDS,
) -> dict[str, str]:
  """Does a case in an empty folder and returns its row.

  Args:
    case: which.
    folder: for the runs, and their compiled programs.
    undisturbed: trials.csv of a run that nothing happened to.
    again: numbers of processes with which it is started again.
    stopped_seconds: after which a stopped process goes on.
  """
  cache, path = folder / "cache", folder / "run"
  others = [case.what.format(other=folder / "other")] if case.kind == "unlike" else []
  which = [case.whom] if case.kind == "alone" else [0, 1]
  processes = together(path, cache, case.arguments, others, which)
  left, moment = processes, processes[-1].started
  if case.kind in ("kill", "stop"):
    victim = processes[case.whom]
    left = [process for process in processes if process is not victim]
    moment = _disturb(case, path, victim)
  codes = [process.wait(_LONGEST) for process in left]
  ends = [(process.ended or time.monotonic()) - moment for process in left]
  if case.kind == "stop":
    time.sleep(max(0.0, moment + stopped_seconds - time.monotonic()))
    victim.popen.send_signal(signal.SIGCONT)
  if case.kind in ("kill", "stop"):
    codes.append(victim.wait(_LONGEST))
  words, last = [], []
  for process in left:
    own = process.words_after(moment)
    words.append(next((at for at, line in own if _OURS.search(line)), float("nan")))
    last.append(next((line for _, line in own if _OURS.search(line)), ""))
  same = {}
  for number in again:
    copy = folder / f"again-{number}"
    if path.exists():
      shutil.copytree(path, copy)
    same[number] = "yes" if finished(copy, cache, number) == undisturbed else "no"
  return {
    "kind": case.kind,
    "process": str(case.whom),
    "what": case.what,
    "seconds until words": " ".join(f"{at:.1f}" for at in words),
    "seconds until end": " ".join(f"{at:.1f}" for at in ends),
    "exit codes": " ".join(map(str, codes)),
    "words": " | ".join(line.replace(str(folder), "") for line in last),
    "same with one": same.get(1, ""),
    "same with two": same.get(2, ""),
  }


def _disturb(case: Case, path: pathlib.Path, victim: Process) -> float:
  """Kills or stops a process when the moment has come; returns when it was."""
  end = time.monotonic() + _LONGEST
  while not MOMENTS[case.what](path) and victim.popen.poll() is None:
    if time.monotonic() > end:
      raise TimeoutError(f"{case.name}: the moment did not come")
    time.sleep(_POLL)
  if victim.popen.poll() is not None:
    raise TimeoutError(f"{case.name}: the run had ended before the moment came")
  moment = time.monotonic()
  victim.popen.send_signal(signal.SIGKILL if case.kind == "kill" else signal.SIGSTOP)
  return moment


def run(path: pathlib.Path, console: rich.console.Console) -> None:
  """Does the cases that have no row yet, and prints the table."""
  rows: list[dict[str, str]] = []
  if path.exists():
    with open(path, newline="") as file:
      rows = list(csv.DictReader(file))
  there = {(row["kind"], row["process"], row["what"]) for row in rows}
  missing = [c for c in CASES if (c.kind, str(c.whom), c.what) not in there]
  missing = [c for c in missing if not FLAGS.kinds or c.kind in FLAGS.kinds]
  with tempfile.TemporaryDirectory() as scratch:
    whole = pathlib.Path(scratch)
    cache = whole / "cache"
    undisturbed = finished(whole / "undisturbed", cache, 1) if missing else b""
    for number, case in enumerate(missing):
      folder = whole / str(number)
      folder.mkdir()
      (folder / "cache").symlink_to(cache)
      rows.append(measured(case, folder, undisturbed))
      path.parent.mkdir(parents=True, exist_ok=True)
      with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[-1]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
      console.print(" ".join(rows[-1].values()), highlight=False)
      shutil.rmtree(folder)
  if not rows:
    return
  table = rich.table.Table(*rows[-1])
  for row in rows:
    table.add_row(*row.values())
  console.print(table)


def main(argv: Sequence[str]) -> None:
  del argv
  run(pathlib.Path(FLAGS.processes_csv), rich.console.Console())


if __name__ == "__main__":
  app.run(main)
