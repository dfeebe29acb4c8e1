"""The deep-transition recurrent network of section 5.1."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sepfx.errors import require
from sepfx.models.layers.initializers import Scheme, dense_init
from sepfx.models.layers.network import Network, check_inputs
from sepfx.models.layers.products import product


def project(h: Float[Array, "*n d_h"], radius: float) -> Float[Array, "*n d_h"]:
  """Pi_r h = min(1, r / ||h||) h, with a gradient also at h = 0."""
  squared = jnp.sum(h**2, axis=-1, keepdims=True)
  outside = squared > radius**2
  norm = jnp.sqrt(jnp.where(outside, squared, 1.0))
  return jnp.where(outside, radius / norm, 1.0) * h


def lipschitz_factor(kernels: Sequence[jax.Array], d_h: int, alpha: float) -> jax.Array:
  """min(1, alpha / (||W_{1,h}|| prod_{l>=2} ||W_l||)), operator norms.

  Multiplying W_{1,h}, the part of the first kernel that acts on the hidden state,
  by it makes the transition alpha-Lipschitz in that state. (The factor printed in
  section 5.1 leaves out ||W_{1,h}||, and with it the claim is not true.)

  Args:
    kernels: the transition's kernels [in out], the hidden state's rows first.
    d_h: dimension of the hidden state.
    alpha: alpha_N >= 0.
  """
  # Of half precision there are no singular values.
  kernels = [own.astype(jnp.promote_types(own.dtype, jnp.float32)) for own in kernels]
  norms = [jnp.linalg.norm(kernels[0][:d_h], ord=2)]
  norms += [jnp.linalg.norm(kernel, ord=2) for kernel in kernels[1:]]
  product = jnp.prod(jnp.stack(norms))
  outside = product > alpha  # not so with a zero kernel, whatever alpha
  return jnp.where(outside, alpha / jnp.where(outside, product, 1.0), 1.0)


class _Transition(Network):
  """f_h: L_h layers without a bias on the last (section 5.1)."""

  units: int
  hidden_widths: Sequence[int]
  lipschitz: float | None
  scheme: Scheme

  @nn.compact
  def __call__(self, times_first: Float[Array, "N n D"], radius: float):
    """Returns h_1 = 0 and h_i = Pi(h_{i-1} + f_h(h_{i-1}, z_{i-1})), [N n d_h]."""
    widths = (
      self.units + times_first.shape[-1],
      *self.hidden_widths,
      self.units,
    )
    kernels, biases = [], []
    for l, (fan_in, fan_out) in enumerate(itertools.pairwise(widths), start=1):
      kernel_init, bias_init = dense_init(self.scheme, fan_in)
      kernels.append(self.weights(f"W_{l}", kernel_init, (fan_in, fan_out)))
      if l <= len(self.hidden_widths):
        biases.append(self.weights(f"b_{l}", bias_init, (fan_out,)))
    w_h, w_z = kernels[0][: self.units], kernels[0][self.units :]
    if self.lipschitz is not None:
      w_h = w_h * lipschitz_factor(kernels, self.units, self.lipschitz).astype(w_h.dtype)
    z_products = product(times_first, w_z) + biases[0]

    def step(h, z_product):
      hidden = nn.relu(h @ w_h + z_product)
      for kernel, bias in zip(kernels[1:-1], biases[1:], strict=True):
        hidden = nn.relu(hidden @ kernel + bias)
      return project(h + hidden @ kernels[-1], radius), h

    start = jnp.zeros((times_first.shape[1], self.units), z_products.dtype)
    return jax.lax.scan(step, start, z_products)[1]


class ResidualRNN(Network):
  """Bidirectional residual RNN with deep transitions (section 5.1).

  h_i = Pi_{r_h}(h_{i-1} + f_h(h_{i-1}, z_{i-1})) in each direction, from zero;
  y_i = f_y(h_i forward, h_i backward, z_i); f_h and f_y are ReLU networks whose
  last layers have no bias. No gates, no layer norm, no dropout; not causal.

  Attributes:
    units: d_h.
    transition_widths: hidden widths of f_h, L_h - 1 of them, at least one.
    output_widths: hidden widths of f_y, L_y - 1 of them.
    radius: r_h.
    lipschitz: alpha_N; the transition's hidden-state kernel is scaled in the
      forward pass so that f_h is at most alpha_N-Lipschitz in h. None: free.
    scheme: initial weights, "torch" or "flax".
    dtype, param_dtype: types of the computation and the parameters, as in `Network`.
  """

  units: int = 100
  transition_widths: Sequence[int] = (100, 100, 100)
  output_widths: Sequence[int] = (100,)
  radius: float = 10.0
  lipschitz: float | None = None
  scheme: Scheme = "torch"

  @nn.compact
  def __call__(self, inputs: Float[Array, "n N D"]) -> Float[Array, "n N"]:
    """Maps embedded tokens to one prediction per position."""
    check_inputs(inputs, "n N D")
    if not self.transition_widths:
      raise ValueError("transition_widths: got none, takes at least one hidden width")
    bounded = self.lipschitz is None or self.lipschitz >= 0
    require(bounded, "lipschitz", self.lipschitz, "a number >= 0, or none")
    times_first = jnp.swapaxes(self.cast(inputs), 0, 1)

    def states(direction: str, tokens: jax.Array) -> jax.Array:
      settings = (self.units, self.transition_widths, self.lipschitz, self.scheme)
      transition = _Transition(*settings, name=direction, **self.types)
      return transition(tokens, self.radius)

    forward = states("forward", times_first)
    backward = states("backward", times_first[::-1])[::-1]
    hidden = jnp.concatenate([forward, backward, times_first], axis=-1)
    for l, width in enumerate(self.output_widths):
      layer = self.linear(hidden.shape[-1], width, name=f"hidden_{l + 1}")
      hidden = nn.relu(layer(hidden))
    output = self.linear(hidden.shape[-1], 1, use_bias=False, name="output")
    return output(hidden)[..., 0].T
