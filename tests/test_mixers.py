"""Mixers: whole passes beside token by token, causality, derivatives, types, sizes."""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jax.test_util import check_grads

from sepfx.errors import InvalidSetting
from sepfx.models.mixers import (
  MIXERS,
  RGLRU,
  Attention,
  Based,
  DeltaNet,
  Mamba2,
  check_causal,
  memories,
)
from sepfx.models.mixers.attention import rotated

pytestmark = pytest.mark.usefixtures("exact")

WIDTH = 8
# Each mixer, and options that change what it computes.
KINDS = {
  **{name: (name, {}) for name in MIXERS},
  "window": ("attention", {"window": 3, "rotary": True, "num_heads": 2}),
  "gla with convolutions": ("gla", {"convolution": 3, "num_heads": 2}),
  "delta, no convolution": ("delta", {"convolution": 0, "negative": True}),
  "two heads": ("gated_delta", {"num_heads": 2, "expand": 2}),
  "mamba2, no convolution": ("mamba2", {"convolution": 0, "num_heads": 2}),
  "linear attention with one": ("linear_attention", {"convolution": 2}),
  "rg_lru in blocks": ("rg_lru", {"num_heads": 2, "state_dim": 12}),
  "gru of another size": ("gru", {"state_dim": 5, "scheme": "flax"}),
  "long convolution": ("base_convolution", {"length": 25}),
  "hyena for longer sequences": ("hyena", {"length": 25, "size": 2}),
  "min_gru of another size": ("min_gru", {"state_dim": 5}),
  "rwkv7 with two heads": ("rwkv7", {"num_heads": 2, "rank": 3}),
}
# Options are further cases of what quick tests hold.
kinds = pytest.mark.parametrize(
  "kind", [own if own in MIXERS else pytest.param(own, marks=pytest.mark.slow)
           for own in KINDS]
)  # fmt: skip


def made(kind, **types):
  name, fields = KINDS[kind]
  return MIXERS[name](width=WIDTH, **fields, **types)


def rows_of(N, dtype=np.float64, n=2, seed=0):
  drawn = np.random.default_rng(seed).normal(size=(n, N, WIDTH))
  return jnp.asarray(drawn, dtype)


def one_by_one(mixer, variables, rows):
  """What each token becomes, from `step`."""
  state, found = mixer.init_state(len(rows), rows.shape[1]), []
  for row in jnp.moveaxis(rows, 1, 0):
    state, own = mixer.apply(variables, state, row, method="step")
    found.append(own)
  return jnp.stack(found, axis=1)


@kinds
def test_whole_passes_are_those_of_steps(kind):
  """Also beyond the chunk of many decays."""
  with jax.enable_x64(True):
    mixer = made(kind, param_dtype="float64")
    rows = rows_of(19)
    variables = mixer.init(jax.random.key(0), rows)
    whole = mixer.apply(variables, rows)
    assert whole.dtype == jnp.float64
    stepped = one_by_one(mixer, variables, rows)
    np.testing.assert_allclose(whole, stepped, rtol=1e-9, atol=1e-12)


@kinds
def test_nothing_depends_on_later_tokens(kind):
  mixer = made(kind)
  check_causal(mixer, rows_of(7, np.float32), kind)


@pytest.mark.parametrize("decays", ["none", "one", "many"])
@pytest.mark.parametrize("corrects", ["nothing", "a key's value", "a direction"])
@settings(deadline=None, max_examples=4)
@example(N=7, chunk=3, heads=1, seed=0)
@given(
  N=st.integers(1, 30),
  chunk=st.integers(1, 20),
  heads=st.sampled_from([1, 2]),
  seed=st.integers(0, 99),
)
def test_chunks_are_the_recurrence(decays, corrects, N, chunk, heads, seed):
  """At any length, for decays that are weak and such that leave nothing.

  Two heads, with a query and a key each or one of each for both.
  """
  rng, (n, H, K, V) = np.random.default_rng(seed), (2, 2, 3, 4)
  with jax.enable_x64(True):
    query, key = rng.normal(size=(2, n, N, heads, K))
    key = key / np.linalg.norm(key, axis=-1, keepdims=True)
    asked = rng.normal(size=(n, N, H, K))
    asked = asked / np.linalg.norm(asked, axis=-1, keepdims=True)
    along = rng.uniform(size=asked.shape) * asked
    of_decays = {"none": 0, "one": 1, "many": K}[decays]
    log_decay = -np.exp(rng.normal(scale=3, size=(n, N, H, of_decays)))
    terms = memories.Terms(
      jnp.asarray(query),
      jnp.asarray(key),
      jnp.asarray(rng.normal(size=(n, N, H, V))),
      jnp.asarray(log_decay) if of_decays else None,
      jnp.asarray(rng.uniform(0, 2, size=(n, N, H)))
      if corrects == "a key's value"
      else None,
      (jnp.asarray(asked), jnp.asarray(along)) if corrects == "a direction" else None,
    )
    wanted = memories.by_recurrence(terms)
    np.testing.assert_allclose(
      memories.in_chunks(terms, chunk), wanted, rtol=1e-8, atol=1e-9
    )


