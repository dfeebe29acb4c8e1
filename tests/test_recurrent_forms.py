"""The form of a recurrent layer that accelerators run, on a CPU beside the CPU's own."""

import functools
import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sepfx.models import GRU, LSTM, RNN, recurrent
from sepfx.models.recurrent import fused, gate_by_gate

pytestmark = pytest.mark.usefixtures("exact")

# Trials, prompts, dimensions of a token, units.
T, n, D, UNITS = 2, 3, 4, 5


def drawn(layer, N, dtype=np.float32):
  """Tokens and parameters of both directions for each trial."""
  rng, width = np.random.default_rng(N), layer.gates * UNITS
  shapes = (D, width), (UNITS, width), (width,), (width,)
  ways = [[0.4 * rng.normal(size=(T, *own)) for own in shapes] for _ in range(2)]
  return jax.tree.map(
    lambda a: jnp.asarray(a, dtype), (rng.normal(size=(T, N, n, D)), ways)
  )


def loss(form, layer, point):
  states = form(layer.cell, layer.gates, layer.num_carries, *point)
  return sum(jnp.sum(jnp.sin((k + 1) * h)) for k, h in enumerate(states))


def gradient(own, point):
  """Value and gradient."""
  return jax.value_and_grad(own)(point)


def over_reverse(own, point):
  """The gradient and a product of the Hessian, as probes take it."""
  return jax.jvp(jax.grad(own), (point,), (jax.tree.map(jnp.cos, point),))


def over_forward(own, point):
  """The same product the other way."""
  along = jax.tree.map(jnp.cos, point)
  return jax.grad(lambda point: jax.jvp(own, (point,), (along,))[1])(point)


# Two rounds of the loop; a step outside it; no loop; no step with a product.
@pytest.mark.parametrize(
  ("derivative", "layer", "N"),
  [
    (over_reverse, GRU, 5),
    (over_reverse, LSTM, 5),
    (over_reverse, RNN, 5),
    (gradient, GRU, 4),
    (gradient, GRU, 2),
    (gradient, GRU, 1),
    *(
      pytest.param(*own, marks=pytest.mark.slow)
      for own in (
        (over_forward, GRU, 4),
        (over_forward, LSTM, 5),
        (over_forward, RNN, 5),
        (gradient, GRU, 3),
        (gradient, LSTM, 8),
        (gradient, RNN, 8),
      )
    ),
  ],
)
def test_both_forms_have_the_same_derivatives(derivative, layer, N):
  """Of batched trials, each with its own weights."""
  point = drawn(layer, N)
  ours, plain = (
    jax.jit(jax.vmap(functools.partial(derivative, functools.partial(loss, form, layer))))
    for form in (fused, gate_by_gate)
  )
  chex.assert_trees_all_close(ours(point), plain(point), rtol=1e-4, atol=5e-5)


def test_numbers_of_64_bits_stay_so():
  with jax.enable_x64(True):
    point = drawn(GRU, 4, np.float64)
    ours, plain = (
      jax.jit(jax.vmap(functools.partial(loss, form, GRU)))(point)
      for form in (fused, gate_by_gate)
    )
    assert ours.dtype == np.float64
    np.testing.assert_allclose(ours, plain, rtol=1e-12)


@pytest.mark.parametrize(("num_outputs", "dtype"), [(None, "bfloat16"), (2, None)])
def test_layers_of_either_form(monkeypatch, num_outputs, dtype):
  """What is read of the states, with what CPUs run exchanged for the fused form."""
  layer = GRU(units=UNITS, num_outputs=num_outputs, dtype=dtype)
  x = np.random.default_rng(0).normal(size=(n, 4, D)).astype(np.float32)
  params = layer.init(jax.random.key(0), x)
  plain = jax.jit(layer.apply)(params, x)
  taken = []

  def noted(*args):
    taken.append(args)
    return fused(*args)

  monkeypatch.setattr(recurrent, "gate_by_gate", noted)
  ours = jax.jit(lambda params: layer.apply(params, x))(params)
  assert taken
  assert ours.dtype == plain.dtype == (dtype or np.float32)
  few = 0.02 if dtype else 1e-5  # bfloat16 has eight bits
  np.testing.assert_allclose(*map(np.float32, (ours, plain)), rtol=few, atol=few)


def equations(jaxpr, of_loop=False):
  """All of a traced function, and whether each is within a loop."""
  for own in jaxpr.eqns:
    yield of_loop, own
    within = of_loop or own.primitive.name in ("scan", "while")
    for inner in jax.tree.leaves(list(own.params.values()), is_leaf=_is_traced):
      if _is_traced(inner):
        yield from equations(getattr(inner, "jaxpr", inner), within)


def _is_traced(own):
  return hasattr(own, "jaxpr") or hasattr(own, "eqns")


def products(function, point):
  """Whether each product is within a loop, and its shape."""
  found = equations(jax.make_jaxpr(function)(point).jaxpr)
  return [
    (of_loop, own.outvars[0].aval.shape)
    for of_loop, own in found
    if own.primitive.name == "dot_general"
  ]


@pytest.mark.parametrize("layer", [GRU, LSTM, RNN])
def test_a_time_step_is_one_product_each_way(layer):
  """No gradient of a kernel stands in a loop; a scan's body is one step."""
  tokens, ways = jax.tree.map(lambda a: a[0], drawn(layer, 5))
  found = products(jax.grad(lambda ways: loss(fused, layer, (tokens, ways))), ways)
  width = layer.gates * UNITS
  loops = [shape for of_loop, shape in found if of_loop]
  assert loops == [(2, n, width), (2, n, UNITS)]
  # Inputs of all times, and both kernels' gradients.
  others = [sorted(shape) for of_loop, shape in found if not of_loop]
  expected = [(2, 5 * n, width), (2, UNITS, width), (2, D, width)]
  assert sorted(others) == sorted(map(sorted, expected))


@pytest.mark.parametrize(("N", "alone"), [(2, 1), (4, 1), (5, 0)])
def test_steps_outside_the_loop(N, alone):
  """The scan has no remainder, and the first step no product."""
  point = jax.tree.map(lambda a: a[0], drawn(GRU, N))
  found = [of_loop for of_loop, _ in products(functools.partial(loss, fused, GRU), point)]
  assert found.count(False) == 1 + alone  # one of the inputs
  jaxpr = jax.make_jaxpr(functools.partial(loss, fused, GRU))(point).jaxpr
  lengths = [
    own.params["length"] for _, own in equations(jaxpr) if own.primitive.name == "scan"
  ]
  assert lengths == [N - 1 - alone]


@pytest.mark.parametrize("platform", ["cpu", "cuda", "tpu"])
def test_which_platform_runs_which(platform):
  """Products of two directions at once have a dimension that is batched."""
  layer = GRU(units=UNITS)
  x = jnp.zeros((n, 5, D))
  params = jax.eval_shape(layer.init, jax.random.key(0), x)
  found = jax.jit(jax.grad(lambda params: jnp.sum(layer.apply(params, x)))).trace(params)
  lowered = found.lower(lowering_platforms=(platform,)).as_text()
  batched = re.findall(r"stablehlo\.dot_general.*batching_dims", lowered)
  # Of a step and its gradient, of all inputs, of the gradients of two kernels.
  assert len(batched) == (0 if platform == "cpu" else 5)
