"""Means of published figures, read off the pictures: one file per figure."""

from __future__ import annotations

import csv
import pathlib

from sepfx.drawing.figures import Published
from sepfx.errors import require

_HERE = pathlib.Path(__file__).parent


def read(name: str) -> Published:
  """Returns the points (N, n) of a figure by model and threshold; none for "".

  Raises:
    InvalidSetting: for a figure that is not here.
  """
  if not name:
    return {}
  path = _HERE / f"{name}.csv"
  known = sorted(file.stem for file in _HERE.glob("*.csv"))
  require(name in known, "published", name, f"nothing or one of {', '.join(known)}")
  points: dict[tuple[str, float], list[tuple[int, float]]] = {}
  with open(path) as file:
    for row in csv.DictReader(line for line in file if not line.startswith("#")):
      point = (int(row["length"]), float(row["samples"]))
      points.setdefault((row["model"], float(row["threshold"])), []).append(point)
  return points
