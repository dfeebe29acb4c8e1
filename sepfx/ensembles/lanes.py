"""The compiled step that advances many trials at once, refilling finished lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float, Int

from sepfx.training.online import OnlineTrial, Seeds, State, select

_AXIS = "trials"


class Report(NamedTuple):
  """What the host learns of each of the L lanes after a dispatch.

  Fields as in `sepfx.training.online.State`, with a leading lane axis.
  """

  step: Int[Array, " L"]
  checks: Int[Array, " L"]
  curve: Float[Array, "L C"]
  exact: Bool[Array, "L C"]
  crossings: Int[Array, "L K"]
  diverged_at: Int[Array, " L"]
  active: Bool[Array, " L"]


def _advance_mapped(trial: OnlineTrial):
  """Lanes one after another: what each computes is a program of its own.

  A trial's numbers are then the same bits for any number of lanes, and a lane that
  is idle or done costs nothing. The right form where a core is a device.
  """

  def advance_lane(state: State, seeds: Seeds, refill, num_checks) -> State:
    state = jax.lax.cond(refill, lambda: trial.init(seeds), lambda: state)
    world = trial.world(state.seeds)

    def unfinished(carry):
      k, state = carry
      return (k < num_checks) & state.active

    def check(carry):
      k, state = carry
      return k + 1, trial.advance(state, world)

    return jax.lax.while_loop(unfinished, check, (jnp.int32(0), state))[1]

  def advance(states: State, seeds: Seeds, refill, num_checks, num_lanes) -> State:
    def lane(i, states):
      state, own_seeds = jax.tree.map(lambda a: a[i], (states, seeds))
      state = jax.lax.cond(
        state.active | refill[i],
        lambda: advance_lane(state, own_seeds, refill[i], num_checks),
        lambda: state,
      )
      return jax.tree.map(lambda a, b: a.at[i].set(b), states, state)

    # `num_lanes` is an argument because a loop of known length one is dissolved
    # into its surroundings, and then compiled to other last digits.
    return jax.lax.fori_loop(0, num_lanes, lane, states)

  return advance


def _advance_vmapped(trial: OnlineTrial):
  """All lanes in one batched program: the right form on an accelerator.

  An evaluation reads on until every active lane's screen has decided.
  """
  select_lanes = jax.vmap(select)

  def advance(states: State, seeds: Seeds, refill, num_checks, num_lanes) -> State:
    del num_lanes  # the batch is the array's
    states = jax.lax.cond(
      jnp.any(refill),
      lambda: select_lanes(refill, jax.vmap(trial.init)(seeds), states),
      lambda: states,
    )
    worlds = jax.vmap(trial.world)(states.seeds)

    def unfinished(carry):
      k, states = carry
      return (k < num_checks) & jnp.any(states.active)

    def check(carry):
      k, before = carry
      after = jax.vmap(trial.advance)(before, worlds)
      return k + 1, select_lanes(before.active, after, before)

    return jax.lax.while_loop(unfinished, check, (jnp.int32(0), states))[1]

  return advance


class Lanes:
  """L lanes of one cell's trials on a one-axis mesh of devices.

  Lane l lives on device l // lanes_per_device. The program is compiled once, here.

  Attributes:
    num_lanes: L, over all devices.
  """

  def __init__(
    self,
    trial: OnlineTrial,
    devices: Sequence[jax.Device],
    lanes_per_device: int,
    *,
    mapped: bool,
  ):
    """Compiles.

    Args:
      trial: whose trials to run.
      devices: where, all of one platform.
      lanes_per_device: lanes on each.
      mapped: lanes one after another (`lax.map`'s way) instead of `vmap`.
    """
    self.num_lanes = len(devices) * lanes_per_device
    mesh = Mesh(np.array(devices), (_AXIS,), axis_types=(AxisType.Auto,))
    sharding = NamedSharding(mesh, PartitionSpec(_AXIS))
    lanes, everywhere = PartitionSpec(_AXIS), PartitionSpec()
    advance = (_advance_mapped if mapped else _advance_vmapped)(trial)

    def step(states, seeds, refill, num_checks, num_lanes):
      states = advance(states, seeds, refill, num_checks, num_lanes)
      return states, Report(*(getattr(states, name) for name in Report._fields))

    # Flax's own recurrent layers, and users' models like them, start scans from
    # constants that do not vary over devices: the varying-axes check refuses them.
    sharded = jax.shard_map(
      step,
      mesh=mesh,
      in_specs=(lanes, lanes, lanes, everywhere, everywhere),
      out_specs=(lanes, lanes),
      check_vma=False,
    )
    self._put: Callable = lambda tree: jax.device_put(tree, sharding)
    self._lanes_per_device = jnp.int32(lanes_per_device)
    keys = jnp.broadcast_to(jax.random.key(0), (self.num_lanes,))
    one_seed = jax.tree.map(lambda a: a[0], Seeds(keys, keys))
    shapes = jax.eval_shape(trial.init, one_seed)
    # `active` is False in a blank lane: it is idle until it is refilled.
    self._states = self._put(jax.tree.map(self._blank, shapes))
    self._program = (
      jax.jit(sharded, donate_argnums=0)
      .lower(
        self._states,
        self._put(Seeds(keys, keys)),
        self._put(jnp.zeros(self.num_lanes, bool)),
        jnp.int32(1),
        self._lanes_per_device,
      )
      .compile()
    )

  def _blank(self, shape: jax.ShapeDtypeStruct) -> jax.Array:
    full = (self.num_lanes, *shape.shape)
    if jnp.issubdtype(shape.dtype, jax.dtypes.prng_key):
      return jnp.broadcast_to(jax.random.key(0), full)
    return jnp.zeros(full, shape.dtype)

  def advance(self, seeds: Seeds, refill: np.ndarray, num_checks: int) -> Report:
    """Advances every lane by up to `num_checks` checks, in one dispatch.

    Args:
      seeds: the trials that start in the refilled lanes, [L]; others are not read.
      refill: lanes whose trial is replaced, [L].
      num_checks: checks after which control returns; a lane stops when its trial
        ends.

    Returns:
      The report, as NumPy arrays.
    """
    self._states, report = self._program(
      self._states,
      self._put(seeds),
      self._put(jnp.asarray(refill)),
      jnp.int32(num_checks),
      self._lanes_per_device,
    )
    return jax.device_get(report)
