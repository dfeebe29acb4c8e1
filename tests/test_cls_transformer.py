"""The [CLS] Transformer against NumPy, and its table against its direct pass."""

import functools
import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from sepfx.errors import InvalidSetting
from sepfx.models import ClsTransformer

pytestmark = pytest.mark.usefixtures("exact")


def draw(module, n, length, seed=0):
  """Bits and parameters, none of which is zero."""
  rng = np.random.default_rng(seed)
  bits = jnp.asarray(rng.integers(0, 2, (n, length)), jnp.int32)
  shapes = jax.eval_shape(module.init, jax.random.key(0), bits)["params"]
  return bits, jax.tree.map(lambda a: jnp.asarray(0.3 * rng.normal(size=a.shape)), shapes)


def layer_norm(x, scale, bias):
  centred = x - x.mean()
  return centred / math.sqrt(centred @ centred / len(x) + 1e-5) * scale + bias


def block(x, p, factors=None):
  """All rows of a block, row by row and head by head.

  Dropout multiplies by `factors`: attention weights [S H], and both branches [d].
  """
  heads, e = p["query_bias"].shape
  if factors is None:
    factors = np.ones((len(x), heads)), 1.0, 1.0
  of_weights, of_read, of_mlp = factors
  normed = [layer_norm(row, p["attention_scale"], p["attention_bias"]) for row in x]
  rows = []
  for i, row in enumerate(x):
    read = np.zeros((heads, e))
    for h in range(heads):
      query = normed[i] @ p["query_kernel"][:, h] + p["query_bias"][h]
      scores = [query @ (z @ p["key_kernel"][:, h]) / math.sqrt(e) for z in normed]
      weights = scipy.special.softmax(scores) * of_weights[:, h]
      for weight, z in zip(weights, normed, strict=True):
        read[h] += weight * (z @ p["value_kernel"][:, h] + p["value_bias"][h])
    branch = np.einsum("he,hed->d", read, p["out"]["kernel"]) + p["out"]["bias"]
    row = row + of_read * branch
    z = layer_norm(row, **p["mlp_norm"])
    hidden = z @ p["mlp_in"]["kernel"] + p["mlp_in"]["bias"]
    hidden = hidden * scipy.special.ndtr(hidden)
    branch = hidden @ p["mlp_out"]["kernel"] + p["mlp_out"]["bias"]
    rows.append(row + of_mlp * branch)
  return rows


@pytest.mark.parametrize(("layers", "heads"), [(1, 4), (2, 2)])
def test_logits(layers, heads):
  module = ClsTransformer(num_layers=layers, num_heads=heads, width=8)
  bits, params = draw(module, 3, 4)
  logits = module.apply({"params": params}, bits)
  p = jax.tree.map(lambda a: np.asarray(a, np.float64), params)
  for own, expected_of in zip(np.asarray(logits), np.asarray(bits), strict=True):
    tokens = [*expected_of, 2]
    x = [
      p["embedding"]["token"][token] + p["embedding"]["position"][k]
      for k, token in enumerate(tokens)
    ]
    for k in range(layers):
      x = block(x, p[f"blocks_{k}"])
    expected = layer_norm(x[-1], **p["last_norm"]) @ p["read_out"]["kernel"]
    np.testing.assert_allclose(own, expected, rtol=2e-4, atol=2e-4)


@pytest.mark.slow
def test_published_configuration():
  bits = jnp.zeros((2, 10), jnp.int32)
  params = ClsTransformer().init(jax.random.key(0), bits)["params"]
  assert params["embedding"]["position"].shape == (11, 64)
  kernels = params["blocks_0"]
  assert kernels["query_kernel"].shape == (64, 16, 4)
  assert kernels["mlp_in"]["kernel"].shape == (64, 256)
  assert params["read_out"].keys() == {"kernel"}
  for name in ("query_kernel", "key_kernel", "value_kernel"):
    assert np.std(kernels[name]) == pytest.approx(0.02, rel=0.05)
  assert not np.any(kernels["value_bias"])


def test_dropout_is_on_where_there_is_a_key():
  module = ClsTransformer(num_heads=2, width=8, dropout=0.5)
  bits, params = draw(module, 4, 5)

  @jax.jit
  def apply(key):
    return module.apply({"params": params}, bits, rngs={"dropout": key})

  plain = module.apply({"params": params}, bits)
  first, again, other = (apply(jax.random.key(k)) for k in (0, 0, 1))
  np.testing.assert_array_equal(first, again)
  assert not np.allclose(first, other)
  assert not np.allclose(first, plain)
  without = ClsTransformer(num_heads=2, width=8, dropout=0.0)
  same = without.apply({"params": params}, bits, rngs={"dropout": jax.random.key(0)})
  np.testing.assert_allclose(same, plain, rtol=1e-6)


