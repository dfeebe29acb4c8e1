"""One bidirectional recurrent layer: GRU, LSTM or ReLU RNN, in PyTorch's equations.

Flax's cells are not used because they have one bias where PyTorch has two (AdamW
moves the sum of two twice as fast), and because the input products of all times
are taken in one matrix product here, outside the scan.

On CPUs each gate of each direction has a product of its own in each time step. Elsewhere
all of them are one product: few large operations suit accelerators.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sepfx.models.layers.initializers import Scheme, orthogonal, uniform
from sepfx.models.layers.network import Network, check_inputs
from sepfx.models.layers.products import product

# Time steps of the fused form in one round of its loop: with one, a round would copy its
# states for the next.
_UNROLL = 2


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


def _scan_cells(cell, num_carries, x_gates, kernels, biases, unroll=1):
  offsets = _every_time(biases, x_gates, 1)
  return _scan_with_offsets(cell, num_carries, kernels, unroll, x_gates, offsets)


def _every_time(biases, x_gates, n):
  """Repeats each bias [units] over the N times and n prompts: [N n units]."""
  return jax.tree.map(
    lambda b, x: jnp.broadcast_to(b, (x.shape[0], n, b.shape[0])), biases, x_gates
  )


def _scan_with_offsets(cell, num_carries, kernels, unroll, x_gates, offsets):
  def step(carries, gates):
    carries = [
      cell(x, [carry[0] @ w + b for w, b in zip(kernel, offset, strict=True)], carry)
      for x, offset, kernel, carry in zip(*gates, kernels, carries, strict=True)
    ]
    return carries, [carry[0] for carry in carries]

  # The first step needs no product, because h_0 = 0.
  carries = []
  for x, offset, kernel in zip(x_gates, offsets, kernels, strict=True):
    h_gates = [jnp.broadcast_to(b[0], x[0][0].shape) for b in offset]
    zeros = jnp.zeros((x[0].shape[1], kernel[0].shape[0]), x[0].dtype)
    carries.append(cell([own[0] for own in x], h_gates, (zeros,) * num_carries))
  states = [[carry[0] for carry in carries]]
  # As many more as leave no remainder to the scan, which would copy all that it keeps.
  before = 1 + (len(x_gates[0][0]) - 1) % unroll
  for i in range(1, before):
    own = jax.tree.map(operator.itemgetter(i), (x_gates, offsets))
    carries, own_states = step(carries, own)
    states.append(own_states)
  later = jax.tree.map(lambda a: a[before:], (x_gates, offsets))
  scanned = jax.lax.scan(step, carries, later, unroll=unroll)[1]
  return [
    jnp.concatenate([*(h[None] for h in early), own])
    for *early, own in zip(*states, scanned, strict=True)
  ]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 5))
def _scan_keeping_cotangents(cell, num_carries, x_gates, kernels, biases, unroll=1):
  return _scan_cells(cell, num_carries, x_gates, kernels, biases, unroll)


@_scan_keeping_cotangents.defjvp
def _scan_keeping_jvp(cell, num_carries, unroll, primals, tangents):
  x_gates, kernels, biases = primals
  of_x_gates, of_kernels, of_biases = tangents
  # A bias per prompt, so that the transpose has its cotangents before they are summed.
  n = x_gates[0][0].shape[1]
  scan = functools.partial(_scan_with_offsets, cell, num_carries, kernels, unroll)
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


# Compiled functions, so that what chooses between two forms, and differentiates each of
# them twice, finds the second time done.
_form = functools.partial(jax.jit, static_argnums=(0, 1, 2))


@_form
def gate_by_gate(
  cell: Callable, gates: int, num_carries: int, tokens: Any, parameters: Any
) -> Any:
  """Runs both directions of a layer, with a product per gate: as CPUs do.

  Batching them into one is slower there.

  Args:
    cell: as in `scan_cells`.
    gates: of the cell, G.
    num_carries: arrays in a carry.
    tokens: [N n D].
    parameters: of the forward and of the backward direction: W_i [D G units],
      W_h [units G units], b_i and b_h [G units].

  Returns:
    List of the states of both directions, in the order in which each reads, [N n units].
  """
  x_gates, kernels, biases = [], [], []
  for read, own in zip((tokens, tokens[::-1]), parameters, strict=True):
    w_i, w_h, b_i, b_h = (jnp.split(a, gates, axis=-1) for a in own)
    x_gates.append([product(read, w) + b for w, b in zip(w_i, b_i, strict=True)])
    kernels.append(w_h)
    biases.append(b_h)
  return scan_cells(cell, num_carries, x_gates, kernels, biases)


@_form
def fused(
  cell: Callable, gates: int, num_carries: int, tokens: Any, parameters: Any
) -> Any:
  """The layer with one product per time step, and one for its gradient.

  The gradient of W_h is one product over all times, for any number of prompts.
  """

  # What is kept for the gradient is what the products gave. The cell is computed again,
  # which takes no longer than to read what is in it.
  @functools.partial(jax.checkpoint, prevent_cse=False)
  def joined(x_gates, h_gates, carry):
    split = (jnp.split(own[0], gates, axis=-1) for own in (x_gates, h_gates))
    return cell(*split, carry)

  def direction(read, w_i, w_h, b_i, b_h):
    own = [[product(read, w_i) + b_i]], [[w_h]], [[b_h]]
    return _scan_keeping_cotangents(joined, num_carries, *own, _UNROLL)[0]

  both = jnp.stack([tokens, tokens[::-1]])
  return list(jax.vmap(direction)(both, *map(jnp.stack, zip(*parameters, strict=True))))


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
    parameters = [
      self._parameters(own, inputs.shape[-1]) for own in ("forward", "backward")
    ]
    cpu, default = (
      functools.partial(form, self.cell, self.gates, self.num_carries)
      for form in (gate_by_gate, fused)
    )
    h_forward, h_backward = jax.lax.platform_dependent(
      times_first, parameters, cpu=cpu, default=default
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
