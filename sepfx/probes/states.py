"""How a recurrent network reads its state: what Proposition 8 asks about."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sepfx.errors import InvalidSetting
from sepfx.models import GRU, LSTM, RNN, predict

# Prompts whose states are held at once.
_CHUNK = 250


class _Reading(NamedTuple):
  """How one direction's state before a position is read at it.

  Attributes:
    lipschitz: of the prediction, in U h.
    operator, frobenius: norms of U.
    radius: bounds ||h||; None where it has to be measured.
    width: numbers in a state.
  """

  lipschitz: Float[Array, ""]
  operator: Float[Array, ""]
  frobenius: Float[Array, ""]
  radius: float | None
  width: int


def states(trial: Any, params: Any, world: Any, key: Any) -> dict[str, Array]:
  """How a trained `RNN`, `GRU` or `LSTM` reads its state, as Proposition 8 has it.

  At position i the prediction is f_y(U_> h_>, U_< h_<, z_i) of the states h_> after the
  positions before i and h_< after those behind it, so the cell's own step at i is part
  of f_y. f_y is L / r_h-Lipschitz, and r_h bounds the norm of every state.

  - `RNN`: w . relu(U h + ...) is ||w||-Lipschitz in U h, with U the hidden kernel. r_h
    is the largest norm of a state on the trial's test prompts. A projection to that norm
    would leave the predictions there as they are.
  - `GRU`: U = I. A state's entries lie in [-1, 1], so r_h = sqrt(d_h), and the
    derivatives of the gates bound L / r_h.
  - `LSTM`: likewise. Its state is (h, c) of 2 d_h numbers, with |h_k| <= 1 and |c_k| <=
    N - 1.

  Returns:
    `state_risk`: of the trial's test prompts. `state_width`: numbers in a state.
    `state_radius`: r_h. `state_operator`: L ||U||_op with the larger of both
    directions' norms. `state_frobenius`: L ||U||_F, both directions together.

  Raises:
    InvalidSetting: for a model whose reading is not known.
  """
  del key
  model = trial.model
  takes = "a model RNN, GRU or LSTM with an output per position"
  if type(model) not in _READINGS or model.num_outputs is not None:
    raise InvalidSetting("probes", f"states of {trial.coordinates['model']}", takes)
  read_out = jnp.split(params["output"]["kernel"][:, 0], 2)
  ways = [
    _READINGS[type(model)](params, name, w, trial.test_task.length)
    for name, w in zip(("forward", "backward"), read_out, strict=True)
  ]
  risk, largest = _on_test_prompts(trial, params, world)
  radius = largest if ways[0].radius is None else jnp.float32(ways[0].radius)
  lipschitz = radius * jnp.sqrt(sum(way.lipschitz**2 for way in ways))
  operator = jnp.maximum(*(way.operator for way in ways))
  frobenius = jnp.sqrt(sum(way.frobenius**2 for way in ways))
  return {
    "state_risk": risk,
    "state_width": jnp.float32(ways[0].width),
    "state_radius": radius,
    "state_operator": lipschitz * operator,
    "state_frobenius": lipschitz * frobenius,
  }


def _gates(params: Any, direction: str, count: int) -> tuple[Any, Any]:
  """Kernels W_h [units units], in by out, and biases b_h [units] of each gate."""
  kernels = jnp.split(params[f"{direction}_hidden_kernel"], count, axis=1)
  return kernels, jnp.split(params[f"{direction}_hidden_bias"], count)


def _norm(kernel: Float[Array, "in out"]) -> Float[Array, ""]:
  return jnp.linalg.norm(kernel, ord=2)


def _rnn(params: Any, direction: str, w: Float[Array, " units"], _: int) -> _Reading:
  ((kernel,), _) = _gates(params, direction, 1)
  operator, frobenius = _norm(kernel), jnp.linalg.norm(kernel)
  return _Reading(jnp.linalg.norm(w), operator, frobenius, None, len(w))


def _gru(params: Any, direction: str, w: Float[Array, " units"], _: int) -> _Reading:
  """h' = (1 - z) tanh(x_n + r s) + z h, with s = W_n h + b_n and gates r, z in [0, 1].

  The derivative of a gate is at most 1/4, and |h - tanh(.)| at most 2.
  """
  (reset, update, new), (*_, bias) = _gates(params, direction, 3)
  s = jnp.max(jnp.sum(jnp.abs(new), axis=0) + jnp.abs(bias))
  slope = 1 + _norm(update) / 2 + _norm(new) + s * _norm(reset) / 4
  return _identity(jnp.linalg.norm(w) * slope, len(w), math.sqrt(len(w)))


def _lstm(params: Any, direction: str, w: Float[Array, " units"], N: int) -> _Reading:
  """h' = o tanh(f c + i g), with gates o, f, i in [0, 1] and g in [-1, 1]."""
  (i, f, g, o), _ = _gates(params, direction, 4)
  in_h = _norm(o) / 4 + (N - 1) * _norm(f) / 4 + _norm(i) / 4 + _norm(g)
  slope = jnp.sqrt(in_h**2 + 1)
  radius = math.sqrt(len(w) * (1 + (N - 1) ** 2))
  return _identity(jnp.linalg.norm(w) * slope, 2 * len(w), radius)


def _identity(lipschitz: Float[Array, ""], width: int, radius: float) -> _Reading:
  """A reading with U = I."""
  frobenius = jnp.float32(math.sqrt(width))
  return _Reading(lipschitz, jnp.float32(1), frobenius, radius, width)


_READINGS = {RNN: _rnn, GRU: _gru, LSTM: _lstm}


def _on_test_prompts(trial: Any, params: Any, world: Any) -> tuple[Array, Array]:
  """The risk on the trial's test prompts, and the largest norm of h there."""

  def one(prompt: Any) -> tuple[Array, Array]:
    sample = jax.tree.map(lambda a: a[None], prompt)
    inputs = trial.test_task.encode(world.planted, sample)
    seen: list[Array] = []

    def watch(call, arguments, keywords, context):
      if context.module.name == "output":
        seen.append(arguments[0])
      return call(*arguments, **keywords)

    with nn.intercept_methods(watch):
      outputs = predict(trial.model, params, inputs)
    both = jnp.stack(jnp.split(seen[0], 2, axis=-1))
    error = trial.objective.error(outputs, sample.labels)[0]
    return error, jnp.max(jnp.sum(both**2, axis=-1))

  errors, squares = jax.lax.map(one, world.test, batch_size=_CHUNK)
  return jnp.mean(errors), jnp.sqrt(jnp.max(squares))
