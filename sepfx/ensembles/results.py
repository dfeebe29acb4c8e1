"""Results of trials, and their form as tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sepfx.ensembles.cells import Cell, cell_name
from sepfx.ensembles.overview import overview

# Name -> type of a table's columns, in their order.
Columns = Mapping[str, type]

TYPES: dict[str, type] = {"int": int, "float": float, "str": str, "bool": bool}


def columns(cells: Sequence[Cell]) -> dict[str, type]:
  """Names and types of what a row of a grid's records holds."""
  found: dict[str, type] = {}
  for cell in cells:
    for name, value in cell.coordinates.items():
      found[name] = _common(found.get(name, type(value)), type(value))
  return {**found, "trial": int, **cells[0].trial.columns}


def own_columns(cells: Sequence[Cell]) -> set[str]:
  """Names of the columns that tell trials apart."""
  return {"trial", *(name for cell in cells for name in cell.coordinates)}


def _common(one: type, other: type) -> type:
  if one is other:
    return one
  return float if {one, other} == {int, float} else str


class Result(NamedTuple):
  """A trial that has ended.

  Attributes:
    cell: whose.
    trial: its index.
    outcomes: what it came to, a tuple for each row of its records.
    curve: of `sepfx.training.Trial.curve`.
    probes: values by name, NaN where it diverged; None if none were asked for.
    params: the weights at its end, in NumPy; None if they were not asked for.
    steps: that it took.
  """

  cell: Cell
  trial: int
  outcomes: Sequence[tuple]
  curve: np.ndarray
  probes: dict[str, float] | None = None
  params: Any = None
  steps: int = 0

  @property
  def name(self) -> str:
    """The cell's name with the trial's index: the key of its curve."""
    return trial_name(self.cell, self.trial)

  @property
  def head(self) -> tuple:
    """What its rows begin with: the cell's coordinates and the trial's index."""
    return (*self.cell.coordinates.values(), self.trial)

  @property
  def rows(self) -> list[tuple]:
    """Its rows: `columns` of its grid."""
    return [(*self.head, *outcome) for outcome in self.outcomes]


def trial_name(cell: Cell | str, trial: int) -> str:
  """The name of one trial of a cell, which may be given by its name."""
  return f"{cell if isinstance(cell, str) else cell.name}/trial={trial}"


def parse_row(fields: Sequence[str], types: Columns) -> tuple:
  """Returns a row from its text fields; raises ValueError if it is not one."""
  row = tuple(
    parse_value(field, kind) for field, kind in zip(fields, types.values(), strict=True)
  )
  if row[-1] not in ("reached", "censored", "diverged"):
    raise ValueError(f"unknown outcome {row[-1]!r}")
  return row


def parse_value(text: str, kind: type) -> Any:
  """Returns a value of a column of this type; raises ValueError if it is none."""
  if kind is bool:
    if text not in ("True", "False"):
      raise ValueError(f"{text!r} is neither True nor False")
    return text == "True"
  value = kind(text)
  if kind is int and not -(2**63) <= value < 2**63:
    raise ValueError(f"{text} is no integer of 64 bits")
  return value


def table(rows: Iterable[tuple], types: Columns) -> np.ndarray:
  """Returns rows as a structured array with these columns.

  `pandas.DataFrame(table(rows, types))` works as one expects.
  """
  rows = list(rows)
  dtype = []
  for k, (name, kind) in enumerate(types.items()):
    width = max((len(str(row[k])) for row in rows), default=1)
    dtype.append((name, f"U{width}" if kind is str else np.dtype(kind)))
  return np.array(rows, dtype=dtype)


def probe_table(
  values: Sequence[tuple[tuple, Mapping[str, float] | None]], types: Columns
) -> np.ndarray | None:
  """Returns one row per trial, with a column for each value that any of them has.

  Args:
    values: of each trial, its `Result.head` and its probes' values by name.
    types: of the records' columns.

  Returns:
    A structured array, NaN where a trial has no such value; None if none has any.
  """
  names = dict.fromkeys(name for _, own in values for name in own or ())
  if not names:
    return None
  width = len(values[0][0])
  heads = dict(list(types.items())[:width])
  rows = [
    (*head, *((own or {}).get(name, np.nan) for name in names)) for head, own in values
  ]
  return table(rows, {**heads, **dict.fromkeys(names, float)})


