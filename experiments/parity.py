"""When does a Transformer learn a sparse parity? Figure 3.

Of *Inductive Biases and Variable Creation in Self-Attention Mechanisms*.

    python -m experiments.parity

Trains on fresh batches of bits labelled by the parity of s hidden ones, and draws the
held-out error of each trial against steps: it falls from chance to nothing at once.
Started again on its own output directory, a run goes on where it stopped.
"""

from __future__ import annotations

import json

import rich.console
import rich.table
from absl import flags

from experiments import command_line, running
from sepfx.analysis import figures, transitions
from sepfx.ensembles import Cell, grid
from sepfx.errors import require
from sepfx.tasks import FUNCTIONS, SparseBoolean
from sepfx.training import Online

flags.DEFINE_list("contexts", ["10", "15", "20"], "T, number of bits.")
flags.DEFINE_list("noise", ["0"], "Probabilities that a training label is flipped.")
flags.DEFINE_integer("sparsity", 3, "s, number of hidden bits.")
flags.DEFINE_integer("num_trials", 10, "Trials at each context and noise rate.")
flags.DEFINE_float(
  "accuracy_level", 0.99, "Held-out accuracy above which it has learned."
)
flags.DEFINE_integer("max_steps", 10_000, "Steps after which a trial is censored.")
flags.DEFINE_integer("check_every", 10, "Steps between two evaluations.")
flags.DEFINE_integer("num_test", 2000, "Held-out inputs of a trial.")
flags.DEFINE_integer("batch_size", 2048, "Fresh inputs a step.")
flags.DEFINE_float("learning_rate", 1e-3, "Adam's learning rate.")
flags.DEFINE_float("weight_decay", 1e-4, "Decoupled, on linear weight matrices alone.")
flags.DEFINE_float("clip_norm", 1.0, "Of the global gradient norm; 0 for no clipping.")
flags.DEFINE_integer("seed", 0, "Seed of everything random.")

FLAGS = flags.FLAGS
FLAGS.set_default("output_dir", "runs/parity")


def _settings() -> dict:
  """The settings that stand in config.json, in one form however they were given."""
  settings = command_line.settings_of("contexts", free=())
  for name, kind, takes in (
    ("contexts", int, "integers >= 1"),
    ("noise", float, "numbers in [0, 1/2)"),
  ):
    settings[name] = command_line.numbers(name, kind, takes)
    require(len(settings[name]) > 0, name, [], "at least one number")
  return settings


def _cells(settings: dict) -> list[Cell]:
  level = settings["accuracy_level"]
  require(0.5 < level < 1, "accuracy_level", level, "a number between 1/2 and 1")
  steps, every = settings["max_steps"], settings["check_every"]
  require(steps >= every, "max_steps", steps, f"at least check_every = {every}")
  protocol = Online(
    thresholds=(round(1 - level, 12),),  # 0.01, not 0.010000000000000009
    optimizer=command_line.adam_with_kernel_decay(settings),
    batch_size=settings["batch_size"],
    check_every=every,
    num_test=settings["num_test"],
    max_samples=steps * settings["batch_size"],
  )
  cells = []
  for noise in settings["noise"]:
    clean, noisy = (
      SparseBoolean(
        length=settings["contexts"][0],
        sparsity=settings["sparsity"],
        function=FUNCTIONS["parity"],
        noise=rate,
      )
      for rate in (0.0, noise)
    )
    contexts = settings["contexts"]
    cells += grid(noisy, ["transformer"], contexts, protocol, test_task=clean)
  return cells


def _print_table(console: rich.console.Console, summary: list[dict]) -> None:
  table = rich.table.Table("task", "T", "learned", "steps to learn")
  for cell in summary:
    table.add_row(
      cell["task"],
      str(cell["length"]),
      f"{cell['reached']}/{cell['trials']}",
      ", ".join(f"{step:,}" for step in cell["steps"]),
    )
  console.print(table)


def main() -> None:
  stop = running.start()
  settings = _settings()
  cells = _cells(settings)
  console = running.console()
  with running.recorded(cells, settings, stop) as run:
    if run is None:
      return
    summary = transitions(run.records, settings["batch_size"], settings["max_steps"])
    run.directory.write("summary.json", json.dumps(summary, indent=2) + "\n")
    figure = figures.transitions(run.curves, summary, settings["batch_size"])
    command_line.write_figure(run.directory, figure)
  _print_table(console, summary)
  console.print(f"figure: {run.directory.path / 'figure.png'}", soft_wrap=True)


if __name__ == "__main__":
  command_line.main(main)
