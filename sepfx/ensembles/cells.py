"""Cells of a grid, and the keys of their trials."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Key, PRNGKeyArray

from sepfx import specifications
from sepfx.ensembles import keys
from sepfx.errors import InvalidSetting, require
from sepfx.training import Seeds, Trial

# Of a cell's name: files are called after it, and 255 are what file systems take.
_MOST_LETTERS = 220

# Columns of rows of summaries (`sepfx.summarise`) that are no coordinates. An axis of
# such a name would be hidden by one, or hide it. `threshold` is a column of trials where
# there are several.
_OF_SUMMARIES = frozenset(
  (
    "against", "at_most", "bound", "budget", "c", "censored", "coarse", "diverged",
    "error", "fraction", "grid_error", "high", "largest", "log_spread", "low",
    "mean", "median", "median_high", "median_low", "of", "on_grid", "over", "pairs",
    "ratio", "reached", "recorded", "resolution", "restricted", "series", "size",
    "slow", "smallest", "trials", "what", "why",
  )
)  # fmt: skip

# Texts that pandas takes for a missing value when it reads a table.
_MISSING = frozenset(
  [
    "",
    *("#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "1.#IND", "1.#QNAN", "<NA>"),
    *("N/A", "NA", "NULL", "NaN", "-NaN", "None", "n/a", "nan", "-nan", "null"),
  ]
)

TASK_DRAWS = ("per_trial", "shared")


@dataclasses.dataclass(frozen=True)
class Cell:
  """One grid point; its trials differ only in their index.

  Attributes:
    trial: the trial's pure functions.
    axes: what tells it from other cells of the same task, model, length and sample size.
    task_draw: "per_trial" plants anew for each trial; "shared" plants once for all
      trials of all models at this task and length, as the published runs did.
  """

  trial: Trial
  axes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  task_draw: str = "per_trial"

  @property
  def coordinates(self) -> dict[str, Any]:
    """What tells this cell from the others of its grid."""
    return {**self.trial.coordinates, **self.axes}

  @property
  def name(self) -> str:
    """Canonical name: task=.../model=.../length=... and so on."""
    return cell_name(self.coordinates)

  @property
  def words(self) -> str:
    """What a person reads of it: task, model, and what else tells it from others."""
    own = {k: v for k, v in self.coordinates.items() if k not in ("task", "model")}
    names = f"{self.coordinates['task']}: {self.coordinates['model']}"
    return " ".join([names, *(f"{k}={v}" for k, v in own.items())])

  def seeds(self, seed: int, num_trials: int) -> Seeds:
    """Keys of trials 0, ..., num_trials - 1.

    They are functions of the seed, the trial's `key_name` and the index alone. Settings
    that are not in it (a learning rate, say) do not move them, so cells that differ in
    such a setting are paired trial by trial.
    """
    key = keys.key(seed)
    trial, task = _pairs(key, _words(self.trial.key_name), num_trials)
    if self.task_draw == "shared":
      coordinates = self.trial.coordinates
      planted = f"task={coordinates['task']}/length={coordinates['length']}"
      task = jnp.broadcast_to(_folded(key, _words(planted)), task.shape)
    return Seeds(trial, task)


def cell_name(coordinates: Mapping[str, Any]) -> str:
  """The name of a cell with these coordinates."""
  texts = {key: specifications.canonical(value) for key, value in coordinates.items()}
  return "/".join(f"{key}={text}" for key, text in texts.items())


def numbers_of_parameters(cells: Mapping[str, Cell]) -> dict[str, int]:
  """How many numbers each cell's model learns, by the cell's name."""
  known: dict[Any, int] = {}
  found = {}
  for name, cell in cells.items():
    structure = jax.tree.structure(cell.trial)
    if structure not in known:
      known[structure] = cell.trial.num_parameters
    found[name] = known[structure]
  return found


def _words(name: str) -> np.ndarray:
  """A stable 64-bit digest of a name, in two words."""
  return np.frombuffer(hashlib.sha256(name.encode()).digest()[:8], dtype="<u4")


@functools.partial(jax.jit, static_argnums=2)  # one program for all cells of a grid
def _pairs(
  key: PRNGKeyArray, words: jax.Array, count: int
) -> Sequence[Key[jax.Array, " count"]]:
  """Two keys for each of so many indices, from a key and a name's words."""
  fold_in = jax.vmap(jax.random.fold_in, (None, 0))
  own = fold_in(_folded(key, words), jnp.arange(count))
  return jnp.unstack(jax.vmap(jax.random.split)(own), axis=1)


