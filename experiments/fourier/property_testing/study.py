"""Do few values of a function tell its degree and number of components? Figure 8.

Of *A Sharper Picture of Generalization in Transformers*, its appendix H.

    sepfx property-testing

Draws functions of each degree and number of components. Sweeps up to the first level
that a property test accepts, and compares that with the level that is right. With --run
it also tests the models that a run of `sepfx fourier-generalisation` kept, whose
whole spectra it computes (T up to 20).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
import rich.progress
from absl import flags

from sepfx.commands import command_line, options
from sepfx.commands.report import Report, leave
from sepfx.errors import InvalidSetting, require
from sepfx.studies.parts import made_from
from sepfx.studies.settings import define, from_flags, setting
from sepfx.tasks import FourierSparse

from .. import tables as fourier_tables
from ..fourier_generalisation import study as fourier_generalisation
from ..spectra import MAX_LENGTH
from . import figure as testing_figures
from .testers import (
  Case,
  compare,
  distances,
  model_case,
  property_testers,
  summarise_tests,
)

FLAGS = flags.FLAGS


@dataclasses.dataclass(frozen=True)
class Settings:
  length: int = setting(20, "T, number of bits of the targets.", kind="fixed")
  degree: tuple[int, ...] = setting(
    (1, 2, 3, 4, 5), "d, bits in each parity of a target.", flag="degrees", kind="list"
  )
  num_components: tuple[int, ...] = setting(
    (2, 4, 8, 12), "k, parities of a target.", flag="components", kind="list"
  )
  num_functions: int = setting(8, "Targets of each degree and k.", kind="fixed")
  tau: tuple[float, ...] = setting(
    (0.2, 0.1, 0.05, 0.02, 0.01), "Proximity parameters.", flag="taus", kind="list"
  )
  max_degree: int = setting(6, "Last degree of a sweep.", kind="fixed")
  max_width: int = setting(16, "Last number of components of a sweep.", kind="fixed")
  num_subcubes: int = setting(64, "Subcubes of a test of the degree.", kind="fixed")
  num_restrictions: int = setting(
    9, "Restrictions of a test of the number of components.", kind="fixed"
  )
  run: str = setting("", "Directory of a run whose models are tested.", kind="free")
  seed: int = setting(0, "Seed of everything random.", kind="fixed")


def targets(settings: Settings) -> Iterator[Case]:
  """Draws the targets; those of a class do not depend on which others are drawn."""
  for d, k in itertools.product(settings.degree, settings.num_components):
    task = made_from(settings, FourierSparse, degree=d, num_components=k)
    own = (settings.seed, 0, d, k)
    key = functools.reduce(jax.random.fold_in, own[1:], jax.random.key(own[0]))
    drawn = jax.vmap(task.init)(jax.random.split(key, settings.num_functions))
    for index in range(settings.num_functions):
      planted = jax.tree.map(lambda a, i=index: a[i], drawn)
      sets, coefficients = (np.asarray(a, float)[:k] for a in planted)
      exact = distances(sets.sum(axis=1).astype(int), coefficients**2)
      labels = {"kind": "target", "degree": d, "num_components": k, "index": index}
      function = functools.partial(task.labels, planted)
      yield Case(labels, (*own, index), function, task.length, exact)


def trained(settings: Settings) -> Iterator[Case]:
  """Reads the models of --run and computes their spectra."""
  takes = f"a run on random functions of at most {MAX_LENGTH} bits"
  for row, cell, params in fourier_generalisation.trained(settings.run)[1]:
    task = cell.trial.task
    fits = task.function == "random" and task.length <= MAX_LENGTH
    require(fits, "run", settings.run, takes)
    d, k, index = int(task.degree), int(task.num_components), row["trial"].item()
    labels = {"kind": "trained", "degree": d, "num_components": k, "index": index}
    seed = (settings.seed, 1, d, k, index)
    yield model_case(labels, seed, cell.trial.model, params, task.length)


def tested(settings: Settings, console: Any) -> list[dict[str, Any]]:
  """Returns a row for each function, property and tau."""
  for name in ("degree", "num_components", "tau"):
    require(bool(getattr(settings, name)), name, "", "at least one value")
  count, seed = settings.num_functions, settings.seed
  require(count >= 1, "num_functions", count, "an integer >= 1")
  require(0 <= seed < 2**32, "seed", seed, "an integer from 0 to 2^32 - 1")
  cases = [*targets(settings), *(trained(settings) if settings.run else ())]
  used = property_testers(
    settings.max_degree,
    settings.num_subcubes,
    settings.max_width,
    settings.num_restrictions,
  )
  bar = rich.progress.track(
    cases, "testing", console=console, disable=not console.is_terminal
  )
  return [row for case in bar for row in compare(case, used, sorted(settings.tau))]


def report() -> Report:
  """Tests all functions."""
  chosen = from_flags(Settings, FLAGS)
  settings, _ = chosen.at({})
  try:
    rows = tested(settings, options.console())
  except InvalidSetting as error:
    flag = chosen.flag_of(error.setting)
    raise InvalidSetting(flag, error.got, error.takes) from error
  summary = summarise_tests(rows)
  return Report(
    rows=rows,
    summary=summary,
    figures={"figure": testing_figures.sweeps(rows, summary)},
    printed=fourier_tables.tests(summary),
  )


def main(unknown: Sequence[str]) -> None:
  """Leaves the results in --output_dir."""

  def settings() -> dict[str, Any]:
    chosen = from_flags(Settings, FLAGS)
    return {**chosen.stored(), "run": chosen.one("run")}

  leave("tests", settings, report, unknown)


if __name__ == "__main__":
  define(Settings, FLAGS)
  FLAGS.set_default("output_dir", "runs/property_testing")
  command_line.main(main)
