"""Does a run survive a kill, a full disk or a failing one at each of its file operations?

    python -m benchmarks.file_faults --every=10

Runs a small run of a study again and again. The k-th thing that it does to a file below
its output directory (open, write, fsync, rename, mkdir, unlink) is struck:

* kill: the process is killed; a write is killed half done.
* full: the disk is full from here on: all that needs space fails with ENOSPC, a write
  after one half of it.
* eio: this operation alone fails with EIO.

Then the same command runs undisturbed, and must leave what an undisturbed run leaves,
byte for byte, with digests that prove it and nothing set aside. "shares" is a run that
finds all of its trials in two shares, and takes them up. Of a disk that fails, the exit
code must be 74 and the message name a file below the directory; or 0 where the operation
did not matter.

Operations are seen by a library that is loaded before the C library, so those of every
library count; it takes Linux and a C compiler. Each run is forked from one process that
has imported everything. What was tried stands in a CSV file, and is not tried again.
"""

from __future__ import annotations

import collections
import csv
import ctypes
import importlib
import io
import os
import pathlib
import random
import runpy
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import rich.console
import rich.table
from absl import app, flags

from sepfx.commands import catalogue
from sepfx.errors import InvalidSetting
from sepfx.records import digests
from sepfx.records.config import CONFIG, read_config

# Tiny, each with all files that a run may leave; a checkpoint at every dispatch.
_EVERY = (
  "--num_trials=2", "--keep_weights", "--probes=norms", "--quiet",
  "--checkpoint_every_seconds=0.001",
)  # fmt: skip
EXPERIMENTS = {
  "sample_complexity": (
    "--models=tests.small:Linear", "--lengths=3", "--token_dim=2", "--batch_size=16",
    "--check_every=2", "--num_test=200", "--max_samples=160", "--thresholds=0.9,0.3",
    "--learning_rate=0.01",
  ),
  "shares": (),
  "boolean_sample_complexity": (
    "--models=tests.test_erm:Logistic", "--contexts=4", "--sparsity=1", "--num_test=50",
    "--sample_sizes=8", "--max_steps=20",
  ),
  "parity": (
    "--models=tests.test_erm:Logistic", "--contexts=4", "--sparsity=2", "--num_test=50",
    "--batch_size=16", "--max_steps=20",
  ),
  "attention_weights": (
    "--length=3", "--token_dim=2", "--num_samples=64", "--batch_size=16",
    "--num_test=50", "--max_epochs=2", "--learning_rate=0.01",
  ),
  "fourier_generalisation": (
    "--lengths=6", "--components=2", "--degrees=1", "--sample_size=24",
    "--batch_size=12", "--check_every=10", "--max_steps=20", "--stop_loss=0.5",
  ),
  "chain_of_thought": (
    "--lengths=6", "--sample_sizes=8", "--modes=one_pass", "--num_test=50",
    "--check_every=10", "--max_steps=20",
  ),
}  # fmt: skip
EXPERIMENTS["shares"] = EXPERIMENTS["sample_complexity"]
FAULTS = ("kill", "full", "eio")
_FILES = ("trials.csv", "probes.csv", "summary.json", "figure.png")
_ROOT = pathlib.Path(__file__).parent.parent
# Of a run that takes a few seconds, more on a busy machine: it hangs.
_LIMIT_SECONDS = 600
_IO_ERROR = os.EX_IOERR

flags.DEFINE_enum("experiment", "sample_complexity", list(EXPERIMENTS), "Which study.")
flags.DEFINE_list("faults", list(FAULTS), f"Of {', '.join(FAULTS)}.")
flags.DEFINE_integer("every", 10, "Each which operation is struck.")
flags.DEFINE_integer("number", 0, "Operations to strike, spread evenly; 0 for --every.")
flags.DEFINE_string("faults_dir", "runs/faults", "Where results and scratch files are.")

FLAGS = flags.FLAGS


class Operation(NamedTuple):
  """One thing that a process does to a file: its kind, and where below the directory."""

  kind: str
  path: str


class Attempt(NamedTuple):
  """How a process ended.

  Attributes:
    code: its exit code; minus the signal that ended it.
    errors: what it wrote to stderr.
    operations: all that it did to files.
  """

  code: int
  errors: str
  operations: list[Operation]


