"""Who learns: plain `flax.linen` modules that map inputs [n N D] to outputs [n N].

They know nothing of trials, flags or files and can be used alone in any JAX
project. `build` is where the published configurations have their names.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jax import Array

from sepfx.errors import InvalidSetting, require
from sepfx.models.feedforward import FeedForward
from sepfx.models.recurrent import GRU, LSTM, RNN
from sepfx.models.residual_rnn import ResidualRNN
from sepfx.models.transformer import Transformer, query_key_products

__all__ = [
  "GRU",
  "LSTM",
  "NAMES",
  "RNN",
  "FeedForward",
  "ResidualRNN",
  "Transformer",
  "build",
  "predict",
  "query_key_products",
]

# (N, d, H) -> module, with the published widths.
_PUBLISHED: dict[str, Callable[[int, int, int], nn.Module]] = {
  "transformer": lambda N, d, H: Transformer(num_heads=H),
  "ffn": lambda N, d, H: FeedForward(hidden_widths=(N * d, 1000)),
  "gru": lambda N, d, H: GRU(),
  "lstm": lambda N, d, H: LSTM(),
  "relu_rnn": lambda N, d, H: RNN(),
  "residual_rnn": lambda N, d, H: ResidualRNN(),
}
NAMES = tuple(_PUBLISHED)


def predict(model: nn.Module, params: Any, inputs: Array) -> Array:
  """Applies a module that has parameters only: inputs [n N D] to predictions [n N]."""
  return jnp.asarray(model.apply({"params": params}, inputs))


def build(name: str, *, length: int, token_dim: int, num_heads: int = 1) -> nn.Module:
  """Returns the published configuration of a model, or a user's own.

  Args:
    name: one of `NAMES`, or "package.module:factory" with `factory()` a
      `flax.linen` module; the working directory is searched for it too.
    length: N.
    token_dim: d.
    num_heads: H of the transformer; the others have none.

  Raises:
    InvalidSetting: for a name that is neither, or a factory that does not make a
      `flax.linen` module.
  """
  require(num_heads >= 1, "num_heads", num_heads, "an integer >= 1")
  if name in _PUBLISHED:
    return _PUBLISHED[name](length, token_dim, num_heads)
  takes = f"{', '.join(NAMES)} or package.module:factory"
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
