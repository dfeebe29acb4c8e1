"""Three small trials, each against a plain program and against stored numbers.

One per protocol, and a recurrent one. Both trials of each cell run in one lane, so the
second takes the lane of the first. `tests/plain.py` computes the same without screen,
padding or lanes. A stored number that differs where the plain program agrees says that
JAX or the drawn numbers changed; one that differs from both says that the library did.
"""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

from sepfx.ensembles import Cell, run
from sepfx.models import GRU, FeedForward, OnBits, Transformer
from sepfx.tasks import QSTR, SparseBoolean, shared
from sepfx.training import ERM, AdamW, Online, adam_with_kernel_decay
from tests import plain

# Compilers and their levels of optimisation move a loss by 2e-4 at most.
_TOLERANCE = 2e-3

# What each trial came to, as its rows say it, and its curve.
_TRANSFORMER = (  # test losses; which of them are those of all test prompts
  (
    ((0.95, 96, "reached"), (0.7, 336, "reached")),
    (0.9848, 0.9144, 0.8902, 0.8334, 0.7418, 0.7261, 0.6918),
    (1, 1, 0, 0, 1, 1, 1),
  ),
  (
    ((0.95, 48, "reached"), (0.7, 480, "censored")),
    (0.8726, 0.9371, 0.8250, 0.8254, 0.8968, 0.9106, 0.8698, 0.8120, 0.7739, 0.7540),
    (1, 0, 0, 1, 0, 0, 0, 0, 0, 1),
  ),
)
_GRU = (
  (
    ((0.9, 64, "reached"), (0.6, 288, "censored")),
    (0.9085, 0.8000, 0.7510, 0.7261, 0.7153, 0.7450, 0.8170, 0.8468, 0.7910),
    (1, 1, 0, 0, 0, 0, 0, 0, 0),
  ),
  (
    ((0.9, 96, "reached"), (0.6, 288, "censored")),
    (1.0642, 0.9205, 0.8791, 0.8461, 0.8601, 0.8704, 0.7649, 0.7432, 0.7450),
    (0, 1, 1, 0, 0, 0, 0, 0, 0),
  ),
)
_HIDDEN_AND = (  # test error, train error, train loss, test loss
  (
    (0.9550, 25, "reached"),
    (
      (0.2467, 0.1556, 0.3506, 0.4886),
      (0.2467, 0.1556, 0.2664, 0.4299),
      (0.2383, 0.1333, 0.1935, 0.3515),
      (0.1117, 0.0444, 0.1071, 0.2166),
      (0.0450, 0.0000, 0.0530, 0.1204),
    ),
  ),
  (
    (0.8683, 25, "censored"),
    (
      (0.3017, 0.2222, 0.4628, 0.6104),
      (0.3017, 0.2222, 0.3610, 0.5239),
      (0.3017, 0.2222, 0.2640, 0.4336),
      (0.3017, 0.2222, 0.2004, 0.3475),
      (0.1317, 0.0000, 0.1535, 0.2777),
    ),
  ),
)


@dataclasses.dataclass(frozen=True)
class Golden:
  """A cell, its plain program, and what its trials 0 and 1 came to."""

  cell: Cell
  program: Any
  seed: int
  stored: tuple

  def trials(self):
    """Each trial's result, its keys, and what is stored of it."""
    one_device = jax.devices()[:1]
    found = run([self.cell], seed=self.seed, num_trials=2, lanes=1, devices=one_device)
    results = sorted(found, key=lambda result: result.trial)
    assert [result.trial for result in results] == [0, 1]
    for k, result in enumerate(results):
      keys = plain.seeds(self.seed, self.cell.trial.key_name, k)
      yield result, keys, self.stored[k]


def transformer():
  """Sparsity 2, codes scaled as in the theory, test prompts of another distribution."""
  task = QSTR(length=4, token_dim=3, sparsity=2, encoding_prefactor=True)
  model = Transformer(num_heads=2, head_dim=5, width=20)
  protocol = Online(
    thresholds=(0.95, 0.7),
    optimizer=AdamW(2e-2, weight_decay=0.1),
    batch_size=16,
    check_every=3,
    num_test=300,  # three chunks, the last of which is padded
    max_samples=500,  # ten checks and a bit
  )
  program = plain.FreshPrompts(
    plain.SparseTokens(4, 3, 2, prefactor=True),
    plain.SparseTokens(4, 3, 2, prefactor=True, alike=True),
    model, plain.transformer, rate=2e-2, decay=0.1, batch_size=16, check_every=3,
    num_test=300, thresholds=(0.95, 0.7), max_samples=500,
  )  # fmt: skip
  test_task = dataclasses.replace(task, indices=shared)
  return Golden(
    Cell(protocol.trial(task, test_task, model, "m")),
    program,
    seed=3,
    stored=_TRANSFORMER,
  )


