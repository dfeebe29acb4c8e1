"""Every model can be differentiated twice, in both modes."""

import functools

import chex
import jax
import jax.numpy as jnp
import pytest

from sepfx import models
from sepfx.tasks import QSTR, FourierSparse, ParityChain, SparseBoolean

TASKS = {
  "regression": QSTR(length=3, token_dim=2),
  "regression_on_bits": FourierSparse(length=4, degree=2, num_components=2),
  "steps": ParityChain(length=4),
  "classification": SparseBoolean(length=4, sparsity=2),
}
# Fields that make a model small, with more units than prompts where that is another way.
SMALL = {
  "width": 4, "units": 3, "head_dim": 4, "embedding_dim": 4, "mlp_width": 4,
  "hidden_widths": (5,), "transition_widths": (4,), "num_heads": 1, "num_layers": 1,
}  # fmt: skip
NAMED = [(kind, name) for kind, names in models.NAMES.items() for name in names]


def small(kind, name):
  """The published model of this name with as few units as can be."""
  built = models.build(name, TASKS[kind])
  fields = {key: value for key, value in SMALL.items() if models.has_field(built, key)}
  return models.with_fields(built, fields)


def dot(u, v):
  return sum(jax.tree.leaves(jax.tree.map(lambda a, b: jnp.sum(a * b), u, v)))


def trial_of(kind, name):
  """A loss of the model's parameters, and parameters away from where it has kinks."""
  task, key = TASKS[kind], jax.random.key(0)
  model = small(kind, name)
  planted = task.init(key)
  sample = task.sample(key, planted, 2)
  inputs = task.encode(planted, sample)

  def loss(params):
    outputs = models.predict(model, params, inputs)
    return jnp.mean(task.objective.loss(outputs, sample.labels))

  def init(key):
    params = model.init(key, inputs)["params"]
    return jax.tree.map(lambda a: a + 0.1 * jax.random.normal(key, a.shape), params)

  return loss, init


def in_both_modes(loss, params, along):
  """The second derivative along a direction in three orders, and numbers to compare."""

  def forward(own):
    return jax.jvp(loss, (own,), (along,))[1]

  gradient = jax.grad(loss)
  vectors = (
    jax.grad(lambda own: dot(gradient(own), along))(params),
    jax.jvp(gradient, (params,), (along,))[1],
    jax.grad(forward)(params),
  )
  twice_forward = jax.jvp(forward, (params,), (along,))[1]
  return vectors, twice_forward, (forward(params), dot(gradient(params), along))


@pytest.mark.parametrize(("kind", "name"), NAMED)
def test_every_model_has_second_derivatives_in_both_modes(kind, name):
  """Shapes alone: a rule for one mode is found without computing."""
  loss, init = trial_of(kind, name)
  params = jax.eval_shape(init, jax.random.key(1))
  vectors, *_ = jax.eval_shape(functools.partial(in_both_modes, loss), params, params)
  for found in vectors:
    chex.assert_trees_all_equal_shapes(found, params)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), NAMED)
def test_second_derivatives_are_the_same_in_both_modes(kind, name):
  loss, init = trial_of(kind, name)
  params, along = init(jax.random.key(1)), init(jax.random.key(2))
  # Little optimised: the compiler takes most of the time.
  cheap = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
  compute = jax.jit(functools.partial(in_both_modes, loss), compiler_options=cheap)
  (expected, *others), twice_forward, (forward, reverse) = compute(params, along)
  scale = max(float(jnp.max(jnp.abs(a))) for a in jax.tree.leaves(expected))
  assert scale > 0
  for found in others:
    chex.assert_trees_all_close(found, expected, rtol=1e-4, atol=1e-5 * scale)
  chex.assert_trees_all_close(forward, reverse, rtol=1e-4, atol=1e-5)
  second = dot(expected, along)
  chex.assert_trees_all_close(twice_forward, second, rtol=1e-3, atol=1e-4 * scale)
