"""What does a trained Transformer look like inside? Figure 5.

Of *A Sharper Picture of Generalization in Transformers*.

    sepfx fourier-generalisation \
        --preset=fourier_attention
    sepfx fourier-attention

Reads the weights that such a run kept, of models `channel`. Draws attention beside the
planted sets and the MLP's response along its one channel, of the first trial of each
cell that was fitted; and counts, over all trials, how much attention is on the sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import rich.table
from absl import flags

from sepfx import probes
from sepfx.commands import command_line
from sepfx.commands.report import Report, given, leave
from sepfx.errors import InvalidSetting
from sepfx.models import ChannelTransformer
from sepfx.statistics.intervals import student_interval

from ..fourier_generalisation import study as fourier_generalisation
from . import channels

flags.DEFINE_string("run", "runs/fourier_attention", "Directory of the run that is read.")
FLAGS = flags.FLAGS

_INPUTS = 512
# Tells the keys of what is looked at from those that the trial has used.
_KEYS = 0x6C6F6F6B
_CELL = ("model", "length", "sample_size", "degree", "num_components")
_MEANS = (
  "attention_share", "attention_share_random", "attention_overlap",
  "attention_overlap_random", "agreement", "turns",
)  # fmt: skip


def looked_into(path: str) -> list[tuple[dict[str, Any], channels.Learned]]:
  """Returns each trial of a run: its row, and what it learned.

  Raises:
    InvalidSetting: if it is no complete run of that study, with weights of `channel`.
  """
  part, trials = fourier_generalisation.trained(path)
  records, seed = part.records, part.chosen.one("seed")
  probe, make_world = (
    jax.jit(probes.attention),
    jax.jit(lambda own, seeds: own.world(seeds)),
  )
  found = []
  for row, cell, params in trials:
    trial, index = cell.trial, row["trial"].item()
    model = trial.model
    if not isinstance(model, ChannelTransformer):
      raise InvalidSetting("run", path, "a run of --models=channel")
    seeds = jax.tree.map(lambda keys, k=index: keys[k], cell.seeds(seed, index + 1))
    world = make_world(trial, seeds)
    probe_key, inputs_key = jax.random.split(jax.random.fold_in(seeds.trial, _KEYS))
    values = probe(trial, params, world, probe_key)
    bits = trial.task.sample(inputs_key, world.planted, _INPUTS).bits
    learned = channels.look(model, params, world.planted, bits)
    measured = {
      **{name: float(value) for name, value in values.items()},
      "agreement": float(np.mean(learned.agreements)),
      "turns": learned.turns,
    }
    place = {name: row[name].item() for name in (*records.coordinates, "trial")}
    degree, k = int(trial.task.degree), len(learned.sets)
    row_of = {**place, "degree": degree, "num_components": k}
    found.append(({**row_of, "outcome": row["outcome"].item(), **measured}, learned))
  return found


def summarise(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
  """Means over the trials of each cell that were fitted, with 95% intervals."""
  cells: dict[tuple, list[dict[str, Any]]] = {}
  for row in rows:
    cells.setdefault(_cell(row), []).append(row)
  summary = []
  for place, own in cells.items():
    reached = [row for row in own if row["outcome"] == "reached"]
    means = {}
    for name in _MEANS if reached else ():
      values = np.array(student_interval(np.array([row[name] for row in reached])))
      values = np.clip(values, 0.0, np.inf if name == "turns" else 1.0)
      means[name] = [None if np.isnan(value) else value for value in values]
    entry = dict(zip(_CELL, place, strict=True))
    summary.append({**entry, "trials": len(own), "reached": len(reached), **means})
  return summary


def table(summary: Sequence[dict[str, Any]]) -> rich.table.Table:
  """What is printed: a row for each mean of each cell, with its 95% interval."""
  heads = ("model", "T", "n", "degree", "k", "got there", "mean of", "")
  shown = rich.table.Table(*heads)
  for cell in summary:
    place = [
      *(str(cell[name]) for name in _CELL),
      f"{cell['reached']} of {cell['trials']}",
    ]
    if not cell["reached"]:
      shown.add_row(*place)
    for name in (name for name in _MEANS if name in cell):
      mean, low, high = cell[name]
      interval = "" if low is None else f" [{low:.2f}, {high:.2f}]"
      what = name.removeprefix("attention_").replace("_", " ")
      shown.add_row(*place, what, f"{mean:.2f}{interval}")
      place = [""] * len(place)
  return shown


def _cell(row: dict[str, Any]) -> tuple:
  return tuple(row[name] for name in _CELL)


def report() -> Report:
  """Looks into all trials of --run."""
  found = looked_into(FLAGS.run)
  rows = [row for row, _ in found]
  summary = summarise(rows)
  drawn: dict[tuple, tuple[str, channels.Learned]] = {}
  for row, learned in sorted(found, key=lambda own: own[0]["outcome"] != "reached"):
    title = "{model}, T = {length}, d = {degree}, k = {num_components}".format(**row)
    title += f", trial {row['trial']}" + ", not fitted" * (row["outcome"] != "reached")
    drawn.setdefault(_cell(row), (title, learned))
  return Report(
    rows=rows,
    summary=summary,
    figures={"figure": channels.figure([drawn[_cell(own)] for own in summary])},
    printed=[table(summary)],
  )


def main(unknown: Sequence[str]) -> None:
  """Leaves the results in --output_dir."""
  leave("attention", lambda: given("run"), report, unknown)


if __name__ == "__main__":
  FLAGS.set_default("output_dir", "runs/fourier_attention_inside")
  command_line.main(main)
