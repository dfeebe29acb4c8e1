"""Whether a model and an optimizer can be trained, before anything is compiled."""

from __future__ import annotations

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.errors import InvalidRngError

from sepfx.errors import InvalidSetting, WrongInputs, require, said
from sepfx.models.building import modes
from sepfx.training.optimizers import AdamW

# What is said of a module that draws random numbers where it is evaluated.
_DRAWS = (
  "a module that draws no random numbers where it is evaluated: one that draws where "
  f"`self.has_rng` says that there is a key, or whose call takes {', '.join(modes.FLAGS)}"
)


def check_model(model: nn.Module, name: str, inputs: Any, outputs_shape: tuple) -> Any:
  """Returns the shapes of a module's parameters; only shapes are computed.

  Args:
    model: any module.
    name: how records call it, for messages.
    inputs: of two samples, shapes and types: an array's, or several.
    outputs_shape: what it is to give for them.

  Raises:
    InvalidSetting: for one that gives something else, that has more than parameters, that
      draws random numbers where it is evaluated, or that has no gradient.
  """
  shapes = " and ".join(str(list(own.shape)) for own in jax.tree.leaves(inputs))
  takes = f"a module that maps inputs {shapes} to outputs "
  takes += f"{list(outputs_shape)}"
  try:
    init = functools.partial(modes.init, model)
    variables = jax.eval_shape(init, jax.random.key(0), inputs)
  except WrongInputs as error:
    takes += f"; this one is for inputs [{error.axes}]"
    raise InvalidSetting("model", name, takes) from error
  except Exception as error:
    takes += f" ({said(error)})"
    raise InvalidSetting("model", name, takes) from error
  if set(variables) - {"params"}:
    extra = ", ".join(sorted(set(variables) - {"params"}))
    raise InvalidSetting(
      "model", name, f"a module with parameters only (it also has {extra})"
    )
  params = variables.get("params", {})

  def require_shape(outputs: Any) -> None:
    got = getattr(outputs, "shape", None)
    described = list(got) if got is not None else type(outputs).__name__
    fits = got == outputs_shape
    require(fits, "model", name, f"{takes} (it gave {described})")

  def learning(params: Any, inputs: Any) -> Any:
    outputs = modes.apply(model, params, inputs, key=jax.random.key(0))
    require_shape(outputs)
    return jnp.sum(outputs)

  try:
    outputs = jax.eval_shape(functools.partial(modes.apply, model), params, inputs)
  except Exception as error:
    takes = _DRAWS if isinstance(error, InvalidRngError) else f"{takes} ({said(error)})"
    raise InvalidSetting("model", name, takes) from error
  require_shape(outputs)
  try:
    jax.eval_shape(jax.grad(learning), params, inputs)
  except InvalidSetting:
    raise
  except Exception as error:
    takes = f"a module that has a gradient where it learns ({said(error)})"
    raise InvalidSetting("model", name, takes) from error
  require(not modes.draws(model, params, inputs), "model", name, _DRAWS)
  return params


def check_optimizer(own: Any, params: Any) -> None:
  """Raises `InvalidSetting` unless an optimizer steps from gradients and parameters.

  Args:
    own: an `AdamW`, or of optax.
    params: shapes of the parameters.
  """
  if isinstance(own, AdamW):  # its settings are checked already
    return

  def step(params):
    optimizer = optax.with_extra_args_support(own)
    state = optimizer.init(params)
    return optimizer.update(params, state, params, grad_fn=lambda *_: params)

  try:
    jax.eval_shape(step, params)
  except Exception as error:
    takes = "an optimizer of optax, made by a call such as optax.adam(1e-3), that steps "
    takes += f"from gradients and parameters alone ({said(error)})"
    raise InvalidSetting("optimizer", own, takes) from error
