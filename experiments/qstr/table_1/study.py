"""Table 1 of the main paper from one's own records: how n grows with N.

    sepfx table-1 --runs=docs/results/fig1_extended,docs/results/fig1b

Of *When Do Transformers Outperform Feedforward and Recurrent Networks?* Reads the
summaries of runs of `sepfx sample-complexity` and `sepfx best-rate`, and
holds the exponents of n ~ N^c, threshold by threshold, against what the theorems say of
simple-qSTR and qSTR. Says which cells have no run.
"""

from __future__ import annotations

import csv
import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import rich.table
from absl import flags

from sepfx import specifications
from sepfx.commands import command_line
from sepfx.commands.report import Report, given, leave
from sepfx.errors import InvalidSetting, require
from sepfx.records import digests
from sepfx.records.config import CONFIG, read_config
from sepfx.statistics.levels import Level
from sepfx.statistics.summary import LEAST_PLACES

from .figure import BORDER, draw_exponents

flags.DEFINE_list("runs", [], "Directories of runs that have a summary.json.")
FLAGS = flags.FLAGS

_TASKS = {"simple_qstr": "simple-qSTR", "qstr": "qSTR"}
_COLUMNS = {
  "feedforward": ("ffn",),
  "recurrent": ("gru", "lstm", "relu_rnn", "residual_rnn", "lru", "min_gru"),
  "Transformer": ("transformer", "deep_transformer", "linear_attention"),
}
_COLUMN_OF = {model: column for column, models in _COLUMNS.items() for model in models}
# What the theorems say of n against N, and which of them.
_INDEPENDENT, _GROWS = "nearly independent of N", "grows"
_THEOREMS = {
  ("simple_qstr", "feedforward"): (_GROWS, "Theorem 6: at least N d (1 - risk)"),
  ("qstr", "feedforward"): (_GROWS, "Theorem 6: at least N d (1 - risk)"),
  ("simple_qstr", "recurrent"): (_INDEPENDENT, "Theorem 7: powers of log N"),
  ("qstr", "recurrent"): (_GROWS, "Theorem 9: at least N^c for some c > 0"),
  ("simple_qstr", "Transformer"): (_INDEPENDENT, "Theorem 4: powers of log N"),
  ("qstr", "Transformer"): (_INDEPENDENT, "Theorem 4: powers of log N"),
}


# What may be said of the n that an exponent was fitted to.
_MARKS = {
  "coarse": "coarse",
  "edge": "some are upper bounds",
  "restricted": "some are lower bounds",
}


def exponents_of(path: str) -> list[dict[str, Any]]:
  """Returns a row for each exponent over three lengths or more in the summary of a run.

  Raises:
    InvalidSetting: if there is no summary, or one of another study.
  """
  directory = pathlib.Path(path)
  takes = "a directory with the summary.json of a run against the length"
  try:
    summary = json.loads((directory / "summary.json").read_text())
    if (directory / CONFIG).exists():
      digests.check(directory, read_config(directory / CONFIG))
  except InvalidSetting as error:
    raise InvalidSetting("runs", path, f"{takes} ({error})") from error
  except (OSError, ValueError) as error:
    raise InvalidSetting("runs", path, takes) from error
  ours = isinstance(summary, dict) and {"cells", "exponents"} <= set(summary)
  require(ours and summary.get("against", "length") == "length", "runs", path, takes)
  tasks = {cell.get("task") for cell in summary["cells"]} - {None} or _recorded(directory)
  rows = []
  for entry in summary["exponents"]:
    if len(entry["over"]) < LEAST_PLACES:
      continue
    cells = [c for c in summary["cells"] if c["series"] == entry["series"]]
    own = {cell.get("task") for cell in cells} - {None} or tasks
    takes = f"runs on one of {', '.join(_TASKS)} per series, not on {sorted(own)}"
    require(len(own) == 1 and own <= set(_TASKS), "runs", path, takes)
    model = specifications.base(entry["series"].partition(",")[0])
    takes = f"runs of {', '.join(_COLUMN_OF)}, not of {model}"
    require(model in _COLUMN_OF, "runs", path, takes)
    (task,) = own
    rows.append(_row(path, task, model, entry, _bounds(entry, summary)))
  takes = "a run with exponents of n ~ N^c: trials that learned at three lengths or more"
  require(bool(rows), "runs", path, takes)
  return rows


