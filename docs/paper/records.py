"""Recorded runs, read again from the rows that are kept of them and their commands."""

import csv
import dataclasses
import functools
import pathlib
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib import recfunctions

from experiments import best_rate
from experiments.qstr.fixed_samples import planted
from sepfx.ensembles import Records, table
from sepfx.ensembles.cells import numbers_of_parameters
from sepfx.statistics.success_summary import summarise_success
from sepfx.studies import beside, study
from sepfx.studies.beside import Part

ROOT = pathlib.Path(__file__).parent.parent.parent
GALLERY, RESULTS = ROOT / "docs/gallery", ROOT / "docs/results"
NAMES = {
  "transformer": "Transformer", "linear_attention": "linear attention",
  "deep_transformer": "deep Transformer", "min_gru": "minGRU", "relu_rnn": "ReLU RNN",
  "lru": "LRU", "gru": "GRU", "lstm": "LSTM", "ffn": "feedforward",
  "transformer:num_heads=13": "Transformer, 13 heads",
}  # fmt: skip
# Fixed samples: parts whose trials an adaptive search chose.
SEARCHES = (
  "transformer",
  "transformer_32",
  "min_gru",
  "min_gru_8",
  "relu_rnn",
  "relu_rnn_8",
  "ffn",
  "ffn_8_own",
)
TOKEN_DIM = 10  # d of all runs
_TYPES = {
  "learning_rate": float, "threshold": float, "weight_decay": float, "risk": float,
  "length": int, "batch_size": int, "sample_size": int, "trial": int, "samples": int,
  "steps": int,
}  # fmt: skip


def commands(page: str, letter: str = "F") -> dict[str, list[str]]:
  """Arguments of the commands `$F ...` on a page, by the name of each one's directory.

  The page says what the letter stands for. Where several commands have one directory,
  those of the first, with what the others add to its lists. Commands that set others
  beside themselves are left out: they run nothing.
  """
  text = (GALLERY / page).read_text().replace("\\\n", " ")
  variables = dict(re.findall(r'^    ([A-Z])="(.*)"$', text, re.MULTILINE))

  def whole(command: str) -> str:
    while "$" in command:
      command = re.sub(r"\$([A-Z])", lambda name: variables[name[1]], command)
    return command

  found: dict[str, list[str]] = {}

  def leads(command: str) -> bool:
    """Whether it is the letter's, by way of others that stand for it with more."""
    first = command.strip()[1:2]
    return first == letter or (first in variables and leads(variables[first]))

  for line in re.findall(r"^    (\$[A-Z] .*|\$[A-Z])$", text, re.MULTILINE):
    for own in filter(leads, line.split("&&")):
      own = whole(own)
      if "--beside" in own:
        continue
      _, _, preset, *arguments = shlex.split(own)  # sepfx STUDY --preset=NAME ...
      outputs = [each for each in arguments if each.startswith("--output_dir=")]
      if outputs:
        flags = ROOT / f"experiments/flags/{preset.partition('=')[2]}.cfg"
        name = outputs[0].rpartition("/")[2]
        others = [each for each in arguments if each not in outputs]
        before = found.get(name, [f"--flagfile={flags}", *others])
        found[name] = [_extended(each, others) for each in before]
  return found


def _extended(argument: str, others: Sequence[str]) -> str:
  """A flag's list with what another command adds to it."""
  flag, _, values = argument.partition("=")
  own = [each.partition("=")[2] for each in others if each.startswith(f"{flag}=")]
  several = [*values.split(","), *(value for more in own for value in more.split(","))]
  return f"{flag}={','.join(dict.fromkeys(several))}"


def rows_of(path: pathlib.Path) -> Records:
  """The rows of a trials.csv, typed."""
  with open(path, newline="") as file:
    columns, *rows = csv.reader(file)
  kinds = {column: _TYPES.get(column, str) for column in columns}
  typed = [tuple(k(v) for k, v in zip(kinds.values(), row, strict=True)) for row in rows]
  return Records(table(typed, kinds), tuple(columns[: columns.index("trial")]), {})


