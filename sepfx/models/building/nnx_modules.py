"""Modules of `flax.nnx`, in the wrapper that makes linen modules of them.

An nnx module holds its own weights and its own mode. A trial draws weights from its key,
so it takes a class, or what makes one, and `flax.nnx.bridge.ToLinen` around it. Here such
a wrapper is told whether it learns, draws from the keys of the step, and has a name.

`flax.nnx` is not imported unless somebody has: it takes its time.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any

import flax.linen as nn
import jax
from flax.core import FrozenDict
from jaxtyping import PRNGKeyArray

from sepfx import kinds, specifications
from sepfx.errors import InvalidSetting, said

# The stream of nnx that stands for those that are not there.
DEFAULT = "default"


class NoDefaultStream(Exception):
  """Weights are to be drawn, and an nnx module may ask for any stream."""


def are_loaded() -> bool:
  """Whether there can be modules of nnx at all."""
  return "flax.nnx" in sys.modules


def is_wrapped(module: Any) -> bool:
  """Whether it is the linen module around an nnx module."""
  return are_loaded() and isinstance(module, _nnx().bridge.ToLinen)


def is_instance(value: Any) -> bool:
  """Whether it is an nnx module, with weights already."""
  return are_loaded() and isinstance(value, _nnx().Module)


def is_class(value: Any) -> bool:
  """Whether it is a class of nnx modules."""
  return are_loaded() and isinstance(value, type) and issubclass(value, _nnx().Module)


def wrapped(factory: Callable, fields: Mapping[str, Any]) -> nn.Module:
  """Returns a linen module around the nnx modules of a class, or of a function of `rngs`.

  Args:
    factory: which.
    fields: its other arguments.
  """
  parameters = kinds.parameters_of(factory).values()
  takes_rngs = any(
    own.name == "rngs" or own.kind is own.VAR_KEYWORD for own in parameters
  )
  return _nnx().bridge.to_linen(factory, skip_rng=not takes_rngs, **fields)


def fields(module: nn.Module) -> dict[str, Any]:
  """The arguments that a wrapper was given for the module in it, by name."""
  factory, args, kwargs = _call(module)
  parameters = kinds.parameters_of(factory)
  return {**dict(zip(parameters, args, strict=False)), **kwargs}


def names(module: nn.Module) -> Collection[str]:
  """Names of the arguments that what is in a wrapper takes."""
  return kinds.fields_of(_call(module)[0])


def given(module: nn.Module) -> tuple[str, dict[str, Any]]:
  """What a wrapper makes, by name, and with which arguments that are not defaults."""
  factory, *_ = _call(module)
  parameters = kinds.parameters_of(factory)
  defaults = {name: own.default for name, own in parameters.items()}
  own = {
    name: value
    for name, value in fields(module).items()
    if name not in defaults or value != defaults[name]
  }
  return specifications.name_of(factory), own


def with_field(module: nn.Module, name: str, value: Any) -> nn.Module:
  """Returns a wrapper with another value of one argument.

  Raises:
    InvalidSetting: for a value of another type.
  """
  factory, *_ = _call(module)
  kind = kinds.fields_of(factory)[name]
  if isinstance(value, bool | int | float | str | tuple):
    value = kinds.value_of(specifications.canonical(value), kind, name)
  kwargs: FrozenDict = FrozenDict({**fields(module), name: value})
  return module.clone(nnx_class=factory, args=(), kwargs=kwargs)


def hashable(module: nn.Module) -> nn.Module:
  """A wrapper with arguments that can be hashed, where a dict and a list will do, too."""
  if not is_wrapped(module):
    return module
  own: Any = module
  kwargs: FrozenDict = FrozenDict(own.kwargs)
  return own.clone(args=tuple(own.args), kwargs=kwargs)


def class_of(module: Any) -> type:
  """The class of the nnx module that a wrapper makes; nothing is computed.

  Raises:
    InvalidSetting: if it cannot be made.
  """
  if isinstance(module.nnx_class, type):
    return module.nnx_class
  return _class_made_by(hashable(module))


@functools.lru_cache
def _class_made_by(module: Any) -> type:
  def make() -> Any:
    # Made inside: streams cannot be drawn from while something else is traced.
    rngs = {} if module.skip_rng else {"rngs": _nnx().Rngs(0)}
    return module.nnx_class(*module.args, **module.kwargs, **rngs)

  try:
    made = _nnx().eval_shape(make)
  except Exception as error:
    takes = f"a factory of flax.nnx modules ({said(error)})"
    raise InvalidSetting("model", given(module)[0], takes) from error
  return type(made)


def calls(*, learns: bool) -> contextlib.AbstractContextManager:
  """Wrappers that are called meanwhile, at any depth, are told whether they learn.

  The module inside has had its `train()` or its `eval()` called then. Where it learns,
  all its random streams have keys that are folded from the stream "dropout". So it draws
  anew in each step, also where it was made with keys of its own.

  Raises:
    NoDefaultStream: in this context, where weights are drawn without that stream.
  """
  if not are_loaded():
    return contextlib.nullcontext()
  stream = "dropout" if learns else DEFAULT

  def interceptor(call, args, kwargs, context):
    module = context.module
    if not (is_wrapped(module) and context.method_name == "__call__"):
      return call(*args, **kwargs)
    if module.is_initializing() and not module.scope.has_rng(DEFAULT):
      raise NoDefaultStream
    key = module.make_rng(stream) if module.scope.has_rng(stream) else None
    own = functools.partial(_called, kwargs.pop("nnx_method", None), learns, key)
    return call(*args, nnx_method=own, **kwargs)

  return nn.intercept_methods(interceptor)


def _called(
  method: Any, learns: bool, key: PRNGKeyArray | None, module: Any, *args, **kwargs
) -> Any:
  """Calls a method of an nnx module, in the mode and with the key."""
  method = method or "__call__"
  function = getattr(type(module), method) if isinstance(method, str) else method
  if learns:
    module.train()
  else:
    module.eval()
  if key is not None:
    _reseed(module, key)
  signature = inspect.signature(function)
  bound = signature.bind_partial(module, *args, **kwargs).arguments
  if "rngs" in signature.parameters and "rngs" not in bound:
    kwargs["rngs"] = _nnx().Rngs(0 if key is None else key)
  return function(module, *args, **kwargs)


def _reseed(module: Any, key: PRNGKeyArray) -> None:
  """Gives each random stream in an nnx module a key of its own."""
  nnx = _nnx()
  nodes = (node for _, node in nnx.iter_graph(module))
  streams = [node for node in nodes if isinstance(node, nnx.RngStream)]
  for k, stream in enumerate(streams):
    shape = stream.key[...].shape
    stream.key[...] = jax.random.split(jax.random.fold_in(key, k), shape or 1).reshape(
      shape
    )


def _call(module: Any) -> tuple[Callable, tuple, dict[str, Any]]:
  """What a wrapper calls, without `functools.partial`, and with what."""
  kwargs: dict[str, Any] = dict(module.kwargs)
  factory, args = module.nnx_class, tuple(module.args)
  while isinstance(factory, functools.partial):
    args, kwargs = (*factory.args, *args), {**factory.keywords, **kwargs}
    factory = factory.func
  return factory, args, kwargs


def _nnx() -> Any:
  from flax import nnx

  return nnx
