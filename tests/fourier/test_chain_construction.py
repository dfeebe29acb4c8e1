"""Parity by a chain of thought with cyclic positions (appendix G)."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.fourier.chain_of_thought.construction import cyclic_chain
from experiments.fourier.flatness.construction import (
  flat_transformer,
  squared_norms,
  trapezoids,
)
from sepfx import InvalidSetting
from sepfx.tasks.fourier import all_bits


@pytest.fixture(autouse=True)
def _double_precision():
  with jax.enable_x64(True):
    yield


def check_all_inputs(length, circles):
  built = cyclic_chain(length, circles)
  bits = np.asarray(all_bits(length))
  chain = np.cumsum(bits, axis=1) % 2
  np.testing.assert_array_equal(built(bits), chain)
  assert built.leak <= 1 / 16
  # The last step's output is within 0.1 of the sign, not on its right side alone.
  start = np.zeros((len(bits), 1), int)
  written = np.concatenate([bits, start, chain[:, :-1]], axis=1)
  np.testing.assert_allclose(built.step(written), 1 - 2.0 * chain[:, -1], atol=0.1)
  return built


@pytest.mark.slow
@pytest.mark.parametrize("circles", [None, 1])
def test_chain_is_right_on_all_inputs(circles):
  built = check_all_inputs(3, circles)
  width = 3 if circles is None else 2
  assert built.params["W_QK1"].shape == (width + 1, width + 1)


@pytest.mark.slow
@pytest.mark.parametrize(
  ("length", "circles"),
  [
    *((length, circles) for length in (1, 2) for circles in (None, 2)),
    *((7, circles) for circles in (None, 1, 2, 3)),
  ],
)
def test_chain_is_right_on_all_inputs_of_other_lengths(length, circles):
  check_all_inputs(length, circles)


def test_each_step_reads_the_next_bit_and_the_chain_before_it():
  T, step = 5, 3
  built = cyclic_chain(T, circles=2)
  tokens = np.asarray(built.tokens(np.zeros((1, T + step), int)))[0]
  assert tokens.shape == (T + step, 2 * 2 + 1)
  scores = tokens @ built.params["W_QK1"] @ tokens.T
  weights = np.asarray(jax.nn.softmax(jnp.asarray(scores)))[-1]
  np.testing.assert_allclose(weights[step - 1], weights[-1])
  assert 2 * weights[-1] >= 1 - built.leak
  # With less than half of the scale what is read is another number.
  weak = {**built.params, "W_QK1": 0.3 * built.params["W_QK1"]}
  off = dataclasses.replace(built, params=weak)
  bits = np.asarray(all_bits(T))
  written = np.concatenate([bits, np.zeros((32, 1), int)], axis=1)
  assert np.max(np.abs(off.step(written) - (1 - 2.0 * bits[:, 0]))) > 0.5


def test_norms_against_length():
  """Squared norms of the scores: T^(4 / m), against T log^2 T with one-hot positions."""

  def growth(circles, length):
    small, large = (
      squared_norms(cyclic_chain(T, circles))["W_QK1"] for T in (length, 16 * length)
    )
    return np.log(large / small) / np.log(16)

  assert growth(1, 64) == pytest.approx(4, abs=0.02)
  assert growth(2, 256) == pytest.approx(2, abs=0.05)
  assert growth(4, 4096) == pytest.approx(1, abs=0.15)
  one_hot = squared_norms(cyclic_chain(300))["W_QK1"]
  # Its scale is log((T - 1) (16 - 1)): a leak of 1/16.
  assert one_hot == pytest.approx(300 * np.log(299 * 15) ** 2, rel=1e-6)
  shapes = {cyclic_chain(T, 2).positions.shape[1] for T in (3, 30, 300)}
  assert shapes == {4}
  # Everything but the scores is the same for all T.
  small, large = (squared_norms(cyclic_chain(T, 2)) for T in (4, 400))
  assert all(
    small[name] == large[name] for name in small if "QK" not in name and name != "total"
  )


@pytest.mark.slow
def test_gradients_are_those_of_a_set_of_two_bits():
  """The simulation argument of Theorem 16's proof, in the MLP and the values.

  At a step the gradients are those of the construction for one set, the two tokens that
  the step reads. With larger scores, so that neither leaks.
  """
  T, step = 4, 2
  chain = cyclic_chain(T)
  sharp = {**chain.params}
  for name in ("W_QK1", "W_QK2"):
    sharp[name] = 8 * sharp[name]
  chain = dataclasses.replace(chain, params=sharp)
  sets = np.zeros((1, T + step))
  sets[0, [step - 1, T + step - 1]] = 1.0
  fixed = flat_transformer(sets, np.ones(1), beta=20.0)
  rng = np.random.default_rng(0)
  for written in rng.integers(0, 2, (4, T + step)):
    grads = []
    for built in (chain, fixed):
      tokens = built.tokens(written[None])
      grads.append(
        jax.grad(lambda p, b=built, t=tokens: b.model.apply({"params": p}, t)[0])(
          jax.tree.map(jnp.asarray, built.params)
        )
      )
    ours, its = grads
    assert float(jnp.max(jnp.abs(ours["b"]))) > 1
    np.testing.assert_allclose(ours["b"], its["b"], atol=1e-6)
    np.testing.assert_allclose(ours["F"][-1], its["F"][-1], atol=1e-6)
    np.testing.assert_allclose(ours["G"][:, -1], its["G"][:, -1], atol=1e-6)
    np.testing.assert_allclose(ours["W_V2"][0, -1, -1], its["W_V2"][0, -1, -1], atol=1e-6)


@pytest.mark.parametrize("convention", ["signs", "indicators"])
def test_trapezoids_are_flat_at_the_counts(convention):
  bias, heights = trapezoids(3, convention)
  for count in range(4):
    for off in (-0.24, 0.0, 0.24):
      value = heights @ np.maximum((count + off) / 3 + bias, 0)
      even = float(count % 2 == 0)
      expected = even if convention == "indicators" else 2 * even - 1
      assert value == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
  ("arguments", "message"),
  [((0,), "length: got 0"), ((4, 0), "circles: got 0, takes an integer >= 1, or None")],
)
def test_bad_chains_are_refused(arguments, message):
  with pytest.raises(InvalidSetting, match=message):
    cyclic_chain(*arguments)
