"""Tables with a column per series: as many of them side by side as there is room for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import rich.console
import rich.table

# What a column takes beside its text: a border, and a space on each side.
_BESIDE = 3


class Columns:
  """Rows by their name, and columns by theirs; columns that do not fit go below.

  No number and no word is broken. A name breaks between words.
  """

  def __init__(
    self,
    corner: str,
    rows: Sequence[str],
    columns: Mapping[str, Sequence[str]],
    last: int = 0,
  ):
    """Lays nothing out yet.

    Args:
      corner: what rows are names of.
      rows: their names.
      columns: the entries of each, one per row.
      last: how many rows at the end stand below a line.
    """
    self._corner, self._rows, self._columns, self._last = corner, rows, columns, last

  def __rich_console__(
    self, console: rich.console.Console, options: rich.console.ConsoleOptions
  ) -> Iterator[rich.table.Table]:
    for names in self._parts(options.max_width):
      yield self._table(names)

  def _parts(self, width: int) -> list[list[str]]:
    """Which columns stand side by side."""
    beside = _BESIDE + max(map(len, (self._corner, *self._rows))) + 1
    parts: list[list[str]] = []
    room = 0
    for name, entries in self._columns.items():
      own = _BESIDE + max(map(len, (*name.split(), *entries)))
      if own > room or not parts:
        parts.append([])
        room = width - beside
      parts[-1].append(name)
      room -= own
    return parts

  def _table(self, names: Sequence[str]) -> rich.table.Table:
    table = rich.table.Table()
    table.add_column(self._corner, justify="right", no_wrap=True)
    for name in names:
      widest = max(map(len, (*name.split(), *self._columns[name])))
      table.add_column(name, justify="right", min_width=widest)
    for k, row in enumerate(self._rows):
      if k == len(self._rows) - self._last:
        table.add_section()
      table.add_row(row, *(self._columns[name][k] for name in names))
    return table
