"""Do Transformers with fewer heads than tokens to retrieve fail? Propositions 3 and 21.

    sepfx few-heads

Of *When Do Transformers Outperform Feedforward and Recurrent Networks?* Trains with H = 1
to q + 1 heads on the propositions' distribution and holds each risk against its floor.
The attention is the published parametrisation ("separate"), one W_QK per head ("full"),
or that with the block between a query's position and the keys' data kept at zero
("blind", Proposition 21).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import rich.table

from sepfx.commands import program
from sepfx.errors import require
from sepfx.models import Transformer, evaluate
from sepfx.studies import fixed_steps, study
from sepfx.studies.parts import made_from, one_of, optimizer_from
from sepfx.studies.settings import Common, setting
from sepfx.studies.tables import risk_text
from sepfx.tasks import FewHeads
from sepfx.training import Trial, projected

from ..constructions.retrieval import retrieving_heads
from .heads import draw_heads, summarise_heads

# Those that the construction's read-out is fitted to, and as many to measure it with.
_PROMPTS = 4000
_ATTENTION = ("separate", "full", "blind")


@dataclasses.dataclass(frozen=True)
class Settings(Common):
  attention: str = setting(
    _ATTENTION, f"Parametrisations: {', '.join(_ATTENTION)}.", kind="grid"
  )
  num_heads: int = setting((1, 2, 3, 4, 5), "H.", flag="heads", kind="grid")
  num_trials: int = setting(5, "Trials of each cell.", kind="count")
  length: int = setting(10, "N, above 2 q.", kind="fixed")
  sparsity: int = setting(4, "q.", kind="fixed")
  token_dim: int = setting(20, "d.", kind="fixed")
  codes: str = setting("distinct", "Position codes.", kind="fixed")
  code_dim: int | None = setting(None, "d_e; none for floor(5 ln N).", kind="fixed")
  width: int = setting(400, "Width of the read-out.", kind="fixed")
  steps: int = setting(6000, "Steps of a trial.", kind="fixed")
  learning_rate: float = setting(2e-3, "The optimizer's.", kind="fixed")
  batch_size: int = setting(128, "Fresh prompts per step.", kind="fixed")
  check_every: int = setting(500, "Steps between two evaluations.", kind="fixed")
  num_test: int = setting(2000, "Test prompts of a trial.", kind="fixed")


def build(settings: Settings) -> Trial:
  attention = one_of(settings, "attention", _ATTENTION)
  for name in ("num_heads", "width"):
    value = getattr(settings, name)
    require(value >= 1, name, value, "an integer >= 1")
  task = made_from(settings, FewHeads)
  d = task.token_dim

  def blinded(params: Any) -> Any:
    return {**params, "W_QK": params["W_QK"].at[:, d:, :d].set(0.0)}

  # The rate falls to 0 over the steps of a trial, like a cosine.
  optimizer: Any = optimizer_from(settings, weight_decay=0.0, decay_steps=settings.steps)
  model = Transformer(
    num_heads=settings.num_heads,
    width=settings.width,
    parametrization="separate" if attention == "separate" else "full",
  )
  own = projected(optimizer, blinded) if attention == "blind" else optimizer
  protocol = fixed_steps.online(settings, own)
  return protocol.trial(task, task, model, "transformer")


def summarise(run: study.Run) -> dict[str, Any]:
  task = next(iter(run.cells.values())).trial.task  # of all: only heads differ
  q, d = task.sparsity, task.token_dim
  risks = [constructed(task, heads, run.chosen.one("seed")) for heads in range(1, q + 1)]
  return summarise_heads(run.records, q, d, risks)


def constructed(task: FewHeads, heads: int, seed: int) -> float:
  """Risk of H of the q heads of Equation (A.2), whose read-out is fitted to a sample.

  What the other q - H tokens add to a label is independent of all that these heads see,
  and has a variance of 2 (q - H) / q. Only the rest is measured, on other prompts. Codes
  are distinct and of the default size whatever those of the task: heads that retrieve
  need codes that differ, and nothing else of them.
  """
  task = dataclasses.replace(task, codes="distinct", code_dim=None)
  planted_key, fitted_key, test_key = jax.random.split(jax.random.key(seed), 3)
  planted = task.init(planted_key)
  fitted, test = (task.sample(k, planted, _PROMPTS) for k in (fitted_key, test_key))
  built = retrieving_heads(task, planted, heads, fitted)
  seen = test._replace(indices=test.indices[..., :heads])
  own = dataclasses.replace(task, sparsity=heads).label(
    planted, seen.tokens, seen.indices
  )
  own = own * math.sqrt(heads / task.sparsity)  # labels are divided by sqrt(q d)
  predict = jax.jit(lambda z: evaluate(built.model, built.params, z))
  error = task.objective.error(predict(task.encode(planted, test)), own)
  return float(jnp.mean(error)) + 2 * (task.sparsity - heads) / task.sparsity


def table(summary: dict) -> list[Any]:
  shown = rich.table.Table(
    "attention", "H", "risk", "constructed", "floor", "standard errors below"
  )
  built = {line["num_heads"]: f"{line['constructed']:.3f}" for line in summary["lines"]}
  for cell in summary["cells"]:
    below = "" if cell["below"] is None else f"{cell['below']:.1f}"
    shown.add_row(
      cell["attention"], str(cell["num_heads"]), risk_text(cell),
      built.get(cell["num_heads"], ""), f"{cell['floor']:.3f}", below,
    )  # fmt: skip
  return [
    shown,
    "Risk at positions i >= N/2, mean [95% interval] over trials. Constructed: H heads "
    "that retrieve, with a fitted read-out.",
  ]


STUDY = study.Study(
  settings=Settings,
  build=build,
  summarise=summarise,
  draw=lambda run, summary: draw_heads(summary),
  table=table,
  output_dir="runs/few_heads",
  probes=("risk:num_samples=50000",),
  axes=("attention", "num_heads"),
)

if __name__ == "__main__":
  program.main(STUDY)
