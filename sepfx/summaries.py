"""What records say, as rows that pandas reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sepfx.ensembles import Records
from sepfx.ensembles.overview import aligned
from sepfx.plotting import summary_of
from sepfx.specifications import canonical
from sepfx.statistics.ratios import AT_LEAST, AT_MOST
from sepfx.statistics.summary import LEAST_PLACES

Rows = list[dict[str, Any]]

# Lines of each part that are printed.
_MOST_LINES = 30
_MIRRORED = {AT_LEAST: AT_MOST, AT_MOST: AT_LEAST, "": ""}
# Columns that tell rows apart by numbers alone, or say nothing of what is asked.
_NOT_PRINTED = (
  "budget", "resolution", "censored", "diverged", "log_spread", "error",
  "against", "smallest", "largest", "on_grid", "grid_error", "confidence",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, repr=False)
class Summary:
  """Rows, each a dictionary: `pandas.DataFrame(summary.means)`.

  All intervals, `low` to `high`, are of 95%; None where an end is not known.

  Attributes:
    means: one per cell and threshold: `mean` n with its interval, its `bound` ("at least"
      where trials did not reach the threshold, "at most" where all did at their first
      check, else ""), and `recorded`, the average of the samples in the table. A trial's
      n lies between the check at which it is recorded and the one before, `resolution`
      samples earlier; the mean is `coarse` where it is less than ten of these. `median`
      with its interval serves better where trials are `slow`: so many lie far above the
      others. `log_spread` is the standard deviation of log n. `fraction` is None but for
      a threshold given as a fraction of uniform attention's loss. On fixed samples one
      row per cell: the `fraction` of trials that succeeded.
    critical: on fixed samples, one per series and length: the size m at which half of
      the trials succeed.
    exponents: c of n ~ N^c, one per series and threshold that has three lengths or more.
      On fixed samples, of the critical size.
    ratios: n over n of another cell, which differs in the model or in one setting and in
      nothing else: `of` is what differs, and `over` is its value in the other. They are
      of geometric means; `pairs` is the number of trials that are compared one by one,
      None where the cells' trials are independent. Between
      models either way, between values of a setting over the first. On fixed samples, of
      critical sizes.
    left_out: what is not said, of which series or cell, and why.
    error: what thresholds are about, such as "mean squared error", on test samples.
  """

  means: Rows
  critical: Rows
  exponents: Rows
  ratios: Rows
  left_out: Rows
  error: str

  def __repr__(self) -> str:
    """The rows in brief."""
    parts = [f"Thresholds are of the test {self.error}.", ""]
    for name, rows in vars(self).items():
      if name != "error" and rows:
        parts += [f"{name}:", *_printed(rows), ""]
    return "\n".join(parts).rstrip()


def summarise(records: Records, *, against: str = "length") -> Summary:
  """Returns means, exponents and ratios with 95% intervals, and what was left out.

  Args:
    records: from `sepfx.measure` or `sepfx.load`.
    against: the numeric column of `records.table` that exponents are of.

  Raises:
    InvalidSetting: for records of something else, or a column that they do not have.
  """
  found = summary_of(records, against=against)
  fixed = "critical" in found
  return Summary(
    means=[_mean(cell) for cell in found["cells"]],
    critical=list(found.get("critical", [])),
    exponents=_growth(found) if fixed else _exponents(found),
    ratios=list(_both_ways(found["between"] if fixed else found["ratios"])),
    left_out=[*_unfinished(records), *found["left_out"]],
    error=found["error"],
  )


def _unfinished(records: Records) -> Iterator[dict[str, Any]]:
  if not records.complete:
    lacking = "some" if records.missing is None else f"{records.missing:,}"
    yield {
      "what": "trials",
      "why": f"not complete: missing: {lacking}; slow ones end last",
    }


def _mean(cell: Mapping[str, Any]) -> dict[str, Any]:
  if "mean" not in cell:  # of fixed samples
    return dict(cell)
  marks = {name: cell[name] for name in ("restricted", "at_most")}
  bound = AT_LEAST if marks["restricted"] else AT_MOST if marks["at_most"] else ""
  row = {**{k: v for k, v in cell.items() if k not in marks}, "bound": bound}
  return {**row, "high": None} if marks["restricted"] else row


def _exponents(summary: Mapping[str, Any]) -> Rows:
  return [
    {**entry, "over": ", ".join(map(canonical, entry["over"]))}
    for entry in summary["exponents"]
    if len(entry["over"]) >= LEAST_PLACES
  ]


def _growth(summary: Mapping[str, Any]) -> Rows:
  """c of m = A T^c; the fit has no interval."""
  return [
    {"series": name, "against": "length", "c": own["power"][1], "low": None, "high": None}
    for name, own in summary["growth"].items()
    if own
  ]


def _both_ways(ratios: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
  for ratio in ratios:
    yield dict(ratio)
    if ratio["of"] == "model":
      low, high = (None if end is None else 1 / end for end in _ends(ratio))
      other = {"model": ratio["over"], "over": ratio["model"], "low": high, "high": low}
      bound = _MIRRORED[ratio["bound"]]
      yield {**ratio, **other, "ratio": 1 / ratio["ratio"], "bound": bound}


def _ends(entry: Mapping[str, Any]) -> tuple[float | None, float | None]:
  return entry["low"], entry["high"]


def _printed(rows: Rows) -> Iterator[str]:
  every = dict.fromkeys(name for row in rows for name in row)
  # Where no coordinates stand, the series has them.
  hidden = {
    *_NOT_PRINTED,
    "series" if "length" in every and "model" in every else "model",
    *([] if len({row["task"] for row in rows if "task" in row}) > 1 else ["task"]),
  }
  names = [
    name
    for name in sorted(every, key="why".__eq__)  # last: it is the longest
    if name not in hidden and any(row.get(name) not in (None, "") for row in rows)
  ]
  rows = [{"model": row.get("series"), **row} for row in rows]
  lines = [names, *([_text(row.get(name)) for name in names] for row in rows)]
  yield from (f"  {line}" for line in aligned(lines[: _MOST_LINES + 1]))
  if len(rows) > _MOST_LINES:
    yield f"  ... and {len(rows) - _MOST_LINES:,} more"


def _text(value: Any) -> str:
  if value is None:
    return ""
  if isinstance(value, float):
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
  return str(value)
