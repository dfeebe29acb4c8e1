"""Mixers whose state is a vector: RG-LRU, minGRU and GRU."""

from __future__ import annotations

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sepfx.errors import require, require_positive
from sepfx.models.layers.initializers import orthogonal, uniform
from sepfx.models.linear_recurrences import scan_linear
from sepfx.models.mixers.mixer import Mixer, ShortConvolution, exact, state_dtype
from sepfx.models.recurrent import gru_cell, scan_cells

# The published constant by which RG-LRU's decays are raised, and the radii between which
# they begin.
_POWER, _INNER, _OUTER = 8.0, 0.9, 0.999
# The variance of a convolution's weights, times their number.
_OF_CONVOLUTION = 0.01
# Of 1 - a^2 before its root, whose derivative has no bound at 0.
_LEAST = 2.5e-7


class _OfVector(Mixer):
  """A mixer whose state is a vector, [n S].

  Attributes:
    state_dim: S; None for the width.
  """

  state_dim: int | None = None

  @property
  def _states(self) -> int:
    return self.width if self.state_dim is None else self.state_dim

  def init_state(self, n: int, length: int) -> Any:
    """h, zeros."""
    del length
    return jnp.zeros((n, self._states), state_dtype(self))


class RGLRU(_OfVector):
  """Griffin's recurrent block: a gate beside a convolution and a gated recurrence.

  De et al., "Griffin: Mixing Gated Linear Recurrences with Local Attention for Efficient
  Language Models" (2024), as recurrentgemma/jax/modules.py and layers.py of
  google-deepmind/recurrentgemma at 2efa84d: h_i = a_i h_{i-1} + sqrt(1 - a_i^2) (g_i x_i)
  with a_i = exp(-8 r_i softplus(lambda)) and gates g and r that are block-diagonal in the
  heads; h_1 = g_1 x_1. There the square root has a first derivative of its own, at most
  1,000. Here 1 - a_i^2 is 2.5e-7 where it is less, so that all derivatives are those of
  one function. It has initial weights of its own: `scheme` and `depth` change nothing.

  Attributes:
    num_heads: blocks of the gates, which divide the state.
    state_dim: numbers of h; None for the width.
    convolution: tokens that the convolution sees.
  """

  num_heads: int = 1
  convolution: int = 4

  def setup(self) -> None:
    require_positive(self, "state_dim", "convolution")
    D, S, H = self.width, self._states, self.num_heads
    proper = H >= 1 and S % H == 0
    require(proper, "num_heads", H, f"a divisor of the {S} numbers of the state")
    self.gate, self.input = self._dense(S), self._dense(S)
    self.convolve = ShortConvolution(
      S, self.convolution, activated=False, use_bias=True,
      deviation=math.sqrt(_OF_CONVOLUTION / self.convolution), **self.types,
    )  # fmt: skip
    self.radii = self.param("radii", _radii, (S,), self.param_dtype)
    blocks, zeros = (H, S // H, S // H), nn.initializers.zeros
    init = nn.initializers.normal(math.sqrt(1 / S))
    self.kernels = [
      self.param(f"{name}_kernel", init, blocks, self.param_dtype)
      for name in ("input_gate", "decay_gate")
    ]
    self.biases = [
      self.param(f"{name}_bias", zeros, (S,), self.param_dtype)
      for name in ("input_gate", "decay_gate")
    ]
    self.output = self._dense(D)

  def _dense(self, features: int) -> nn.Dense:
    init = nn.initializers.variance_scaling(1.0, "fan_in", "normal")
    return nn.Dense(features, kernel_init=init, **self.types)

  def __call__(self, rows: Float[Array, "n N D"]) -> Float[Array, "n N D"]:
    rows = self.checked(rows)
    x = self.convolve(self.input(rows))
    decay, gated, added = self._gates(x)
    added = jnp.concatenate([gated[:, :1], added[:, 1:]], axis=1)
    times_first = (jnp.swapaxes(own, 0, 1) for own in (decay, added))
    (states,) = scan_linear(*((own,) for own in times_first))
    return self._out(jnp.swapaxes(states, 0, 1), rows)

  def step(self, state: Any, row: Float[Array, "n D"]) -> tuple[Any, Array]:
    h, seen, count = state
    row = self.cast(row)
    seen, x = self.convolve.step(seen, self.input(row))
    decay, gated, added = self._gates(x)
    h = jnp.where(count == 0, gated, decay * h + added)
    return (h, seen, count + 1), self._out(h, row)

  def init_state(self, n: int, length: int) -> Any:
    """h, what the convolution has seen, and how many tokens there were."""
    del length
    S, dtype = self._states, state_dtype(self)
    seen = jnp.zeros((n, self.convolution - 1, S), dtype)
    return jnp.zeros((n, S), dtype), seen, jnp.zeros((), jnp.int32)

  def without_caches(self, state: Any) -> Any:
    """h."""
    return state[0]

  def _gates(self, x: Float[Array, "*n S"]) -> tuple[Array, Array, Array]:
    """a, g x and sqrt(1 - a^2) g x."""
    blocks = x.reshape(*x.shape[:-1], self.num_heads, -1)
    to_input, to_decay = (
      nn.sigmoid(
        exact(jnp.einsum("...hi,hij->...hj", blocks, self.cast(kernel))).reshape(x.shape)
        + bias
      )
      for kernel, bias in zip(self.kernels, self.biases, strict=True)
    )
    log_decay = -_POWER * to_decay * nn.softplus(self.radii)
    gated = to_input * exact(x)
    kept = jnp.sqrt(jnp.maximum(-jnp.expm1(2 * log_decay), _LEAST))
    return jnp.exp(log_decay), gated, kept * gated

  def _out(self, states: Array, rows: Array) -> Array:
    gate = nn.gelu(self.gate(rows))
    return self.output((gate * states).astype(rows.dtype))


def _radii(key, shape, dtype):
  """lambda with exp(-softplus(lambda)) uniform, by area, between two radii."""
  squared = jax.random.uniform(key, shape, dtype, _INNER**2, _OUTER**2)
  return jnp.log(jnp.expm1(-0.5 * jnp.log(squared)))


class MinGRU(_OfVector):
  """A minGRU and a linear layer.

  Feng et al., "Were RNNs All We Needed?" (2024): h_i = (1 - g_i) h_{i-1} + g_i c_i, whose
  gate g_i = sigmoid(W_g x_i + b_g) and candidate c_i = W_c x_i + b_c are of the token
  alone. As their Algorithm 3, without the logarithms of its parallel form.

  Attributes:
    state_dim: numbers of h; None for the width.
  """

  def setup(self) -> None:
    require_positive(self, "state_dim")
    D, S = self.width, self._states
    self.gate, self.candidate = self.linear(D, S), self.linear(D, S)
    self.output = self.output_layer(S)

  def __call__(self, rows: Float[Array, "n N D"]) -> Float[Array, "n N D"]:
    rows = self.checked(rows)
    kept, added = self._terms(jnp.swapaxes(rows, 0, 1))
    (states,) = scan_linear((kept,), (added,))
    return self.output(jnp.swapaxes(states, 0, 1).astype(rows.dtype))

  def step(self, state: Array, row: Float[Array, "n D"]) -> tuple[Array, Array]:
    row = self.cast(row)
    kept, added = self._terms(row)
    state = kept * state + added
    return state, self.output(state.astype(row.dtype))

  def _terms(self, rows: Array) -> tuple[Array, Array]:
    gate = nn.sigmoid(exact(self.gate(rows)))
    return 1 - gate, gate * exact(self.candidate(rows))


class GRU(_OfVector):
  """A gated recurrent unit, in PyTorch's equations, and a linear layer.

  Cho et al. (2014) with the reset gate after the product, as cuDNN has it. With the
  scheme "torch" weights start as those of `torch.nn.GRU`: uniform within
  1/sqrt(state_dim). With the others they are LeCun-normal and orthogonal, biases 0.

  Attributes:
    state_dim: numbers of h; None for the width.
  """

  def setup(self) -> None:
    require_positive(self, "state_dim")
    D, S = self.width, self._states
    init = uniform(1 / math.sqrt(S))
    kernels = (init, init) if self.scheme == "torch" else (
      nn.initializers.lecun_normal(), orthogonal
    )  # fmt: skip
    bias = init if self.scheme == "torch" else nn.initializers.zeros
    of_x, of_h = kernels
    self.input_kernel = self.param("input_kernel", of_x, (D, 3 * S), self.param_dtype)
    self.hidden_kernel = self.param("hidden_kernel", of_h, (S, 3 * S), self.param_dtype)
    self.input_bias = self.param("input_bias", bias, (3 * S,), self.param_dtype)
    self.hidden_bias = self.param("hidden_bias", bias, (3 * S,), self.param_dtype)
    self.output = self.output_layer(S)

  def __call__(self, rows: Float[Array, "n N D"]) -> Float[Array, "n N D"]:
    rows = self.checked(rows)
    kernel, bias = (self._gates(own) for own in (self.hidden_kernel, self.hidden_bias))
    x_gates = self._of_input(jnp.swapaxes(rows, 0, 1))
    (states,) = scan_cells(gru_cell, 1, [x_gates], [kernel], [bias])
    return self.output(jnp.swapaxes(states, 0, 1).astype(rows.dtype))

  def step(self, state: Array, row: Float[Array, "n D"]) -> tuple[Array, Array]:
    kernel, bias = (self._gates(own) for own in (self.hidden_kernel, self.hidden_bias))
    h_gates = [state @ own + b for own, b in zip(kernel, bias, strict=True)]
    row = self.cast(row)
    (state,) = gru_cell(self._of_input(row), h_gates, (state,))
    return state, self.output(state.astype(row.dtype))

  def _gates(self, joint: Array) -> list[Array]:
    return jnp.split(exact(joint), 3, axis=-1)

  def _of_input(self, rows: Array) -> list[Array]:
    joint = rows @ self.cast(self.input_kernel) + self.cast(self.input_bias)
    return self._gates(joint)
