"""What the error is called that thresholds are about: "mean squared error", say."""

from __future__ import annotations

from collections.abc import Mapping

from sepfx import tasks
from sepfx.ensembles import Records
from sepfx.tasks import CLASSIFICATION, QSTR, REGRESSION

# The note of records that has it, by the cell.
NOTE = "error_name"
# What is said where it is not known, or where cells have several.
UNKNOWN = "error"
# What figures and tables write in place of long names.
_SHORT = {REGRESSION.error_name: "MSE"}
# What studies call the tasks that they have themselves.
_OF_STUDIES = {"qstr": QSTR, "simple_qstr": QSTR}


def of(records: Records) -> str:
  """What the error of these records is called, in full.

  Records that were made before errors had names are of the task that their settings
  describe, if it is one of the library's. Else their columns say it, or it is "error".
  """
  noted, known = records.notes.get(NOTE, {}), _of_older(records)
  cells = dict.fromkeys(map(records.cell_of, records.table))
  names = {noted.get(cell, known) for cell in cells}
  return names.pop() if len(names) == 1 else UNKNOWN


def short(name: str) -> str:
  """A name as figures and tables write it: MSE for the mean squared error."""
  return _SHORT.get(name, name)


def _of_older(records: Records) -> str:
  if "accuracy" in (records.table.dtype.names or ()):
    return CLASSIFICATION.error_name
  task = records.settings.get("task")
  if isinstance(task, Mapping):  # of a call in Python
    module, _, name = str(task.get("class")).partition(":")
    found = getattr(tasks, name, None) if module.startswith("sepfx.tasks.") else None
  else:
    found = _OF_STUDIES.get(str(task))
  objective = getattr(found, "objective", None)  # of a class that a directory names
  return str(getattr(objective, "error_name", UNKNOWN))
