"""Training on a fixed sample, epoch by epoch (the protocol behind Figure 2)."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from sepfx.errors import require
from sepfx.models import predict
from sepfx.training.risks import averaged_risk
from sepfx.training.trials import Seeds


class EpochState(NamedTuple):
  """A training run between two epochs."""

  params: Any
  opt_state: Any
  epoch: Int[Array, ""]


@dataclasses.dataclass(frozen=True)
class EpochTraining:
  """Minimises the averaged risk (2.2) of n fixed prompts, reshuffled each epoch.

  Pure functions: `sample(seeds)` draws the prompts, `init(seeds)` the weights and
  `epoch(seeds, sample, state)` goes once through the prompts.

  Attributes:
    task: what the prompts are drawn from.
    model: a `flax.linen` module [n N D] -> [n N] with parameters only.
    optimizer: any optax transformation.
    num_samples: n.
    batch_size: prompts a step; the last batch of an epoch may be smaller.

  Raises:
    InvalidSetting: for a setting outside its domain.
  """

  task: Any
  model: nn.Module
  optimizer: optax.GradientTransformation
  num_samples: int
  batch_size: int = 64

  def __post_init__(self):
    require(self.num_samples >= 1, "num_samples", self.num_samples, "an integer >= 1")
    require(self.batch_size >= 1, "batch_size", self.batch_size, "an integer >= 1")

  def _keys(self, seeds: Seeds):
    return jax.random.split(seeds.trial, 3)

  def sample(self, seeds: Seeds) -> tuple[Any, Any]:
    """Returns the planted parameters and the n prompts."""
    planted = self.task.init(seeds.task)
    _, data_key, _ = self._keys(seeds)
    return planted, self.task.sample(data_key, planted, self.num_samples)

  def init(self, seeds: Seeds) -> EpochState:
    """Returns the state before the first epoch."""
    weights_key, _, _ = self._keys(seeds)
    inputs = jnp.zeros((1, self.task.length, self.task.input_dim))
    params = self.model.init(weights_key, inputs)["params"]
    return EpochState(params, self.optimizer.init(params), jnp.int32(0))

  def epoch(
    self, seeds: Seeds, sample: tuple[Any, Any], state: EpochState
  ) -> tuple[EpochState, Float[Array, ""]]:
    """Goes through all prompts once, in an order drawn for this epoch.

    Returns:
      The state after it and the mean training loss of its batches, each counted once
      whatever its size.
    """
    planted, prompts = sample
    _, _, order_key = self._keys(seeds)
    order_key = jax.random.fold_in(order_key, state.epoch)
    order = jax.random.permutation(order_key, self.num_samples)

    def loss_fn(params, batch):
      predictions = predict(self.model, params, self.task.encode(planted, batch))
      return averaged_risk(predictions, batch.labels)

    def step(carry, chosen):
      params, opt_state = carry
      batch = jax.tree.map(lambda a: a[chosen], prompts)
      loss, grads = jax.value_and_grad(loss_fn)(params, batch)
      updates, opt_state = self.optimizer.update(grads, opt_state, params)
      return (optax.apply_updates(params, updates), opt_state), loss

    whole = self.num_samples // self.batch_size * self.batch_size
    carry, losses = jax.lax.scan(
      step, (state.params, state.opt_state), order[:whole].reshape(-1, self.batch_size)
    )
    if whole < self.num_samples:
      carry, last = step(carry, order[whole:])
      losses = jnp.append(losses, last)
    return EpochState(*carry, state.epoch + 1), jnp.mean(losses)
