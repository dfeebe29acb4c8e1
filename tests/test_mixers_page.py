"""The tables of docs/gallery/mixers.md and zoology.md, made again from rows that ship."""

import functools
import json

import pytest

from docs.paper.records import GALLERY, RESULTS, ROOT, commands
from experiments.suite import matrix
from experiments.suite.study import STUDY
from sepfx.records.config import CONFIG
from sepfx.studies import beside
from sepfx.studies.study import Run

RECORDED = STUDY.recorded["published:suite"]
ZOOLOGY = RESULTS / "zoology"
# Runs of one table each: where they are, its page, and its columns.
RUNS = {
  "suite_negative": ("mixers/negative", "mixers.md", ["task", "mixer", "n", "rate"]),
  "suite_pairs": ("mixers/pairs", "mixers.md", ["mixer", "pairs", "n", "over", "rate"]),
  "suite_states": ("mixers/states", "mixers.md", ["mixer", "carried", "n", "rate"]),
  "suite_zoology": ("zoology/fresh", "zoology.md", ["mixer", "carried", "n", "over"]),
}


@functools.cache
def recomputed(*paths):
  """Cells of the matrix of some runs."""
  parts = [beside.read(path, STUDY.settings, STUDY.cells) for path in paths]
  records, cells = beside.together(parts)
  summary = STUDY.summarise(Run(records, cells, parts[0].chosen, "length"))
  return summary["matrix"]


def lines_of(cells, columns):
  """Rows of a table."""
  texts = {
    "task": lambda cell: f"`{cell['task']}`",
    "mixer": lambda cell: f"`{cell['model']}`",
    "pairs": lambda cell: str(cell["difficulty"]["num_pairs"]),
    "carried": lambda cell: f"{cell['memory']:,}",
    "n": n_of,
    "over": over_of,
    "rate": lambda cell: "none" if cell["rate"] is None else f"{cell['rate']:g}",
  }
  return [line_of(*(texts[column](cell) for column in columns)) for cell in cells]


def lines_of_task(task):
  """Rows of a task's table, the least n first."""
  every = recomputed(*STUDY.runs_at("published:suite"))
  own = [cell for cell in every if cell["task"] == task]
  own.sort(key=lambda cell: (cell["rate"] is None, cell["n"]))
  return lines_of(own, ["mixer", "carried", "n", "over", "rate"])


def lines_of_run(name):
  """Rows of the table of another run, those of one first column together."""
  path, _, columns = RUNS[name]
  lines = lines_of(recomputed(str(RESULTS / path)), columns)
  firsts = [line.split("|")[1] for line in lines]
  return sorted(lines, key=lambda line: firsts.index(line.split("|")[1]))


def lines_of_accuracies():
  """Rows of the table of accuracies by epochs, in both programs."""
  found = []
  for line in (ZOOLOGY / "accuracies.jsonl").read_text().splitlines():
    own = json.loads(line)
    after = own["accuracies"]
    by_epoch = [f"{after[k - 1]:.3f}" if k <= len(after) else "" for k in (1, 2, 4, 8)]
    settings = [f"{own[name]:g}" for name in ("learning_rate", "dropout", "seed")]
    settings.insert(1, own["program"])
    last = f"{after[-1]:.3f}", str(len(after))
    found.append(line_of(f"`{own['model']}`", *settings, *by_epoch, *last))
  return found


def line_of(*texts):
  """A row of a table."""
  return f"|{'|'.join(f' {text} ' if text else ' ' for text in texts)}|"


def n_of(cell):
  """n with its interval."""
  n = matrix.text_of(cell)
  return n if cell["low"] is None else f"{n} [{cell['low']:,.0f}, {cell['high']:,.0f}]"


def over_of(cell):
  """n over attention's."""
  over = cell["over"]
  return "" if over is None else f"{matrix.SIGNS[cell['over_bound']]}{over:.2g}"


def check_stands_on(page, lines):
  """All of them, one below the other, and no others."""
  text = (GALLERY / page).read_text().splitlines()
  first = text.index(lines[0])
  assert text[first : first + len(lines) + 1] == [*lines, ""]


def tasks():
  return sorted(path.name for path in RECORDED.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("task", tasks())
def test_tables_of_tasks_are_what_the_rows_say(task):
  check_stands_on("mixers.md", lines_of_task(task))


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_tables_of_other_runs_are_what_their_rows_say(name):
  check_stands_on(RUNS[name][1], lines_of_run(name))


def test_accuracies_beside_zoology_are_those_that_were_recorded():
  check_stands_on("zoology.md", lines_of_accuracies())


@pytest.mark.parametrize("name", ["suite_pairs", "suite_states", "suite_zoology"])
def test_runs_that_ship_are_those_of_their_presets(name):
  asked = STUDY.chosen([f"--flagfile={ROOT}/experiments/flags/{name}.cfg"]).stored()
  config = json.loads((RESULTS / RUNS[name][0] / CONFIG).read_text())
  assert config["settings"] == asked


def test_every_run_that_ships_has_its_command_and_its_place_in_the_summary():
  assert set(commands("mixers.md")) == {*tasks(), "suite_negative"}
  for path in ("mixers", "mixers/pairs", "mixers/states"):
    assert (RESULTS / path / "figure.png").stat().st_size > 0


def test_what_ships_is_small():
  sizes = [path.stat().st_size for path in RECORDED.rglob("*") if path.is_file()]
  assert sum(sizes) < 3e6
