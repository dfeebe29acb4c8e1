"""How many prompts does a fully connected first layer need? Theorem 6 beside training.

    sepfx first-layer

Of *When Do Transformers Outperform Feedforward and Recurrent Networks?* Trains on fixed
samples of n prompts of simple-1STR, with a penalty on all squared parameters, until
nothing moves. Holds the risk of a network whose first layer is dense against the
theorem's floors, and other architectures beside it.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
import rich.table
from jaxtyping import Array, Float

from sepfx import models
from sepfx.commands import program
from sepfx.errors import require
from sepfx.studies import fixed_steps, study
from sepfx.studies.parts import made_from, one_of, optimizer_from
from sepfx.studies.settings import Common, setting
from sepfx.studies.tables import risk_text
from sepfx.tasks import QSTR, independent, shared
from sepfx.tasks.objectives import REGRESSION, Objective
from sepfx.training import Trial

from .figure import draw_spans
from .summary import summarise_spans

_TASKS = {"simple_qstr": shared, "qstr": independent}


def absolute_errors(
  predictions: Float[Array, "n N"], labels: Float[Array, "n N"]
) -> Float[Array, " n"]:
  """Absolute error of each prompt, averaged over positions."""
  return jnp.mean(jnp.abs(predictions - labels), axis=1)


@dataclasses.dataclass(frozen=True)
class AbsoluteQSTR(QSTR):
  """qSTR whose absolute error is minimised. Its risk is still the squared error."""

  objective: ClassVar[Objective] = REGRESSION._replace(loss=absolute_errors)


_LOSSES = {"squared": QSTR, "absolute": AbsoluteQSTR}


@dataclasses.dataclass(frozen=True)
class Settings(Common):
  model: str = setting(
    ("tokens_first", "transformer", "residual_rnn", "dense_transformer",
     "dense_convolution"),
    f"Who learns: {', '.join(models.NAMES['regression'])}, with fields as in "
    "tokens_first:width=400.",
    flag="models",
    kind="grid",
  )  # fmt: skip
  sample_size: int = setting(
    (13, 25, 50, 100, 200, 400, 800, 1600, 3200, 6400), "n.", flag="sample_sizes",
    kind="grid",
  )  # fmt: skip
  num_trials: int = setting(5, "Samples, and links, of each cell.", kind="count")
  task: str = setting("simple_qstr", f"{' or '.join(_TASKS)}.", kind="fixed")
  loss: str = setting("squared", f"{' or '.join(_LOSSES)}.", kind="fixed")
  length: int = setting(20, "N.", kind="fixed")
  token_dim: int = setting(5, "d.", kind="fixed")
  sparsity: int = setting(1, "q.", kind="fixed")
  codes: str = setting("distinct", "Position codes.", kind="fixed")
  l2: float | None = setting(2e-3, "Penalty on all squared parameters.")
  steps: int = setting(8000, "Steps of a trial.", kind="fixed")
  learning_rate: float = setting(3e-3, "The optimizer's.")
  batch_size: int = setting(
    400, "Prompts per step; the whole sample where that is smaller.", kind="fixed"
  )
  check_every: int = setting(1000, "Steps between two evaluations.", kind="fixed")
  num_test: int = setting(10_000, "Test prompts of a trial.", kind="fixed")


def build(settings: Settings) -> Trial:
  indices = _TASKS[one_of(settings, "task", _TASKS)]
  kind = _LOSSES[one_of(settings, "loss", _LOSSES)]
  penalised = settings.l2 is not None and settings.l2 > 0
  require(penalised, "l2", settings.l2, "a positive number: the theorem needs one")
  task = made_from(settings, kind, indices=indices)
  optimizer = optimizer_from(settings, weight_decay=0.0, decay_steps=settings.steps)
  protocol = fixed_steps.erm(settings, optimizer)
  model = models.build(settings.model, task)
  return protocol.trial(task, task, model, settings.model)


def summarise(run: study.Run) -> dict[str, Any]:
  return summarise_spans(run.records, run.cells, run.chosen.one("seed"))


def table(summary: dict) -> list[Any]:
  shown = rich.table.Table(
    "series", "n", "risk", "own floor", "1 - n/(N d)", "worst u", "trials below",
    "at W V", "below", "predictor off", "gradient", "share outside",
  )  # fmt: skip
  names = ("own", "mean", "worst", "trials_below", "projected_risk", "projected_below",
           "predictor_off", "gradient_ratio", "outside_share")  # fmt: skip
  for cell in summary["cells"]:
    values = [cell.get(name) for name in names]
    texts = ["" if value is None else f"{value:.3g}" for value in values]
    shown.add_row(cell["series"], str(cell["samples"]), risk_text(cell), *texts)
  lines = [
    f"{own['series']}: risk below 0.5 from n = {own['samples']} on"
    if own["samples"]
    else f"{own['series']}: risk not below 0.5 up to n = {own['largest']}"
    for own in summary["crossings"]
  ]
  return [
    shown, *lines,
    "Risk: mean [95% interval] over trials. Own floor, 1 - n/(N d) and worst u: the "
    "floor of Theorem 6 for the own u of trials, on average over u, and for the u that "
    "makes it highest. Trials below: those whose risk is below the "
    "floor of their own u. Below: standard errors by which the risk at W V of a trial is "
    "below that floor, at most. Predictor off: largest "
    "distance of E(y | u, t, V x) from it, in standard errors. Gradient: ||grad_W|| / "
    "||lambda W||.",
  ]  # fmt: skip


STUDY = study.Study(
  settings=Settings,
  build=build,
  summarise=summarise,
  draw=lambda run, summary: draw_spans(summary),
  table=table,
  output_dir="runs/first_layer",
  probes=("stationarity",),
  axes=("model", "sample_size", "l2"),
)

if __name__ == "__main__":
  program.main(STUDY)
