"""What a series of measurements found so far, as results.json and results.md."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from sepfx.provenance.environment import environment
from sepfx.records.run_directory import write_whole

Row = dict[str, Any]


class Findings:
  """Rows of several parts, of which those not measured yet are "not reached".

  Both files are written whole at the beginning and with every row.

  Attributes:
    rows: measured, by part.
  """

  def __init__(self, directory: pathlib.Path, planned: Sequence[tuple[str, Row]]):
    """Nothing is measured yet.

    Args:
      directory: of the files.
      planned: each row's part, and what tells it from the others there.
    """
    self._directory = directory
    self._planned = list(planned)
    self._about = {**environment(), "num_devices": len(jax.devices())}
    self.rows: dict[str, list[Row]] = {part: [] for part, _ in planned}
    self._write()

  def add(self, part: str, case: Row, values: Row) -> None:
    """Writes a measurement down: one of those planned, and what it found."""
    self._planned.remove((part, case))
    self.rows[part].append({**case, **values})
    self._write()

  def _not_reached(self, part: str) -> list[Row]:
    return [case for own, case in self._planned if own == part]

  def _write(self) -> None:
    parts = {}
    for part, rows in self.rows.items():
      left = self._not_reached(part)
      reached = "in part" if rows and left else "not reached" if left else "whole"
      parts[part] = {"reached": reached, "rows": rows, "not_reached": left}
    everything = {**self._about, "parts": parts}
    text = json.dumps(everything, indent=2) + "\n"
    write_whole(self._directory / "results.json", text)
    write_whole(self._directory / "results.md", self._markdown())

  def _markdown(self) -> str:
    about = self._about
    lines = [
      f"{about['num_devices']} x {about['devices'][0]}, JAX {about['versions']['jax']},",
      f"{about['time']}, source {about['revision']}",
    ]
    for part, rows in self.rows.items():
      lines += ["", f"## {part}", ""]
      if rows:
        lines += _table(rows)
      left = self._not_reached(part)
      if left and rows:
        lines += ["", "not reached: " + "; ".join(map(described, left))]
      elif left:
        lines.append("not reached")
    return "\n".join(lines) + "\n"


def _table(rows: Sequence[Row]) -> list[str]:
  names = list(dict.fromkeys(name for row in rows for name in row))
  heads = [name.replace("_", " ") for name in names]
  return [
    f"| {' | '.join(heads)} |",
    f"|{' --- |' * len(names)}",
    *(f"| {' | '.join(_text(row.get(name)) for name in names)} |" for row in rows),
  ]


def described(case: Mapping[str, Any]) -> str:
  """What tells a measurement from others, in words."""
  return ", ".join(f"{name} = {_text(value)}" for name, value in case.items())


def _text(value: Any) -> str:
  if value is None:
    return ""
  if isinstance(value, float):
    rounded = float(f"{value:.4g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 1000 else f"{rounded:.4g}"
  if isinstance(value, int):
    return f"{value:,}"
  return ", ".join(map(_text, value)) if isinstance(value, list) else str(value)
