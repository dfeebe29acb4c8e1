"""How many samples until a hidden Boolean function is learned? Figures 2 and 4.

Of *Inductive Biases and Variable Creation in Self-Attention Mechanisms*.

    python -m experiments.boolean_sample_complexity --contexts=50,100

Trains each model on fixed samples of m inputs whose label is a function of s hidden bits
among T, and draws the fraction of trials that learn it against m, and the critical sample
size against T. Started again on its own output directory, a run goes on where it stopped.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping

import numpy as np
import rich.console
import rich.table
from absl import flags

from experiments import beside, command_line, running
from sepfx.analysis import success, success_figures, summarise_success
from sepfx.ensembles import Cell, grid, trial_name
from sepfx.errors import require
from sepfx.models import NAMES
from sepfx.tasks import FUNCTIONS, BooleanFunction, ByCount, SparseBoolean, TruthTable
from sepfx.tasks import threshold as threshold_function
from sepfx.theory import exhaustive_success
from sepfx.training import ERM

flags.DEFINE_string(
  "function",
  "and",
  f"What is learned: {', '.join(FUNCTIONS)}, threshold:2 (at least two of the hidden "
  "bits are 1), symmetric:0110 (by the number of ones) or table:01101001 (any).",
)
flags.DEFINE_list(
  "models",
  ["transformer"],
  f"Who learns: {', '.join(NAMES['classification'])}, or package.module:factory.",
)
flags.DEFINE_list("contexts", ["50", "100", "200"], "T, number of bits.")
flags.DEFINE_list("sample_sizes", ["20", "40", "60", "80", "100"], "m.")
flags.DEFINE_integer("sparsity", 3, "s, number of hidden bits.")
flags.DEFINE_enum(
  "search",
  "grid",
  ["grid", "adaptive"],
  "Run trials at every sample size, or at those that trials before them leave open.",
)
flags.DEFINE_integer(
  "num_trials",
  10,
  "Trials of each model, context and sample size; in an adaptive search of each model "
  "and context.",
)
flags.DEFINE_float("noise", 0.0, "Probability that a training label is flipped.")
flags.DEFINE_float("bit_probability", 0.5, "Probability that a bit is 1.")
flags.DEFINE_list("subset", [], "The hidden positions, from 0; drawn if not given.")
flags.DEFINE_float(
  "accuracy_level", 0.99, "Held-out accuracy above which a trial succeeds."
)
flags.DEFINE_integer("max_steps", 1000, "Steps after which a trial has failed.")
flags.DEFINE_integer("check_every", 10, "Steps between two evaluations.")
flags.DEFINE_integer("num_test", 10_000, "Held-out inputs of a trial.")
flags.DEFINE_integer("batch_size", 0, "Samples a step; 0 for all m.")
flags.DEFINE_float("learning_rate", 1e-3, "Adam's learning rate.")
flags.DEFINE_float("weight_decay", 1e-4, "Decoupled, on linear weight matrices alone.")
flags.DEFINE_float("clip_norm", 1.0, "Of the global gradient norm; 0 for no clipping.")
flags.DEFINE_integer("num_heads", 16, "H, heads of the transformer.")
flags.DEFINE_bool("run_to_end", False, "Train on when a trial has succeeded.")
flags.DEFINE_integer("seed", 0, "Seed of everything random.")

# What runs that are drawn together may differ in; no two may have the same cell.
_MAY_DIFFER = ("models", "contexts", "sample_sizes", "search", "num_trials")
# Rounds of an adaptive search.
_ROUNDS = 16
# The learner that tries all subsets: simulated trials, and the sample sizes tried.
_FLOOR_TRIALS = 100
_FLOOR_SIZES = np.arange(16, 65)

FLAGS = flags.FLAGS
FLAGS.set_default("output_dir", "runs/boolean_sample_complexity")


def _settings() -> dict:
  """The settings that stand in config.json, in one form however they were given."""
  settings = command_line.settings_of("contexts", free=())
  for name in ("contexts", "sample_sizes"):
    settings[name] = command_line.numbers(name, int, "integers >= 1")
    require(len(settings[name]) > 0, name, [], "at least one integer")
  settings["subset"] = command_line.numbers("subset", int, "positions from 0")
  settings["models"] = list(dict.fromkeys(FLAGS.models))
  return settings


def _function(text: str) -> BooleanFunction:
  if text in FUNCTIONS:
    return FUNCTIONS[text]
  kind, _, argument = text.partition(":")
  takes = f"{', '.join(FUNCTIONS)}, threshold:K, symmetric:01... or table:01..."
  require(kind in ("threshold", "symmetric", "table"), "function", text, takes)
  require(argument.isdecimal(), "function", text, takes)
  if kind == "threshold":
    return threshold_function(int(argument))
  values = tuple(map(int, argument))
  return ByCount(values) if kind == "symmetric" else TruthTable(values)


def _cells(settings: dict) -> list[Cell]:
  level = settings["accuracy_level"]
  require(0.5 < level <= 1, "accuracy_level", level, "a number above 1/2, at most 1")
  sizes = settings["sample_sizes"]
  require(sizes[0] >= 1, "sample_sizes", sizes[0], "integers >= 1")
  batch_size = settings["batch_size"]
  require(
    0 <= batch_size <= sizes[0],
    "batch_size",
    batch_size,
    f"an integer from 1 to the smallest sample size {sizes[0]}, or 0 for all m",
  )
  function = _function(settings["function"])
  subset = tuple(settings["subset"]) or None
  task, test_task = (
    SparseBoolean(
      length=settings["contexts"][0],
      sparsity=settings["sparsity"],
      function=function,
      noise=noise,
      bit_probability=settings["bit_probability"],
      subset=subset,
    )
    for noise in (settings["noise"], 0.0)
  )
  num_test = settings["num_test"]
  require(num_test >= 1, "num_test", num_test, "an integer >= 1")
  constant = 1 - task.best_constant_error()
  takes = f"a number above {constant:.4g}, the accuracy of the best constant"
  require(level > constant, "accuracy_level", level, takes)
  protocol = ERM(
    # Where all of them have to be right, fewer than one must be wrong.
    threshold=max(1 - level, 0.5 / num_test),
    optimizer=command_line.adam_with_kernel_decay(settings),
    batch_size=batch_size or None,
    check_every=settings["check_every"],
    num_test=num_test,
    max_steps=settings["max_steps"],
    run_to_end=settings["run_to_end"],
  )
  return grid(
    task,
    settings["models"],
    settings["contexts"],
    protocol,
    sample_sizes=sizes,
    test_task=test_task,
    num_heads=settings["num_heads"],
  )


class _Adaptive:
  """A `running.Search`: a model's trials at one T by how its earlier ones there ended.

  The choices follow from the outcomes alone: a run that was interrupted makes them again.
  """

  def __init__(self, cells: list[Cell], num_trials: int):
    self._each = num_trials
    self._groups: dict[tuple[str, int], dict[int, Cell]] = {}
    for cell in cells:
      group = self._groups.setdefault((cell.model_name, cell.trial.task.length), {})
      group[cell.trial.protocol.num_samples] = cell
    self._chosen: dict[tuple[str, int], list[tuple[int, str]]] = {
      key: [] for key in self._groups
    }
    self.num_trials = num_trials * len(self._groups)

  def __call__(self, ended: Mapping[str, bool]) -> list[str]:
    names = []
    for key, cells in self._groups.items():
      before = self._chosen[key]
      counts = success.count(
        np.array([size for size, _ in before], int),
        np.array([ended[name] for _, name in before], bool),
      )
      number = min(-(-self._each // _ROUNDS), self._each - len(before))
      for size in success.choose_sizes(counts, np.array(sorted(cells)), number).tolist():
        trial = sum(earlier == size for earlier, _ in before)
        before.append((size, trial_name(cells[size], trial)))
        names.append(before[-1][1])
    return names


def _floor(task: SparseBoolean, lengths: Iterable[int]) -> dict[int, float]:
  """Critical sizes of the learner that tries all subsets, by T.

  Of no T where labels have noise or the subset is given, nor of one at which half of its
  trials fail with 64 samples.
  """
  floor: dict[int, float] = {}
  if task.noise or task.subset:
    return floor
  for length in lengths:
    at_length = dataclasses.replace(task, length=length)
    chance = exhaustive_success(at_length, _FLOOR_SIZES, _FLOOR_TRIALS, seed=0)
    most = np.flatnonzero(chance > 0.5)
    if len(most):
      floor[length] = float(_FLOOR_SIZES[most[0]])
  return floor


def _print_table(console: rich.console.Console, summary: dict) -> None:
  table = rich.table.Table("model", "T", "m at which half succeed", "successes at each m")
  for critical in summary["critical"]:
    cells = [
      cell
      for cell in summary["cells"]
      if (cell["model"], cell["length"]) == (critical["model"], critical["length"])
    ]
    size = ""
    if critical["size"] is not None:
      size = f"{critical['size']:.1f} [{critical['low']:.1f}, {critical['high']:.1f}]"
    successes = ", ".join(
      f"{cell['sample_size']}: {cell['reached']}/{cell['trials']}" for cell in cells
    )
    table.add_row(critical["model"], str(critical["length"]), size, successes)
  console.print(table)
  for model, steepness in summary["steepness"].items():
    if not steepness:
      continue
    text = f"{model}: success odds grow like m^{steepness['k']:.1f}"
    if any(ratio["model"] == model for ratio in summary["ratios"]):
      text += (
        " at every T; the log-evidence for that, over a power for each T, is "
        f"{steepness['support']:.1f}"
      )
    console.print(text)
  for model, growth in summary["growth"].items():
    if growth:
      difference = growth["log_likelihood"] - growth["power_likelihood"]
      likelier = "first" if difference > 0 else "second"
      (a, b, _), (scale, c, _) = growth["log"], growth["power"]
      console.print(
        f"{model}: m = {a:.1f} + {b:.2f} log T or {scale:.1f} T^{c:.3f}; the "
        f"log-likelihood of the {likelier} is higher by {abs(difference):.2f}"
      )


def main() -> None:
  stop = running.start()
  settings = _settings()
  cells = _cells(settings)
  others = beside.read(settings, cells, _MAY_DIFFER)
  console = running.console()
  adaptive = settings["search"] == "adaptive"
  search = _Adaptive(cells, settings["num_trials"]) if adaptive else None
  with running.recorded(cells, settings, stop, search) as run:
    if run is None:
      return
    records, curves = beside.joined(run, others)
    floor = _floor(cells[0].trial.task, np.unique(records["length"]).tolist())
    summary = summarise_success(records, floor)
    run.directory.write("summary.json", json.dumps(summary, indent=2) + "\n")
    figure = success_figures.success(curves, summary)
    command_line.write_figure(run.directory, figure)
  _print_table(console, summary)
  console.print(f"figure: {run.directory.path / 'figure.png'}", soft_wrap=True)


if __name__ == "__main__":
  command_line.main(main)
