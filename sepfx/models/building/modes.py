"""How a module is told whether it learns: by a flag of its call, and by random streams.

Flax's own convention is a flag such as `train`, passed to every call. Another one is that
of this package's models, which draw where `apply` is given a key to draw from. Modules of
`flax.nnx` have a mode of their own (`nnx_modules`). All are followed here. So a module
needs no change to be trained.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import threading
from collections.abc import Iterator
from typing import Any

import flax.linen as nn
import jax
import numpy as np
from flax.core.scope import Scope
from flax.errors import InvalidRngError
from jaxtyping import Array, PRNGKeyArray

from sepfx.models.building import nnx_modules

# Flags by which a call is told whether it learns, with their value where it does.
FLAGS = {"train": True, "training": True, "is_training": True, "deterministic": False}
# Scopes are listened to by one thread at a time.
_LISTENING = threading.RLock()


def flags_of(module: nn.Module) -> tuple[str, ...]:
  """Names of those of `FLAGS` that a call of a module takes.

  A call that passes keywords on to the field `model` (`__call__(self, x, **mode)`) takes
  those of that model.
  """
  parameters = _parameters(module)
  own = tuple(name for name in FLAGS if name in parameters)
  inner = getattr(module, "model", None)
  passes_on = any(own.kind is own.VAR_KEYWORD for own in parameters.values())
  if not own and passes_on and isinstance(inner, nn.Module):
    return flags_of(inner)
  return own


def described(module: nn.Module) -> str:
  """By what a module is told whether it learns, "" for random streams alone."""
  nnx = ("nnx",) if nnx_modules.is_wrapped(module) else ()
  return ", ".join((*nnx, *flags_of(module)))


def init(module: nn.Module, key: PRNGKeyArray, inputs: Any) -> Any:
  """Returns a module's variables, without metadata of their axes.

  Args:
    module: any.
    key: of the initial weights.
    inputs: what it takes.
  """
  args, kwargs = told(module, learns=False)
  try:
    with nnx_modules.calls(learns=False):
      variables = module.init(key, inputs, *args, **kwargs)
  except nnx_modules.NoDefaultStream:
    rngs = {"params": key, nnx_modules.DEFAULT: stream_key(key, nnx_modules.DEFAULT)}
    with nnx_modules.calls(learns=False):
      variables = module.init(rngs, inputs, *args, **kwargs)
  return nn.meta.unbox(variables)


def apply(
  module: nn.Module, params: Any, inputs: Any, key: PRNGKeyArray | None = None
) -> Any:
  """Applies a module that has parameters only.

  Args:
    module: any.
    params: its parameters.
    inputs: what it takes.
    key: of the stream "dropout" where it learns; keys of other streams that it asks for
      are folded from it. None where it is evaluated.

  Raises:
    InvalidRngError: of Flax, for a module that draws where it is evaluated.
  """
  args, kwargs = told(module, learns=key is not None)
  rngs = {} if key is None else {"dropout": key}
  while True:
    with _asked() as names, nnx_modules.calls(learns=key is not None):
      try:
        outputs: Any = module.apply(
          {"params": params}, inputs, *args, rngs=rngs or None, **kwargs
        )
      except InvalidRngError:
        if key is None or names <= rngs.keys():
          raise
    missing = names - rngs.keys()
    if key is None or not missing:
      return outputs
    rngs |= {name: stream_key(key, name) for name in missing}


def draws(module: nn.Module, params: Any, inputs: Any) -> bool:
  """Whether a module's outputs depend on a random stream where it is evaluated.

  Only shapes are computed. Streams of linen, which are not there then, are no matter.
  """
  if not nnx_modules.are_loaded():
    return False
  args, kwargs = told(module, learns=False)

  def outputs(key, params, inputs):
    rngs = {nnx_modules.DEFAULT: key}
    with nnx_modules.calls(learns=False):
      return module.apply({"params": params}, inputs, *args, rngs=rngs, **kwargs)

  try:
    each = jax.vmap(outputs, in_axes=(0, None, None), out_axes=None)
    jax.eval_shape(each, jax.random.split(jax.random.key(0), 2), params, inputs)
  except ValueError:  # outputs that differ from key to key
    return True
  return False


def stream_key(key: PRNGKeyArray, name: str) -> PRNGKeyArray:
  """The key of the stream of a name, folded from another one."""
  word = np.frombuffer(hashlib.sha256(name.encode()).digest()[:4], "<u4")[0]
  return jax.random.fold_in(key, word)


def told(module: nn.Module, *, learns: bool) -> tuple[tuple, dict[str, Any]]:
  """What a call takes after the inputs: whether it learns, by place and by name."""
  values = {name: FLAGS[name] is learns for name in flags_of(module)}
  after = [*_parameters(module).values()][1:2]
  # By its place where it has one: `nn.remat` knows static arguments by theirs.
  if after and after[0].name in values and after[0].kind is not after[0].KEYWORD_ONLY:
    return (values.pop(after[0].name),), values
  return (), values


def _parameters(module: nn.Module) -> dict[str, inspect.Parameter]:
  """Those of a module's call, the inputs first."""
  own = nnx_modules.class_of(module) if nnx_modules.is_wrapped(module) else type(module)
  _, *parameters = inspect.signature(own.__call__).parameters.values()
  return {parameter.name: parameter for parameter in parameters}


@contextlib.contextmanager
def _asked() -> Iterator[set[str]]:
  """Names of the random streams that this thread asks scopes for meanwhile.

  A module that only asks whether a stream is there raises nothing, so errors alone would
  not tell.
  """
  names: set[str] = set()
  here, making = threading.get_ident(), False

  def has_rng(scope: Scope, name: str) -> bool:
    # "params" is asked for in place of a stream that is not there.
    if threading.get_ident() == here and not making and name != "params":
      names.add(name)
    return of_has(scope, name)

  def make_rng(scope: Scope, name: str = "params") -> Array:
    nonlocal making
    if threading.get_ident() != here:
      return of_make(scope, name)
    names.add(name)
    making = True
    try:
      return of_make(scope, name)
    finally:
      making = False

  with _LISTENING:
    of_has, of_make = Scope.has_rng, Scope.make_rng
    setattr(Scope, "has_rng", has_rng)  # noqa: B010
    setattr(Scope, "make_rng", make_rng)  # noqa: B010
    try:
      yield names
    finally:
      setattr(Scope, "has_rng", of_has)  # noqa: B010
      setattr(Scope, "make_rng", of_make)  # noqa: B010
