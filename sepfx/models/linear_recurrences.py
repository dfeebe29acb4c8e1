"""Bidirectional layers whose recurrence is linear in the state: LRU and minGRU.

h_i = a_i h_{i-1} + b_i, elementwise, where a_i and b_i do not depend on h. So all h_i
follow from one parallel scan.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sepfx.errors import require_positive
from sepfx.models.layers.initializers import Scheme
from sepfx.models.layers.network import Network, check_inputs
from sepfx.models.layers.products import product

# Real numbers as one array, complex ones as two, which compilers make faster code of.
Numbers = tuple[Float[Array, "*#shape"], ...]

# Squared moduli at which the LRU's factors start. At 0 the logarithm of its logarithm,
# which is what is trained, has no value.
_SQUARED_MODULI = (1e-6, 1.0)


def scan_linear(factors: Numbers, terms: Numbers) -> Numbers:
  """Returns h_i = a_i h_{i-1} + b_i for i = 1, ..., N, from h_0 = 0.

  On CPUs by the recurrence, which is faster there, else by a parallel scan.

  Args:
    factors: a_i, arrays [N ...] that may have a 1 where `terms` have another dimension.
    terms: b_i.
  """
  dtype = jnp.result_type(*factors, *terms)
  return _scan(*(tuple(own.astype(dtype) for own in x) for x in (factors, terms)))


def by_recurrence(factors: Numbers, terms: Numbers) -> Numbers:
  """The same, arrays [N ...] too, step by step."""

  def step(h, own):
    h = _plus(_times(own[0], h), own[1])
    return h, h

  start = tuple(jnp.zeros_like(own[0]) for own in terms)
  return jax.lax.scan(step, start, (factors, terms))[1]


def in_parallel(factors: Numbers, terms: Numbers) -> Numbers:
  """The same by a parallel scan, in a number of rounds that grows like log N."""

  def compose(earlier, later):
    (a, b), (c, d) = earlier, later
    return _times(c, a), _plus(_times(c, b), d)

  return jax.lax.associative_scan(compose, (factors, terms))[1]


def _either(
  on_cpu: Callable[[Numbers, Numbers], Numbers], factors: Numbers, terms: Numbers
) -> Numbers:
  return jax.lax.platform_dependent(factors, terms, cpu=on_cpu, default=in_parallel)


# Autodiff of either form keeps what h alone tells, and is two to three times as slow.
@jax.custom_jvp
def _scan(factors: Numbers, terms: Numbers) -> Numbers:
  return _either(by_recurrence, factors, terms)


@jax.custom_jvp
def _linear_scan(factors: Numbers, terms: Numbers) -> Numbers:
  """The same, to be transposed: it is linear in the terms."""
  return _either(_to_be_transposed, factors, terms)


def _to_be_transposed(factors: Numbers, terms: Numbers) -> Numbers:
  """The recurrence, with each step's factor applied at the end of the step before.

  Its transpose then is a recurrence as `by_recurrence` is: h_i = a_{i+1} h_{i+1} + b_i.
  """
  later = tuple(jnp.concatenate([a[1:], jnp.zeros_like(a[:1])]) for a in factors)

  def step(passed_on, own):
    h = _plus(passed_on, own[1])
    # The sum anew and not h: so the transpose adds the cotangent of h after all products.
    return _times(own[0], _plus(passed_on, own[1])), h

  start = tuple(jnp.zeros_like(own[0]) for own in terms)
  return jax.lax.scan(step, start, (later, terms))[1]


@_scan.defjvp
@_linear_scan.defjvp
def _scan_jvp(primals, tangents):
  (factors, terms), (of_factors, of_terms) = primals, tangents
  h = _scan(factors, terms)
  before = tuple(jnp.concatenate([jnp.zeros_like(a[:1]), a[:-1]]) for a in h)
  # Before the products, so that the transpose sums over prompts once.
  of_factors = tuple(
    jnp.broadcast_to(a, b.shape) for a, b in zip(of_factors, h, strict=True)
  )
  return h, _linear_scan(factors, _plus(_times(before, of_factors), of_terms))


def _times(x: Numbers, y: Numbers) -> Numbers:
  if len(x) == 1:
    return (x[0] * y[0],)
  # First, so that the transpose adds what comes of x[1] last.
  crossed = x[1] * y[1], x[1] * y[0]
  return x[0] * y[0] - crossed[0], x[0] * y[1] + crossed[1]


def _plus(x: Numbers, y: Numbers) -> Numbers:
  return tuple(a + b for a, b in zip(x, y, strict=True))


def _both(
  direction: Callable[[str, Array], Array], times_first: Float[Array, "N n D"]
) -> tuple[Array, Array]:
  """What a direction, by its name, makes of the tokens read forward, and backward."""
  backward = direction("backward", times_first[::-1])[::-1]
  return direction("forward", times_first), backward


class LRU(Network):
  """A bidirectional linear recurrent unit, then a two-layer ReLU read-out per position.

  One layer: no residual connection, no layer norm, no gates, no dropout; not causal.

  Orvieto et al., "Resurrecting Recurrent Neural Networks for Long Sequences" (2023): in
  each direction h_i = lambda h_{i-1} + gamma (B z_i) with a complex diagonal lambda =
  exp(-exp(nu) + i exp(theta)); the layer gives Re(C h_i) of both directions and D z_i.
  Its outputs are linear in the tokens, so a ReLU follows, as wide as the published
  Transformer's, and a linear read-out. Recurrent weights start as in that paper: lambda
  uniform on the unit disc, gamma = sqrt(1 - |lambda|^2).

  Where it takes fewer multiplications the layer is computed as a convolution: with the
  responses Re(C lambda^k gamma B), which all prompts share.

  Attributes:
    units: complex states per direction.
    width: of the layer's output.
    scheme: initial weights of D and the read-out, "torch" or "flax".
    dtype, param_dtype: types of the computation and the parameters, as in `Network`.
  """

  units: int = 500
  width: int = 100
  scheme: Scheme = "torch"

  @nn.compact
  def __call__(self, inputs: Float[Array, "n N D"]) -> Float[Array, "n N"]:
    """Maps embedded tokens to one prediction per position."""
    require_positive(self, "units", "width")
    check_inputs(inputs, "n N D")
    inputs = self.cast(inputs)
    n, N, D = inputs.shape
    times_first = jnp.swapaxes(inputs, 0, 1)
    hidden = self.linear(D, self.width, name="D")(times_first)
    ways = [self._direction(name, D) for name in ("forward", "backward")]
    # Multiplications of either form, with two parts of a state in two directions.
    states, width = 4 * self.units, self.width
    convolution = N * D * states * width + n * N**2 * D * width
    recurrence = n * N * states * (D + width)
    if convolution < recurrence:
      forward, backward = (_response(own, N) for own in ways)
      hidden = hidden + _convolved(forward, backward, inputs)
    else:
      hidden = hidden + _recurrent(ways[0], times_first)
      hidden = hidden + _recurrent(ways[1], times_first[::-1])[::-1]
    return self.linear(self.width, 1, name="output")(nn.relu(hidden))[..., 0].T

  def _direction(self, name: str, D: int) -> _Direction:
    S = self.units
    nu = self.param(f"{name}_nu", _moduli, (S,), self.param_dtype)
    theta = self.param(f"{name}_theta", _phases, (S,), self.param_dtype)
    # gamma starts at what makes the state's variance that of B z.
    start = 0.5 * jnp.log(-jnp.expm1(-2 * jnp.exp(nu)))
    gamma = self.param(f"{name}_gamma", lambda *_: start, (S,))

    def matrix(own: str, shape: tuple[int, int], variance: float) -> Array:
      return self.weights(f"{name}_{own}", nn.initializers.normal(variance**0.5), shape)

    modulus, phase = jnp.exp(-jnp.exp(nu)), jnp.exp(theta)
    factors = self.cast(modulus * jnp.cos(phase)), self.cast(modulus * jnp.sin(phase))
    scale = self.cast(jnp.exp(gamma))
    parts = ("real", "imaginary")
    B = tuple(scale * matrix(f"B_{part}", (D, S), 1 / (2 * D)) for part in parts)
    C = tuple(matrix(f"C_{part}", (S, self.width), 1 / S) for part in parts)
    return _Direction(factors, B, C)


class _Direction(NamedTuple):
  """What one direction of an `LRU` computes with, complex numbers as pairs.

  Attributes:
    factors: lambda, [S].
    B: gamma B, [D S].
    C: [S width].
  """

  factors: Numbers
  B: Numbers
  C: Numbers


def _read(direction: _Direction, terms: Numbers) -> Float[Array, "N n width"]:
  """Re(C h_i) of h_i = lambda h_{i-1} + b_i, from the b_i [N n S]."""
  every = (len(terms[0]), 1, len(direction.factors[0]))
  factors = tuple(jnp.broadcast_to(own, every) for own in direction.factors)
  real, imaginary = scan_linear(factors, terms)
  return product(real, direction.C[0]) - product(imaginary, direction.C[1])


def _recurrent(
  direction: _Direction, tokens: Float[Array, "N n D"]
) -> Float[Array, "N n width"]:
  return _read(direction, tuple(product(tokens, own) for own in direction.B))


def _response(direction: _Direction, N: int) -> Float[Array, "N D width"]:
  """Re(C lambda^k B) for k = 0, ..., N - 1: the response to each input, 1 at first."""
  later = ((0, N - 1), (0, 0), (0, 0))
  return _read(direction, tuple(jnp.pad(own[None], later) for own in direction.B))


def _convolved(
  forward: Float[Array, "N D width"],
  backward: Float[Array, "N D width"],
  inputs: Float[Array, "n N D"],
) -> Float[Array, "N n width"]:
  """Both directions of recurrences with these responses."""
  n, N, D = inputs.shape
  # By i - j, from N - 1 to 1 - N, where i reads the token j.
  responses = jnp.concatenate([forward[:0:-1], forward[:1] + backward[:1], backward[1:]])
  flat = inputs.reshape(n, N * D)
  every = [responses[N - 1 - i : 2 * N - 1 - i].reshape(N * D, -1) for i in range(N)]
  return jnp.stack([flat @ own for own in every])


def _moduli(key, shape, dtype=jnp.float32):
  """nu with |lambda|^2 = exp(-2 exp(nu)) uniform."""
  low, high = _SQUARED_MODULI
  return jnp.log(-0.5 * jnp.log(jax.random.uniform(key, shape, dtype, low, high)))


def _phases(key, shape, dtype=jnp.float32):
  """theta with phases exp(theta) uniform on the circle."""
  return jnp.log(jax.random.uniform(key, shape, dtype, 1e-6, 2 * math.pi))


class MinGRU(Network):
  """A bidirectional minGRU, then a two-layer ReLU read-out per position.

  One layer: no residual connection, no layer norm, no dropout; not causal.

  Feng et al., "Were RNNs All We Needed?" (2024): in each direction
  h_i = (1 - g_i) h_{i-1} + g_i c_i with g_i = sigmoid(W_g z_i + b_g) and
  c_i = W_c z_i + b_c. The read-out sees both states and z_i, as in section 5.1 of the
  main paper, through a ReLU layer as wide as the published Transformer's: no gate sees a
  state, so a linear read-out could not choose what to read of one.

  Attributes:
    units: states per direction.
    width: hidden width of the read-out.
    scheme: initial weights, "torch" or "flax".
    dtype, param_dtype: types of the computation and the parameters, as in `Network`.
  """

  units: int = 500
  width: int = 100
  scheme: Scheme = "torch"

  @nn.compact
  def __call__(self, inputs: Float[Array, "n N D"]) -> Float[Array, "n N"]:
    """Maps embedded tokens to one prediction per position."""
    require_positive(self, "units", "width")
    check_inputs(inputs, "n N D")
    times_first = jnp.swapaxes(self.cast(inputs), 0, 1)
    seen = (*_both(self._direction, times_first), times_first)
    states = jnp.concatenate(seen, axis=-1)
    hidden = self.linear(states.shape[-1], self.width, name="hidden")(states)
    return self.linear(self.width, 1, name="output")(nn.relu(hidden))[..., 0].T

  def _direction(self, name: str, tokens: Float[Array, "N n D"]) -> Array:
    """h_i, [N n units]."""

    def dense(own: str) -> Array:
      layer = self.linear(tokens.shape[-1], self.units, name=f"{name}_{own}")
      return layer(tokens)

    gate = nn.sigmoid(dense("gate"))
    (states,) = scan_linear((1 - gate,), (gate * dense("candidate"),))
    return states
