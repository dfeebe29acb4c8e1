"""Definition 2 and the codes, held against loops."""

import itertools
import math

import chex
import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sepfx.errors import InvalidSetting
from sepfx.tasks import (
  QSTR,
  Custom,
  HalfFixed,
  Linear,
  Mean,
  ReLUTeacher,
  SquaredNorm,
  coherence,
  default_code_dim,
  draw_codes,
  first_half_scales,
  independent,
  shared,
)

LINKS = [
  Linear(),
  Mean(),
  SquaredNorm(),
  ReLUTeacher(width=5),
  Custom(lambda tokens: jnp.max(tokens, axis=(-2, -1))),
]


def plain_link(link, params, tokens, sigmas):
  """g on one position's q tokens, [q d], written out."""
  q, d = tokens.shape
  if isinstance(link, Linear):
    return sum(params[j, k] * tokens[j, k] for j in range(q) for k in range(d))
  if isinstance(link, Mean):
    return sum(tokens[j, k] for j in range(q) for k in range(d)) / q / math.sqrt(d)
  if isinstance(link, SquaredNorm):
    terms = [tokens[j] @ tokens[j] - d * sigmas[j] ** 2 for j in range(q)]
    return sum(terms) / math.sqrt(q * d)
  if isinstance(link, ReLUTeacher):
    flat = np.concatenate(list(tokens))
    return sum(
      a * max(0.0, w @ flat + b)
      for a, w, b in zip(params.a, params.W, params.b, strict=True)
    )
  return tokens.max()


