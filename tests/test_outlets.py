"""What is printed may be lost; what is computed may not, nor the exit code."""

import dataclasses
import os
import signal
import subprocess
import sys

import pytest
import rich.table

from sepfx import outlets
from sepfx.ensembles import Cell
from sepfx.outlets import Outlet
from sepfx.watching.progress import Progress
from tests import small
from tests.programs import ROOT, start
from tests.test_faults import await_file

SHORT = (
  "--models=tests.small:Linear", "--lengths=3", "--num_trials=2", "--thresholds=0.3",
  "--max_samples=1600", "--noquiet",
)  # fmt: skip
PROGRAM = "from sepfx import outlets; outlets.install(); import sys; "


def test_text_goes_out_in_order():
  reader, writer = os.pipe()
  Outlet(writer).write("é" * 30_000)
  os.close(writer)
  with open(reader, "rb") as end:
    assert end.read().decode() == "é" * 30_000


def test_a_pipe_that_nobody_reads_takes_nothing_more():
  reader, writer = os.pipe()
  os.close(reader)
  assert Outlet(writer).write("words\n") == 6
  os.close(writer)


def test_a_full_pipe_does_not_hold_the_writer(monkeypatch):
  monkeypatch.setattr(outlets, "_PATIENCE_SECONDS", 0.1)
  reader, writer = os.pipe()
  outlet = Outlet(writer)
  for _ in range(20):
    outlet.write("x" * 10_000)
  os.close(reader)
  os.close(writer)


@pytest.mark.parametrize("closing", ["1>&-", "2>&-", "1>/dev/full", "2>/dev/full"])
def test_streams_that_cannot_be_written(closing, tmp_path):
  file = tmp_path / "file"
  code = (
    PROGRAM + f"own = open({str(file)!r}, 'w'); outlets.say('e'); print('o', flush=True);"
    " import os; os.write(2, b'from a library'); own.close(); sys.exit(75)"
  )
  command = f'"{sys.executable}" -c "{code}" {closing}'
  done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True)
  if "2>/dev/full" in closing:  # the library's own writing fails there
    assert done.returncode == 1
  else:
    assert done.returncode == 75
    assert done.stdout + done.stderr in ("o\n", "e\nfrom a library")
  assert file.read_text() == ""  # no file was given the number of a stream


@pytest.mark.slow
def test_nobody_reads_what_a_run_prints(tmp_path):
  process = start(tmp_path / "run", *SHORT, cache=tmp_path / "cache")
  process.stdout.close()
  process.stderr.close()
  assert process.wait(timeout=300) == 0
  assert (tmp_path / "run" / "summary.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("closing", ["2>&-", "2>/dev/full"])
@pytest.mark.parametrize(
  ("argument", "code"), [("--num_trials=0", 2), ("--output_dir=/dev/null/run", 2)]
)
def test_exit_codes_need_no_stderr(tmp_path, closing, argument, code):
  command = (
    f'"{sys.executable}" -m experiments.sample_complexity --models=tests.small:Linear '
    f"--lengths=3 --output_dir={tmp_path} {argument} {closing}"
  )
  assert subprocess.run(command, shell=True, cwd=ROOT).returncode == code


@pytest.mark.faults
def test_a_run_that_fails_or_is_stopped_needs_no_stderr(tmp_path):
  run, cache = tmp_path / "run", tmp_path / "cache"
  launcher = ("sh", "-c", 'exec "$@" 2>/dev/full', "sh")
  lasting = (*SHORT, "--max_samples=8000000")
  process = start(run, *lasting, cache=cache, launcher=launcher)
  await_file(run, "config.json", process)
  process.send_signal(signal.SIGTERM)
  assert process.wait(timeout=300) == 75
  (run / "figure.pdf" / "in the way").mkdir(parents=True)
  process = start(run, *lasting, cache=cache, launcher=launcher)
  assert process.wait(timeout=300) == 74


def test_names_are_printed_as_they_are(capsys):
  name = "drop:A:rate=0.9, mine:Mask:kind=[red]"
  table = rich.table.Table("model")
  table.add_row(name)
  console = outlets.console()
  console.width = 80
  console.print(name)
  console.print(table)
  printed = capsys.readouterr().out
  assert printed.count(name) == 2, printed


def test_a_bar_says_names_as_they_are(monkeypatch, capsys):
  monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
  monkeypatch.setenv("COLUMNS", "200")
  cell = Cell(dataclasses.replace(small.TRIAL, model_name="drop:A:rate=[red]"))
  with Progress(1, [cell], outlets.console()) as shown:
    shown.compiling(cell)
  assert cell.words in capsys.readouterr().out
