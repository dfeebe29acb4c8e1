"""The tables of docs/gallery/best_settings.md, made again from the rows beside it."""

import csv
import dataclasses
import functools
import json
import re
import shlex

import numpy as np
import pytest

from experiments import best_rate
from sepfx.ensembles import Records, table
from sepfx.statistics.series import BUDGETS
from sepfx.studies import beside, study
from sepfx.studies.beside import Part
from tests.programs import ROOT, each_model_checked_once

PAGE = ROOT / "docs/gallery/best_settings.md"
ROWS = ROOT / "docs/results/best_settings"
NAMES = {
  "transformer": "Transformer", "linear_attention": "linear attention",
  "deep_transformer": "deep Transformer", "min_gru": "minGRU", "relu_rnn": "ReLU RNN",
  "lru": "LRU", "gru": "GRU", "lstm": "LSTM", "ffn": "feedforward",
}  # fmt: skip


def commands():
  """The arguments of each command on the page, by the name of its directory."""
  found = {}
  for line in re.findall(r"^    \$F (.*)$", PAGE.read_text(), re.MULTILINE):
    arguments = shlex.split(line)
    if not any(own.startswith("--beside") for own in arguments):
      (output,) = (own for own in arguments if own.startswith("--output_dir="))
      found[output.rpartition("/")[2]] = [own for own in arguments if own != output]
  return found


def part(name, arguments):
  """A run as its command made it, with the rows that are kept of it."""
  preset = ROOT / "experiments/flags/best_settings.cfg"
  chosen = best_rate.STUDY.chosen([f"--flagfile={preset}", *arguments])
  cells = best_rate.STUDY.cells(chosen)
  with open(ROWS / f"{name}.csv", newline="") as file:
    columns, *rows = csv.reader(file)
  types = {"learning_rate": float, "threshold": float, "length": int, "batch_size": int,
           "trial": int, "samples": int}  # fmt: skip
  kinds = {column: types.get(column, str) for column in columns}
  typed = [
    tuple(kind(v) for kind, v in zip(kinds.values(), row, strict=True)) for row in rows
  ]
  coordinates = tuple(columns[: columns.index("trial")])
  records = Records(table(typed, kinds), coordinates, {})
  nothing = {records.name_of(row): np.zeros(0) for row in records.table}
  return Part(dataclasses.replace(records, all_curves=nothing), cells, chosen)


@functools.cache
def recomputed():
  with each_model_checked_once():
    parts = [part(name, arguments) for name, arguments in commands().items()]
  records, cells = beside.together(parts)
  run = study.Run(records, cells, parts[0].chosen, "length")
  return json.loads(json.dumps(best_rate.summarise_run(run)))


def lines_of(summary, fraction):
  """Rows of the table of n below a share of uniform attention's loss."""
  found = []
  for series in dict.fromkeys(entry["series"] for entry in summary["best"]):
    own = [
      e for e in summary["best"] if (e["series"], e["fraction"]) == (series, fraction)
    ]
    for k, e in enumerate(own):
      batch, rate = (
        f"{e[axis]:g}" + ", edge" * (axis in e["edges"])
        for axis in ("batch_size", "learning_rate")
      )
      sign = "< " * e["edge"] + "> " * e["restricted"]
      mean = f"{sign}{e['mean']:,.0f} [{e['low']:,.0f}, {e['high']:,.0f}]"
      median = f"{e['median']:,.0f} [{e['median_low']:,.0f}, {e['median_high']:,.0f}]"
      name = "" if k else NAMES[e["model"]]
      cells = [name, f"{e['length']}", batch, rate, mean, median, f"{e['slow'] or ''}"]
      found.append(
        re.sub(r"\|  \|", "| |", f"| {' | '.join(cells)} |").replace("|  ", "| ")
      )
  return found


def growth_of(summary, fraction):
  """Rows of the table of growth."""
  found = []
  for e in summary["exponents"]:
    if e["fraction"] == fraction and len(e["over"]) > 2:
      name, over = NAMES[e["series"]], f"{e['over'][0]:g} to {e['over'][-1]:g}"
      g, laws = e["growth"], e["laws"]
      p = f"{laws['p_power']:.2g} | {laws['p_logarithm']:.2g}"
      found.append(
        f"| {name} | {over} | {e['c']:.2f} [{e['low']:.2f}, {e['high']:.2f}] "
        f"| {g['factor']:.2f} [{g['low']:.2f}, {g['high']:.2f}] "
        f"| {p} | {laws['advantage']:+.1f} |"
      )
  return found


def test_every_part_has_its_rows():
  names = {path.stem for path in ROWS.glob("*.csv")}
  assert names == set(commands())
  assert BUDGETS  # parts differ in these alone, so their cells have one name each


@pytest.mark.parametrize("fraction", [0.5, 0.1])
def test_tables_are_what_the_rows_say(fraction):
  text = PAGE.read_text()
  for line in [*lines_of(recomputed(), fraction), *growth_of(recomputed(), fraction)]:
    assert line in text.splitlines(), line


def test_summary_is_what_the_rows_say():
  """The one beside the rows is of the same command, in which parts stand together."""
  stored = json.loads((ROWS / "summary.json").read_text())
  key = ("series", "length", "threshold", "fraction")
  ours = {tuple(e[k] for k in key): e for e in recomputed()["best"]}
  assert {tuple(e[k] for k in key) for e in stored["best"]} == set(ours)
  for entry in stored["best"]:
    own = ours[tuple(entry[k] for k in key)]
    for name in ("mean", "low", "high", "median", "batch_size", "learning_rate"):
      assert own[name] == pytest.approx(entry[name], rel=1e-9), (entry["series"], name)
