"""The Transformer that solves qSTR by retrieval: Equation (A.2) and Lemma 11."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np

from sepfx.errors import InvalidSetting, require
from sepfx.models import Transformer
from sepfx.tasks import QSTR, Planted, Prompts, TwoLayer


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


class RetrievingHeads(NamedTuple):
  """A `Transformer` whose heads retrieve, and parameters for it.

  Attributes:
    model: H heads.
    params: its "params" collection.
  """

  model: Transformer
  params: Any


# Share of its attention that a retrieving head may leave on other tokens.
_REST = 1e-6
# Where the slope of its read-out changes, of |x|.
_KNOTS = (0.0, 1.0, 2.0)


def retrieving_heads(
  task: QSTR, planted: Planted, num_heads: int, sample: Prompts
) -> RetrievingHeads:
  """Builds H of the q heads of Equation (A.2), with a read-out fitted to a sample.

  Head h returns token t_ih up to a share of 1e-6. The read-out sums one and the same
  function of every retrieved coordinate x: |x| beyond 0, 1 and 2, each of two ReLU units.
  It adds a constant. Weights are by least squares. It suits links that are such sums, as
  that of Proposition 3 is.

  Args:
    task: qSTR; codes that break Assumption 3 do, as long as they differ.
    planted: its planted parameters.
    num_heads: H, from 1 to q.
    sample: prompts that the read-out is fitted to, at their last position.

  Raises:
    InvalidSetting: for more heads than tokens to retrieve, or codes that coincide.
  """
  q, d, d_e = task.sparsity, task.token_dim, task.resolved_code_dim
  require(1 <= num_heads <= q, "num_heads", num_heads, f"1 to sparsity = {q}")
  codes = np.asarray(planted.codes, np.float64)
  products = codes @ codes.T
  others = np.where(np.eye(len(codes), dtype=bool), -np.inf, products)
  margin = float(np.min(np.diag(products) - np.max(others, axis=1)))
  require(margin > 1e-6, "codes", "two that coincide", "codes that all differ")
  squared_prefactor = d / q if task.encoding_prefactor else 1.0
  alpha = math.log(task.length / _REST) / (margin * squared_prefactor)
  d_in, units = task.input_dim, 2 * len(_KNOTS)
  w_qk = np.zeros((num_heads, d_in, d_in), np.float32)
  hidden = np.zeros((num_heads * d_in, units * num_heads * d + 1), np.float32)
  bias = np.append(np.tile(np.repeat([-k for k in _KNOTS], 2), num_heads * d), 1.0)
  for h in range(num_heads):
    w_qk[h, slice(d + (h + 1) * d_e, d + (h + 2) * d_e), slice(d, d + d_e)] = (
      alpha * np.eye(d_e)
    )
    for c in range(d):
      first = units * (h * d + c)
      hidden[h * d_in + c, first : first + units] = np.tile([1.0, -1.0], len(_KNOTS))
  tokens = np.take_along_axis(
    np.asarray(sample.tokens, np.float64), np.asarray(sample.indices)[:, -1, :, None], 1
  )[:, :num_heads]
  beyond = [np.sum(np.maximum(np.abs(tokens) - k, 0), axis=(1, 2)) for k in _KNOTS]
  design = np.stack([*beyond, np.ones(len(tokens))], axis=1)
  labels = np.asarray(sample.labels, np.float64)[:, -1]
  *slopes, constant = np.linalg.lstsq(design, labels, rcond=None)[0]
  weights = np.append(np.tile(np.repeat(slopes, 2), num_heads * d), constant)
  params = {
    "W_QK": jnp.asarray(w_qk),
    "hidden": {"kernel": jnp.asarray(hidden), "bias": jnp.asarray(bias, jnp.float32)},
    "output": {"kernel": jnp.asarray(weights[:, None], jnp.float32)},
  }
  model = Transformer(num_heads=num_heads, parametrization="full", width=len(bias))
  return RetrievingHeads(model, params)
