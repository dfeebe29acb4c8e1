"""The screen of the online protocol against its formula, in a plain loop."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sepfx.tasks import QSTR
from sepfx.training import Online, online
from tests import small

CHUNK, NUM_TEST, THRESHOLD = 4, 30, 0.5
CHUNKS = math.ceil(NUM_TEST / CHUNK)


@dataclasses.dataclass(frozen=True)
class Prescribed(QSTR):
  """A prompt's error is its first number, whatever the model says."""

  def score(self, apply, planted, prompts, sample):
    return prompts.tokens[:, 0, 0]


def plain_screen(before, loss, excess, now):
  """Returns (test loss, whether it is of all prompts, chunks read).

  Args:
    before: errors at the last full evaluation.
    loss: their mean.
    excess: chunks read since then, beyond the first of each check.
    now: errors at this check.
  """
  changes = (now - before)[:NUM_TEST]
  most = 0 if excess >= CHUNKS / 2 else min(12, CHUNKS - 1)
  for chunks in range(1, most + 1):
    n = chunks * CHUNK
    read = changes[:n]
    # The standard error of a mean of n out of NUM_TEST numbers without replacement.
    error = math.sqrt(np.var(read, ddof=1) / n * (1 - n / NUM_TEST))
    if loss + np.mean(read) - 4.5 * error > THRESHOLD:
      return loss + np.mean(read), False, chunks
  return np.mean(now[:NUM_TEST]), True, CHUNKS


@pytest.mark.parametrize("excess", [0, 3, 4])
def test_the_screen_is_its_formula(monkeypatch, excess):
  """Over losses from far above the threshold, where one chunk decides, to below it."""
  monkeypatch.setattr(online, "_CHUNK", CHUNK)
  task = Prescribed(length=3, token_dim=2)
  protocol = Online(thresholds=(0.9, THRESHOLD), num_test=NUM_TEST, max_samples=10_000)
  trial = protocol.trial(task, task, small.Linear())
  world, state = trial.world(small.seeds(0)), trial.init(small.seeds(0))
  # The upper threshold is passed already; the lower one is open.
  state = state._replace(step=jnp.int32(20), crossings=jnp.array([10, 0], jnp.int32))
  rng = np.random.default_rng(0)
  size = CHUNKS * CHUNK
  before = rng.uniform(0, 1, size).astype(np.float32)
  now = (before + 0.1 * rng.normal(size=size) - 0.02).astype(np.float32)
  tokens = world.test.tokens.at[:, 0, 0].set(now)
  world = world._replace(test=world.test._replace(tokens=tokens))

  def evaluated(loss):
    memory = online.Reference(jnp.array(before), loss, jnp.int32(excess))
    after = trial.evaluate(state._replace(memory=memory), world)
    return after.curve.loss[0], after.curve.exact[0], after.memory, after.crossings

  losses = np.linspace(0.4, 0.9, 101, dtype=np.float32)
  found, exact, memory, crossings = jax.jit(jax.vmap(evaluated))(losses)
  plain = [plain_screen(before, loss, excess, now) for loss in losses]
  expected, all_read, chunks = map(np.array, zip(*plain, strict=True))
  if excess < CHUNKS / 2:
    assert len(set(chunks)) > 3  # or this tests little
  np.testing.assert_array_equal(exact, all_read)
  np.testing.assert_allclose(found, expected, rtol=1e-5)
  # What the next check will know: all errors and nothing in excess, or what there was.
  np.testing.assert_array_equal(memory.excess, np.where(all_read, 0, excess + chunks - 1))
  np.testing.assert_allclose(memory.loss, np.where(all_read, expected, losses), rtol=1e-5)
  known = np.where(all_read[:, None], now, before)
  np.testing.assert_array_equal(memory.errors, known)
  # Passed where the loss of all prompts is below, and nowhere else.
  passed = all_read & (expected < THRESHOLD)
  np.testing.assert_array_equal(crossings[:, 1], np.where(passed, 20, 0))
  np.testing.assert_array_equal(crossings[:, 0], 10)
