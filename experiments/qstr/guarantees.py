"""What the main paper's bounds ask for, and the norms of its constructions. Theorem 9.

Of *When Do Transformers Outperform Feedforward and Recurrent Networks?*

    sepfx guarantees

Builds the Transformer of Lemma 11, the recurrent network of Proposition 28 and one of N
slots for each length. Prints how many prompts Theorems 10 and 7 ask for at their norms,
with all constants, before they promise half of uniform attention's risk. Holds the norm
of the slots against that of networks which memorise n labels (Lemma 36): where the two
cross, a learner of least norm goes over to the task (Theorem 9).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import rich.table
from absl import flags

from sepfx.commands import command_line
from sepfx.commands.report import Report, given, leave
from sepfx.errors import require
from sepfx.tasks import QSTR, incoherent_code_dim, shared

from .bounds import guarantees, representation
from .constructions.classes import class_of, retrieval_class
from .constructions.interpolation import memory_norms
from .constructions.recurrent import recurrent_retrieval
from .constructions.slots import label_radius, slot_memory
from .norm_figures import draw_norms

flags.DEFINE_list("lengths", ["8", "16", "32", "64", "128", "256", "512"], "N.")
flags.DEFINE_list(
  "samples", ["2", "4", "8", "16", "32", "64", "128", "256"], "n to memorise."
)
flags.DEFINE_integer("draws", 20, "Samples of each n.")
flags.DEFINE_integer("token_dim", 10, "d.")
flags.DEFINE_integer("seed", 0, "Seed of everything random.")
FLAGS = flags.FLAGS

# Approximation error of Lemma 11's attention; both links are networks themselves.
_EPS = 0.01
_LARGEST = 10**100
# Layers of the slots' read-out, L_y.
_DEPTH = 3


def of_length(length: int) -> dict[str, Any]:
  """Returns what is known of one N."""
  fields: dict[str, Any] = {
    "length": length, "token_dim": FLAGS.token_dim, "codes": "incoherent",
    "code_dim": incoherent_code_dim(length),
  }  # fmt: skip
  key = jax.random.fold_in(jax.random.key(FLAGS.seed), length)
  task = QSTR(**fields)
  task.check_draw(key[None])
  planted = task.init(key)
  d, risk = FLAGS.token_dim, (1 - 1 / length) / 2
  slots = slot_memory(task, planted, radius=label_radius(length)).balanced()
  radius = guarantees.token_radius(_LARGEST * length, d)
  built = recurrent_retrieval(QSTR(**fields, indices=shared), planted, radius=radius)
  recurrent = class_of(built, length)

  def of_transformer(n: int) -> guarantees.Guarantee:
    radius = guarantees.token_radius(n * length, d)
    own = retrieval_class(task, planted, radius=radius, eps=_EPS)
    return guarantees.guarantee(
      own, token_dim=d, encoding=2.0 * d, num_samples=n, eps=_EPS
    )

  def of_recurrent(n: int) -> guarantees.Guarantee:
    return guarantees.guarantee(recurrent, token_dim=d, encoding=2.0, num_samples=n)

  return {
    "length": length,
    "transformer_samples": guarantees.samples_for(risk, of_transformer),
    "recurrent_samples": guarantees.samples_for(risk, of_recurrent),
    "slots_squared_norm": slots.squared_norm,
    "least_squared_norm": representation.generalising_squared_norm(length, risk, _DEPTH),
    "memorised_samples": representation.memorised_samples(length, risk, _DEPTH),
  }


def memorised(num_samples: int) -> dict[str, float]:
  """Squared norms of networks that fit so many labels of standard normal tokens.

  With a read-out as deep as that of the slots.
  """
  own = (num_samples, FLAGS.token_dim, FLAGS.draws, FLAGS.seed)
  norms = memory_norms(*own, depth=_DEPTH)
  low, middle, high = np.quantile(norms, (0.05, 0.5, 0.95)).tolist()
  bound = representation.memorising_squared_norm(num_samples, _DEPTH)
  return {"samples": num_samples, "low": low, "median": middle, "high": high,
          "bound": bound}  # fmt: skip


def _numbers(name: str, least: int, most: int) -> list[int]:
  values: list[str] = getattr(FLAGS, name)
  takes = f"different whole numbers from {least} to {most}, with commas"
  proper = bool(values) and all(v.isdecimal() and least <= int(v) <= most for v in values)
  require(proper and len({*values}) == len(values), name, ",".join(values), takes)
  return sorted(map(int, values))


def _printed(rows: Sequence[Mapping[str, Any]]) -> list[Any]:
  table = rich.table.Table(
    "N", "n of Theorem 10", "n of Theorem 7", "squared norm\nof N slots", "at least",
    "memorised\nbelow that",
  )  # fmt: skip
  for row in rows:
    table.add_row(
      str(row["length"]), f"{row['transformer_samples']:.2g}",
      f"{row['recurrent_samples']:.2g}", f"{row['slots_squared_norm']:.3g}",
      f"{row['least_squared_norm']:.2g}", f"{row['memorised_samples']:.2g}",
    )  # fmt: skip
  text = (
    "At least: the least squared norm of a network of this risk (Proposition 8). "
    "Memorised below that: labels that a network of that norm can memorise."
  )
  return [table, text]


def report() -> Report:
  """Builds and measures all."""
  lengths = _numbers("lengths", 4, 4096)
  samples = _numbers("samples", 2, 1000)
  for name, least in (("draws", 2), ("token_dim", 1), ("seed", 0)):
    value = getattr(FLAGS, name)
    require(value >= least, name, value, f"an integer >= {least}")
  rows = [of_length(length) for length in lengths]
  summary = {"lengths": rows, "memorised": [memorised(n) for n in samples]}
  return Report(
    rows=rows,
    summary=summary,
    figures={"figure": draw_norms(summary)},
    printed=_printed(rows),
  )


def main(unknown: Sequence[str]) -> None:
  """Leaves the results in --output_dir."""
  leave(
    "guarantees",
    lambda: given("lengths", "samples", "draws", "token_dim", "seed"),
    report,
    unknown,
  )


if __name__ == "__main__":
  FLAGS.set_default("output_dir", "runs/guarantees")
  command_line.main(main)
