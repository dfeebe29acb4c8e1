"""The classes of Theorems 10 and 7 that have the constructions, at their own norms."""

from __future__ import annotations

import math

import jax
import numpy as np

from sepfx.errors import InvalidSetting
from sepfx.tasks import QSTR, Planted

from ..bounds.covering import RecurrentClass, TransformerClass
from .recurrent import RecurrentRetrieval
from .retrieval import lemma_11_alpha


def retrieval_class(
  task: QSTR, planted: Planted, *, radius: float, eps: float
) -> TransformerClass:
  """The class of Lemma 11's Transformer, with the encoding's prefactor (Theorem 10).

  Args:
    task: qSTR with a link that is a two-layer ReLU network.
    planted: its planted parameters.
    radius: r_x.
    eps: epsilon_2NN > 0.

  Raises:
    InvalidSetting: if the link is no two-layer ReLU network.
  """
  q, d, d_e = task.sparsity, task.token_dim, task.resolved_code_dim
  network = task.link.two_layer(planted.link, q, d)
  if network is None:
    takes = "a link that is a two-layer ReLU network"
    raise InvalidSetting("link", task.link.name, takes)
  alpha = lemma_11_alpha(task, network, radius, eps)
  joined = np.concatenate([network.W, network.b[:, None]], axis=1)
  return TransformerClass(
    length=task.length,
    num_heads=q,
    width=len(network.a),
    input_dim=task.input_dim,
    r_a=float(np.linalg.norm(network.a)),
    R_w=float(np.linalg.norm(joined)),
    # The (2, 1) norm of Theorem 10. Without the prefactor alpha has made up for it.
    r_QK=d_e * (alpha if task.encoding_prefactor else alpha * q / d),
    r_z=math.hypot(radius, math.sqrt((q + 1) * d / q)),
  )


def class_of(built: RecurrentRetrieval, length: int) -> RecurrentClass:
  """The class of Proposition 28's exact network (Theorem 7), with alpha_N = 0.

  Args:
    built: the network; its radius bounds states and, with q = 1, tokens.
    length: N.
  """
  leaves = jax.tree.leaves(built.params)
  squares = sum(float(np.sum(np.square(np.asarray(leaf, float)))) for leaf in leaves)
  transition = sum(leaf.size for leaf in jax.tree.leaves(built.params["forward"]))
  total = sum(leaf.size for leaf in leaves)
  return RecurrentClass(
    length=length,
    alpha=0.0,
    R=math.sqrt(squares),
    r_h=built.model.radius,
    r_z=built.model.radius,
    transition=(3, transition),
    read_out=(4, total - 2 * transition),
  )
