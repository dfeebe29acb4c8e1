"""Small models, and a cell that learns in a second, shared by several tests."""

import dataclasses
import functools

import flax.linen as nn
import jax
import numpy as np
import optax

from sepfx.models import GRU, FeedForward, Transformer
from sepfx.tasks import QSTR
from sepfx.training import Online, OnlineTrial, Seeds

TASK = QSTR(length=3, token_dim=2)
PROTOCOL = Online(
  thresholds=(0.9, 0.7),
  optimizer=optax.adamw(5e-3, weight_decay=0.01),
  batch_size=16,
  check_every=5,
  num_test=520,
  max_samples=16 * 5 * 60,
)
MODEL = Transformer(width=20)
TRIAL = OnlineTrial(TASK, TASK, MODEL, PROTOCOL, "m")


class Linear(nn.Module):
  """The smallest model: one dense layer on each token."""

  @nn.compact
  def __call__(self, inputs):
    return nn.Dense(1)(inputs)[..., 0]


def losses(samples, loss, exact):
  """A curve as an online trial leaves it."""
  dtype = [("samples", np.int64), ("loss", np.float32), ("exact", np.bool_)]
  return np.array(list(zip(samples, loss, exact, strict=True)), dtype)


def transformer():
  return Transformer(width=20)


def ffn():
  return FeedForward((20,))


def gru():
  return GRU(units=8)


def with_protocol(trial, **settings):
  """The trial with other settings of its protocol."""
  protocol = dataclasses.replace(trial.protocol, **settings)
  return dataclasses.replace(trial, protocol=protocol)


def seeds(k: int) -> Seeds:
  return Seeds(*jax.random.split(jax.random.key(k)))


@functools.cache
def _compiled(trial: OnlineTrial):
  return jax.jit(trial.init), jax.jit(trial.world), jax.jit(trial.advance)


def run_to_end(trial: OnlineTrial, own: Seeds):
  """One trial by a Python loop over `advance`; its final state in NumPy."""
  init, make_world, advance = _compiled(trial)
  state, world = init(own), make_world(own)
  while state.active:
    state = advance(state, world)
  return jax.tree.map(np.asarray, state)
