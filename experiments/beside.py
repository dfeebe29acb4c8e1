"""Runs that are summarised and drawn together with the one at hand: --beside."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from absl import flags

from experiments.running import Recorded
from sepfx import InvalidSetting
from sepfx.ensembles import Cell
from sepfx.ensembles.run_directory import differences
from sepfx.ensembles.trial_files import Finished, read_finished
from sepfx.errors import require

flags.DEFINE_list(
  "beside",
  [],
  "Directories of complete runs to summarise and draw together with this one.",
)

FLAGS = flags.FLAGS


def read(
  settings: dict, cells: Sequence[Cell], may_differ: Collection[str]
) -> list[Finished]:
  """Reads the runs of --beside.

  Args:
    settings: of the run at hand.
    cells: its grid.
    may_differ: the settings in which another run may differ from it.

  Raises:
    InvalidSetting: for a directory that holds no complete run, one of other settings,
      or one with cells that are there already.
  """
  taken = {cell.name for cell in cells}
  runs = []
  for path in FLAGS.beside:
    try:
      finished = read_finished(path)
    except (OSError, ValueError, KeyError) as error:
      takes = f"directories of complete runs ({error})"
      raise InvalidSetting("beside", path, takes) from error
    fixed = (
      {name: value for name, value in each.items() if name not in may_differ}
      for each in (finished.settings, settings)
    )
    differing = differences(*fixed)
    takes = f"runs that differ in {', '.join(may_differ)} alone; this one differs in "
    require(not differing, "beside", path, takes + ", ".join(differing))
    names = {name.rpartition("/")[0] for name in finished.curves}
    both = sorted(taken & names)
    takes = f"runs of other cells; {', '.join(both)} would be there twice"
    require(not both, "beside", path, takes)
    taken |= names
    runs.append(finished)
  return runs


def joined(
  run: Recorded, others: Sequence[Finished]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
  """Returns the records and the curves of the run at hand and of the others."""
  records = np.concatenate([run.records, *(each.records for each in others)])
  curves = [run.curves, *(each.curves for each in others)]
  return records, {name: curve for own in curves for name, curve in own.items()}
