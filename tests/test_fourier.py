"""Functions with few Fourier components: task, spectra, and the Transformer for them."""

import dataclasses
import itertools
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.fourier.spectra import coefficients, spectrum, walsh_hadamard
from sepfx import InvalidSetting, measure
from sepfx.models import ReadOutTransformer, build
from sepfx.tasks import FourierSparse, UnseenStrings
from sepfx.tasks.fourier import all_bits, index_of
from sepfx.training import ERM

KEY = jax.random.key(0)


def plain_values(sets, coefficients, bits, convention="signs"):
  """f in words: the sum over components of c_i times a product over its bits."""
  values = []
  for b in bits:
    total = 0.0
    for own, c in zip(sets, coefficients, strict=True):
      chi = math.prod(1 - 2 * b[j] for j in range(len(b)) if own[j])
      total += c * (chi if convention == "signs" else (1 + chi) / 2)
    values.append(total)
  return np.array(values)


@pytest.mark.parametrize(
  ("degree", "k", "settings"),
  [
    (1, 6, {}),
    (3, 5, {}),
    (6, 1, {}),
    (2, 6, {"signed": True}),
    (3, 6, {"mixed": True}),
    (2, 4, {"convention": "indicators"}),
    (2, 15, {"max_components": 20}),
  ],
)
def test_function_is_the_planted_one(degree, k, settings):
  task = FourierSparse(length=6, degree=degree, num_components=k, **settings)
  sets, c = map(np.asarray, task.init(KEY))
  used = sets[:k].tolist()
  assert len({tuple(own) for own in used}) == k  # all different
  sizes = np.sum(used, axis=1)
  assert set(sizes) <= set(range(1, degree + 1))
  assert settings.get("mixed") or set(sizes) == {degree}
  assert np.all(c[k:] == 0)
  assert np.all(c[:k] != 0)
  np.testing.assert_allclose(np.sum(c**2), 1, rtol=1e-5)
  assert np.all(c >= 0) != settings.get("signed", False)
  bits = np.asarray(all_bits(6))
  convention = settings.get("convention", "signs")
  expected = plain_values(used, c[:k], bits, convention)
  planted = task.init(KEY)
  np.testing.assert_allclose(task.labels(planted, bits), expected, atol=1e-5)
  assert np.var(expected) == pytest.approx(task.best_constant_error(), rel=1e-4)
  sample = task.sample(jax.random.key(1), planted, 300)
  np.testing.assert_array_equal(
    sample.labels, task.labels(planted, sample.bits), strict=True
  )
  np.testing.assert_allclose(np.mean(sample.bits), 0.5, atol=0.05)


def test_sets_of_every_size_come_up_in_mixed_functions():
  task = FourierSparse(length=8, degree=3, num_components=8, mixed=True)
  drawn = jax.vmap(task.init)(jax.random.split(KEY, 20))
  assert set(np.asarray(drawn.sets).sum(axis=2).flat) == {1, 2, 3}


def test_a_set_is_drawn_again_until_it_is_new():
  """Six sets of one bit among six: all there are, in every order."""
  task = FourierSparse(length=6, degree=1, num_components=6)
  drawn = jax.vmap(task.init)(jax.random.split(KEY, 30))
  orders = {tuple(order) for order in np.argmax(drawn.sets, axis=2).tolist()}
  assert all(sorted(order) == list(range(6)) for order in orders)
  assert len(orders) > 20


@pytest.mark.slow
def test_components_do_not_depend_on_how_many_there_are():
  draw = [
    FourierSparse(length=8, degree=2, num_components=k, max_components=rows).init(KEY)
    for k, rows in ((3, 8), (5, 8), (5, 12))
  ]
  for other in draw[1:]:
    np.testing.assert_array_equal(draw[0].sets[:3], other.sets[:3])
    ratio = draw[0].coefficients[:3] / other.coefficients[:3]
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-5)
  chex.assert_trees_all_equal(draw[1].coefficients[:5], draw[2].coefficients[:5])