@dataclasses.dataclass(frozen=True, repr=False)
class Records:
  """What a run, or several together, recorded.

  Attributes:
    table: the rows of trials.csv, a structured array that pandas reads.
    coordinates: the columns that tell cells apart, first task, model and length.
    all_curves: what was measured at each check of each trial, by the trial's name.
    probes: the rows of probes.csv, a structured array; None if there are none.
    settings: of the run, as config.json has them; empty where there is no file.
    models: model and weights of a trial by its name; empty if they were not kept.
    notes: numbers or words of cells that who measures wants beside them: under a name
      of their own, by the cell's name.
    complete: whether the run has ended.
    missing: how many of its trials have not; None if that is not known.
  """

  table: np.ndarray
  coordinates: tuple[str, ...]
  all_curves: Mapping[str, np.ndarray] = dataclasses.field(repr=False)
  probes: np.ndarray | None = dataclasses.field(default=None, repr=False)
  settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  models: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False)
  notes: Mapping[str, Mapping[str, Any]] = dataclasses.field(
    default_factory=dict, repr=False
  )
  complete: bool = True
  missing: int | None = 0

  def __repr__(self) -> str:
    """What is there, a screen at most; all of it is in the attributes."""
    return overview(self)

  def curves(self, **coordinates: Any) -> list[np.ndarray]:
    """Returns the curves of the trials with these coordinates, in the records' order.

    Args:
      coordinates: any of them, and `trial`; those that are not given may be anything.
    """
    return [self.all_curves[name] for name in self.names(**coordinates)]

  def names(self, **coordinates: Any) -> list[str]:
    """Returns the names of those trials: keys of `all_curves` and `models`."""
    chosen = np.ones(len(self.table), bool)
    for column, value in coordinates.items():
      chosen &= self.table[column] == value
    return list(dict.fromkeys(map(self.name_of, self.table[chosen])))

  def name_of(self, row: np.void) -> str:
    """The name of a row's trial."""
    return cell_name({name: row[name] for name in (*self.coordinates, "trial")})

  def cell_of(self, row: np.void) -> str:
    """The name of a row's cell."""
    return cell_name({name: row[name] for name in self.coordinates})

  def where(self, chosen: np.ndarray) -> Records:
    """Returns these records with some of the rows alone, [rows]."""
    return dataclasses.replace(self, table=self.table[chosen])


def joined(parts: Sequence[tuple[Records, Mapping[str, Any]]]) -> Records:
  """Returns several runs as one.

  Args:
    parts: each run's records, and the columns to add to it: those that tell it from the
      others. The first is the one whose settings stay.
  """
  coordinates = list(parts[0][0].coordinates)
  for records, added in parts:
    coordinates += [c for c in (*records.coordinates, *added) if c not in coordinates]
  rows: list[tuple] = []
  probes: list[tuple[tuple, Mapping[str, float] | None]] = []
  curves: dict[str, np.ndarray] = {}
  models: dict[str, tuple[Mapping[str, Any], str]] = {}
  notes: dict[str, dict[str, Any]] = {}
  types: dict[str, type] = {}
  for records, added in parts:
    names = records.table.dtype.names or ()
    outcome = [c for c in names if c not in records.coordinates]
    for row in records.table:
      own = {**{c: row[c].item() for c in names}, **added}
      rows.append(tuple(own[c] for c in (*coordinates, *outcome)))
      for column in (*coordinates, *outcome):
        kind = type(own[column])
        types[column] = _common(types.get(column, kind), kind)
      name = cell_name({c: own[c] for c in (*coordinates, "trial")})
      curves[name] = records.all_curves[records.name_of(row)]
      cell = cell_name({c: own[c] for c in coordinates})
      for note, numbers in records.notes.items():
        if records.cell_of(row) in numbers:
          notes.setdefault(note, {})[cell] = numbers[records.cell_of(row)]
      if records.name_of(row) in records.models:
        models[name] = records.models, records.name_of(row)
    heads = (*records.coordinates, "trial")
    for row in () if records.probes is None else records.probes:
      own = {**{c: row[c].item() for c in row.dtype.names}, **added}
      values = {c: own[c] for c in row.dtype.names if c not in heads}
      probes.append((tuple(own[c] for c in (*coordinates, "trial")), values))
  whole = {column: types[column] for column in (*coordinates, *outcome)}
  first, _ = parts[0]
  return dataclasses.replace(
    first,
    table=table(rows, whole),
    coordinates=tuple(coordinates),
    all_curves=curves,
    probes=probe_table(probes, whole),
    models=_Renamed(models),
    notes=notes,
  )


class _Renamed(Mapping[str, Any]):
  """Models of several runs by the names that they have among all."""

  def __init__(self, where: Mapping[str, tuple[Mapping[str, Any], str]]):
    self._where = where

  def __getitem__(self, name: str) -> Any:
    models, own = self._where[name]
    return models[own]

  def __iter__(self) -> Iterator[str]:
    return iter(self._where)

  def __len__(self) -> int:
    return len(self._where)