def gru():
  """Simple-1STR as published, of which most checks read one of two chunks."""
  task = QSTR(length=3, token_dim=2, indices=shared)
  model = GRU(units=6)
  protocol = Online(
    thresholds=(0.9, 0.6),
    optimizer=AdamW(3e-2, weight_decay=0.01),
    batch_size=8,
    check_every=4,
    num_test=130,
    max_samples=288,  # nine checks
  )
  tokens = plain.SparseTokens(3, 2, alike=True)
  program = plain.FreshPrompts(
    tokens, tokens, model, plain.gru, rate=3e-2, decay=0.01, batch_size=8, check_every=4,
    num_test=130, thresholds=(0.9, 0.6), max_samples=288,
  )  # fmt: skip
  return Golden(
    Cell(protocol.trial(task, task, model, "m")),
    program,
    seed=9,
    stored=_GRU,
  )


def hidden_and():
  """Batches that do not divide the sample, clipped gradients, decay of kernels alone."""
  task = SparseBoolean(length=7, sparsity=2)
  model = OnBits(FeedForward((12,), num_outputs=2))
  protocol = ERM(
    sample_size=45,
    batch_size=10,
    optimizer=adam_with_kernel_decay(3e-2, weight_decay=0.1, clip_norm=0.2),
    threshold=0.1,
    check_every=5,
    num_test=600,  # more than are evaluated at once
    max_steps=28,
  )
  program = plain.FixedSample(
    plain.HiddenAnd(7, 2), model, plain.feedforward_on_bits, rate=3e-2, decay=0.1,
    clip_norm=0.2, sample_size=45, batch_size=10, check_every=5, num_test=600,
    threshold=0.1, max_steps=28,
  )  # fmt: skip
  return Golden(
    Cell(protocol.trial(task, task, model, "m")),
    program,
    seed=0,
    stored=_HIDDEN_AND,
  )


def test_a_fixed_sample():
  """Errors and losses at each check, and the steps at which the threshold was met."""
  golden = hidden_and()
  names = ("test_error", "train_error", "train_loss", "test_loss")
  for result, keys, (row, stored) in golden.trials():
    curve, first = golden.program.run(*keys)
    own = np.stack([result.curve[name] for name in names], axis=1)
    np.testing.assert_array_equal(result.curve["steps"], 5 * np.arange(1, len(own) + 1))
    # The plain program.
    (verdict,) = result.outcomes
    assert verdict.outcome == ("reached" if first else "censored")
    assert verdict.steps == (first or 5 * len(curve))
    np.testing.assert_allclose(own, curve, _TOLERANCE)
    # What is stored.
    assert verdict == (pytest.approx(row[0], abs=1e-4), *row[1:])
    np.testing.assert_allclose(own, stored, _TOLERANCE, atol=1e-4)


@pytest.mark.parametrize("make", [transformer, gru])
def test_fresh_prompts(make):
  """First passages, losses, and which checks were decided by a part of the prompts."""
  golden = make()
  per_check = golden.program.batch_size * golden.program.check_every
  for result, keys, (rows, stored, exact) in golden.trials():
    # The plain program, which knows no screen.
    losses, first = golden.program.run(*keys)
    spent = per_check * len(losses)
    assert [tuple(row) for row in result.outcomes] == [
      (threshold, samples or spent, "reached" if samples else "censored")
      for threshold, samples in first.items()
    ]
    curve = result.curve
    samples = per_check * np.arange(1, len(losses) + 1)
    np.testing.assert_array_equal(curve["samples"], samples)
    read_all = curve["exact"]
    np.testing.assert_allclose(curve["loss"][read_all], losses[read_all], _TOLERANCE)
    # What is stored, which has estimates too.
    assert tuple(map(tuple, result.outcomes)) == rows
    np.testing.assert_array_equal(read_all, exact)
    np.testing.assert_allclose(curve["loss"], stored, _TOLERANCE)
