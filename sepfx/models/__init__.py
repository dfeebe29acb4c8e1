"""Who learns: plain `flax.linen` modules that map inputs [n N D] to outputs [n N].

Or, for tasks of bits, [n T] to logits [n 2]. They know nothing of trials, flags or
files and can be used alone in any JAX project. `build` is where the published
configurations have their names.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from sepfx.errors import InvalidSetting, require
from sepfx.models.cls_attention import ClsAttention, InputMap
from sepfx.models.cls_transformer import ClsTransformer
from sepfx.models.feedforward import FeedForward
from sepfx.models.on_bits import OnBits
from sepfx.models.recurrent import GRU, LSTM, RNN
from sepfx.models.residual_rnn import ResidualRNN
from sepfx.models.transformer import Transformer, query_key_products

__all__ = [
  "GRU",
  "LSTM",
  "NAMES",
  "RNN",
  "ClsAttention",
  "ClsTransformer",
  "FeedForward",
  "InputMap",
  "OnBits",
  "ResidualRNN",
  "Transformer",
  "build",
  "predict",
  "query_key_products",
]

# (task, H) -> module, with the published widths, by the task's objective.
_PUBLISHED: dict[str, dict[str, Callable[[Any, int | None], nn.Module]]] = {
  "regression": {
    "transformer": lambda task, H: Transformer(num_heads=H or 1),
    "ffn": lambda task, H: FeedForward((task.length * task.token_dim, 1000)),
    "gru": lambda task, H: GRU(),
    "lstm": lambda task, H: LSTM(),
    "relu_rnn": lambda task, H: RNN(),
    "residual_rnn": lambda task, H: ResidualRNN(),
  },
  "classification": {
    "transformer": lambda task, H: ClsTransformer(num_heads=H or 16),
    # Not published: about as many parameters as the Transformer has at T = 100.
    "ffn": lambda task, H: OnBits(FeedForward((256, 128), num_outputs=2)),
    "gru": lambda task, H: OnBits(GRU(units=96, num_outputs=2)),
    "lstm": lambda task, H: OnBits(LSTM(units=84, num_outputs=2)),
  },
}
NAMES = {objective: tuple(models) for objective, models in _PUBLISHED.items()}
# Inputs that a model takes at once where there are many.
_CHUNK = 500


def predict(
  model: nn.Module, params: Any, inputs: Array, *, dropout_key: Array | None = None
) -> Array:
  """Applies a module that has parameters only, to inputs [n ...].

  Args:
    model: the module.
    params: its parameters.
    inputs: what it takes.
    dropout_key: for modules with dropout, which is off where there is none.
  """
  rngs = None if dropout_key is None else {"dropout": dropout_key}
  return jnp.asarray(model.apply({"params": params}, inputs, rngs=rngs))


def predict_many(model: nn.Module, params: Any, inputs: Array) -> Array:
  """The same without dropout, for more inputs than fit in memory at once.

  A model may know a cheaper way to the same outputs: a method `tabulated`, which is
  taken where the model's attribute `tabulates` is true.
  """
  if getattr(model, "tabulates", False):
    return jnp.asarray(model.apply({"params": params}, inputs, method="tabulated"))
  whole = len(inputs) // _CHUNK * _CHUNK
  chunks = inputs[:whole].reshape(-1, _CHUNK, *inputs.shape[1:])
  outputs = jax.lax.map(lambda chunk: predict(model, params, chunk), chunks)
  outputs = outputs.reshape(whole, *outputs.shape[2:])
  if whole == len(inputs):
    return outputs
  return jnp.concatenate([outputs, predict(model, params, inputs[whole:])])


def build(name: str, task: Any, *, num_heads: int | None = None) -> nn.Module:
  """Returns the published configuration of a model, or a user's own.

  Args:
    name: one of `NAMES` of the task's objective, or "package.module:factory" with
      `factory()` a `flax.linen` module; the working directory is searched for it too.
    task: what it is to learn.
    num_heads: H of the transformer, None for the published number; the others have
      none.

  Raises:
    InvalidSetting: for a name that is neither, or a factory that does not make a
      `flax.linen` module.
  """
  require(num_heads is None or num_heads >= 1, "num_heads", num_heads, "an integer >= 1")
  published = _PUBLISHED[task.objective]
  if name in published:
    return published[name](task, num_heads)
  takes = f"{', '.join(published)} or package.module:factory"
  module_name, separator, attribute = name.partition(":")
  if not separator:
    raise InvalidSetting("models", name, takes)
  if os.getcwd() not in sys.path:
    sys.path.append(os.getcwd())
  try:
    factory = getattr(importlib.import_module(module_name), attribute)
  except (ImportError, AttributeError, ValueError) as error:
    raise InvalidSetting("models", name, f"{takes} ({error})") from error
  module = factory()
  require(
    isinstance(module, nn.Module),
    "models",
    name,
    f"a factory that returns a flax.linen module (it returned {type(module).__name__})",
  )
  return module