@jax.jit
def _folded(key: PRNGKeyArray, words: jax.Array) -> PRNGKeyArray:
  for word in words:
    key = jax.random.fold_in(key, word)
  return key


def grid(
  build: Callable[..., Trial],
  axes: Mapping[str, Sequence],
  *,
  task_draw: str = "per_trial",
  check: bool = True,
) -> list[Cell]:
  """Returns the cells of a product of axes, every one of them checked.

  Nothing is compiled: models are only traced for their shapes.

  Args:
    build: takes a value of each axis by name and returns that cell's trial.
    axes: values by name, none of them twice; the last varies fastest.
    task_draw: "per_trial" or "shared", see `Cell`.
    check: whether `Trial.check` is called; not needed of trials that ran.

  Raises:
    InvalidSetting: for an axis without values or with one twice; a name that is too
      long for a file, cannot be printed or is read as a missing value; an axis that is
      called like a column of results; a model that does not map the task's inputs to its
      outputs; an optimizer that needs more than gradients; a threshold that the best
      constant already meets; cells of the same name.
  """
  known = ", ".join(TASK_DRAWS)
  require(task_draw in TASK_DRAWS, "task_draw", task_draw, f"one of {known}")
  for name, values in axes.items():
    require(len(values) > 0, name, list(values), "at least one value")
    texts = [specifications.canonical(value) for value in values]
    twice = sorted({text for text in texts if texts.count(text) > 1})
    require(not twice, name, ", ".join(twice), "each value once")
  cells = []
  checked = set()
  for point in itertools.product(*axes.values()):
    chosen = dict(zip(axes, point, strict=True))
    trial = build(**chosen)
    own = {k: v for k, v in chosen.items() if k not in trial.coordinates}
    own = {
      k: v if isinstance(v, int | float | str) else specifications.canonical(v)
      for k, v in own.items()
    }
    for name, value in own.items():
      takes = "a field of another name: tables of results have a column of this name"
      free = name not in _OF_SUMMARIES | {"trial", *trial.columns}
      require(free, name, value, takes)
    for name, value in {**trial.coordinates, **own}.items():
      _check_text(name, value, chosen[name] if name in own else value)
    structure = jax.tree.structure(trial)
    if check and structure not in checked:
      trial.check()
      checked.add(structure)
    cells.append(Cell(trial, own, task_draw))
    takes = "a shorter description: give the model a name, as in Model(name='mine')"
    fits = len(urllib.parse.quote(cells[-1].name)) <= _MOST_LETTERS
    require(fits, "model", cells[-1].coordinates["model"], takes)
    for name, value in cells[-1].coordinates.items():
      takes = "text without a slash, which separates the parts of a cell's name"
      require("/" not in specifications.canonical(value), name, value, takes)
  cells = _alike(cells)
  names = [cell.name for cell in cells]
  for cell in cells:
    if names.count(cell.name) > 1:
      takes = "models with different names: give one a name, as in Model(name='mine')"
      raise InvalidSetting("model", cell.coordinates["model"], takes)
  return cells


def _check_text(name: str, value: Any, given: Any) -> None:
  """Refuses what a table would not give back.

  Args:
    name: of the axis.
    value: as records have it.
    given: what it stands for.
  """
  for text in (name, specifications.canonical(value)):
    takes = "letters that can be printed, no control characters"
    if name == "model":
      takes += ": give the model a name, as in Model(name='mine')"
    require(text.isprintable(), ascii(name)[1:-1], value, takes)
  missing = isinstance(given, str) and value in _MISSING
  require(not missing, name, value, "a text that pandas does not read as a missing value")


def _alike(cells: Sequence[Cell]) -> list[Cell]:
  """The cells with text on the axes where some have numbers and some have not."""
  kinds: dict[str, set[bool]] = {}
  for cell in cells:
    for name, value in cell.axes.items():
      kinds.setdefault(name, set()).add(isinstance(value, str))
  mixed = [name for name, own in kinds.items() if len(own) > 1]
  texts = [{n: specifications.canonical(c.axes[n]) for n in mixed} for c in cells]
  return [
    dataclasses.replace(cell, axes={**cell.axes, **own})
    for cell, own in zip(cells, texts, strict=True)
  ]
