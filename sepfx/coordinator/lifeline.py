"""Connections between the processes of a run: who is there, who ended it and why.

The first process listens at the coordinator's address, every process connects, itself
included, and says what it was started with (`sepfx.coordinator.roll_call`). When all are
there the port is JAX's, and these connections stay: whoever fails says so to all
others, whoever is lost is missed, and nobody waits for either in a collective.

Messages are lines of JSON.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import signal
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any, NoReturn

from sepfx import outlets

# Processes tell one another this often that they live; are asked for in words, and
# given up, after so long without a word. JAX's own limit, 100 seconds, is never met.
ALIVE_SECONDS = 5.0
ASK_SECONDS = 20.0
LOST_SECONDS = 45.0
# An error in one process is often the echo of another's, which arrives within this.
_ECHO_SECONDS = 2.0

# Exit code where a process was lost (`sysexits.h`: temporary failure).
LOST = os.EX_TEMPFAIL
GOES_ON = "the same command goes on from the last checkpoint"


class Line:
  """One connection: sends and receives messages, any of which may be late or cut."""

  def __init__(self, connection: socket.socket):
    self.socket = connection
    self.heard = time.monotonic()
    self._rest = b""
    self._sending = threading.Lock()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

  def send(self, **message: Any) -> None:
    """Sends, unless the other side is gone: what reads from it will notice."""
    with contextlib.suppress(OSError), self._sending:
      self.socket.sendall(json.dumps(message).encode() + b"\n")

  def receive(self) -> list[dict[str, Any]]:
    """Returns the messages that have come, waiting for bytes as the socket says.

    Raises:
      ConnectionError: if the other side is gone.
      TimeoutError: if nothing came in time.
      ValueError: for what is no message.
    """
    try:
      got = self.socket.recv(65536)
    except TimeoutError:
      raise
    except OSError as error:
      raise ConnectionError(str(error)) from error
    if not got:
      raise ConnectionError("it is gone")
    self.heard = time.monotonic()
    *lines, self._rest = (self._rest + got).split(b"\n")
    found = [json.loads(line) for line in lines]
    if not all(isinstance(message, dict) for message in found):
      raise ValueError("no message")
    return found


class Lifeline:
  """A process's own end of its connection to the first process.

  A thread listens for as long as the process lives, and ends it when the run has ended
  elsewhere.
  """

  def __init__(self, line: Line, process: int):
    """Starts to listen.

    Args:
      line: to the first process, after the roll call.
      process: this one.
    """
    self._line, self._process = line, process
    self._ending = threading.Lock()
    self._echoed, self._all_done = threading.Event(), threading.Event()
    self._leaving = self._joining = False
    line.socket.settimeout(ALIVE_SECONDS)
    threading.Thread(target=self._listen, daemon=True).start()
    self._on_abort()

  @contextlib.contextmanager
  def joining(self) -> Iterator[None]:
    """While JAX connects the processes: an abort then means that it could not."""
    self._joining = True
    yield
    self._joining = False

  def end(self, code: int, words: str) -> NoReturn:
    """Ends this process and all others: it failed alone.

    Unless its error is the echo of another's, whose words come first then.

    Args:
      code: exit code of all of them.
      words: what this process has to say; the others repeat it.
    """
    time.sleep(_ECHO_SECONDS)
    self._ending.acquire()
    outlets.say(words)
    self._line.send(ended={"process": self._process, "code": code, "words": words})
    self._echoed.wait(_ECHO_SECONDS)
    os._exit(code)  # the usual way out waits for the other processes

  def leave(self, wait: bool) -> None:
    """Leaves the run, so that nobody misses this process.

    Args:
      wait: until the first process is done, too; it draws figures after all trials.
        Until then this one is missed if it is lost: the first could not end without it.
    """
    if wait and self._process != 0:
      self._all_done.wait()
    self._leaving = True
    self._line.send(leaving=True)

  def _listen(self) -> None:
    while True:
      try:
        for message in self._line.receive():
          self._take(message)
      except TimeoutError:
        silent = time.monotonic() - self._line.heard
        if silent > LOST_SECONDS:
          self._lost(f"the first process was not heard of for {silent:.0f} seconds")
        elif silent > ASK_SECONDS:
          outlets.say(f"waiting for the first process, silent for {silent:.0f} seconds")
      except (ConnectionError, ValueError):
        self._lost("the first process of this run was lost")
        return
      self._line.send(alive=True)

  def _take(self, message: dict[str, Any]) -> None:
    if "ended" in message:
      ended = message["ended"]
      if ended["process"] == self._process:
        self._echoed.set()
        return
      by = f"process {ended['process']} of this run ended it: {ended['words']}"
      self._quit(ended["code"], by)
    elif "lost" in message:
      self._lost(message["lost"])
    elif "silent" in message:
      outlets.say(message["silent"])
    elif "all_done" in message:
      self._all_done.set()

  def _lost(self, words: str) -> None:
    if not self._leaving:
      self._quit(LOST, f"error: {words}\n{GOES_ON}")

  def _quit(self, code: int, words: str) -> None:
    if not self._ending.acquire(blocking=False):
      return  # this process has its own last words
    outlets.say(("\x1b[?25h" if os.isatty(2) else "") + words)  # a bar hides the cursor
    os._exit(code)

  def _on_abort(self) -> None:
    """Has JAX's abort at the loss of the first process wait for our own end of it.

    JAX ends a process from C++ when the first one is gone. By then its connection here
    is closed, too; the thread that listens is given the time to say so.
    """

    def wait(_: int) -> None:
      time.sleep(_ECHO_SECONDS)
      if self._joining:
        self._quit(LOST, "error: JAX could not connect the processes\n" + GOES_ON)
      # Otherwise the abort is this process's own: it goes on when this returns.

    self._handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(wait)
    ctypes.CDLL(None).signal(signal.SIGABRT, self._handler)


class Hub:
  """The first process's end of all connections."""

  def __init__(self, lines: dict[int, Line]):
    """Takes over the connections from a roll call.

    Args:
      lines: to each process.
    """
    self._lines = lines
    self._left: set[int] = set()
    self._selector = selectors.DefaultSelector()
    for process, line in lines.items():
      self._selector.register(line.socket, selectors.EVENT_READ, process)

  def run(self) -> None:
    """Passes messages on until the process ends."""
    told = 0.0
    while True:
      for key, _ in self._selector.select(1.0):
        self._read(key.data)
      now = time.monotonic()
      if now - told >= ALIVE_SECONDS:
        told = now
        self._look(now)

  def _read(self, process: int) -> None:
    line = self._lines[process]
    try:
      for message in line.receive():
        if "leaving" in message:
          self._left.add(process)
          if process == 0:
            self._left.update(self._lines)
            self._tell(all_done=True)
        elif "ended" in message:
          self._tell(**message)
    except (OSError, ValueError):
      del self._lines[process]
      self._selector.unregister(line.socket)
      if process not in self._left:
        self._tell(lost=f"process {process} of this run was lost")

  def _look(self, now: float) -> None:
    self._tell(alive=True)
    for process, line in self._lines.items():
      silent = now - line.heard
      if process in self._left or silent < ASK_SECONDS:
        continue
      words = f"process {process}, silent for {silent:.0f} seconds"
      if silent < LOST_SECONDS:
        self._tell(silent=f"waiting for {words}")
      else:
        self._tell(lost=f"{words}, was lost")

  def _tell(self, **message: Any) -> None:
    """Tells all; this process last, since it may end then."""
    for process in sorted(self._lines, reverse=True):
      self._lines[process].send(**message)
