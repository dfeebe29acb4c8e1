"""How many samples do different neural architectures need?

`sepfx.measure` answers it in one call, and `sepfx.plot` draws the answer. `sepfx.tasks`,
`sepfx.models` and `sepfx.training` can be used on their own.
"""

import importlib
from typing import TYPE_CHECKING, Any

from sepfx.errors import InvalidSetting
from sepfx.lanewise import lanewise

if TYPE_CHECKING:
  from sepfx import ensembles, models, probes, records, statistics, tasks, training
  from sepfx.ensembles import Records as Records
  from sepfx.ensembles import Watcher as Watcher
  from sepfx.measuring import measure as measure
  from sepfx.measuring import run as run
  from sepfx.plotting import plot as plot
  from sepfx.records import load
  from sepfx.summaries import Summary as Summary
  from sepfx.summaries import summarise as summarise
  from sepfx.training import ERM, AdamW, Online

# Where each name is, imported when it is asked for: `sepfx.models` alone needs neither
# the engine nor what it stands on.
_WHERE = {
  **dict.fromkeys(("Records", "Watcher"), "sepfx.ensembles"),
  "load": "sepfx.records",
  **dict.fromkeys(("measure", "run"), "sepfx.measuring"),
  "plot": "sepfx.plotting",
  **dict.fromkeys(("Summary", "summarise"), "sepfx.summaries"),
  **dict.fromkeys(("ERM", "AdamW", "Online"), "sepfx.training"),
}
_MODULES = (
  "constructions",
  "ensembles",
  "models",
  "probes",
  "records",
  "statistics",
  "tasks",
  "theory",
  "training",
)

__all__ = [
  "ERM",
  "AdamW",
  "InvalidSetting",
  "Online",
  "Records",
  "Summary",
  "Watcher",
  "ensembles",
  "lanewise",
  "load",
  "measure",
  "models",
  "plot",
  "probes",
  "records",
  "run",
  "statistics",
  "summarise",
  "tasks",
  "training",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
  if name in _WHERE:
    return getattr(importlib.import_module(_WHERE[name]), name)
  if name in _MODULES:
    return importlib.import_module(f"sepfx.{name}")
  raise AttributeError(f"module 'sepfx' has no attribute {name!r}")


def __dir__() -> list[str]:
  return sorted({*globals(), *__all__})
