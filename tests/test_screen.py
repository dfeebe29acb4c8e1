"""The screen of the online protocol against its formula, in a plain loop."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sepfx.ensembles import Cell, Lanes, advance, leaves_of
from sepfx.ensembles.advance import START
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


def prescribed(before, now, loss, excess=0):
  """A trial, its world, and its state at a check with these errors."""
  task = Prescribed(length=3, token_dim=2)
  protocol = Online(thresholds=(0.9, THRESHOLD), num_test=NUM_TEST, max_samples=10_000)
  trial = protocol.trial(task, task, small.Linear())
  world, state = trial.world(small.seeds(0)), trial.init(small.seeds(0))
  # The upper threshold is passed already; the lower one is open.
  memory = online.Reference(jnp.array(before), jnp.float32(loss), jnp.int32(excess))
  state = state._replace(
    step=jnp.int32(20), crossings=jnp.array([10, 0], jnp.int32), memory=memory
  )
  tokens = world.test.tokens.at[:, 0, 0].set(now)
  return trial, state, world._replace(test=world.test._replace(tokens=tokens))


def errors(rng):
  """Of all prompts, at the last full evaluation and now."""
  size = CHUNKS * CHUNK
  before = rng.uniform(0, 1, size).astype(np.float32)
  return before, (before + 0.1 * rng.normal(size=size) - 0.02).astype(np.float32)


@pytest.mark.parametrize("excess", [0, 3, 4])
def test_the_screen_is_its_formula(monkeypatch, excess):
  """Over losses from far above the threshold, where one chunk decides, to below it."""
  monkeypatch.setattr(online, "CHUNK", CHUNK)
  before, now = errors(np.random.default_rng(0))
  trial, state, world = prescribed(before, now, 0)

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


def test_a_glance_is_the_screen_on_its_prompts(monkeypatch):
  """Where lanes are batched: one look, at no more and no fewer prompts than its own."""
  monkeypatch.setattr(online, "CHUNK", CHUNK)
  monkeypatch.setattr(online, "GLANCE", 9)
  before, now = errors(np.random.default_rng(1))
  change = (now - before)[:9]
  margin = 4.5 * math.sqrt(np.var(change, ddof=1) / 9 * (1 - 9 / NUM_TEST))
  decisions = []
  for loss in np.linspace(0.4, 1.2, 17):
    trial, state, world = prescribed(before, now, loss, excess=3)
    after, decided = trial.glance(state, world)
    estimate = loss + np.mean(change)
    assert bool(decided) == (estimate - margin > THRESHOLD)
    decisions.append(bool(decided))
    if decided:
      assert float(after.curve.loss[0]) == pytest.approx(estimate, rel=1e-5)
      assert not after.curve.exact[0]
      assert (after.checks, after.memory.excess, after.active) == (1, 3, True)
      np.testing.assert_array_equal(after.memory.errors, before)
  assert len(set(decisions)) == 2
  _, decided = trial.glance(
    state._replace(memory=state.memory._replace(loss=jnp.float32(np.nan))), world
  )
  assert not decided


@pytest.mark.parametrize("part", [7, 8, 1000])  # the last part overlaps, or does not
def test_an_evaluation_in_full_reads_all(monkeypatch, part):
  monkeypatch.setattr(online, "CHUNK", CHUNK)
  monkeypatch.setattr(online, "PART", part)
  before, now = errors(np.random.default_rng(2))
  trial, state, world = prescribed(before, now, 0.6, excess=3)
  after = trial.evaluate_in_full(state, world)
  np.testing.assert_array_equal(after.memory.errors, now)
  assert after.memory.excess == 0
  loss = np.mean(now[:NUM_TEST])
  assert float(after.curve.loss[0]) == pytest.approx(loss, rel=1e-5)
  assert float(after.memory.loss) == pytest.approx(loss, rel=1e-5)
  assert after.curve.exact[0]
  assert after.crossings.tolist() == [10, 20 if loss < THRESHOLD else 0]


def test_a_trial_with_an_evaluation_of_its_own_does_not_glance():
  class Own(type(small.TRIAL)):
    def evaluate(self, state, world):
      return super().evaluate(state, world)

  fields = dataclasses.fields(small.TRIAL)
  own = Own(*(getattr(small.TRIAL, field.name) for field in fields))
  assert small.TRIAL.glances
  assert not own.glances
  assert not small.with_protocol(small.TRIAL, screen=False).glances
  assert not small.with_protocol(small.TRIAL, num_test=500).glances


@pytest.mark.slow
@pytest.mark.parametrize("groups", [1, 2, 4, 8])
def test_batched_lanes_have_the_passages_of_trials_that_read_all(monkeypatch, groups):
  """Six of them, of which some glance and some read all at the same check."""
  monkeypatch.setattr(advance, "_GROUPS", groups)
  monkeypatch.setattr(online, "GLANCE", 130)
  cell = Cell(small.TRIAL)
  seeds = cell.seeds(5, 6)
  key_data = tuple(np.asarray(jax.random.key_data(keys)) for keys in seeds)
  lanes = Lanes(cell.trial, jax.devices()[:1], 6, mapped=False)
  leaves = tuple(np.stack([leaf] * 6) for leaf in leaves_of(cell.trial))
  report = jax.device_get(lanes.advance(key_data, leaves, np.full(6, START), 300))
  together = np.asarray(report.curve.exact)
  apart = [
    any(together[:, k]) and not all(together[:, k]) for k in range(min(report.checks))
  ]
  assert any(apart)
  full = small.with_protocol(cell.trial, screen=False)
  for k in range(6):
    own = jax.tree.map(lambda field, k=k: field[k], report)
    state = small.run_to_end(full, jax.tree.map(lambda a, k=k: a[k], seeds))
    assert not own.active
    assert full.outcomes(state) == cell.trial.outcomes(own)
    found, expected = cell.trial.curve(own), full.curve(state)
    read_all = found["exact"]
    np.testing.assert_allclose(
      found["loss"][read_all], expected["loss"][read_all], rtol=1e-4
    )