@pytest.mark.parametrize("function", ["random", "tiling"])
def test_degree_and_number_are_data(function):
  tasks = [
    FourierSparse(length=8, degree=d, num_components=k, function=function)
    for d, k in ((1, 2), (4, 7))
  ]
  assert jax.tree.structure(tasks[0]) == jax.tree.structure(tasks[1])
  drawn = jax.jit(lambda task: task.init(KEY))
  for task in tasks:
    chex.assert_trees_all_close(drawn(task), task.init(KEY), rtol=1e-6)
  assert drawn._cache_size() == 1


def test_given_functions():
  bits = np.asarray(all_bits(6))
  tiling = FourierSparse(length=6, degree=2, function="tiling")
  sets = [[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1]]
  expected = plain_values(sets, [3**-0.5] * 3, bits)
  np.testing.assert_allclose(tiling.labels(tiling.init(KEY), bits), expected, rtol=1e-5)
  majority = FourierSparse(length=6, function="majority")
  own = majority.labels(majority.init(KEY), bits)
  np.testing.assert_array_equal(own, np.where(bits.sum(axis=1) > 3, -1.0, 1.0))
  assert majority.best_constant_error() == pytest.approx(np.var(own))
  table = "".join(str(b) for b in (np.arange(64) * 7 % 11 % 2))
  given = FourierSparse(length=6, function=f"table:{table}", convention="indicators")
  own = given.labels(given.init(KEY), bits)
  np.testing.assert_array_equal(own, [1.0 - int(b) for b in table])
  assert given.best_constant_error() == pytest.approx(np.var(own))
  names = [task.name for task in (tiling, majority, FourierSparse())]
  assert names == ["fourier_tiling", "fourier_majority", "fourier"]


@pytest.mark.slow
def test_unseen_strings_are_those_outside_the_sample():
  task = FourierSparse(length=7, degree=2, num_components=3)
  unseen = UnseenStrings(length=7, degree=2, num_components=3)
  planted = task.init(KEY)
  training = task.sample(jax.random.key(1), planted, 60)
  everything = unseen.sample(jax.random.key(2), planted, 2**7)
  np.testing.assert_array_equal(
    everything.bits, list(itertools.product((0, 1), repeat=7))
  )
  np.testing.assert_array_equal(index_of(everything.bits), np.arange(2**7))

  def apply(inputs):
    return jnp.sum(inputs * jnp.arange(7), axis=1) / 10.0

  errors = unseen.score(apply, planted, everything, training)
  seen = {tuple(b) for b in np.asarray(training.bits).tolist()}
  assert len(seen) < 60  # some are there twice
  plain = [
    (sum(j * bit for j, bit in enumerate(b)) / 10 - float(y)) ** 2
    for b, y in zip(*map(np.ndarray.tolist, map(np.asarray, everything)), strict=True)
    if tuple(b) not in seen
  ]
  np.testing.assert_allclose(np.mean(errors), np.mean(plain), rtol=1e-5)
  # A part of them has the part's share: chunks may be scored one by one.
  parts = [jax.tree.map(lambda a, k=k: a[k::4], everything) for k in range(4)]
  means = [np.mean(unseen.score(apply, planted, part, training)) for part in parts]
  np.testing.assert_allclose(np.mean(means), np.mean(plain), rtol=1e-5)
  fresh = unseen.sample(jax.random.key(3), planted, 50)
  assert len(fresh.bits) == 50
  plain_errors = unseen.score(apply, planted, fresh, None)
  np.testing.assert_allclose(plain_errors, (apply(fresh.bits) - fresh.labels) ** 2)


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    ({"length": 0}, "length: got 0"),
    ({"length": 31}, "length: got 31, takes an integer from 1 to 30"),
    ({"length": 4, "degree": 5}, "degree: got 5, takes an integer from 1 to the number"),
    ({"degree": 0}, "degree: got 0"),
    ({"length": 4, "degree": 4, "num_components": 2}, "num_components: got 2, takes an"),
    ({"length": 6, "num_components": 7}, "num_components: got 7, .* 6 rows"),
    ({"num_components": 0}, "num_components: got 0"),
    ({"convention": "bits"}, "convention: got 'bits', takes signs or indicators"),
    ({"length": 7, "function": "tiling"}, "degree: got 2, takes a divisor"),
    ({"function": "majority"}, "length: got 20, takes at most 16"),
    ({"length": 3, "function": "and"}, "function: got 'and', takes random, tiling"),
    ({"length": 3, "function": "table:011"}, "function: got"),
  ],
)
def test_bad_tasks_are_refused(settings, message):
  with pytest.raises(InvalidSetting, match=message):
    FourierSparse(**settings)


