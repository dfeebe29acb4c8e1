"""The ERM protocol against a plain loop, and in ensembles."""

import dataclasses
import re

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

from sepfx import measure
from sepfx.ensembles import Cell, columns, keys, run
from sepfx.errors import InvalidSetting
from sepfx.tasks import QSTR, SparseBoolean
from sepfx.training import ERM, Online, Seeds, adam_with_kernel_decay, projected
from tests import small


class Logistic(nn.Module):
  """The smallest classifier of bits, with dropout where it is asked for."""

  dropout: float = 0.0

  @nn.compact
  def __call__(self, bits):
    drop = nn.Dropout(self.dropout, deterministic=not self.has_rng("dropout"))
    return nn.Dense(2)(drop(2.0 * bits - 1.0))


TASK = SparseBoolean(length=6, sparsity=2)
PROTOCOL = ERM(
  sample_size=40,
  threshold=0.02,
  optimizer=optax.adamw(3e-2),
  check_every=5,
  num_test=700,  # more than a chunk, and no multiple
  max_steps=103,
)
TRIAL = PROTOCOL.trial(TASK, TASK, Logistic())


def cross_entropy(logits, labels):
  return -np.mean(jax.nn.log_softmax(logits)[np.arange(len(labels)), labels])


def plain_trial(trial, own, steps):
  """Full-batch steps one by one; (test error, train error, train loss) at each check."""
  protocol = trial.protocol
  weights_key, data_key, test_key, _ = jax.random.split(own.trial, 4)
  sample_key, _ = jax.random.split(data_key)
  planted = trial.task.init(own.task)
  train = trial.task.sample(sample_key, planted, protocol.sample_size)
  test = trial.task.sample(test_key, planted, protocol.num_test)
  params = trial.model.init(weights_key, train.bits)["params"]
  state = protocol.optimizer.init(params)

  @jax.jit
  def step(params, state):
    def loss(params):
      logits = trial.model.apply({"params": params}, train.bits)
      picked = jnp.take_along_axis(logits, train.labels[:, None], axis=1)[:, 0]
      return jnp.mean(jax.scipy.special.logsumexp(logits, axis=1) - picked)

    updates, state = protocol.optimizer.update(jax.grad(loss)(params), state, params)
    return optax.apply_updates(params, updates), state

  points = []
  for k in range(1, steps + 1):
    params, state = step(params, state)
    if k % protocol.check_every == 0:
      of_test, of_train = (
        np.asarray(trial.model.apply({"params": params}, sample.bits))
        for sample in (test, train)
      )
      points.append(
        (
          np.mean(of_test.argmax(1) != test.labels),
          np.mean(of_train.argmax(1) != train.labels),
          cross_entropy(of_train, np.asarray(train.labels)),
        )
      )
  return np.array(points)


@pytest.mark.slow
def test_trial_is_a_plain_loop_over_one_sample():
  own = small.seeds(0)
  state = small.run_to_end(TRIAL, own)
  curve = TRIAL.curve(state)
  expected = plain_trial(TRIAL, own, curve["steps"][-1])
  np.testing.assert_allclose(curve["test_error"], expected[:, 0], atol=1e-6)
  np.testing.assert_allclose(curve["train_error"], expected[:, 1], atol=1e-6)
  np.testing.assert_allclose(curve["train_loss"], expected[:, 2], rtol=1e-4)
  (verdict,) = TRIAL.outcomes(state)
  # It learns, and ends where it does: the last check is the first below the threshold.
  assert verdict == (
    pytest.approx(1 - curve["test_error"].min()),
    curve["steps"][-1],
    "reached",
  )
  assert np.flatnonzero(curve["test_error"] < 0.02).tolist() == [len(curve["steps"]) - 1]


