"""The learner that tries all subsets: no learner needs fewer samples."""

from __future__ import annotations

import csv
import functools
import importlib.resources
from typing import NamedTuple

import numpy as np

from sepfx.errors import require
from sepfx.tasks import SparseBoolean

# Partial subsets extended at once.
_CHUNK = 2000


class Floor(NamedTuple):
  """How many samples the learner that tries all subsets needs for a task.

  Attributes:
    function: f's name, as records have it.
    sparsity: s.
    bit_probability: of a one.
    length: T.
    size: the smallest m at which it finds I with a chance above 1/2.
    error: standard error, in samples, of the m at which the chance is 1/2.
    trials: simulated.
  """

  function: str
  sparsity: int
  bit_probability: float
  length: int
  size: int
  error: float
  trials: int


@functools.cache
def stored_floors() -> tuple[Floor, ...]:
  """The floors that are stored; `python -m benchmarks.exhaustive_floor` found them."""
  path = importlib.resources.files(__package__) / "exhaustive_floor.csv"
  return tuple(
    Floor(
      row["function"],
      int(row["sparsity"]),
      float(row["bit_probability"]),
      int(row["length"]),
      int(row["size"]),
      float(row["error"]),
      int(row["trials"]),
    )
    for row in csv.DictReader(path.read_text().splitlines())
  )


def stored_floor(task: SparseBoolean) -> Floor | None:
  """The floor of a task; None if none is stored for it.

  It is that of a learner that knows nothing of I and sees labels without noise: there is
  none for a task with noise or with a subset that is given.
  """
  if task.noise or task.subset is not None:
    return None
  of_task = (task.name, task.sparsity, task.bit_probability, task.length)
  return next((own for own in stored_floors() if own[:4] == of_task), None)


def exhaustive_success(
  task: SparseBoolean, sizes: np.ndarray, num_trials: int, seed: int
) -> np.ndarray:
  """How often the learner that knows f, and tries all C(T, s) subsets, finds I.

  Given m samples it answers with one of the subsets that agree with all of them, each
  with the same chance. No other rule finds I more often, because I is uniform and
  labels have no noise.

  Args:
    task: without noise.
    sizes: sample sizes m from 1 to 64, [k].
    num_trials: simulated trials, over which the chance is averaged.
    seed: of everything random.

  Returns:
    The chance at each m, [k].

  Raises:
    InvalidSetting: for a noisy task or a size outside 1 to 64.
  """
  require(task.noise == 0, "noise", task.noise, "0 here")
  sizes = np.asarray(sizes)
  takes = "sizes from 1 to 64"
  require(bool(np.all((sizes >= 1) & (sizes <= 64))), "sizes", sizes.tolist(), takes)
  rng = np.random.default_rng(seed)
  agreeing = [_count_agreeing(task, sizes, rng) for _ in range(num_trials)]
  return np.mean(1 / np.array(agreeing), axis=0)


def _count_agreeing(task: SparseBoolean, sizes: np.ndarray, rng) -> np.ndarray:
  """Draws a task and samples; how many subsets agree with the first m, [k]."""
  length, s = task.length, task.sparsity
  bits = rng.random((64, length)) < task.bit_probability
  subset = np.sort(rng.choice(length, s, replace=False))
  # Sample k is digit k of a word: one operation looks at all samples.
  columns = bits.T @ (np.uint64(1) << np.arange(64, dtype=np.uint64))
  table = task.truth_table()
  labels = _words(table, columns[subset])
  cube = table.reshape((2,) * s)
  seen = (np.uint64(1) << sizes.astype(np.uint64)) - np.uint64(1)  # 2^64 wraps to 0
  first = seen.min()
  agreeing = np.zeros(len(sizes), int)
  # What stands at one place alone rules out most positions there.
  places = [
    np.flatnonzero(_refuting(np.moveaxis(cube, k, 0), columns[None], labels) & first == 0)
    for k in range(s)
  ]
  # Subsets grow from left to right. A part of one is given up when the samples of the
  # smallest size rule out whatever may be added to it.
  stack = [np.zeros((1, 0), int)]
  while stack:
    parts = stack.pop()
    depth = parts.shape[1] + 1
    allowed = places[depth - 1]
    last = parts[:, -1] if depth > 1 else np.full(len(parts), -1)
    start = np.searchsorted(allowed, last, side="right")
    rows = np.repeat(np.arange(len(parts)), len(allowed) - start)
    added = np.concatenate([allowed[k:] for k in start])
    parts = np.column_stack([parts[rows], added])
    refuting = _refuting(cube, columns[parts.T], labels)
    alive = refuting & first == 0
    parts, refuting = parts[alive], refuting[alive]
    if depth == s:
      agreeing += np.sum(refuting[:, None] & seen == 0, axis=0)
    else:
      stack += [parts[k : k + _CHUNK] for k in range(0, len(parts), _CHUNK)]
  return agreeing


def _refuting(cube: np.ndarray, words: np.ndarray, labels: np.ndarray) -> np.ndarray:
  """The samples whose labels no choice of the other bits gives, as words.

  Args:
    cube: f on all inputs, an axis for each of its bits, those that are known first.
    words: the l bits that are known, of all samples, [l ...].
    labels: of all samples, a word.
  """
  rest = cube.reshape(2 ** len(words), -1)
  may_be_1, may_be_0 = _words(rest.max(1), words), _words(1 - rest.min(1), words)
  return (labels & ~may_be_1) | (~labels & ~may_be_0)


def _words(table: np.ndarray, words: np.ndarray) -> np.ndarray:
  """Values of a function of the bits of each sample, as words.

  Args:
    table: 2^l values, the first bit the highest digit.
    words: the l bits of all samples, [l ...].
  """
  depth = len(words)
  values = np.zeros(words.shape[1:], np.uint64)
  for index in np.flatnonzero(table):
    match = ~np.zeros_like(values)
    for position, word in enumerate(words):
      one = index >> (depth - 1 - position) & 1
      match &= word if one else ~word
    values |= match
  return values
