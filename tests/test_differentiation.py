"""Every model can be differentiated twice, in both modes."""

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
  """Functions of a key: a model's loss, and parameters away from where it has kinks."""
  task, model = TASKS[kind], small(kind, name)

  def draw(key):
    planted = task.init(key)
    sample = task.sample(key, planted, 2)
    return task.encode(planted, sample), sample.labels

  def loss_of(key):
    inputs, labels = draw(key)

    def loss(params):
      outputs = models.predict(model, params, inputs)
      return jnp.mean(task.objective.loss(outputs, labels))

    return loss

  def init(key):
    params = model.init(key, draw(key)[0])["params"]
    return jax.tree.map(lambda a: a + 0.1 * jax.random.normal(key, a.shape), params)

  return loss_of, init


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
def test_every_model_has_both_modes(kind, name):
  """A rule for reverse mode alone refuses to be lowered: nothing is compiled."""
  loss_of, init = trial_of(kind, name)

  def forward(key):
    params = init(key)
    return jax.jvp(loss_of(key), (params,), (params,))[1]

  lowered = jax.jit(forward).lower(jax.random.key(1))
  assert lowered.out_info.shape == ()


# A recurrent network on bits is the one on tokens behind an embedding, which the
# feedforward network has, too.
ONCE = [
  own for own in NAMED if own[0] != "classification" or own[1] not in ("gru", "lstm")
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), ONCE)
def test_second_derivatives_are_the_same_in_both_modes(kind, name):
  loss_of, init = trial_of(kind, name)

  def found(key):
    keys = jax.random.split(key, 3)
    along = init(keys[2])
    return *in_both_modes(loss_of(keys[0]), init(keys[1]), along), along

  # Little optimised: the compiler takes most of the time.
  cheap = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
  compute = jax.jit(found, compiler_options=cheap)
  vectors, twice_forward, (forward, reverse), along = compute(jax.random.key(1))
  expected, *others = vectors
  scale = max(float(jnp.max(jnp.abs(a))) for a in jax.tree.leaves(expected))
  assert scale > 0
  for other in others:
    chex.assert_trees_all_close(other, expected, rtol=1e-4, atol=1e-5 * scale)
  chex.assert_trees_all_close(forward, reverse, rtol=1e-4, atol=1e-5)
  second = dot(expected, along)
  chex.assert_trees_all_close(twice_forward, second, rtol=1e-3, atol=1e-4 * scale)