# Spectra.


def test_transform_is_the_plain_sum():
  T = 5
  values = np.random.default_rng(0).normal(size=2**T)
  bits = np.asarray(all_bits(T))
  plain = [
    np.mean(values * np.prod(np.where(own, 1 - 2 * bits, 1), axis=1)) for own in bits
  ]
  np.testing.assert_allclose(walsh_hadamard(jnp.asarray(values)), plain, atol=1e-6)


@pytest.mark.parametrize(
  "convention", ["indicators", pytest.param("signs", marks=pytest.mark.slow)]
)
def test_spectrum_is_the_planted_one(convention):
  task = FourierSparse(length=13, degree=3, num_components=6, convention=convention)
  planted = task.init(KEY)
  found = np.asarray(spectrum(lambda bits: task.labels(planted, bits), 13))
  places = np.asarray(index_of(planted.sets.astype(int)))[:6]
  scale = 1.0 if convention == "signs" else 0.5
  own = scale * np.asarray(planted.coefficients)[:6]
  np.testing.assert_allclose(found[places], own, atol=1e-5)
  rest = np.delete(found, places)
  constant = 0.0 if convention == "signs" else np.sum(own)
  np.testing.assert_allclose(rest[0], constant, atol=1e-5)
  np.testing.assert_allclose(rest[1:], 0, atol=1e-5)


@pytest.mark.slow
def test_sampled_coefficients_are_within_their_errors():
  task = FourierSparse(length=24, degree=3, num_components=6)
  planted = task.init(KEY)
  found, errors = coefficients(
    jax.random.key(1), lambda bits: task.labels(planted, bits), planted.sets, 4000
  )
  assert np.all(np.asarray(errors) < 0.02)
  assert np.all(np.asarray(errors) > 0.005)
  off = np.abs(found - planted.coefficients) / errors
  assert np.max(off[:6]) < 4
  assert np.max(off) > 0.3  # the errors are not far too large


@pytest.mark.parametrize(
  ("call", "message"),
  [
    (lambda: walsh_hadamard(jnp.zeros(6)), "values: got 6, takes 2"),
    (lambda: spectrum(jnp.sum, 21), "length: got 21, takes an integer from 1 to 20"),
    (lambda: coefficients(KEY, jnp.sum, jnp.zeros((1, 3)), 1), "num_samples: got 1"),
  ],
)
def test_bad_spectra_are_refused(call, message):
  with pytest.raises(InvalidSetting, match=message):
    call()


# The model.


def plain_read_out(params, bits, model):
  """The Transformer token by token, all rows in every layer, in NumPy."""
  f = lambda a: np.asarray(a, float)  # noqa: E731
  n, T = bits.shape
  own = np.concatenate([bits, np.zeros((n, 1), int)], axis=1)
  table = (
    np.array([[0.0], [1.0]]) if model.embedding_dim is None else f(params["embedding"])
  )
  x = np.concatenate([np.tile(np.eye(T + 1), (n, 1, 1)), table[own]], axis=-1)

  def norm(rows, name, block):
    if not model.layer_norm:
      return rows
    layer = block[name]
    centred = rows - rows.mean(axis=-1, keepdims=True)
    deviation = np.sqrt(np.mean(centred**2, axis=-1, keepdims=True) + 1e-5)
    return centred / deviation * f(layer["scale"]) + f(layer["bias"])

  def dense(rows, layer):
    return rows @ f(layer["kernel"]) + f(layer["bias"])

  for k in range(model.num_layers):
    block = params[f"block_{k}"]
    z = norm(x, "attention_norm", block)
    read = np.zeros_like(x)
    for h in range(model.num_heads):
      q, key, v = (z @ f(block[f"{a}_kernel"])[:, h] for a in ("query", "key", "value"))
      scores = math.log(T) * q @ key.swapaxes(1, 2)
      weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
      weights /= weights.sum(axis=-1, keepdims=True)
      read += weights @ v @ f(block["out_kernel"])[h]
    x = x + read if model.residual_attention else read
    hidden = np.maximum(dense(norm(x, "mlp_norm", block), block["mlp_in"]), 0)
    branch = dense(hidden, block["mlp_out"])
    x = x + branch if model.residual_mlp else branch
  return dense(norm(x[:, -1], "last_norm", params), params["read_out"])[:, 0]


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize(
  "fields",
  [
    pytest.param({}, marks=pytest.mark.slow),
    pytest.param({"num_layers": 1}, marks=pytest.mark.slow),
    {"num_layers": 3, "num_heads": 2, "embedding_dim": 3},
    pytest.param({"embedding_dim": None, "mlp_width": 9}, marks=pytest.mark.slow),
    {"layer_norm": True, "num_heads": 3, "embedding_dim": 5},
    pytest.param({"residual_attention": False}, marks=pytest.mark.slow),
    pytest.param({"residual_mlp": False}, marks=pytest.mark.slow),
  ],
  ids=str,
)
def test_read_out_is_the_plain_transformer(fields):
  model = ReadOutTransformer(**fields)
  bits = np.asarray(all_bits(6))[::3]
  params = jax.jit(model.init)(KEY, bits)["params"]
  # Larger weights than the first, so that attention is far from uniform.
  params = jax.tree.map(
    lambda a: a + 0.15 * jax.random.normal(jax.random.key(a.size), a.shape), params
  )
  got = jax.jit(model.apply)({"params": params}, bits)
  expected = plain_read_out(params, bits, model)
  assert np.std(expected) > 0.01
  np.testing.assert_allclose(got, expected, rtol=2e-4, atol=2e-5)


