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
    shown.leave_out(2)
    shown.ended(Result(CELL, 0, (), np.zeros(0)))
  before, after = file.getvalue().splitlines()
  assert before.startswith("0/5 trials")
  assert after.startswith("1/3 trials")
