"""How many lanes a device has for trials of one structure, where lanes are batched.

The compiler chooses a program's last digits by its width. So the width follows neither
the trials that wait nor a clock: it is a function of a trial's structure and of the kind
of device. A table has what was measured (`benchmarks.on_accelerator` writes it). A rule
says the rest.
"""

from __future__ import annotations

import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from sepfx.ensembles.operations import loss_operations
from sepfx.training import Trial

# By the kind of device: rows of structures, each with what tells it from others
# ("operations", "parameters"), how a reader knows it ("what"), and its lanes.
TABLE = pathlib.Path(__file__).with_name("widths.json")
Row = Mapping[str, Any]
Table = Mapping[str, Sequence[Row]]
# A narrower width that takes at most so many times the least time is as good as the best:
# it takes less memory, and fewer lanes are idle where few trials run.
_AS_GOOD = 1.1

# The rule's bounds. On one H200 a step took 0.1 ms with one lane and 0.3 ms with 32:
# fewer would save little where few trials run.
LEAST, MOST = 32, 1024
# Operations of one batch's loss, of all lanes together, that fill a device. On one H200
# the Transformer at N = 12, which takes 9 million, needed 0.0134 ms per trial-step with
# 64 lanes and less than 0.005 with 256.
_FILLING = 2**31


def width(trial: Trial, kind: str) -> int:
  """Returns the lanes of a device of this kind, for trials of this one's structure.

  If they fit its memory: that is seen when the program is compiled.
  """
  own = structure_of(trial)
  for row in json.loads(TABLE.read_text()).get(kind, ()):
    if _is_of(row, own):
      return int(row["lanes"])
  return by_rule(own["operations"])


def by_rule(operations: int) -> int:
  """Returns as many lanes as fill a device, a power of two between the bounds.

  Args:
    operations: of one batch's loss, in matrix products and convolutions.
  """
  filling = round(math.log2(_FILLING / max(operations, 1)))
  return min(max(LEAST, 2 ** max(filling, 0)), MOST)


def structure_of(trial: Trial) -> dict[str, int]:
  """Returns what tells the structure of a trial from others in the table."""
  return {"operations": loss_operations(trial), "parameters": trial.num_parameters}


def best(seconds: Mapping[int, float]) -> int:
  """Returns the narrowest width within a tenth of the least time per trial-step.

  Args:
    seconds: per trial-step, or in another unit, by width.
  """
  most = _AS_GOOD * min(seconds.values())
  return min(width for width, own in seconds.items() if own <= most)


def merged(table: Table, kind: str, rows: Sequence[Row]) -> Table:
  """Returns the table with these rows too: each replaces one of the same structure.

  Args:
    table: as it was.
    kind: of the device that they were measured on.
    rows: of different structures.
  """
  kept = [row for row in table.get(kind, ()) if not any(_is_of(row, own) for own in rows)]
  return {**table, kind: [*kept, *rows]}


def _is_of(row: Row, structure: Row) -> bool:
  return all(row[name] == structure[name] for name in ("operations", "parameters"))
