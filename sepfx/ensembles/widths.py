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
Table = Mapping[str, Sequence[Mapping[str, Any]]]

# The rule's bounds. On one H200 a step took 0.1 ms with one lane and 0.3 ms with 32:
# fewer would save little where few trials run.
LEAST, MOST = 32, 1024
# Operations of one batch's loss, of all lanes together, that fill a device. On one H200
# the Transformer at N = 12, which takes 9 million, needed less than half as long per
# trial-step with 256 lanes as with 64.
_FILLING = 2**31


def width(trial: Trial, kind: str) -> int:
  """Returns the lanes of a device of this kind, for trials of this one's structure.

  If they fit its memory: that is seen when the program is compiled.
  """
  operations, parameters = loss_operations(trial), trial.num_parameters
  for row in json.loads(TABLE.read_text()).get(kind, ()):
    if (row["operations"], row["parameters"]) == (operations, parameters):
      return int(row["lanes"])
  return by_rule(operations)


def by_rule(operations: int) -> int:
  """Returns as many lanes as fill a device, a power of two between the bounds.

  Args:
    operations: of one batch's loss, in matrix products.
  """
  filling = round(math.log2(_FILLING / max(operations, 1)))
  return min(max(LEAST, 2 ** max(filling, 0)), MOST)
