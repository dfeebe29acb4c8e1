"""What studies print: tables of their summaries, and how they write a number."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import rich.table

from sepfx.ensembles import Cell
from sepfx.specifications import canonical
from sepfx.statistics import error_names
from sepfx.statistics.levels import Level
from sepfx.statistics.series import letter_of
from sepfx.statistics.summary import LEAST_PLACES, at_level
from sepfx.studies.columns import Columns


def means(summary: dict) -> list[Any]:
  """Mean counts by series, and ratios of them, tables for each level."""
  parts: list[Any] = []
  against, error = summary["against"], error_names.short(summary["error"])
  letter = letter_of(against)
  for level in (Level(**own) for own in summary["levels"]):
    cells = at_level(summary["cells"], level)
    parts.append(f"\nTraining prompts until the test {error} is below {level}:")
    shown = _by_place(cells, against, _mean)
    exponents = [e for e in summary["exponents"] if len(e["over"]) >= LEAST_PLACES]
    fitted = {entry["series"]: entry for entry in at_level(exponents, level)}
    if fitted:
      last = {name: [exponent(fitted.get(name))] for name in shown.columns}
      shown = shown.followed_by("c", last)
    parts.append(Columns(letter, *shown, last=bool(fitted)))
    parts += _ratios(at_level(summary["ratios"], level), cells, against)
  text = (
    "Mean [95% interval] over trials, of n itself: a trial's n lies between the check at "
    "which it is recorded and the one before, so that the mean is about half the "
    "distance of two checks below the average in trials.csv."
  )
  if any(len(e["over"]) >= LEAST_PLACES for e in summary["exponents"]):
    text += f" c is the exponent of n ~ {letter}^c."
  if any(cell["reached"] < cell["trials"] for cell in summary["cells"]):
    text += " >: a lower bound, since only so many trials reached it within the budget."
  if any(cell["slow"] for cell in summary["cells"]):
    text += (
      " Median: of cells with a trial that is much slower than the others. Fewer than "
      "six trials give it no interval."
    )
  if any(cell["at_most"] for cell in summary["cells"]):
    text += (
      " <=: all trials pass at their first check (--check_every), and n is no larger."
    )
  if any(cell["coarse"] and not cell["at_most"] for cell in summary["cells"]):
    text += " Coarse: less than ten checks (--check_every)."
  parts.append(text)
  return parts


class _Places(NamedTuple):
  """Rows of a table by what it is along, with columns by series."""

  rows: list[str]
  columns: dict[str, list[str]]

  def followed_by(self, row: str, entries: Mapping[str, list[str]]) -> _Places:
    """These columns with one row more."""
    columns = {name: [*own, *entries[name]] for name, own in self.columns.items()}
    return _Places([*self.rows, row], columns)


def _by_place(
  entries: Sequence[dict], against: str, text: Callable[[dict | None], str]
) -> _Places:
  """Lays entries of several series out along an axis."""
  places = sorted({entry[against] for entry in entries})
  columns = {}
  for name in dict.fromkeys(entry["series"] for entry in entries):
    own = {e[against]: e for e in entries if e["series"] == name}
    columns[name] = [text(own.get(place)) for place in places]
  return _Places([f"{place:g}" for place in places], columns)


def parameters(cells: Mapping[str, Cell], counts: Mapping[str, int]) -> str:
  """How many parameters each model has, over its cells."""
  by_model: dict[str, list[int]] = {}
  for name, cell in cells.items():
    by_model.setdefault(cell.coordinates["model"], []).append(counts[name])
  parts = []
  for model, own in by_model.items():
    most = f" to {max(own):,}" if max(own) > min(own) else ""
    parts.append(f"{model} {min(own):,}{most}")
  return f"Parameters: {', '.join(parts)}."


def probes(summary: Sequence[dict]) -> list[Any]:
  """Means of probes' values, a row for each cell."""
  names = [name for name in summary[0] if name != "probes"]
  told_apart = [
    name for name in names if len({str(cell[name]) for cell in summary}) > 1
  ] or ["model"]
  values = sorted(summary[0]["probes"], key=_by_number)
  rows = [", ".join(str(cell[name]) for name in told_apart) for cell in summary]
  entries = {name: [_probed(cell["probes"][name]) for cell in summary] for name in values}
  shown = Columns(", ".join(told_apart), rows, entries)
  return ["\nProbes at the trials' ends, mean [95% interval]:", shown]


def _by_number(name: str) -> list:
  """Sorts length=8 before length=16."""
  parts = re.split(r"(\d+)", name)
  return [int(part) if k % 2 else part for k, part in enumerate(parts)]


def _probed(value: dict) -> str:
  if value["mean"] is None:
    return ""
  text = f"{value['mean']:.3g}"
  if value["low"] is not None:
    text += f" [{value['low']:.3g}, {value['high']:.3g}]"
  return text


def exponent(entry: dict | None) -> str:
  """c with its interval; "" for none."""
  if entry is None:
    return ""
  text = f"{entry['c']:.2f}"
  if entry["low"] is not None:
    text += f" [{entry['low']:.2f}, {entry['high']:.2f}]"
  return text + " coarse" * entry["coarse"]


def _ratios(ratios: Sequence[dict], cells: Sequence[dict], against: str) -> list[Any]:
  """n over n of the first model, and over n at the first value of each axis."""
  if not ratios:
    return []
  names = _series_of(cells)
  parts: list[Any] = []
  for (of, over), own in _shown(ratios, cells).items():
    entries = [{**ratio, "series": names[_where(ratio, cells)]} for ratio in own]
    what = over if of == "model" else f"{of}={canonical(over)}"
    paired = any(ratio["pairs"] is not None for ratio in own)
    how = "trial by trial" if paired else "at equal settings"
    parts.append(f"n over n of {what}, {how}:")
    parts.append(Columns(letter_of(against), *_by_place(entries, against, _ratio)))
  return parts


