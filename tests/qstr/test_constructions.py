"""Equation (A.2) and Lemma 11, measured."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.qstr.bounds.lower_bounds import blind_heads_floor
from experiments.qstr.constructions.retrieval import (
  norm_bounds,
  retrieval_transformer,
  retrieving_heads,
)
from sepfx.errors import InvalidSetting
from sepfx.tasks import (
  QSTR,
  FewHeads,
  Linear,
  Mean,
  Prompts,
  ReLUTeacher,
  SquaredNorm,
  independent,
)

LENGTH = 100
RADIUS = 12.0


def hard_prompts(task, planted, key, num_prompts):
  """Prompts with ||x|| <= RADIUS that make a wrong token cost most.

  In the first half every token lies on the sphere of radius RADIUS in a direction of
  its own; in the second the tokens other than one are all opposite to it.
  """
  key_x, key_t, key_r = jax.random.split(key, 3)
  x = jax.random.normal(key_x, (num_prompts, task.length, task.token_dim))
  x = RADIUS * x / jnp.linalg.norm(x, axis=-1, keepdims=True)
  opposite = jnp.where(jnp.arange(task.length)[None, :, None] == 0, 1.0, -1.0)
  half = num_prompts // 2
  x = x.at[half:].set(opposite * x[half:, :1])
  x = x * jnp.where(jax.random.bernoulli(key_r, 0.8, (num_prompts, 1, 1)), 1.0, 0.5)
  t = independent(key_t, num_prompts, task.length, task.sparsity)
  t = t.at[half:, ::2, 0].set(0)
  return Prompts(x, t, task.label(planted, x, t))


@pytest.mark.parametrize(
  ("parametrization", "prefactor"), [("full", True), ("full", False), ("separate", False)]
)
@pytest.mark.parametrize("sparsity", [1, 2, 3])
@pytest.mark.parametrize("link", [Linear(), Mean(), ReLUTeacher()])
@pytest.mark.slow
def test_retrieval_is_within_sqrt_eps(link, sparsity, prefactor, parametrization):
  task = QSTR(
    length=LENGTH,
    sparsity=sparsity,
    link=link,
    codes="incoherent",
    encoding_prefactor=prefactor,
  )
  planted = task.init(jax.random.key(sparsity))
  prompts = hard_prompts(task, planted, jax.random.key(7), 12)
  inputs = task.encode(planted, prompts)
  q, d, d_e = sparsity, task.token_dim, task.resolved_code_dim
  predict = None
  errors = []
  for eps in (1e-1, 1e-2, 1e-3):
    built = retrieval_transformer(
      task, planted, radius=RADIUS, eps=eps, parametrization=parametrization
    )
    assert built.model.num_heads == q
    predict = predict or jax.jit(built.model.apply)
    predictions = predict({"params": built.params}, inputs)
    flat = prompts.indices.reshape(12, -1, 1)
    named = jnp.take_along_axis(prompts.tokens, flat, axis=1)
    exact = built.network(named.reshape(12, LENGTH, q, d))
    errors.append(float(jnp.max(jnp.abs(predictions - exact))))
    assert errors[-1] <= math.sqrt(eps)
    # These links are two-layer networks: f_2NN is the label itself.
    np.testing.assert_allclose(exact, prompts.labels, rtol=1e-4, atol=1e-4)

    r_a, r_w = norm_bounds(built.network)
    log = math.log(2 * r_a * r_w * RADIUS * LENGTH * math.sqrt(q) / math.sqrt(eps))
    alpha = 2 * q / d * log
    if not prefactor:
      alpha *= d / q
    m = built.network.a.shape[0]
    p = built.params
    np.testing.assert_allclose(
      np.linalg.norm(p["output"]["kernel"]), r_a / math.sqrt(m), rtol=1e-5
    )
    joined = np.vstack([p["hidden"]["kernel"], p["hidden"]["bias"]])
    np.testing.assert_allclose(np.linalg.norm(joined), math.sqrt(m) * r_w, rtol=1e-5)
    if parametrization == "full":
      for w_qk in np.asarray(p["W_QK"]):
        # ||W_QK^T||_{2,1}: the sum of the norms of the rows of W_QK.
        np.testing.assert_allclose(
          np.linalg.norm(w_qk, axis=1).sum(), d_e * alpha, rtol=1e-5
        )
    else:
      np.testing.assert_allclose(
        built.alpha, alpha * math.sqrt(task.input_dim), rtol=1e-6
      )
  # A smaller eps buys a smaller error: the bound is not met by accident.
  assert errors[2] < errors[0]


def test_blocks_of_equation_a2():
  task = QSTR(length=12, sparsity=2, codes="incoherent", encoding_prefactor=True)
  planted = task.init(jax.random.key(0))
  built = retrieval_transformer(task, planted, radius=5.0, eps=0.1)
  d, d_e = task.token_dim, task.resolved_code_dim
  for h, w_qk in enumerate(np.asarray(built.params["W_QK"])):
    expected = np.zeros((task.input_dim, task.input_dim))
    for k in range(d_e):
      expected[d + (h + 1) * d_e + k, d + k] = built.alpha
    np.testing.assert_allclose(w_qk, expected, rtol=1e-6)


def test_what_cannot_be_built_is_refused():
  task = QSTR(length=12, link=SquaredNorm())
  with pytest.raises(InvalidSetting, match="link: got 'squared_norm'"):
    retrieval_transformer(task, task.init(jax.random.key(0)), radius=5.0, eps=0.1)
  task = QSTR(length=12, sparsity=6, code_dim=1)
  planted = task.init(jax.random.key(0))
  with pytest.raises(InvalidSetting, match="code_dim: got 1"):
    retrieval_transformer(task, planted, radius=5.0, eps=0.1, parametrization="separate")
  task = QSTR(length=12)
  planted = task.init(jax.random.key(0))
  with pytest.raises(InvalidSetting, match="eps: got 0"):
    retrieval_transformer(task, planted, radius=5.0, eps=0)


@pytest.mark.parametrize("prefactor", [False, True])
@pytest.mark.parametrize("heads", [1, 2, 3])
@pytest.mark.slow
def test_heads_that_retrieve_attain_the_blind_floor(heads, prefactor):
  task = FewHeads(
    length=9, sparsity=3, token_dim=6, codes="distinct", encoding_prefactor=prefactor
  )
  planted = task.init(jax.random.key(0))
  fitted, test = (task.sample(jax.random.key(k), planted, 20_000) for k in (1, 2))
  found = retrieving_heads(task, planted, heads, fitted)
  apply = jax.jit(lambda z: found.model.apply({"params": found.params}, z))
  risk = jnp.mean(task.objective.error(apply(task.encode(planted, test)), test.labels))
  floor = blind_heads_floor(3, heads)
  # x^2 is read as a function that is linear between the integers, and beyond 2.
  assert floor - 0.03 < float(risk) < floor + 0.06
  # Whatever the other tokens are, a head returns its own.
  first = -(-task.length // 2) - 1
  named = np.zeros(task.length, bool)
  named[np.asarray(test.indices)[0, -1, :heads]] = True
  tokens = jnp.where(named[None, :, None], test.tokens, -5.0 * test.tokens)
  z = task.encode(planted, test._replace(tokens=tokens))
  before, after = apply(task.encode(planted, test)), apply(z)
  np.testing.assert_allclose(before[:, first:], after[:, first:], atol=1e-3)


@pytest.mark.parametrize("heads", [0, 4])
def test_heads_that_retrieve_are_one_to_q(heads):
  task = FewHeads(length=9, sparsity=3, token_dim=6, codes="distinct")
  planted = task.init(jax.random.key(0))
  sample = task.sample(jax.random.key(1), planted, 10)
  with pytest.raises(InvalidSetting, match="takes 1 to sparsity = 3"):
    retrieving_heads(task, planted, heads, sample)


def test_heads_cannot_tell_codes_apart_that_coincide():
  task = FewHeads(length=9, sparsity=3, token_dim=6, codes="distinct")
  planted = task.init(jax.random.key(0))
  sample = task.sample(jax.random.key(1), planted, 10)
  codes = planted.codes.at[1].set(planted.codes[0])
  with pytest.raises(InvalidSetting, match="codes that all differ"):
    retrieving_heads(task, planted._replace(codes=codes), 1, sample)
