"""The tables of docs/gallery/best_settings.md, made again from the rows beside it."""

import functools
import json
import re

import pytest

from docs.paper import estimates, records
from docs.paper.records import NAMES
from sepfx.statistics.series import BUDGETS
from tests.programs import each_model_checked_once

PAGE = records.GALLERY / "best_settings.md"
ROWS = records.RESULTS / "best_settings"
KNOBS = {
  "weight_decay=0.01": "as above: AdamW, weight decay 0.01",
  "weight_decay=0": "no weight decay",
  "weight_decay=0.1": "weight decay 0.1",
  "optimizer=adam:b2=0.99": "beta_2 0.99, no decay",
  "optimizer=adam:b2=0.95": "beta_2 0.95, no decay",
  "optimizer=adamw:clip_norm=1": "gradients clipped at a norm of 1",
  "optimizer=adamw:clip_norm=0.1": "clipped at 0.1",
  "optimizer=adamw:warmup_steps=20": "warm-up over 20 steps",
}


@functools.cache
def recomputed():
  with each_model_checked_once():
    return json.loads(json.dumps(records.best_settings()))


def lines_of(summary, fraction):
  """Rows of the table of n below a share of uniform attention's loss."""
  found = []
  for series in dict.fromkeys(entry["series"] for entry in summary["best"]):
    own = [
      e for e in summary["best"] if (e["series"], e["fraction"]) == (series, fraction)
    ]
    for k, e in enumerate(own):
      name = "" if k else NAMES[e["model"]]
      if not e["trials"]:  # no setting of which a trial reached it
        line = f"| {name} | {e['length']} | none | none | > {e['mean']:,.0f} | | |"
        found.append(line.replace("|  |", "| |"))
        continue
      batch, rate = (
        f"{e[axis]:g}" + ", edge" * (axis in e["edges"])
        for axis in ("batch_size", "learning_rate")
      )
      sign = "< " * e["edge"] + "> " * e["restricted"]
      mean = f"{sign}{e['mean']:,.0f} [{e['low']:,.0f}, {e['high']:,.0f}]"
      median = f"{e['median']:,.0f} [{e['median_low']:,.0f}, {e['median_high']:,.0f}]"
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
  assert names == set(records.commands("best_settings.md"))
  assert BUDGETS  # parts differ in these alone, so their cells have one name each


@pytest.mark.slow
@pytest.mark.parametrize("fraction", [0.5, 0.1])
def test_tables_are_what_the_rows_say(fraction):
  text = PAGE.read_text()
  for line in [*lines_of(recomputed(), fraction), *growth_of(recomputed(), fraction)]:
    assert line in text.splitlines(), line


@pytest.mark.slow
def test_summary_is_what_the_rows_say():
  """That beside the rows, by `docs.paper.make`, is of these and not of earlier ones."""
  stored = json.loads((ROWS / "summary.json").read_text())
  key = ("series", "length", "threshold", "fraction")
  ours = {tuple(e[k] for k in key): e for e in recomputed()["best"]}
  assert {tuple(e[k] for k in key) for e in stored["best"]} == set(ours)
  for entry in stored["best"]:
    own = ours[tuple(entry[k] for k in key)]
    for name in ("mean", "low", "high", "median", "batch_size", "learning_rate"):
      same = own[name] == entry[name]  # None where no trial reached it
      assert same or own[name] == pytest.approx(entry[name], rel=1e-9), (entry, name)


def test_knobs_are_what_the_rows_say():
  with each_model_checked_once():
    summaries = records.knobs()
  found = {}
  for summary in summaries:
    both = [estimates.at_best(summary, fraction) for fraction in (0.5, 0.1)]
    for series in both[1]:
      found[series.partition(", ")[2]] = [f"{own[series][8]:i}" for own in both]
  text = PAGE.read_text().splitlines()
  for knob, name in KNOBS.items():
    assert f"| {name} | {' | '.join(found[knob])} |" in text
