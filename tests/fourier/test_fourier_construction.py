"""The flat Transformer for functions with few Fourier components, and its Hessian."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from experiments.fourier.flatness import construction as fourier
from sepfx import InvalidSetting
from sepfx.tasks import FourierSparse
from sepfx.tasks.fourier import all_bits


@pytest.fixture(autouse=True)
def _double_precision():
  with jax.enable_x64(True):
    yield


def planted(length, degree, k, seed=0, **settings):
  """Sets and coefficients in double precision."""
  task = FourierSparse(length=length, degree=degree, num_components=k, **settings)
  sets, c = (np.asarray(a, float)[:k] for a in task.init(jax.random.key(seed)))
  return sets, c / np.linalg.norm(c)


def values(sets, c, bits, convention="signs"):
  """f by its definition."""
  chi = np.stack([np.prod(np.where(own == 1, 1 - 2 * bits, 1), axis=1) for own in sets])
  return c @ (chi if convention == "signs" else (1 + chi) / 2)


@pytest.mark.slow
@pytest.mark.parametrize("convention", ["signs", "indicators"])
@pytest.mark.parametrize("length", [8, 10, 12])
def test_construction_computes_the_function(length, convention):
  bits = np.asarray(all_bits(length))
  for degree in (1, 2, 3, 4):
    for k in (1, 3, length):
      sets, c = planted(length, degree, k)
      built = fourier.flat_transformer(sets, c, convention=convention)
      error = np.abs(built(bits) - values(sets, c, bits, convention))
      assert np.max(error) <= 1e-9


@pytest.mark.slow
def test_more_heads_for_signs_and_the_last_token_for_mixed_sizes():
  bits = np.asarray(all_bits(9))
  for settings in ({"signed": True}, {"mixed": True}, {"signed": True, "mixed": True}):
    sets, c = planted(9, 4, 7, **settings)
    built = fourier.flat_transformer(sets, c)
    assert built.model.num_heads == 1 + bool(settings.get("signed"))
    np.testing.assert_allclose(built(bits), values(sets, c, bits), atol=1e-9)
  assert len(set(sets.sum(axis=1))) > 1
  negative = fourier.flat_transformer(sets[:2], np.array([-0.5, -2.0]))
  assert negative.model.num_heads == 1
  expected = values(sets[:2], np.array([-0.5, -2.0]), bits)
  np.testing.assert_allclose(negative(bits), expected, atol=1e-9)


@pytest.mark.slow
def test_leak_decides():
  """Exact up to the leak that a trapezoid bears; refused beyond it."""
  sets, c = planted(8, 3, 4)
  bits = np.asarray(all_bits(8))
  # leak = (T + 1 - d) / (d T^beta + T + 1 - d) = 1 / (4 d)
  critical = math.log(6 * (4 * 3 - 1) / 3) / math.log(8)
  built = fourier.flat_transformer(sets, c, beta=critical + 1e-6)
  assert built.leak == pytest.approx(1 / 12, rel=1e-5)
  np.testing.assert_allclose(built(bits), values(sets, c, bits), atol=1e-9)
  with pytest.raises(InvalidSetting, match=r"beta: .*the leak, here 0.0833"):
    fourier.flat_transformer(sets, c, beta=critical - 1e-6)
  # With less than half the scale the function is another.
  weak = dict(built.params, W_QK1=0.4 * built.params["W_QK1"])
  off = dataclasses.replace(built, params=weak)(bits) - values(sets, c, bits)
  assert np.max(np.abs(off)) > 0.5


def test_attention_is_uniform_on_each_set():
  sets, c = planted(8, 3, 4)
  built = fourier.flat_transformer(sets, c)
  tokens = built.tokens(np.asarray(all_bits(8))[77:78])
  attention = jax.nn.softmax(tokens @ built.params["W_QK1"] @ tokens.swapaxes(1, 2))[0]
  np.testing.assert_allclose(np.sum(attention[:4, :8] * sets, axis=1), 1 - built.leak)
  on_set = np.where(sets == 1, attention[:4, :8], np.nan)
  np.testing.assert_allclose(np.nanmin(on_set, axis=1), np.nanmax(on_set, axis=1))
  np.testing.assert_allclose(attention[4:], 1 / 9)  # rows of no set


def test_norms_are_of_the_form_of_theorem_10():
  for degree, k in ((1, 3), (2, 8), (4, 5)):
    sets, c = planted(8, degree, k)
    built = fourier.flat_transformer(sets, c)
    own = fourier.squared_norms(built)
    form = fourier.theorem_10(c, degree, 8, built.beta)
    for name in ("W_QK1", "W_V1", "F", "G", "W_V2", "w"):
      assert own[name] == pytest.approx(form[name]), name
    assert own["b"] <= form["b"]
    assert form["b"] < 4 * own["b"]
    total = sum(np.sum(a**2) for a in jax.tree.leaves(built.params))
    assert own["total"] == pytest.approx(total)


def test_the_shift_is_cheaper_than_fixed_low_scores():
  """Rows of no component could get -50 each instead."""
  sets, c = planted(12, 2, 4)
  built = fourier.flat_transformer(sets, c)
  fixed = np.sum(np.log(c) ** 2) + (13 - 4) * 50.0**2
  assert 10 * fourier.squared_norms(built)["W_QK2"] < fixed


@pytest.mark.slow
def test_projected_positions():
  """The error falls with the dimension (appendix B.2)."""
  sets, c = planted(10, 2, 3)
  bits = np.asarray(all_bits(10))[::7]
  built = fourier.flat_transformer(sets, c, beta=2.6)
  errors = []
  for dim in (100, 3000):
    other = fourier.projected(built, dim, seed=0)
    tokens = other.tokens(bits[:1])
    assert tokens.shape == (1, 11, dim + 1)
    scores = (tokens @ other.params["W_QK1"] @ tokens.swapaxes(1, 2))[0]
    errors.append(np.max(np.abs(scores - built.params["W_QK1"][:-1, :-1])))
  assert errors[1] < errors[0] / 2.5
  # With few dimensions the function is another. It takes very many: the second
  # attention's scores are about 25, and a fixed part of that is lost to 1/sqrt(dim).
  expected = values(sets, c, bits)
  few, many = (
    np.max(np.abs(fourier.projected(built, dim, seed=1)(bits) - expected))
    for dim in (10, 3000)
  )
  assert few > 1 > 3 * many


@pytest.mark.usefixtures("unchecked_arrays")
@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"sets": np.zeros((1, 4))}, "sets: .* none of them empty"),
    ({"sets": np.full((1, 4), 0.5)}, "masks of 0 and 1"),
    ({"sets": np.eye(4)[:, :3] + np.eye(4)[:, 1:], "coefficients": np.ones(4)},
     "from 1 to T = 3 sets"),
    ({"coefficients": np.ones(2)}, "coefficients: .* 1 finite numbers"),
    ({"coefficients": np.zeros(1)}, "none of them 0"),
    ({"tolerance": 0.0}, "tolerance: got 0.0"),
    ({"convention": "sign"}, "convention: got 'sign', takes signs or indicators"),
  ],
)  # fmt: skip
def test_bad_constructions_are_refused(changes, message):
  settings = {"sets": np.eye(4)[:1], "coefficients": np.ones(1), **changes}
  with pytest.raises(InvalidSetting, match=message):
    fourier.flat_transformer(**settings)


def loss_of(built, sets, c, bits):
  """The mean squared error on some inputs as a function of all weights in one vector."""
  flat, unravel = ravel_pytree(jax.tree.map(jnp.asarray, built.params))
  labels = values(sets, c, bits)
  tokens = built.tokens(bits)

  def loss(vector):
    outputs = built.model.apply({"params": unravel(vector)}, tokens)
    return jnp.mean((outputs - labels) ** 2)

  def outputs(vector):
    return built.model.apply({"params": unravel(vector)}, tokens)

  return flat, loss, outputs


@pytest.mark.slow
def test_trace_of_the_hessian_is_that_of_the_gradients():
  """Theorem 13: where the loss is 0, Tr H = 2 E |grad f|^2."""
  sets, c = planted(5, 2, 3)
  bits = np.asarray(all_bits(5))
  built = fourier.flat_transformer(sets, c)
  flat, loss, outputs = loss_of(built, sets, c, bits)
  dense = jnp.trace(jax.hessian(loss)(flat))
  gradients = jax.jacrev(outputs)(flat)
  np.testing.assert_allclose(2 * np.mean(np.sum(gradients**2, axis=1)), dense, rtol=1e-6)


@pytest.mark.slow
def test_what_appendix_d_does_lowers_norm_and_trace():
  sets, c = planted(8, 3, 4)
  bits = np.asarray(all_bits(8))
  built = fourier.flat_transformer(sets, c)
  sample = bits[(bits.sum(axis=1) > 1) & (bits.sum(axis=1) < 7)]
  counts = (sample @ sets.T.astype(int)).ravel()
  assert set(counts.tolist()) == {0, 1, 2, 3}
  middle = sample[np.all(np.isin(sample @ sets.T.astype(int), (1, 2)), axis=1)]

  def measured(own, inputs):
    flat, _, outputs = loss_of(own, sets, c, inputs)
    gradients = jax.jacrev(outputs)(flat)
    trace = 2 * np.mean(np.sum(gradients**2, axis=1))
    return fourier.squared_norms(own)["total"], trace

  scaled = fourier.rescaled(built)
  np.testing.assert_allclose(scaled(bits), built(bits), atol=1e-9)
  assert np.all(np.array(measured(scaled, bits)) < measured(built, bits))
  first = np.sum(scaled.params["F"] ** 2) + np.sum(scaled.params["b"] ** 2)
  assert first == pytest.approx(np.sum(scaled.params["G"] ** 2))

  fewer = fourier.attenuated(built, middle)
  assert fewer.model.mlp_width == built.model.mlp_width - 8  # counts 0 and 3
  np.testing.assert_allclose(fewer(middle), values(sets, c, middle), atol=1e-9)
  norm, trace = measured(fewer, middle)
  assert norm < measured(built, middle)[0]
  assert trace <= measured(built, middle)[1] * (1 + 1e-9)
  assert np.max(np.abs(fewer(bits) - built(bits))) > 0.1  # not everywhere


@pytest.mark.slow
def test_which_gradients_vanish():
  """Theorem 14: attention over bits has none, since values alone read them."""
  sets, c = planted(6, 2, 3)
  bits = np.asarray(all_bits(6))
  built = fourier.flat_transformer(sets, c)
  tokens = built.tokens(bits)
  jacobian = jax.jacrev(lambda p: built.model.apply({"params": p}, tokens))(
    jax.tree.map(jnp.asarray, built.params)
  )
  largest = {name: float(jnp.max(jnp.abs(a))) for name, a in jacobian.items()}
  # The trapezoids are flat where the counts are: nothing before the MLP's last layer
  # moves the output.
  assert largest["W_QK1"] < 1e-9
  assert largest["W_V1"] < 1e-9
  assert all(largest[name] > 1e-3 for name in ("F", "b", "G", "W_QK2", "W_V2", "w"))
