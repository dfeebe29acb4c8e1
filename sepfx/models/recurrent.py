"""One bidirectional recurrent layer: GRU, LSTM or ReLU RNN, in PyTorch's equations.

Flax's cells are not used because they have one bias where PyTorch has two (AdamW
moves the sum of two twice as fast), and because the input products of all times
are taken in one matrix product here, outside the scan.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sepfx.models.initializers import Scheme, orthogonal, uniform
from sepfx.models.network import Network, check_inputs
from sepfx.models.products import product


def gru_cell(x_gates, h_gates, carry):
  """PyTorch's GRU: gates (reset, update, new), the reset gate acting on W_hn h + b_hn.

  Args:
    x_gates: W_i x + b_i of each gate, [n units] each.
    h_gates: W_h h + b_h, likewise.
    carry: (h,), [n units].

  Returns:
    The next carry.
  """
  (h,) = carry
  x_r, x_z, x_n = x_gates
  h_r, h_z, h_n = h_gates
  r, z = nn.sigmoid(x_r + h_r), nn.sigmoid(x_z + h_z)
  return ((1 - z) * jnp.tanh(x_n + r * h_n) + z * h,)


def lstm_cell(x_gates, h_gates, carry):
  """PyTorch's LSTM: gates (input, forget, cell, output), [n units]; carry (h, c)."""
  _, c = carry
  i, f, g, o = (x + h for x, h in zip(x_gates, h_gates, strict=True))
  c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
  return nn.sigmoid(o) * jnp.tanh(c), c


def relu_cell(x_gates, h_gates, carry):
  """PyTorch's RNN with ReLU: h = relu(W_i x + b_i + W_h h + b_h), [n units]."""
  return (nn.relu(x_gates[0] + h_gates[0]),)


def scan_cells(
  cell: Callable, num_carries: int, x_gates: Any, kernels: Any, biases: Any
) -> Any:
  """Runs several independent recurrences in one scan, from zero states.

  Autodiff adds up a kernel's gradient in the loop, with a pass over the kernel each
  time. With fewer prompts than units it is one matrix product over all times instead,
  for which the cotangents of the gates are kept. Gates are arrays of their own:
  compilers make slow code of slices.

  Args:
    cell: (x_gates, h_gates, carry) -> carry; lists with an [n units] a gate, h first
      in the carry.
    num_carries: arrays in a carry.
    x_gates: list with each recurrence's list of W_i x + b_i by gate, [N n units].
    kernels: likewise W_h, [units units].
    biases: likewise b_h, [units].

  Returns:
    List of the states h_1, ..., h_N of each recurrence, [N n units].
  """
  _, num_prompts, units = x_gates[0][0].shape
  scan = _scan_keeping_cotangents if num_prompts < units else _scan_cells
  return scan(cell, num_carries, x_gates, kernels, biases)


def _scan_cells(cell, num_carries, x_gates, kernels, biases):
  offsets = _every_time(biases, x_gates, 1)
  return _scan_with_offsets(cell, num_carries, kernels, x_gates, offsets)


def _every_time(biases, x_gates, n):
  """Repeats each bias [units] over the N times and n prompts: [N n units]."""
  return jax.tree.map(
    lambda b, x: jnp.broadcast_to(b, (x.shape[0], n, b.shape[0])), biases, x_gates
  )


def _scan_with_offsets(cell, num_carries, kernels, x_gates, offsets):
  def step(carries, gates):
    # One plain product a gate: batching them into one is slower.
    carries = [
      cell(x, [carry[0] @ w + b for w, b in zip(kernel, offset, strict=True)], carry)
      for x, offset, kernel, carry in zip(*gates, kernels, carries, strict=True)
    ]
    return carries, [carry[0] for carry in carries]

  # The first step needs no product, because h_0 = 0.
  carries = []
  for x, offset in zip(x_gates, offsets, strict=True):
    h_gates = [jnp.broadcast_to(b[0], x[0][0].shape) for b in offset]
    zeros = jnp.zeros_like(x[0][0])
    carries.append(cell([own[0] for own in x], h_gates, (zeros,) * num_carries))
  later = jax.tree.map(lambda a: a[1:], (x_gates, offsets))
  states = jax.lax.scan(step, carries, later)[1]
  return [
    jnp.concatenate([carry[0][None], own])
    for carry, own in zip(carries, states, strict=True)
  ]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _scan_keeping_cotangents(cell, num_carries, x_gates, kernels, biases):
  return _scan_cells(cell, num_carries, x_gates, kernels, biases)


