"""Experiments started as their users start them: as programs."""

import contextlib
import io
import os
import pathlib
import subprocess
import sys

import pytest
import rich.console

from sepfx.training import trials

ROOT = pathlib.Path(__file__).parent.parent
SMALL = (
  "--token_dim=2", "--batch_size=16", "--num_test=300", "--learning_rate=0.01", "--quiet",
)  # fmt: skip


def start(output_dir, *arguments, cache, devices=2, launcher=()):
  """Starts experiments.sample_complexity on small settings; returns the process."""
  environment = {
    **os.environ,
    "JAX_NUM_CPU_DEVICES": str(devices),
    "JAX_COMPILATION_CACHE_DIR": str(cache),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
  }
  command = [
    *launcher, sys.executable, "-m", "experiments.sample_complexity", *SMALL,
    *arguments, f"--output_dir={output_dir}",
  ]  # fmt: skip
  return subprocess.Popen(
    command, cwd=ROOT, env=environment, text=True,
    stdout=subprocess.PIPE, stderr=subprocess.PIPE,
  )  # fmt: skip


def finish(process, timeout=300):
  """Waits; returns the exit code and what went to stderr."""
  _, errors = process.communicate(timeout=timeout)
  return process.returncode, errors


def complete(*arguments, **settings):
  """Runs to the end; fails unless it succeeds, and prints nothing as asked."""
  process = start(*arguments, **settings)
  output, errors = process.communicate(timeout=300)
  assert process.returncode == 0, errors
  assert not output


def check_preset_says_what_it_is(preset):
  """What it reproduces, what it should find, how long it takes, how it is run."""
  text = preset.read_text()
  assert text.startswith("#")
  reproduces = "eproduces" if "quick" in preset.stem else "ublished"
  for word in (reproduces, "hould find", "Takes"):
    assert word in text
  assert "Takes ..." not in text
  assert f"--preset={preset.stem}" in text


@contextlib.contextmanager
def each_model_checked_once():
  """Cells of one model on inputs of one shape need not all trace it to be made."""
  known, check_model = {}, trials.check_model

  def check(*arguments):
    key = repr(arguments)
    if key not in known:
      known[key] = check_model(*arguments)
    return known[key]

  with pytest.MonkeyPatch.context() as patched:
    patched.setattr(trials, "check_model", check)
    yield


def printed(parts, width=100):
  """What a terminal of so many columns shows."""
  console = rich.console.Console(width=width, record=True, file=io.StringIO())
  for part in parts:
    console.print(part)
  return console.export_text()
