"""What a person sees of records that are printed: at most a screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sepfx.specifications import canonical

if TYPE_CHECKING:
  from sepfx.ensembles.results import Records

# Of a screen, less what stands above and below the cells; and of one coordinate.
_MOST_CELLS, _MOST_LETTERS, _MOST_OF_ONE = 16, 80, 22
_OUTCOMES = ("reached", "censored", "diverged")
# Columns that have what a trial came to.
_MEASURED = ("samples", "accuracy", "risk")


def overview(records: Records) -> str:
  """One line per cell and threshold, the first of them where there are many."""
  table = records.table
  names = table.dtype.names or ()
  if not len(table):
    return "Records of no trial"
  told_apart = [c for c in records.coordinates if len(np.unique(table[c])) > 1]
  told_apart = told_apart or list(records.coordinates[1:2])
  told_apart += [c for c in ("threshold",) if c in names]
  groups: dict[tuple, list[int]] = {}
  for k, row in enumerate(table):
    groups.setdefault(tuple(row[c].item() for c in told_apart), []).append(k)
  shown = list(groups.items())[:_MOST_CELLS]
  measured = next((c for c in _MEASURED if c in names), "")
  lines = [[*told_apart, "reached", measured]]
  for point, rows in shown:
    own = table[rows]
    lines.append(
      [
        *(_cut(canonical(value), _MOST_OF_ONE) for value in point),
        f"{np.sum(own['outcome'] == 'reached')}/{len(rows)}",
        _range(own[measured]) if measured else "",
      ]
    )
  trials = len(dict.fromkeys(map(records.name_of, table)))
  counts = [f"{np.sum(table['outcome'] == own):,} {own}" for own in _OUTCOMES]
  same = {c: table[c][0] for c in records.coordinates if c not in told_apart}
  fixed = ", ".join(f"{c}={canonical(value)}" for c, value in same.items())
  left = len(groups) - len(shown)
  lacking = "some" if records.missing is None else f"{records.missing:,}"
  lacking = f"not complete: trials missing: {lacking}; slow ones end last"
  parts = [
    f"Records of {trials:,} trials, {len(table):,} rows ({', '.join(counts)})",
    *([] if records.complete else [lacking]),
    *([f"all with {fixed}"] if fixed else []),
    *aligned(lines),
    *([f"... and {left:,} more"] if left else []),
    ".table has all rows; sepfx.summarise gives means, exponents and ratios",
  ]
  return "\n".join(_cut(part, _MOST_LETTERS) for part in parts)


def _range(values: np.ndarray) -> str:
  """From the least to the largest."""
  low, high = np.min(values), np.max(values)
  form = ",d" if np.issubdtype(values.dtype, np.integer) else ".3g"
  return " to ".join(dict.fromkeys(f"{end.item():{form}}" for end in (low, high)))


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
  """Lines of texts whose columns stand below one another."""
  widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
  padded = (map(str.ljust, line, widths) for line in lines)
  return ["  ".join(line).rstrip() for line in padded]


def _cut(text: str, letters: int) -> str:
  return text if len(text) <= letters else text[: letters - 3] + "..."
