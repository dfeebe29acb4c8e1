"""How wide must a recurrent network be to learn 1STR? Proposition 8 beside training.

    sepfx recurrent-width

Of *When Do Transformers Outperform Feedforward and Recurrent Networks?* Trains recurrent
networks of each width d_h for a fixed number of steps on 1STR and on simple-1STR. Holds
their risk, their width and L ||U|| against what the proposition asks for on 1STR.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import rich.table

from sepfx import models
from sepfx.commands import program
from sepfx.errors import require
from sepfx.studies import fixed_steps, study
from sepfx.studies.parts import made_from, one_of, optimizer_from
from sepfx.studies.settings import Chosen, Common, setting
from sepfx.studies.tables import exponent, risk_text
from sepfx.tasks import QSTR, independent, shared
from sepfx.training import Trial

from .figure import draw_widths
from .summary import summarise_widths

_TASKS = {"qstr": independent, "simple_qstr": shared}
# Those of which it is known how their state is read.
_MODELS = ("relu_rnn", "gru", "lstm")


@dataclasses.dataclass(frozen=True)
class Settings(Common):
  task: str = setting(
    ("qstr", "simple_qstr"), f"What is learned: {', '.join(_TASKS)}.", flag="tasks",
    kind="grid",
  )  # fmt: skip
  model: str = setting(
    ("relu_rnn",), f"Who learns: {', '.join(_MODELS)}.", flag="models", kind="grid"
  )
  length: int = setting((4, 8, 16, 32), "N.", flag="lengths", kind="grid")
  units: int = setting((2, 4, 8, 16, 32, 64, 128, 256), "d_h.", kind="grid")
  num_trials: int = setting(3, "Trials of each cell.", kind="count")
  token_dim: int = setting(10, "d.", kind="fixed")
  codes: str = setting("distinct", "Position codes.", kind="fixed")
  code_dim: int | None = setting(None, "d_e; none for floor(5 ln N).", kind="fixed")
  steps: int = setting(3000, "Steps of a trial.", kind="fixed")
  learning_rate: float = setting(3e-3, "The optimizer's.", kind="fixed")
  batch_size: int = setting(128, "Fresh prompts per step.", kind="fixed")
  check_every: int = setting(500, "Steps between two evaluations.", kind="fixed")
  num_test: int = setting(2000, "Test prompts of a trial.", kind="fixed")


def build(settings: Settings) -> Trial:
  indices = _TASKS[one_of(settings, "task", _TASKS)]
  one_of(settings, "model", _MODELS)
  require(settings.units >= 1, "units", settings.units, "an integer >= 1")
  task = made_from(settings, QSTR, indices=indices)
  model = models.build(settings.model, task, {"units": settings.units})
  optimizer = optimizer_from(settings, weight_decay=0.0, decay_steps=settings.steps)
  protocol = fixed_steps.online(settings, optimizer)
  return protocol.trial(task, task, model, settings.model)


def check(chosen: Chosen) -> None:
  refused = {
    "units": "nothing: the width is --units",
    "sparsity": "nothing: Proposition 8 is about q = 1",
  }
  for name, values in chosen.further.items():
    field = name.rpartition(".")[2]
    require(field not in refused, name, values[0], refused.get(field, ""))


def summarise(run: study.Run) -> dict[str, Any]:
  return summarise_widths(run.records)


def table(summary: dict) -> list[Any]:
  shown = rich.table.Table(
    "task", "model", "N", "d_h", "risk", "d_h at least", "L ||U||_F", "at least"
  )
  for cell in summary["cells"]:
    frobenius = "" if cell["frobenius"] is None else f"{cell['frobenius']:.3g}"
    shown.add_row(
      cell["task"], cell["model"], str(cell["length"]), str(cell["units"]),
      risk_text(cell), _bound(cell["least_units"], 1), frobenius,
      _bound(cell["least_frobenius"], 0),
    )  # fmt: skip
  widths = rich.table.Table("task", "model", "risk below", "N: least d_h", "c")
  for entry in summary["smallest"]:
    found = ", ".join(f"{e['length']}: {_width(e)}" for e in entry["lengths"])
    fitted = None if entry["c"] is None else {**entry, "coarse": False}
    widths.add_row(
      entry["task"], entry["model"], f"{entry['threshold']:g}", found, exponent(fitted)
    )
  return [
    shown, widths,
    "Risk: mean [95% interval] over trials. Least d_h: geometric mean over trials of the "
    "smallest that got below; > where some did not. c: exponent of d_h ~ N^c.",
  ]  # fmt: skip


def _bound(value: float | None, least: float) -> str:
  """A lower bound, which asks for nothing up to the least that there is."""
  if value is None:
    return ""
  return f"{value:.3g}" if value > least else "nothing"


def _width(entry: dict) -> str:
  if entry["units"] is None:
    return f"> {entry['largest']}"
  return f"{'> ' if entry['restricted'] else ''}{entry['units']:.3g}"


STUDY = study.Study(
  settings=Settings,
  build=build,
  summarise=summarise,
  draw=lambda run, summary: draw_widths(summary),
  table=table,
  output_dir="runs/recurrent_width",
  probes=("states",),
  axes=("task", "model", "length", "units"),
  check=check,
)

if __name__ == "__main__":
  program.main(STUDY)
