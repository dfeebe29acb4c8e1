"""The Transformer that solves qSTR by retrieval: Equation (A.2) and Lemma 11."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np

from sepfx.errors import InvalidSetting, require
from sepfx.models import Transformer
from sepfx.tasks import QSTR, Planted, TwoLayer


class Retrieval(NamedTuple):
  """A `Transformer` and parameters for it.

  Attributes:
    model: H = q heads.
    params: its "params" collection.
    alpha: the scale of the query-key block.
    network: f_2NN, the two-layer network that reads the retrieved tokens.
  """

  model: Transformer
  params: Any
  alpha: float
  network: TwoLayer


def norm_bounds(network: TwoLayer) -> tuple[float, float]:
  """r_a and r_w of Assumption 2: ||a|| = r_a / sqrt(m), ||(W, b)||_F = sqrt(m) r_w."""
  m = network.a.shape[0]
  r_a = math.sqrt(m) * float(jnp.linalg.norm(network.a))
  joined = jnp.concatenate([network.W, network.b[:, None]], axis=1)
  return r_a, float(jnp.linalg.norm(joined)) / math.sqrt(m)


def lemma_11_alpha(task: QSTR, network: TwoLayer, radius: float, eps: float) -> float:
  """alpha = (2q/d) log(2 r_a r_w r_x N sqrt(q) / sqrt(eps)), Lemma 11.

  At it, ||W_QK^T||_{2,1} = d_e alpha. (The lemma's statement has eps in place of
  sqrt(eps) in the logarithm; its proof, and this function, have the root.)

  Args:
    task: for q, d and N; if its encoding has no prefactor sqrt(d/q), alpha is
      multiplied by d/q, so that the scores are the same.
    network: f_2NN, for r_a and r_w.
    radius: r_x, bound of the tokens' norms.
    eps: epsilon_2NN; attention then costs at most sqrt(eps) (with codes that satisfy
      Assumption 3).
  """
  require(eps > 0, "eps", eps, "a positive number")
  require(radius > 0, "radius", radius, "a positive number")
  q, d = task.sparsity, task.token_dim
  r_a, r_w = norm_bounds(network)
  logarithm = math.log(
    2 * r_a * r_w * radius * task.length * math.sqrt(q) / math.sqrt(eps)
  )
  return 2 * logarithm * (q / d if task.encoding_prefactor else 1.0)


def retrieval_transformer(
  task: QSTR,
  planted: Planted,
  *,
  radius: float,
  eps: float,
  parametrization: Literal["separate", "full"] = "full",
) -> Retrieval:
  """Builds the Transformer of Lemma 11, with H = q heads.

  Head h compares the query's omega_{t_ih} with the keys' omega_j and returns, up to an
  exponentially small rest, token t_ih; the read-out is f_2NN on the q tokens. For
  tokens with ||x|| <= radius and codes of coherence at most 1/2 its prediction is
  within sqrt(eps) of f_2NN at every position.

  Args:
    task: qSTR with a link that is a two-layer ReLU network (linear, mean, ReLU teacher).
    planted: its planted parameters.
    radius: r_x.
    eps: epsilon_2NN > 0.
    parametrization: "full", one W_QK a head, exactly the lemma's; or "separate", the
      same function in the published parametrisation, where alpha also makes up for
      the division of the scores by sqrt(head_dim).

  Raises:
    InvalidSetting: if the link is no two-layer ReLU network, or if "separate" has no
      room: W_O must carry q d numbers through D, and W_Q d_e through head_dim = D.
  """
  q, d, d_e = task.sparsity, task.token_dim, task.resolved_code_dim
  d_in = task.input_dim
  network = task.link.two_layer(planted.link, q, d)
  if network is None:
    raise InvalidSetting(
      "link", task.link.name, "a link that is a two-layer ReLU network"
    )
  alpha = lemma_11_alpha(task, network, radius, eps)
  width = network.a.shape[0]
  own = slice(d, d + d_e)  # where a token carries omega_i
  named = [slice(d + (h + 1) * d_e, d + (h + 2) * d_e) for h in range(q)]
  read_out: dict[str, Any] = {"kernel": network.a[:, None]}

  if parametrization == "full":
    model = Transformer(num_heads=q, parametrization="full", width=width)
    w_qk = np.zeros((q, d_in, d_in), np.float32)
    hidden = np.zeros((q, d_in, width), np.float32)
    for h in range(q):
      w_qk[h, named[h], own] = alpha * np.eye(d_e)
      hidden[h, :d] = network.W[:, h * d : (h + 1) * d].T
    params: dict[str, Any] = {
      "W_QK": jnp.asarray(w_qk),
      "hidden": {"kernel": jnp.asarray(hidden.reshape(q * d_in, width))},
    }
  else:
    require(
      d_in >= q * d,
      "code_dim",
      d_e,
      f"with sparsity {q}, token_dim {d}: a D = d + (q + 1) code_dim of at least q d",
    )
    model = Transformer(num_heads=q, width=width)
    alpha *= math.sqrt(d_in)
    zeros = np.zeros((d_in, q, d_in), np.float32)  # D x H x head_dim
    query, key, value = zeros.copy(), zeros.copy(), zeros.copy()
    out = np.zeros((q, d_in, d_in), np.float32)  # H x head_dim x D
    hidden = np.zeros((d_in, width), np.float32)
    for h in range(q):
      query[named[h], h, :d_e] = key[own, h, :d_e] = math.sqrt(alpha) * np.eye(d_e)
      value[:d, h, :d] = np.eye(d)
      out[h, :d, h * d : (h + 1) * d] = np.eye(d)
    hidden[: q * d] = network.W.T
    head_bias = jnp.zeros((q, d_in))
    params = {
      "query": {"kernel": jnp.asarray(query), "bias": head_bias},
      "key": {"kernel": jnp.asarray(key), "bias": head_bias},
      "value": {"kernel": jnp.asarray(value), "bias": head_bias},
      "out": {"kernel": jnp.asarray(out), "bias": jnp.zeros(d_in)},
      "hidden": {"kernel": jnp.asarray(hidden)},
    }
    read_out["bias"] = jnp.zeros(1)
  params["hidden"]["bias"] = network.b
  params["output"] = read_out
  return Retrieval(model, params, alpha, network)
