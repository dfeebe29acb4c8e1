"""Waiting says so: what is compiled is shown at once, and a dry run can be stopped."""

import io
import re
import signal
import threading
import time

import pytest
import rich.console
from absl import flags
from absl.testing import flagsaver

import sepfx
from sepfx.commands import options, rehearsing
from sepfx.ensembles import Cell
from sepfx.errors import InvalidSetting
from sepfx.tasks import QSTR
from sepfx.watching.progress import Progress
from tests import small
from tests.programs import start


def test_what_is_compiled_is_said_at_once():
  """Where there is no bar, too: in a file, or a notebook without ipywidgets."""
  console = rich.console.Console(file=io.StringIO())
  cell = Cell(small.TRIAL)
  with Progress(1, [cell], console) as shown:
    shown.compiling(cell)
    assert "compiling qstr: m length=3" in console.file.getvalue()


def test_a_call_says_what_it_checks_before_anything_else(capsys):
  with pytest.raises(InvalidSetting, match="thresholds"):
    sepfx.measure(QSTR(token_dim=2), "ffn", [4, 8], sepfx.Online(thresholds=(5,)))
  assert capsys.readouterr().err == "checking ffn at N = 4, 8\n"


class Stop:
  requested = False


class Ended(BaseException):
  """What stands for the end of the process here."""


def test_a_dry_run_stops_while_it_compiles(monkeypatch, capfd):
  stop, forever = Stop(), threading.Event()

  def programs():
    yield "first"
    stop.requested = True
    forever.wait()  # XLA compiles, and hears no signal
    yield "second"

  def end(code):
    raise Ended(code)

  monkeypatch.setattr(rehearsing.os, "_exit", end)
  found = []
  with pytest.raises(Ended, match="75"):
    found.extend(rehearsing.stoppable(programs(), stop))
  forever.set()
  assert "stopped; nothing was run" in capfd.readouterr().err


def test_time_that_is_up_stops_a_run_once(monkeypatch, capfd):
  now = 100.0
  monkeypatch.setattr(options.signal, "signal", lambda *_: None)
  monkeypatch.setattr(options.time, "monotonic", lambda: now)
  with flagsaver.flagsaver():
    flags.FLAGS(["study"])
    limited, free = options.Stop(60), options.Stop()
    now = 159.9
    assert not limited.requested
    now = 160.0
    assert [limited.requested, limited.requested, free.requested] == [True, True, False]
    # The first Ctrl-C after that is no second one.
    limited._on_signal(signal.SIGINT, None)
  said = capfd.readouterr().err
  first, then = said.splitlines(keepends=True)
  assert "Ctrl-C again" in then
  assert first == "the time is up, stopping: keeping what is in progress\n"


def test_a_dry_run_hands_on_what_it_finds_and_what_goes_wrong():
  assert list(rehearsing.stoppable(iter([1, 2]), Stop())) == [1, 2]

  def failing():
    yield 1
    raise InvalidSetting("codes", 3, "others")

  with pytest.raises(InvalidSetting, match="codes"):
    list(rehearsing.stoppable(failing(), Stop()))


@pytest.mark.slow
def test_sigterm_ends_a_dry_run(tmp_path):
  process = start(
    tmp_path / "run", "--dry_run", "--noquiet", "--models=gru:units=500",
    "--lengths=12,24", cache=tmp_path / "cache",
  )  # fmt: skip
  said = ""
  while "compiling 1 of 2: qstr: gru:units=500 length=12" not in said:
    line = process.stderr.readline()
    assert line, said
    said += line
  time.sleep(0.5)
  process.send_signal(signal.SIGTERM)
  output, errors = process.communicate(timeout=60)
  assert process.returncode == 75, errors
  assert "stopped; nothing was run" in errors
  assert not re.search("compiling 2", errors)
  assert not output
  assert not (tmp_path / "run").exists()
