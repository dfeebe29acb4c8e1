"""The published configurations by their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import flax.linen as nn

from sepfx import specifications
from sepfx.errors import InvalidSetting, require
from sepfx.models.building.factories import made
from sepfx.models.causal_transformer import CausalTransformer
from sepfx.models.channel_transformer import ChannelTransformer
from sepfx.models.cls_transformer import ClsTransformer
from sepfx.models.convolution import Convolution
from sepfx.models.deep_transformer import DeepTransformer
from sepfx.models.dense_first import DenseFirst
from sepfx.models.feedforward import FeedForward
from sepfx.models.linear_attention import LinearAttention
from sepfx.models.linear_recurrences import LRU, MinGRU
from sepfx.models.on_bits import OnBits
from sepfx.models.read_out_transformer import ReadOutTransformer
from sepfx.models.recurrent import GRU, LSTM, RNN
from sepfx.models.residual_rnn import ResidualRNN
from sepfx.models.tokens_first import TokensFirst
from sepfx.models.transformer import Transformer


class _Published(NamedTuple):
  """A published configuration: a class, and its fields where they are not its defaults.

  Attributes:
    module: the class, whose fields a specification may name.
    fields: task -> those of the configuration.
    on_bits: whether it is a model of tokens, to be given bits.
    sized: task and a width -> the fields with which its parameters grow with the width.
  """

  module: type[nn.Module]
  fields: Callable[[Any], dict[str, Any]] = lambda task: {}
  on_bits: bool = False
  sized: Callable[[Any, int], dict[str, Any]] | None = None


def _width(_: Any, k: int) -> dict[str, Any]:
  return {"width": k}


def _units(_: Any, k: int) -> dict[str, Any]:
  return {"units": k}


def _ffn_widths(task: Any, k: int) -> dict[str, Any]:
  """In the ratio of the published ones."""
  return {"hidden_widths": (-(-k * task.length * task.token_dim // 1000), k)}


def _tokens_first_widths(_: Any, k: int) -> dict[str, Any]:
  return {"width": k, "hidden_widths": (k,)}


# By the kind of a task's objective.
PUBLISHED: dict[str, dict[str, _Published]] = {
  "regression": {
    "transformer": _Published(Transformer, sized=_width),
    "ffn": _Published(
      FeedForward, lambda task: _ffn_widths(task, 1000), sized=_ffn_widths
    ),
    "gru": _Published(GRU, sized=_units),
    "lstm": _Published(LSTM, sized=_units),
    "relu_rnn": _Published(RNN, sized=_units),
    "residual_rnn": _Published(
      ResidualRNN, sized=lambda _, k: {"units": k, "transition_widths": (k, k, k)}
    ),
    # Not published: what else learns sequences.
    "linear_attention": _Published(LinearAttention, sized=_width),
    "lru": _Published(LRU, sized=_units),
    "min_gru": _Published(MinGRU, sized=_units),
    "deep_transformer": _Published(
      DeepTransformer,
      sized=lambda _, k: {"width": 4 * k, "mlp_width": 16 * k, "num_heads": 4},
    ),
    "tokens_first": _Published(
      TokensFirst, lambda task: {"token_dim": task.token_dim}, sized=_tokens_first_widths
    ),
    "dense_transformer": _Published(
      DenseFirst, lambda _: {"model": Transformer()}, sized=_width
    ),
    "dense_convolution": _Published(
      DenseFirst, lambda _: {"model": Convolution()}, sized=_width
    ),
  },
  "regression_on_bits": {
    "transformer": _Published(ReadOutTransformer),
    # The width of the flat construction.
    "minimal": _Published(ReadOutTransformer, lambda task: {"embedding_dim": None}),
    # One channel after attention, to be looked into.
    "channel": _Published(ChannelTransformer),
  },
  "steps": {
    "transformer": _Published(
      CausalTransformer, lambda task: {"num_read": task.num_steps}
    ),
  },
  "classification": {
    "transformer": _Published(ClsTransformer),
    # Not published: about as many parameters as the Transformer has at T = 100.
    "ffn": _Published(
      FeedForward, lambda task: {"hidden_widths": (256, 128), "num_outputs": 2}, True
    ),
    "gru": _Published(GRU, lambda task: {"units": 96, "num_outputs": 2}, True),
    "lstm": _Published(LSTM, lambda task: {"units": 84, "num_outputs": 2}, True),
  },
}
NAMES = {kind: tuple(models) for kind, models in PUBLISHED.items()}


def build(name: str, task: Any, fields: Mapping[str, Any] | None = None) -> nn.Module:
  """Returns the published configuration of a model, or a user's own.

  Args:
    name: a specification: one of `NAMES` for the task's objective, or
      "package.module:factory" with a factory as in `made` (a class is one, too); and
      fields, as in "transformer:num_heads=2".
    task: what it is to learn.
    fields: others, as values.

  Raises:
    InvalidSetting: for a name that is neither, a field that the model does not have, or
      a factory that does not make a module.
  """
  specification = specifications.parse(name, "model")
  kind = task.objective.name
  published = PUBLISHED.get(kind, {})
  known = published.get(specification.name)
  takes = f"{', '.join(published)} or " * bool(published) + "package.module:factory"
  target = (
    known.module if known else specifications.imported(specification.name, "model", takes)
  )
  require(callable(target), "model", name, f"{takes} (this is no factory)")
  own = {**specifications.typed(specification, target, "model"), **(fields or {})}
  if known:
    try:
      fields_of_task = known.fields(task)
    except AttributeError as error:
      takes = f"a task with {error.name}, which {type(task).__name__} lacks; a module of "
      raise InvalidSetting("model", name, f"{takes}your own needs none") from error
    module = known.module(**{**fields_of_task, **own})
    return OnBits(module) if known.on_bits else module
  return made(target, task, name, own)
