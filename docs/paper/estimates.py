"""Numbers with intervals and what they bound, and ratios of them."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sepfx.statistics import intervals

AT_MOST, MORE_THAN = "at most", "more than"
_OPPOSITE = {"": "", AT_MOST: MORE_THAN, MORE_THAN: AT_MOST}


@dataclasses.dataclass(frozen=True)
class Estimate:
  """A number with its 95% interval.

  Attributes:
    value, low, high: NaN for an end that there is not.
    bound: "at most" or "more than" where it bounds the truth, else "".
    slow: how many of its trials are much slower than the others.
  """

  value: float
  low: float
  high: float
  bound: str = ""
  slow: int = 0

  def __format__(self, spec: str) -> str:
    """The number, after what it bounds; "i" asks for its interval, too.

    What stands before "i" is how each number is written.
    """
    asks = spec.endswith("i")
    written = spec.removesuffix("i")
    numbers = [self.value, self.low, self.high]
    few = ",.0f" if self.value >= 9.95 else ".1f" if self.value >= 1.995 else ".2f"
    value, low, high = (format(own, written or few) for own in numbers)
    text = f"{value} [{low}, {high}]" if asks and not math.isnan(self.low) else value
    return f"{self.bound} {text}".strip()

  def over(self, other: "Estimate") -> "Estimate | None":
    """The ratio to another one; None where both are bounds from the same side.

    Where both are of trials that share their keys the interval is too wide.
    """
    bounds = {self.bound, _OPPOSITE[other.bound]} - {""}
    if len(bounds) > 1:
      return None
    mine, others = dataclasses.astuple(self)[:3], dataclasses.astuple(other)[:3]
    return Estimate(*intervals.ratio(mine, others), *bounds)


ByLength = Mapping[str, Mapping[int, Estimate]]


def at_best(summary: Mapping[str, Any], fraction: float) -> dict[str, dict]:
  """n at the best settings: by series, then by length."""
  found: dict[str, dict] = {}
  for e in summary["best"]:
    if e["fraction"] != fraction:
      continue
    marks = [AT_MOST] * (e["edge"] or e["at_most"]) + [MORE_THAN] * e["restricted"]
    if len(marks) < 2:  # else nothing is known
      low, high = (math.nan if e[end] is None else e[end] for end in ("low", "high"))
      own = found.setdefault(e["series"], {})
      own[e["length"]] = Estimate(e["mean"], low, high, "".join(marks), e["slow"] or 0)
  return found


def growths(summary: Mapping[str, Any], fraction: float) -> dict[str, Mapping[str, Any]]:
  """How n grows, by series: factor, c and laws, and between which lengths."""
  found = {}
  for e in summary["exponents"]:
    if e["fraction"] == fraction:
      own = e["growth"]
      found[e["series"]] = {
        "factor": Estimate(own["factor"], own["low"], own["high"]),
        "c": Estimate(e["c"], e["low"], e["high"]),
        "laws": e["laws"],
        "first": e["over"][0],
        "last": e["over"][-1],
      }
  return found


def at_settings(summary: Mapping[str, Any], fraction: float) -> dict[str, dict]:
  """c of n ~ N^c at one setting for all lengths, by series, then by "batch, rate"."""
  found: dict[str, dict] = {}
  for e in summary["exponents"]:
    for own in e["at_settings"] if e["fraction"] == fraction else ():
      if own["low"] is not None:
        setting = f"{own['batch_size']:g}, {own['learning_rate']:g}"
        c = Estimate(own["c"], own["low"], own["high"])
        found.setdefault(e["series"], {})[setting] = c
  return found


def steps_ratio(summary: Mapping[str, Any], fraction: float) -> Estimate:
  """Steps at a batch over steps at one four times as large, at one rate.

  The median over all pairs of settings at which every trial reached the threshold, with
  the quartiles in the place of an interval.
  """
  known = [
    c for c in summary["cells"] if c["fraction"] == fraction and not c["restricted"]
  ]
  names = ("series", "length", "learning_rate")
  n = {(*(c[name] for name in names), c["batch_size"]): c["mean"] for c in known}
  pairs = [(own, n.get((*at, 4 * b))) for (*at, b), own in n.items()]
  found = [4 * own / other for own, other in pairs if other is not None]
  low, middle, high = np.quantile(found, [0.25, 0.5, 0.75])
  return Estimate(float(middle), float(low), float(high))


def ratios(one: ByLength, other: ByLength) -> dict[str, dict]:
  """The one over the other, by series, then by length, where that is known."""
  found: dict[str, dict] = {}
  for series, values in one.items():
    own = found.setdefault(series, {})
    for N, mine in values.items():
      ratio = mine.over(other[series][N]) if N in other.get(series, {}) else None
      if ratio is not None:
        own[N] = ratio
  return found


def factors(own: ByLength) -> dict[str, dict]:
  """n of each other series over the Transformer's, by series, then by length."""
  others = own.keys() - {"transformer"}
  return ratios({s: own[s] for s in own if s in others},
                dict.fromkeys(others, own["transformer"]))  # fmt: skip


def critical(summary: Mapping[str, Any]) -> dict[str, dict]:
  """m at which half succeed, by series, then by length."""
  found: dict[str, dict] = {}
  for c in summary["critical"]:
    own = found.setdefault(c["series"], {})
    own[c["length"]] = Estimate(c["size"], c["low"], c["high"])
  return found


def between(summary: Mapping[str, Any]) -> dict[str, dict]:
  """m over the Transformer's, by series, then by length."""
  found: dict[str, dict] = {}
  for e in summary["between"]:
    if e["over"] == "transformer":
      own = found.setdefault(e["model"], {})
      own[e["length"]] = Estimate(e["ratio"], e["low"], e["high"])
  return found


def along(summary: Mapping[str, Any]) -> dict[str, dict]:
  """m at one length over m at a smaller one, by series, the smaller, the larger."""
  found: dict[str, dict] = {}
  for e in summary["ratios"]:
    smaller, larger = e["lengths"]
    own = found.setdefault(e["series"], {}).setdefault(smaller, {})
    own[larger] = Estimate(e["ratio"], e["low"], e["high"])
  return found


def of_knobs(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Estimate | None]:
  """n below half at one value of a knob over n at the usual one, by knob."""
  found = {}
  for summary in summaries:
    own = {s.partition(", ")[2]: n for s, n in at_best(summary, 0.5).items()}
    usual = own.get("weight_decay=0.01") or own["optimizer=adamw"]
    for knob, values in own.items():
      (n,), (other,) = values.values(), usual.values()
      found[knob] = n.over(other)
  return found
