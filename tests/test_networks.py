"""What all models have: types of their numbers, and refusals of what is no input."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sepfx import InvalidSetting, descriptions, kinds, models
from sepfx.tasks import QSTR

TOKENS = [
  models.Transformer(num_heads=2, width=5),
  models.Transformer(2, "full", width=5),
  models.FeedForward((5, 6)),
  models.GRU(6),
  models.LSTM(6, num_outputs=2),
  models.RNN(3, scheme="flax"),
  models.ResidualRNN(6, (5,)),
  models.ResidualRNN(6, (5, 4), lipschitz=0.5),
  models.LRU(4, 5),
  models.LRU(40, 5),
  models.MinGRU(4, 5),
  models.LinearAttention(2, width=5),
  models.DeepTransformer(2, 2, 8),
  models.TokensFirst(3, 5, (4,)),
  models.DenseFirst(models.Transformer(width=5)),
  models.Convolution(2, 5),
]
BITS = [
  models.OnBits(models.GRU(4, num_outputs=2)),
  models.ClsTransformer(1, 2, 8),
  models.ClsTransformer(2, 2, 8),
  models.ReadOutTransformer(2, embedding_dim=3, mlp_width=4, layer_norm=True),
  models.ReadOutTransformer(1, embedding_dim=None, mlp_width=4),
  models.CausalTransformer(2, embedding_dim=3, mlp_width=4),
  models.ChannelTransformer(4),
  models.ClsAttention(models.InputMap("trainable"), hidden_widths=(3, 4)),
  models.ClsAttention(models.InputMap("bag"), project=True),
]
every = pytest.mark.parametrize("module", TOKENS + BITS, ids=models.record_name)


def with_types(module, **types):
  """The module and those in it, with these types."""
  inner = {
    name: getattr(module, name).clone(**types)
    for name in ("model", "input_map")
    if hasattr(module, name)
  }
  own = types if "dtype" in kinds.fields_of(type(module)) else {}
  return module.clone(**inner, **own)


def inputs_of(module):
  """Tokens [5 6 7], or bits [5 6]."""
  rng = np.random.default_rng(0)
  if module in TOKENS:
    return rng.normal(size=(5, 6, 7)).astype(np.float32)
  return rng.integers(0, 2, (5, 6))


def types_of(tree):
  return {str(leaf.dtype) for leaf in jax.tree.leaves(tree)}


@pytest.mark.slow
@every
def test_computes_in_half_precision(module):
  inputs = inputs_of(module)
  half = with_types(module, dtype=jnp.bfloat16)

  def loss(params):
    outputs = half.apply({"params": params}, inputs)
    return jnp.sum(jnp.sin(outputs.astype(jnp.float32))), outputs

  params = jax.jit(module.init)(jax.random.key(1), inputs)["params"]
  assert types_of(params) == {"float32"}
  assert types_of(jax.eval_shape(half.init, jax.random.key(1), inputs)) == {"float32"}
  (_, outputs), gradients = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
  whole = jax.jit(module.apply)({"params": params}, inputs)
  assert outputs.dtype == jnp.bfloat16
  # bfloat16 has eight bits.
  bound = 0.05 * float(jnp.max(jnp.abs(whole)))
  np.testing.assert_allclose(outputs.astype(jnp.float32), whole, atol=bound)
  assert not np.array_equal(outputs.astype(jnp.float32), whole)
  assert types_of(gradients) == {"float32"}
  assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradients))


@every
def test_parameters_in_half_precision(module):
  inputs = inputs_of(module)
  half = with_types(module, param_dtype="bfloat16")
  params = jax.eval_shape(half.init, jax.random.key(1), inputs)["params"]
  assert types_of(params) == {"bfloat16"}
  both = with_types(module, dtype="bfloat16", param_dtype=jnp.bfloat16)
  assert both == with_types(module, dtype=jnp.bfloat16, param_dtype="bfloat16")
  outputs, params = jax.eval_shape(both.init_with_output, jax.random.key(1), inputs)
  assert types_of((outputs, params)) == {"bfloat16"}


@pytest.mark.parametrize("module", TOKENS, ids=models.record_name)
def test_inputs_in_half_precision(module):
  """Parameters decide what is computed in, unless `dtype` does, as in Flax's layers."""
  inputs = inputs_of(module).astype(jnp.bfloat16)
  outputs, _ = jax.eval_shape(module.init_with_output, jax.random.key(1), inputs)
  assert outputs.dtype == jnp.float32


@pytest.mark.slow
def test_evaluation_by_a_table_in_half_precision():
  module = models.ClsTransformer(1, 2, 8)
  bits = inputs_of(module)
  params = module.init(jax.random.key(1), bits)["params"]
  half = module.clone(dtype="bfloat16")
  outputs = models.evaluate(half, params, bits)
  assert outputs.dtype == jnp.bfloat16
  whole = models.evaluate(module, params, bits)
  bound = 0.05 * float(jnp.max(jnp.abs(whole)))
  np.testing.assert_allclose(outputs.astype(jnp.float32), whole, atol=bound)


@every
@pytest.mark.usefixtures("unchecked_arrays")
def test_refuses_what_is_no_batch(module):
  inputs = inputs_of(module)
  for wrong in (inputs[0], inputs[:0], inputs[:, :0], inputs[None]):
    with pytest.raises(InvalidSetting, match=r"inputs: got 'shape .*takes an array \[n "):
      jax.eval_shape(module.init, jax.random.key(0), wrong)


@pytest.mark.parametrize("dtype", ["int32", "complex64", "half precision", 3, None])
def test_types_of_parameters_that_cannot_be(dtype):
  with pytest.raises(
    InvalidSetting, match=r"param_dtype: got .* takes bfloat16, float16"
  ):
    models.GRU(param_dtype=dtype)


def test_types_by_name():
  module = models.build("gru:units=4:dtype=bfloat16", QSTR())
  assert module == models.GRU(4, dtype=jnp.bfloat16)
  assert models.record_name(module) == "GRU:units=4:dtype=bfloat16"
  described = json.loads(json.dumps(descriptions.described(module)))
  assert (
    descriptions.rebuilt(described, {"sepfx.models.recurrent:GRU": models.GRU}) == module
  )
  with pytest.raises(InvalidSetting, match="dtype: got 'int8', takes bfloat16"):
    models.build("gru:dtype=int8", QSTR())