def test_two_corrections_do_not_go_together():
  key, beta = jnp.ones((1, 3, 1, 2)), jnp.ones((1, 3, 1))
  terms = memories.Terms(key, key, key, None, beta, (key, key))
  for form in (memories.in_chunks, memories.by_recurrence):
    with pytest.raises(ValueError, match="do not go together"):
      form(terms)


def test_a_delta_rule_replaces_what_stands_for_a_key():
  """With beta = 1 and keys of norm 1 the last value of a key is read."""
  key = jnp.eye(2)[jnp.array([0, 1, 0, 0])][None, :, None]
  value = jnp.array([1.0, 5.0, 2.0, 7.0])[None, :, None, None]
  ones = jnp.ones((1, 4, 1))
  read = memories.in_chunks(memories.Terms(key, key, value, None, ones))
  np.testing.assert_allclose(read.ravel(), [1, 5, 2, 7], atol=1e-6)
  added = memories.in_chunks(memories.Terms(key, key, value))
  np.testing.assert_allclose(added.ravel(), [1, 5, 3, 10], atol=1e-6)


@pytest.mark.slow
@kinds
def test_derivatives_of_derivatives(kind):
  with jax.enable_x64(True):
    mixer = made(kind, param_dtype="float64")
    rows = rows_of(6, n=1)
    variables = mixer.init(jax.random.key(0), rows)

    def loss(variables, rows):
      return jnp.sum(jnp.sin(mixer.apply(variables, rows)))

    check_grads(loss, (variables, rows), order=2, modes=("rev",), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@kinds
def test_half_precision_carries_states_in_single(kind):
  """The whole pass and the steps round alike; both are near single precision."""
  mixer = made(kind, dtype="bfloat16")
  rows = rows_of(12, np.float32)
  variables = made(kind).init(jax.random.key(0), rows)
  whole = mixer.apply(variables, rows)
  assert whole.dtype == jnp.bfloat16
  state = mixer.init_state(2, 12)
  floats = [a for a in jax.tree.leaves(state) if jnp.issubdtype(a.dtype, jnp.floating)]
  assert {own.dtype.name for own in floats} == {"float32"}
  stepped = one_by_one(mixer, variables, rows)
  exact = made(kind).apply(variables, rows)
  scale = float(jnp.max(jnp.abs(exact)))
  # Rounded where the whole pass is.
  apart = jnp.max(jnp.abs(whole.astype(jnp.float32) - stepped.astype(jnp.float32)))
  assert float(apart) < 0.005 * scale
  for found in (whole, stepped):
    apart = jnp.max(jnp.abs(found.astype(jnp.float32) - exact))
    assert float(apart) < 0.05 * scale  # a number of 8 bits is off by up to 1/256


@kinds
def test_state_size_counts_what_a_step_carries(kind):
  mixer = made(kind)
  rows = rows_of(9, np.float32, n=1)
  variables = mixer.init(jax.random.key(0), rows)
  for length in (2, 9):
    state = mixer.init_state(1, length)
    state, _ = mixer.apply(variables, state, rows[:, 0], method="step")
    leaves = jax.tree.leaves(state)
    floats = [own.size for own in leaves if jnp.issubdtype(own.dtype, jnp.floating)]
    assert mixer.state_size(length) == sum(floats) > 0
  grows = mixer.state_size(9) > mixer.state_size(2)
  keeps_all = KINDS[kind][0] in ("attention", "hyena") or "length" in KINDS[kind][1]
  assert grows == keeps_all


def test_products_of_based_features_are_its_polynomial(monkeypatch):
  mixer, rows = Based(width=WIDTH, num_heads=2, feature_dim=3), rows_of(9, np.float64)
  with jax.enable_x64(True):
    mixer = mixer.clone(param_dtype="float64")
    whole, variables = mixer.init_with_output(jax.random.key(0), jnp.asarray(rows))
    monkeypatch.setattr(memories, "CHUNK", 4)  # so that features are made
    found = mixer.apply(variables, jnp.asarray(rows))
  np.testing.assert_allclose(found, whole, atol=1e-12)


def test_caches_of_convolutions_are_told_apart():
  delta = DeltaNet(width=8, num_heads=2, convolution=4)
  assert delta.state_size(10) - delta.state_size(10, caches=False) == 3 * 3 * 8
  assert RGLRU(width=8).state_size(10, caches=False) == 8
  attention = Attention(width=8)
  assert attention.state_size(10, caches=False) == attention.state_size(10)


def test_sizes_of_states():
  assert Attention(width=8, num_heads=2).state_size(10) == 2 * 10 * 8
  assert Attention(width=8, window=4).state_size(10) == 2 * 4 * 8
  # Features of degrees 0, 1 and 2, and one more column for the sum of weights.
  assert Based(width=8, feature_dim=4).state_size(10) == (1 + 4 + 10) * 9
  mamba = Mamba2(width=8, num_heads=2, state_dim=5)
  assert mamba.state_size(10) == 2 * 5 * 8 + 3 * (16 + 5 + 5)


def test_based_is_the_series_of_the_exponential():
  rng, F = np.random.default_rng(0), 5
  mixer = Based(width=8, feature_dim=F)
  query, key = jnp.asarray(rng.normal(size=(2, 3, 1, 1, F)), jnp.float32)
  products = jnp.sum(mixer.features(query) * mixer.features(key), axis=-1)
  scores = jnp.sum(query * key, axis=-1) / math.sqrt(F)
  np.testing.assert_allclose(products, 1 + scores + scores**2 / 2, rtol=1e-5)


def test_attention_is_a_softmax_over_what_is_seen():
  rows = rows_of(6, np.float32)
  mixer = Attention(width=WIDTH, num_heads=2, window=3, rotary=True)
  variables = mixer.init(jax.random.key(0), rows)
  own = variables["params"]
  joint = rows @ own["query_key_value"]["kernel"] + own["query_key_value"]["bias"]
  query, key, value = jnp.moveaxis(joint.reshape(2, 6, 3, 2, 4), 2, 0)
  query, key = (rotated(heads, jnp.arange(6)) for heads in (query, key))
  wanted = np.zeros((2, 6, 2, 4))
  for i in range(6):
    seen = range(max(0, i - 2), i + 1)
    scores = [jnp.sum(query[:, i] * key[:, j], axis=-1) / 2 for j in seen]
    weights = jax.nn.softmax(jnp.stack(scores), axis=0)
    wanted[:, i] = sum(
      w[..., None] * value[:, j] for w, j in zip(weights, seen, strict=True)
    )
  wanted = wanted.reshape(2, 6, 8) @ own["output"]["kernel"] + own["output"]["bias"]
  np.testing.assert_allclose(mixer.apply(variables, rows), wanted, atol=1e-5)


def test_rotary_scores_depend_on_distances_alone():
  rng = np.random.default_rng(0)
  query, key = jnp.asarray(rng.normal(size=(2, 1, 1, 1, 6)), jnp.float32)
  scores = [
    float(jnp.sum(rotated(query, jnp.array([i])) * rotated(key, jnp.array([i - 3]))))
    for i in (3, 10, 50)
  ]
  np.testing.assert_allclose(scores, scores[0], rtol=1e-4)


class Leaks(nn.Module):
  """The tokens themselves, but the third has the last one added to it."""

  width: int

  @nn.compact
  def __call__(self, rows):
    return rows.at[:, 2].add(rows[:, -1])


class Centres(nn.Module):
  """The tokens less their mean over all sequences."""

  width: int

  @nn.compact
  def __call__(self, rows):
    return rows - jnp.mean(rows, axis=0)


class Breaks(nn.Module):
  """Logarithms of numbers of which some are negative."""

  width: int

  @nn.compact
  def __call__(self, rows):
    return jnp.log(rows)


def test_strong_decays_beside_weak_ones_are_exact_in_single_precision():
  """What is left after a strong decay is no difference of large sums."""
  rng, (n, N, H, K) = np.random.default_rng(0), (1, 48, 1, 3)
  strong = rng.random((n, N, H, 1)) < 0.3
  for G in (1, K):
    decay = np.where(strong, -1e4, -0.01) * np.ones((1, 1, 1, G))
    drawn = (rng.normal(size=(n, N, H, K)) for _ in range(3))
    terms = memories.Terms(*map(jnp.float32, drawn), jnp.float32(decay))
    wanted = memories.by_recurrence(terms)
    scale = float(jnp.max(jnp.abs(wanted)))
    np.testing.assert_allclose(memories.in_chunks(terms), wanted, atol=1e-5 * scale)


@pytest.mark.slow
def test_types_are_those_of_the_tokens_where_none_is_asked_for():
  for name in MIXERS:
    mixer = MIXERS[name](width=WIDTH, param_dtype="bfloat16")
    rows = rows_of(4, jnp.bfloat16)
    found, variables = mixer.init_with_output(jax.random.key(0), rows)
    assert found.dtype == jnp.bfloat16, name
    state = mixer.init_state(2, 4)
    _, own = mixer.apply(variables, state, rows[:, 0], method="step")
    assert own.dtype == jnp.bfloat16, name


def test_one_sequence_cannot_tell_of_the_future():
  with pytest.raises(ValueError, match="two sequences"):
    check_causal(Leaks(width=WIDTH), rows_of(6, np.float32, n=1), "mine:Leaks")


def test_one_that_leaks_the_future_is_refused_by_name():
  with pytest.raises(InvalidSetting, match=r"mixers.*mine:Leaks.*output 2.*input 5"):
    check_causal(Leaks(width=WIDTH), rows_of(6, np.float32), "mine:Leaks")


def test_one_that_is_told_whether_it_learns_is_tried_as_it_is_evaluated():
  class Told(nn.Module):
    @nn.compact
    def __call__(self, rows, train):
      return nn.Dropout(0.5, deterministic=not train)(rows)

  check_causal(Told(), jax.random.normal(jax.random.key(0), (2, 4, 3)), "Told")


def test_one_that_mixes_sequences_is_refused_by_name():
  with pytest.raises(InvalidSetting, match=r"mixers.*mine:Centres.*others of the batch"):
    check_causal(Centres(width=WIDTH), rows_of(6, np.float32), "mine:Centres")


def test_one_whose_outputs_are_not_finite_is_refused_by_name():
  with pytest.raises(InvalidSetting, match=r"mixers.*mine:Breaks.*not finite"):
    check_causal(Breaks(width=WIDTH), rows_of(6, np.float32), "mine:Breaks")


@pytest.mark.parametrize(
  ("name", "fields", "what"),
  [
    ("attention", {"num_heads": 3}, "num_heads"),
    ("attention", {"num_heads": 8, "rotary": True}, "num_heads"),
    ("attention", {"window": 0}, "window"),
    ("gla", {"expand_keys": 0.4, "num_heads": 2}, "expand_keys"),
    ("mamba2", {"num_heads": 3}, "num_heads"),
    ("delta", {"convolution": -1}, "convolution"),
    ("rg_lru", {"num_heads": 3}, "num_heads"),
    ("gru", {"state_dim": 0}, "state_dim"),
    ("rwkv7", {"convolution": 4}, "convolution"),
    ("rwkv7", {"rank": 0}, "rank"),
    ("base_convolution", {"length": 2}, "length.*has 3"),
    ("hyena", {"length": 2}, "length.*has 3"),
    ("based", {"feature_dim": 0}, "feature_dim"),
  ],
)
def test_bad_fields_are_refused(name, fields, what):
  with pytest.raises(InvalidSetting, match=what):
    MIXERS[name](width=WIDTH, **fields).init(jax.random.key(0), rows_of(3, np.float32))


def test_another_width_than_that_of_the_tokens_is_refused():
  with pytest.raises(InvalidSetting, match="width"):
    Attention(width=5).init(jax.random.key(0), rows_of(3, np.float32))


def drawn_like_the_published(name):
  """Terms of the numbers that the published programs were given."""
  rng, (n, N, H, K, V) = np.random.default_rng(0), (2, 32, 3, 4, 5)
  shapes = (n, N, H, K), (n, N, H, K), (n, N, H, V), (n, N, H, K), (n, N, H)
  query, key, value, many, one = (
    rng.normal(size=shape).astype(np.float32) for shape in shapes
  )
  beta = rng.uniform(0, 1, (n, N, H)).astype(np.float32)
  key /= np.linalg.norm(key, axis=-1, keepdims=True)
  many, one = -np.exp(many), -np.exp(one)[..., None]
  terms = {
    "gla": (query / 2, key, value, many),
    "delta_rule": (query / 2, key, value, None, beta),
    "gated_delta_rule": (query / 2, key, value, one, beta),
    "ssd_minimal": (query, key, value, one),
  }
  return jax.tree.map(jnp.asarray, memories.Terms(*terms[name]))


@pytest.mark.parametrize(
  ("name", "published"),
  [
    # What the recurrences of fla/ops/*/naive.py of fla-org/flash-linear-attention at
    # bc3b101 and `ssd_minimal_discrete` of state-spaces/mamba at e9594ce read at the last
    # token of the second sequence with the third head.
    ("gla", [-0.19723, 0.06562, -0.11774, -0.01550, -0.17706]),
    ("delta_rule", [0.58632, 0.24895, 0.28524, 0.65711, -0.47272]),
    ("gated_delta_rule", [-0.08365, 0.05031, -0.03176, -0.01497, -0.04031]),
    ("ssd_minimal", [-0.36986, 0.13824, -0.22233, -0.00572, -0.34662]),
  ],
)
def test_memories_are_those_of_published_programs(name, published):
  terms = drawn_like_the_published(name)
  for form in (memories.in_chunks, memories.by_recurrence):
    np.testing.assert_allclose(form(terms)[1, -1, 2], published, atol=2e-5)
