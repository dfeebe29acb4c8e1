"""How do norm and Hessian trace of the flat construction grow? Theorems 5, 10 and 13.

Of *A Sharper Picture of Generalization in Transformers*.

    sepfx construction-growth

Builds the construction for random functions at all T, degrees and numbers of components,
measures its squared norm and, as 2 E |grad f|^2, the trace of the Hessian of the squared
loss, and fits powers of each. The theorem's trace does not grow with T.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import rich.progress
from absl import flags

from sepfx.commands import command_line, options
from sepfx.commands.report import Report, given, leave
from sepfx.errors import InvalidSetting, require
from sepfx.probes.hessian import gradient_trace
from sepfx.tasks import FourierSparse
from sepfx.tasks.fourier import Spectrum

from .. import tables as fourier_tables
from . import figures as flatness_figures
from .construction import squared_norms
from .flatness import construction_of
from .summary import summarise_growth

flags.DEFINE_list("lengths", ["12", "16", "20", "24", "30"], "T, numbers of bits.")
flags.DEFINE_list("degrees", ["1", "2", "3", "4", "5"], "d, bits in each parity.")
flags.DEFINE_list("components", ["2", "4", "8", "12"], "k, numbers of parities.")
flags.DEFINE_integer("functions", 10, "Functions at each T, d and k.", lower_bound=2)
flags.DEFINE_integer("inputs", 256, "Random inputs of each mean.", lower_bound=1)
flags.DEFINE_integer("seed", 0, "Seed of everything random.")
FLAGS = flags.FLAGS
_FLAG_OF = {
  "length": "lengths",
  "degree": "degrees",
  "num_components": "components",
}


def measured(task: FourierSparse, key: Any) -> list[dict[str, float]]:
  """Returns a row for each of FLAGS.functions."""

  def draw(own_key: Any) -> tuple[Spectrum, Any]:
    task_key, sample_key = jax.random.split(own_key)
    planted = task.init(task_key)
    return planted, task.sample(sample_key, planted, FLAGS.inputs).bits

  drawn = jax.device_get(jax.jit(jax.vmap(draw))(jax.random.split(key, FLAGS.functions)))
  rows = []
  for trial in range(FLAGS.functions):
    planted, bits = jax.tree.map(lambda a, k=trial: a[k], drawn)
    built = construction_of(task, planted)
    tokens = built.tokens(bits)
    params = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), built.params)
    rows.append(
      {
        "length": task.length,
        "degree": task.degree,
        "num_components": task.num_components,
        "function": trial,
        "squared_norm": squared_norms(built)["total"],
        "trace": float(_trace(built.model, params, tokens)),
      }
    )
  return rows


@jax.jit(static_argnums=0)
def _trace(model: nn.Module, params: Any, tokens: Any) -> Any:
  def output(own: Any, token: Any) -> Any:
    return model.apply({"params": own}, token[None])[0]

  return gradient_trace(output, params, tokens)


def _numbers(name: str) -> list[int]:
  values: list[str] = getattr(FLAGS, name)
  takes = "different whole numbers above 0, with commas"
  proper = bool(values) and all(v.isdecimal() and int(v) > 0 for v in values)
  require(proper and len({*values}) == len(values), name, ",".join(values), takes)
  return sorted(map(int, values))


def _task(**fields: Any) -> FourierSparse:
  try:
    return FourierSparse(**fields)
  except InvalidSetting as error:
    raise InvalidSetting(_FLAG_OF[error.setting], error.got, error.takes) from error


def report() -> Report:
  """Measures the whole grid."""
  grid = [
    _task(length=T, degree=d, num_components=k)
    for T in _numbers("lengths")
    for d in _numbers("degrees")
    for k in _numbers("components")
  ]
  rows: list[dict[str, float]] = []
  console = options.console()
  bar = rich.progress.track(
    grid, "measuring", console=console, disable=not console.is_terminal
  )
  for task in bar:
    key = jax.random.key(FLAGS.seed)
    for number in (task.length, task.degree, task.num_components):
      key = jax.random.fold_in(key, number)
    rows += measured(task, key)
  summary = summarise_growth(rows)
  return Report(
    rows=rows,
    summary=summary,
    figures={"figure": flatness_figures.growth(rows)},
    printed=fourier_tables.growth(summary),
  )


def main(unknown: Sequence[str]) -> None:
  """Leaves the results in --output_dir."""
  leave(
    "growth",
    lambda: given("lengths", "degrees", "components", "functions", "inputs", "seed"),
    report,
    unknown,
  )


if __name__ == "__main__":
  FLAGS.set_default("output_dir", "runs/construction_growth")
  command_line.main(main)