def test_run_to_end_is_the_same_trial_carried_on():
  own = small.seeds(0)
  longer = dataclasses.replace(
    TRIAL, protocol=dataclasses.replace(PROTOCOL, run_to_end=True)
  )
  stopped, carried = small.run_to_end(TRIAL, own), small.run_to_end(longer, own)
  short, long = TRIAL.curve(stopped), longer.curve(carried)
  assert len(long["steps"]) == 20  # 103 steps hold 20 checks
  np.testing.assert_array_equal(short, long[: len(short)])
  (early,), (late,) = TRIAL.outcomes(stopped), longer.outcomes(carried)
  assert (early.steps, early.outcome) == (late.steps, late.outcome)
  assert late.best == pytest.approx(1 - long["test_error"].min())


def test_censored_and_diverged():
  few = dataclasses.replace(
    TRIAL, protocol=dataclasses.replace(PROTOCOL, threshold=1e-9, sample_size=5)
  )
  state = small.run_to_end(few, small.seeds(0))
  (verdict,) = few.outcomes(state)
  assert verdict.outcome == "censored"
  assert verdict.steps == 100
  assert verdict.best == pytest.approx(1 - few.curve(state)["test_error"].min())
  schedule = optax.join_schedules(
    [optax.constant_schedule(0.1), optax.constant_schedule(float("nan"))], [12]
  )
  broken = dataclasses.replace(
    few, protocol=dataclasses.replace(few.protocol, optimizer=optax.sgd(schedule))
  )
  state = small.run_to_end(broken, small.seeds(0))
  (verdict,) = broken.outcomes(state)
  assert verdict.outcome == "diverged"
  assert 12 < verdict.steps <= 15


def test_an_epoch_takes_every_sample_once():
  protocol = dataclasses.replace(PROTOCOL, batch_size=8)
  trial = protocol.trial(TASK, TASK, Logistic())
  world = trial.world(small.seeds(0))
  whole = sorted(map(tuple, np.c_[world.sample.bits, world.sample.labels].tolist()))
  batch = jax.jit(trial.batch)
  orders = []
  for epoch in range(2):
    batches = [batch(world, 5 * epoch + k) for k in range(5)]
    assert all(len(each.labels) == 8 for each in batches)
    rows = [r for each in batches for r in np.c_[each.bits, each.labels].tolist()]
    assert sorted(map(tuple, rows)) == whole
    orders.append(rows)
  assert orders[0] != orders[1]
  # Where batches do not divide the sample, an epoch is of whole batches.
  odd = dataclasses.replace(PROTOCOL, batch_size=15).trial(TASK, TASK, Logistic())
  rows = [r for k in range(2) for r in odd.batch(world, k).bits.tolist()]
  assert len(rows) == 30


@pytest.mark.parametrize(("steps", "check_every"), [(3, 5), (67, 70), (100, 100)])
def test_batches_that_are_drawn_together_are_those_of_each_step(steps, check_every):
  """More steps than are drawn together, and no multiple of that."""
  protocol = dataclasses.replace(PROTOCOL, batch_size=16, check_every=check_every)
  trial = protocol.trial(TASK, TASK, Logistic())
  world, state = trial.world(small.seeds(0)), trial.init(small.seeds(0))

  @jax.jit
  def plain(params, opt_state, step):
    key = jax.random.fold_in(world.keys.dropout, step)
    grads = jax.grad(trial.loss)(params, trial.batch(world, step), world, key)
    updates, opt_state = protocol.optimizer.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state

  own = state.params, state.opt_state
  for step in range(steps):
    own = plain(*own, jnp.int32(step))
  found = jax.jit(trial.train)(state, world, steps)
  chex.assert_trees_all_close(found.params, own[0], rtol=1e-4, atol=1e-6)


def loops(program):
  """How deep in other loops each loop of a compiled program is."""
  parts = re.split(r"\n(?=(?:ENTRY )?%?[\w.-]+ [^\n]*\{\n)", program)
  named = [re.match(r"(ENTRY )?%?([\w.-]+) ", part) for part in parts]
  within = {own[2]: part for own, part in zip(named, parts, strict=True) if own}
  (entry,) = (own[2] for own in named if own and own[1])

  def of(name, depth):
    for line in within[name].splitlines():
      # Some compilers for CPUs make a loop of a scatter, which is one kernel elsewhere.
      is_loop = " while(" in line and "/scatter" not in line
      if is_loop:
        yield depth
      for inner in re.findall(r"(?:body|calls|to_apply)=%?([\w.-]+)", line):
        yield from of(inner, depth + is_loop)

  return sorted(of(entry, 0))


