"""How many trials run: lanes, the host loop, records, run directories."""

from sepfx.ensembles.cells import TASK_DRAWS, Cell, grid
from sepfx.ensembles.host_loop import InProgress, Keeper, Watcher, run
from sepfx.ensembles.lanes import Lanes
from sepfx.ensembles.measure import measure
from sepfx.ensembles.records import Result, columns, table, trial_name

__all__ = [
  "TASK_DRAWS",
  "Cell",
  "InProgress",
  "Keeper",
  "Lanes",
  "Result",
  "Watcher",
  "columns",
  "grid",
  "measure",
  "run",
  "table",
  "trial_name",
]
