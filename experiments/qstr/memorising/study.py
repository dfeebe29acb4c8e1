"""Does a learner of small norm memorise labels or learn the task? Theorem 9 by training.

    sepfx memorising

Of *When Do Transformers Outperform Feedforward and Recurrent Networks?* Trains a
recurrent network on n prompts of 1STR, with the label of one position of each prompt, and
with a penalty on all squared parameters that falls. Holds its norm against those of two
constructions, one that memorises n labels and one that solves 1STR. The learner of least
norm (2.4) has a norm of at most that, where its training error is allowed to be as large.

The theorem's own bounds say nothing at sizes that can be trained. On average over
links no learner has a risk below 1 - n / d, whatever its norm: below d labels a high risk
is no sign of memorising.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
import optax
import rich.table

from sepfx import models
from sepfx.commands import program
from sepfx.errors import require
from sepfx.studies import fixed_steps, study
from sepfx.studies.parts import made_from, optimizer_from
from sepfx.studies.settings import Chosen, Common, setting
from sepfx.studies.tables import interval_text, risk_text
from sepfx.tasks import QSTR, PointwiseQSTR, incoherent_code_dim
from sepfx.training import Trial, penalised

from ..constructions.interpolation import memory_norms
from ..constructions.slots import label_radius, slot_memory
from .memories import draw_memories, summarise_memories

# Labels that memories are built for, and samples of each.
_MEMORIES, _DRAWS = (2, 4, 8, 16, 32, 64), 20
_DEPTH = 3  # layers of the read-out, of the learner and of both constructions


@dataclasses.dataclass(frozen=True)
class Settings(Common):
  length: int = setting((8,), "N.", flag="lengths", kind="grid")
  sample_size: int = setting(
    (4, 16, 64, 256, 1024, 4096, 16_384, 65_536), "n, of labels.", flag="sample_sizes",
    kind="grid",
  )  # fmt: skip
  num_trials: int = setting(3, "Samples, and links, of each cell.", kind="count")
  model: str = setting(
    "residual_rnn:units=32:transition_widths=64:output_widths=64x64:radius=1.0",
    "Who learns; a recurrent network with states of norm at most 1.",
    kind="fixed",
  )
  token_dim: int = setting(10, "d.", kind="fixed")
  first_penalty: float = setting(
    1e-3, "Factor of all squared parameters at the first step.", kind="fixed"
  )
  last_penalty: float = setting(1e-5, "The same at the last step.", kind="fixed")
  steps: int = setting(10_000, "Steps of a trial.", kind="fixed")
  learning_rate: float = setting(3e-3, "The optimizer's.")
  batch_size: int = setting(
    256, "Prompts per step; the whole sample where that is smaller.", kind="fixed"
  )
  check_every: int = setting(2500, "Steps between two evaluations.", kind="fixed")
  num_test: int = setting(5000, "Test prompts of a trial.", kind="fixed")


def _fields(settings: Settings) -> dict[str, Any]:
  return {"codes": "incoherent", "code_dim": incoherent_code_dim(settings.length)}


def check(chosen: Chosen) -> None:
  of_task = {field.name for field in dataclasses.fields(QSTR)}
  for name, values in chosen.further.items():
    takes = "nothing: both constructions are of 1STR with a linear link"
    require(name.rpartition(".")[2] not in of_task, name, values[0], takes)


def build(settings: Settings) -> Trial:
  require(settings.length >= 2, "length", settings.length, "an integer >= 2")
  first, last = settings.first_penalty, settings.last_penalty
  require(last > 0, "last_penalty", last, "a positive number: norms are to be small")
  require(first >= last, "first_penalty", first, f"at least last_penalty = {last}")
  takes = "none: first_penalty and last_penalty are the penalty"
  require(settings.l2 is None, "l2", settings.l2, takes)
  seen = made_from(settings, PointwiseQSTR, **_fields(settings))
  whole = made_from(settings, QSTR, **_fields(settings))
  optimizer = optimizer_from(settings, weight_decay=0.0, decay_steps=settings.steps)
  fall = optax.exponential_decay(first, settings.steps, last / first)
  protocol = fixed_steps.erm(settings, penalised(optimizer, fall))
  model = models.build(settings.model, whole)
  of_theorem = isinstance(model, models.ResidualRNN) and model.radius == 1.0
  of_theorem = of_theorem and len(model.output_widths) == _DEPTH - 1
  takes = "a residual_rnn with radius=1.0 and two output_widths, as the constructions are"
  require(of_theorem, "model", settings.model, takes)
  return protocol.trial(seen, whole, model, settings.model)


def summarise(run: study.Run) -> dict[str, Any]:
  tasks = {cell.trial.task.length: cell.trial.test_task for cell in run.cells.values()}
  slots = {N: _slots(task) for N, task in tasks.items()}
  d = run.chosen.one("token_dim")
  norms = {n: memory_norms(n, d, _DRAWS, 0, _DEPTH) for n in _MEMORIES}
  memorised = {n: float(np.median(own)) for n, own in norms.items()}
  return summarise_memories(run.records, d, memorised, slots)


def _slots(task: QSTR) -> float:
  """Squared norm of a network that solves this 1STR; less may suffice."""
  planted = task.init(jax.random.key(0))
  slots = slot_memory(task, planted, radius=label_radius(task.length))
  return slots.balanced().squared_norm


def table(summary: dict) -> list[Any]:
  shown = rich.table.Table("N", "n", "on labels seen", "on fresh prompts", "squared norm")
  for cell in summary["cells"]:
    shown.add_row(
      str(cell["length"]), f"{cell['samples']:,}",
      interval_text(cell, "train"), risk_text(cell), interval_text(cell, "squared_norm"),
    )  # fmt: skip
  lines = []
  for own, slots in zip(summary["crossings"], summary["lengths"], strict=True):
    at = "" if own["constructed"] is None else f" at n = {own['constructed']:.3g}"
    learned = "no n tried" if own["learned"] is None else f"n = {own['learned']:,}"
    lines.append(
      f"N = {own['length']}: slots have a squared norm of "
      f"{slots['slots_squared_norm']:.4g}, which memories have{at}; the risk falls below "
      f"0.5 at {learned}"
    )
  return [shown, *lines, "Means [95% intervals]; of squared norms geometric ones."]


STUDY = study.Study(
  settings=Settings,
  build=build,
  summarise=summarise,
  draw=lambda run, summary: draw_memories(summary),
  table=table,
  output_dir="runs/memorising",
  probes=("generalisation", "norms"),
  check=check,
  axes=("length", "sample_size"),
)

if __name__ == "__main__":
  program.main(STUDY)
