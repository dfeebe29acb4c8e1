"""Who learns: plain `flax.linen` modules that map inputs [n N D] to outputs [n N].

Or, for tasks of bits, [n T] to logits [n 2] or numbers [n], and for chains of bits to
logits [n L 2]. They know nothing of trials, flags or files and can be used alone in any
JAX project. `build` is where the published configurations have their names.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from sepfx import specifications
from sepfx.errors import InvalidSetting, one_line, require
from sepfx.models import modes, nnx_modules
from sepfx.models.causal_transformer import CausalTransformer
from sepfx.models.channel_transformer import ChannelTransformer
from sepfx.models.cls_attention import ClsAttention, InputMap
from sepfx.models.cls_transformer import ClsTransformer
from sepfx.models.convolution import Convolution
from sepfx.models.deep_transformer import DeepTransformer
from sepfx.models.dense_first import DenseFirst
from sepfx.models.feedforward import FeedForward
from sepfx.models.linear_attention import LinearAttention
from sepfx.models.linear_recurrences import LRU, MinGRU
from sepfx.models.network import Network
from sepfx.models.on_bits import OnBits
from sepfx.models.read_out_transformer import ReadOutTransformer
from sepfx.models.recurrent import GRU, LSTM, RNN
from sepfx.models.residual_rnn import ResidualRNN
from sepfx.models.tokens_first import TokensFirst
from sepfx.models.transformer import Transformer, query_key_products

__all__ = [
  "GRU",
  "LRU",
  "LSTM",
  "NAMES",
  "RNN",
  "CausalTransformer",
  "ChannelTransformer",
  "ClsAttention",
  "ClsTransformer",
  "Convolution",
  "DeepTransformer",
  "DenseFirst",
  "FeedForward",
  "InputMap",
  "LinearAttention",
  "MinGRU",
  "Network",
  "OnBits",
  "ReadOutTransformer",
  "ResidualRNN",
  "TokensFirst",
  "Transformer",
  "build",
  "check_module",
  "check_sized",
  "evaluate",
  "evaluates_many",
  "factory_name",
  "has_field",
  "made",
  "makes_modules",
  "predict",
  "query_key_products",
  "record_name",
  "sized",
  "with_fields",
]


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
_PUBLISHED: dict[str, dict[str, _Published]] = {
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
# By how much of the number of parameters that was asked for a model may miss it.
_CLOSE = 0.05
NAMES = {kind: tuple(models) for kind, models in _PUBLISHED.items()}


def predict(
  model: nn.Module, params: Any, inputs: Array, *, dropout_key: Array | None = None
) -> Array:
  """Applies a module that has parameters only, to inputs [n ...].

  A module that takes a flag (`sepfx.models.modes.FLAGS`) is told that it learns where
  there is a key, and that it does not where there is none.

  Args:
    model: the module.
    params: its parameters.
    inputs: what it takes.
    dropout_key: for modules with dropout, which is off where there is none. Other random
      streams that it asks for have keys that are folded from it.
  """
  return jnp.asarray(modes.apply(model, params, inputs, dropout_key))


def evaluate(model: nn.Module, params: Any, inputs: Array) -> Array:
  """The same without dropout.

  A model may know a cheaper way to the same outputs, above all for many inputs: a method
  `evaluate(inputs)`, which is taken if it is there.
  """
  if not evaluates_many(model):
    return predict(model, params, inputs)
  return jnp.asarray(model.apply({"params": params}, inputs, method="evaluate"))


def evaluates_many(model: nn.Module) -> bool:
  """Whether a model has an `evaluate`, which takes any number of inputs."""
  return hasattr(type(model), "evaluate")


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
  published = _PUBLISHED.get(kind, {})
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


def made(
  factory: Callable, task: Any, name: Any, fields: Mapping[str, Any] | None = None
) -> nn.Module:
  """Returns the module that a class or factory makes for a task.

  Args:
    factory: of `flax.linen` modules; or a class of `flax.nnx` modules, or a function of
      `rngs` that returns one. Where it has a parameter `task` or `length`, it is given
      the task, or the task's length.
    task: what the module is to learn.
    name: what it was given as, for messages.
    fields: other arguments.

  Raises:
    InvalidSetting: for what makes no module, or needs other arguments.
  """
  parameters = _parameters(factory)
  of_task = {"task": task, "length": task.length}
  own = {key: value for key, value in of_task.items() if key in parameters}
  own |= fields or {}
  if nnx_modules.is_class(_innermost(factory)) or "rngs" in parameters:
    return nnx_modules.wrapped(factory, own)
  try:
    module = factory(**own)
  except TypeError as error:
    takes = "a factory that needs nothing but the fields given "
    takes += f"(it raised: {one_line(error)})"
    raise InvalidSetting("model", name, takes) from error
  check_module(module, name)
  return nnx_modules.hashable(module)


def makes_modules(value: Any) -> bool:
  """Whether a value is given in place of modules, to make one for each task.

  It is a callable with a parameter `task` or `length`, a class of `flax.nnx` modules, or
  a callable with a parameter `rngs`.
  """
  if isinstance(value, nn.Module) or nnx_modules.is_instance(value):
    return False
  is_class = nnx_modules.is_class(_innermost(value))
  return is_class or not {"task", "length", "rngs"}.isdisjoint(_parameters(value))


def factory_name(factory: Callable) -> str:
  """How records call the modules of a factory, the same for every task."""
  return specifications.name_of(factory)


def _parameters(factory: Any) -> Collection[str]:
  """Names of what a callable takes; none if it is no callable or does not tell."""
  try:
    return specifications.parameters_of(factory)
  except (TypeError, ValueError):
    return ()


def _innermost(factory: Any) -> Any:
  while isinstance(factory, functools.partial):
    factory = factory.func
  return factory


def sized(name: str, task: Any, num_parameters: int) -> dict[str, Any]:
  """Returns the fields with which a named model has about so many parameters.

  One width is scaled, or all by one factor: the read-out's of the Transformer and linear
  attention, the state of recurrent networks, the dense layer of what is behind one, the
  residual stream (in multiples of four heads) of the deep Transformer.

  Args:
    name: a specification, one of `NAMES` for the task's objective with other fields.
    task: what it is to learn.
    num_parameters: wanted, a positive number.

  Raises:
    InvalidSetting: for a model of another name, a field that would be scaled, a number
      of which no width comes within 5%, or for what `build` refuses.
  """
  require(num_parameters > 0, "num_parameters", num_parameters, "a positive number")
  fields = _sized(name, task)
  inputs = jax.eval_shape(lambda key: _inputs(task, key), jax.random.key(0))

  def count(k: int) -> int:
    return _num_parameters(build(name, task, fields(task, k)), inputs)

  check_sized(name, task, ())
  low, high = 1, 2
  while count(high) < num_parameters:
    low, high = high, 2 * high
  while high - low > 1:
    middle = (low + high) // 2
    low, high = (middle, high) if count(middle) < num_parameters else (low, middle)
  best = min((low, high), key=lambda k: abs(count(k) - num_parameters))
  found = count(best)
  takes = f"a number that a width reaches; the nearest of {name} is {found}"
  close = abs(found - num_parameters) <= _CLOSE * num_parameters
  require(close, "num_parameters", num_parameters, takes)
  return fields(task, best)


def check_sized(name: str, task: Any, given: Iterable[str]) -> None:
  """Raises `InvalidSetting` if fields are given that follow from a number of parameters.

  Args:
    name: the model's specification, whose own fields count.
    task: what it is to learn.
    given: names of further fields.
  """
  specification = specifications.parse(name, "model")
  fixed = {*_sized(name, task)(task, 1)} & {*specification.fields, *given}
  takes = f"a model without {', '.join(sorted(fixed))}, which it sets"
  require(not fixed, "num_parameters", name, takes)


def _sized(name: str, task: Any) -> Callable[[Any, int], dict[str, Any]]:
  own = _PUBLISHED.get(task.objective.name, {}).get(
    specifications.parse(name, "model").name
  )
  if own is None or own.sized is None:
    takes = "a model whose widths are known to scale: one of those named for tokens"
    raise InvalidSetting("num_parameters", name, takes)
  return own.sized


def _inputs(task: Any, key: Array) -> Array:
  planted = task.init(key)
  return task.encode(planted, task.sample(key, planted, 1))


def _num_parameters(module: nn.Module, inputs: jax.ShapeDtypeStruct) -> int:
  params = jax.eval_shape(
    functools.partial(modes.init, module), jax.random.key(0), inputs
  )
  return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))


def check_module(module: Any, name: Any) -> None:
  """Raises `InvalidSetting`, and says how to mend it, unless it is a linen module."""
  own = type(module).__name__
  if isinstance(module, type):
    hint = f"an instance: did you forget () after {module.__name__}?"
  elif nnx_modules.is_instance(module):
    name = f"{own}(...)" if name is module else name  # all its weights would be shown
    hint = f"no flax.nnx module that has weights: each trial draws its own. Give {own} "
    hint += f"itself, or flax.nnx.bridge.to_linen({own}, ...) with its arguments but rngs"
  else:
    hint = f"a flax.linen module, or a factory of one (this is {own})"
  require(isinstance(module, nn.Module), "model", name, hint)


def record_name(module: nn.Module) -> str:
  """How records call a module: its linen `name`, or its class.

  With the class stand those of its fields that are not at their defaults, so that two
  modules of a class differ: "Transformer:num_heads=2". A wrapper of `flax.nnx` is called
  like what it wraps.
  """
  if module.name is not None:
    return module.name
  if nnx_modules.is_wrapped(module):
    return specifications.with_fields(*nnx_modules.given(module))
  given = {}
  for field in sorted(dataclasses.fields(module), key=lambda own: bool(own.kw_only)):
    value = getattr(module, field.name)
    if field.name not in ("parent", "name") and value != field.default:
      inner = isinstance(value, nn.Module)
      given[field.name] = f"({record_name(value)})" if inner else value
  return specifications.with_fields(type(module).__name__, given)


def has_field(module: nn.Module, name: str) -> bool:
  """Whether a module, or the one that it wraps, has a field of this name."""
  if nnx_modules.is_wrapped(module):
    return name in nnx_modules.names(module)
  if name in specifications.fields_of(type(module)):
    return True
  inner = getattr(module, "model", None)
  return isinstance(inner, nn.Module) and has_field(inner, name)


def with_fields(module: nn.Module, fields: Mapping[str, Any]) -> nn.Module:
  """Returns a module with other values of some fields, those of what is inside it too.

  Raises:
    InvalidSetting: for a field that neither it nor the module that it wraps has.
  """
  for name, value in fields.items():
    if nnx_modules.is_wrapped(module) and has_field(module, name):
      module = nnx_modules.with_field(module, name, value)
    elif name in specifications.fields_of(type(module)):
      module = specifications.with_field(module, name, value, name)
    else:
      takes = f"no value: {record_name(module)} has no such field"
      require(has_field(module, name), name, value, takes)
      inner = with_fields(getattr(module, "model"), {name: value})  # noqa: B009
      module = specifications.with_field(module, "model", inner, name)
  return module
