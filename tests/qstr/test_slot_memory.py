"""A recurrent network that solves 1STR: exact, of width N."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.qstr.bounds.lower_bounds import least_norm, least_width
from experiments.qstr.constructions.slots import slot_memory
from sepfx.errors import InvalidSetting
from sepfx.tasks import QSTR, Mean


def built_and_asked(length, num_prompts=200, **fields):
  task = QSTR(length=length, token_dim=5, codes="incoherent", **fields)
  planted = task.init(jax.random.key(length))
  prompts = task.sample(jax.random.key(7), planted, num_prompts)
  precise = jnp.result_type(float)
  planted = jax.tree.map(lambda leaf: jnp.asarray(leaf, precise), planted)
  prompts = prompts._replace(tokens=jnp.asarray(prompts.tokens, precise))
  labels = task.label(planted, prompts.tokens, prompts.indices)
  radius = float(jnp.max(jnp.abs(prompts.tokens @ planted.link[0])))
  built = slot_memory(task, planted, radius=radius)
  return built, task.encode(planted, prompts), labels, prompts


@pytest.mark.parametrize(
  "dtype", [np.float64, pytest.param(np.float32, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
  ("length", "prefactor"),
  [
    (4, True),
    *(pytest.param(length, False, marks=pytest.mark.slow) for length in (16, 64)),
  ],
)
def test_it_is_exact(length, prefactor, dtype):
  with jax.enable_x64(dtype == np.float64):
    built, inputs, labels, prompts = built_and_asked(length, encoding_prefactor=prefactor)
    with jax.default_matmul_precision("highest"):
      found = jax.jit(built.model.apply)({"params": built.params}, inputs)
    assert found.dtype == dtype
    errors = np.abs(np.asarray(found - labels))
    # Positions that name themselves, an earlier and a later one are all among them.
    ways = np.sign(np.asarray(prompts.indices)[..., 0] - np.arange(length))
  assert {*np.unique(ways)} == {-1, 0, 1}
  assert np.max(errors) <= (1e-11 if dtype == np.float64 else 1e-4)


@pytest.mark.slow
def test_squared_norm_grows_like_the_length():
  squares, lengths = [], (8, 16, 32, 64, 128)
  for N in lengths:
    task = QSTR(length=N, token_dim=5, codes="incoherent")
    built = slot_memory(task, task.init(jax.random.key(N)), radius=4.0)
    squares.append(built.squared_norm)
    of_operator, of_frobenius = built.state_norms
    # Its risk is zero: it lies above both bounds of Proposition 8 for a risk of 0.01,
    # far above that of the norm.
    assert built.model.units == N > least_width(N, 0.01, of_operator)
    assert of_frobenius > least_norm(N, 0.01)
  growth = np.diff(np.log(squares)) / np.diff(np.log(lengths))
  np.testing.assert_allclose(growth, 1, atol=0.1)


@pytest.mark.slow
def test_u_reads_the_states():
  """L ||U|| bounds how far a change of the states moves a prediction."""
  built, *_ = built_and_asked(8, num_prompts=4)
  read = built.params["hidden_1"]["kernel"][: 2 * built.model.units]
  np.testing.assert_array_equal(read[:8, :8], np.eye(8))
  assert not np.any(read[:, 8:])
  later = built.params["hidden_2"]["kernel"], built.params["output"]["kernel"]
  product = np.prod([np.linalg.norm(own, 2) for own in later])
  of_operator, _ = built.state_norms
  expected = built.model.radius * product * np.sqrt(2)  # both directions add up
  assert of_operator == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
  ("fields", "radius", "words"),
  [
    ({"sparsity": 2}, 1.0, "sparsity: got 2, takes 1"),
    ({"link": Mean()}, 1.0, "link: got 'mean', takes linear"),
    (
      {"codes": "rademacher", "code_dim": 3},
      1.0,
      "codes: got 'coherence 1', takes codes",
    ),
    ({}, 0.0, "radius: got 0.0, takes a positive number"),
  ],
)
def test_what_it_cannot_serve_is_refused(fields, radius, words):
  task = QSTR(**{"length": 12, "token_dim": 3, "codes": "incoherent", **fields})
  planted = task.init(jax.random.key(0))
  with pytest.raises(InvalidSetting, match=words):
    slot_memory(task, planted, radius=radius)


@pytest.mark.slow
def test_balanced_weights_compute_the_same_at_the_least_norm():
  with jax.enable_x64(True):
    built, inputs, labels, _ = built_and_asked(16, num_prompts=50)
    own = built.balanced()
    assert own.model.radius == 1
    with jax.default_matmul_precision("highest"):
      found = jax.jit(own.model.apply)({"params": own.params}, inputs)
    np.testing.assert_allclose(found, labels, atol=1e-10)
    # L ||U|| is that of the function, whatever the scales.
    np.testing.assert_allclose(own.state_norms, built.state_norms, rtol=1e-9)
    assert own.squared_norm < built.squared_norm / 2
    # No scale of a hidden layer makes it smaller.
    layers = (
      (("forward", "W_1"), ("forward", "b_1"), ("backward", "W_1"), ("backward", "b_1")),
      (("hidden_1", "kernel"), ("hidden_1", "bias")),
    )
    following = (("forward", "W_2"), ("backward", "W_2")), (("hidden_2", "kernel"),)
    last = (("hidden_2", "kernel"), ("hidden_2", "bias")), (("output", "kernel"),)
    pairs = [*zip(layers, following, strict=True), last]
    for pair in pairs:
      squares = [
        sum(float(np.sum(np.square(own.params[k][name]))) for k, name in part)
        for part in pair
      ]
      assert squares[0] == pytest.approx(squares[1], rel=1e-3)
