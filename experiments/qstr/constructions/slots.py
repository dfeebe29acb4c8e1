"""A recurrent network that solves 1STR: one slot of its state for each position."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

from sepfx.errors import require
from sepfx.models import ResidualRNN
from sepfx.tasks import QSTR, Planted, coherence

# Prompts in all of which |<u, x>| is below `label_radius`, as a rule.
_PROMPTS = 1000


def label_radius(length: int) -> float:
  """What slots have to hold: |<u, x>| of standard normal tokens is seldom larger."""
  return math.sqrt(2 * math.log(_PROMPTS * length))


class SlotMemory(NamedTuple):
  """A `ResidualRNN` and parameters for it.

  Attributes:
    model: states of N numbers per direction; the transition ignores the state.
    params: its "params" collection, in the precision of the codes.
  """

  model: ResidualRNN
  params: Any

  @property
  def squared_norm(self) -> float:
    """||vec(Theta)||^2."""
    return sum(map(_square, jax.tree.leaves(self.params)))

  @property
  def state_norms(self) -> tuple[float, float]:
    """L ||U||_op and L ||U||_F of Proposition 8: U reads the states.

    L / r_h is the product of the norms of the read-out's other matrices.
    """
    own = {k: np.asarray(v["kernel"], float) for k, v in self.params.items() if _of(k)}
    U = own["hidden_1"][: 2 * self.model.units]
    later = np.linalg.norm(own["hidden_2"], 2) * np.linalg.norm(own["output"], 2)
    size = self.model.radius * later
    return float(size * np.linalg.norm(U, 2)), float(size * np.linalg.norm(U))

  def balanced(self) -> SlotMemory:
    """The same function with states of norm at most 1 and the least squared norm.

    Section 5.2 takes r_h = 1. The least is over the scales of hidden layers, which ReLUs
    leave free.
    """
    units, params = self.model.units, self.params
    transition, first = params["forward"], params["hidden_1"]
    second, last = params["hidden_2"], params["output"]
    U, rest = first["kernel"][: 2 * units], first["kernel"][2 * units :]
    state = 1 / self.model.radius
    squares = np.array([
      2 * (_square(transition["W_1"]) + _square(transition["b_1"])),
      2 * _square(transition["W_2"]) * state**2,
      _square(U) / state**2 + _square(rest) + _square(first["bias"]),
      _square(second["kernel"]),
      _square(second["bias"]),
      _square(last["kernel"]),
    ])  # fmt: skip
    # Powers of the scales of the transition's and both hidden layers of the read-out.
    powers = np.array(
      [[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 1], [0, 0, 1], [0, 0, -1]]
    )
    found = scipy.optimize.minimize(
      lambda logs: np.log(squares @ np.exp(2 * powers @ logs)), np.zeros(3)
    )
    t, a, b = np.exp(found.x)
    own = {
      "W_1": t * transition["W_1"],
      "b_1": t * transition["b_1"],
      "W_2": state / t * transition["W_2"],
    }
    scaled = {
      "forward": own,
      "backward": own,
      "hidden_1": {
        "kernel": a * jnp.concatenate([U / state, rest]),
        "bias": a * first["bias"],
      },
      "hidden_2": {"kernel": b / a * second["kernel"], "bias": b * second["bias"]},
      "output": {"kernel": last["kernel"] / b},
    }
    model = self.model.clone(radius=1.0)
    dtype = U.dtype
    return SlotMemory(model, jax.tree.map(lambda x: jnp.asarray(x, dtype), scaled))


def _square(array: Any) -> float:
  return float(np.sum(np.square(np.asarray(array, np.float64))))


def _of(name: str) -> bool:
  """Whether parameters of this name are the read-out's."""
  return name.startswith("hidden") or name == "output"


def slot_memory(task: QSTR, planted: Planted, *, radius: float) -> SlotMemory:
  """Builds a network that computes <u, x_t> at each position, up to rounding.

  The width that Proposition 8 asks for is also enough, up to a logarithm. Slot k keeps
  v_k = <u, x_k> + 2 r. With g_k the inner product of the position's code and code k,
  which is 1 or at most 1/2, and |<u, x>| <= r,

    relu(<u, x> + 2 r - 6 r (1 - g_k)) = v_k 1[g_k = 1].

  The read-out gates the slots with the named code in the same way and adds them up to S,
  which is in [r, 3 r], or 0 where a position names itself. Its label is then

    relu(y - S) - relu(-y - S) - S + 2 relu(S - r), with y of its own token.

  Args:
    task: 1STR with a linear link.
    planted: its planted parameters, in single or double precision.
    radius: r, bound of |<u, x>|; the prediction is right for prompts within it.

  Returns:
    Hidden widths N of the transition, N + 2 and 4 of the read-out; r_h = 3 r sqrt(N).

  Raises:
    InvalidSetting: if q is not 1, the link is not linear, the codes' coherence is above
      1/2 (Assumption 3), or the radius is not positive.
  """
  require(radius > 0, "radius", radius, "a positive number")
  require(task.sparsity == 1, "sparsity", task.sparsity, "1: each slot keeps a label")
  require(task.link.name == "linear", "link", task.link.name, "linear")
  takes = "codes of coherence at most 1/2 (Assumption 3), such as incoherent ones"
  found = float(coherence(planted.codes))
  require(found <= 0.5 + 1e-6, "codes", f"coherence {found:.3g}", takes)

  N, d, d_e = task.length, task.token_dim, task.resolved_code_dim
  r, codes = radius, np.asarray(planted.codes, np.float64)
  c = math.sqrt(d) if task.encoding_prefactor else 1.0
  u = np.asarray(planted.link, np.float64).reshape(d)
  gates = 6 * r * codes.T / c  # 6 r g_k, of a code that is encoded times c
  unused = np.zeros((d_e, N))
  own = np.vstack([np.tile(u[:, None], (1, N)), gates, unused])
  named = np.vstack([np.zeros((d, N)), unused, gates])
  transition = {
    "W_1": np.vstack([np.zeros((N, N)), own]),
    "b_1": np.full(N, -4 * r),
    "W_2": np.eye(N),
  }
  label = np.concatenate([u, np.zeros(2 * d_e)])[:, None]
  slots = np.vstack([np.eye(N), np.eye(N)])
  hidden_1 = np.hstack([
    np.vstack([slots, named]),
    np.vstack([np.zeros((2 * N, 2)), np.hstack([label, -label])]),
  ])  # fmt: skip
  summed = np.tile([-1.0, -1.0, 1.0, 1.0], (N, 1))  # of S, in each unit
  hidden_2 = np.vstack([summed, [[1, -1, 0, 0], [-1, 1, 0, 0]]])
  params = {
    "forward": transition,
    "backward": transition,
    "hidden_1": {"kernel": hidden_1, "bias": np.repeat([-6 * r, 0.0], [N, 2])},
    "hidden_2": {"kernel": hidden_2, "bias": np.array([0.0, 0.0, 0.0, -r])},
    "output": {"kernel": np.array([[1.0], [-1.0], [-1.0], [2.0]])},
  }
  model = ResidualRNN(
    units=N,
    transition_widths=(N,),
    output_widths=(N + 2, 4),
    radius=3 * r * math.sqrt(N),
  )
  dtype = planted.codes.dtype
  return SlotMemory(model, jax.tree.map(lambda a: jnp.asarray(a, dtype), params))
