"""Lanes of trials on devices, and the compiled program that advances and refills them.

Lanes run trials of one structure. The leaves of each lane's trial (its learning rate,
say) are arguments, as its seeds are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool

from sepfx.ensembles import keys
from sepfx.ensembles.advance import (
  CONTINUE,
  Leaves,
  Slots,
  advance_mapped,
  advance_vmapped,
  world_of,
)
from sepfx.training import (
  Report,
  Seeds,
  State,
  Trial,
  evaluation_weights,
  select,
)

_AXIS = "trials"
# `jax.random.key_data` of each of the `Seeds`, [L *key]: NumPy has no typed keys.
KeyData = tuple[np.ndarray, ...]


def leaves_of(trial: Trial) -> Leaves:
  """Returns the leaves of a trial in NumPy, as lanes take them."""
  leaves = jax.tree.leaves(trial)
  dtypes = [jax.dtypes.canonicalize_dtype(jnp.result_type(leaf)) for leaf in leaves]
  return tuple(map(np.asarray, leaves, dtypes))


class Lanes:
  """L lanes of trials of one structure on a one-axis mesh of devices.

  Lane l lives on device l // lanes_per_device. The program is compiled once, here; the
  lanes take memory from their first use on.

  Attributes:
    num_lanes: L, over all devices.
    lanes_per_device: on each.
    quantum: a dispatch takes a multiple of this many steps.
    bytes_per_device: device memory that the program and its lanes take.
  """

  def __init__(
    self,
    trial: Trial,
    devices: Sequence[jax.Device],
    lanes_per_device: int,
    *,
    mapped: bool,
  ):
    """Compiles.

    Args:
      trial: one of those to run; the others differ from it in their leaves alone.
      devices: where, all of one platform.
      lanes_per_device: lanes on each.
      mapped: lanes one after another (`lax.map`'s way) instead of `vmap`.
    """
    structure = jax.tree.structure(trial)
    self.num_lanes = len(devices) * lanes_per_device
    self.lanes_per_device = lanes_per_device
    self.quantum = 1 if mapped else trial.protocol.check_every
    mesh = Mesh(np.array(devices), (_AXIS,), axis_types=(AxisType.Auto,))
    self._sharding = NamedSharding(mesh, PartitionSpec(_AXIS))
    self._replicated = NamedSharding(mesh, PartitionSpec())
    lanes, everywhere = PartitionSpec(_AXIS), PartitionSpec()
    advance = (advance_mapped if mapped else advance_vmapped)(structure)

    def step(slots, key_data, leaves, refill, num_steps, num_lanes):
      seeds = Seeds(*map(keys.wrap_key_data, key_data))
      slots = advance(slots, seeds, leaves, refill, num_steps, num_lanes)
      return slots, Report(*(getattr(slots.state, name) for name in Report._fields))

    # Flax's own recurrent layers, and users' models like them, start scans from
    # constants that do not vary over devices: the varying-axes check refuses them.
    sharded = jax.shard_map(
      step,
      mesh=mesh,
      in_specs=(lanes, lanes, lanes, lanes, everywhere, everywhere),
      out_specs=(lanes, lanes),
      check_vma=False,
    )
    self._slots: Slots | None = None
    self._shapes = self._shapes_of(trial)
    key_data = np.zeros((self.num_lanes, 2), np.uint32)
    leaves = tuple(
      np.zeros((self.num_lanes, *leaf.shape), leaf.dtype) for leaf in leaves_of(trial)
    )
    refill = np.full(self.num_lanes, CONTINUE, np.int32)
    arguments = self._arguments((key_data, key_data), leaves, refill, 1)
    with jax.debug_nans(False):  # else nothing is donated: another program
      self._program = (
        jax.jit(sharded, donate_argnums=0).lower(self._shapes, *arguments).compile()
      )
    memory: Any = self._program.memory_analysis()
    self.bytes_per_device: int = (
      memory.argument_size_in_bytes
      + memory.temp_size_in_bytes
      + memory.output_size_in_bytes
      - memory.alias_size_in_bytes
    )

  @property
  def states(self) -> State:
    """The trials in the lanes, sharded over the devices."""
    return self._held().state

  def advance(
    self, key_data: KeyData, leaves: Leaves, refill: np.ndarray, num_steps: int
  ) -> Report:
    """Starts to advance every lane by up to `num_steps` steps, in one dispatch.

    Args:
      key_data: of the trials in the lanes; an idle lane's are not read.
      leaves: of those trials, likewise.
      refill: `CONTINUE`, `START` or `RESUME`, [L].
      num_steps: steps after which control returns, a multiple of `quantum`; a lane
        stops when its trial ends.

    Returns:
      The report, still being computed, on the devices.
    """
    with jax.debug_nans(False):  # JAX would not say in which lane, as `with_nan` does
      self._slots, report = self._program(
        self._held(), *self._arguments(key_data, leaves, refill, num_steps)
      )
    return report

  def with_nan(self) -> Bool[np.ndarray, " L"]:
    """Returns in which lanes a number is NaN."""
    return np.asarray(_with_nan(self._held()))

  def take(self, lane: int) -> Any:
    """Returns the weights at which a lane's trial is evaluated, in NumPy."""
    own = _weights(self._replicated)(
      self.states.opt_state, self.states.params, np.int32(lane)
    )
    return jax.tree.map(np.asarray, own)

  def put(self, states: Mapping[int, State]) -> None:
    """Puts trials in progress into lanes, each to be taken up by a `RESUME`.

    Args:
      states: by lane; fields without the lane axis, in NumPy.
    """
    rows = jax.tree.map(
      lambda a: np.zeros((self.num_lanes, *a.shape[1:]), a.dtype), self.states
    )
    chosen = np.zeros(self.num_lanes, bool)
    for lane, state in states.items():
      chosen[lane] = True
      for row, value in zip(jax.tree.leaves(rows), jax.tree.leaves(state), strict=True):
        row[lane] = value
    rows, chosen = jax.device_put((rows, chosen), self._sharding)
    state = _choose(chosen, rows, self.states)
    self._slots = self._held()._replace(state=state)

  def clear(self) -> None:
    """Empties the lanes and gives their memory back."""
    self._slots = None

  def _held(self) -> Slots:
    if self._slots is None:
      # `active` is False in a blank lane: it is idle until it is refilled.
      blank = jax.tree.map(lambda own: np.zeros(own.shape, own.dtype), self._shapes)
      self._slots = jax.device_put(blank, self._sharding)
    return self._slots

  def _shapes_of(self, trial: Trial) -> Slots:
    seeds = Seeds(keys.key(0), keys.key(0))
    one = Slots(trial.state_shapes(), jax.eval_shape(lambda: world_of(trial, seeds)))
    return jax.tree.map(
      lambda own: jax.ShapeDtypeStruct(
        (self.num_lanes, *own.shape), own.dtype, sharding=self._sharding
      ),
      one,
    )

  def _arguments(
    self, key_data: KeyData, leaves: Leaves, refill: np.ndarray, num_steps: int
  ) -> tuple:
    numbers = (np.int32(num_steps), np.int32(self.lanes_per_device))
    return (*jax.device_put((key_data, leaves, refill), self._sharding), *numbers)


@functools.partial(jax.jit, donate_argnums=2)
def _choose(chosen: Bool[Array, " L"], new: State, old: State) -> State:
  return jax.vmap(select)(chosen, new, old)


@jax.jit
def _with_nan(slots: Slots) -> Bool[Array, " L"]:
  return jax.vmap(
    lambda own: jnp.any(
      jnp.stack([jnp.any(jnp.isnan(a)) for a in jax.tree.leaves(own) if _is_inexact(a)])
    )
  )(slots)


def _is_inexact(array: Array) -> bool:
  return jnp.issubdtype(array.dtype, jnp.inexact)


@functools.cache
def _weights(sharding: NamedSharding) -> Callable:
  """Compiles what takes one lane's weights out of arrays that are sharded over lanes."""

  def weights(opt_states, params, lane):
    return evaluation_weights(*jax.tree.map(lambda a: a[lane], (opt_states, params)))

  return jax.jit(weights, out_shardings=sharding)
