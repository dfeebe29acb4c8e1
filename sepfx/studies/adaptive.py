"""An adaptive search for critical sample sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sepfx import specifications
from sepfx.ensembles import Cell, trial_name
from sepfx.statistics import success
from sepfx.studies.requests import Rows

# Rounds of a search.
_ROUNDS = 16
_SIZE = "sample_size"


class Adaptive:
  """A `requests.Search`: trials by how earlier ones that differ in m alone ended.

  The choices follow from the outcomes alone: a run that was interrupted makes them again.
  """

  def __init__(self, cells: Sequence[Cell], num_trials: int):
    """Chooses nothing yet.

    Args:
      cells: on fixed samples.
      num_trials: of all cells together that differ in their sample size alone.
    """
    self._each = num_trials
    self._groups: dict[tuple, dict[int, Cell]] = {}
    for cell in cells:
      own = cell.coordinates
      size = own.pop(_SIZE)
      key = tuple(map(specifications.canonical, own.values()))
      self._groups.setdefault(key, {})[size] = cell
    self._chosen: dict[tuple, list[tuple[int, str]]] = {key: [] for key in self._groups}
    self.num_trials = num_trials * len(self._groups)

  def __call__(self, ended: Mapping[str, Rows]) -> list[str]:
    names = []
    for key, cells in self._groups.items():
      before = self._chosen[key]
      counts = success.count(
        np.array([size for size, _ in before], int),
        np.array([_reached(ended[name]) for _, name in before], bool),
      )
      number = min(-(-self._each // _ROUNDS), self._each - len(before))
      for size in success.choose_sizes(counts, np.array(sorted(cells)), number).tolist():
        trial = sum(earlier == size for earlier, _ in before)
        before.append((size, trial_name(cells[size], trial)))
        names.append(before[-1][1])
    return names


def _reached(rows: Rows) -> bool:
  return all(row["outcome"] == "reached" for row in rows)
