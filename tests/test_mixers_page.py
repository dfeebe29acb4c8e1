"""The tables of docs/gallery/mixers.md and zoology.md, made again from rows that ship."""

import functools
import json

import pytest

from docs.paper.records import GALLERY, RESULTS, commands
from experiments.suite import matrix
from experiments.suite.study import STUDY
from sepfx.studies import beside
from sepfx.studies.study import Run

PAGE = GALLERY / "mixers.md"
RECORDED = STUDY.recorded["published:suite"]
NEGATIVE = RESULTS / "mixers/negative"
ZOOLOGY = RESULTS / "zoology"
# Accuracies read off Figure 2 of Arora et al. (2024), at N = 64 and width 64.
PUBLISHED = {"attention": "1.00", "base_conv": "0.70"}


@functools.cache
def recomputed(*paths):
  parts = [beside.read(path, STUDY.settings, STUDY.cells) for path in paths]
  records, cells = beside.together(parts)
  return STUDY.summarise(Run(records, cells, parts[0].chosen, "length"))


def lines_of(task):
  """Rows of a task's table, the least n first."""
  summary = recomputed(*STUDY.runs_at("published:suite"))
  own = [cell for cell in summary["matrix"] if cell["task"] == task]
  own.sort(key=lambda cell: (cell["rate"] is None, cell["n"]))
  found = []
  for cell in own:
    n, rate = said(cell)
    over = over_of(cell)
    found.append(f"| `{cell['model']}` | {cell['memory']:,} | {n} | {over} | {rate} |")
  return [line.replace("|  |", "| |") for line in found]


def negative_lines():
  """Rows of the table of delta rules with negative eigenvalues."""
  found = []
  for cell in recomputed(str(NEGATIVE))["matrix"]:
    n, rate = said(cell)
    found.append(f"| `{cell['task']}` | `{cell['model']}` | {n} | {rate} |")
  return found


def accuracy_lines():
  """Rows of the table of accuracies by epochs, in both programs."""
  found = []
  for line in (ZOOLOGY / "accuracies.jsonl").read_text().splitlines():
    own = json.loads(line)
    after = own["accuracies"]
    by_epoch = [f"{after[k - 1]:.3f}" if k <= len(after) else "" for k in (1, 2, 4, 8)]
    last = f"{after[-1]:.3f}", str(len(after)), PUBLISHED.get(own["model"], "")
    start = f"`{own['model']}`", f"{own['learning_rate']:g}", own["program"]
    cells = [*start, *by_epoch, *last]
    found.append(f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in cells)}|")
  return found


def fresh_lines():
  """Rows of the table of n on fresh sequences of Zoology's task."""
  found = []
  for cell in recomputed(str(ZOOLOGY / "fresh"))["matrix"]:
    n, over = said(cell)[0], over_of(cell)
    found.append(f"| `{cell['model']}` | {cell['memory']:,} | {n} | {over} |")
  return [line.replace("|  |", "| |") for line in found]


def said(cell):
  """n with its interval, and the best rate."""
  n = matrix.text_of(cell)
  if cell["low"] is not None:
    n += f" [{cell['low']:,.0f}, {cell['high']:,.0f}]"
  return n, "none" if cell["rate"] is None else f"{cell['rate']:g}"


def over_of(cell):
  """n over attention's."""
  over = cell["over"]
  return "" if over is None else f"{matrix.SIGNS[cell['over_bound']]}{over:.2g}"


def tasks():
  return sorted(path.name for path in RECORDED.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("task", [*tasks(), "negative"])
def test_tables_are_what_the_rows_say(task):
  text = PAGE.read_text().splitlines()
  lines = negative_lines() if task == "negative" else lines_of(task)
  first = text.index(lines[0])
  assert text[first : first + len(lines)] == lines


@pytest.mark.parametrize(
  "lines", [accuracy_lines, pytest.param(fresh_lines, marks=pytest.mark.slow)]
)
def test_the_tables_beside_zoology_are_what_was_recorded(lines):
  text, lines = (GALLERY / "zoology.md").read_text().splitlines(), lines()
  first = text.index(lines[0])
  assert text[first : first + len(lines)] == lines


def test_every_run_that_ships_has_its_command_and_its_place_in_the_summary():
  assert set(commands("mixers.md")) == {*tasks(), "suite_negative"}
  assert (RESULTS / "mixers/figure.png").stat().st_size > 0


def test_what_ships_is_small():
  sizes = [path.stat().st_size for path in RECORDED.rglob("*") if path.is_file()]
  assert sum(sizes) < 3e6
