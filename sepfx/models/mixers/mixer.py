"""What a mixer is, and layers that several have."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sepfx.errors import require
from sepfx.models.layers.initializers import MixerScheme, uniform
from sepfx.models.layers.network import Network, check_inputs


class Mixer(Network):
  """A causal map of sequences: [n N D] -> [n N D], and token by token.

  `mixer.apply(variables, rows)` maps whole sequences. `mixer.apply(variables, state, row,
  method="step")` takes one token of each and the state before it. It begins with
  `mixer.init_state(n, length)`.

  Attributes:
    width: D.
    scheme: initial weights of dense layers, "torch", "flax" or "gpt2".
    depth: how many outputs are added to one residual stream; with the scheme "gpt2" the
      weights of the last layer start smaller by its root.
    dtype, param_dtype: types of the computation and the parameters, as in `Network`.
      What a state carries is of single precision at least.
  """

  width: int
  scheme: MixerScheme = "torch"
  depth: int = 1

  def __call__(self, rows: Float[Array, "n N D"]) -> Float[Array, "n N D"]:
    """Returns what each token becomes, given itself and those before it."""
    raise NotImplementedError

  def step(self, state: Any, row: Float[Array, "n D"]) -> tuple[Any, Array]:
    """Returns the state after one more token, and what the token becomes, [n D]."""
    raise NotImplementedError

  def init_state(self, n: int, length: int) -> Any:
    """Returns the state before the first of `length` tokens, of n sequences: arrays."""
    raise NotImplementedError

  def state_size(self, length: int, *, caches: bool = True) -> int:
    """Numbers that `step` carries for each sequence. A count of tokens is none of them.

    Args:
      length: tokens of the sequence.
      caches: whether those count that short convolutions before the mixer keep.
    """
    state = jax.eval_shape(lambda: self.init_state(1, length))
    leaves = jax.tree.leaves(state if caches else self.without_caches(state))
    return sum(own.size for own in leaves if jnp.issubdtype(own.dtype, jnp.floating))

  def without_caches(self, state: Any) -> Any:
    """What of a state no short convolution before the mixer keeps: here all of it."""
    return state

  def checked(self, rows: Array) -> Array:
    """The tokens of a whole pass, in the type of the computation."""
    check_inputs(rows, "n N D")
    takes = f"the width of the tokens, {rows.shape[-1]}"
    require(self.width == rows.shape[-1], "width", self.width, takes)
    return self.cast(rows)

  def output_layer(self, fan_in: int, *, use_bias: bool = True) -> nn.Dense:
    """The last layer, to the width."""
    return self.linear(fan_in, self.width, use_bias=use_bias, depth=self.depth)

  def head_dim(self, num_heads: int) -> int:
    """Numbers of a head.

    Raises:
      InvalidSetting: if the heads do not divide the width.
    """
    proper = num_heads >= 1 and self.width % num_heads == 0
    require(proper, "num_heads", num_heads, f"a divisor of the width {self.width}")
    return self.width // num_heads


class ShortConvolution(Network):
  """A causal convolution of each feature by itself over the last few tokens.

  Weights start as PyTorch's `Conv1d` has them, uniform within 1/sqrt(size), or normal.

  Attributes:
    features: of a token.
    size: tokens that are seen, the current one among them.
    activated: whether SiLU follows.
    use_bias: whether there is a bias.
    deviation: of normal weights, with zero biases; None for PyTorch's.
  """

  features: int
  size: int = 4
  activated: bool = True
  use_bias: bool = False
  deviation: float | None = None

  def setup(self) -> None:
    require(self.size >= 1, "size", self.size, "an integer >= 1")
    of_kernel = of_bias = uniform(self.size**-0.5)
    if self.deviation is not None:
      of_kernel, of_bias = nn.initializers.normal(self.deviation), nn.initializers.zeros
    shape = self.size, self.features
    self.kernel = self.param("kernel", of_kernel, shape, self.param_dtype)
    if self.use_bias:
      self.bias = self.param("bias", of_bias, shape[1:], self.param_dtype)

  def __call__(self, rows: Float[Array, "n N F"]) -> Float[Array, "n N F"]:
    """Maps whole sequences."""
    N = rows.shape[1]
    padded = jnp.pad(rows, ((0, 0), (self.size - 1, 0), (0, 0)))
    kernel = self.cast(self.kernel)
    terms = (padded[:, k : k + N] * kernel[k] for k in range(self.size))
    return self._after(sum(terms))

  def step(
    self, state: Float[Array, "n before F"], row: Float[Array, "n F"]
  ) -> tuple[Array, Array]:
    """Maps one more token; the state are the `size - 1` tokens before it."""
    seen = jnp.concatenate([state.astype(row.dtype), row[:, None]], axis=1)
    terms = (seen[:, k] * own for k, own in enumerate(self.cast(self.kernel)))
    return seen[:, 1:].astype(state.dtype), self._after(sum(terms))

  def _after(self, rows: Any) -> Array:
    if self.use_bias:
      rows = rows + self.cast(self.bias)
    return nn.silu(rows) if self.activated else rows


def state_dtype(module: Network) -> jnp.dtype:
  """The type of what a state carries: of single precision at least."""
  own = module.dtype or module.param_dtype
  return jnp.promote_types(own, jnp.float32)


def exact(rows: Array) -> Array:
  """The same in single precision at least."""
  return rows.astype(jnp.promote_types(rows.dtype, jnp.float32))


def rms_normalised(rows: Array, epsilon: float = 1e-5) -> Array:
  """Rows over the root of their mean square, which is of single precision at least."""
  own = exact(rows)
  mean = jnp.mean(jnp.square(own), axis=-1, keepdims=True)
  return (own * jax.lax.rsqrt(mean + epsilon)).astype(rows.dtype)


def unit(rows: Array, epsilon: float = 1e-6) -> Array:
  """Rows over their norm."""
  own = exact(rows)
  square = jnp.sum(jnp.square(own), axis=-1, keepdims=True)
  return (own * jax.lax.rsqrt(square + epsilon)).astype(rows.dtype)