def best_rate_run(
  parts: Mapping[str, Sequence[str]], rows: pathlib.Path, names: str = "{}"
) -> study.Run:
  """Parts of a study of best rates, as their commands made them.

  Args:
    parts: arguments by name.
    rows: the folder of their rows.
    names: of a part's file there, by its name.
  """
  read = []
  for name, arguments in parts.items():
    chosen = best_rate.STUDY.chosen(arguments)
    records = rows_of(rows / f"{names.format(name)}.csv")
    nothing = {records.name_of(row): np.zeros(0) for row in records.table}
    records = dataclasses.replace(records, all_curves=nothing)
    read.append(Part(records, best_rate.STUDY.cells(chosen), chosen))
  records, cells = beside.together(read)
  return study.Run(records, cells, read[0].chosen, "length")


@functools.cache
def best_settings() -> dict[str, Any]:
  """The summary of docs/gallery/best_settings.md, made again."""
  parts = commands("best_settings.md")
  run = best_rate_run(parts, RESULTS / "best_settings")
  summary = best_rate.summarise_run(run)
  return {**summary, "parameters": numbers_of_parameters(run.cells)}


@functools.cache
def another_seed() -> dict[str, Any]:
  """The summary of another seed on the same page."""
  parts = commands("best_settings.md", "S")
  run = best_rate_run(parts, RESULTS / "best_settings/seed1")
  return best_rate.summarise_run(run)


@functools.cache
def knobs() -> list[dict[str, Any]]:
  """The summaries of one knob at a time on the same page."""
  return [summary for summary, _ in _apart("K", "knobs")]


@functools.cache
def equal() -> list[tuple[dict[str, Any], int]]:
  """The summaries of models of one size on the same page, with their parameters."""
  return _apart("E", "equal")


def _apart(letter: str, folder: str) -> list[tuple[dict[str, Any], int]]:
  """Each command of a letter by itself: its summary, and the parameters of its model."""
  found = []
  for name, arguments in commands("best_settings.md", letter).items():
    run = best_rate_run({name: arguments}, RESULTS / "best_settings" / folder)
    (number,) = set(numbers_of_parameters(run.cells).values())
    found.append((best_rate.summarise_run(run), number))
  return found


@functools.cache
def batches_of_64() -> dict[str, Any]:
  """The summary of docs/gallery/best_rate.md, made again."""
  files = {"transformer": "transformer", "linear": "linear_attention", "ffn": "ffn",
           "deep": "deep_transformer", "min_gru": "min_gru", "relu": "relu_rnn",
           "relu_4": "relu_rnn_4", "lru": "lru"}  # fmt: skip
  found = commands("best_rate.md")
  parts = {file: found[name] for name, file in files.items()}
  run = best_rate_run(parts, RESULTS / "best_rate", "trials_{}")
  return best_rate.summarise_run(run)


@functools.cache
def fixed_samples() -> dict[str, Any]:
  """The summary of docs/gallery/fixed_samples.md, made again."""
  records = of_fixed_samples()
  lengths = np.unique(records.table["length"]).tolist()
  floors = {
    N: planted.planted_size("knows_index", N, TOKEN_DIM, 0.5 * (1 - 1 / N))
    for N in lengths
  }
  return summarise_success(records, floors, "N", "knows the index")


def of_fixed_samples() -> Records:
  """The trials of docs/gallery/fixed_samples.md.

  Of the feedforward network's two searches at N = 8 the one whose weight decay needs
  fewer prompts.
  """
  tables = []
  for name in SEARCHES:
    own = rows_of(RESULTS / f"fixed_samples/{name}.csv").table
    if name == "ffn_8_own":
      own = recfunctions.drop_fields(own[own["weight_decay"] == 0.3], "weight_decay")
    tables.append(own)
  kinds = {"task": str, "model": str, "length": int, "sample_size": int, "trial": int,
           "risk": float, "steps": int, "outcome": str}  # fmt: skip
  rows = [row for own in tables for row in own.tolist()]
  coordinates = ("task", "model", "length", "sample_size")
  return Records(table(rows, kinds), coordinates, {})
