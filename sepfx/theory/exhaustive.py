"""The learner that tries all subsets: no learner needs fewer samples."""

from __future__ import annotations

import numpy as np

from sepfx.errors import require
from sepfx.tasks import SparseBoolean

# Partial subsets extended at once.
_CHUNK = 2000


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
  seen = (np.uint64(1) << sizes.astype(np.uint64)) - np.uint64(1)  # 2^64 wraps to 0
  agreeing = np.zeros(len(sizes), int)
  # Subsets grow from left to right. A part of one is given up when the samples of the
  # smallest size rule out whatever may be added to it.
  stack = [np.zeros((1, 0), int)]
  while stack:
    parts = stack.pop()
    first = parts[:, -1] + 1 if parts.shape[1] else np.zeros(len(parts), int)
    rows = np.repeat(np.arange(len(parts)), length - first)
    added = np.concatenate([np.arange(start, length) for start in first])
    parts = np.column_stack([parts[rows], added])
    depth = parts.shape[1]
    rest = table.reshape(2**depth, -1)
    words = columns[parts.T]
    may_be_1, may_be_0 = _words(rest.max(1), words), _words(1 - rest.min(1), words)
    refuting = (labels & ~may_be_1) | (~labels & ~may_be_0)
    alive = refuting & seen.min() == 0
    parts, refuting = parts[alive], refuting[alive]
    if depth == s:
      agreeing += np.sum(refuting[:, None] & seen == 0, axis=0)
    else:
      stack += [parts[k : k + _CHUNK] for k in range(0, len(parts), _CHUNK)]
  return agreeing


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
