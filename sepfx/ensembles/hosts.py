"""Several processes that run one program: how they place data and agree.

Every process runs the same host loop. Whatever a clock, a signal or a file decides is
agreed on first, so that all of them dispatch the same programs in the same order.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding


def is_primary() -> bool:
  """Whether this process is the one that writes records and figures."""
  return jax.process_index() == 0


def place(tree: Any, sharding: NamedSharding) -> Any:
  """Places NumPy arrays that every process holds in full.

  `jax.device_put` would compare them across processes, and so block on all of them.
  """
  return jax.tree.map(
    lambda a: jax.make_array_from_callback(a.shape, sharding, lambda index: a[index]),
    tree,
  )


def fetch(tree: Any) -> Any:
  """Returns arrays that are sharded over all processes, in NumPy, to each of them.

  This and the functions below block until every process calls them, and raise
  ConnectionError if one is lost.
  """
  if jax.process_count() == 1:
    return jax.device_get(tree)
  with _together():
    return multihost_utils.process_allgather(tree, tiled=True)


def largest(values: list[float]) -> list[float]:
  """Returns the elementwise largest values that any process brings."""
  if jax.process_count() == 1:
    return values
  with _together():
    return multihost_utils.process_allgather(np.array(values)).max(axis=0).tolist()


def from_primary(array: np.ndarray) -> np.ndarray:
  """Returns the primary process's array to all; others bring one of the same shape."""
  if jax.process_count() == 1:
    return array
  with _together():
    return np.asarray(multihost_utils.broadcast_one_to_all(array))


def text_from_primary(text: str) -> str:
  """Returns the primary process's text to all; what the others bring is ignored."""
  own = np.frombuffer(text.encode(), np.uint8)
  size = int(from_primary(np.array(len(own))))
  padded = np.zeros(size, np.uint8)
  if is_primary():
    padded[:] = own
  return from_primary(padded).tobytes().decode()


def wait_for_all() -> None:
  """Returns when every process has come here."""
  from_primary(np.array(0))


@contextlib.contextmanager
def _together() -> Iterator[None]:
  try:
    yield
  except (ValueError, jax.errors.JaxRuntimeError) as error:  # it raises either
    raise ConnectionError(f"another process of this run was lost ({error})") from error