class Trier:
  """Runs one study, disturbed and undisturbed."""

  def __init__(self, experiment: str, scratch: pathlib.Path):
    """Imports what the study needs and runs it once, undisturbed.

    Args:
      experiment: a name in `EXPERIMENTS`.
      scratch: a directory for what it leaves.
    """
    # The module itself: its other name is for `python -m` and imports.
    study = "sample_complexity" if experiment == "shares" else experiment
    entry = catalogue.of_package("experiments")[study.replace("_", "-")]
    self._module = entry.module
    self._arguments = (*_EVERY, *EXPERIMENTS[experiment])
    self._scratch = scratch.resolve()
    self._begun = self._scratch / "begun"
    shutil.rmtree(self._begun, ignore_errors=True)
    self._arm = ctypes.CDLL(None).file_faults_arm
    for name in (self._module, "tests.small", "tests.test_erm", "matplotlib.pyplot"):
      importlib.import_module(name)
    for k in range(2) if experiment == "shares" else ():
      share = self.attempt(self._begun.name, further=[f"--share={k}/2"])
      assert share.code == 0, share.errors
    for _ in range(2):  # the first fills the compilation cache, and may write otherwise
      first = self.attempt("undisturbed")
      assert first.code == 0, first.errors
      self.wanted = contents(self._scratch / "undisturbed")
      self.operations = first.operations

  def attempt(
    self, name: str, fault: str = "", at: int = 0, further: Sequence[str] = ()
  ) -> Attempt:
    """Runs it once in a process of its own.

    Args:
      name: of its output directory; what is there goes away unless it is disturbed.
      fault: one of `FAULTS`, or "".
      at: the operation that is struck, from 1.
      further: arguments.
    """
    directory = self._scratch / name
    if name == "undisturbed":
      self._make_anew(directory)
    errors, journal = self._scratch / "stderr", self._scratch / "journal"
    child = os.fork()
    if child == 0:
      self._become(directory, further, errors, journal, fault, at)
    status = _wait(child)
    lines = [line.split("\t") for line in journal.read_text().splitlines()]
    operations = [Operation(kind, path) for _, _, kind, path in lines]
    return Attempt(status, errors.read_text(errors="replace"), operations)

  def _become(
    self,
    directory: pathlib.Path,
    further: Sequence[str],
    errors: pathlib.Path,
    journal: pathlib.Path,
    fault: str,
    at: int,
  ) -> None:
    """Runs the study in this process, and ends it."""
    code = 1
    try:
      new = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
      os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
      os.dup2(os.open(errors, new), 2)
      sys.argv = [self._module, *self._arguments, *further, f"--output_dir={directory}"]
      kind = FAULTS.index(fault) + 1 if fault else 0
      log = os.open(journal, new | os.O_APPEND)
      self._arm(os.fsencode(directory), kind, ctypes.c_long(at), log)
      runpy.run_module(self._module, run_name="__main__")
      code = 0
    except SystemExit as ended:
      code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
      traceback.print_exc()
    finally:
      sys.stderr.flush()
      os._exit(code)

  def _make_anew(self, directory: pathlib.Path) -> None:
    """Leaves what a run begins with: nothing, or its shares."""
    shutil.rmtree(directory, ignore_errors=True)
    if self._begun.exists():
      shutil.copytree(self._begun, directory)

  def survives(self, fault: str, at: int) -> tuple[Operation | None, int, str]:
    """Strikes one operation and runs on.

    Returns:
      What was struck, None if the run ended before; the exit code; and what is wrong, ""
      if nothing.
    """
    directory = self._scratch / "disturbed"
    self._make_anew(directory)
    struck = self.attempt(directory.name, fault, at)
    if len(struck.operations) < at:
      return None, struck.code, ""
    wrong = ""
    if fault == "kill" and struck.code != -signal.SIGKILL:
      wrong = f"exit code {struck.code} of a killed process"
    elif fault != "kill" and struck.code not in (0, _IO_ERROR):
      wrong = f"exit code {struck.code}: {_last_line(struck.errors)}"
    elif struck.code == _IO_ERROR and str(directory) not in struck.errors:
      wrong = f"no file named: {_last_line(struck.errors)}"
    again = self.attempt(directory.name)
    aside = [file.name for file in directory.rglob("*.set_aside.*")]
    if again.code:
      wrong = wrong or f"then exit code {again.code}: {_last_line(again.errors)}"
    elif aside:
      wrong = wrong or f"set aside: {', '.join(aside)}"
    elif different := differing(self.wanted, contents(directory)):
      wrong = wrong or f"other content: {', '.join(different)}"
    return struck.operations[at - 1], struck.code, wrong


def contents(directory: pathlib.Path) -> dict[str, bytes]:
  """What a run left, in a form that is the same for the same results."""
  found = {
    name: (directory / name).read_bytes()
    for name in _FILES
    if (directory / name).exists()
  }
  path = directory / "curves.npz"
  if path.exists():
    with np.load(io.BytesIO(path.read_bytes())) as file:
      for name, curve in file.items():
        found[f"curves.npz/{name}"] = curve.tobytes()
  # Not their bytes: the order of weights' metadata is not the same twice.
  try:
    proven = str(digests.check(directory, read_config(directory / CONFIG)))
  except InvalidSetting as error:
    proven = str(error)
  found["digests.json"] = proven.encode()
  return found