def _shown(
  ratios: Sequence[dict], cells: Sequence[dict]
) -> dict[tuple[str, Any], list[dict]]:
  """Ratios to the first model and to first values, by what they are over."""
  first = cells[0]["model"]
  groups: dict[tuple[str, Any], list[dict]] = {}
  for ratio in ratios:
    if ratio["of"] != "model" or ratio["over"] == first:
      groups.setdefault((ratio["of"], ratio["over"]), []).append(ratio)
  return groups


def _where(entry: Mapping[str, Any], cells: Sequence[dict]) -> tuple:
  """The coordinates of an entry's cell."""
  names = [*cells[0]]
  coordinates = names[1 : names.index("threshold")]  # after the series
  return tuple(entry[name] for name in coordinates)


def _series_of(cells: Sequence[dict]) -> dict[tuple, str]:
  """The series of each cell by its coordinates."""
  return {_where(cell, cells): cell["series"] for cell in cells}


def _ratio(entry: dict | None) -> str:
  """n over n with its interval, or as the bound that it is."""
  if entry is None:
    return ""
  sign = {"at least": "> ", "at most": "< "}.get(entry["bound"], "")
  text = f"{sign}{entry['ratio']:.3g}"
  ends = (entry["low"], entry["high"])
  return text if None in ends else text + " [{:.3g}, {:.3g}]".format(*ends)


def _mean(cell: dict | None) -> str:
  if cell is None:  # runs drawn together need not have the same lengths
    return ""
  if cell["at_most"]:
    return f"<= {cell['mean']:,.0f}"
  # A restricted mean is a lower bound: some trials never got there.
  entry = f"{'> ' if cell['restricted'] else ''}{cell['mean']:,.0f}"
  if cell["low"] is not None:
    entry += f" [{cell['low']:,.0f}, {cell['high']:,.0f}]"
  if cell["reached"] < cell["trials"]:
    entry += f" ({cell['reached']}/{cell['trials']} reached)"
  if cell["slow"]:
    entry += _median(cell)
  return entry + " coarse" * cell["coarse"]


def _median(cell: dict) -> str:
  """What a slow trial does not move, beside a mean."""
  if cell["median"] is None:
    return ""
  text = f"; median {cell['median']:,.0f}"
  low, high = (cell[f"median_{end}"] for end in ("low", "high"))
  if low is None:
    return text
  return text + (
    f" [above {low:,.0f}]" if high is None else f" [{low:,.0f}, {high:,.0f}]"
  )


def successes(summary: dict) -> list[Any]:
  """Critical sample sizes and how they grow, by series."""
  T = summary["letter"]
  table = rich.table.Table("model", T, "m at which half succeed", "successes at each m")
  for critical in summary["critical"]:
    where = (critical["series"], critical["length"])
    cells = [c for c in summary["cells"] if (c["series"], c["length"]) == where]
    counts = [f"{c['sample_size']}: {c['reached']}/{c['trials']}" for c in cells]
    size = critical_size(critical, 1, ".1f")
    table.add_row(critical["series"], str(critical["length"]), size, ", ".join(counts))
  parts: list[Any] = [table]
  if summary["floor"]:
    sizes = ", ".join(f"{size} ({T} = {length})" for length, size, _ in summary["floor"])
    error = max(error for *_, error in summary["floor"])
    parts.append(
      f"Floor, the learner that {summary['learner']}: {sizes}; standard error up to "
      f"{error:.2f}"
    )
  if summary["no_floor"]:
    lengths = ", ".join(map(str, summary["no_floor"]))
    parts.append(f"No floor is drawn for {T} = {lengths}: none is stored for that task")
  for name, steepness in summary["steepness"].items():
    if not steepness:
      continue
    text = f"{name}: success odds grow like m^{steepness['k']:.1f}"
    if any(ratio["series"] == name for ratio in summary["ratios"]):
      text += (
        f" at every {T}; the log-evidence for that, over a power for each {T}, is "
        f"{steepness['support']:.1f}"
      )
    parts.append(text)
  for name, growth in summary["growth"].items():
    if growth:
      difference = growth["log_likelihood"] - growth["power_likelihood"]
      likelier = "first" if difference > 0 else "second"
      (a, b, _), (scale, c, _) = growth["log"], growth["power"]
      parts.append(
        f"{name}: m = {a:.1f} {'+-'[b < 0]} {abs(b):.2f} log {T} or {scale:.1f} "
        f"{T}^{c:.3f}; the log-likelihood of the {likelier} is higher by "
        f"{abs(difference):.2f}"
      )
  return parts


def critical_size(critical: dict, unit: int, form: str = ",.0f") -> str:
  """A critical size in units of which a sample has several, or what bounds it."""
  if critical["bound"]:
    end = "largest" if critical["bound"] == "more than" else "smallest"
    return f"{critical['bound']} {unit * critical[end]:,}"
  low, size, high = (unit * critical[name] for name in ("low", "size", "high"))
  return f"{size:{form}} [{low:{form}}, {high:{form}}]"


def risk_text(entry: dict) -> str:
  """A mean squared error, whose interval is cut at 0."""
  low = entry["risk_low"]
  return interval_text(entry | {"risk_low": None if low is None else max(low, 0)}, "risk")


def interval_text(
  entry: dict, name: str, form: str = ".3g", interval: str = " [{}, {}]"
) -> str:
  if entry[name] is None:
    return ""
  text = f"{entry[name]:{form}}"
  if entry[f"{name}_low"] is None:
    return text
  ends = (f"{entry[f'{name}_{end}']:{form}}" for end in ("low", "high"))
  return text + interval.format(*ends)
