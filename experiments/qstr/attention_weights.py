"""Do trained attention weights look like the construction? Figure 2 of the main paper.

    sepfx attention-weights

Trains the published Transformer on simple-1STR at N = 100 from 50,000 fixed prompts and
draws W_Q^T W_K beside the construction of Equation (A.2).
"""

from __future__ import annotations

import dataclasses

import matplotlib.figure
import numpy as np

from sepfx.commands import program
from sepfx.errors import require
from sepfx.models import Transformer, query_key_products
from sepfx.studies import study
from sepfx.studies.parts import made_from, optimizer_from
from sepfx.studies.settings import Common, setting
from sepfx.tasks import QSTR, shared
from sepfx.training import ERM, Trial

from .constructions.retrieval import retrieval_transformer
from .query_key import block_statistics, draw_products

_EPS = 1e-2  # epsilon_2NN of the construction that is drawn beside


@dataclasses.dataclass(frozen=True)
class Settings(Common):
  length: int = setting(100, "N, number of tokens in a prompt.")
  token_dim: int = setting(10, "d.")
  sample_size: int = setting(50_000, "Training prompts, fixed.", flag="num_samples")
  num_trials: int = setting(1, "Trials; the first is drawn.", kind="count")
  num_test: int = setting(1000, "Test prompts.", kind="fixed")
  batch_size: int = setting(64, "Prompts per step.")
  weight_decay: float = setting(0.2, "AdamW's decoupled weight decay.")
  max_epochs: int = setting(20, "Epochs at most.", kind="budget")
  stop_loss: float = setting(0.05, "Training loss that ends it.", kind="fixed")


def build(settings: Settings) -> Trial:
  epochs, loss, batch = settings.max_epochs, settings.stop_loss, settings.batch_size
  require(epochs >= 1, "max_epochs", epochs, "an integer >= 1")
  require(loss > 0, "stop_loss", loss, "a positive number")
  require(batch >= 1, "batch_size", batch, "an integer >= 1")
  task = made_from(settings, QSTR, indices=shared)
  steps = max(1, settings.sample_size // batch)  # of an epoch
  takes = f"fewer than 2^31 steps, of which an epoch has {steps}"
  require(epochs * steps < 2**31, "max_epochs", epochs, takes)
  protocol = made_from(
    settings,
    ERM,
    threshold=loss,
    watched="train_loss",
    optimizer=optimizer_from(settings),
    check_every=steps,
    max_steps=epochs * steps,
  )
  return protocol.trial(task, task, Transformer())


def products(run: study.Run) -> tuple[QSTR, np.ndarray, np.ndarray]:
  """The task of the first trial, and W_Q^T W_K learned and constructed."""
  row = run.records.table[0]
  cell = run.cells[run.records.cell_of(row)]
  task, seed = cell.trial.task, run.chosen.one("seed")
  planted = task.init(cell.seeds(seed, 1).task[0])
  # Tokens of a prompt rarely exceed three times their root mean square norm.
  radius = 3 * float(np.sqrt(task.token_dim))
  built = retrieval_transformer(
    task, planted, radius=radius, eps=_EPS, parametrization="separate"
  )
  trained = run.records.models[run.records.name_of(row)]
  learned, constructed = (
    np.asarray(query_key_products(params, task.input_dim)[0])
    for params in (trained.params, built.params)
  )
  return task, learned, constructed


def summarise(run: study.Run) -> dict:
  task, *matrices = products(run)
  (curve, *_) = run.records.curves(trial=0)
  learned, constructed = (
    block_statistics(each, task.token_dim, task.resolved_code_dim) for each in matrices
  )
  return {
    "training_loss": curve["train_loss"].tolist(),
    "stopped": run.records.table["outcome"][0].item() == "reached",
    "learned": learned,
    "constructed": constructed,
  }


def draw(run: study.Run, summary: dict) -> matplotlib.figure.Figure:
  del summary
  task, learned, constructed = products(run)
  return draw_products(learned, constructed, task.token_dim, task.resolved_code_dim)


def table(summary: dict) -> list[str]:
  losses = [
    f"epoch {epoch}: training loss {loss:.4f}"
    for epoch, loss in enumerate(summary["training_loss"], start=1)
  ]
  return [*losses, *(f"{k}: {value:.4g}" for k, value in summary["learned"].items())]


STUDY = study.Study(
  settings=Settings,
  build=build,
  summarise=summarise,
  draw=draw,
  table=table,
  output_dir="runs/attention_weights",
  keep_weights=True,
)

if __name__ == "__main__":
  program.main(STUDY)
