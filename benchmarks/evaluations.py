"""How many prompts a check of batched lanes reads, and in how many steps.

    python -m benchmarks.evaluations --models=transformer,ffn --lengths=4,12

Trials run to their threshold twice: evaluated chunk by chunk, as one after another on
CPUs, and in two stages, as in batched lanes. What each check read is noted. Then checks
of as many lanes are drawn at random: of lanes that are refilled as trials end, no two are
in step. Chunk by chunk all lanes read as often as the one that reads most. In two stages
they read once, and a few lanes at a time read the rest.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import rich.console
import rich.table
from absl import app, flags

from sepfx import models, precision
from sepfx.ensembles import Cell
from sepfx.ensembles.advance import group_size
from sepfx.tasks import QSTR
from sepfx.training import Online, OnlineTrial, State, World, select
from sepfx.training.online import CHUNK, GLANCE, PART

flags.DEFINE_list("models", ["transformer", "ffn"], "Which.")
flags.DEFINE_list("lengths", ["4", "12"], "N.")
flags.DEFINE_integer("num_trials", 8, "Trials of each cell.", lower_bound=1)
flags.DEFINE_integer("lanes", 32, "Lanes that are batched.", lower_bound=1)
FLAGS = flags.FLAGS

# Sets of lanes that are drawn.
_DRAWS = 10_000


def in_chunks(trial: OnlineTrial, state: State, world: World) -> State:
  """Trains to the next check and evaluates as on a CPU."""
  return trial.advance(state, world)


def in_two_stages(trial: OnlineTrial, state: State, world: World) -> State:
  """The same as in batched lanes."""
  state = trial.train(state, world, trial.protocol.check_every)
  glanced, decided = trial.glance(state, world)
  return select(decided, glanced, trial.evaluate_in_full(state, world))


def exact_checks(trial: OnlineTrial, advance: Callable) -> tuple[np.ndarray, np.ndarray]:
  """Of the checks of all trials: whether all prompts were read, and chunks beyond one."""
  seeds = Cell(trial).seeds(0, FLAGS.num_trials)
  world, state = jax.vmap(trial.world)(seeds), jax.vmap(trial.init)(seeds)

  @jax.jit
  def next_check(state: State) -> tuple[State, jax.Array]:
    after = jax.vmap(lambda *own: advance(trial, *own))(state, world)
    further = after.memory.excess - state.memory.excess
    return jax.vmap(select)(state.active, after, state), further

  exact, further = [], []
  while np.any(state.active):
    active = np.asarray(state.active)
    state, more = next_check(state)
    place = jnp.maximum(state.checks - 1, 0)
    own = jnp.take_along_axis(state.curve.exact, place[:, None], axis=1)[:, 0]
    exact.append(np.asarray(own)[active])
    further.append(np.asarray(more)[active])
  return np.concatenate(exact), np.concatenate(further)


@precision.single()
def main(_: list[str]) -> None:
  table = rich.table.Table("model", "N", "checks", "evaluation", "prompts", "steps")
  rng = np.random.default_rng(0)
  for model in FLAGS.models:
    for length in map(int, FLAGS.lengths):
      task = QSTR(length=length)
      protocol = Online()
      trial = protocol.trial(task, task, models.build(model, task), model)
      whole = protocol.num_test
      exact, further = exact_checks(trial, in_chunks)
      chunks = np.where(exact, -(-whole // CHUNK), further + 1)
      reads = rng.choice(chunks, (_DRAWS, FLAGS.lanes)).max(axis=1).mean()
      name = (model, str(length), f"{len(exact)}")
      table.add_row(*name, "in chunks", f"{CHUNK * reads:,.0f}", f"{reads:.1f}")
      exact, _ = exact_checks(trial, in_two_stages)
      undecided = rng.choice(exact, (_DRAWS, FLAGS.lanes)).sum(axis=1)
      group = group_size(FLAGS.lanes)
      groups = np.ceil(undecided / group).mean()
      prompts = GLANCE + groups * group * whole / FLAGS.lanes
      steps = 1 + groups * -(-whole // PART)
      name = (model, str(length), f"{len(exact)}")
      table.add_row(*name, "in two stages", f"{prompts:,.0f}", f"{steps:.1f}")
  rich.console.Console().print(table)


if __name__ == "__main__":
  app.run(main)
