"""Do learners that seek flat minima generalise better? A penalty, SAM and ablations.

Definition 1 of *A Sharper Picture of Generalization in Transformers* asks for a learner
that seeks weights of small norm and small Hessian trace.

    sepfx flat-learners
    sepfx flat-learners --gradient_penalty=none --rho=none,0.05,0.2

Trains on the same functions and samples with each value of any settings, and holds gap,
trace and norm of each trial against those of the same trial at the first values. The
front of norm and trace has the construction on it. `--models=transformer,
transformer:layer_norm=true`, `--batch_size=32,64,128` and the like are ablations.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sepfx.commands import program
from sepfx.ensembles import Cell
from sepfx.probes.hessian import gradient_trace
from sepfx.studies import study
from sepfx.studies.settings import setting

from .. import tables as fourier_tables
from ..fourier_generalisation import figure as gap_figures
from ..fourier_generalisation import study as fourier_generalisation
from .construction import FlatConstruction, squared_norms
from .flatness import construction_of
from .paired import summarise_paired


@dataclasses.dataclass(frozen=True)
class Settings(fourier_generalisation.Settings):
  degree: int = setting((3,), "d, bits in each parity.", flag="degrees", kind="grid")
  num_components: int = setting(
    (4,), "k, number of parities.", flag="components", kind="grid"
  )
  num_trials: int = setting(10, "Functions of each cell.", kind="count")
  gradient_penalty: float | None = setting(
    (0.0, 1e-5, 1e-4), "Weight of 2 E |grad f|^2; none for none.", kind="grid"
  )
  weight_decay: float = setting(
    (1e-4, 0.1), "AdamW's decoupled weight decay.", kind="grid"
  )


def constructed(run: study.Run) -> dict[str, list[float]]:
  """Squared norms, and traces on the training sample, of the first cell's functions."""
  cell = next(iter(run.cells.values()))
  trials = np.unique(run.records.table["trial"])
  seeds = cell.seeds(run.chosen.one("seed"), int(trials.max()) + 1)
  found: dict[str, list[float]] = {"squared_norm": [], "hessian_trace": []}
  for trial in trials:
    world = cell.trial.world(jax.tree.map(lambda keys, k=trial: keys[k], seeds))
    built = construction_of(cell.trial.task, world.planted)
    found["squared_norm"].append(squared_norms(built)["total"])
    found["hessian_trace"].append(_trace(built, world.sample.bits))
  return found


def _trace(built: FlatConstruction, bits: Any) -> float:
  params = jax.tree.map(jnp.asarray, built.params)

  def output(own: Any, token: Any) -> Any:
    return built.model.apply({"params": own}, token[None])[0]

  return float(gradient_trace(output, params, built.tokens(bits)))


def _group(cell: Cell) -> tuple:
  """Cells of one group have the same functions and samples."""
  task = cell.trial.task
  return cell.trial.key_name, int(task.degree), int(task.num_components)


def summarise(run: study.Run) -> dict[str, Any]:
  return {
    "cells": summarise_paired(
      run.records,
      {name: _group(cell) for name, cell in run.cells.items()},
      differences=("gap",),
      ratios=("hessian_trace", "squared_norm"),
    ),
    "constructed": constructed(run),
  }


STUDY = study.Study(
  settings=Settings,
  build=fourier_generalisation.build,
  summarise=summarise,
  draw=lambda run, summary: gap_figures.front(summary),
  table=fourier_tables.paired,
  output_dir="runs/flat_learners",
  keep_weights=True,
  probes=("generalisation", "sharpness"),
)

if __name__ == "__main__":
  program.main(STUDY)
