"""Trials on disk: trials.csv, curves.npz, probes.csv and weights of a run directory.

While a run lasts, rows are appended to trials.csv, and each ended trial's curve and
probes are files of their own under checkpoints/; when it completes, the rows are sorted
and the curves and probes move into curves.npz and probes.csv. A row promises that all
else of its trial is there, and it follows from the trial's curve: that is held against it
whenever the directory is opened.
"""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from sepfx.ensembles.cells import Cell
from sepfx.ensembles.results import (
  Records,
  Result,
  probe_table,
  table,
  trial_name,
)
from sepfx.ensembles.watchers import Watcher
from sepfx.provenance.environment import kind_of
from sepfx.records import weights
from sepfx.records.agreement import missing, wanted
from sepfx.records.run_directory import (
  CURVES,
  ENDED,
  PROBES,
  TRIALS,
  RunDirectory,
  remove,
)
from sepfx.records.stored_trials import (
  StoredTrials,
  archive,
  coordinates,
  csv_text,
  of_ended,
  outgrown,
)


class Contradiction(Exception):
  """A trial that ran again came to something else than what stands in the records."""


class TrialFiles(Watcher):
  """The records of a run on disk."""

  def __init__(
    self,
    directory: RunDirectory,
    cells: Sequence[Cell],
    *,
    order: Sequence[str] = (),
    added: Mapping[str, Any] | None = None,
    probed: Mapping[str, Collection[str]] | None = None,
    keep_weights: bool = False,
    only_read: bool = False,
  ):
    """Reads what is there.

    Args:
      directory: where; open.
      cells: all that may run, in the order of the records.
      order: names of all cells that may stand there, in that order; empty if they are
        `cells`. Trials of the others stay as they are.
      added: axes that what stands there does not have yet, with the value that all of
        it was run with.
      probed: names of values that the trials of a cell shall have, by the cell's name.
      keep_weights: whether trials shall have their weights there.
      only_read: leave every file as it is; no trial may end then.

    Raises:
      InvalidSetting: if a file is malformed, or not this grid's; or a row contradicts its
        trial's curve.
    """
    self._directory = directory
    self._cells = {cell.name: cell for cell in cells}
    self._names = list(order or self._cells)
    self._probed, self._keep_weights = probed or {}, keep_weights
    stored = StoredTrials(
      directory, self._cells, added or {}, order=order, only_read=only_read
    )
    self._types = stored.types
    self._curves, self._probes, self._rows = stored.curves, stored.probes, stored.rows
    self._weights = stored.weights

  @property
  def types(self) -> dict[str, type]:
    """Of the columns of trials.csv."""
    return self._types

  @property
  def rows(self) -> dict[str, list[dict[str, Any]]]:
    """A trial's rows, values by column, by its name, if nothing of it is missing.

    Missing are also probes and weights that are asked for today, and what a larger
    budget may bring.
    """
    return {
      trial_name(cell, k): [dict(zip(self._types, row, strict=True)) for row in rows]
      for (cell, k), rows in self._rows.items()
      if not (self._outgrown(cell, rows) or self._lacks(cell, k))
    }

  @property
  def recorded(self) -> dict[str, set[int]]:
    """Indices of the trials whose rows stand, by the cell's name.

    Without those that a larger budget brings back.
    """
    found: dict[str, set[int]] = {}
    for (cell, k), rows in self._rows.items():
      if not self._outgrown(cell, rows):
        found.setdefault(cell, set()).add(k)
    return found

  @property
  def missing(self) -> dict[str, int]:
    """How many trials that were asked for have not ended, by the cell's name."""
    recorded = self.recorded
    lacking = {
      name: number - len(recorded.get(name, ()))
      for name, number in wanted(self._directory.stored or {"settings": {}}).items()
    }
    return {name: number for name, number in lacking.items() if number > 0}

  @property
  def outgrown_trials(self) -> list[tuple[str, int]]:
    """Name and index of the trials that were censored before today's budget was spent."""
    return [
      (trial_name(cell, k), k)
      for (cell, k), rows in self._rows.items()
      if self._outgrown(cell, rows)
    ]

  @property
  def incomplete_trials(self) -> list[tuple[str, int]]:
    """Cell and index of recorded trials that run again for probes or weights alone."""
    return [
      (cell, k)
      for (cell, k), rows in self._rows.items()
      if self._lacks(cell, k) and not self._outgrown(cell, rows)
    ]

  def widths(self, devices: Sequence[jax.Device] | None = None) -> dict[str, int]:
    """Lanes per device that a cell's trials last ran with, by its name.

    Args:
      devices: of their kind; None for the default platform's.
    """
    first, *_ = devices or jax.local_devices()
    return self._directory.lanes(kind_of(first))

  def batched(self, cells: Sequence[Cell], kind: str, lanes: int) -> None:
    """Writes down how wide a program is.

    Raises:
      OSError: if it cannot be written.
    """
    self._directory.note_lanes(kind, [cell.name for cell in cells], lanes)

  def ended(self, result: Result) -> None:
    """Records a trial: its row last.

    Raises:
      Contradiction: if it has run before and came to something else.
    """
    key = (result.cell.name, result.trial)
    kinds = self._types.values()
    rows = [
      tuple(kind(value) for kind, value in zip(kinds, row, strict=True))
      for row in result.rows
    ]
    before = self._rows.get(key)
    recorded = before is not None and not outgrown(result.cell, before)
    # As text: what is not a number does not equal itself.
    same = before is not None and csv_text(before) == csv_text(rows)
    if recorded and not same:
      raise Contradiction(
        f"{result.name} ran again and came to {rows}, not to what "
        f"{self._directory.path / TRIALS} says: {before}"
      )
    if result.params is not None:
      content = weights.serialised(result.name, result.cell.trial.model, result.params)
      self._directory.write(weights.path_of(result.name), content)
      self._weights.add(result.name)
    buffer = io.BytesIO()
    np.save(buffer, result.curve)
    self._directory.write(of_ended(result.name, "npy"), buffer.getvalue())
    self._curves[result.name] = result.curve
    if result.probes is not None:
      own = {**self._probes.get(result.name, {}), **result.probes}
      self._directory.write(of_ended(result.name, "json"), json.dumps(own))
      self._probes[result.name] = own
    if same:
      return
    if (self._directory.path / TRIALS).exists():
      self._directory.append(TRIALS, csv_text(rows))
    else:
      self._directory.write(TRIALS, csv_text([tuple(self._types), *rows]))
    self._rows[key] = rows

  # What a run does at its end.

  def complete(self) -> Records:
    """Puts records in their final form and returns them.

    `trials.csv` is sorted by cell, trial and threshold, so that it does not depend on
    the order in which trials ended; curves move into `curves.npz`, probes into
    `probes.csv`.
    """
    records = self._records(self._order, complete=True)
    self._directory.write(CURVES, archive(records.all_curves))
    if records.probes is not None:
      names = records.probes.dtype.names or ()
      heads = [*coordinates(self._types), "trial"]
      measured: list[list] = []
      for row in records.probes:
        own = self._probes.get(records.name_of(row), {})
        # A field without a value was not measured: a later call may ask for it.
        kept = [name in heads or name in own for name in names]
        pairs = zip(row.tolist(), kept, strict=True)
        measured.append([value if is_kept else "" for value, is_kept in pairs])
      self._directory.write(PROBES, csv_text([names, *measured]))
    rows = [row for key in self._order for row in self._rows[key]]
    self._directory.write(TRIALS, csv_text([tuple(self._types), *rows]))
    self._remove_checkpoints()
    return records

  @property
  def records(self) -> Records:
    """All trials that have ended, in their final order: while a run lasts, too.

    Without those that a larger budget brings back.
    """
    order = self._order
    ended = [key for key in order if not self._outgrown(key[0], self._rows[key])]
    return self._records(ended, complete=False)

  def _records(self, order: Sequence[tuple[str, int]], *, complete: bool) -> Records:
    names = [trial_name(cell, k) for cell, k in order]
    width = len(coordinates(self._types)) + 1
    heads = [self._rows[key][0][:width] for key in order]
    probes = [(h, self._probes.get(n)) for h, n in zip(heads, names, strict=True)]
    modules = {
      n: self._cells[cell].trial.model
      for n, (cell, _) in zip(names, order, strict=True)
      if cell in self._cells
    }
    stored = self._directory.stored or {}
    return Records(
      table((row for key in order for row in self._rows[key]), self._types),
      coordinates(self._types),
      {name: self._curves[name] for name in names},
      probe_table(probes, self._types),
      stored.get("settings", {}),
      weights.Kept(self._directory.path, names, modules=modules),
      stored.get("notes", {}),
      complete,
      0 if complete else missing(stored, self.recorded),
    )

  @property
  def _order(self) -> list[tuple[str, int]]:
    """Cell and index of each trial: by the place of the cell, then by the index."""
    place = {name: k for k, name in enumerate(self._names)}
    return sorted(self._rows, key=lambda key: (place[key[0]], key[1]))

  def curve(self, name: str) -> np.ndarray:
    """Returns a finished trial's curve (`sepfx.training.Trial.curve`)."""
    return self._curves[name]

  # Files.

  def _outgrown(self, cell: str, rows: Sequence[tuple]) -> bool:
    return cell in self._cells and outgrown(self._cells[cell], rows)

  def _lacks(self, cell: str, k: int) -> bool:
    name = trial_name(cell, k)
    if cell not in self._cells:
      return False
    probed = set(self._probed.get(cell, ())) <= set(self._probes.get(name, ()))
    return not (probed and (name in self._weights or not self._keep_weights))

  def _remove_checkpoints(self) -> None:
    """Removes what is needed only while a run lasts; what was set aside stays.

    Digests go first: a part of a checkpoint that has none is not taken for damage.
    """
    path = self._directory.path / ENDED
    there = list(path.iterdir()) if path.exists() else []
    unneeded = [each for each in there if ".set_aside." not in each.name]
    for each in sorted(unneeded, key=lambda each: each.suffix != ".sha256"):
      remove(each)
    if len(unneeded) == len(there) and path.exists():
      path.rmdir()
