"""Programs that are compiled ahead: how many at once, and in which order they come."""

import collections
import threading
import types

import pytest

from sepfx import cores
from sepfx.ensembles.compiling import Compilations, number_of_workers
from sepfx.errors import OutOfMemory

SECONDS = 60  # until a test gives up what does not come


def queues(count):
  return [
    types.SimpleNamespace(example=types.SimpleNamespace(cell=k)) for k in range(count)
  ]


def taken(programs):
  """All of them, as a run takes them."""
  found = []
  while True:
    programs.begin()
    if programs.next is None:
      return found
    found.append(programs.take())


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_as_many_compile_at_once_as_there_are_workers(workers):
  """Each waits for the others of its round: k programs take k/w rounds."""
  count, together = 2 * workers, threading.Barrier(workers)
  own = queues(count)
  running, most, lock = 0, 0, threading.Lock()

  def compiler(cell):
    nonlocal running, most
    with lock:
      running += 1
      most = max(most, running)
    together.wait(SECONDS)
    with lock:
      running -= 1
    return f"program {cell}"

  with Compilations(own, compiler, workers) as programs:
    found = taken(programs)
  assert found == [(queue, f"program {k}") for k, queue in enumerate(own)]
  assert most == workers


def test_they_come_in_the_order_in_which_they_are_needed():
  """Also where later ones are done first."""
  later = threading.Semaphore(0)

  def compiler(cell):
    if cell == 0:
      for _ in range(2):
        assert later.acquire(timeout=SECONDS)
    else:
      later.release()
    return cell

  with Compilations(queues(5), compiler, 3) as programs:
    assert [program for _, program in taken(programs)] == list(range(5))


def test_no_more_are_begun_than_workers_and_one():
  """What is compiled takes memory until it is its turn."""
  begun: collections.Counter[int] = collections.Counter()
  with Compilations(queues(9), lambda cell: begun.update([cell]), 2) as programs:
    for taken_already in range(3):
      for _ in range(4):  # it is asked for again and again
        programs.begin()
      while not programs.ready:
        programs.wait()
      programs.take()
      assert max(begun) <= taken_already + 2
  assert begun.total() <= 5


def test_what_has_not_begun_is_given_up():
  entered, over = threading.Event(), threading.Event()
  ran = []

  def compiler(cell):
    ran.append(cell)
    entered.set()
    assert over.wait(SECONDS)

  with Compilations(queues(4), compiler, 1) as programs:
    programs.begin()
    assert entered.wait(SECONDS)
    assert not programs.ready
    assert programs.unfinished() == [0]
    over.set()
  assert ran == [0]


def test_what_one_fails_with_is_said_when_it_is_its_turn():
  def compiler(cell):
    if cell == 1:
      raise OutOfMemory("one")
    return cell

  with Compilations(queues(3), compiler, 3) as programs:
    programs.begin()
    assert programs.take()[1] == 0
    with pytest.raises(OutOfMemory, match="one"):
      programs.take()


@pytest.mark.parametrize(("number", "workers"), [(1, 2), (2, 2), (3, 2), (4, 3), (64, 8)])
def test_all_cores_but_one_compile_up_to_eight(monkeypatch, number, workers):
  monkeypatch.setattr(cores, "available", lambda: number)
  assert number_of_workers() == workers