def test_no_loop_runs_within_a_step():
  """The rounds of an order are one loop for many steps, which runs beside theirs."""
  trial = dataclasses.replace(PROTOCOL, batch_size=16).trial(TASK, TASK, Logistic())
  seeds = Seeds(keys.key(0), keys.key(1))  # as in lanes
  shapes = trial.state_shapes(), jax.eval_shape(trial.world, seeds)
  several = jax.tree.map(lambda a: jax.ShapeDtypeStruct((3, *a.shape), a.dtype), shapes)
  for train, arguments in ((trial.train, shapes), (jax.vmap(trial.train), several)):
    steps = jax.ShapeDtypeStruct(arguments[0].step.shape, jnp.int32)
    program = jax.jit(train).lower(*arguments, steps).compile().as_text()
    assert loops(program) == [0, 1, 1]


@pytest.mark.slow
def test_dropout_is_drawn_anew_each_step_and_off_in_evaluation():
  dropping = dataclasses.replace(TRIAL, model=Logistic(dropout=0.5))
  own = small.seeds(0)
  world = dropping.world(own)
  state = dropping.init(own)
  one = dropping.train(state, world, 1)
  other = dropping.train(state._replace(step=jnp.int32(1)), world, 1)
  with pytest.raises(AssertionError):
    chex.assert_trees_all_close(one.params, other.params)
  # At the same weights both models are measured the same.
  measured = [t.evaluate(state, world).curve.test_error[0] for t in (TRIAL, dropping)]
  assert measured[0] == measured[1]


def test_projected_steps_stay_in_the_ball():
  radius = 0.5
  optimizer = projected(
    optax.adam(3e-2), lambda params: optax.projections.projection_l2_ball(params, radius)
  )
  constrained = dataclasses.replace(
    TRIAL, protocol=dataclasses.replace(PROTOCOL, optimizer=optimizer)
  )
  own = small.seeds(0)
  world, state = constrained.world(own), constrained.init(own)
  advance = jax.jit(constrained.advance)
  norms = []
  for _ in range(8):
    state = advance(state, world)
    norms.append(float(jnp.linalg.norm(ravel_pytree(state.params)[0])))
  assert max(norms) <= radius * (1 + 1e-5)
  assert norms[-1] == pytest.approx(radius, rel=1e-5)  # the constraint binds


def test_decay_is_on_kernels_alone():
  params = {
    "query_kernel": jnp.ones(2),
    "dense": {"kernel": jnp.ones(2), "bias": jnp.ones(2)},
    "token": jnp.ones(2),
  }
  optimizer = adam_with_kernel_decay(0.1, weight_decay=0.5, clip_norm=0.0)
  zeros = jax.tree.map(jnp.zeros_like, params)
  steps, _ = optimizer.update(zeros, optimizer.init(params), params)
  decayed = jax.tree.map(lambda a: -0.05 * jnp.ones_like(a), params)
  decayed["dense"]["bias"] = decayed["token"] = jnp.zeros(2)
  chex.assert_trees_all_close(steps, decayed)