def differing(one: dict[str, bytes], other: dict[str, bytes]) -> list[str]:
  """Names of what is not the same."""
  return [n for n in sorted({*one, *other}) if one.get(n) != other.get(n)]


def _wait(child: int) -> int:
  """The exit code of a child; that of an alarm if it hung and was ended."""
  end = time.monotonic() + _LIMIT_SECONDS
  while True:
    ended, status = os.waitpid(child, os.WNOHANG)
    if ended:
      return os.waitstatus_to_exitcode(status)
    if time.monotonic() > end:
      os.kill(child, signal.SIGKILL)
      os.waitpid(child, 0)
      return -signal.SIGALRM
    time.sleep(0.02)


def _last_line(text: str) -> str:
  return (text.strip().splitlines() or [""])[-1][:200]


def load_library(scratch: pathlib.Path) -> None:
  """Begins this program anew with the library that strikes, unless it is loaded."""
  library = scratch.resolve() / "file_faults.so"
  if os.environ.get("LD_PRELOAD") == str(library):
    return
  source = pathlib.Path(__file__).with_suffix(".c")
  scratch.mkdir(parents=True, exist_ok=True)
  compile_it = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
  subprocess.run(compile_it, check=True)
  environment = {
    **os.environ,
    "LD_PRELOAD": str(library),
    "JAX_PLATFORMS": "cpu",
    "JAX_NUM_CPU_DEVICES": "1",
    "JAX_COMPILATION_CACHE_DIR": str(scratch.resolve() / "cache"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "XLA_FLAGS": "--xla_backend_optimization_level=0",
  }
  command = [sys.executable, "-m", "benchmarks.file_faults", *sys.argv[1:]]
  os.chdir(_ROOT)
  os.execve(sys.executable, command, environment)


def main(argv: Sequence[str]) -> None:
  del argv
  scratch = pathlib.Path(FLAGS.faults_dir)
  load_library(scratch)
  experiment, faults = FLAGS.experiment, FLAGS.faults
  every, number = FLAGS.every, FLAGS.number
  trier = Trier(experiment, scratch)
  count = len(trier.operations)
  chosen = list(range(1, count + 1, every))
  if number:
    chosen = np.linspace(1, count, number + 2)[1:-1].astype(int).tolist()
  random.Random(0).shuffle(chosen)  # a part of them says something of the whole
  results = scratch / f"{experiment}.csv"
  header = ["fault", "at", "operation", "path", "code", "wrong"]
  done: dict[tuple[str, int], list[str]] = {}
  if results.exists():
    with open(results, newline="") as file:
      done = {(row[0], int(row[1])): row for row in list(csv.reader(file))[1:]}
  else:
    results.write_text(",".join(header) + "\n")
  print(f"{experiment}: {count} operations, {len(chosen)} to strike", flush=True)
  for at in chosen:
    for fault in faults:
      if (fault, at) in done:
        continue
      operation, code, wrong = trier.survives(fault, at)
      row = [fault, str(at), *(operation or ("", "")), str(code), wrong]
      done[fault, at] = row
      with open(results, "a", newline="") as file:
        csv.writer(file, lineterminator="\n").writerow(row)
      if wrong:
        print(f"{fault} at {at}, {operation}: {wrong}", flush=True)
  failed = _report(experiment, list(done.values()))
  sys.exit(int(failed))


def _report(experiment: str, rows: Sequence[Sequence[str]]) -> bool:
  """Prints a table; returns whether something did not survive."""
  tried: collections.Counter = collections.Counter()
  survived: collections.Counter = collections.Counter()
  for fault, _, operation, _, _, wrong in rows:
    if operation:
      tried[operation, fault] += 1
      survived[operation, fault] += not wrong
  table = rich.table.Table(title=f"{experiment}: survived of tried")
  for name in ("operation", *FAULTS):
    table.add_column(name)
  kinds = sorted({operation for operation, _ in tried})
  for kind in kinds:
    table.add_row(kind, *(f"{survived[kind, f]} of {tried[kind, f]}" for f in FAULTS))
  total = [
    f"{sum(survived[k, f] for k in kinds)} of {sum(tried[k, f] for k in kinds)}"
    for f in FAULTS
  ]
  table.add_row("all", *total)
  rich.console.Console().print(table)
  return survived != tried


if __name__ == "__main__":
  app.run(main)