@st.composite
def tasks(draw):
  length = draw(st.integers(3, 9))
  half = draw(st.booleans())
  sparsity = draw(
    st.integers(1, max(1, (length - 1) // 2)) if half else st.integers(1, length)
  )
  return QSTR(
    length=length,
    token_dim=draw(st.integers(1, 5)),
    sparsity=sparsity,
    indices=HalfFixed() if half else draw(st.sampled_from([independent, shared])),
    link=draw(st.sampled_from(LINKS)),
    token_scales=first_half_scales if half else None,
    encoding_prefactor=draw(st.booleans()),
  )


@pytest.mark.slow
@hypothesis.given(task=tasks(), seed=st.integers(0, 2**32 - 1))
def test_labels_and_inputs_match_definition_2(task, seed):
  planted = task.init(jax.random.key(seed))
  prompts = task.sample(jax.random.key(seed + 1), planted, 3)
  inputs = task.encode(planted, prompts)
  params = jax.tree.map(np.asarray, planted.link)
  x, t = np.asarray(prompts.tokens), np.asarray(prompts.indices)
  codes = np.asarray(planted.codes)
  c = math.sqrt(task.token_dim / task.sparsity) if task.encoding_prefactor else 1.0
  assert inputs.shape == (3, task.length, task.input_dim)
  for n, i in itertools.product(range(3), range(task.length)):
    named = np.stack([x[n, t[n, i, j]] for j in range(task.sparsity)])
    sigmas = [task.scales[t[n, i, j]] for j in range(task.sparsity)]
    expected = plain_link(task.link, params, named, sigmas)
    np.testing.assert_allclose(prompts.labels[n, i], expected, rtol=2e-4, atol=2e-5)
    own = [x[n, i], c * codes[i]] + [c * codes[t[n, i, j]] for j in range(task.sparsity)]
    np.testing.assert_allclose(inputs[n, i], np.concatenate(own), rtol=1e-6)


@pytest.mark.parametrize(("prefactor", "norm"), [(True, math.sqrt(6 / 2)), (False, 1)])
def test_codes_have_the_norm_of_section_3_or_are_of_norm_1(prefactor, norm):
  """z_i = (x_i, c omega_i, c omega_{t_i1}, c omega_{t_i2}), c = sqrt(d/q) or 1."""
  task = QSTR(length=4, token_dim=6, sparsity=2, encoding_prefactor=prefactor)
  planted = task.init(jax.random.key(0))
  prompts = task.sample(jax.random.key(1), planted, 2)
  inputs = np.asarray(task.encode(planted, prompts))
  codes, t = norm * np.asarray(planted.codes), np.asarray(prompts.indices)
  np.testing.assert_allclose(np.linalg.norm(codes, axis=1), norm, rtol=1e-6)
  for n, i in itertools.product(range(2), range(4)):
    own = [prompts.tokens[n, i], codes[i], codes[t[n, i, 0]], codes[t[n, i, 1]]]
    np.testing.assert_allclose(inputs[n, i], np.concatenate(own), rtol=1e-6)


@hypothesis.given(
  length=st.integers(2, 12), seed=st.integers(0, 2**32 - 1), data=st.data()
)
@pytest.mark.slow
def test_index_distributions(length, seed, data):
  sparsity = data.draw(st.integers(1, length))
  key = jax.random.key(seed)
  t = np.asarray(independent(key, 20, length, sparsity))
  assert t.shape == (20, length, sparsity)
  assert t.min() >= 0
  assert t.max() < length
  ordered = np.sort(t, axis=-1)
  assert np.all(ordered[..., 1:] > ordered[..., :-1])  # q distinct tokens
  t = np.asarray(shared(key, 20, length, sparsity))
  assert np.all(t == t[:, :1])
  if 2 * sparsity < length:
    t = np.asarray(HalfFixed(shared)(key, 20, length, sparsity))
    for i in range(1, length + 1):  # positions as the paper counts them
      if i >= length / 2:
        assert np.all(t[:, i - 1] == np.arange(sparsity))
      else:
        assert np.all(t[:, i - 1] == t[:, 0])


def test_subsets_are_uniform():
  t = np.asarray(independent(jax.random.key(0), 4000, 4, 2)).reshape(-1, 2)
  counts = np.zeros((4, 4))
  np.add.at(counts, (t[:, 0], t[:, 1]), 1)
  assert np.all(np.diag(counts) == 0)
  off_diagonal = counts[~np.eye(4, dtype=bool)]
  # 16,000 draws over 12 ordered pairs: 1333 each, standard deviation 35.
  assert np.all(np.abs(off_diagonal - 16_000 / 12) < 5 * 35)


@pytest.mark.parametrize("link", [Linear(), Mean(), SquaredNorm()])
@pytest.mark.parametrize("sparsity", [1, 3])
def test_closed_form_variance(link, sparsity):
  task = QSTR(length=6, token_dim=4, sparsity=sparsity, link=link)
  labels = task.sample(jax.random.key(1), task.init(jax.random.key(0)), 50_000).labels
  np.testing.assert_allclose(jnp.var(labels), task.best_constant_error(), rtol=0.05)


@pytest.mark.slow
def test_variance_without_closed_form():
  task = QSTR(length=5, token_dim=3, link=Custom(lambda x: 2 * x[..., 0, 0]))
  np.testing.assert_allclose(task.best_constant_error(), 4.0, rtol=0.05)
  # Proposition 3: only the first half of the tokens varies, its labels' Var is 2.
  half = QSTR(
    length=9,
    sparsity=2,
    link=SquaredNorm(),
    indices=HalfFixed(),
    token_scales=first_half_scales,
  )
  labels = half.sample(jax.random.key(1), half.init(jax.random.key(0)), 20_000).labels
  np.testing.assert_allclose(jnp.var(labels[:, 5:], axis=0), 2.0, rtol=0.1)
  np.testing.assert_allclose(jnp.mean(labels, axis=0), 0.0, atol=0.05)


def test_first_half_scales():
  np.testing.assert_array_equal(first_half_scales(6), [1, 1, 0, 0, 0, 0])
  np.testing.assert_array_equal(first_half_scales(7), [1, 1, 1, 0, 0, 0, 0])


@pytest.mark.parametrize("link", [Linear(), Mean()])
def test_uniform_attention_risk(link):
  task = QSTR(length=5, token_dim=3, sparsity=2, link=link)
  risks = []
  for seed in range(30):
    planted = task.init(jax.random.key(seed))
    prompts = task.sample(jax.random.key(1000 + seed), planted, 4000)
    means = np.asarray(jnp.mean(prompts.tokens, axis=1))
    y = np.asarray(prompts.labels)
    # All positions see the same mean: one regression serves them all.
    features = np.repeat(means, task.length, axis=0)
    weights, *_ = np.linalg.lstsq(features, y.reshape(-1), rcond=None)
    risks.append(np.mean((y.reshape(-1) - features @ weights) ** 2))
  np.testing.assert_allclose(np.mean(risks), task.uniform_attention_risk(), rtol=0.03)
  assert QSTR(link=SquaredNorm()).uniform_attention_risk() is None


@pytest.mark.parametrize("length", [2, 3, 4, 8, 16, 33, 64, 128])
def test_incoherent_codes_satisfy_assumption_3(length):
  code_dim = default_code_dim(length)
  codes = draw_codes(jax.random.key(length), "incoherent", length, code_dim)
  np.testing.assert_allclose(jnp.linalg.norm(codes, axis=1), 1.0, rtol=1e-6)
  signs = np.round(np.asarray(codes) * math.sqrt(code_dim)).astype(int)
  assert set(np.abs(signs).ravel()) == {1}
  gram = np.abs(signs @ signs.T) - code_dim * np.eye(length, dtype=int)
  assert 2 * gram.max() <= code_dim
  np.testing.assert_allclose(coherence(codes), gram.max() / code_dim, rtol=1e-5)


def test_distinct_codes():
  # 8 codes in 3 dimensions: every one of the cube's corners, once.
  codes = np.asarray(draw_codes(jax.random.key(0), "distinct", 8, 3))
  assert len({tuple(row) for row in codes}) == 8
  rademacher = np.asarray(draw_codes(jax.random.key(0), "rademacher", 8, 3))
  assert len({tuple(row) for row in rademacher}) < 8


@pytest.mark.parametrize("places", ["first", "random"])
def test_prompts_have_some_of_the_codes(places):
  task = QSTR(length=4, token_dim=3, sparsity=2, max_length=9, places=places)
  planted = task.init(jax.random.key(0))
  assert planted.codes.shape == (9, task.resolved_code_dim) == (9, 10)
  prompts = task.sample(jax.random.key(1), planted, 300)
  own = np.asarray(prompts.places)
  assert np.all(np.diff(own, axis=1) > 0)
  counts = np.bincount(own.ravel(), minlength=9)
  if places == "first":
    np.testing.assert_array_equal(counts, [300] * 4 + [0] * 5)
  else:  # each of nine as often as any other, within four standard deviations
    share, spread = 300 * 4 / 9, np.sqrt(300 * 4 / 9 * 5 / 9)
    assert np.all(np.abs(counts - share) < 4 * spread)
  inputs = np.asarray(task.encode(planted, prompts))
  codes, t = np.asarray(planted.codes), np.asarray(prompts.indices)
  np.testing.assert_array_equal(inputs[..., 3:13], codes[own])
  for k in range(2):
    named = np.take_along_axis(own, t[..., k], axis=1)
    np.testing.assert_array_equal(inputs[..., 13 + 10 * k : 23 + 10 * k], codes[named])
  # Labels are of tokens: codes have no part in them.
  np.testing.assert_array_equal(
    prompts.labels, task.label(planted, prompts.tokens, prompts.indices)
  )


def test_as_many_codes_as_tokens_is_the_plain_task():
  plain, own = QSTR(length=4), QSTR(length=4, max_length=4)
  planted = plain.init(jax.random.key(0))
  chex.assert_trees_all_equal(planted, own.init(jax.random.key(0)))
  one, two = (task.sample(jax.random.key(1), planted, 5) for task in (plain, own))
  chex.assert_trees_all_equal(one, two)


@pytest.mark.parametrize(
  ("codes", "length", "code_dim"), [("incoherent", 10, 3), ("distinct", 5, 2)]
)
def test_impossible_codes_are_refused(codes, length, code_dim):
  task = QSTR(length=length, codes=codes, code_dim=code_dim)
  keys = jax.random.split(jax.random.key(0), 2)
  for looks_for_nans in (False, True):
    refused = pytest.raises(InvalidSetting, match=f"code_dim: got {code_dim}")
    with jax.debug_nans(looks_for_nans), refused:
      task.check_draw(keys)
  QSTR(length=length, codes=codes).check_draw(jax.random.split(jax.random.key(0), 2))


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    ({"length": 1}, "length: got 1"),
    ({"token_dim": 0}, "token_dim: got 0"),
    ({"length": 4, "sparsity": 5}, "sparsity: got 5"),
    ({"sparsity": 0}, "sparsity: got 0"),
    ({"codes": "gray"}, "codes: got 'gray'"),
    ({"code_dim": 0}, "code_dim: got 0"),
    ({"link": abs}, "link: got"),
    ({"length": 6, "sparsity": 3, "indices": HalfFixed()}, "sparsity: got 3"),
    ({"token_scales": lambda n: np.ones(n + 1)}, "token_scales: got"),
    (
      {"length": 8, "max_length": 7},
      "max_length: got 7, takes an integer from the length",
    ),
    ({"max_length": 20, "places": "last"}, "places: got 'last', takes first or random"),
  ],
)
def test_bad_settings_are_refused(settings, message):
  with pytest.raises(InvalidSetting, match=message):
    QSTR(**settings)
