"""What `experiments.best_rate` prints of its summary."""

from __future__ import annotations

from typing import Any

import rich.table

from sepfx.statistics import error_names
from sepfx.statistics.levels import Level
from sepfx.statistics.series import letter_of
from sepfx.statistics.summary import at_level
from sepfx.studies.tables import exponent


def best_rates(summary: dict) -> list[Any]:
  """The best rate of each series at each length, and how n grows, by level."""
  parts: list[Any] = []
  against = summary["against"]
  letter = letter_of(against)
  for level in (Level(**own) for own in summary["levels"]):
    error = error_names.short(summary["error"])
    parts.append(f"\nTraining prompts until the test {error} is below {level}:")
    table = rich.table.Table(
      "model",
      letter,
      "best rate",
      "n",
      "each half\nchooses",
      "choice\nflatters",
      "reached",
    )
    for entry in at_level(summary["best"], level):
      table.add_row(entry["series"], str(entry[against]), *_best(entry))
    parts.append(table)
    parts += [_growth(entry, letter) for entry in at_level(summary["exponents"], level)]
  parts.append(
    "n [95% interval, the choice included]. < : the rate is at an edge of those tried; "
    "> : some trials spent their budget; <= : all pass at their first check. Halves: "
    "each chooses, the other reports. Flatters: recorded n of the rate chosen over the n "
    "it has without the choice, so that the choice makes n too small where it is below 1."
  )
  return parts


def _growth(entry: dict, letter: str) -> str:
  """How n grows with N, say, and what speaks against calling that a power law."""
  over = ", ".join(f"{place:g}" for place in entry["over"])
  text = (
    f"{entry['series']}: n ~ {letter}^c, c = {exponent(entry)} over {letter} = {over}: "
  )
  text += entry["verdict"]
  if entry["edge"]:
    text += "; some n are upper bounds"
  if entry["restricted"]:
    text += "; some n are lower bounds"
  if len(entry["local"]) > 1:
    each = ", ".join(
      "{:.2f} from {:g} to {:g}".format(own["c"], *own["over"]) for own in entry["local"]
    )
    p = entry["straight"]
    text += f"; c is {each}" + (f" (a straight line: p = {p:.2g})" if p else "")
  if len(entry["at_rates"]) > 1:
    each = "; ".join(
      f"{own['c']:.2f} at {own['learning_rate']:g}, {letter} = "
      f"{own['over'][0]:g} to {own['over'][-1]:g}"
      for own in entry["at_rates"]
    )
    text += f". With one rate for all, c is {each}"
  return text


def _best(entry: dict) -> list[str]:
  if entry["learning_rate"] is None:
    return ["none", f"> {entry['budget']:,}", "", "", f"0 of {len(entry['rates'])} rates"]
  at_most = "<= " if entry["at_most"] else "< " * entry["edge"]
  sign = "> " * entry["restricted"] + at_most
  n = f"{sign}{entry['mean']:,.0f}"
  if entry["low"] is not None:
    n += f" [{entry['low']:,.0f}, {entry['high']:,.0f}]"
  split = "" if entry["split"] is None else f"{entry['split']:,.0f}"
  return [
    f"{entry['learning_rate']:g}",
    n + " coarse" * entry["coarse"],
    split,
    f"{entry['flatters']:.2f}",
    f"{entry['reached']}/{entry['trials']}",
  ]
