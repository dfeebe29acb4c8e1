"""How many samples does each architecture need? Figure 1 of the main paper.

    python -m experiments.sample_complexity --flagfile=experiments/flags/fig1a.cfg

Measures, for each model and length, the number of training prompts after which the
test loss is first below each threshold, and draws it against the length. Started
again on its own output directory, a run goes on where it stopped.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import pathlib

import numpy as np
import rich.console
import rich.table
from absl import flags

from experiments import beside, command_line, running
from sepfx import Online
from sepfx.analysis import figures, summarise
from sepfx.analysis.summary import at_level
from sepfx.ensembles import TASK_DRAWS, Cell, grid
from sepfx.errors import require
from sepfx.models import NAMES
from sepfx.tasks import LINKS, QSTR, independent, shared
from sepfx.tasks.codes import KINDS
from sepfx.training import Level

_PUBLISHED = pathlib.Path(__file__).parent / "published"
# What runs that are drawn together may differ in; no two may have the same trial.
_MAY_DIFFER = ("models", "lengths", "num_trials", "max_samples")
_TASKS = {"qstr": independent, "simple_qstr": shared}

flags.DEFINE_enum("task", "qstr", list(_TASKS), "What is learned.")
flags.DEFINE_list(
  "models",
  ["transformer", "ffn", "gru"],
  f"Who learns: {', '.join(NAMES['regression'])}, or package.module:factory.",
)
flags.DEFINE_list("lengths", ["4", "8", "12"], "N, number of tokens in a prompt.")
flags.DEFINE_integer("num_trials", 5, "Trials of each model at each length.")
flags.DEFINE_list("thresholds", ["0.7"], "Test losses whose first passage is timed.")
flags.DEFINE_list(
  "uniform_fractions",
  [],
  "Further thresholds, as fractions of the test loss of uniform attention (1 - 1/N).",
)
flags.DEFINE_integer("check_every", 10, "Steps between two evaluations.")
flags.DEFINE_integer("num_test", 5000, "Test prompts of a trial.")
flags.DEFINE_enum(
  "test_distribution",
  "matched",
  ["matched", "simple"],
  "Test prompts: as trained on, or all positions naming the same tokens (published).",
)
flags.DEFINE_enum(
  "task_draw",
  "per_trial",
  list(TASK_DRAWS),
  "Planted parameters: anew for each trial, or once for all at a length (published).",
)
flags.DEFINE_enum("codes", "rademacher", list(KINDS), "Position codes.")
flags.DEFINE_integer("code_dim", None, "d_e; floor(5 ln N) if not given.")
flags.DEFINE_bool(
  "encoding_prefactor", False, "Multiply codes by sqrt(d/q), as the theory does."
)
flags.DEFINE_integer("batch_size", 64, "Fresh prompts a step.")
flags.DEFINE_float("learning_rate", 1e-3, "AdamW's learning rate.")
flags.DEFINE_float("weight_decay", 0.01, "AdamW's decoupled weight decay.")
flags.DEFINE_integer("max_samples", 1_000_000, "Prompts after which a trial is censored.")
flags.DEFINE_integer("token_dim", 10, "d.")
flags.DEFINE_integer("sparsity", 1, "q, number of tokens a label depends on.")
flags.DEFINE_enum("link", "linear", list(LINKS), "g, what a label is of those tokens.")
flags.DEFINE_integer("num_heads", 1, "H, heads of the transformer.")
flags.DEFINE_integer("seed", 0, "Seed of everything random.")
flags.DEFINE_bool("screen", True, "Estimate the test loss before evaluating it in full.")
flags.DEFINE_string(
  "published", "", "Published means to draw beside: a file name in experiments/published."
)

FLAGS = flags.FLAGS
FLAGS.set_default("output_dir", "runs/sample_complexity")


def _settings() -> dict:
  """The settings that stand in config.json, in one form however they were given."""
  settings = command_line.settings_of("lengths", free=("published",))
  settings["lengths"] = command_line.numbers("lengths", int, "integers >= 2")
  settings["thresholds"] = command_line.numbers("thresholds", float, "positive numbers")[
    ::-1
  ]
  fractions = command_line.numbers("uniform_fractions", float, "numbers between 0 and 1")
  settings["uniform_fractions"] = fractions[::-1]
  settings["models"] = list(dict.fromkeys(FLAGS.models))
  return settings


def _protocol(settings: dict) -> Online:
  return Online(
    thresholds=tuple(settings["thresholds"]),
    optimizer=command_line.adamw(settings),
    batch_size=settings["batch_size"],
    check_every=settings["check_every"],
    num_test=settings["num_test"],
    max_samples=settings["max_samples"],
    screen=settings["screen"],
  )


def _cells(settings: dict) -> list[Cell]:
  lengths = settings["lengths"]
  require(len(lengths) > 0 and lengths[0] >= 2, "lengths", lengths, "integers >= 2")
  task = QSTR(
    length=lengths[0],
    token_dim=settings["token_dim"],
    sparsity=settings["sparsity"],
    indices=_TASKS[settings["task"]],
    link=LINKS[settings["link"]],
    codes=settings["codes"],
    code_dim=settings["code_dim"],
    encoding_prefactor=settings["encoding_prefactor"],
  )
  simple = settings["test_distribution"] == "simple"
  return grid(
    task,
    settings["models"],
    lengths,
    _protocol(settings),
    uniform_fractions=settings["uniform_fractions"],
    test_task=dataclasses.replace(task, indices=shared) if simple else None,
    task_draw=settings["task_draw"],
    num_heads=settings["num_heads"],
  )


def _read_published(name: str) -> figures.Published:
  if not name:
    return {}
  path = _PUBLISHED / f"{name}.csv"
  known = sorted(file.stem for file in _PUBLISHED.glob("*.csv"))
  require(path.exists(), "published", name, f"nothing or one of {', '.join(known)}")
  points: dict[tuple[str, float], list[tuple[int, float]]] = {}
  with open(path) as file:
    for row in csv.DictReader(line for line in file if not line.startswith("#")):
      point = (int(row["length"]), float(row["samples"]))
      points.setdefault((row["model"], float(row["threshold"])), []).append(point)
  return points


def _print_table(
  console: rich.console.Console, levels: list[Level], summary: dict
) -> None:
  for level in levels:
    cells = at_level(summary["cells"], level)
    models = list(dict.fromkeys(cell["model"] for cell in cells))
    console.print(f"\nTraining prompts until the test MSE is below {level}:")
    shown = rich.table.Table()
    shown.add_column("N", justify="right")
    for model in models:
      shown.add_column(model, justify="right")
    for length in sorted({cell["length"] for cell in cells}):
      by_model = {c["model"]: c for c in cells if c["length"] == length}
      shown.add_row(str(length), *(_table_entry(by_model.get(m)) for m in models))
    fitted = {entry["model"]: entry for entry in at_level(summary["exponents"], level)}
    if fitted:
      shown.add_section()
      entries = [
        f"{e['c']:.2f} [{e['low']:.2f}, {e['high']:.2f}]" if e else ""
        for e in map(fitted.get, models)
      ]
      shown.add_row("c", *entries)
    console.print(shown)
  console.print("Mean [95% interval] over trials; c is the exponent of n ~ N^c.")


def _table_entry(cell: dict | None) -> str:
  if cell is None:  # runs drawn together need not have the same lengths
    return ""
  # A restricted mean is a lower bound: some trials never got there.
  entry = f"{'> ' if cell['restricted'] else ''}{cell['mean']:,.0f}"
  if cell["low"] is not None:
    entry += f" [{cell['low']:,.0f}, {cell['high']:,.0f}]"
  if cell["reached"] < cell["trials"]:
    entry += f" ({cell['reached']}/{cell['trials']} reached)"
  return entry


def main() -> None:
  stop = running.start()
  settings = _settings()
  cells = _cells(settings)
  published = _read_published(FLAGS.published)
  others = beside.read(settings, cells, _MAY_DIFFER)
  console = running.console()
  with running.recorded(cells, settings, stop) as run:
    if run is None:
      return
    records, curves = beside.joined(run, others)
    parts = [(settings, run.records), *((each.settings, each.records) for each in others)]
    budget = np.concatenate(
      [np.full(len(part), _protocol(own).budget) for own, part in parts]
    )
    test_task = cells[0].trial.test_task
    uniform_risk = {
      length: dataclasses.replace(test_task, length=length).uniform_attention_risk()
      for length in sorted(set(records["length"].tolist()))
    }
    levels = [Level(threshold) for threshold in settings["thresholds"]]
    levels += [Level(value, of_uniform=True) for value in settings["uniform_fractions"]]
    summary = summarise(records, levels, budget, uniform_risk)
    run.directory.write("summary.json", json.dumps(summary, indent=2) + "\n")
    figure = figures.sample_complexity(
      records, curves, levels, summary, uniform_risk, published
    )
    command_line.write_figure(run.directory, figure)
  _print_table(console, levels, summary)
  console.print(f"figure: {run.directory.path / 'figure.png'}", soft_wrap=True)


if __name__ == "__main__":
  command_line.main(main)
