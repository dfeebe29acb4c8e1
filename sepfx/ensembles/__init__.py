"""How many trials run: lanes, programs, the host loop."""

from sepfx.ensembles.cells import TASK_DRAWS, Cell, grid, numbers_of_parameters
from sepfx.ensembles.host_loop import run
from sepfx.ensembles.lanes import Lanes, leaves_of
from sepfx.ensembles.rehearsal import Rehearsed, rehearse
from sepfx.ensembles.results import Records, Result, columns, joined, table, trial_name
from sepfx.ensembles.watchers import InProgress, Keeper, Watcher

__all__ = [
  "TASK_DRAWS",
  "Cell",
  "InProgress",
  "Keeper",
  "Lanes",
  "Records",
  "Rehearsed",
  "Result",
  "Watcher",
  "columns",
  "grid",
  "joined",
  "leaves_of",
  "numbers_of_parameters",
  "rehearse",
  "run",
  "table",
  "trial_name",
]
