"""Ctrl-C while a call lasts."""

from __future__ import annotations

import signal
import threading

import rich.console


class Interrupts:
  """Takes the first Ctrl-C for a request to keep what is in progress, and to stop.

  A context manager. Signals are for a process's main thread alone: elsewhere, and the
  second time, Ctrl-C ends the call at once.
  """

  def __init__(self, console: rich.console.Console):
    self.requested = False
    self._console, self._before = console, signal.getsignal(signal.SIGINT)

  def __enter__(self) -> Interrupts:
    if self._heard():
      signal.signal(signal.SIGINT, self._ask)
    return self

  def __exit__(self, *_: object) -> None:
    if self._heard():
      signal.signal(signal.SIGINT, self._before)

  def _heard(self) -> bool:
    """Whether Ctrl-C would end the call: not where it is ignored, in a job of `nohup`."""
    main = threading.current_thread() is threading.main_thread()
    return main and callable(self._before)

  def _ask(self, *_: object) -> None:
    if self.requested:
      raise KeyboardInterrupt("ended: what was recorded is kept")
    self.requested = True
    self._console.print(
      "stopping: keeping what is in progress (Ctrl-C again ends without it)"
    )
