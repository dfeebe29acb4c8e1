"""Position codes omega_1, ..., omega_N in R^{d_e} (section 3, Assumption 3)."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from sepfx import precision
from sepfx.errors import require

# Rejected candidates per code before a draw is given up. At the default
# dimension no length up to 128 needs more than a few dozen.
MAX_TRIES = 10_000

# What a candidate's inner products with the codes before it (as sign vectors,
# so integers in [-d_e, d_e]) must satisfy; None accepts everything.
_ACCEPTS = {
  "rademacher": None,
  "distinct": lambda products, code_dim: products < code_dim,
  "incoherent": lambda products, code_dim: 2 * jnp.abs(products) <= code_dim,
}
KINDS = tuple(_ACCEPTS)


def default_code_dim(length: int) -> int:
  """Returns d_e = floor(5 ln N), the dimension behind the published figures."""
  return math.floor(5 * math.log(length))


def incoherent_code_dim(length: int) -> int:
  """d_e = ceil(16 ln N), with which most random draws satisfy Assumption 3."""
  return math.ceil(16 * math.log(length))


@precision.exact()
def draw_codes(
  key: PRNGKeyArray, kind: str, length: int, code_dim: int
) -> Float[Array, "N d_e"]:
  """Draws one unit-norm code per position from {+-1/sqrt(d_e)}^{d_e}.

  Codes are drawn one after another; a candidate that the kind does not accept
  beside the codes already there is drawn again. (Redrawing whole sets would
  practically never satisfy Assumption 3 from N = 16 on.)

  Args:
    key: consumed.
    kind: "rademacher" (independent signs, two positions may share a code: the
      published draw), "distinct" (no two codes equal) or "incoherent"
      (|<omega_i, omega_j>| <= 1/2 for i != j: Assumption 3).
    length: N.
    code_dim: d_e.

  Returns:
    The codes, all NaN if some code found no place in `MAX_TRIES` candidates
    (the function is pure, so it cannot raise; `QSTR.check_draw` does).
  """
  require(kind in _ACCEPTS, "codes", kind, f"one of {', '.join(KINDS)}")
  accepts = _ACCEPTS[kind]
  if accepts is None:
    signs = jax.random.rademacher(key, (length, code_dim), float)
    return signs / math.sqrt(code_dim)

  def unfinished(carry):
    _, found, tries, _ = carry
    return (found < length) & (tries < MAX_TRIES)

  def try_one(carry):
    signs, found, tries, key = carry
    key, draw_key = jax.random.split(key)
    candidate = jax.random.rademacher(draw_key, (code_dim,), float)
    # Rows not drawn yet are zero, and zero products are always accepted.
    accepted: Bool[Array, ""] = jnp.all(accepts(signs @ candidate, code_dim))
    signs = jnp.where(accepted, signs.at[found].set(candidate), signs)
    return signs, found + accepted, jnp.where(accepted, 0, tries + 1), key

  start = (jnp.zeros((length, code_dim)), jnp.int32(0), jnp.int32(0), key)
  signs, found, _, _ = jax.lax.while_loop(unfinished, try_one, start)
  return jnp.where(found == length, signs / math.sqrt(code_dim), jnp.nan)


@precision.exact()
def coherence(codes: Float[Array, "N d_e"]) -> Float[Array, ""]:
  """Returns max_{i != j} |<omega_i, omega_j>| (Assumption 3 wants <= 1/2)."""
  gram = jnp.abs(codes @ codes.T)
  return jnp.max(gram - jnp.diag(jnp.diag(gram)))
