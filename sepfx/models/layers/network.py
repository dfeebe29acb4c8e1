"""What all models have: types of their numbers, and clear errors for their inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from sepfx.errors import InvalidSetting, WrongInputs, require
from sepfx.models.layers.initializers import Initializer, MixerScheme, dense_init
from sepfx.models.layers.products import dot_general


class Network(nn.Module, kw_only=True):
  """A module whose numbers have types as those of Flax's layers.

  Attributes:
    dtype: of the computation: "bfloat16", `jnp.float16` and the like; None for what
      inputs and parameters are promoted to. The fields hold names.
    param_dtype: of the parameters.

  Raises:
    InvalidSetting: for a type that is not of real numbers with a fraction.
  """

  dtype: DTypeLike | None = None
  param_dtype: DTypeLike = "float32"

  def __post_init__(self) -> None:
    for name in ("dtype", "param_dtype"):
      value = getattr(self, name)
      if value is not None or name == "param_dtype":
        object.__setattr__(self, name, _name_of(value, name))
    super().__post_init__()

  def linear(
    self,
    fan_in: int,
    features: int,
    *,
    use_bias: bool = True,
    depth: int = 1,
    name: str | None = None,
  ) -> nn.Dense:
    """A dense layer [..., fan_in] -> [..., features], with `dense_init` weights."""
    # A field where there is a choice.
    scheme: MixerScheme = getattr(self, "scheme", "torch")
    kernel, bias = dense_init(scheme, fan_in, depth)
    return nn.Dense(
      features,
      use_bias=use_bias,
      kernel_init=kernel,
      bias_init=bias,
      dot_general=dot_general,
      name=name,
      **self.types,
    )

  def weights(self, name: str, init: Initializer, shape: Sequence[int]) -> jax.Array:
    """A parameter, to compute with."""
    return self.cast(self.param(name, init, tuple(shape), self.param_dtype))

  def cast(self, array: Any) -> Any:
    """The same numbers in the type of the computation."""
    return array if self.dtype is None else jnp.asarray(array, self.dtype)

  @property
  def types(self) -> dict[str, Any]:
    """The fields that say the types, for a layer of this module."""
    return {"dtype": self.dtype, "param_dtype": self.param_dtype}


def _name_of(value: Any, field: str) -> str:
  takes = "bfloat16, float16, float32 or float64"
  require(value is not None, field, value, takes)
  try:
    dtype = jnp.dtype(value)
  except TypeError as error:
    raise InvalidSetting(field, value, takes) from error
  require(jnp.issubdtype(dtype, jnp.floating), field, value, takes)
  return dtype.name


def check_inputs(inputs: Any, dimensions: str) -> None:
  """Raises `WrongInputs` unless inputs have these dimensions, and are not empty.

  Args:
    inputs: an array.
    dimensions: as in "n N D".
  """
  proper = inputs.ndim == len(dimensions.split()) and inputs.size > 0
  one = dimensions.partition(" ")[2]
  takes = f"an array [{dimensions}], none of them 0: inputs[None] for a single [{one}]"
  if not proper:
    raise WrongInputs(f"shape {inputs.shape}", dimensions, takes)
