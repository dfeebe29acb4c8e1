"""Who takes part in a run of several processes, and whether all were started alike.

Before anything of JAX, at the address that JAX will use: the first process listens,
every process connects and brings its card, which says what it was started with.
"""

from __future__ import annotations

import errno
import itertools
import os
import selectors
import socket
import threading
import time
from collections.abc import Mapping

from sepfx import outlets
from sepfx.coordinator.lifeline import Hub, Lifeline, Line
from sepfx.errors import InvalidSetting, require

# What is waited for is said after so many seconds, and again and again.
_FIRST_WORDS, _FURTHER_WORDS = 10.0, 20.0
# When a difference is known the others still have so long to come and hear of it.
_LINGER = 20.0
_RETRY = 0.3


def hold(
  address: str, count: int, process: int, card: Mapping[str, str], timeout: float
) -> Lifeline:
  """Returns when all processes are there and have the same card.

  Args:
    address: host:port of the first process.
    count: of processes.
    process: this one.
    card: what has to be the same in all, each as text; names are those of flags.
    timeout: seconds to wait for the others.

  Raises:
    InvalidSetting: if two cards differ, two processes have one number, or something
      else listens there.
    ConnectionError: if a process did not come in time.
  """
  host, port = _parsed(address)
  card = {"num_processes": str(count), **card}
  listening = _listen(port, address, count, timeout) if process == 0 else None
  try:
    line = _answered(host, port, count, process, card, timeout)
  except InvalidSetting:
    if listening is not None:
      listening.join(_LINGER)  # this process may end when the others have been told
    raise
  return Lifeline(line, process)


def _parsed(address: str) -> tuple[str, int]:
  host, _, port = address.rpartition(":")
  number = int(port) if port.isascii() and port.isdigit() and len(port) < 6 else 0
  takes = "HOST:PORT, with a port from 1 to 65535"
  require(bool(host) and 0 < number < 2**16, "coordinator", address, takes)
  return host.removeprefix("[").removesuffix("]"), number


def _answered(
  host: str, port: int, count: int, process: int, card: Mapping[str, str], timeout: float
) -> Line:
  """Connects, brings the card and waits for the answer; returns the connection."""
  start = time.monotonic()
  where = f"the first process at {host}:{port}"
  missing, cause, next_words = where, "", start + _FIRST_WORDS
  unknown: InvalidSetting | None = None
  line: Line | None = None
  while True:
    now = time.monotonic()
    if now - start >= timeout:
      if unknown is not None:
        raise unknown
      raise ConnectionError(
        f"{missing} did not come within {timeout:g} seconds (--start_timeout){cause}"
      )
    if now >= next_words:
      next_words = now + _FURTHER_WORDS
      outlets.say(
        f"process {process} of {count} is waiting for {missing}{cause} "
        f"({now - start:.0f} of {timeout:g} seconds)"
      )
    try:
      if line is None:
        line = Line(socket.create_connection((host, port), timeout=5.0))
        line.socket.settimeout(1.0)
        line.send(process=process, card=card)
      messages = line.receive()
      unknown = None
    except TimeoutError:
      continue
    except OSError as error:  # not there yet, or gone again
      cause = f" ({error.strerror or error})"
      line, missing = None, where
      if isinstance(error, socket.gaierror):
        takes = f"an address that this host knows ({error.strerror})"
        unknown = InvalidSetting("coordinator", f"{host}:{port}", takes)
      time.sleep(_RETRY)
      continue
    except ValueError:
      takes = "an address at which nothing but the first process of this run listens"
      unknown = InvalidSetting("coordinator", f"{host}:{port}", takes)
      cause, line = " (another program answers there)", None
      time.sleep(_RETRY)
      continue
    for message in messages:
      if "missing" in message:
        missing, cause = _named(message["missing"]), ""
      elif "refused" in message:
        raise InvalidSetting(*message["refused"])
      elif "all_there" in message:
        return line


def _named(processes: list[int]) -> str:
  shown = ", ".join(map(str, processes[:8])) + (", ..." if len(processes) > 8 else "")
  return f"process {shown}" if len(processes) == 1 else f"processes {shown}"


