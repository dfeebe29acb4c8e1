"""How lanes advance: one after another, or batched.

Each of the two ways is a function of what the lanes hold, for trials of one structure. It
begins the trials of lanes that are to be refilled, then trains and evaluates all lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from sepfx.ensembles import keys
from sepfx.training import Seeds, State, Trial, World, select

# Where lanes are batched those that a glance decides nothing for are evaluated in full in
# at most so many groups of equal size, one after another: at most checks one or two are.
_GROUPS = 8

# The leaves of each lane's trial, in their order in the tree, [L ...] each.
Leaves = tuple[np.ndarray, ...]

# What a dispatch does with a lane before it advances it: goes on with its trial, starts
# one, or takes one up whose state was put there.
CONTINUE, START, RESUME = range(3)


class Slots(NamedTuple):
  """What the lanes hold; every field of either with a leading lane axis."""

  state: State
  world: World


def world_of(trial: Trial, seeds: Seeds) -> World:
  """A trial's world with its keys as key data, so that lanes can hold it."""
  world = trial.world(seeds)
  return world._replace(keys=jax.tree.map(jax.random.key_data, world.keys))


def _with_keys(world: World) -> World:
  return world._replace(keys=jax.tree.map(keys.wrap_key_data, world.keys))


def advance_mapped(structure: Any):
  """Lanes one after another: what each computes is a program of its own.

  A trial's numbers are then the same bits for any number of lanes, and a lane that
  is idle or done costs nothing. The right form where a core is a device.

  Args:
    structure: of the trials, a tree's.

  Returns:
    A function (slots, seeds, leaves, refill, num_steps, num_lanes) -> slots, of the lanes
    of one device. `refill` is what to do with each before it advances: `CONTINUE`,
    `START` or `RESUME`, [L]. `num_steps` bounds the steps of each; `num_lanes` is L.
  """

  def begin(i, slots: Slots, seeds: Seeds, leaves: Leaves, refill) -> Slots:
    slot, own_seeds, own = jax.tree.map(lambda a: a[i], (slots, seeds, leaves))
    trial = jax.tree.unflatten(structure, own)
    slot = jax.lax.cond(
      refill[i] == CONTINUE,
      lambda: slot,
      lambda: Slots(
        jax.lax.cond(
          refill[i] == START, lambda: trial.init(own_seeds), lambda: slot.state
        ),
        world_of(trial, own_seeds),
      ),
    )
    return jax.tree.map(lambda a, b: a.at[i].set(b), slots, slot)

  def advance_lane(trial: Trial, state: State, world: World, num_steps) -> State:
    check_every = trial.protocol.check_every

    def unfinished(carry):
      left, state = carry
      return (left > 0) & state.active

    def to_next_check(carry):
      left, state = carry
      steps = jnp.minimum(left, check_every - state.step % check_every)
      state = trial.train(state, world, steps)
      state = jax.lax.cond(
        state.step % check_every == 0,
        lambda: trial.evaluate(state, world),
        lambda: state,
      )
      return left - steps, state

    return jax.lax.while_loop(unfinished, to_next_check, (num_steps, state))[1]

  def advance(
    slots: Slots, seeds: Seeds, leaves: Leaves, refill, num_steps, num_lanes
  ) -> Slots:
    def lane(i, states):
      state, world, own = jax.tree.map(lambda a: a[i], (states, slots.world, leaves))
      trial = jax.tree.unflatten(structure, own)
      state = advance_lane(trial, state, _with_keys(world), num_steps)
      return jax.tree.map(lambda a, b: a.at[i].set(b), states, state)

    # `num_lanes` is an argument because a loop of known length one is dissolved
    # into its surroundings, and then compiled to other last digits.
    slots = jax.lax.cond(
      jnp.any(refill != CONTINUE),
      lambda: jax.lax.fori_loop(
        0, num_lanes, lambda i, slots: begin(i, slots, seeds, leaves, refill), slots
      ),
      lambda: slots,
    )
    return slots._replace(state=jax.lax.fori_loop(0, num_lanes, lane, slots.state))

  return advance


def group_size(num_lanes: int) -> int:
  """Lanes that are evaluated in full together, of so many that are batched."""
  return -(-num_lanes // _GROUPS)


def advance_vmapped(structure: Any):
  """All lanes in one batched program: the right form on an accelerator.

  All lanes stand at a check when a dispatch begins, and so meet every later check
  together. There all glance at a part of their test samples. Those of which that decides
  nothing, a few of them, read all, in groups.

  Args:
    structure: of the trials, a tree's.

  Returns:
    A function as `advance_mapped` does. Its `num_steps` is a multiple of the steps
    between two checks.
  """
  select_lanes = jax.vmap(select)

  def of_each(method: Callable) -> Callable:
    """vmaps a method of a trial, given its leaves first."""
    return jax.vmap(lambda own, *rest: method(jax.tree.unflatten(structure, own), *rest))

  init, make_world = of_each(lambda trial, own: trial.init(own)), of_each(world_of)
  evaluate = of_each(lambda trial, state, world: trial.evaluate(state, world))
  in_full = of_each(lambda trial, state, world: trial.evaluate_in_full(state, world))
  glance = of_each(lambda trial, state, world: trial.glance(state, world))
  train = of_each(
    lambda trial, state, world: trial.train(state, world, trial.protocol.check_every)
  )

  def look_closer(
    leaves: Leaves, states: State, worlds: World, glanced: State, of: Bool[Array, " L"]
  ) -> State:
    """Evaluates these lanes in full; of the others it is what was glanced at."""
    num_lanes = len(of)
    width = group_size(num_lanes)
    order = jnp.argsort(~of)  # those first
    number = jnp.sum(of)

    def next_group(k, found):
      place = k * width + jnp.arange(width)
      lanes = jnp.where(place < number, order[place], num_lanes)  # beyond: of none
      own = jax.tree.map(lambda a: a.at[lanes].get(mode="clip"), (leaves, states, worlds))
      return jax.tree.map(
        lambda a, b: a.at[lanes].set(b, mode="drop"), found, in_full(*own)
      )

    return jax.lax.fori_loop(0, (number + width - 1) // width, next_group, glanced)

  def begin(slots: Slots, seeds: Seeds, leaves: Leaves, refill) -> Slots:
    started = select_lanes(refill == START, init(leaves, seeds), slots.state)
    worlds = make_world(leaves, seeds)
    return Slots(started, select_lanes(refill != CONTINUE, worlds, slots.world))

  def advance(
    slots: Slots, seeds: Seeds, leaves: Leaves, refill, num_steps, num_lanes
  ) -> Slots:
    del num_lanes  # the batch is the array's
    slots = jax.lax.cond(
      jnp.any(refill != CONTINUE),
      lambda: begin(slots, seeds, leaves, refill),
      lambda: slots,
    )
    worlds = _with_keys(slots.world)
    trial = structure.unflatten(leaves)
    check_every = trial.protocol.check_every

    def unfinished(carry):
      left, states = carry
      return (left > 0) & jnp.any(states.active)

    def check(carry):
      left, before = carry
      trained = train(leaves, before, worlds)
      if trial.glances:
        glanced, decided = glance(leaves, trained, worlds)
        undecided = before.active & ~decided
        after = look_closer(leaves, trained, worlds, glanced, undecided)
      else:
        after = evaluate(leaves, trained, worlds)
      return left - check_every, select_lanes(before.active, after, before)

    _, states = jax.lax.while_loop(unfinished, check, (num_steps, slots.state))
    return slots._replace(state=states)

  return advance
