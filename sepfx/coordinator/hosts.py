"""Several processes that run one program: how they place data and agree.

Every process runs the same host loop. Whatever a clock, a signal or a file decides is
agreed on first, so that all of them dispatch the same programs in the same order.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax._src import clusters
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding

from sepfx.coordinator import roll_call
from sepfx.coordinator.lifeline import Lifeline
from sepfx.errors import InvalidSetting

# To the other processes of this run; None where it has one.
lifeline: Lifeline | None = None

# What JAX, or what it lets processes talk through, says when one is gone.
_OF_A_LOSS = (
  "Gloo", "NCCL", "Connection closed by peer", "UNAVAILABLE", "DEADLINE_EXCEEDED",
)  # fmt: skip


def join(
  coordinator: str | None,
  count: int | None,
  process: int | None,
  card: Mapping[str, str],
  timeout: float,
) -> None:
  """Joins the other processes of the run; before anything else of JAX.

  Args:
    coordinator: host:port of the first process; None where JAX finds it.
    count: of processes; None likewise.
    process: this one; None likewise.
    card: what has to be the same in all, see `roll_call.hold`.
    timeout: seconds to wait for the others.

  Raises:
    InvalidSetting: if they were not started alike, or JAX finds no cluster.
    ConnectionError: if they cannot be had.
  """
  global lifeline
  address = coordinator or os.environ.get("JAX_COORDINATOR_ADDRESS")
  seconds = math.ceil(timeout)
  # What `jax.distributed.initialize` does first.
  address, count, process, _ = clusters.ClusterEnv.auto_detect_unset_distributed_params(
    address, count, process, None, None, seconds
  )
  if address is None or count is None or process is None:
    takes = "--coordinator, --num_processes and --process_id where JAX finds no cluster"
    raise InvalidSetting("distributed", True, takes)
  lifeline = roll_call.hold(address, count, process, card, timeout)
  with lifeline.joining():
    try:
      jax.distributed.initialize(address, count, process, initialization_timeout=seconds)
    except jax.errors.JaxRuntimeError as error:
      raise ConnectionError(f"JAX could not connect the processes ({error})") from error


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


def is_loss(error: BaseException | None) -> bool:
  """Whether an error says that another process was lost, or was caused by one that does.

  Files may be written by all processes together: then it comes as an OSError.
  """
  while error is not None:
    if isinstance(error, ConnectionError) or (
      lifeline is not None and any(word in str(error) for word in _OF_A_LOSS)
    ):
      return True
    error = error.__cause__ or error.__context__
  return False


@contextlib.contextmanager
def _together() -> Iterator[None]:
  try:
    yield
  except (ValueError, jax.errors.JaxRuntimeError) as error:  # it raises either
    raise ConnectionError(f"another process of this run was lost ({error})") from error
