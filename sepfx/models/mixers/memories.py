"""Memories of keys and values: what gated and linear attention, delta rules and
state-space duality have in common.

A head's memory is a matrix S, [K V]. At each token it decays, is corrected where its keys
are written anew, and is read:

    S <- diag(exp(g)) S
    S <- S + k (beta (v - S^T k))^T        or, without beta,        S <- S + k v^T
    o  = S^T q

Another correction reads the memory before it decays, and takes b (S^T kappa)^T away
after.

`step` is one token of it, `by_recurrence` all of them one after another, and `in_chunks`
the same numbers by products of matrices: within chunks of tokens all at once, and from
chunk to chunk by the recurrence. The forms of the chunks are those of Yang et al.,
"Parallelizing Linear Transformers with the Delta Rule over Sequence Length" (2024) and
"Gated Delta Networks" (2025), and of Dao and Gu, "Transformers are SSMs" (2024).

All of it computes, and is returned, in single precision at least.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

# Tokens of a chunk: one decay for a head leaves products of matrices, one for each key
# dimension does not, so that a chunk of C tokens takes C^2 K exponentials.
CHUNK, CHUNK_OF_MANY_DECAYS = 64, 16

State = Float[Array, "n H K V"]


class Terms(NamedTuple):
  """What tokens do to a memory.

  Attributes:
    query: q, [n N H K]; or [n N 1 K] where all heads have one.
    key: k, likewise.
    value: v, [n N H V].
    log_decay: g <= 0, [n N H K], or [n N H 1] for one for the whole matrix; None for no
      decay.
    beta: [n N H]; None where values are added whatever stands there.
    erased: kappa and b, [n N H K] each; None where nothing is taken away. It and beta do
      not go together.
  """

  query: Float[Array, "n N #H K"]
  key: Float[Array, "n N #H K"]
  value: Float[Array, "n N H V"]
  log_decay: Float[Array, "n N H G"] | None = None
  beta: Float[Array, "n N H"] | None = None
  erased: tuple[Float[Array, "n N H K"], Float[Array, "n N H K"]] | None = None


def empty(terms: Terms) -> State:
  """The memory before the first token."""
  if terms.beta is not None and terms.erased is not None:
    raise ValueError("beta and erased do not go together")
  n, _, H, V = terms.value.shape
  dtype = jnp.promote_types(terms.value.dtype, jnp.float32)
  return jnp.zeros((n, H, terms.key.shape[-1], V), dtype)


def step(state: State, terms: Terms) -> tuple[State, Float[Array, "n H V"]]:
  """One token: of the terms the N is 1.

  Returns:
    The memory after it, and what is read.
  """
  terms = jax.tree.map(lambda own: own[:, 0].astype(state.dtype), terms)
  heads = state.shape[:-1]
  query, key = (jnp.broadcast_to(own, heads) for own in (terms.query, terms.key))
  value = terms.value
  if terms.erased is not None:
    asked, along = terms.erased
    taken = along[..., None] * jnp.einsum("nhkv,nhk->nhv", state, asked)[..., None, :]
  if terms.log_decay is not None:
    state = jnp.exp(terms.log_decay)[..., None] * state
  if terms.erased is not None:
    state = state - taken
  if terms.beta is not None:
    stands = jnp.einsum("nhkv,nhk->nhv", state, key)
    value = terms.beta[..., None] * (value - stands)
  state = state + key[..., None] * value[..., None, :]
  return state, jnp.einsum("nhkv,nhk->nhv", state, query)


def by_recurrence(terms: Terms) -> Float[Array, "n N H V"]:
  """What is read at each token, one after another."""
  times_first = jax.tree.map(lambda own: jnp.moveaxis(own, 1, 0)[:, :, None], terms)
  read = jax.lax.scan(step, empty(terms), times_first)[1]
  return jnp.moveaxis(read, 0, 1)


def in_chunks(terms: Terms, chunk: int | None = None) -> Float[Array, "n N H V"]:
  """What `by_recurrence` returns, by products of matrices.

  Args:
    terms: of any number of tokens.
    chunk: tokens of a chunk; None for what suits the decays.
  """
  n, N, H, _ = terms.value.shape
  many = terms.log_decay is not None and terms.log_decay.shape[-1] > 1
  C = min(chunk or (CHUNK_OF_MANY_DECAYS if many else CHUNK), N)
  chunks = -(-N // C)
  start = empty(terms)

  def cut(own: Array) -> Array:
    """[n N H ...] -> [chunks n H C ...]. Tokens of zeros at the end change nothing."""
    later = ((0, 0), (0, chunks * C - N), *((0, 0),) * (own.ndim - 2))
    own = jnp.pad(own.astype(start.dtype), later)
    own = own.reshape(n, chunks, C, *own.shape[2:])
    return jnp.moveaxis(own, (1, 3), (0, 2))

  terms = jax.tree.map(cut, terms)
  query, key, value = terms.query, terms.key, terms.value
  if terms.erased is not None:  # its keys are of each head, and stand beside these
    query, key = (jnp.broadcast_to(own, terms.erased[0].shape) for own in (query, key))
  log_decay = terms.log_decay
  if log_decay is None:
    log_decay = jnp.zeros((1, 1, 1, C, 1), start.dtype)
  kept = _kept(log_decay)
  scores = _scores(query, key, kept)
  added, erased = value, None
  if terms.beta is not None:
    # Each value as it is written depends on those before it: a triangular system.
    beta = terms.beta[..., None]
    solved = inverse(beta * jnp.tril(_scores(key, key, kept), -1))
    added = solved @ (beta * value)
  if terms.erased is not None:
    # What is taken away is written, too, with keys of its own: two writings per token.
    asked, along = terms.erased
    # What is left before i's decay of what was written at j.
    before = _one_later(kept, axis=-3)
    solved = inverse(_scores(asked, along, before))
    taken = solved @ (_scores(asked, key, before) @ value)
    scores = jnp.concatenate([scores, _scores(query, along, kept)], axis=-1)
    key, added = _both(key, along), _both(value, -taken)
  if chunks > 1:
    # Logarithms of what is left at i of what stood there before the chunk, and at its end
    # of what was written at i. No sum is taken as a difference of others: after a strong
    # decay these would cancel.
    left = jnp.cumsum(log_decay, axis=-2)
    after = jnp.concatenate([log_decay[..., 1:, :], jnp.zeros_like(left[..., :1, :])], -2)
    to_end = jax.lax.cumsum(after, axis=after.ndim - 2, reverse=True)
    if terms.erased is not None:
      to_end = _both(to_end, to_end)
    written = jnp.swapaxes(key * jnp.exp(to_end), -1, -2)
    last = jnp.exp(left[..., -1, :])[..., None]
    if terms.beta is not None:
      erased = solved @ (beta * key * jnp.exp(left))
    if terms.erased is not None:
      of_start = solved @ (asked * jnp.exp(_one_later(left, axis=-2)))
      erased = _both(jnp.zeros_like(of_start), of_start)
    states = _before_chunks(start, last, written, added, erased)
    if erased is not None:
      added = added - erased @ states
    read = (query * jnp.exp(left)) @ states + scores @ added
  else:
    read = scores @ added
  read = jnp.moveaxis(read, (0, 2), (1, 3)).reshape(n, chunks * C, H, -1)
  return read[:, :N]


def _both(first: Array, second: Array) -> Array:
  """The tokens of the one and then those of the other."""
  return jnp.concatenate([first, second], axis=-2)


def _one_later(own: Array, axis: int) -> Array:
  """What stood one token before; 0 at the first."""
  before = [(0, 0)] * own.ndim
  before[axis] = (1, 0)
  return jax.lax.slice_in_dim(jnp.pad(own, before), 0, own.shape[axis], axis=axis)


def _before_chunks(
  start: State,
  last: Float[Array, "*c 1"],
  written: Float[Array, "c *n K C"],
  added: Float[Array, "c n H C V"],
  erased: Float[Array, "c n H C K"] | None,
) -> Float[Array, "c n H K V"]:
  """The memory before each chunk.

  In the scan is only what depends on the chunk before: what a chunk writes, and of what
  stands there erases, are products of all chunks at once.

  Args:
    start: before the first.
    last: what is left after a chunk of what stood there before.
    written: keys as they are at a chunk's end.
    added: what stands for a value that is written into an empty memory.
    erased: times the memory, what is less of it; None where nothing is erased.
  """
  products = (written @ own for own in (added, erased) if own is not None)

  def next_chunk(state: State, own: tuple[Array, ...]) -> tuple[State, State]:
    last, update, *less = own
    after = last * state + update
    return (after - less[0] @ state if less else after), state

  chunks, *shape = (len(added), *start.shape[:-1], 1)
  last = jnp.broadcast_to(last, (chunks, *shape))
  return jax.lax.scan(next_chunk, start, (last, *products))[1]


def inverse(lower: Float[Array, "*c C C"]) -> Float[Array, "*c C C"]:
  """(I + L)^-1 of a strictly lower triangular L, by products of its blocks.

  Blocks on the diagonal are inverted two by two, until they are one: that of
  [[A, 0], [B, D]] is [[A^-1, 0], [-D^-1 B A^-1, D^-1]]. It is as exact as substitution,
  where powers of L would be huge and cancel. Compilers make slow code of triangular
  systems in batches.
  """
  C = lower.shape[-1]
  whole = 1 << (C - 1).bit_length()
  more = ((0, 0),) * (lower.ndim - 2) + ((0, whole - C),) * 2
  lower = jnp.pad(lower, more)
  found = jnp.ones((*lower.shape[:-1], 1, 1), lower.dtype)  # of blocks of one row
  size = 1
  while size < whole:
    pairs = whole // (2 * size)
    blocks = lower.reshape(*lower.shape[:-2], pairs, 2, size, pairs, 2, size)
    each = jnp.arange(pairs)
    # Indices apart from one another put the axis of pairs first.
    below = jnp.moveaxis(blocks[..., each, 1, :, each, 0, :], 0, -3)
    first, second = found[..., ::2, :, :], found[..., 1::2, :, :]
    corner = -second @ below @ first
    upper = jnp.concatenate([first, jnp.zeros_like(first)], axis=-1)
    found = jnp.concatenate([upper, jnp.concatenate([corner, second], axis=-1)], axis=-2)
    size *= 2
  return found[..., 0, :C, :C]


def _kept(log_decay: Float[Array, "*c C G"]) -> Float[Array, "*c C C G"]:
  """What is left at i of what was written at j: exp(sum of g after j up to i); else 0."""
  C = log_decay.shape[-2]
  after = jnp.tril(jnp.ones((C, C), bool), -1)[..., None]
  sums = jnp.cumsum(jnp.where(after, log_decay[..., :, None, :], 0.0), axis=-3)
  seen = jnp.tril(jnp.ones((C, C), bool))[..., None]
  return jnp.where(seen, jnp.exp(sums), 0.0)


def _scores(
  query: Float[Array, "*heads C K"],
  key: Float[Array, "*heads C K"],
  kept: Float[Array, "*of_decays C C #K"],
) -> Float[Array, "*either C C"]:
  """Sums over k of q_ik k_jk kept_ijk."""
  if kept.shape[-1] == 1:
    products, kept = query @ jnp.swapaxes(key, -1, -2), kept[..., 0]
    if products.shape[-3] == 1:
      # One head after another: the gradient is a sum over heads, which XLA is slow at on
      # CPUs where it reduces an axis in the middle.
      heads = jnp.split(kept, kept.shape[-3], axis=-3)
      return jnp.concatenate([products * own for own in heads], axis=-3)
    return products * kept
  return jnp.einsum("...ik,...jk,...ijk->...ij", query, key, kept)
