"""What `experiments.best_rate` prints of its summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rich.table

from sepfx.specifications import canonical
from sepfx.statistics import error_names
from sepfx.statistics.levels import Level
from sepfx.statistics.series import letter_of
from sepfx.statistics.summary import at_level
from sepfx.studies.tables import exponent


def best_rates(summary: dict) -> list[Any]:
  """The best setting of each series at each length, and how n grows, by level."""
  parts: list[Any] = []
  against = summary["against"]
  letter, axes = letter_of(against), summary["axes"]
  for level in (Level(**own) for own in summary["levels"]):
    error = error_names.short(summary["error"])
    parts.append(f"\nTraining prompts until the test {error} is below {level}:")
    table = rich.table.Table(
      "model",
      letter,
      *(_name_of(axis) for axis in axes),
      "n",
      "each half\nchooses",
      "choice\nflatters",
      "reached",
    )
    for entry in at_level(summary["best"], level):
      table.add_row(entry["series"], str(entry[against]), *_best(entry, axes))
    parts.append(table)
    parts += [
      _growth(entry, letter, axes) for entry in at_level(summary["exponents"], level)
    ]
  parts.append(
    "n [95% interval, the choice included]. < : the choice is at an edge of what was "
    "tried, marked there; > : some trials spent their budget; <= : all pass at their "
    "first check. Halves: each chooses, the other reports. Flatters: recorded n of what "
    "was chosen over the n it has without the choice, so that the choice makes n too "
    "small where it is below 1."
  )
  return parts


def _name_of(axis: str) -> str:
  return "best rate" if axis == "learning_rate" else f"best {axis.replace('_', ' ')}"


def _growth(entry: dict, letter: str, axes: Sequence[str]) -> str:
  """How n grows with N, say, and what speaks against calling that a power law."""
  over = ", ".join(f"{place:g}" for place in entry["over"])
  text = (
    f"{entry['series']}: n ~ {letter}^c, c = {exponent(entry)} over {letter} = {over}: "
  )
  text += _growth_text(entry, letter)
  if entry["edge"]:
    text += "; some n are upper bounds"
  if entry["restricted"]:
    text += "; some n are lower bounds"
  if len(entry["local"]) > 1:
    each = ", ".join(
      "{:.2f} from {:g} to {:g}".format(own["c"], *own["over"]) for own in entry["local"]
    )
    text += f"; c is {each}"
  if entry["laws"]:
    own = entry["laws"]
    likelier = "logarithm" if own["advantage"] > 0 else "power"
    sign = "-" if own["b"] < 0 else "+"
    text += (
      f"; a power: p = {own['p_power']:.2g}; n = {own['a']:,.0f} {sign} "
      f"{abs(own['b']):,.0f} log {letter}: p = {own['p_logarithm']:.2g}; the "
      f"log-likelihood of the {likelier} is higher by {abs(own['advantage']):.2f}"
    )
  if axes == ["learning_rate"] and len(entry["at_settings"]) > 1:
    each = "; ".join(
      f"{own['c']:.2f} at {own['learning_rate']:g}, {letter} = "
      f"{own['over'][0]:g} to {own['over'][-1]:g}"
      for own in entry["at_settings"]
    )
    text += f". With one rate for all, c is {each}"
  return text


def _growth_text(entry: dict, letter: str) -> str:
  own = entry["growth"]
  if own is None or own["low"] is None:
    return entry["verdict"]
  first, last = own["over"]
  return (
    f"{entry['verdict']}, {own['factor']:.2f} [{own['low']:.2f}, {own['high']:.2f}] "
    f"times from {letter} = {first:g} to {last:g}"
  )


def _best(entry: dict, axes: Sequence[str]) -> list[str]:
  if entry["trials"] == 0:
    tried = f"0 of {len(entry['tried'])} settings"
    nothing = ["none", *[""] * (len(axes) - 1)]
    return [*nothing, f"> {entry['budget']:,}", "", "", tried]
  at_most = "<= " if entry["at_most"] else "< " * entry["edge"]
  sign = "> " * entry["restricted"] + at_most
  n = f"{sign}{entry['mean']:,.0f}"
  if entry["low"] is not None:
    n += f" [{entry['low']:,.0f}, {entry['high']:,.0f}]"
  n += " coarse" * entry["coarse"]
  if entry["slow"] and entry["median"] is not None:
    n += f"; median {entry['median']:,.0f}, {entry['slow']} slow"
  split = "" if entry["split"] is None else f"{entry['split']:,.0f}"
  return [
    *(canonical(entry[a]) + " (edge)" * (a in entry["edges"]) for a in axes),
    n,
    split,
    f"{entry['flatters']:.2f}",
    f"{entry['reached']}/{entry['trials']}",
  ]