@pytest.mark.slow
def test_dropout_on_embeddings_weights_and_both_branches():
  rate, n = 0.4, 1000
  module = ClsTransformer(num_heads=4, width=8, dropout=rate)
  bits, params = draw(module, n, 6)
  logits, state = module.apply(
    {"params": params},
    bits,
    rngs={"dropout": jax.random.key(0)},
    capture_intermediates=lambda own, _: isinstance(own, nn.Dropout),
    mutable=["intermediates"],
  )
  factors = jax.tree.map(
    lambda a: np.where(np.asarray(a) == 0, 0.0, 1 / (1 - rate)), state["intermediates"]
  )
  (embedding,) = factors["drop"]["__call__"]
  of_weights, of_read, of_mlp = factors["blocks_0"]["drop"]["__call__"]
  drawn = embedding, of_weights, of_read, of_mlp
  assert [each.shape for each in drawn] == [(n, 7, 8), (n, 7, 4), (n, 1, 8), (n, 1, 8)]
  for each in drawn:  # independent factors of mean one
    standard_error = math.sqrt(rate / (1 - rate) / each.size)
    assert abs(np.mean(each) - 1) < 4 * standard_error
  assert abs(np.corrcoef(of_read.ravel(), of_mlp.ravel())[0, 1]) < 4 / math.sqrt(8 * n)
  p = jax.tree.map(lambda a: np.asarray(a, np.float64), params)
  for k in range(5):
    x = p["embedding"]["token"][[*np.asarray(bits[k]), 2]] + p["embedding"]["position"]
    own = of_weights[k], of_read[k, 0], of_mlp[k, 0]
    x = block(x * embedding[k], p["blocks_0"], own)
    expected = layer_norm(x[-1], **p["last_norm"]) @ p["read_out"]["kernel"]
    np.testing.assert_allclose(logits[k], expected, rtol=2e-4, atol=2e-4)


def with_gap(params, gap):
  """Parameters whose [CLS] query scores bit 0 of the first three positions highest.

  By `gap` above all other token vectors: their tokens have a direction of their own,
  which a far longer token drowns where the bit is 1.
  """
  vectors = np.random.default_rng(0).normal(size=params["embedding"]["position"].shape)
  vectors -= vectors.mean(axis=1, keepdims=True)
  own, longer = vectors[:2]
  longer -= own * (longer @ own) / (own @ own)
  others = vectors[3:] - np.outer(vectors[3:] @ own, own) / (own @ own)
  block = dict(params["blocks_0"])
  block["attention_scale"], block["attention_bias"] = jnp.ones(len(own)), 0 * own
  heads, e = block["query_bias"].shape
  key = np.zeros((len(own), heads, e))
  normed = layer_norm(own, 1.0, 0.0)
  key[:, :, 0] = math.sqrt(e) * gap * normed[:, None] / (normed @ normed)
  block["key_kernel"] = jnp.asarray(key)
  block["query_kernel"] = jnp.zeros_like(block["query_kernel"])
  block["query_bias"] = jnp.zeros((heads, e)).at[:, 0].set(1.0)
  embedding = {
    "token": jnp.asarray(np.array([0 * own, 1e3 * longer, 0 * own])),
    "position": jnp.asarray(np.vstack([own, own, own, others])),
  }
  return {**params, "blocks_0": block, "embedding": embedding}


@functools.cache
def passes(module):
  """The direct pass and the table's, compiled."""
  direct = jax.jit(lambda p, bits: module.apply({"params": p}, bits))
  table = jax.jit(lambda p, bits: module.apply({"params": p}, bits, method="evaluate"))
  return direct, table


def agree(module, params, bits, dtype):
  params = jax.tree.map(lambda a: jnp.asarray(a, dtype), params)
  direct, table = (np.asarray(own(params, bits)) for own in passes(module))
  assert direct.dtype == table.dtype == dtype
  tolerance = 1e-9 if dtype == np.float64 else 1e-4
  np.testing.assert_array_less(abs(table - direct), tolerance * np.fmax(1, abs(direct)))
  return table


@pytest.mark.parametrize(
  "dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.slow)]
)
def test_table_is_the_direct_pass(dtype):
  module = ClsTransformer(num_heads=4, width=64)
  with jax.enable_x64(dtype == np.float64):
    bits, drawn = draw(module, 1100, 12)  # more than a chunk
    bits = bits.at[0, :3].set(1)  # an input that has no token of the high scores
    bits = bits.at[1].set(0)
    agree(module, drawn, bits, dtype)
    # Beyond 60 the table cannot be used in float32, beyond 500 not in float64 either.
    for gap in (10, 20, 40, 80, 600):
      params = with_gap(drawn, gap)
      vocabulary = module.apply({"params": params}, 12, method=embedded)
      scores, _ = module.apply({"params": params}, vocabulary, method=scored)
      assert np.min(scores[:3]) - np.max(scores[3:]) > 0.99 * gap
      agree(module, params, bits, dtype)


def embedded(module, length):
  return module._vocabulary(length)


def scored(module, vocabulary):
  return module.blocks[0].scores_and_values(vocabulary)


@pytest.mark.slow
def test_table_in_lanes_of_which_one_takes_the_direct_pass():
  module = ClsTransformer(num_heads=4, width=64)
  bits, params = draw(module, 20, 12)
  wide = with_gap(params, 200)
  both = jax.tree.map(lambda *a: jnp.stack(a), params, wide)
  table = jax.vmap(lambda p: module.apply({"params": p}, bits, method="evaluate"))(both)
  for own, logits in zip((params, wide), table, strict=True):
    np.testing.assert_allclose(
      logits, agree(module, own, bits, np.float32), rtol=1e-4, atol=1e-4
    )


def test_what_it_refuses():
  bits = jnp.zeros((2, 3), jnp.int32)
  for setting, module in (
    ("num_heads", ClsTransformer(num_heads=5)),
    ("num_layers", ClsTransformer(num_layers=0)),
  ):
    with pytest.raises(InvalidSetting, match=setting):
      module.init(jax.random.key(0), bits)


def test_deep_models_are_evaluated_by_the_direct_pass():
  module = ClsTransformer(num_layers=2, num_heads=2, width=8)
  bits, params = draw(module, 1100, 5)  # more than a chunk
  agree(module, params, bits, np.float32)
