"""Who takes part in a run of several processes: what is compared before anything runs.

Threads stand for processes here; that a run goes on when all are there, and what
happens when one is lost then, is in test_process_faults.py.
"""

import concurrent.futures
import socket
import threading
import time

import pytest
from absl import flags
from absl.testing import flagsaver

from experiments.boolean.boolean_sample_complexity import STUDY
from sepfx import InvalidSetting
from sepfx.commands import card
from sepfx.coordinator import roll_call

CARD = {"seed": "0", "num_trials": "5"}


def called(*processes, timeout=20.0):
  """Holds a roll call of (number, count, card); returns what each of them was told."""
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    address = f"127.0.0.1:{free.getsockname()[1]}"

  def hold(process, count, card):
    with pytest.raises((InvalidSetting, ConnectionError)) as error:
      roll_call.hold(address, count, process, card, timeout)
    return str(error.value)

  with concurrent.futures.ThreadPoolExecutor() as pool:
    told = [pool.submit(hold, *process) for process in processes]
    return [each.result(timeout=60) for each in told]


def test_a_flag_that_differs_is_named_with_both_values():
  other = {**CARD, "seed": "1"}
  assert called((0, 3, CARD), (1, 3, CARD), (2, 3, other)) == [
    "seed: got '0', takes the same in all processes; process 2 has 1",
    "seed: got '0', takes the same in all processes; process 2 has 1",
    "seed: got '1', takes 0, as the first process has",
  ]


@pytest.mark.parametrize(
  "argument",
  ["--lanes=4", "--search=adaptive", "--probes=norms", "--keep_weights", "--width=7"],
)
def test_a_card_has_what_a_program_depends_on(argument):
  def made(*arguments):
    own = [a for a in arguments if a.partition("=")[0].removeprefix("--") in flags.FLAGS]
    with flagsaver.flagsaver():
      flags.FLAGS(["study", *own])
      return card.made("boolean", STUDY.chosen(arguments))

  one, two = made(), made(argument)
  name = argument.partition("=")[0].removeprefix("--")
  assert [k for k in two if one.get(k) != two[k]] == [name]


def test_a_flag_that_one_process_alone_has():
  first, second = called((0, 2, CARD), (1, 2, {**CARD, "width": "20"}))
  assert (
    first == "width: got 'nothing', takes the same in all processes; process 1 has 20"
  )
  assert second == "width: got '20', takes nothing, as the first process has"


def test_the_number_of_processes_differs():
  first, second = called((0, 2, CARD), (2, 3, CARD))
  assert first.startswith("num_processes: got '2', takes the same in all processes")
  assert second == "num_processes: got '3', takes 2, as the first process has"


@pytest.mark.parametrize("numbers", [(0, 1, 1), (0, 0, 1)])
def test_a_number_that_two_processes_have(numbers):
  for own, told in zip(numbers, called(*((k, 3, CARD) for k in numbers)), strict=True):
    assert told.startswith(f"process_id: got '{own}', takes a number that no other")


def test_the_first_process_does_not_end_before_its_twin_was_told(monkeypatch):
  """Its twin would wait for --start_timeout otherwise: nobody answers it then."""
  plain = roll_call.Line.send
  first_came, told, told_at_the_end = threading.Event(), [], []

  def slow(line, **message):
    if "refused" in message:
      time.sleep(0.3)
      told.append(line)
    plain(line, **message)
    first_came.set()

  monkeypatch.setattr(roll_call.Line, "send", slow)
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    address = f"127.0.0.1:{free.getsockname()[1]}"

  def hold():
    with pytest.raises(InvalidSetting, match="process_id"):
      roll_call.hold(address, 2, 0, CARD, 20.0)
    told_at_the_end.append(len(told))

  with concurrent.futures.ThreadPoolExecutor() as pool:
    first = pool.submit(hold)
    assert first_came.wait(20.0)
    twin = pool.submit(hold)
    twin.result(timeout=60)
    first.result(timeout=60)
  assert told_at_the_end == [2, 2]


@pytest.mark.slow
@pytest.mark.parametrize(
  ("process", "missing"), [(0, "process 1 did"), (1, "the first process at 127.0.0.1:")]
)
def test_a_process_that_never_comes(capfd, monkeypatch, process, missing):
  monkeypatch.setattr(roll_call, "_FIRST_WORDS", 0.5)
  (told,) = called((process, 2, CARD), timeout=2.0)
  assert told.startswith(missing)
  assert "not come within 2 seconds (--start_timeout)" in told
  assert f"process {process} of 2 is waiting for " in capfd.readouterr().err


def test_another_program_at_the_address(monkeypatch):
  with socket.create_server(("127.0.0.1", 0)) as server:
    address = f"127.0.0.1:{server.getsockname()[1]}"

    def answer():
      server.settimeout(0.5)
      while True:
        try:
          connection, _ = server.accept()
        except TimeoutError:
          return
        with connection:
          connection.sendall(b"HTTP/1.1 400 Bad Request\n")

    with concurrent.futures.ThreadPoolExecutor() as pool:
      pool.submit(answer)
      with pytest.raises(InvalidSetting, match=r"coordinator: .* nothing but the first"):
        roll_call.hold(address, 2, 1, CARD, 1.0)


def test_a_host_that_nobody_knows():
  with pytest.raises(InvalidSetting, match="takes an address that this host knows"):
    roll_call.hold("no-such-host.invalid:12345", 2, 1, CARD, 1.0)
