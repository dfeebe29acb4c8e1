"""`sepfx.measure` in a notebook leaves what the command line leaves, whatever happens.

The notebook's kernel is a process of its own, driven as Jupyter drives it.
"""

import contextlib
import queue
import signal
import time

import jupyter_client
import pytest
from jupyter_client.kernelspec import KernelSpecManager

from tests.programs import ROOT, complete

TRIALS = 40
SECONDS = 120  # until a test gives up
# Some trials end early, the others spend their budget.
COMMAND = (
  "--models=tests.small:Linear", "--lengths=3", f"--num_trials={TRIALS}",
  "--thresholds=0.9,0.8", "--check_every=20", "--max_samples=256000",
)  # fmt: skip
FIRST_CELL = """
import sepfx
from sepfx.tasks import QSTR
from sepfx.training import AdamW, Online

class Ended(sepfx.Watcher):
  def __init__(self):
    self.number = 0

  def ended(self, result):
    self.number += 1
"""
# As `COMMAND` and `programs.SMALL` have it. One lane: few trials end at a time.
CELL = f"""
ended = Ended()
records = sepfx.measure(
  QSTR(token_dim=2), "tests.small:Linear", 3,
  Online(
    thresholds=(0.9, 0.8), optimizer=AdamW(0.01, weight_decay=0.01), batch_size=16,
    check_every=20, num_test=300, max_samples=256_000,
  ),
  num_trials={TRIALS}, lanes=1, directory=%r, watchers=[ended],
)
"""


class Notebook:
  """A kernel that is given cells.

  A context manager.
  """

  def __init__(self):
    # This Python's own: a user may have another kernel of the same name.
    specs = KernelSpecManager(kernel_dirs=[])
    self.manager = jupyter_client.KernelManager(kernel_spec_manager=specs)

  def __enter__(self):
    self.manager.start_kernel(cwd=ROOT)
    self._client = self.manager.blocking_client()
    self._client.start_channels()
    self._client.wait_for_ready(timeout=SECONDS)
    assert self.run(FIRST_CELL)[0]["status"] == "ok"
    return self

  def __exit__(self, *_):
    self._client.stop_channels()
    self.manager.shutdown_kernel(now=True)

  def start(self, cell):
    """Gives a cell to the kernel, and does not wait for its end."""
    return self._client.execute(cell, user_expressions={"ended": "ended.number"})

  def finish(self, cell):
    """What the kernel answers when the cell has ended, and what a person then sees."""
    # A kernel that took long to start was asked more than once whether it is ready, and
    # answers each time.
    reply = self._client.get_shell_msg(timeout=SECONDS)
    while reply["msg_type"] == "kernel_info_reply":
      reply = self._client.get_shell_msg(timeout=SECONDS)
    assert reply["parent_header"]["msg_id"] == cell
    seen = []
    while True:
      message = self._client.get_iopub_msg(timeout=SECONDS)
      if message["parent_header"].get("msg_id") == cell:
        if message["content"].get("execution_state") == "idle":
          return reply["content"], seen
        seen.append(message)

  def run(self, cell):
    """Gives a cell to the kernel, and waits for its end."""
    return self.finish(self.start(cell))

  def await_trials(self, directory):
    """Waits until a trial is recorded of the cell that runs."""
    end = time.monotonic() + SECONDS
    while not recorded(directory):
      assert time.monotonic() < end
      with contextlib.suppress(queue.Empty):
        pytest.fail(f"ended too soon: {self._client.get_shell_msg(timeout=0.05)}")


def recorded(directory):
  """Rows of trials that are recorded as yet."""
  path = directory / "trials.csv"
  return path.read_text().splitlines(keepends=True)[1:] if path.exists() else []


def check_completed(directory, of_command, rows, reply, seen):
  """That a call ran what was missing, and left what the command line leaves."""
  assert reply["status"] == "ok", reply
  missing = TRIALS - len(rows) // 2
  assert reply["user_expressions"]["ended"]["data"]["text/plain"] == str(missing)
  assert any(f"{TRIALS}/{TRIALS}" in text for text in texts(seen))
  assert not [message for message in seen if message["msg_type"] == "stream"]
  for name in ("trials.csv", "curves.npz"):
    assert (directory / name).read_bytes() == (of_command / name).read_bytes()
  assert set(rows) <= set(recorded(directory))
  assert not (directory / "checkpoints").exists()


def texts(seen):
  """What a call has shown of its progress."""
  shown = [message for message in seen if message["msg_type"] == "display_data"]
  return [message["content"]["data"]["text/plain"] for message in shown]


@pytest.fixture(scope="module")
def of_command(tmp_path_factory):
  path = tmp_path_factory.mktemp("command")
  complete(path, *COMMAND, cache=tmp_path_factory.mktemp("cache"))
  return path


@pytest.mark.faults
def test_a_kernel_is_killed_and_another_goes_on(tmp_path, of_command):
  with Notebook() as notebook:
    notebook.start(CELL % str(tmp_path))
    notebook.await_trials(tmp_path)
    notebook.manager.signal_kernel(signal.SIGKILL)
  rows = recorded(tmp_path)
  assert 0 < len(rows) < 2 * TRIALS
  with Notebook() as notebook:
    answer = notebook.run(CELL % str(tmp_path))
  check_completed(tmp_path, of_command, rows, *answer)


@pytest.mark.faults
def test_a_cell_is_interrupted_and_goes_on(tmp_path, of_command):
  with Notebook() as notebook:
    cell = notebook.start(CELL % str(tmp_path))
    notebook.await_trials(tmp_path)
    notebook.manager.interrupt_kernel()
    reply, seen = notebook.finish(cell)
    assert reply["ename"] == "KeyboardInterrupt", reply
    assert reply["evalue"] == "stopped; the same call goes on from here"
    assert any("stopping: keeping what is in progress" in text for text in texts(seen))
    rows = recorded(tmp_path)
    assert 0 < len(rows) < 2 * TRIALS
    assert list(tmp_path.glob("checkpoints/lanes-*.sha256"))
    answer = notebook.run(CELL % str(tmp_path))
  check_completed(tmp_path, of_command, rows, *answer)