def test_published_width():
  model = ReadOutTransformer()
  shapes = jax.eval_shape(model.init, KEY, jnp.zeros((1, 20), int))
  params = shapes["params"]
  assert params["block_0"]["out_kernel"].shape == (1, 51, 51)
  assert params["block_0"]["mlp_in"]["kernel"].shape == (51, 128)
  minimal = build("minimal", FourierSparse())
  params = jax.eval_shape(minimal.init, KEY, jnp.zeros((1, 20), int))["params"]
  assert params["block_1"]["out_kernel"].shape == (1, 22, 22)
  assert "embedding" not in params


@pytest.mark.slow
def test_dropout_is_on_where_there_is_a_key():
  model = ReadOutTransformer(dropout=0.5)
  bits = np.asarray(all_bits(5))
  params = jax.jit(model.init)(KEY, bits)["params"]
  without = model.apply({"params": params}, bits)
  plain = dataclasses.replace(model, dropout=0.0).apply({"params": params}, bits)
  np.testing.assert_array_equal(without, plain)
  with_dropout = model.apply({"params": params}, bits, rngs={"dropout": KEY})
  assert np.max(np.abs(with_dropout - plain)) > 1e-3


@pytest.mark.parametrize(
  ("fields", "message"),
  [({"num_layers": 0}, "num_layers: got 0"), ({"num_heads": 2}, "num_heads: got 2")],
)
def test_bad_models_are_refused(fields, message):
  with pytest.raises(InvalidSetting, match=message):
    ReadOutTransformer(**fields).init(KEY, jnp.zeros((1, 6), int))


@pytest.mark.slow
def test_it_learns_and_the_probe_says_how_far():
  """Degree 1: the sample teaches the function."""
  protocol = ERM(
    sample_size=48, threshold=0.02, watched="train_loss", num_test=64, max_steps=2000,
    batch_size=16, check_every=20,
  )  # fmt: skip
  task = FourierSparse(length=6, degree=1, num_components=2)
  own = UnseenStrings(length=6, degree=1, num_components=2)
  records = measure(
    task, "transformer", 6, protocol, num_trials=2, test_task=own,
    probes="generalisation",
  )  # fmt: skip
  assert set(records.table["outcome"]) == {"reached"}
  for row, curve in zip(records.probes, records.all_curves.values(), strict=True):
    assert row["train_loss"] == pytest.approx(curve["train_loss"][-1], rel=1e-4)
    assert row["test_loss"] == pytest.approx(curve["test_error"][-1], rel=1e-4)
    assert row["gap"] == pytest.approx(row["test_loss"] - row["train_loss"], rel=1e-3)
    assert row["population_risk"] == pytest.approx(curve["test_loss"][-1], rel=1e-4)
    assert row["test_loss"] < 0.2