def _listen(
  port: int, address: str, count: int, timeout: float
) -> threading.Thread | None:
  """Starts the thread that answers the processes, and later is their hub.

  Returns None where another listens already.
  """
  own = os.environ.get("JAX_COORDINATOR_BIND_ADDRESS")
  host, port = _parsed(own) if own else ("", port)
  six = socket.has_dualstack_ipv6() and host in ("", "::")
  family = socket.AF_INET6 if six or ":" in host else socket.AF_INET
  try:
    listener = socket.create_server((host, port), family=family, dualstack_ipv6=six)
  except OSError as error:
    if error.errno == errno.EADDRINUSE:
      return None  # by another process 0, perhaps: what answers there will say so
    takes = f"an address of this host, that of process 0 ({error.strerror})"
    raise InvalidSetting("coordinator", address, takes) from error
  roll = _Roll(listener, count, timeout)
  thread = threading.Thread(target=roll.run, daemon=True)
  thread.start()
  return thread


class _Roll:
  """The first process's side: takes the cards, compares them and answers all."""

  def __init__(self, listener: socket.socket, count: int, timeout: float):
    self._listener, self._count, self._timeout = listener, count, timeout
    self._selector = selectors.DefaultSelector()
    self._selector.register(listener, selectors.EVENT_READ)
    self._came: dict[Line, tuple[int, dict[str, str]]] = {}

  def run(self) -> None:
    """Ends with the process, or when all have been told why they are refused."""
    start = time.monotonic()
    missing: list[int] = []
    refused_at = None
    while time.monotonic() - start < self._timeout + 2 * _RETRY:
      for line in self._wait(_RETRY):
        self._read(line)
      there = {process for process, _ in self._came.values()}
      now = [process for process in range(self._count) if process not in there]
      if now != missing:
        missing = now
        for line in self._came:
          line.send(missing=missing)
      if self._refusals():
        refused_at = refused_at or time.monotonic()
        all_came = len(self._came) >= self._count
        if all_came or time.monotonic() - refused_at > _LINGER:
          break
      elif not missing:
        break
    self._listener.close()
    self._selector.unregister(self._listener)
    refusals = self._refusals()
    if not refusals and missing:
      return  # each of them says so itself
    lines = {process: line for line, (process, _) in self._came.items()}
    for line in self._came:
      if refusals:
        line.send(refused=refusals[line])
      else:
        line.send(all_there=True)
    if not refusals:
      self._selector.close()
      Hub(lines).run()

  def _wait(self, seconds: float) -> list[Line]:
    """Returns the lines that have something to read."""
    ready = []
    for key, _ in self._selector.select(seconds):
      if key.fileobj is not self._listener:
        ready.append(key.data)
        continue
      connection, _ = self._listener.accept()
      connection.settimeout(5.0)
      self._selector.register(connection, selectors.EVENT_READ, Line(connection))
    return ready

  def _read(self, line: Line) -> None:
    try:
      for message in line.receive():
        self._came[line] = int(message["process"]), dict(message["card"])
    except (OSError, ValueError, KeyError, TypeError):
      self._came.pop(line, None)
      self._selector.unregister(line.socket)
      line.socket.close()

  def _refusals(self) -> dict[Line, tuple[str, str, str]]:
    """What each process is told; none if nothing is wrong so far."""
    numbers = sorted(process for process, _ in self._came.values())
    twice = [a for a, b in itertools.pairwise(numbers) if a == b]
    if twice:
      takes = f"a number that no other process has; two have {twice[0]}"
      return {
        line: ("process_id", str(process), takes)
        for line, (process, _) in self._came.items()
      }
    cards = dict(sorted(self._came.values(), key=lambda item: item[0]))
    if not cards or 0 not in cards:
      return {}
    first = cards[0]
    for process, card in cards.items():
      for name in sorted({*first, *card}):
        if first.get(name) != card.get(name):
          return self._differ(name, process, cards)
    return {}

  def _differ(
    self, name: str, process: int, cards: Mapping[int, Mapping[str, str]]
  ) -> dict[Line, tuple[str, str, str]]:
    """What each is told if `process` differs from the first in `name`."""
    first = cards[0].get(name, "nothing")
    answers = {}
    for line, (_, card) in self._came.items():
      value = card.get(name, "nothing")
      takes = f"{first}, as the first process has"
      if value == first:
        other = cards[process].get(name, "nothing")
        takes = f"the same in all processes; process {process} has {other}"
      answers[line] = (name, value, takes)
    return answers
