"""What a person sees while trials run."""

import io

import numpy as np
import rich.console

from sepfx.ensembles import Cell, Result, progress
from tests import small

CELL = Cell(small.TRIAL)


def test_recorded_trials_are_not_waited_for(monkeypatch):
  monkeypatch.setattr(progress, "_PLAIN_SECONDS", 0.0)
  file = io.StringIO()
  console = rich.console.Console(file=file, width=200)
  with progress.Progress(5, console) as shown:
    shown.advanced([CELL, None], np.array([10, 0]))
    shown.recorded(2)
    shown.ended(Result(CELL, 0, (), np.zeros(0)))
    shown.leave_out(2)
  before, after, end = file.getvalue().splitlines()
  assert before.startswith("0/5 trials")
  assert after.startswith("3/5 trials")
  assert "left" in after or "nearly done" in after
  assert end.startswith("3/3 trials")
  assert "nearly done" not in end
