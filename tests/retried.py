"""A share whose process is killed once; a module of its own, which workers import."""

import os
import pathlib
import signal

import sepfx
from tests import test_shares


class Killed(sepfx.Watcher):
  """Kills the process when its first trial has ended, once in all."""

  def __init__(self, mark):
    self._mark = pathlib.Path(mark)

  def ended(self, result):
    if not self._mark.exists():
      self._mark.touch()
      os.kill(os.getpid(), signal.SIGKILL)


def work(index, count, directory):
  watchers = [Killed(f"{directory}.killed")] if index == 1 else []
  test_shares.measured(directory, (index, count), watchers=watchers)
