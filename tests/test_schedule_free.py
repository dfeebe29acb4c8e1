"""Optimizers that are evaluated at other weights than those of their gradients."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

import sepfx
from sepfx.tasks import QSTR
from sepfx.training import ERM, evaluation_weights, penalised, projected
from tests import small

FREE = optax.contrib.schedule_free_adamw(0.05, b1=0.8)
PARAMS = {"a": jnp.arange(3.0), "b": {"c": jnp.ones((2, 2))}}
# How a schedule-free optimizer may be wrapped, and where its state is then.
WRAPPED = {
  "alone": (FREE, lambda state: state),
  "chain": (optax.chain(optax.clip_by_global_norm(1.0), FREE), lambda state: state[1]),
  "hyperparameters": (
    optax.inject_hyperparams(optax.contrib.schedule_free_adamw)(0.05, b1=0.8),
    lambda state: state.inner_state,
  ),
  "every other step": (optax.MultiSteps(FREE, 2), lambda state: state.inner_opt_state),
  "penalised": (penalised(FREE, lambda _: 0.1), lambda state: state[1]),
  "projected": (projected(FREE, lambda params: params), lambda state: state),
}


def steps(optimizer, params, count=4):
  """Parameters and state after a few steps on a sum of squares."""
  state = optimizer.init(params)
  for _ in range(count):
    updates, state = optimizer.update(params, state, params)
    params = optax.apply_updates(params, updates)
  return params, state


@pytest.mark.parametrize("form", WRAPPED)
def test_weights_are_those_that_optax_evaluates_at(form):
  optimizer, inner = WRAPPED[form]
  params, state = steps(optimizer, PARAMS)
  expected = optax.contrib.schedule_free_eval_params(inner(state), params)
  found = evaluation_weights(state, params)
  jax.tree.map(np.testing.assert_array_equal, found, expected)
  assert not np.allclose(found["a"], params["a"])


def test_parts_may_have_optimizers_of_their_own():
  labels = {"a": "free", "b": {"c": "other"}}
  optimizer = optax.partition({"free": FREE, "other": optax.sgd(0.1)}, labels)
  found = evaluation_weights(*steps(optimizer, PARAMS)[::-1])
  alone = evaluation_weights(*steps(FREE, PARAMS)[::-1])
  np.testing.assert_allclose(found["a"], alone["a"], rtol=1e-6)
  params, _ = steps(optax.sgd(0.1), PARAMS)
  np.testing.assert_allclose(found["b"]["c"], params["b"]["c"], rtol=1e-6)


def test_other_optimizers_are_evaluated_where_they_step():
  params, state = steps(optax.adam(0.1), PARAMS)
  assert evaluation_weights(state, params) is params


def weight(trial, params, world, key):
  """A probe: one number of the parameters that it is given."""
  return {"weight": params["Dense_0"]["kernel"][0, 0]}


@pytest.mark.usefixtures("exact")
def test_what_is_recorded_is_of_those_weights():
  """Against a loop over optax's own functions."""
  optimizer = optax.chain(optax.clip_by_global_norm(1.0), FREE)
  protocol = ERM(
    sample_size=20, threshold=1e-6, optimizer=optimizer, check_every=5, num_test=50,
    max_steps=10, watched="grad_norm",
  )  # fmt: skip
  task, model = QSTR(length=3, token_dim=2), small.Linear()
  records = sepfx.measure(
    task, model, 3, protocol, num_trials=1, probes=[weight], keep_weights=True,
    progress=False,
  )  # fmt: skip
  ((name, curve),) = records.all_curves.items()
  kept = records.models[name].params

  trial = protocol.trial(task, task, model)
  seeds = jax.tree.map(lambda a: a[0], sepfx.ensembles.Cell(trial).seeds(0, 1))
  world, y = trial.world(seeds), trial.init(seeds).params
  encoded = {
    key: (own.encode(world.planted, sample), sample.labels)
    for key, own, sample in (("train", task, world.sample), ("test", task, world.test))
  }

  def error(params, part):
    inputs, labels = encoded[part]
    return jnp.mean((model.apply({"params": params}, inputs) - labels) ** 2)

  gradient = jax.jit(jax.grad(lambda params: error(params, "train")))
  state = optimizer.init(y)
  for step in range(10):
    updates, state = optimizer.update(gradient(y), state, y)
    y = optax.apply_updates(y, updates)
    if step % 5 == 4:
      x = optax.contrib.schedule_free_eval_params(state[1], y)
      row = curve[step // 5]
      for field, value in (
        ("test_error", error(x, "test")),
        ("test_loss", error(x, "test")),
        ("train_error", error(x, "train")),
        ("train_loss", error(y, "train")),
      ):
        np.testing.assert_allclose(row[field], value, rtol=1e-4, err_msg=field)
      assert abs(error(x, "train") - error(y, "train")) > 1e-3 * error(y, "train")
      norm = jnp.linalg.norm(ravel_pytree(gradient(y))[0])
      np.testing.assert_allclose(row["grad_norm"], norm, rtol=1e-4)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), kept, x)
  assert records.probes["weight"] == kept["Dense_0"]["kernel"][0, 0]


def test_fresh_prompts_are_evaluated_there_too():
  protocol = dataclasses.replace(
    small.PROTOCOL, optimizer=FREE, max_samples=80, num_test=40, thresholds=(0.01,)
  )
  trial = dataclasses.replace(small.TRIAL, model=small.Linear(), protocol=protocol)
  world, state = trial.world(small.seeds(0)), trial.init(small.seeds(0))
  state = jax.jit(trial.advance)(state, world)
  x = optax.contrib.schedule_free_eval_params(state.opt_state, state.params)
  for params, same in ((x, True), (state.params, False)):
    errors = trial.errors(params, trial.task, world.test, world)[: protocol.num_test]
    assert np.allclose(state.curve.loss[0], jnp.mean(errors), rtol=1e-4) == same