def test_clipping_is_of_the_global_norm():
  params = {"a": jnp.zeros(2), "b": jnp.zeros(1)}
  grads = {"a": jnp.array([3.0, 0.0]), "b": jnp.array([4.0])}
  later = jax.tree.map(lambda g: 0.01 * g, grads)  # too small to be clipped
  steps = {}
  for clip in (1.0, 0.0):
    optimizer = adam_with_kernel_decay(1.0, weight_decay=0.0, clip_norm=clip)
    _, state = optimizer.update(grads, optimizer.init(params), params)
    steps[clip], _ = optimizer.update(later, state, params)
  # Adam, by hand: the first gradient is a fifth of itself where it is clipped.
  for clip, first in ((1.0, 0.2), (0.0, 1.0)):
    mean = (0.9 * 0.1 * first + 0.1 * 0.01) / (1 - 0.9**2)
    square = (0.999 * 0.001 * first**2 + 0.001 * 0.01**2) / (1 - 0.999**2)
    np.testing.assert_allclose(steps[clip]["b"], -mean / np.sqrt(square), rtol=1e-3)


@pytest.mark.slow
def test_prompts_too():
  """Risk against n for a fixed sample of qSTR."""
  protocol = ERM(threshold=0.5, check_every=5, num_test=300, max_steps=20)
  task = QSTR(length=3, token_dim=2)
  records = measure(
    task, [small.Linear()], [3], protocol, axes={"sample_size": [4]}, num_trials=2
  ).table
  assert records.dtype.names == (
    "task", "model", "length", "sample_size", "trial", "risk", "steps", "outcome",
  )  # fmt: skip
  assert records["sample_size"].tolist() == [4, 4]
  assert records["trial"].tolist() == [0, 1]
  assert np.all((records["risk"] > 0.5) & (records["risk"] < 10))


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [1, 3])
def test_an_ensemble_is_its_trials(lanes):
  cell = Cell(dataclasses.replace(TRIAL, model_name="m"))
  assert tuple(columns([cell]))[-5:] == (
    "sample_size",
    "trial",
    "accuracy",
    "steps",
    "outcome",
  )
  results = {r.trial: r for r in run([cell], seed=0, num_trials=3, lanes=lanes)}
  seeds = cell.seeds(0, 3)
  for k in range(3):
    state = small.run_to_end(TRIAL, jax.tree.map(lambda a, k=k: a[k], seeds))
    expected, own = TRIAL.curve(state), results[k].curve
    np.testing.assert_allclose(own["train_loss"], expected["train_loss"], rtol=1e-3)
    assert results[k].outcomes[0].outcome == TRIAL.outcomes(state)[0].outcome
    assert results[k].rows[0][:5] == ("and", "m", 6, 40, k)


@pytest.mark.slow
def test_cells_of_a_grid_differ_in_their_sample_size():
  found = measure(
    TASK, [Logistic()], [6, 5], dataclasses.replace(PROTOCOL, max_steps=5),
    axes={"sample_size": [20, 30]}, num_trials=1,
  )  # fmt: skip
  assert found.table["sample_size"].tolist() == [20, 30, 20, 30]
  assert found.names()[0] == "task=and/model=Logistic/length=5/sample_size=20/trial=0"
  for models, protocol, message in (
    (Logistic(), Online(thresholds=(0.1,)), "sample_size: got 20, takes a field of"),
    (Logistic(), ERM(threshold=0.25), "the error of the best constant"),
    (small.Linear(), ERM(), r"inputs \[2, 6\] to outputs \[2, 2\]"),
  ):
    with pytest.raises(InvalidSetting, match=message):
      measure(TASK, models, 6, protocol, axes={"sample_size": [20]})


@pytest.mark.parametrize(
  ("setting", "settings"),
  [
    ("sample_size", {"sample_size": 0}),
    ("watched", {"watched": "accuracy"}),
    ("l2", {"l2": -0.1}),
    ("init_scale", {"init_scale": 0.0}),
    ("threshold", {"threshold": 0.0}),
    ("threshold", {"threshold": float("nan")}),
    ("batch_size", {"batch_size": 101}),
    ("batch_size", {"batch_size": 0}),
    ("check_every", {"check_every": 0}),
    ("num_test", {"num_test": 0}),
    ("max_steps", {"max_steps": 9}),
  ],
)
def test_bad_protocols_are_refused(setting, settings):
  with pytest.raises(InvalidSetting) as error:
    ERM(**settings)
  assert error.value.setting == setting
