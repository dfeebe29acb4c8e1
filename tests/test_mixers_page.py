"""The tables of docs/gallery/mixers.md and zoology.md, made again from rows that ship."""

import functools
import json

import pytest

from docs.paper.records import GALLERY, RESULTS, commands
from experiments.suite import matrix
from experiments.suite.study import STUDY
from sepfx.studies import beside
from sepfx.studies.study import Run

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
    memory, over = f"{cell['memory']:,}", over_of(cell)
    found.append(line_of(f"`{cell['model']}`", memory, n, over, rate))
  return found


def negative_lines():
  """Rows of the table of delta rules with negative eigenvalues."""
  found = []
  for cell in recomputed(str(NEGATIVE))["matrix"]:
    found.append(line_of(f"`{cell['task']}`", f"`{cell['model']}`", *said(cell)))
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
    found.append(line_of(*start, *by_epoch, *last))
  return found


def fresh_lines():
  """Rows of the table of n on fresh sequences of Zoology's task."""
  found = []
  for cell in recomputed(str(ZOOLOGY / "fresh"))["matrix"]:
    n, memory = said(cell)[0], f"{cell['memory']:,}"
    found.append(line_of(f"`{cell['model']}`", memory, n, over_of(cell)))
  return found


def line_of(*texts):
  """A row of a table."""
  return f"|{'|'.join(f' {text} ' if text else ' ' for text in texts)}|"


def check_stands_on(page, lines):
  """All of them, one below the other."""
  text = (GALLERY / page).read_text().splitlines()
  first = text.index(lines[0])
  assert text[first : first + len(lines)] == lines


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
  lines = negative_lines() if task == "negative" else lines_of(task)
  check_stands_on("mixers.md", lines)


@pytest.mark.parametrize(
  "lines", [accuracy_lines, pytest.param(fresh_lines, marks=pytest.mark.slow)]
)
def test_the_tables_beside_zoology_are_what_was_recorded(lines):
  check_stands_on("zoology.md", lines())


def test_every_run_that_ships_has_its_command_and_its_place_in_the_summary():
  assert set(commands("mixers.md")) == {*tasks(), "suite_negative"}
  assert (RESULTS / "mixers/figure.png").stat().st_size > 0


def test_what_ships_is_small():
  sizes = [path.stat().st_size for path in RECORDED.rglob("*") if path.is_file()]
  assert sum(sizes) < 3e6
