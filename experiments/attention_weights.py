"""Do trained attention weights look like the construction? Figure 2 of the main paper.

    python -m experiments.attention_weights

Trains the published Transformer on simple-1STR at N = 100 from 50,000 fixed prompts and
draws W_Q^T W_K beside the construction of Equation (A.2).
"""

from __future__ import annotations

import json

import jax
import numpy as np
import rich.console
import rich.progress
from absl import flags

from experiments import command_line
from sepfx.analysis import block_statistics, figures
from sepfx.constructions import retrieval_transformer
from sepfx.ensembles.run_directory import RunDirectory
from sepfx.errors import require
from sepfx.models import Transformer, query_key_products
from sepfx.tasks import QSTR, shared
from sepfx.training import EpochTraining, Seeds

flags.DEFINE_integer("length", 100, "N, number of tokens in a prompt.")
flags.DEFINE_integer("token_dim", 10, "d.")
flags.DEFINE_integer("num_samples", 50_000, "Training prompts, fixed.")
flags.DEFINE_integer("batch_size", 64, "Prompts a step.")
flags.DEFINE_float("learning_rate", 1e-3, "AdamW's learning rate.")
flags.DEFINE_float("weight_decay", 0.2, "AdamW's decoupled weight decay.")
flags.DEFINE_integer("max_epochs", 20, "Epochs at most.")
flags.DEFINE_float("stop_loss", 0.05, "Mean training loss of an epoch that ends it.")
flags.DEFINE_integer("seed", 0, "Seed of everything random.")
flags.DEFINE_string("output_dir", "runs/attention_weights", "Where results are kept.")

FLAGS = flags.FLAGS
_EPS = 1e-2  # epsilon_2NN of the construction that is drawn beside


def main() -> None:
  settings = command_line.settings_of("num_samples", ("output_dir",))
  require(settings["max_epochs"] >= 1, "max_epochs", settings["max_epochs"], ">= 1")
  require(settings["stop_loss"] > 0, "stop_loss", settings["stop_loss"], "> 0")
  length = settings["length"]
  require(length >= 2, "length", length, "an integer >= 2")
  task = QSTR(length=length, token_dim=settings["token_dim"], indices=shared)
  training = EpochTraining(
    task,
    Transformer(),
    command_line.adamw(settings),
    settings["num_samples"],
    settings["batch_size"],
  )
  require(0 <= settings["seed"] < 2**32, "seed", settings["seed"], "0 to 2^32 - 1")
  with RunDirectory(FLAGS.output_dir, settings) as directory:
    seeds = Seeds(*jax.random.split(jax.random.key(settings["seed"])))
    sample = jax.jit(training.sample)(seeds)
    state = jax.jit(training.init)(seeds)
    epoch = jax.jit(training.epoch, donate_argnums=2)
    losses: list[float] = []
    console = rich.console.Console(highlight=False)
    for _ in range(settings["max_epochs"]):
      state, loss = epoch(seeds, sample, state)
      losses.append(float(loss))
      console.print(f"epoch {len(losses)}: training loss {losses[-1]:.4f}")
      if losses[-1] < settings["stop_loss"]:
        break
    planted, _ = sample
    # Tokens of a prompt rarely exceed three times their root mean square norm.
    radius = 3 * float(np.sqrt(task.token_dim))
    built = retrieval_transformer(
      task, planted, radius=radius, eps=_EPS, parametrization="separate"
    )
    learned, constructed = (
      np.asarray(query_key_products(params, task.input_dim)[0])
      for params in (state.params, built.params)
    )
    summary = {
      "training_loss": losses,
      "stopped": losses[-1] < settings["stop_loss"],
      "learned": block_statistics(learned, task.token_dim, task.resolved_code_dim),
      "constructed": block_statistics(
        constructed, task.token_dim, task.resolved_code_dim
      ),
    }
    directory.write("summary.json", json.dumps(summary, indent=2) + "\n")
    with open(directory.path / "weights.npz", "wb") as file:
      np.savez(file, learned=learned, constructed=constructed)
    figure = figures.attention(
      learned, constructed, task.token_dim, task.resolved_code_dim
    )
    command_line.write_figure(directory, figure)
  for name, value in summary["learned"].items():
    console.print(f"{name}: {value:.4g}")
  console.print(f"figure: {directory.path / 'figure.png'}", soft_wrap=True)


if __name__ == "__main__":
  command_line.main(main)