def _bounds(entry: Mapping[str, Any], summary: Mapping[str, Any]) -> dict[str, set[str]]:
  """Whether an exponent is a bound, since the n of some lengths are.

  Returns:
    The `_MARKS` of those n, each with what it makes of c: "at most" or "at least".
  """
  names = ("series", "threshold", "fraction")
  centre = sum(map(math.log, entry["over"])) / len(entry["over"])
  words: dict[str, set[str]] = {}
  for cell in summary.get("best", summary["cells"]):
    same = all(cell.get(name) == entry[name] for name in names)
    if same and cell["length"] in entry["over"]:
      longer = math.log(cell["length"]) > centre
      if cell.get("edge"):  # at a better rate n would be smaller
        words.setdefault("edge", set()).add("at most" if longer else "at least")
      if cell.get("restricted"):  # with a larger budget n would be larger
        words.setdefault("restricted", set()).add("at least" if longer else "at most")
  return words


def _recorded(directory: pathlib.Path) -> set[str]:
  """Tasks in the records beside a summary that does not name them."""
  tasks: set[str] = set()
  for path in directory.glob("trials*.csv"):
    with open(path, newline="") as file:
      tasks |= {row["task"] for row in csv.DictReader(file)}
  return tasks


def _direction(low: float, high: float) -> str:
  """Which of the theorems' two kinds of growth an exponent's interval is of."""
  if high < BORDER:
    return _INDEPENDENT
  return _GROWS if low > BORDER else "not settled"


def _row(
  path: str,
  task: str,
  model: str,
  entry: Mapping[str, Any],
  bounds: Mapping[str, set[str]],
) -> dict[str, Any]:
  column = _COLUMN_OF[model]
  expected, theorem = _THEOREMS[task, column]
  fraction = entry["fraction"]
  known = entry["low"] is not None
  found = _direction(entry["low"], entry["high"]) if known else "not settled"
  both = set().union(*bounds.values())
  bound = both.pop() if len(both) == 1 else "about" if both else ""
  marks = [words for mark, words in _MARKS.items() if entry.get(mark) or mark in bounds]
  unsafe = {"grows": ("at most", "about"), _INDEPENDENT: ("at least", "about")}
  if bound in unsafe.get(found, ()):
    found = "not settled"
  return {
    "task": task, "column": column, "series": entry["series"],
    "threshold": str(Level(fraction or entry["threshold"], fraction is not None)),
    "lengths": " ".join(map(str, entry["over"])),
    "bound": bound, "c": entry["c"], "low": entry["low"], "high": entry["high"],
    "marks": ", ".join(marks),
    "verdict": found, "theorem": theorem,
    "same_direction": {expected: "yes", "not settled": "open"}.get(found, "no"),
    "run": path,
  }  # fmt: skip


def missing(rows: Sequence[Mapping[str, Any]]) -> list[str]:
  """Names the cells of Table 1 that no run tells of."""
  there = {(row["task"], row["column"]) for row in rows}
  return [f"{_TASKS[own[0]]}, {own[1]}" for own in _THEOREMS if own not in there]


def report() -> Report:
  """Reads all runs."""
  require(bool(FLAGS.runs), "runs", "", "directories of runs, with commas")
  rows = [row for path in FLAGS.runs for row in exponents_of(path)]
  rows.sort(key=lambda row: [*_THEOREMS].index((row["task"], row["column"])))
  names = "task,class,series,test MSE below,N,c,marks,verdict,same direction,run"
  table = rich.table.Table(*names.split(","))
  for row in rows:
    ends = "" if row["low"] is None else f" [{row['low']:.2f}, {row['high']:.2f}]"
    table.add_row(
      _TASKS[row["task"]], row["column"], row["series"], row["threshold"],
      row["lengths"], f"{row['bound']} {row['c']:.2f}{ends}".strip(), row["marks"],
      row["verdict"],
      row["same_direction"], row["run"].rstrip("/").rpartition("/")[2],
    )  # fmt: skip
  text = [
    f"{_TASKS[task]}, {own}: {says}" for (task, own), (_, says) in _THEOREMS.items()
  ]
  text.append(
    "c: exponent of n ~ N^c [95% interval]. Nearly independent of N: the interval ends "
    "below 0.5. Grows: it begins above. Neither is said of a c that is a bound from the "
    "other side. Same direction: as the theorem says. Thresholds of one run are of the "
    "same trials. Marks: what may be "
    "said of the n that c was fitted to: bounds, or means of less than ten checks "
    "(coarse)."
  )
  if missing(rows):
    text.append(f"No run: {'; '.join(missing(rows))}.")
  return Report(
    rows=rows,
    summary={"rows": rows, "missing": missing(rows)},
    figures={"figure": draw_exponents(rows, _TASKS)},
    printed=[table, *text],
  )


def main(unknown: Sequence[str]) -> None:
  """Leaves the results in --output_dir."""
  leave("table_1", lambda: given("runs"), report, unknown)


if __name__ == "__main__":
  FLAGS.set_default("output_dir", "runs/table_1")
  command_line.main(main)
