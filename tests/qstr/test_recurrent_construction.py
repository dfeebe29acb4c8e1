"""Proposition 28: a recurrent network that solves simple-qSTR."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.qstr.constructions.recurrent import recurrent_retrieval
from sepfx.errors import InvalidSetting
from sepfx.tasks import (
  QSTR,
  Linear,
  Mean,
  ReLUTeacher,
  SquaredNorm,
  independent,
  shared,
)


def built_and_asked(task, key, num_prompts=200):
  """The construction, inputs of some prompts within its radius, and their labels."""
  planted = task.init(key)
  prompts = task.sample(jax.random.key(7), planted, num_prompts)
  precise = jnp.result_type(float)  # float64 where that is enabled
  planted = jax.tree.map(lambda leaf: jnp.asarray(leaf, precise), planted)
  tokens = jnp.asarray(prompts.tokens, precise)
  labels = task.label(planted, tokens, prompts.indices)
  radius = float(jnp.max(jnp.linalg.norm(tokens, axis=-1)))
  built = recurrent_retrieval(task, planted, radius=radius)
  return built, task.encode(planted, prompts._replace(tokens=tokens)), labels


def predictions(built, inputs):
  with jax.default_matmul_precision("highest"):
    return jax.jit(built.model.apply)({"params": built.params}, inputs)


@pytest.mark.parametrize(
  "dtype", [np.float64, pytest.param(np.float32, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
  ("link", "sparsity", "length", "prefactor"),
  [
    (Mean(), 2, 8, True),
    *(
      pytest.param(link, q, length, prefactor, marks=pytest.mark.slow)
      for link in (Linear(), Mean(), ReLUTeacher())
      for q in (1, 2, 3)
      for length, prefactor in ((16, True), (128, False))
    ),
  ],
)
def test_it_is_exact(link, sparsity, length, prefactor, dtype):
  task = QSTR(
    length=length,
    token_dim=5,
    sparsity=sparsity,
    indices=shared,
    link=link,
    codes="incoherent",
    encoding_prefactor=prefactor,
  )
  with jax.enable_x64(dtype == np.float64):
    built, inputs, labels = built_and_asked(task, jax.random.key(sparsity))
    found = predictions(built, inputs)
    assert found.dtype == dtype
    errors, spread = np.abs(np.asarray(found - labels)), np.std(np.asarray(labels))
  assert np.max(errors) <= (1e-12 if dtype == np.float64 else 1e-4)
  assert spread > 0.1  # there is something to predict


@pytest.mark.slow
def test_sizes_and_the_transition():
  task = QSTR(length=16, token_dim=5, sparsity=2, indices=shared, codes="incoherent")
  built, inputs, _ = built_and_asked(task, jax.random.key(0), num_prompts=2)
  d_e, own = task.resolved_code_dim, built.params
  assert built.model.units == 10
  assert built.model.transition_widths == (4 * d_e + 10, 20)
  assert built.model.output_widths == (4 * d_e + 10 + 20, 40, 2)
  # The transition ignores the state: alpha_N = 0 leaves the network as it is.
  assert not np.any(own["forward"]["W_1"][:10])
  held = built.model.clone(lipschitz=0.0)
  found = held.apply({"params": own}, inputs)
  np.testing.assert_array_equal(found, built.model.apply({"params": own}, inputs))
  shapes = jax.eval_shape(built.model.init, jax.random.key(0), inputs)["params"]
  assert jax.tree.map(jnp.shape, own) == jax.tree.map(jnp.shape, shapes)


@pytest.mark.slow
def test_states_are_the_tokens_that_were_named():
  task = QSTR(length=8, token_dim=3, sparsity=2, indices=shared, codes="incoherent")
  key = jax.random.key(1)
  built, inputs, _ = built_and_asked(task, key, num_prompts=20)
  t = task.sample(jax.random.key(7), task.init(key), 20).indices[:, 0]
  own = built.params["forward"]
  x = np.asarray(inputs)
  hidden = np.maximum(x @ own["W_1"][6:] + own["b_1"], 0)
  hidden = np.maximum(hidden @ own["W_2"] + own["b_2"], 0)
  added = (hidden @ own["W_3"]).reshape(20, 8, 2, 3)
  named = (np.arange(8)[None, :, None] == np.asarray(t)[:, None]).astype(float)
  np.testing.assert_allclose(added, named[..., None] * x[:, :, None, :3], atol=1e-4)


@pytest.mark.slow
def test_codes_too_coherent_for_assumption_3_cost_accuracy():
  task = QSTR(length=16, token_dim=5, indices=shared, codes="incoherent")
  built, inputs, labels = built_and_asked(task, jax.random.key(0))
  close = np.max(np.abs(predictions(built, inputs) - labels))
  other = task.init(jax.random.key(0))
  codes = other.codes.at[1].set(other.codes[0])  # two positions with one code
  prompts = task.sample(jax.random.key(7), other, 200)
  shifted = predictions(built, task.encode(other._replace(codes=codes), prompts))
  wrong = np.abs(shifted - labels)
  named = np.asarray(prompts.indices)[:, 0, 0]
  assert np.max(wrong[named > 1]) <= 2 * close + 1e-4  # those that nobody confuses
  assert np.min(np.max(wrong[named <= 1], axis=1)) > 1e-2


def refused(match, radius=5.0, planted=None, **settings):
  settings = {"length": 8, "indices": shared, "codes": "incoherent", **settings}
  task = QSTR(**settings)
  planted = planted or task.init(jax.random.key(0))
  with pytest.raises(InvalidSetting, match=match):
    recurrent_retrieval(task, planted, radius=radius)


def test_what_cannot_be_built_is_refused():
  refused("indices: got 'qstr', takes simple-qSTR", indices=independent)
  refused("link: got 'squared_norm'", link=SquaredNorm())
  refused("radius: got 0", radius=0.0)
  task = QSTR(length=8)
  planted = task.init(jax.random.key(0))
  same = planted._replace(codes=planted.codes.at[1].set(planted.codes[0]))
  refused("codes: got 'coherence 1', takes codes of coherence at most 1/2", planted=same)
  gaussian = planted._replace(codes=planted.codes + 0.01 * jnp.arange(8.0)[:, None])
  refused(
    "codes: got .*, takes codes whose coordinates are all s or -s", planted=gaussian
  )
  none = planted._replace(codes=jnp.zeros_like(planted.codes))
  refused("codes: got .*, takes codes whose coordinates are all s or -s", planted=none)