@_scan_keeping_cotangents.defjvp
def _scan_keeping_jvp(cell, num_carries, primals, tangents):
  x_gates, kernels, biases = primals
  of_x_gates, of_kernels, of_biases = tangents
  # A bias per prompt, so that the transpose has its cotangents before they are summed.
  n = x_gates[0][0].shape[1]
  scan = functools.partial(_scan_with_offsets, cell, num_carries, kernels)
  offsets = _every_time(biases, x_gates, n)
  states, push_forward = jax.linearize(scan, x_gates, offsets)
  # What another kernel does, it does as another offset of each time. The first step has
  # no product, because h_0 = 0.
  later = ((1, 0), (0, 0), (0, 0))
  of_offsets = [
    [b + jnp.pad(product(h[:-1], w), later) for b, w in zip(*own, strict=True)]
    for h, *own in zip(
      states, _every_time(of_biases, x_gates, n), of_kernels, strict=True
    )
  ]
  return states, push_forward(of_x_gates, of_offsets)


class _Bidirectional(Network):
  """Both directions of one recurrent layer, and a linear read-out per position.

  Attributes:
    units: hidden units per direction (d_h).
    num_outputs: None for one per position; or as many, read at both directions' last
      states.
    scheme: initial weights. "torch": all of the layer's from U(+-1/sqrt(units)),
      two biases per gate. "flax": LeCun-normal input and orthogonal recurrent
      kernels, zero biases.
  """

  units: int = 500
  scheme: Scheme = "torch"
  num_outputs: int | None = None

  # Set by subclasses: gates of the cell, arrays in its carry, the cell.
  gates = 1
  num_carries = 1
  cell = staticmethod(relu_cell)

  def _parameters(self, direction: str, d_in: int) -> tuple[jax.Array, ...]:
    width = self.gates * self.units
    if self.scheme == "torch":
      inits: list[Any] = [uniform(1 / math.sqrt(self.units))] * 4
    else:
      zeros = nn.initializers.zeros_init()
      inits = [
        nn.initializers.lecun_normal(),
        orthogonal,
        zeros,
        zeros,
      ]
    names = ("input_kernel", "hidden_kernel", "input_bias", "hidden_bias")
    shapes = ((d_in, width), (self.units, width), (width,), (width,))
    return tuple(
      self.weights(f"{direction}_{name}", init, shape)
      for name, init, shape in zip(names, inits, shapes, strict=True)
    )

  @nn.compact
  def __call__(self, inputs: Float[Array, "n N D"]) -> Float[Array, "n outputs"]:
    """Maps embedded tokens to predictions."""
    check_inputs(inputs, "n N D")
    times_first = jnp.swapaxes(self.cast(inputs), 0, 1)  # [N n D]
    x_gates, kernels, biases = [], [], []
    for direction, tokens in (("forward", times_first), ("backward", times_first[::-1])):
      w_i, w_h, b_i, b_h = (
        jnp.split(a, self.gates, axis=-1)
        for a in self._parameters(direction, inputs.shape[-1])
      )
      x_gates.append([product(tokens, w) + b for w, b in zip(w_i, b_i, strict=True)])
      kernels.append(w_h)
      biases.append(b_h)
    h_forward, h_backward = scan_cells(
      self.cell, self.num_carries, x_gates, kernels, biases
    )
    if self.num_outputs is not None:
      last = jnp.concatenate([h_forward[-1], h_backward[-1]], axis=-1)
      return self.linear(2 * self.units, self.num_outputs, name="output")(last)
    states = jnp.concatenate([h_forward, h_backward[::-1]], axis=-1)
    outputs = self.linear(2 * self.units, 1, name="output")(states)[..., 0]
    return outputs.T


class GRU(_Bidirectional):
  """A bidirectional layer of `gru_cell`s and a linear read-out.

  No residual connection, no layer norm, no dropout. Both directions: not causal.

  Attributes:
    units: hidden units per direction.
    num_outputs: None for one per position; or as many, read at both last states.
    scheme: initial weights, "torch" (all from U(+-1/sqrt(units))) or "flax".
    dtype, param_dtype: types of the computation and the parameters, as in `Network`.
  """

  gates = 3
  cell = staticmethod(gru_cell)


class LSTM(_Bidirectional):
  """As `GRU`, of `lstm_cell`s."""

  gates = 4
  num_carries = 2
  cell = staticmethod(lstm_cell)


class RNN(_Bidirectional):
  """As `GRU`, of `relu_cell`s."""

  gates = 1
  cell = staticmethod(relu_cell)
